#include "compiler/llvm/library_emitter.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/skeletons/skeletons.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Function.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

namespace stampmill {
namespace {

constexpr char kPrefix[] = "stampmill_skeleton_";

llvm::Function* DeclareSkeleton(llvm::Module& module, const std::string& skeleton) {
  llvm::LLVMContext& context = module.getContext();
  llvm::Type* pointer = llvm::PointerType::get(context, 0);
  auto* type = llvm::FunctionType::get(
      llvm::Type::getVoidTy(context),
      {pointer, pointer, pointer, pointer, llvm::Type::getInt64Ty(context)}, false);
  return llvm::cast<llvm::Function>(
      module.getOrInsertFunction(absl::StrCat(kPrefix, skeleton), type).getCallee());
}

llvm::Value* ConfigurationOf(KernelFunction& kernel, const Library& library) {
  std::vector<uint64_t> values(library.configuration.begin(), library.configuration.end());
  llvm::Constant* list = llvm::ConstantDataArray::get(kernel.ir().context(), values);
  return new llvm::GlobalVariable(kernel.ir().module(), list->getType(), true,
                                  llvm::GlobalValue::PrivateLinkage, list, "configuration");
}

// The stage's dims in order, in memory.
llvm::Value* DimsOf(KernelFunction& kernel, const Library& library) {
  const std::vector<llvm::Value*> values = kernel.Dims(library.dims);
  llvm::Value* list = nullptr;
  kernel.ir().AtEntry([&] {
    llvm::IRBuilder<>& b = kernel.ir().b();
    list = b.CreateAlloca(llvm::ArrayType::get(b.getInt64Ty(), values.size()));
    for (size_t n = 0; n < values.size(); ++n) {
      b.CreateStore(values[n], b.CreateConstGEP1_64(b.getInt64Ty(), list, n));
    }
  });
  return list;
}

}  // namespace

absl::Status EmitLibrary(KernelFunction& kernel, const Library& library) {
  if (FindSkeleton(library.skeleton) == nullptr) {
    return absl::UnimplementedError(absl::StrCat("no skeleton is called '", library.skeleton, "'"));
  }
  llvm::Function* skeleton = DeclareSkeleton(kernel.ir().module(), library.skeleton);
  llvm::Value* configuration = ConfigurationOf(kernel, library);
  llvm::Value* dims = DimsOf(kernel, library);
  llvm::Value* scratch = kernel.Scratch();
  llvm::Value* buffers = nullptr;
  kernel.ir().AtEntry([&] {
    llvm::IRBuilder<>& b = kernel.ir().b();
    buffers = b.CreateLoad(b.getPtrTy(), kernel.function()->getArg(0));
  });
  kernel.ForEachTask([&](llvm::Value* task) {
    kernel.ir().b().CreateCall(skeleton, {configuration, dims, buffers, scratch, task});
  });
  return absl::OkStatus();
}

absl::Status LinkSkeletons(llvm::Module& module) {
  for (const std::span<const std::byte> bitcode : SkeletonBitcode()) {
    const llvm::StringRef bytes(reinterpret_cast<const char*>(bitcode.data()), bitcode.size());
    llvm::Expected<std::unique_ptr<llvm::Module>> skeletons =
        llvm::getLazyBitcodeModule(llvm::MemoryBufferRef(bytes, "skeletons"), module.getContext());
    if (!skeletons) {
      return absl::InternalError(
          absl::StrCat("skeletons: ", llvm::toString(skeletons.takeError())));
    }
    (*skeletons)->setTargetTriple(module.getTargetTriple());
    (*skeletons)->setDataLayout(module.getDataLayout());
    if (llvm::Linker::linkModules(module, std::move(*skeletons), llvm::Linker::LinkOnlyNeeded)) {
      return absl::InternalError("skeletons do not link");
    }
  }
  for (llvm::Function& function : module) {
    if (function.isDeclaration() || function.hasLocalLinkage()) continue;
    function.setComdat(nullptr);
    function.setLinkage(llvm::GlobalValue::InternalLinkage);
    function.removeFnAttr("tune-cpu");
    if (function.getName().starts_with(kPrefix)) {
      function.addFnAttr(llvm::Attribute::AlwaysInline);
    }
  }
  return absl::OkStatus();
}

}  // namespace stampmill
