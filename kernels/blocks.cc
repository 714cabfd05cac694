// Operators of domain stampmill over block-quantised weights (graph/block_format.h).
//
// DequantizeBlocks(w: u8[..., bytes of a row]): f32[..., k], attribute `format`. The one that
// importers make: rows as they lie in a file. Its result is never kept as a constant.
// The compiler puts the others in its place (compiler/passes/fold_blocks.cc), over panels that all
// uses of a weight share, with attributes `format`, `panel` and `rows`:
// DequantizePanels(panels): f32[rows, k], GatherPanels(panels, indices: i32 or i64):
// f32[indices..., k], those rows alone, MatMulPanels(x: f32[..., k], panels): f32[..., rows], the
// product with each row. x may be rounded before: RoundRows(x: f32[..., k]), with the attributes
// `k`, `format` and `wide`, gives what products with panels of that format take
// (graph/row_records.h), as u8 or, if they are wide, i16, [..., elements of a row of records].
#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "graph/block_layout.h"
#include "graph/row_records.h"
#include "kernels/elementwise.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/indices.h"
#include "kernels/panels.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

// Groups of rows that one task rounds: about 1 us.
constexpr int64_t kTaskGroups = 128;

absl::StatusOr<BlockFormat> ReadFormat(const Node& node) {
  ASSIGN_OR_RETURN(const std::string name, node.String("format", ""));
  const std::optional<BlockFormat> format = BlockFormatFromName(name);
  if (format.has_value()) return *format;
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": format: got '", name, "', no block format"));
}

// --- Rows as in files ---

// How many elements a row of `bytes` has.
absl::StatusOr<DimExpr> RowElements(const InferContext& context, BlockFormat format,
                                    const DimExpr& bytes) {
  const BlockFacts& facts = FactsOf(format);
  if (bytes.is_constant() && *bytes.constant() % facts.bytes != 0) {
    return context.Error(absl::StrCat("rows of ", *bytes.constant(), " bytes: a block of ",
                                      facts.name, " has ", facts.bytes));
  }
  return FloorDiv(bytes, facts.bytes) * facts.elements;
}

absl::Status InferDequantize(InferContext& context) {
  ASSIGN_OR_RETURN(const BlockFormat format, ReadFormat(context.node()));
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  if (dtype != DType::kU8) return context.Error(absl::StrCat("blocks are u8, got ", Name(dtype)));
  if (shape.empty()) return context.Error("blocks have rank 1 at least");
  ASSIGN_OR_RETURN(shape.back(), RowElements(context, format, shape.back()));
  return context.SetOutput(0, DType::kF32, std::move(shape));
}

References DequantizeReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const BlockFormat format, ReadFormat(arguments.node));
  const Tensor& input = arguments.inputs[0];
  const BlockFacts& facts = FactsOf(format);
  const auto bytes = static_cast<size_t>(facts.bytes);
  std::vector<int64_t> shape = input.shape();
  shape.back() = shape.back() / facts.bytes * facts.elements;
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(DType::kF32, std::move(shape)));
  float* out = output.mutable_values<float>().data();
  for (size_t at = 0; at < input.bytes().size(); at += bytes, out += facts.elements) {
    DecodeBlock(format, input.bytes().subspan(at, bytes), out);
  }
  return One(std::move(output));
}

// --- Panels ---

}  // namespace

absl::StatusOr<Panels> ReadPanels(const Node& node, const Shape& shape) {
  ASSIGN_OR_RETURN(const BlockFormat format, ReadFormat(node));
  ASSIGN_OR_RETURN(const int64_t panel, node.Int("panel", 0));
  Panels panels;
  ASSIGN_OR_RETURN(panels.rows, node.Int("rows", 0));
  const bool is_constant = shape.size() == 2 && shape[0].is_constant() && shape[1].is_constant();
  if (!is_constant || panel < 1 || panel > kBlockPanelMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": panels of ", panel, " rows, shape ", ToString(shape)));
  }
  panels.layout = LayoutOf(format, panel);
  panels.panel_bytes = *shape[1].constant();
  panels.k = panels.panel_bytes / panels.layout.block_bytes * panels.layout.facts().elements;
  if (panels.panel_bytes % panels.layout.block_bytes != 0 || panels.rows < 0 ||
      *shape[0].constant() != (panels.rows + panel - 1) / panel) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": ", panels.rows,
                                                   " rows in panels of shape ", ToString(shape)));
  }
  return panels;
}

