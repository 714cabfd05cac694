// Canonical bytes of stages, version 1. Written and read by one description of the fields each
// (Writer and Reader below, in the same order).
//
//   u8      version
//   u8      kind: 0 Nest, 1 Contraction, 2 Library
//   varint  number of expression nodes, then the nodes, operands before users:
//             u8 op, u8 dtype, then
//             kConstant                varint bits
//             kCoord, kReduced, kAccumulator   varint index
//             kDim                     dim
//             kLoad, kGuardedLoad      varint operand, varint node count, nodes
//             else                     as many nodes as the operation takes
//   fields of the body, as in Nest, Contraction, Library
//
//   dim     varint 0, then zigzag varint value; or varint 1 + number of the parameter
//   node    varint index into the nodes, lower than that of its user
//   list    varint count, then the elements; a shape is a list of dims
//   operand u8 dtype, shape
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "graph/nest.h"

namespace stampmill {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint64_t kParametersMax = 1 << 16;
// Flags of a contraction.
constexpr uint8_t kBatched = 1;
constexpr uint8_t kBlocks = 2;  // after the panel a byte with the format
constexpr uint8_t kExactRows = 4;
constexpr uint8_t kRows = 8;

class Writer {
 public:
  explicit Writer(std::vector<DimExpr>* dims) : dims_(dims) {}

  std::string Finish(uint8_t kind) {
    std::string bytes;
    ByteWriter out(&bytes);
    out.U8(kVersion);
    out.U8(kind);
    out.Varint(records_.size());
    bytes += nodes_;
    bytes += fields_;
    return bytes;
  }

  void Write(const Nest& nest) {
    Dims(nest.kept);
    Dims(nest.reduced);
    Operands(nest.operands);
    fields_out_.Varint(nest.reductions.size());
    for (const Reduction& reduction : nest.reductions) {
      Exprs(reduction.init);
      Exprs(reduction.update);
      Exprs(reduction.merge);
      Ref(reduction.result);
    }
    Ref(nest.result);
    fields_out_.U8(nest.per_element);
    WriteOperand(nest.output);
    Exprs(nest.output_coordinates);
  }

  void Write(const Contraction& c) {
    Dims(c.batch);
    Dims(c.m);
    WriteDim(c.n, fields_out_);
    Dims(c.k);
    fields_out_.U8(static_cast<uint8_t>(c.accumulator));
    Operands(c.operands);
    Ref(c.a);
    fields_out_.SignedVarint(c.b);
    fields_out_.U8(
        static_cast<uint8_t>((c.b_batched ? kBatched : 0) | (c.blocks.has_value() ? kBlocks : 0) |
                             (c.exact_rows ? kExactRows : 0) | (c.rows.valid() ? kRows : 0)));
    fields_out_.SignedVarint(c.panel);
    if (c.blocks.has_value()) fields_out_.U8(static_cast<uint8_t>(*c.blocks));
    if (c.rows.valid()) Ref(c.rows);
    Ref(c.result);
    WriteOperand(c.output);
    Exprs(c.output_coordinates);
  }

  void Write(const Library& library) {
    fields_out_.String(library.skeleton);
    fields_out_.Varint(library.configuration.size());
    for (const int64_t value : library.configuration) fields_out_.SignedVarint(value);
    Operands(library.operands);
    Operands(library.outputs);
    Dims(library.dims);
    WriteDim(library.tasks, fields_out_);
    WriteDim(library.scratch_bytes, fields_out_);
  }

 private:
  void WriteDim(const DimExpr& dim, ByteWriter& out) {
    if (const std::optional<int64_t> value = dim.constant()) {
      out.Varint(0);
      out.SignedVarint(*value);
      return;
    }
    const auto [it, added] = parameters_.try_emplace(dim, parameters_.size());
    if (added) dims_->push_back(dim);
    out.Varint(1 + it->second);
  }

  void Dims(const Shape& shape) {
    fields_out_.Varint(shape.size());
    for (const DimExpr& dim : shape) WriteDim(dim, fields_out_);
  }

  void WriteOperand(const Operand& operand) {
    fields_out_.U8(static_cast<uint8_t>(operand.dtype));
    Dims(operand.shape);
  }

