// Expressions are compiled once per stage to a flat list of register operations. Each operation has
// a level: the innermost loop axis that it depends on. When only an inner coordinate changes, only
// operations from that level on run again.
#include "graph/nest_interpreter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "graph/block_layout.h"
#include "graph/block_row.h"
#include "graph/row_records.h"

namespace stampmill {
namespace {

uint64_t LoadBits(const std::byte* bytes, size_t size) {
  uint64_t bits = 0;
  switch (size) {
    case 1:
      memcpy(&bits, bytes, 1);
      break;
    case 2:
      memcpy(&bits, bytes, 2);
      break;
    case 4:
      memcpy(&bits, bytes, 4);
      break;
    default:
      memcpy(&bits, bytes, 8);
      break;
  }
  return bits;
}

// A tensor with the shape that the stage gives it.
struct View {
  std::byte* data = nullptr;
  size_t element_size = 0;
  bool is_bool = false;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
};

absl::StatusOr<std::vector<int64_t>> EvaluateShape(const Shape& shape,
                                                   const DimExpr::SymbolValue& symbols) {
  std::vector<int64_t> dims;
  for (const DimExpr& dim : shape) {
    ASSIGN_OR_RETURN(const int64_t value, dim.Evaluate(symbols));
    if (value < 0) {
      return absl::InternalError(absl::StrCat("dim ", dim.ToString(), " is ", value));
    }
    dims.push_back(value);
  }
  return dims;
}

absl::StatusOr<View> MakeView(const Operand& operand, const Tensor& tensor,
                              const DimExpr::SymbolValue& symbols, absl::string_view name) {
  View view;
  ASSIGN_OR_RETURN(view.dims, EvaluateShape(operand.shape, symbols));
  ASSIGN_OR_RETURN(const int64_t size, TensorSizeBytes(operand.dtype, view.dims));
  if (tensor.dtype() != operand.dtype || tensor.bytes().size() != static_cast<size_t>(size)) {
    return absl::InternalError(absl::StrCat(
        name, ": got ", Name(tensor.dtype()), " tensor of ", tensor.bytes().size(),
        " bytes, the stage has ", Name(operand.dtype), "[", absl::StrJoin(view.dims, ", "), "]"));
  }
  view.data = const_cast<std::byte*>(tensor.bytes().data());  // written only as the output
  view.element_size = SizeBytes(operand.dtype);
  view.is_bool = operand.dtype == DType::kBool;
  view.strides.resize(view.dims.size());
  int64_t stride = 1;
  for (size_t i = view.dims.size(); i-- > 0;) {
    view.strides[i] = stride;
    stride *= std::max<int64_t>(view.dims[i], 1);
  }
  return view;
}

// What all expressions of a stage see.
struct Environment {
  std::span<const View> operands;
  const DimExpr::SymbolValue* symbols = nullptr;
  size_t axes = 0;       // of the loops around
  size_t kept_axes = 0;  // the level at which results of reductions change
  std::vector<int64_t> coordinates;
  std::vector<uint64_t> reduced;
  std::vector<uint64_t> accumulators;
};

// Some expressions over one set of loops.
class RegisterProgram {
 public:
  absl::Status Compile(std::span<const Expr> roots, const Environment& environment);

  // Computes the roots, running operations of levels >= `level`: 0 the first time, later 1 + the
  // outermost axis whose coordinate is new. False for a load out of range, which error() describes.
  bool Run(const Environment& environment, size_t level);

  uint64_t root(size_t i) const { return registers_[roots_[i]]; }
  size_t root_count() const { return roots_.size(); }
  const absl::Status& error() const { return error_; }

 private:
  enum class Kind : uint8_t { kFunction, kSelect, kLoad, kCoordinate, kReduced, kAccumulator };

  struct Operation {
    Kind kind = Kind::kFunction;
    ScalarFunction function = nullptr;
    uint32_t target = 0;
    uint32_t a = 0, b = 0, c = 0;  // registers; kLoad: a is an index into loads_
    size_t level = 0;
  };