std::vector<float> UnpackPanels(const Panels& panels, const std::byte* bytes) {
  const int64_t length = panels.layout.facts().run;
  std::vector<float> values;
  for (int64_t row = 0; row < panels.rows; ++row) {
    const std::byte* panel = bytes + row / panels.layout.panel * panels.panel_bytes;
    for (int64_t number = 0; number < panels.k / length; ++number) {
      const BlockRun run = ReadRun(panels.layout, panel, row % panels.layout.panel, number);
      for (int64_t i = 0; i < length; ++i) {
        const float product = run.scale * static_cast<float>(run.numbers[static_cast<size_t>(i)]);
        values.push_back(run.has_minimum ? product + run.minimum : product);
      }
    }
  }
  return values;
}

namespace {

absl::StatusOr<Panels> PanelsOfInput(const InferContext& context, size_t i) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(i));
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(i));
  if (dtype != DType::kU8) return context.Error(absl::StrCat("panels are u8, got ", Name(dtype)));
  return ReadPanels(context.node(), shape);
}

absl::Status InferDequantizePanels(InferContext& context) {
  ASSIGN_OR_RETURN(const Panels panels, PanelsOfInput(context, 0));
  return context.SetOutput(0, DType::kF32, {panels.rows, panels.k});
}

absl::Status InferGatherPanels(InferContext& context) {
  ASSIGN_OR_RETURN(const Panels panels, PanelsOfInput(context, 0));
  RETURN_IF_ERROR(CheckIndexType(context, 1));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(1));
  context.CheckIndices(1, panels.rows);
  shape.push_back(panels.k);
  return context.SetOutput(0, DType::kF32, std::move(shape));
}

// The dtype of records, and how many of it a row of k elements has.
DType RecordsDType(const RowRecords& records) { return records.wide ? DType::kI16 : DType::kU8; }
int64_t RecordsLength(const RowRecords& records, int64_t k) {
  return records.row_bytes(k) / static_cast<int64_t>(SizeBytes(RecordsDType(records)));
}

absl::Status InferMatMulPanels(InferContext& context) {
  ASSIGN_OR_RETURN(const Panels panels, PanelsOfInput(context, 1));
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  if ((dtype != DType::kF32 && dtype != DType::kU8 && dtype != DType::kI16) || shape.empty()) {
    return context.Error(
        absl::StrCat("rows of f32 or records multiply blocks, got ", Name(dtype), ToString(shape)));
  }
  const RowRecords records = RecordsFor(panels.layout.format, dtype == DType::kI16);
  const int64_t length = dtype == DType::kF32 ? panels.k : RecordsLength(records, panels.k);
  RETURN_IF_ERROR(RequireEqual(context, shape.back(), length, "inner dims"));
  shape.back() = panels.rows;
  return context.SetOutput(0, DType::kF32, std::move(shape));
}

absl::StatusOr<std::vector<float>> Unpacked(const Node& node, const Tensor& tensor) {
  ASSIGN_OR_RETURN(const Panels panels,
                   ReadPanels(node, Shape(tensor.shape().begin(), tensor.shape().end())));
  return UnpackPanels(panels, tensor.bytes().data());
}

References DequantizePanelsReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<float> values, Unpacked(arguments.node, arguments.inputs[0]));
  ASSIGN_OR_RETURN(const int64_t rows, arguments.node.Int("rows", 0));
  const auto k = rows == 0 ? 0 : static_cast<int64_t>(values.size()) / rows;
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(DType::kF32, {rows, k}, values));
  return One(std::move(output));
}

References GatherPanelsReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<float> values, Unpacked(arguments.node, arguments.inputs[0]));
  ASSIGN_OR_RETURN(const int64_t rows, arguments.node.Int("rows", 0));
  const int64_t k = rows == 0 ? 0 : static_cast<int64_t>(values.size()) / rows;
  std::vector<float> taken;
  for (const int64_t index : Int64Values(arguments.inputs[1])) {
    ASSIGN_OR_RETURN(const int64_t row, IndexOf(arguments, index, rows));
    taken.insert(taken.end(), values.begin() + row * k, values.begin() + (row + 1) * k);
  }
  std::vector<int64_t> shape = arguments.inputs[1].shape();
  shape.push_back(k);
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(DType::kF32, std::move(shape), taken));
  return One(std::move(output));
}

