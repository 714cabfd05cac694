#include "compiler/llvm/codegen.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "compiler/llvm/block_contraction_emitter.h"
#include "compiler/llvm/byte_contraction_emitter.h"
#include "compiler/llvm/contraction_emitter.h"
#include "compiler/llvm/kernel_function.h"
#include "compiler/llvm/library_emitter.h"
#include "compiler/llvm/link.h"
#include "compiler/llvm/nest_emitter.h"
#include "devices/artifact.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"

namespace stampmill {
namespace {

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span<const char>(text));
}

// One kernel, generated from its canonical form: equal canonical bytes are equal code.
absl::StatusOr<llvm::Function*> EmitKernel(llvm::Module& module, const KernelSource& source,
                                           const std::string& canonical, const Target& target,
                                           const CpuFacts& facts) {
  ASSIGN_OR_RETURN(StageBody body, ParseCanonicalBytes(canonical));
  KernelFunction kernel(module, absl::StrCat("kernel_", source.name), facts);
  if (const Nest* nest = std::get_if<Nest>(&body)) {
    EmitNest(kernel, *nest, target);
    return kernel.function();
  }
  if (const Contraction* contraction = std::get_if<Contraction>(&body)) {
    if (contraction->blocks.has_value()) {
      EmitBlockContraction(kernel, *contraction, target);
    } else if (contraction->of_bytes()) {
      EmitByteContraction(kernel, *contraction, target);
    } else {
      EmitContraction(kernel, *contraction, target);
    }
    return kernel.function();
  }
  const absl::Status status = EmitLibrary(kernel, std::get<Library>(body));
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("kernel '", source.name, "': ", status.message()));
  }
  return kernel.function();
}

llvm::Constant* TextConstant(llvm::Module& module, const std::string& text) {
  llvm::Constant* bytes = llvm::ConstantDataArray::getString(module.getContext(), text, true);
  return new llvm::GlobalVariable(module, bytes->getType(), true, llvm::GlobalValue::PrivateLinkage,
                                  bytes, "name");
}

// The table and the query function of devices/artifact.h: CpuKernelEntry[], CpuLibrary.
void EmitLibraryTable(llvm::Module& module, std::span<const KernelSource> kernels,
                      const std::vector<llvm::Function*>& functions, const Digest& digest) {
  llvm::LLVMContext& context = module.getContext();
  llvm::Type* pointer = llvm::PointerType::get(context, 0);
  auto* entry_type = llvm::StructType::get(context, {pointer, pointer});
  std::vector<llvm::Constant*> entries;
  for (size_t n = 0; n < functions.size(); ++n) {
    entries.push_back(llvm::ConstantStruct::get(
        entry_type, {TextConstant(module, kernels[n].name), functions[n]}));
  }
  auto* table_type = llvm::ArrayType::get(entry_type, entries.size());
  auto* table =
      new llvm::GlobalVariable(module, table_type, true, llvm::GlobalValue::PrivateLinkage,
                               llvm::ConstantArray::get(table_type, entries), "entries");
  llvm::Type* i32 = llvm::Type::getInt32Ty(context);
  llvm::Constant* library = llvm::ConstantStruct::getAnon(
      {llvm::ConstantInt::get(i32, kKernelAbiVersion),
       llvm::ConstantInt::get(i32, static_cast<uint64_t>(functions.size())), table,
       llvm::ConstantDataArray::get(
           context, llvm::ArrayRef<uint8_t>(digest.bytes.data(), digest.bytes.size()))});
  auto* global = new llvm::GlobalVariable(module, library->getType(), true,
                                          llvm::GlobalValue::PrivateLinkage, library, "library");
  auto* query =
      llvm::Function::Create(llvm::FunctionType::get(pointer, false),
                             llvm::GlobalValue::ExternalLinkage, kCpuLibraryQuerySymbol, module);
  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(context, "entry", query));
  builder.CreateRet(global);
}

void SetAttributes(llvm::Module& module, const llvm::TargetMachine& machine,
                   const CpuFacts& facts) {
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
    function.addFnAttr("prefer-vector-width", absl::StrCat(facts.vector_bytes * 8));
    function.addFnAttr("min-legal-vector-width", absl::StrCat(facts.vector_bytes * 8));
    function.addFnAttr("no-builtins");
    function.addFnAttr(llvm::Attribute::NoUnwind);
  }
}

absl::Status VerifyModule(const llvm::Module& module) {
  std::string words;
  llvm::raw_string_ostream stream(words);
  if (!llvm::verifyModule(module, &stream)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("generated code does not verify: ", stream.str()));
}

}  // namespace

absl::StatusOr<std::string> CompileKernels(std::span<const KernelSource> kernels,
                                           const Target& target, const CodegenOptions& options) {
  if (target.kind() != "cpu") {
    return absl::UnimplementedError(
        absl::StrCat("code generation: no back end for target ", target.ToString()));
  }
  CpuFacts facts = FactsOf(target);
  ASSIGN_OR_RETURN(std::unique_ptr<llvm::TargetMachine> machine, MakeTargetMachine(target, facts));
  llvm::LLVMContext context;
  llvm::Module module("stampmill", context);
  module.setTargetTriple(machine->getTargetTriple().str());
  module.setDataLayout(machine->createDataLayout());
  module.setPICLevel(llvm::PICLevel::BigPIC);
  Sha256Stream digest;
  digest.Update(BytesOf(target.ToString()));
  std::vector<llvm::Function*> functions;
  for (const KernelSource& source : kernels) {
    RETURN_IF_ERROR(Verify(source.body));
    std::vector<DimExpr> dims;
    std::string canonical = CanonicalBytes(source.body, &dims);
    digest.Update(BytesOf(source.name));
    digest.Update(BytesOf(canonical));
    ASSIGN_OR_RETURN(llvm::Function * function,
                     EmitKernel(module, source, canonical, target, facts));
    functions.push_back(function);
  }
  const bool has_library = std::any_of(kernels.begin(), kernels.end(), [](const auto& kernel) {
    return std::holds_alternative<Library>(kernel.body);
  });
  if (has_library) RETURN_IF_ERROR(LinkSkeletons(module));
  Digest source_digest = digest.Finish();
  EmitLibraryTable(module, kernels, functions, source_digest);
  SetAttributes(module, *machine, facts);
  if (options.ir != nullptr) {
    llvm::raw_string_ostream stream(*options.ir);
    module.print(stream, nullptr);
  }
  RETURN_IF_ERROR(VerifyModule(module));
  if (has_library) Specialise(module, *machine);
  Optimize(module, *machine);
  if (options.assembly != nullptr) *options.assembly = EmitCode(module, *machine, true);
  std::string object = EmitCode(module, *machine, false);
  ASSIGN_OR_RETURN(std::string library, LinkSharedObject(object));
  return Artifact::Serialize(target, source_digest, BytesOf(library));
}

}  // namespace stampmill