  struct LoadAxis {
    uint32_t coordinate = 0;  // register
    uint64_t extent = 0;
    uint64_t stride_bytes = 0;
  };

  struct LoadPlan {
    const View* view = nullptr;
    int32_t operand = 0;
    bool guarded = false;
    uint32_t condition = 0, otherwise = 0;
    std::vector<LoadAxis> axes;
  };

  absl::Status CompileNode(const Expr& e, const Environment& environment);
  void CompileLoad(const Expr& e, const Environment& environment, Operation* operation);
  bool RunLoad(const LoadPlan& plan, uint64_t* value);
  void FailLoad(const LoadPlan& plan, const LoadAxis& axis);

  std::vector<uint64_t> registers_;
  std::vector<Operation> operations_;
  std::vector<size_t> first_of_level_;
  std::vector<LoadPlan> loads_;
  std::vector<uint32_t> roots_;
  absl::flat_hash_map<const void*, uint32_t> register_of_;
  std::vector<size_t> level_of_register_;
  absl::Status error_;
};

absl::Status RegisterProgram::Compile(std::span<const Expr> roots, const Environment& environment) {
  absl::Status status;
  for (const Expr& root : roots) {
    root.Visit([&](const Expr& e) {
      if (status.ok() && !register_of_.contains(e.id())) status = CompileNode(e, environment);
    });
    RETURN_IF_ERROR(status);
    roots_.push_back(register_of_.at(root.id()));
  }
  // By level; within one level operands stay before users, whose level is never lower.
  std::vector<std::vector<Operation>> by_level(environment.axes + 2);
  for (const Operation& operation : operations_) by_level[operation.level].push_back(operation);
  operations_.clear();
  for (const std::vector<Operation>& level : by_level) {
    first_of_level_.push_back(operations_.size());
    operations_.insert(operations_.end(), level.begin(), level.end());
  }
  return absl::OkStatus();
}

absl::Status RegisterProgram::CompileNode(const Expr& e, const Environment& environment) {
  const uint32_t target = static_cast<uint32_t>(registers_.size());
  register_of_[e.id()] = target;
  registers_.push_back(0);
  level_of_register_.push_back(0);
  Operation operation = {.target = target};
  for (const Expr& operand : e.operands()) {
    operation.level = std::max(operation.level, level_of_register_[register_of_.at(operand.id())]);
  }
  switch (e.op()) {
    case ExprOp::kConstant:
      registers_[target] = e.constant_bits();
      return absl::OkStatus();
    case ExprOp::kDim: {
      ASSIGN_OR_RETURN(const int64_t value, e.dim().Evaluate(*environment.symbols));
      registers_[target] = static_cast<uint64_t>(value);
      return absl::OkStatus();
    }
    case ExprOp::kCoord:
      operation.kind = Kind::kCoordinate;
      operation.a = static_cast<uint32_t>(e.index());
      operation.level = static_cast<size_t>(e.index()) + 1;
      break;
    case ExprOp::kReduced:
      operation.kind = Kind::kReduced;
      operation.a = static_cast<uint32_t>(e.index());
      operation.level = environment.kept_axes;
      break;
    case ExprOp::kAccumulator:
      operation.kind = Kind::kAccumulator;
      operation.a = static_cast<uint32_t>(e.index());
      operation.level = environment.axes + 1;
      break;
    case ExprOp::kLoad:
    case ExprOp::kGuardedLoad:
      CompileLoad(e, environment, &operation);
      break;
    default: {
      uint32_t* const operands[] = {&operation.a, &operation.b, &operation.c};
      for (size_t i = 0; i < e.operands().size(); ++i) {
        *operands[i] = register_of_.at(e.operands()[i].id());
      }
      if (e.op() == ExprOp::kSelect) {
        operation.kind = Kind::kSelect;
      } else {
        operation.function = FindScalarFunction(e.op(), e.operands()[0].dtype(), e.dtype());
        CHECK(operation.function != nullptr) << Name(e.op());
      }
    }
  }
  level_of_register_[target] = operation.level;
  operations_.push_back(operation);
  return absl::OkStatus();
}

void RegisterProgram::CompileLoad(const Expr& e, const Environment& environment,
                                  Operation* operation) {
  LoadPlan plan;
  plan.view = &environment.operands[static_cast<size_t>(e.index())];
  plan.operand = e.index();
  size_t first = 0;
  if (e.op() == ExprOp::kGuardedLoad) {
    plan.guarded = true;
    plan.condition = register_of_.at(e.operands()[0].id());
    plan.otherwise = register_of_.at(e.operands()[1].id());
    first = 2;
  }
  for (size_t i = first; i < e.operands().size(); ++i) {
    const size_t axis = i - first;
    plan.axes.push_back({.coordinate = register_of_.at(e.operands()[i].id()),
                         .extent = static_cast<uint64_t>(plan.view->dims[axis]),
                         .stride_bytes = static_cast<uint64_t>(plan.view->strides[axis]) *
                                         plan.view->element_size});
  }
  operation->kind = Kind::kLoad;
  operation->a = static_cast<uint32_t>(loads_.size());
  loads_.push_back(std::move(plan));
}

bool RegisterProgram::RunLoad(const LoadPlan& plan, uint64_t* value) {
  if (plan.guarded && registers_[plan.condition] == 0) {
    *value = registers_[plan.otherwise];
    return true;
  }
  const View& view = *plan.view;
  const std::byte* at = view.data;
  for (const LoadAxis& axis : plan.axes) {
    const uint64_t coordinate = registers_[axis.coordinate];
    if (coordinate >= axis.extent) {
      FailLoad(plan, axis);
      return false;
    }
    at += coordinate * axis.stride_bytes;
  }
  *value = LoadBits(at, view.element_size);
  if (view.is_bool) *value = *value != 0;
  return true;
}

void RegisterProgram::FailLoad(const LoadPlan& plan, const LoadAxis& axis) {
  error_ = absl::InternalError(
      absl::StrCat("load of operand ", plan.operand, ": coordinate ", &axis - plan.axes.data(),
                   " is ", static_cast<int64_t>(registers_[axis.coordinate]), ", shape [",
                   absl::StrJoin(plan.view->dims, ", "), "]"));
}

bool RegisterProgram::Run(const Environment& environment, size_t level) {
  for (size_t i = first_of_level_[level]; i < operations_.size(); ++i) {
    const Operation& operation = operations_[i];
    uint64_t& target = registers_[operation.target];
    switch (operation.kind) {
      case Kind::kFunction:
        target = operation.function(registers_[operation.a], registers_[operation.b]);
        break;
      case Kind::kSelect:
        target = registers_[registers_[operation.a] != 0 ? operation.b : operation.c];
        break;
      case Kind::kLoad:
        if (!RunLoad(loads_[operation.a], &target)) return false;
        break;
      case Kind::kCoordinate:
        target = static_cast<uint64_t>(environment.coordinates[operation.a]);
        break;
      case Kind::kReduced:
        target = environment.reduced[operation.a];
        break;
      case Kind::kAccumulator:
        target = environment.accumulators[operation.a];
        break;
    }
  }
  return true;
}

// Counts coordinates [first, first + extents.size()) through row-major order.
class Odometer {
 public:
  Odometer(std::span<const int64_t> extents, size_t first) : extents_(extents), first_(first) {}

