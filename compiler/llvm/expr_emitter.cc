#include "compiler/llvm/expr_emitter.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/check.h"
#include "compiler/codegen/access.h"
#include "compiler/llvm/scalar_ops.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/MDBuilder.h"

namespace stampmill {
namespace {

bool IsVector(const llvm::Value* value) { return value->getType()->isVectorTy(); }
bool IsUniform(const Lane& lane) { return lane.step == nullptr && !IsVector(lane.value); }

// Of a linear offset that grows or shrinks by so little that reading what lies between costs less
// than gathering.
std::optional<int64_t> ShortStride(const Lane& offset, int64_t lanes) {
  constexpr int64_t kApartMax = 4;
  constexpr int64_t kLanesMin = 4;
  if (offset.step == nullptr || lanes < kLanesMin) return std::nullopt;
  auto* step = llvm::dyn_cast<llvm::ConstantInt>(offset.step);
  if (step == nullptr) return std::nullopt;
  int64_t stride = step->getSExtValue();
  if (stride == 0 || stride > kApartMax || stride < -kApartMax) return std::nullopt;
  return stride;
}

// select(compare(x, limit), x, limit): the limit.
std::optional<double> Limit(const Expr& e, ExprOp compare) {
  if (e.op() != ExprOp::kSelect || !e.operands()[2].IsConstant()) return std::nullopt;
  const Expr& condition = e.operands()[0];
  if (condition.op() != compare || condition.operands()[0].id() != e.operands()[1].id() ||
      condition.operands()[1] != e.operands()[2]) {
    return std::nullopt;
  }
  return e.operands()[2].constant_value();
}

// A real that has been clamped to what a byte holds: converting it needs no care.
bool IsClampedTo(const Expr& e, DType byte) {
  if (e.dtype() != DType::kF32 || (byte != DType::kI8 && byte != DType::kU8)) return false;
  const std::optional<double> upper = Limit(e, ExprOp::kLt);
  const std::optional<double> lower =
      upper.has_value() ? Limit(e.operands()[1], ExprOp::kGt) : std::nullopt;
  const double least = byte == DType::kI8 ? -128 : 0;
  return lower.has_value() && *lower >= least && *upper >= *lower && *upper <= least + 255;
}

llvm::Value* ZeroBlock(llvm::Module& module) {
  constexpr char kName[] = "stampmill_zeros";
  if (llvm::GlobalVariable* found = module.getGlobalVariable(kName, true)) return found;
  auto* type = llvm::ArrayType::get(llvm::Type::getInt8Ty(module.getContext()), kZeroBlockBytes);
  auto* zeros = new llvm::GlobalVariable(module, type, true, llvm::GlobalValue::InternalLinkage,
                                         llvm::ConstantAggregateZero::get(type), kName);
  zeros->setAlignment(llvm::Align(64));
  return zeros;
}

}  // namespace

ExprEmitter::ExprEmitter(const Scope& scope)
    : scope_(scope), ir_(scope.kernel->ir()), b_(scope.kernel->ir().b()) {}

Lane ExprEmitter::Emit(const Expr& e) {
  if (auto found = memo_.find(e.id()); found != memo_.end()) return found->second;
  Lane lane = EmitNode(e);
  memo_[e.id()] = lane;
  return lane;
}

llvm::Value* ExprEmitter::EmitLanes(const Expr& e) { return ToLanes(Emit(e)); }

llvm::Value* ExprEmitter::ToLanes(Lane lane) {
  if (IsVector(lane.value) || scope_.lanes == 1) return lane.value;
  llvm::Value* splat = ir_.Splat(lane.value, scope_.lanes);
  if (lane.step == nullptr) return splat;
  std::vector<llvm::Constant*> numbers;
  for (int64_t n = 0; n < scope_.lanes; ++n) numbers.push_back(ir_.Int(n));
  llvm::Value* steps = llvm::ConstantVector::get(numbers);
  if (!Ir::IsInt(lane.step, 1)) steps = b_.CreateMul(steps, ir_.Splat(lane.step, scope_.lanes));
  return b_.CreateAdd(splat, steps);
}

Lane ExprEmitter::EmitNode(const Expr& e) {
  switch (e.op()) {
    case ExprOp::kConstant: {
      llvm::Type* type = ir_.ValueType(e.dtype());
      if (IsFloat(e.dtype())) return {llvm::ConstantFP::get(type, e.constant_value())};
      return {llvm::ConstantInt::get(type, e.constant_bits())};
    }
    case ExprOp::kCoord:
      return scope_.coordinates[static_cast<size_t>(e.index())];
    case ExprOp::kDim:
      return {scope_.kernel->Dim(e.dim())};
    case ExprOp::kLoad:
      return EmitLoad(e);
    case ExprOp::kGuardedLoad:
      return EmitGuardedLoad(e);
    case ExprOp::kReduced:
      return scope_.reduced[static_cast<size_t>(e.index())];
    case ExprOp::kAccumulator:
      return scope_.accumulators[static_cast<size_t>(e.index())];
    default:
      break;
  }
  std::vector<Lane> operands;
  bool uniform = true;
  for (const Expr& operand : e.operands()) {
    operands.push_back(Emit(operand));
    uniform = uniform && IsUniform(operands.back());
  }
  if (!uniform && e.dtype() == DType::kI64 && operands.size() == 2) {
    Lane index = EmitIndexArithmetic(e, operands[0], operands[1]);
    if (index.value != nullptr) return index;
  }
  std::vector<llvm::Value*> values;
  for (const Lane& operand : operands) {
    values.push_back(uniform ? operand.value : ToLanes(operand));
  }
  DType from = e.operands()[0].dtype();
  switch (e.op()) {
    case ExprOp::kSelect:
      return {b_.CreateSelect(values[0], values[1], values[2])};
    case ExprOp::kCast:
      if (IsClampedTo(e.operands()[0], e.dtype())) {
        llvm::Type* i32 = Ir::Vector(b_.getInt32Ty(), Ir::Lanes(values[0]));
        llvm::Type* i8 = Ir::Vector(b_.getInt8Ty(), Ir::Lanes(values[0]));
        return {b_.CreateTrunc(b_.CreateFPToSI(values[0], i32), i8)};
      }
      return {EmitCast(ir_, from, e.dtype(), values[0])};
    case ExprOp::kBitCast:
      return {EmitBitCast(ir_, from, e.dtype(), values[0])};
    default:
      break;
  }
  if (values.size() == 1) return {EmitUnary(ir_, e.op(), from, values[0])};
  return {EmitBinary(ir_, e.op(), from, values[0], values[1])};
}

// Sums and multiples of linear values stay linear; a null value says that the result is not.
Lane ExprEmitter::EmitIndexArithmetic(const Expr& e, Lane a, Lane b) {
  if (IsVector(a.value) || IsVector(b.value)) return {};
  llvm::Value* zero = ir_.Int(0);
  llvm::Value* a_step = a.step == nullptr ? zero : a.step;
  llvm::Value* b_step = b.step == nullptr ? zero : b.step;
  switch (e.op()) {
    case ExprOp::kAdd:
      return {ir_.Add(a.value, b.value), ir_.Add(a_step, b_step)};
    case ExprOp::kSub:
      return {ir_.Sub(a.value, b.value), ir_.Sub(a_step, b_step)};
    case ExprOp::kMul:
      if (a.step != nullptr && b.step != nullptr) return {};
      return {ir_.Mul(a.value, b.value),
              a.step != nullptr ? ir_.Mul(a_step, b.value) : ir_.Mul(b_step, a.value)};
    default:
      return {};
  }
}

Lane ExprEmitter::Offset(const BufferView& view, std::span<const Lane> coordinates) {
  Lane offset = {ir_.Int(0)};
  for (size_t n = 0; n < coordinates.size(); ++n) {
    llvm::Value* stride = view.strides[n];
    const Lane& at = coordinates[n];
    if (IsVector(at.value) || IsVector(offset.value)) {
      llvm::Value* part = ToLanes(at);
      if (!Ir::IsInt(stride, 1)) part = b_.CreateMul(part, ir_.Splat(stride, scope_.lanes));
      offset = {b_.CreateAdd(ToLanes(offset), part)};
      continue;
    }
    llvm::Value* step = offset.step;
    if (at.step != nullptr) {
      llvm::Value* more = ir_.Mul(at.step, stride);
      step = step == nullptr ? more : ir_.Add(step, more);
    }
    offset = {ir_.Add(offset.value, ir_.Mul(at.value, stride)), step};
  }
  if (offset.step != nullptr && Ir::IsInt(offset.step, 0)) offset.step = nullptr;
  return offset;
}

llvm::Value* ExprEmitter::Element(const BufferView& view, llvm::Value* offset) {
  return b_.CreateGEP(ir_.MemoryType(view.dtype), view.address, offset);
}

llvm::Value* ExprEmitter::FromMemory(DType dtype, llvm::Value* raw) {
  if (dtype == DType::kBool) {
    return b_.CreateICmpNE(raw, llvm::Constant::getNullValue(raw->getType()));
  }
  if (dtype == DType::kF16 || dtype == DType::kBF16) return WidenBits(ir_, dtype, raw);
  return raw;
}

llvm::Value* ExprEmitter::ToMemory(DType dtype, llvm::Value* value) {
  if (dtype == DType::kBool) {
    return b_.CreateZExt(value, Ir::Vector(b_.getInt8Ty(), Ir::Lanes(value)));
  }
  if (dtype == DType::kF16 || dtype == DType::kBF16) return NarrowBits(ir_, dtype, value);
  return value;
}

llvm::Value* ExprEmitter::LoadAt(const BufferView& view, llvm::Value* address, int64_t lanes) {
  llvm::Type* type = Ir::Vector(ir_.MemoryType(view.dtype), lanes);
  // Buffers may be unaligned.
  llvm::LoadInst* load = b_.CreateAlignedLoad(type, address, llvm::Align(1));
  if (view.constant) {
    load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(ir_.context(), {}));
  }
  return load;
}

