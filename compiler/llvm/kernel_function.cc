#include "compiler/llvm/kernel_function.h"

#include "absl/strings/numbers.h"
#include "base/check.h"
#include "llvm/IR/Function.h"

namespace stampmill {
namespace {

llvm::Function* MakeFunction(llvm::Module& module, const std::string& name) {
  llvm::LLVMContext& context = module.getContext();
  llvm::Type* pointer = llvm::PointerType::get(context, 0);
  llvm::Type* i64 = llvm::Type::getInt64Ty(context);
  auto* type = llvm::FunctionType::get(llvm::Type::getInt32Ty(context), {pointer, i64, i64}, false);
  auto* function = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, name, module);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  return function;
}

}  // namespace

KernelFunction::KernelFunction(llvm::Module& module, const std::string& name, const CpuFacts& facts)
    : KernelFunction(MakeFunction(module, name), facts) {}

KernelFunction::KernelFunction(llvm::Function* function, const CpuFacts& facts)
    : ir_(function, facts) {}

llvm::Value* KernelFunction::Dim(const DimExpr& dim) {
  if (std::optional<int64_t> constant = dim.constant()) return ir_.Int(*constant);
  if (auto found = dims_.find(dim); found != dims_.end()) return found->second;
  llvm::Value* value = nullptr;
  ir_.AtEntry([&] { value = EmitDim(dim); });
  dims_[dim] = value;
  return value;
}

std::vector<llvm::Value*> KernelFunction::Dims(std::span<const DimExpr> shape) {
  std::vector<llvm::Value*> values;
  for (const DimExpr& dim : shape) values.push_back(Dim(dim));
  return values;
}

llvm::Value* KernelFunction::EmitDim(const DimExpr& dim) {
  llvm::IRBuilder<>& b = ir_.b();
  if (dim.kind() == DimExpr::Kind::kSymbol) {
    int64_t index = -1;
    CHECK(absl::SimpleAtoi(dim.symbol_name().substr(1), &index)) << dim.ToString();
    llvm::Value* args = function()->getArg(0);
    llvm::Value* dims = b.CreateLoad(b.getPtrTy(), b.CreateConstGEP1_64(b.getPtrTy(), args, 1));
    return b.CreateLoad(b.getInt64Ty(),
                        b.CreateConstGEP1_64(b.getInt64Ty(), dims, static_cast<uint64_t>(index)));
  }
  llvm::Value* value = Dim(dim.operands()[0]);
  for (const DimExpr& operand : dim.operands().subspan(1)) {
    llvm::Value* other = Dim(operand);
    switch (dim.kind()) {
      case DimExpr::Kind::kAdd:
        value = ir_.Add(value, other);
        break;
      case DimExpr::Kind::kMul:
        value = ir_.Mul(value, other);
        break;
      case DimExpr::Kind::kFloorDiv:
        value = ir_.FloorDiv(value, other);
        break;
      case DimExpr::Kind::kMod:
        value = ir_.FloorMod(value, other);
        break;
      case DimExpr::Kind::kMin:
        value = ir_.Min(value, other);
        break;
      case DimExpr::Kind::kMax:
        value = ir_.Max(value, other);
        break;
      default:
        CHECK(false) << dim.ToString();
    }
  }
  return value;
}

BufferView KernelFunction::Buffer(int64_t index, const Operand& operand) {
  BufferView view;
  view.dtype = operand.dtype;
  view.strides = Dims(RowMajorStrides(operand.shape));
  ir_.AtEntry([&] {
    llvm::IRBuilder<>& b = ir_.b();
    llvm::Value* buffers = b.CreateLoad(b.getPtrTy(), function()->getArg(0));
    view.address = b.CreateLoad(
        b.getPtrTy(), b.CreateConstGEP1_64(b.getPtrTy(), buffers, static_cast<uint64_t>(index)));
  });
  return view;
}

llvm::Value* KernelFunction::Scratch() {
  llvm::Value* scratch = nullptr;
  ir_.AtEntry([&] {
    llvm::IRBuilder<>& b = ir_.b();
    scratch =
        b.CreateLoad(b.getPtrTy(), b.CreateConstGEP1_64(b.getPtrTy(), function()->getArg(0), 2));
  });
  return scratch;
}

void KernelFunction::ForEachTask(const std::function<void(llvm::Value* task)>& task) {
  ir_.For(function()->getArg(1), function()->getArg(2), 1, task);
  ir_.b().CreateRet(ir_.b().getInt32(0));
}

}  // namespace stampmill