  // Sets all to 0. False when there is nothing to count.
  bool Start(std::vector<int64_t>& coordinates) const {
    for (size_t i = 0; i < extents_.size(); ++i) coordinates[first_ + i] = 0;
    return std::find(extents_.begin(), extents_.end(), 0) == extents_.end();
  }

  // The level to run from at the next coordinates, or none at the end.
  std::optional<size_t> Next(std::vector<int64_t>& coordinates) const {
    for (size_t i = extents_.size(); i-- > 0;) {
      if (++coordinates[first_ + i] < extents_[i]) return first_ + i + 1;
      coordinates[first_ + i] = 0;
    }
    return std::nullopt;
  }

 private:
  std::span<const int64_t> extents_;
  size_t first_;
};

// The value and place of one output element.
class Writer {
 public:
  absl::Status Compile(const Expr& result, std::span<const Expr> coordinates, const View& output,
                       const Environment& environment) {
    output_ = &output;
    in_order_ = coordinates.empty();
    std::vector<Expr> roots = {result};
    roots.insert(roots.end(), coordinates.begin(), coordinates.end());
    return program_.Compile(roots, environment);
  }

  absl::Status Write(const Environment& environment, size_t level) {
    if (!program_.Run(environment, level)) return program_.error();
    // Loops run in row-major order, so without coordinates elements come in that order.
    size_t offset = next_++;
    if (!in_order_) RETURN_IF_ERROR(OffsetOf(&offset));
    const uint64_t value = program_.root(0);
    memcpy(output_->data + offset * output_->element_size, &value, output_->element_size);
    return absl::OkStatus();
  }