absl::StatusOr<RowRecords> ReadRecords(const Node& node) {
  ASSIGN_OR_RETURN(const BlockFormat format, ReadFormat(node));
  ASSIGN_OR_RETURN(const int64_t wide, node.Int("wide", 0));
  return RecordsFor(format, wide != 0);
}

absl::Status InferRoundRows(InferContext& context) {
  ASSIGN_OR_RETURN(const RowRecords records, ReadRecords(context.node()));
  ASSIGN_OR_RETURN(const int64_t k, context.node().Int("k", 0));
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  if (dtype != DType::kF32 || shape.empty() || k < 0 || k % kBlockGroup != 0) {
    return context.Error(absl::StrCat("rows of f32 of ", k, " elements, in groups of ", kBlockGroup,
                                      ", are rounded, got ", Name(dtype), ToString(shape)));
  }
  RETURN_IF_ERROR(RequireEqual(context, shape.back(), k, "inner dims"));
  shape.back() = RecordsLength(records, k);
  return context.SetOutput(0, RecordsDType(records), std::move(shape));
}

References RoundRowsReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const RowRecords records, ReadRecords(arguments.node));
  const std::vector<float> x = ReadValues<float>(arguments.inputs[0]);
  std::vector<int64_t> shape = arguments.inputs[0].shape();
  const int64_t k = shape.back();
  shape.back() = RecordsLength(records, k);
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(RecordsDType(records), std::move(shape)));
  std::ranges::fill(output.mutable_bytes(), std::byte{0});
  std::byte* row = output.mutable_bytes().data();
  for (size_t begin = 0; begin < x.size(); row += records.row_bytes(k)) {
    std::byte* record = row;
    for (int64_t at = 0; at < k; at += kBlockGroup, begin += kBlockGroup) {
      RoundGroup(records, std::span(x).subspan(begin, kBlockGroup), record);
      record += records.record_bytes();
    }
  }
  return One(std::move(output));
}

// The numbers that rows of records stand for.
std::vector<float> NumbersOf(const RowRecords& records, const Tensor& rows, int64_t k) {
  std::vector<float> numbers;
  const auto row_bytes = static_cast<size_t>(records.row_bytes(k));
  for (size_t row = 0; row < rows.bytes().size(); row += row_bytes) {
    const std::byte* record = rows.bytes().data() + row;
    for (int64_t at = 0; at < k; at += kBlockGroup, record += records.record_bytes()) {
      for (int64_t i = 0; i < kBlockGroup; ++i) {
        numbers.push_back(ScaleOf(records, record) * ByteOf(records, record, i));
      }
    }
  }
  return numbers;
}

References MatMulPanelsReference(const ReferenceArguments& arguments) {
  const Tensor& left = arguments.inputs[0];
  const Tensor& right = arguments.inputs[1];
  ASSIGN_OR_RETURN(const Panels panels,
                   ReadPanels(arguments.node, Shape(right.shape().begin(), right.shape().end())));
  const std::vector<float> w = UnpackPanels(panels, right.bytes().data());
  const RowRecords records = RecordsFor(panels.layout.format, left.dtype() == DType::kI16);
  const std::vector<float> x =
      left.dtype() == DType::kF32 ? ReadValues<float>(left) : NumbersOf(records, left, panels.k);
  std::vector<int64_t> shape = left.shape();
  shape.back() = panels.rows;
  const auto k = static_cast<size_t>(panels.k);
  std::vector<float> values;
  for (size_t row = 0; row < x.size(); row += std::max<size_t>(k, 1)) {
    for (size_t column = 0; column < static_cast<size_t>(panels.rows); ++column) {
      double sum = 0;
      for (size_t i = 0; i < k; ++i) {
        sum += static_cast<double>(x[row + i]) * static_cast<double>(w[column * k + i]);
      }
      values.push_back(static_cast<float>(sum));
    }
  }
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(DType::kF32, std::move(shape), values));
  return One(std::move(output));
}

// --- Elements of panels as expressions ---

