// If, Loop and Scan: what they mean, by the interpreter over their bodies; and the forms that they
// take in the compiler (domain stampmill), which passes make (compiler/passes/control_flow.h) and
// whose shapes are set then.
//
//   If      cond, captures of then_branch, captures of else_branch -> results. cond's contents are
//           known; the results have the shapes of the branch that it takes.
//   Repeat  count, `carried` values, `scanned` tensors, captures -> what was carried, at the end,
//           then rows of results. count's contents are known. The body takes the number of the
//           iteration, a symbol named by the attribute `iteration`, what is carried, a row of each
//           scanned tensor, captures; it gives, where the attribute `trips` names the symbol of the
//           number of iterations, whether to go on, with known contents; what is carried on;
//           results. `reversed_inputs` and `reversed_outputs`: rows are taken and put from the last
//           on.
//   Read    one integer or bool -> itself, known as the symbol that the attribute `symbol` names,
//           at most `limit`.
//   Dims    -> an integer of known contents.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/families.h"
#include "kernels/reference.h"

namespace stampmill {
namespace {

using References = absl::StatusOr<std::vector<Tensor>>;

absl::Status InferUnresolved(InferContext& context) {
  return context.Unsupported("control flow is resolved before shapes are inferred");
}

absl::Status InferResolved(InferContext&) { return absl::OkStatus(); }

absl::StatusOr<const Graph*> Body(const Node& node, absl::string_view attribute) {
  const auto found = node.attributes.find(attribute);
  const auto* body = found == node.attributes.end()
                         ? nullptr
                         : std::get_if<std::shared_ptr<const Graph>>(&found->second);
  if (body != nullptr) return body->get();
  return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": no graph '", attribute, "'"));
}

// Inputs of the node that no body captures.
absl::StatusOr<size_t> OwnInputs(const ReferenceArguments& arguments, const Graph& body) {
  const auto captures = static_cast<size_t>(body.captures);
  if (captures <= arguments.inputs.size()) return arguments.inputs.size() - captures;
  return ReferenceError(arguments, "fewer inputs than captures");
}

absl::StatusOr<bool> Truth(const ReferenceArguments& arguments, const Tensor& condition) {
  if (condition.dtype() != DType::kBool || condition.element_count() != 1) {
    return ReferenceError(arguments, "the condition must be one bool");
  }
  return condition.ValueAsInt64(0) != 0;
}

References IfReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const bool taken, Truth(arguments, arguments.inputs[0]));
  ASSIGN_OR_RETURN(const Graph* body, Body(arguments.node, taken ? "then_branch" : "else_branch"));
  return Interpret(*body, arguments.inputs.subspan(1));
}

// Results of the iterations, put together along a new axis.
class Rows {
 public:
  void Add(Tensor row) { rows_.push_back(std::move(row)); }
  size_t size() const { return rows_.size(); }

  absl::StatusOr<Tensor> Stack(const ReferenceArguments& arguments, const Tensor& like, size_t axis,
                               bool reversed) {
    std::vector<int64_t> shape = like.shape();
    int64_t outer = 1;
    for (size_t d = 0; d < axis; ++d) outer *= shape[d];
    shape.insert(shape.begin() + static_cast<int64_t>(axis), static_cast<int64_t>(rows_.size()));
    ASSIGN_OR_RETURN(Tensor stacked, Tensor::Allocate(like.dtype(), shape));
    if (reversed) std::reverse(rows_.begin(), rows_.end());
    const size_t row_bytes = like.bytes().size();
    const size_t piece = outer == 0 ? 0 : row_bytes / static_cast<size_t>(outer);
    std::byte* to = stacked.mutable_bytes().data();
    for (size_t o = 0; o < static_cast<size_t>(outer); ++o) {
      for (const Tensor& row : rows_) {
        if (row.shape() != like.shape() || row.dtype() != like.dtype()) {
          return ReferenceError(arguments, "results of iterations differ in shape");
        }
        if (piece > 0) std::memcpy(to, row.bytes().data() + o * piece, piece);
        to += piece;
      }
    }
    return stacked;
  }

 private:
  std::vector<Tensor> rows_;
};

References LoopReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const Graph* body, Body(arguments.node, "body"));
  ASSIGN_OR_RETURN(const size_t own, OwnInputs(arguments, *body));
  const auto given = [&](size_t i) { return i < own && arguments.inputs[i].valid(); };
  const int64_t limit =
      given(0) ? arguments.inputs[0].ValueAsInt64(0) : std::numeric_limits<int64_t>::max();
  bool goes_on = true;
  if (given(1)) {
    ASSIGN_OR_RETURN(goes_on, Truth(arguments, arguments.inputs[1]));
  }
  const size_t carried = own > 2 ? own - 2 : 0;
  if (body->outputs().size() < 1 + carried || body->inputs().size() < 2 + carried) {
    return ReferenceError(arguments, "body: fewer inputs or outputs than are carried");
  }
  std::vector<Tensor> inputs(2);
  for (size_t i = 0; i < carried; ++i) inputs.push_back(arguments.inputs[2 + i]);
  for (size_t i = own; i < arguments.inputs.size(); ++i) inputs.push_back(arguments.inputs[i]);
  const size_t results = body->outputs().size() - 1 - carried;
  std::vector<Rows> rows(results);
  std::vector<Tensor> like(results);
  // Without an iteration one still says which shapes results would have.
  for (int64_t step = 0; (step < limit && goes_on) || (step == 0 && results > 0); ++step) {
    inputs[0] = Tensor::Scalar(DType::kI64, step);
    inputs[1] = Tensor::Scalar(DType::kBool, 1);
    ASSIGN_OR_RETURN(std::vector<Tensor> outputs, Interpret(*body, inputs));
    const bool counts = step < limit && goes_on;
    for (size_t r = 0; r < results; ++r) {
      Tensor& result = outputs[1 + carried + r];
      if (step == 0) like[r] = result;
      if (counts) rows[r].Add(std::move(result));
    }
    if (!counts) break;
    for (size_t i = 0; i < carried; ++i) inputs[2 + i] = std::move(outputs[1 + i]);
    ASSIGN_OR_RETURN(goes_on, Truth(arguments, outputs[0]));
  }
  std::vector<Tensor> outputs(inputs.begin() + 2,
                              inputs.begin() + 2 + static_cast<int64_t>(carried));
  for (size_t r = 0; r < results; ++r) {
    ASSIGN_OR_RETURN(Tensor stacked, rows[r].Stack(arguments, like[r], 0, false));
    outputs.push_back(std::move(stacked));
  }
  return outputs;
}

// Row `index` of `axis`.
absl::StatusOr<Tensor> Row(const Tensor& tensor, size_t axis, int64_t index) {
  std::vector<int64_t> shape = tensor.shape();
  const int64_t extent = shape[axis];
  int64_t outer = 1;
  for (size_t d = 0; d < axis; ++d) outer *= shape[d];
  shape.erase(shape.begin() + static_cast<int64_t>(axis));
  ASSIGN_OR_RETURN(Tensor row, Tensor::Allocate(tensor.dtype(), shape));
  const size_t piece = row.bytes().size() / static_cast<size_t>(std::max<int64_t>(outer, 1));
  for (int64_t o = 0; o < outer && piece > 0; ++o) {
    std::memcpy(row.mutable_bytes().data() + static_cast<size_t>(o) * piece,
                tensor.bytes().data() + static_cast<size_t>(o * extent + index) * piece, piece);
  }
  return row;
}