 private:
  absl::Status OffsetOf(size_t* offset) const {
    *offset = 0;
    for (size_t i = 0; i < output_->dims.size(); ++i) {
      const uint64_t coordinate = program_.root(i + 1);
      if (coordinate >= static_cast<uint64_t>(output_->dims[i])) {
        return absl::InternalError(absl::StrCat("store to the output: coordinate ", i, " is ",
                                                static_cast<int64_t>(coordinate), ", shape [",
                                                absl::StrJoin(output_->dims, ", "), "]"));
      }
      *offset += coordinate * static_cast<uint64_t>(output_->strides[i]);
    }
    return absl::OkStatus();
  }

  const View* output_ = nullptr;
  bool in_order_ = false;
  size_t next_ = 0;
  RegisterProgram program_;
};

absl::StatusOr<std::vector<View>> MakeViews(std::span<const Operand> operands,
                                            std::span<const Tensor> tensors,
                                            const DimExpr::SymbolValue& symbols) {
  if (operands.size() != tensors.size()) {
    return absl::InternalError(
        absl::StrCat("stage of ", operands.size(), " operands, got ", tensors.size()));
  }
  std::vector<View> views;
  for (size_t i = 0; i < operands.size(); ++i) {
    ASSIGN_OR_RETURN(View view,
                     MakeView(operands[i], tensors[i], symbols, absl::StrCat("operand ", i)));
    views.push_back(std::move(view));
  }
  return views;
}

struct CompiledReduction {
  RegisterProgram init, update, result;
};

class NestRun {
 public:
  absl::Status Prepare(const Nest& nest, std::span<const Tensor> operands, const Tensor& output,
                       const DimExpr::SymbolValue& symbols) {
    ASSIGN_OR_RETURN(kept_, EvaluateShape(nest.kept, symbols));
    ASSIGN_OR_RETURN(reduced_, EvaluateShape(nest.reduced, symbols));
    ASSIGN_OR_RETURN(views_, MakeViews(nest.operands, operands, symbols));
    ASSIGN_OR_RETURN(output_, MakeView(nest.output, output, symbols, "output"));
    environment_.operands = views_;
    environment_.symbols = &symbols;
    environment_.axes = kept_.size() + reduced_.size();
    environment_.kept_axes = kept_.size();
    environment_.coordinates.resize(environment_.axes);
    environment_.reduced.resize(nest.reductions.size());
    reductions_.resize(nest.reductions.size());
    for (size_t i = 0; i < reductions_.size(); ++i) {
      const Reduction& reduction = nest.reductions[i];
      RETURN_IF_ERROR(reductions_[i].init.Compile(reduction.init, environment_));
      RETURN_IF_ERROR(reductions_[i].update.Compile(reduction.update, environment_));
      RETURN_IF_ERROR(reductions_[i].result.Compile({&reduction.result, 1}, environment_));
    }
    per_element_ = nest.per_element;
    return writer_.Compile(nest.result, nest.output_coordinates, output_, environment_);
  }