Lane ExprEmitter::EmitLoad(const Expr& e) {
  const BufferView& view = scope_.operands[static_cast<size_t>(e.index())];
  std::vector<Lane> coordinates;
  for (const Expr& coordinate : LoadCoordinates(e)) coordinates.push_back(Emit(coordinate));
  Lane offset = Offset(view, coordinates);
  llvm::Value* raw = nullptr;
  if (IsUniform(offset)) {
    raw = LoadAt(view, Element(view, offset.value), 1);
  } else if (offset.step != nullptr && Ir::IsInt(offset.step, 1)) {
    raw = LoadAt(view, Element(view, offset.value), scope_.lanes);
  } else if (std::optional<int64_t> stride = ShortStride(offset, scope_.lanes)) {
    raw = LoadStrided(view, offset.value, *stride);
  } else {
    raw = Gather(view, offset, nullptr);
  }
  return {FromMemory(view.dtype, raw)};
}

llvm::Value* ExprEmitter::AddressOf(const Expr& load) {
  const BufferView& view = scope_.operands[static_cast<size_t>(load.index())];
  std::vector<Lane> coordinates;
  for (const Expr& coordinate : load.operands()) coordinates.push_back(Emit(coordinate));
  return Element(view, Offset(view, coordinates).value);
}

// Vectors side by side from the first element that is wanted to the last, and nothing beyond; then
// the elements are picked out of them.
llvm::Value* ExprEmitter::LoadStrided(const BufferView& view, llvm::Value* offset, int64_t stride) {
  int64_t lanes = scope_.lanes;
  int64_t apart = std::abs(stride);
  int64_t span = (lanes - 1) * apart + 1;
  if (stride < 0) offset = ir_.Add(offset, ir_.Int(1 - span));
  llvm::Value* result = nullptr;
  for (int64_t part = 0; part < apart; ++part) {
    int64_t begin = std::min(part * lanes, span - lanes);
    llvm::Value* loaded = LoadAt(view, Element(view, ir_.Add(offset, ir_.Int(begin))), lanes);
    std::vector<int> picks;
    for (int64_t n = 0; n < lanes; ++n) {
      int64_t at = (stride < 0 ? lanes - 1 - n : n) * apart;
      bool is_here = std::min(at / lanes, apart - 1) == part;
      picks.push_back(static_cast<int>(is_here ? lanes + at - begin : n));
    }
    if (result == nullptr) result = llvm::PoisonValue::get(loaded->getType());
    result = b_.CreateShuffleVector(result, loaded, picks);
  }
  return result;
}