class PanelElement {
 public:
  // `row` and `k` are coordinates. `table` is the operand of the format's values, if it has some.
  PanelElement(const BlockLayout& layout, const StageOperands& operands, int32_t panels,
               int32_t table, const Expr& row, const Expr& k)
      : layout_(layout),
        operands_(operands),
        panels_(panels),
        table_(table),
        panel_(FloorDivide(row, Int(layout.panel))),
        lane_(FloorModulo(row, Int(layout.panel))),
        group_(FloorModulo(FloorDivide(k, Int(kBlockGroup)), Int(layout.groups_per_block()))),
        place_(FloorModulo(k, Int(kBlockGroup))),
        block_(FloorDivide(k, Int(layout.facts().elements)) * Int(layout.block_bytes)) {}

  Expr Value() const {
    const BlockFacts& facts = layout_.facts();
    Expr scale = layout_.format == BlockFormat::kMXFP4 ? Exponent() : Half(Int(0));
    Expr minimum = facts.has_minimum ? Half(Int(layout_.minimums_at)) : Expr();
    if (facts.has_sub_scales) {
      const Expr sub = Byte(SubsAt());
      scale =
          scale * Real(layout_.nibble_subs ? Bits(sub, Int(0), 4) : Expr::BitCast(DType::kI8, sub));
      if (facts.has_minimum) {
        const Expr other = layout_.nibble_subs ? Bits(sub, Int(4), 4)
                                               : Byte(SubsAt() + Int(layout_.sub_minimums_at));
        minimum = -(minimum * Real(other));
      }
    }
    const Expr value = scale * Real(Number());
    return minimum.valid() ? value + minimum : value;
  }

 private:
  static Expr Real(const Expr& e) { return Expr::Cast(DType::kF32, e); }
  Expr Byte(const Expr& at) const { return operands_.Load(panels_, {panel_, block_ + at}); }

  // `count` bits of a byte from bit `first` on.
  static Expr Bits(const Expr& byte, const Expr& first, int64_t count) {
    const Expr moved = Expr::Binary(ExprOp::kShiftRight, byte, Expr::Cast(DType::kU8, first));
    return Expr::Binary(ExprOp::kBitAnd, moved,
                        Expr::ConstantInt(DType::kU8, (int64_t{1} << count) - 1));
  }

  // The f16 of this row in a list of them.
  Expr Half(const Expr& list) const {
    const Expr at = list + lane_ * Int(2);
    const auto wide = [](const Expr& byte) { return Expr::Cast(DType::kU16, byte); };
    const Expr high = Expr::Binary(ExprOp::kShiftLeft, wide(Byte(at + Int(1))),
                                   Expr::ConstantInt(DType::kU16, 8));
    const Expr bits = Expr::Binary(ExprOp::kBitOr, wide(Byte(at)), high);
    return Real(Expr::BitCast(DType::kF16, bits));
  }

  // ExponentScale.
  Expr Exponent() const {
    const auto number = [](int64_t value) { return Expr::ConstantInt(DType::kU32, value); };
    const Expr exponent = Expr::Cast(DType::kU32, Byte(lane_));
    const Expr small = Expr::Binary(ExprOp::kShiftLeft, number(0x00200000), exponent);
    const Expr normal = Expr::Binary(ExprOp::kShiftLeft, exponent - number(1), number(23));
    return Expr::BitCast(DType::kF32, Expr::Select(Less(exponent, number(2)), small, normal));
  }

  Expr SubsAt() const {
    const Expr run = FloorDivide(place_, Int(layout_.facts().run));
    return Int(layout_.subs_at) + group_ * Int(layout_.group_subs_bytes) +
           run * Int(layout_.panel) + lane_;
  }

  // The bits of the code that a plane has, which begins at `at` within the group's codes.
  Expr Field(int64_t at, int64_t bits) const {
    const Expr quad = FloorDivide(place_, Int(4));
    const Expr vector = FloorModulo(quad, Int(bits)) * Int(4 * layout_.panel);
    const Expr byte = Byte(Int(layout_.codes_at + at) + group_ * Int(layout_.group_codes_bytes) +
                           vector + lane_ * Int(4) + FloorModulo(place_, Int(4)));
    if (bits == 8) return byte;
    return Bits(byte, FloorDivide(quad, Int(bits)) * Int(bits), bits);
  }