  absl::Status Run() {
    const Odometer kept(kept_, 0);
    if (!kept.Start(environment_.coordinates)) return absl::OkStatus();
    std::optional<size_t> level = 0;
    while (level.has_value()) {
      for (size_t i = 0; i < reductions_.size(); ++i) RETURN_IF_ERROR(Reduce(i, *level));
      RETURN_IF_ERROR(WriteAt(*level));
      level = kept.Next(environment_.coordinates);
    }
    return absl::OkStatus();
  }

 private:
  // Results of earlier reductions are new at every kept coordinate, whichever axis changed: their
  // level is that of the innermost kept axis, so they are always read again.
  absl::Status Reduce(size_t index, size_t kept_level) {
    CompiledReduction& reduction = reductions_[index];
    if (!reduction.init.Run(environment_, kept_level)) return reduction.init.error();
    const size_t count = reduction.init.root_count();
    std::vector<uint64_t>& accumulators = environment_.accumulators;
    accumulators.resize(count);
    for (size_t i = 0; i < count; ++i) accumulators[i] = reduction.init.root(i);
    const Odometer reduced(reduced_, kept_.size());
    if (reduced.Start(environment_.coordinates)) {
      std::optional<size_t> level = kept_level;
      while (level.has_value()) {
        if (!reduction.update.Run(environment_, *level)) return reduction.update.error();
        for (size_t i = 0; i < count; ++i) accumulators[i] = reduction.update.root(i);
        level = reduced.Next(environment_.coordinates);
      }
    }
    if (!reduction.result.Run(environment_, kept_level)) return reduction.result.error();
    environment_.reduced[index] = reduction.result.root(0);
    return absl::OkStatus();
  }

  absl::Status WriteAt(size_t kept_level) {
    if (!per_element_) return writer_.Write(environment_, kept_level);
    const Odometer reduced(reduced_, kept_.size());
    if (!reduced.Start(environment_.coordinates)) return absl::OkStatus();
    std::optional<size_t> level = kept_level;
    while (level.has_value()) {
      RETURN_IF_ERROR(writer_.Write(environment_, *level));
      level = reduced.Next(environment_.coordinates);
    }
    return absl::OkStatus();
  }

  std::vector<int64_t> kept_, reduced_;
  std::vector<View> views_;
  View output_;
  Environment environment_;
  std::vector<CompiledReduction> reductions_;
  Writer writer_;
  bool per_element_ = false;
};

// sum over k of a[k] * b[k * panel], in the accumulator's arithmetic.
template <typename T>
uint64_t Dot(std::span<const uint64_t> a, const std::byte* b, int64_t panel) {
  T sum = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    T x, y;
    memcpy(&x, &a[k], sizeof(T));
    memcpy(&y, b + k * static_cast<size_t>(panel) * sizeof(T), sizeof(T));
    sum = static_cast<T>(sum + x * y);
  }
  uint64_t bits = 0;
  memcpy(&bits, &sum, sizeof(T));
  return bits;
}

// The same for bytes, u8 and i8 in groups; i32 wraps.
uint64_t DotOfBytes(std::span<const uint64_t> a, const std::byte* b, int64_t panel) {
  uint32_t sum = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    const size_t in_group = k % static_cast<size_t>(kByteGroup);
    const auto y = static_cast<int8_t>(b[(k - in_group) * static_cast<size_t>(panel) + in_group]);
    sum += static_cast<uint32_t>(a[k]) * static_cast<uint32_t>(int32_t{y});
  }
  return sum;
}