  void Operands(const std::vector<Operand>& operands) {
    fields_out_.Varint(operands.size());
    for (const Operand& operand : operands) WriteOperand(operand);
  }

  void Exprs(const std::vector<Expr>& exprs) {
    fields_out_.Varint(exprs.size());
    for (const Expr& expr : exprs) Ref(expr);
  }

  void Ref(const Expr& expr) {
    expr.Visit([this](const Expr& e) {
      if (!numbers_.contains(e.id())) numbers_[e.id()] = NumberOf(e);
    });
    fields_out_.Varint(numbers_.at(expr.id()));
  }

  // The record of a node names its operands by number, so equal nodes have equal records.
  uint64_t NumberOf(const Expr& e) {
    std::string record;
    ByteWriter out(&record);
    out.U8(static_cast<uint8_t>(e.op()));
    out.U8(static_cast<uint8_t>(e.dtype()));
    switch (e.op()) {
      case ExprOp::kConstant:
        out.Varint(e.constant_bits());
        break;
      case ExprOp::kDim:
        WriteDim(e.dim(), out);
        break;
      case ExprOp::kLoad:
      case ExprOp::kGuardedLoad:
        out.Varint(static_cast<uint64_t>(e.index()));
        out.Varint(e.operands().size());
        break;
      case ExprOp::kCoord:
      case ExprOp::kReduced:
      case ExprOp::kAccumulator:
        out.Varint(static_cast<uint64_t>(e.index()));
        break;
      default:
        break;
    }
    for (const Expr& operand : e.operands()) out.Varint(numbers_.at(operand.id()));
    const auto [it, added] = records_.try_emplace(record, records_.size());
    if (added) nodes_ += record;
    return it->second;
  }

  std::vector<DimExpr>* dims_;
  absl::flat_hash_map<DimExpr, uint64_t> parameters_;
  absl::flat_hash_map<std::string, uint64_t> records_;
  absl::flat_hash_map<const void*, uint64_t> numbers_;
  std::string nodes_;
  std::string fields_;
  ByteWriter fields_out_{&fields_};
};

// ByteReader keeps the first error; what is read after it is empty and dropped at the end.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : in_(AsBytes(bytes), "stage") {}

