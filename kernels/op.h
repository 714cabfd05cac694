// An operator is defined once: what it means (shape rule and plain-loop reference) and the ways to
// compute it, in one ordered table. kernels/README.md is the checklist for adding one.
//
// Shape rules run on symbolic shapes at compile time. References are the independent oracle: plain
// loops over host tensors, obvious before fast, also used to fold constants and by `run --verify`.
// Lowerings turn a node into stages (graph/nest.h); the first variant in the table that applies is
// taken.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/dim.h"
#include "graph/dtype.h"
#include "graph/graph.h"
#include "graph/nest.h"
#include "graph/tensor.h"

namespace stampmill {

// Longest contents that are followed as DimExprs.
inline constexpr size_t kSymbolicElementsMax = 256;

// What a shape rule sees and sets. Borrowed views into the graph; one call.
class InferContext {
 public:
  InferContext(const Node& node, Graph& graph) : node_(node), graph_(graph) {}

  const Node& node() const { return node_; }
  size_t input_count() const { return node_.inputs.size(); }
  bool HasInput(size_t i) const;
  // REQUIRES: HasInput(i).
  const Value& InputValue(size_t i) const { return graph_.value(node_.inputs[i]); }
  // INVALID_ARGUMENT naming the node and the input when it is missing or not inferred yet.
  absl::StatusOr<DType> InputDType(size_t i) const;
  absl::StatusOr<Shape> InputShape(size_t i) const;
  // Contents, when known; UNIMPLEMENTED naming the input when a rule needs them and they are not.
  const Tensor* InputConstant(size_t i) const;
  const std::vector<DimExpr>* InputSymbolic(size_t i) const;
  absl::StatusOr<std::vector<DimExpr>> RequireSymbolic(size_t i) const;
  // As RequireSymbolic, and all must be fixed numbers (axes, splits).
  absl::StatusOr<std::vector<int64_t>> RequireConstant(size_t i) const;

  // An output that the node leaves out is ignored. INVALID_ARGUMENT when an earlier inference or
  // the model file gave a dtype or fixed dim that contradicts this one.
  absl::Status SetOutput(size_t i, DType dtype, Shape shape);
  // Row-major contents of an integer or bool output, as many as it has elements; more than
  // kSymbolicElementsMax are not kept.
  void SetOutputSymbolic(size_t i, std::vector<DimExpr> contents);
  size_t output_count() const { return node_.outputs.size(); }
  bool HasOutput(size_t i) const;
  // As set before; null for an output that is left out or not set yet.
  const Shape* OutputShape(size_t i) const;
  DType OutputDType(size_t i) const;  // kInvalid likewise

  // A condition on the shapes of requests without which the inferred shapes are wrong; it becomes
  // a Program::Check. INVALID_ARGUMENT when it can never hold. `what` says what must hold.
  absl::Status Check(const DimExpr& nonzero, absl::string_view what);
  // Whether this node or one before it demands just that.
  bool IsChecked(const DimExpr& nonzero) const;

  // Elements of input `i` are positions on an axis of `extent`, negative ones from its end. Where
  // they come from an input of the model unchanged and the extent is fixed, requests with others
  // are refused (Program::IndexBound).
  void CheckIndices(size_t i, const DimExpr& extent);

  // An INVALID_ARGUMENT status that begins with the node's description.
  absl::Status Error(absl::string_view message) const;
  // An UNIMPLEMENTED one.
  absl::Status Unsupported(absl::string_view message) const;

 private:
  const Node& node_;
  Graph& graph_;
};

// Constant inputs of one execution of one node; an absent optional input is invalid().
struct ReferenceArguments {
  const Node& node;
  std::span<const Tensor> inputs;
};

struct LowerOptions {
  // Panel width of contractions with `n` columns for the target.
  int64_t (*panel)(const DimExpr& n, DType dtype, absl::string_view target);
  std::string target;  // "cpu:x86-64-v3", a target (devices/target.h)
  // Contractions of floats up to f32 multiply operands that are rounded to bf16 (graph/nest.h,
  // pairs) and add them up in f32.
  bool bf16_products = false;
  // Rows that block-quantised weights multiply stay f32, instead of bytes (graph/nest.h, blocks).
  bool exact_rows = false;
  // The target multiplies four bytes of a word as fast as two numbers of 16 bits.
  bool has_byte_products = false;
};

// The stages that a lowering emits, between graph values. Values that it makes are local.
class LowerContext {
 public:
  virtual ~LowerContext() = default;
  virtual const Node& node() const = 0;
  virtual const Graph& graph() const = 0;
  virtual const LowerOptions& options() const = 0;

  const Value& input(size_t i) const { return graph().value(node().inputs[i]); }
  bool HasInput(size_t i) const { return i < node().inputs.size() && node().inputs[i] != kNoValue; }
  const Value& output(size_t i) const { return graph().value(node().outputs[i]); }
  bool HasOutput(size_t i) const {
    return i < node().outputs.size() && node().outputs[i] != kNoValue;
  }
  const Shape& InputShape(size_t i) const { return *input(i).shape; }