// The same for pairs, of each the later first: sum = add(sum, bits of a number of `a`, of b).
template <typename T, typename AddProduct>
uint64_t DotOfPairs(std::span<const uint64_t> a, const std::byte* b, int64_t panel,
                    const AddProduct& add) {
  T sum = 0;
  for (size_t k = 0; k < a.size(); k += static_cast<size_t>(kPairGroup)) {
    uint32_t pair;
    memcpy(&pair,
           b + k / static_cast<size_t>(kPairGroup) * static_cast<size_t>(panel) * sizeof(pair),
           sizeof(pair));
    if (k + 1 < a.size()) {
      sum = add(sum, static_cast<uint16_t>(a[k + 1]), static_cast<uint16_t>(pair >> 16));
    }
    sum = add(sum, static_cast<uint16_t>(a[k]), static_cast<uint16_t>(pair));
  }
  return std::bit_cast<uint32_t>(sum);
}

uint64_t DotOfPairs(DType dtype, std::span<const uint64_t> a, const std::byte* b, int64_t panel) {
  if (dtype == DType::kF32) {
    return DotOfPairs<float>(a, b, panel, [](float sum, uint16_t x, uint16_t y) {
      return sum + BFloat16ToFloat(x) * BFloat16ToFloat(y);
    });
  }
  return DotOfPairs<uint32_t>(a, b, panel, [](uint32_t sum, uint16_t x, uint16_t y) {
    // i32 wraps
    return sum + static_cast<uint32_t>(static_cast<int16_t>(x) * static_cast<int16_t>(y));
  });
}

uint64_t DotOf(DType dtype, std::span<const uint64_t> a, const std::byte* b, int64_t panel) {
  if (dtype == DType::kF32) return Dot<float>(a, b, panel);
  if (dtype == DType::kF64) return Dot<double>(a, b, panel);
  return Dot<uint32_t>(a, b, panel);  // i32 wraps
}

class ContractionRun {
 public:
  absl::Status Prepare(const Contraction& c, std::span<const Tensor> operands, const Tensor& output,
                       const DimExpr::SymbolValue& symbols) {
    ASSIGN_OR_RETURN(rows_, EvaluateShape(c.batch, symbols));
    batch_rank_ = rows_.size();
    ASSIGN_OR_RETURN(const std::vector<int64_t> m, EvaluateShape(c.m, symbols));
    rows_.insert(rows_.end(), m.begin(), m.end());
    ASSIGN_OR_RETURN(k_, EvaluateShape(c.k, symbols));
    ASSIGN_OR_RETURN(const std::vector<int64_t> n, EvaluateShape({c.n}, symbols));
    n_ = n[0];
    ASSIGN_OR_RETURN(views_, MakeViews(c.operands, operands, symbols));
    ASSIGN_OR_RETURN(output_, MakeView(c.output, output, symbols, "output"));
    b_ = &views_[static_cast<size_t>(c.b)];
    panel_ = c.panel;
    of_bytes_ = c.of_bytes();
    of_pairs_ = c.of_pairs();
    group_ = of_bytes_ ? kByteGroup : of_pairs_ ? kPairGroup : 1;
    b_batched_ = c.b_batched;
    dtype_ = c.accumulator;
    exact_rows_ = c.exact_rows;
    if (c.of_records()) {
      records_ = RecordsOf(c);
      records_view_ = &views_[static_cast<size_t>(c.a.index())];
    }
    if (c.blocks.has_value()) layout_ = LayoutOf(*c.blocks, c.panel);
    RETURN_IF_ERROR(CheckPanels());
    for (Environment* environment : {&a_environment_, &environment_}) {
      environment->operands = views_;
      environment->symbols = &symbols;
      environment->axes = rows_.size() + (environment == &environment_ ? 1 : k_.size());
      environment->kept_axes = environment->axes;
      environment->coordinates.resize(environment->axes);
    }
    environment_.accumulators.resize(of_bytes_ ? 2 : 1);
    RETURN_IF_ERROR(a_.Compile({&c.a, 1}, a_environment_));
    if (c.rows.valid()) RETURN_IF_ERROR(counts_.emplace().Compile({&c.rows, 1}, a_environment_));
    return writer_.Compile(c.result, c.output_coordinates, output_, environment_);
  }