  // The code, or what it stands for, less zero.
  Expr Number() const {
    const BlockFacts& facts = layout_.facts();
    Expr code = Field(0, layout_.low_bits);
    if (layout_.high_bits > 0) {
      const Expr high = Field(layout_.plane_bytes(layout_.low_bits), layout_.high_bits);
      code = Expr::Binary(
          ExprOp::kBitOr, code,
          Expr::Binary(ExprOp::kShiftLeft, high, Expr::ConstantInt(DType::kU8, layout_.low_bits)));
    }
    if (table_ >= 0) code = operands_.Load(table_, {Expr::Cast(DType::kI64, code)});
    return Expr::Cast(DType::kI32, code) - Expr::ConstantInt(DType::kI32, facts.zero);
  }

  const BlockLayout& layout_;
  const StageOperands& operands_;
  int32_t panels_;
  int32_t table_;
  Expr panel_, lane_, group_, place_, block_;
};

// A map over the output, whose last coordinate is k; `row` gives the row of the others, from them
// and loads of operands that it may add.
template <typename RowOf>
absl::Status EmitDequantized(LowerContext& context, const Panels& panels, ValueId packed,
                             const RowOf& row_of) {
  const Shape& output = *context.output(0).shape;
  StageOperands operands;
  const int64_t count = (panels.rows + panels.layout.panel - 1) / panels.layout.panel;
  const int32_t source = operands.Add(packed, DType::kU8, {count, panels.panel_bytes});
  const std::span<const uint8_t> values = panels.layout.facts().values;
  int32_t table = -1;
  if (!values.empty()) {
    ASSIGN_OR_RETURN(Tensor tensor, MakeTensor(DType::kU8, {16},
                                               std::vector<uint8_t>(values.begin(), values.end())));
    table = operands.Add(context.NewConstant(std::move(tensor), "values"), DType::kU8, {16});
  }
  const Expr row = row_of(operands, Coords(0, output.size() - 1));
  const Expr k = Expr::Coord(static_cast<int32_t>(output.size()) - 1);
  const Expr value = PanelElement(panels.layout, operands, source, table, row, k).Value();
  EmitMap(context, std::move(operands), value);
  return absl::OkStatus();
}

// All rows in order.
absl::Status EmitDequantized(LowerContext& context, const Panels& panels, ValueId packed) {
  return EmitDequantized(context, panels, packed,
                         [&](StageOperands&, const std::vector<Expr>& coordinates) {
                           const Shape& output = *context.output(0).shape;
                           Expr row = Int(0);
                           for (size_t i = 0; i < coordinates.size(); ++i) {
                             row = row * Extent(output[i]) + coordinates[i];
                           }
                           return row;
                         });
}

bool HasConstantRows(const LowerContext& context) { return context.input(0).constant.has_value(); }

absl::Status LowerDequantize(LowerContext& context) {
  ASSIGN_OR_RETURN(const BlockFormat format, ReadFormat(context.node()));
  const Tensor& rows = *context.input(0).constant;
  const int64_t row_bytes = rows.shape().back();
  Panels panels = {.rows = row_bytes == 0 ? 0 : rows.element_count() / row_bytes};
  const int64_t panel = context.options().panel(1, DType::kF32, context.options().target);
  panels.layout = LayoutOf(format, panel);
  panels.k = row_bytes / panels.layout.facts().bytes * panels.layout.facts().elements;
  ASSIGN_OR_RETURN(const Tensor matrix, rows.Reshaped({panels.rows, row_bytes}));
  ASSIGN_OR_RETURN(Tensor packed, PackBlocks(matrix, format, panel));
  panels.panel_bytes = packed.shape()[1];
  return EmitDequantized(context, panels, context.NewConstant(std::move(packed), "panels"));
}

absl::Status LowerDequantizePanels(LowerContext& context) {
  ASSIGN_OR_RETURN(const Panels panels, ReadPanels(context.node(), context.InputShape(0)));
  return EmitDequantized(context, panels, context.node().inputs[0]);
}

absl::Status LowerGatherPanels(LowerContext& context) {
  ASSIGN_OR_RETURN(const Panels panels, ReadPanels(context.node(), context.InputShape(0)));
  return EmitDequantized(context, panels, context.node().inputs[0],
                         [&](StageOperands& operands, const std::vector<Expr>& coordinates) {
                           const int32_t indices = operands.AddInput(context, 1);
                           return ClampedIndex(operands.Load(indices, coordinates), panels.rows);
                         });
}