References ScanReference(const ReferenceArguments& arguments) {
  const Node& node = arguments.node;
  ASSIGN_OR_RETURN(const Graph* body, Body(node, "body"));
  ASSIGN_OR_RETURN(const size_t own, OwnInputs(arguments, *body));
  ASSIGN_OR_RETURN(const int64_t scanned, node.Int("num_scan_inputs", 0));
  if (scanned < 1 || static_cast<size_t>(scanned) > own) {
    return ReferenceError(arguments, absl::StrCat("num_scan_inputs: got ", scanned));
  }
  const size_t count = static_cast<size_t>(scanned), carried = own - count;
  if (body->outputs().size() < carried) return ReferenceError(arguments, "body: too few outputs");
  const size_t results = body->outputs().size() - carried;
  const auto list = [&](const char* name, size_t size) -> absl::StatusOr<std::vector<int64_t>> {
    ASSIGN_OR_RETURN(std::vector<int64_t> values, node.Ints(name, std::vector<int64_t>(size, 0)));
    if (values.size() == size) return values;
    return ReferenceError(arguments, absl::StrCat(name, ": got ", values.size(), " entries"));
  };
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, list("scan_input_axes", count));
  ASSIGN_OR_RETURN(const std::vector<int64_t> backward, list("scan_input_directions", count));
  ASSIGN_OR_RETURN(const std::vector<int64_t> out_axes, list("scan_output_axes", results));
  ASSIGN_OR_RETURN(const std::vector<int64_t> out_backward,
                   list("scan_output_directions", results));
  int64_t steps = 0;
  for (size_t i = 0; i < count; ++i) {
    const std::vector<int64_t>& shape = arguments.inputs[carried + i].shape();
    ASSIGN_OR_RETURN(axes[i], AxisOf(axes[i], static_cast<int64_t>(shape.size())));
    const int64_t extent = shape[static_cast<size_t>(axes[i])];
    if (i == 0) steps = extent;
    if (extent != steps) return ReferenceError(arguments, "scanned tensors differ in length");
  }
  std::vector<Tensor> inputs(arguments.inputs.begin(), arguments.inputs.end());
  std::vector<Rows> rows(results);
  std::vector<Tensor> like(results);
  for (int64_t step = 0; step < steps || (step == 0 && results > 0); ++step) {
    for (size_t i = 0; i < count; ++i) {
      const int64_t index = backward[i] != 0 ? steps - 1 - step : step;
      const auto axis = static_cast<size_t>(axes[i]);
      if (steps == 0) {
        std::vector<int64_t> shape = arguments.inputs[carried + i].shape();
        shape.erase(shape.begin() + static_cast<int64_t>(axis));
        ASSIGN_OR_RETURN(inputs[carried + i],
                         Tensor::Allocate(arguments.inputs[carried + i].dtype(), shape));
        continue;
      }
      ASSIGN_OR_RETURN(inputs[carried + i], Row(arguments.inputs[carried + i], axis, index));
    }
    ASSIGN_OR_RETURN(std::vector<Tensor> outputs, Interpret(*body, inputs));
    for (size_t r = 0; r < results; ++r) {
      if (step == 0) like[r] = outputs[carried + r];
      if (step < steps) rows[r].Add(std::move(outputs[carried + r]));
    }
    if (step >= steps) break;
    for (size_t i = 0; i < carried; ++i) inputs[i] = std::move(outputs[i]);
  }
  std::vector<Tensor> outputs(inputs.begin(), inputs.begin() + static_cast<int64_t>(carried));
  for (size_t r = 0; r < results; ++r) {
    ASSIGN_OR_RETURN(const int64_t axis, AxisOf(out_axes[r], like[r].rank() + 1));
    ASSIGN_OR_RETURN(Tensor stacked, rows[r].Stack(arguments, like[r], static_cast<size_t>(axis),
                                                   out_backward[r] != 0));
    outputs.push_back(std::move(stacked));
  }
  return outputs;
}

constexpr OpDefinition Resolved(absl::string_view name, int min_inputs) {
  return {.name = name,
          .domain = "stampmill",
          .min_inputs = min_inputs,
          .max_inputs = -1,
          .min_outputs = 0,
          .max_outputs = -1,
          .infer = InferResolved,
          .reference = nullptr,
          .variants = {}};
}

constexpr OpDefinition kOps[] = {
    {.name = "If",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = -1,
     .max_outputs = -1,
     .infer = InferUnresolved,
     .reference = IfReference,
     .variants = {}},
    {.name = "Loop",
     .domain = "",
     .min_inputs = 0,
     .max_inputs = -1,
     .max_outputs = -1,
     .infer = InferUnresolved,
     .reference = LoopReference,
     .variants = {}},
    {.name = "Scan",
     .domain = "",
     .min_inputs = 1,
     .max_inputs = -1,
     .max_outputs = -1,
     .infer = InferUnresolved,
     .reference = ScanReference,
     .variants = {}},
    Resolved("If", 1),
    Resolved("Repeat", 1),
    Resolved("Read", 1),
    Resolved("Dims", 0),
};

}  // namespace

std::span<const OpDefinition> ControlOps() { return kOps; }

}  // namespace stampmill