llvm::Value* ExprEmitter::Gather(const BufferView& view, Lane offset, llvm::Value* mask) {
  llvm::Type* element = ir_.MemoryType(view.dtype);
  llvm::Type* type = Ir::Vector(element, scope_.lanes);
  int64_t bytes = static_cast<int64_t>(SizeBytes(view.dtype));
  if (ir_.facts().avx512 && IsVector(offset.value) && bytes >= 4) {
    llvm::Value* addresses = b_.CreateGEP(element, view.address, offset.value);
    llvm::Value* all = mask != nullptr
                           ? mask
                           : llvm::ConstantInt::getTrue(Ir::Vector(b_.getInt1Ty(), scope_.lanes));
    return b_.CreateMaskedGather(type, addresses, llvm::Align(1), all,
                                 llvm::Constant::getNullValue(type));
  }
  llvm::Value* result = llvm::PoisonValue::get(type);
  llvm::Value* at = offset.value;
  for (int64_t n = 0; n < scope_.lanes; ++n) {
    llvm::Value* lane_offset = IsVector(offset.value)
                                   ? b_.CreateExtractElement(offset.value, static_cast<uint64_t>(n))
                                   : at;
    llvm::Value* address = Element(view, lane_offset);
    if (mask != nullptr) {
      llvm::Value* on = b_.CreateExtractElement(mask, static_cast<uint64_t>(n));
      address = b_.CreateSelect(on, address, ZeroBlock(ir_.module()));
    }
    result = b_.CreateInsertElement(result, LoadAt(view, address, 1), static_cast<uint64_t>(n));
    if (offset.step != nullptr) at = b_.CreateAdd(at, offset.step);
  }
  return result;
}