  absl::Status Run() {
    const Odometer rows(rows_, 0);
    if (!rows.Start(environment_.coordinates)) return absl::OkStatus();
    std::optional<size_t> level = 0;
    size_t changed = 0;  // the outermost axis since the last row that there was
    while (level.has_value()) {
      changed = std::min(changed, *level);
      std::copy_n(environment_.coordinates.begin(), rows_.size(),
                  a_environment_.coordinates.begin());
      ASSIGN_OR_RETURN(const bool there_is, HasRow());
      if (there_is) RETURN_IF_ERROR(EvaluateRow(changed));
      if (there_is) RETURN_IF_ERROR(WriteRow(std::exchange(changed, rows_.size())));
      level = rows.Next(environment_.coordinates);
    }
    return absl::OkStatus();
  }

 private:
  // Whether the batch has so many rows.
  absl::StatusOr<bool> HasRow() {
    if (!counts_.has_value()) return true;
    if (!counts_->Run(a_environment_, 0)) return counts_->error();
    int64_t row = 0;
    for (size_t i = batch_rank_; i < rows_.size(); ++i) {
      row = row * rows_[i] + static_cast<int64_t>(a_environment_.coordinates[i]);
    }
    return row < static_cast<int64_t>(counts_->root(0));
  }

  // b must hold every panel that is read.
  absl::Status CheckPanels() const {
    ASSIGN_OR_RETURN(const int64_t k_count, TensorElementCount(k_));
    const int64_t panels = n_ / panel_ + (n_ % panel_ != 0 ? 1 : 0);
    const int64_t groups = k_count / group_ + (k_count % group_ != 0 ? 1 : 0);
    const size_t rank = b_batched_ ? batch_rank_ : 0;
    const std::vector<int64_t>& dims = b_->dims;
    const int64_t steps =
        layout_.has_value() ? k_count / layout_->facts().elements * layout_->block_bytes : groups;
    bool fits = dims[rank] == panels && dims[rank + 1] == steps;
    for (size_t i = 0; i < rank; ++i) fits = fits && dims[i] == rows_[i];
    if (fits) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("contraction: b has shape [", absl::StrJoin(dims, ", "),
                                            "], n ", n_, ", k ", k_count, ", panel ", panel_));
  }

  absl::Status EvaluateRow(size_t rows_level) {
    if (records_.has_value()) return ReadRecords();
    row_.clear();
    const Odometer k(k_, rows_.size());
    if (!k.Start(a_environment_.coordinates)) return absl::OkStatus();
    std::optional<size_t> level = rows_level;
    while (level.has_value()) {
      if (!a_.Run(a_environment_, *level)) return a_.error();
      row_.push_back(a_.root(0));
      level = k.Next(a_environment_.coordinates);
    }
    return absl::OkStatus();
  }

  absl::Status ReadRecords() {
    int64_t place = 0;
    const size_t left_out = rows_.size() + 1 - records_view_->dims.size();
    for (size_t i = left_out; i < rows_.size(); ++i) {
      place +=
          static_cast<int64_t>(environment_.coordinates[i]) * records_view_->strides[i - left_out];
    }
    const std::byte* row =
        records_view_->data + static_cast<size_t>(place) * records_view_->element_size;
    block_row_.Assign(*records_, row, k_[0]);
    return absl::OkStatus();
  }

  absl::Status WriteRow(size_t rows_level) {
    int64_t base = 0;
    for (size_t i = 0; b_batched_ && i < batch_rank_; ++i) {
      base += environment_.coordinates[i] * b_->strides[i];
    }
    const int64_t k_count = static_cast<int64_t>(row_.size());
    if (layout_.has_value()) return WriteRowOfBlocks(rows_level, base);
    // Elements of b: bytes lie side by side, a pair is one.
    const int64_t width = of_bytes_ ? group_ : 1;
    const int64_t panel_stride = panel_ * ((k_count + group_ - 1) / group_ * width);
    if (of_bytes_) {
      uint32_t sum = 0;
      for (const uint64_t value : row_) sum += static_cast<uint32_t>(value);
      environment_.accumulators[1] = sum;
    }
    for (int64_t n = 0; n < n_; ++n) {
      environment_.coordinates[rows_.size()] = n;
      const int64_t offset = base + n / panel_ * panel_stride + n % panel_ * width;
      const std::byte* column = b_->data + static_cast<size_t>(offset) * b_->element_size;
      environment_.accumulators[0] = of_bytes_   ? DotOfBytes(row_, column, panel_)
                                     : of_pairs_ ? DotOfPairs(dtype_, row_, column, panel_)
                                                 : DotOf(dtype_, row_, column, panel_);
      RETURN_IF_ERROR(writer_.Write(environment_, n == 0 ? rows_level : rows_.size() + 1));
    }
    return absl::OkStatus();
  }

  absl::Status WriteRowOfBlocks(size_t rows_level, int64_t base) {
    if (!records_.has_value()) block_row_.Assign(row_, exact_rows_);
    const int64_t panel_bytes = b_->dims.back();
    for (int64_t n = 0; n < n_; ++n) {
      environment_.coordinates[rows_.size()] = n;
      const std::byte* panel = b_->data + base + n / panel_ * panel_bytes;
      environment_.accumulators[0] =
          std::bit_cast<uint32_t>(block_row_.Dot(*layout_, panel, n % panel_));
      RETURN_IF_ERROR(writer_.Write(environment_, n == 0 ? rows_level : rows_.size() + 1));
    }
    return absl::OkStatus();
  }

  std::vector<int64_t> rows_;  // batch, then m
  std::vector<int64_t> k_;
  int64_t n_ = 0;
  int64_t panel_ = 0;
  int64_t group_ = 1;
  bool of_bytes_ = false;
  bool of_pairs_ = false;
  std::optional<BlockLayout> layout_;
  bool exact_rows_ = false;
  std::optional<RowRecords> records_;
  const View* records_view_ = nullptr;
  BlockRow block_row_;
  size_t batch_rank_ = 0;
  bool b_batched_ = false;
  DType dtype_ = DType::kInvalid;
  std::vector<View> views_;
  View output_;
  const View* b_ = nullptr;
  Environment a_environment_;  // batch, m, k
  Environment environment_;    // batch, m, n
  RegisterProgram a_;
  std::optional<RegisterProgram> counts_;
  Writer writer_;
  std::vector<uint64_t> row_;
};

}  // namespace