absl::Status LowerRoundRows(LowerContext& context) {
  ASSIGN_OR_RETURN(const RowRecords records, ReadRecords(context.node()));
  ASSIGN_OR_RETURN(const int64_t k, context.node().Int("k", 0));
  const Shape& x = context.InputShape(0);
  const DimExpr rows = ElementCount(Shape(x.begin(), x.end() - 1));
  const int64_t groups = std::max<int64_t>(k / kBlockGroup, 1);
  const int64_t task_rows = std::max<int64_t>(kTaskGroups / groups, 1);
  context.EmitLibrary(
      {.skeleton = "round_rows",
       .by_row = x.size() > 1,
       .configuration = {k, records.run, records.zero, records.has_minimum ? 1 : 0,
                         records.wide ? 1 : 0, records.record_bytes(), records.row_bytes(k),
                         task_rows},
       .operands = {{.dtype = DType::kF32, .shape = x}},
       .outputs = {{.dtype = RecordsDType(records), .shape = *context.output(0).shape}},
       .dims = {rows},
       .tasks = CeilDiv(rows, task_rows)},
      context.node().inputs, context.node().outputs);
  return absl::OkStatus();
}

absl::Status LowerMatMulPanels(LowerContext& context) {
  ASSIGN_OR_RETURN(const Panels panels, ReadPanels(context.node(), context.InputShape(1)));
  const DType dtype = context.input(0).dtype;
  const Shape& x = context.InputShape(0);
  StageOperands operands;
  const int32_t left = operands.AddInput(context, 0);
  Contraction contraction{.m = Shape(x.begin(), x.end() - 1),
                          .n = panels.rows,
                          .k = {panels.k},
                          .panel = panels.layout.panel,
                          .blocks = panels.layout.format,
                          .exact_rows = dtype == DType::kF32 && context.options().exact_rows};
  contraction.output = {.dtype = DType::kF32, .shape = *context.output(0).shape};
  std::vector<Expr> place = Coords(0, x.size());
  if (contraction.m.empty()) {
    contraction.m = {1};
    place = {Expr::Coord(1)};
    contraction.output_coordinates = {Expr::Coord(1)};
  }
  contraction.a = operands.Load(left, std::move(place));
  contraction.b = operands.AddInput(context, 1);
  contraction.result = Expr::Accumulator(DType::kF32, 0);
  contraction.operands = operands.TakeOperands();
  context.EmitContraction(std::move(contraction), operands.TakeValues(), context.node().outputs[0]);
  return absl::OkStatus();
}

constexpr Variant kDequantizeVariants[] = {{"nest", HasConstantRows, LowerDequantize}};
constexpr Variant kDequantizePanelsVariants[] = {{"nest", AlwaysApplies, LowerDequantizePanels}};
constexpr Variant kRoundRowsVariants[] = {{"skeleton", AlwaysApplies, LowerRoundRows}};
constexpr Variant kMatMulPanelsVariants[] = {{"contraction", AlwaysApplies, LowerMatMulPanels}};

constexpr OpDefinition kOps[] = {
    {.name = "DequantizeBlocks",
     .domain = "stampmill",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferDequantize,
     .reference = DequantizeReference,
     .variants = kDequantizeVariants,
     .folds = false},
    {.name = "DequantizePanels",
     .domain = "stampmill",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferDequantizePanels,
     .reference = DequantizePanelsReference,
     .variants = kDequantizePanelsVariants,
     .folds = false},
    {.name = "GatherPanels",
     .domain = "stampmill",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferGatherPanels,
     .reference = GatherPanelsReference,
     .variants = kNest<LowerGatherPanels>},
    {.name = "RoundRows",
     .domain = "stampmill",
     .min_inputs = 1,
     .max_inputs = 1,
     .infer = InferRoundRows,
     .reference = RoundRowsReference,
     .variants = kRoundRowsVariants},
    {.name = "MatMulPanels",
     .domain = "stampmill",
     .min_inputs = 2,
     .max_inputs = 2,
     .infer = InferMatMulPanels,
     .reference = MatMulPanelsReference,
     .variants = kMatMulPanelsVariants},
};

}  // namespace

std::span<const OpDefinition> BlockOps() { return kOps; }

}  // namespace stampmill