Lane ExprEmitter::EmitGuardedLoad(const Expr& e) {
  if (scope_.guards_hold) return EmitLoad(e);
  const BufferView& view = scope_.operands[static_cast<size_t>(e.index())];
  Lane condition = Emit(e.operands()[0]);
  Lane otherwise = Emit(e.operands()[1]);
  std::vector<Lane> coordinates;
  for (const Expr& coordinate : e.operands().subspan(2)) coordinates.push_back(Emit(coordinate));
  Lane offset = Offset(view, coordinates);
  bool unit = offset.step != nullptr && Ir::IsInt(offset.step, 1);
  int64_t stride = unit ? 1 : ShortStride(offset, scope_.lanes).value_or(0);
  int64_t bytes = static_cast<int64_t>(SizeBytes(view.dtype));
  if (scope_.lanes * stride * bytes > kZeroBlockBytes) stride = 0;
  if (IsUniform(condition) && (stride > 0 || IsUniform(offset))) {
    int64_t lanes = stride > 0 ? scope_.lanes : 1;
    BufferView place = view;
    place.address =
        b_.CreateSelect(condition.value, Element(view, offset.value), ZeroBlock(ir_.module()));
    llvm::Value* raw =
        stride > 1 ? LoadStrided(place, ir_.Int(0), stride) : LoadAt(view, place.address, lanes);
    llvm::Value* value = FromMemory(view.dtype, raw);
    // The block of zeros is the other value.
    const Expr& other = e.operands()[1];
    if (other.IsConstant() && other.constant_bits() == 0) return {value};
    if (lanes == 1 && IsUniform(otherwise)) {
      return {b_.CreateSelect(condition.value, value, otherwise.value)};
    }
    if (lanes == 1) value = ir_.Splat(value, scope_.lanes);
    return {b_.CreateSelect(condition.value, value, ToLanes(otherwise))};
  }
  llvm::Value* mask = ToLanes(condition);
  llvm::Value* raw = nullptr;
  if (unit && scope_.lanes > 1) {
    llvm::Type* type = Ir::Vector(ir_.MemoryType(view.dtype), scope_.lanes);
    raw = b_.CreateMaskedLoad(type, Element(view, offset.value), llvm::Align(1), mask,
                              llvm::Constant::getNullValue(type));
  } else {
    if (!IsVector(offset.value) && offset.step == nullptr) offset.step = ir_.Int(0);
    raw = Gather(view, offset, mask);
  }
  return {b_.CreateSelect(mask, FromMemory(view.dtype, raw), ToLanes(otherwise))};
}

void ExprEmitter::Store(const BufferView& output, std::span<const Lane> coordinates, Lane value) {
  Lane offset = Offset(output, coordinates);
  if (scope_.lanes == 1 || (IsUniform(offset) && IsUniform(value))) {
    b_.CreateAlignedStore(ToMemory(output.dtype, value.value), Element(output, offset.value),
                          llvm::Align(1));
    return;
  }
  llvm::Value* lanes = ToMemory(output.dtype, ToLanes(value));
  if (offset.step != nullptr && Ir::IsInt(offset.step, 1)) {
    b_.CreateAlignedStore(lanes, Element(output, offset.value), llvm::Align(1));
    return;
  }
  llvm::Value* at = offset.value;
  for (int64_t n = 0; n < scope_.lanes; ++n) {
    llvm::Value* lane_offset = IsVector(offset.value)
                                   ? b_.CreateExtractElement(offset.value, static_cast<uint64_t>(n))
                                   : at;
    b_.CreateAlignedStore(b_.CreateExtractElement(lanes, static_cast<uint64_t>(n)),
                          Element(output, lane_offset), llvm::Align(1));
    if (offset.step != nullptr) at = b_.CreateAdd(at, offset.step);
  }
}

Lane ExprEmitter::EmitUpdate(const Expr& e) {
  bool is_sum = e.op() == ExprOp::kAdd && (e.dtype() == DType::kF32 || e.dtype() == DType::kF64);
  if (!is_sum) return Emit(e);
  for (size_t side = 0; side < 2; ++side) {
    const Expr& sum = e.operands()[side];
    const Expr& product = e.operands()[1 - side];
    if (sum.op() != ExprOp::kAccumulator || product.op() != ExprOp::kMul) continue;
    return {EmitMultiplyAdd(ir_, EmitLanes(product.operands()[0]), EmitLanes(product.operands()[1]),
                            EmitLanes(sum))};
  }
  return Emit(e);
}

}  // namespace stampmill