absl::Status Interpret(const Nest& nest, std::span<const Tensor> operands, Tensor& output,
                       const DimExpr::SymbolValue& symbols) {
  RETURN_IF_ERROR(Verify(nest));
  NestRun run;
  RETURN_IF_ERROR(run.Prepare(nest, operands, output, symbols));
  return run.Run();
}

absl::Status Interpret(const Contraction& contraction, std::span<const Tensor> operands,
                       Tensor& output, const DimExpr::SymbolValue& symbols) {
  RETURN_IF_ERROR(Verify(contraction));
  ContractionRun run;
  RETURN_IF_ERROR(run.Prepare(contraction, operands, output, symbols));
  return run.Run();
}

absl::Status InterpretStage(const StageBody& body, std::span<const Tensor> operands,
                            std::span<Tensor> outputs, const DimExpr::SymbolValue& symbols) {
  if (const Library* library = std::get_if<Library>(&body)) {
    return absl::UnimplementedError(
        absl::StrCat("library stage ", library->skeleton, ": not interpreted here"));
  }
  if (outputs.size() != 1) {
    return absl::InternalError(absl::StrCat("stage of one output, got ", outputs.size()));
  }
  if (const Nest* nest = std::get_if<Nest>(&body)) {
    return Interpret(*nest, operands, outputs[0], symbols);
  }
  return Interpret(std::get<Contraction>(body), operands, outputs[0], symbols);
}

}  // namespace stampmill