  absl::StatusOr<StageBody> Read() {
    const uint8_t version = in_.U8();
    if (in_.ok() && version != kVersion) in_.Fail(absl::StrCat("version ", version));
    const uint8_t kind = in_.U8();
    if (kind > 2) in_.Fail(absl::StrCat("kind ", kind));
    const size_t count = Count(kNestNodesMax, "nodes");
    for (size_t i = 0; i < count && in_.ok(); ++i) ReadNode();
    StageBody body;
    if (kind == 0) body = ReadNest();
    if (kind == 1) body = ReadContraction();
    if (kind == 2) body = ReadLibrary();
    in_.ExpectEnd();
    RETURN_IF_ERROR(in_.status());
    if (const absl::Status status = Verify(body); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("stage: ", status.message()));
    }
    return body;
  }

 private:
  // Every element takes at least a byte.
  size_t Count(uint64_t limit, absl::string_view what) {
    const uint64_t count = in_.Varint();
    if (count > limit || count > in_.remaining()) {
      in_.Fail(absl::StrCat(what, ": count ", count));
      return 0;
    }
    return count;
  }

  DType ReadDType() {
    const DType dtype = static_cast<DType>(in_.U8());
    if (SizeBytes(dtype) == 0) in_.Fail(absl::StrCat("dtype ", static_cast<int>(dtype)));
    return dtype;
  }

  bool ReadBool() {
    const uint8_t value = in_.U8();
    if (value > 1) in_.Fail(absl::StrCat("bool ", value));
    return value != 0;
  }

  int32_t ReadIndex() {
    const uint64_t index = in_.Varint();
    if (index > kNestOperandsMax * 2) {
      in_.Fail(absl::StrCat("index ", index));
      return 0;
    }
    return static_cast<int32_t>(index);
  }

  DimExpr ReadDim() {
    const uint64_t parameter = in_.Varint();
    if (parameter == 0) return DimExpr(in_.SignedVarint());
    if (parameter > kParametersMax) {
      in_.Fail(absl::StrCat("dim parameter ", parameter - 1));
      return DimExpr();
    }
    return DimExpr::Symbol(absl::StrCat("d", parameter - 1));
  }

  Shape ReadDims(uint64_t limit) {
    Shape shape;
    const size_t count = Count(limit, "dims");
    for (size_t i = 0; i < count && in_.ok(); ++i) shape.push_back(ReadDim());
    return shape;
  }
  Shape ReadShape() { return ReadDims(kNestAxesMax); }

  Operand ReadOperand() {
    Operand operand;
    operand.dtype = ReadDType();
    operand.shape = ReadShape();
    return operand;
  }

  std::vector<Operand> ReadOperands() {
    std::vector<Operand> operands;
    const size_t count = Count(kNestOperandsMax, "operands");
    for (size_t i = 0; i < count && in_.ok(); ++i) operands.push_back(ReadOperand());
    return operands;
  }

  Expr ReadRef() {
    const uint64_t index = in_.Varint();
    if (!in_.ok() || index >= nodes_.size()) {
      in_.Fail(absl::StrCat("node ", index, " of ", nodes_.size()));
      return Expr::ConstantInt(DType::kI64, 0);
    }
    return nodes_[index];
  }

  std::vector<Expr> ReadRefs(uint64_t limit) {
    std::vector<Expr> exprs;
    const size_t count = Count(limit, "expressions");
    for (size_t i = 0; i < count && in_.ok(); ++i) exprs.push_back(ReadRef());
    return exprs;
  }

  static bool AllI64(std::span<const Expr> exprs) {
    return std::all_of(exprs.begin(), exprs.end(),
                       [](const Expr& e) { return e.dtype() == DType::kI64; });
  }

  std::optional<Expr> ReadLoad(ExprOp op, DType dtype) {
    const int32_t operand = ReadIndex();
    std::vector<Expr> operands = ReadRefs(kNestAxesMax + 2);
    if (op == ExprOp::kLoad) {
      if (!AllI64(operands)) return std::nullopt;
      return Expr::Load(dtype, operand, std::move(operands));
    }
    if (operands.size() < 2 || operands[0].dtype() != DType::kBool ||
        operands[1].dtype() != dtype || !AllI64(std::span(operands).subspan(2))) {
      return std::nullopt;
    }
    return Expr::GuardedLoad(dtype, operand, {operands.begin() + 2, operands.end()}, operands[0],
                             operands[1]);
  }

  std::optional<Expr> ReadArithmetic(ExprOp op, DType dtype) {
    const int arity = Arity(op);
    std::vector<Expr> operands;
    for (int i = 0; i < arity; ++i) operands.push_back(ReadRef());
    if (op == ExprOp::kSelect) {
      if (operands[0].dtype() != DType::kBool || operands[1].dtype() != dtype ||
          operands[2].dtype() != dtype) {
        return std::nullopt;
      }
      return Expr::Select(operands[0], operands[1], operands[2]);
    }
    if (arity == 2 && operands[0].dtype() != operands[1].dtype()) return std::nullopt;
    if (FindScalarFunction(op, operands[0].dtype(), dtype) == nullptr) return std::nullopt;
    if (op == ExprOp::kCast) return Expr::Cast(dtype, operands[0]);
    if (op == ExprOp::kBitCast) return Expr::BitCast(dtype, operands[0]);
    if (arity == 1) return Expr::Unary(op, operands[0]);
    return Expr::Binary(op, operands[0], operands[1]);
  }

  // Nullopt: the types do not fit.
  std::optional<Expr> ReadNodeOf(ExprOp op, DType dtype) {
    const bool is_i64 = dtype == DType::kI64;
    switch (op) {
      case ExprOp::kConstant:
        return Expr::ConstantBits(dtype, in_.Varint());
      case ExprOp::kCoord:
        return is_i64 ? std::optional(Expr::Coord(ReadIndex())) : std::nullopt;
      case ExprOp::kDim:
        return is_i64 ? std::optional(Expr::Dim(ReadDim())) : std::nullopt;
      case ExprOp::kReduced:
        return Expr::Reduced(dtype, ReadIndex());
      case ExprOp::kAccumulator:
        return Expr::Accumulator(dtype, ReadIndex());
      case ExprOp::kLoad:
      case ExprOp::kGuardedLoad:
        return ReadLoad(op, dtype);
      default:
        return ReadArithmetic(op, dtype);
    }
  }

  void ReadNode() {
    const uint8_t op = in_.U8();
    if (!IsExprOp(op)) in_.Fail(absl::StrCat("expression operation ", op));
    const DType dtype = ReadDType();
    if (!in_.ok()) return;
    const std::optional<Expr> node = ReadNodeOf(static_cast<ExprOp>(op), dtype);
    if (!node.has_value()) {
      in_.Fail(absl::StrCat("node ", nodes_.size(), ": types do not fit ",
                            Name(static_cast<ExprOp>(op)), " with result ", Name(dtype)));
      return;
    }
    nodes_.push_back(*node);
  }

  Nest ReadNest() {
    Nest nest;
    nest.kept = ReadShape();
    nest.reduced = ReadShape();
    nest.operands = ReadOperands();
    const size_t count = Count(kNestOperandsMax, "reductions");
    for (size_t i = 0; i < count && in_.ok(); ++i) {
      Reduction reduction;
      reduction.init = ReadRefs(kNestOperandsMax);
      reduction.update = ReadRefs(kNestOperandsMax);
      reduction.merge = ReadRefs(kNestOperandsMax);
      reduction.result = ReadRef();
      nest.reductions.push_back(std::move(reduction));
    }
    nest.result = ReadRef();
    nest.per_element = ReadBool();
    nest.output = ReadOperand();
    nest.output_coordinates = ReadRefs(kNestAxesMax);
    return nest;
  }

  Contraction ReadContraction() {
    Contraction c;
    c.batch = ReadShape();
    c.m = ReadShape();
    c.n = ReadDim();
    c.k = ReadShape();
    c.accumulator = ReadDType();
    c.operands = ReadOperands();
    c.a = ReadRef();
    const int64_t b = in_.SignedVarint();
    if (b < 0 || b >= static_cast<int64_t>(kNestOperandsMax)) in_.Fail(absl::StrCat("b ", b));
    c.b = in_.ok() ? static_cast<int32_t>(b) : -1;
    const uint8_t flags = in_.U8();
    if (flags > (kBatched | kBlocks | kExactRows | kRows)) in_.Fail(absl::StrCat("flags ", flags));
    c.b_batched = (flags & kBatched) != 0;
    c.exact_rows = (flags & kExactRows) != 0;
    c.panel = in_.SignedVarint();
    if ((flags & kBlocks) != 0) {
      const uint8_t format = in_.U8();
      if (format >= kBlockFormatCount) in_.Fail(absl::StrCat("block format ", format));
      c.blocks = in_.ok() ? static_cast<BlockFormat>(format) : BlockFormat::kQ4_0;
    }
    if ((flags & kRows) != 0) c.rows = ReadRef();
    c.result = ReadRef();
    c.output = ReadOperand();
    c.output_coordinates = ReadRefs(kNestAxesMax);
    return c;
  }

  Library ReadLibrary() {
    Library library;
    library.skeleton = std::string(in_.String());
    const size_t count = Count(kNestOperandsMax, "configuration");
    for (size_t i = 0; i < count && in_.ok(); ++i) {
      library.configuration.push_back(in_.SignedVarint());
    }
    library.operands = ReadOperands();
    library.outputs = ReadOperands();
    library.dims = ReadDims(kNestOperandsMax);
    library.tasks = ReadDim();
    library.scratch_bytes = ReadDim();
    return library;
  }

  ByteReader in_;
  std::vector<Expr> nodes_;
};

}  // namespace

std::string CanonicalBytes(const StageBody& body, std::vector<DimExpr>* dims) {
  dims->clear();
  Writer writer(dims);
  std::visit([&writer](const auto& one) { writer.Write(one); }, body);
  return writer.Finish(static_cast<uint8_t>(body.index()));
}

absl::StatusOr<StageBody> ParseCanonicalBytes(absl::string_view bytes) {
  return Reader(bytes).Read();
}

}  // namespace stampmill