  // A temporary value of the lowering.
  virtual ValueId NewValue(DType dtype, Shape shape, absl::string_view name) = 0;
  // A constant made at compile time (packed weights).
  virtual ValueId NewConstant(Tensor tensor, absl::string_view name) = 0;

  // `operands[i]` is the graph value behind operand i of the body. Several stages may write one
  // output through output_coordinates, each its own part (Concat) or the later over the earlier
  // (Scatter); they run in the order emitted, and together they write all of it.
  virtual void EmitNest(Nest nest, std::vector<ValueId> operands, ValueId output) = 0;
  virtual void EmitContraction(Contraction contraction, std::vector<ValueId> operands,
                               ValueId output) = 0;
  virtual void EmitLibrary(Library library, std::vector<ValueId> operands,
                           std::vector<ValueId> outputs) = 0;
  // `output` has the bytes of `input` under another shape (Reshape and kin): no launch.
  virtual void EmitAlias(ValueId input, ValueId output) = 0;

  // A value that shares the elements of `base`, row-major, from `offset` on. Stages read and write
  // it as any other; reads of `base` see what was written to it.
  virtual ValueId NewSlice(ValueId base, Shape shape, const DimExpr& offset,
                           absl::string_view name) = 0;
  // What is emitted until EndRepeat runs `trips` times, one after the other. Gives the number of
  // the iteration, from 0, a symbol that the stages within may use: offsets of slices, Dims.
  // Values written in one iteration are read in the next only through slices of values that are
  // written before the repeat as well.
  virtual DimExpr BeginRepeat(const DimExpr& trips) = 0;
  virtual void EndRepeat() = 0;
  // `symbol` has the value of `scalar`'s one element, cut to [0, limit], from here on: the host
  // waits for it. A name is used once.
  virtual void EmitRead(ValueId scalar, absl::string_view symbol, const DimExpr& limit) = 0;
};

struct Variant {
  absl::string_view name;  // "nest", "contraction", "winograd"
  bool (*applies)(const LowerContext& context);
  absl::Status (*lower)(LowerContext& context);
};

struct OpDefinition {
  absl::string_view name;
  absl::string_view domain;            // "" is ai.onnx
  int min_inputs = 0, max_inputs = 0;  // max < 0: variadic
  int min_outputs = 1, max_outputs = 1;
  absl::Status (*infer)(InferContext& context);
  absl::StatusOr<std::vector<Tensor>> (*reference)(const ReferenceArguments& arguments);
  std::span<const Variant> variants;  // in order of preference
  // Results are never kept in place of the operator: they are larger than what it makes them of.
  bool folds = true;
};

// Lowers the context's node: nothing but its outputs' values when those are known as DimExprs
// (integer tensors computed from shapes), else the first variant that applies. UNIMPLEMENTED naming
// the node when none does.
absl::Status LowerNode(const OpDefinition& op, LowerContext& context);

// Null when Stampmill does not know the operator. The table is an explicit list (op_table.cc).
const OpDefinition* FindOp(absl::string_view domain, absl::string_view name);
std::vector<const OpDefinition*> AllOps();
// Each element of the one output is computed from the elements of the inputs at the same place
// after numpy broadcasting: works in any layout.
bool IsElementwise(const OpDefinition& op);
// FindOp; UNIMPLEMENTED that names operator, domain, opset and node.
absl::StatusOr<const OpDefinition*> RequireOp(const Node& node);

// Runs shape rules over the whole graph in order, folding what is constant (nodes whose inputs are
// all constant and whose output stays under `fold_limit_bytes` run their reference).
// A node whose outputs became constants is removed and they stay as constants; constants that
// nothing uses any more give up their bytes. Conditions on shapes go to graph.checks().
// UNIMPLEMENTED for an unknown operator: names op, domain, opset, node.
struct InferOptions {
  bool fold_constants = true;
  int64_t fold_limit_bytes = int64_t{1} << 30;
};
absl::Status InferShapes(Graph& graph, const InferOptions& options);
// The same for one node whose inputs are inferred.
absl::Status InferNode(Graph& graph, NodeId node, const InferOptions& options);
// Dtype, shape and contents of a value that is constant.
void InferConstant(Value& value);

// Executes the graph with references: `inputs` in the order of graph.inputs(), results in the order
// of graph.outputs(). Independent of every lowering and of LLVM.
struct InterpretOptions {
  // What each node computes is altered by such relative errors as a computation in its type makes
  // (f32: 2^-18, adding up some hundred terms one by one), uniform and by `seed`; whole numbers,
  // which are exact as a rule, are left. How far the results then move is how ill-conditioned the
  // model is there.
  bool rounding_noise = false;
  uint64_t seed = 0;
};
absl::StatusOr<std::vector<Tensor>> Interpret(const Graph& graph, std::span<const Tensor> inputs,
                                              const InterpretOptions& options = {});

}  // namespace stampmill
