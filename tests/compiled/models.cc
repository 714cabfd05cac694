#include "tests/compiled/models.h"

#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "graph/dim.h"
#include "graph/dtype.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

using Attributes = absl::flat_hash_map<std::string, Attribute>;

// A graph under construction; weights get a seed each.
class Builder {
 public:
  ValueId Input(const std::string& name, DType dtype, Shape shape) {
    return graph_.AddInput(name, dtype, std::move(shape));
  }
  ValueId Op(const std::string& type, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return graph_.Op(type, "", std::move(inputs), std::move(attributes));
  }
  ValueId Weight(std::vector<int64_t> shape, double range = 0.5) {
    return graph_.AddConstant("w", Random(DType::kF32, std::move(shape), ++seed_, range));
  }
  ValueId Scalar(double value) { return graph_.AddConstant("c", Values(DType::kF32, {}, {value})); }
  ValueId List(const std::vector<int64_t>& values) { return graph_.AddConstant("i", Ints(values)); }
  ValueId Linear(ValueId x, int64_t from, int64_t to) {
    return Op("Add", {Op("MatMul", {x, Weight({from, to})}), Weight({to})});
  }
  ValueId LayerNorm(ValueId x, int64_t width) {
    return Op("LayerNormalization", {x, Weight({width}, 2), Weight({width})});
  }
  ValueId Gelu(ValueId x) {
    const ValueId erf = Op("Erf", {Op("Div", {x, Scalar(std::sqrt(2.0))})});
    return Op("Mul", {Op("Mul", {x, Op("Add", {erf, Scalar(1)})}), Scalar(0.5)});
  }
  // Convolution and BatchNormalization.
  ValueId ConvNorm(ValueId x, int64_t from, int64_t to, int64_t kernel, int64_t stride,
                   int64_t groups = 1) {
    const int64_t pad = kernel / 2;
    const ValueId conv = Op("Conv", {x, Weight({to, from / groups, kernel, kernel})},
                            {{"group", groups},
                             {"strides", std::vector<int64_t>{stride, stride}},
                             {"pads", std::vector<int64_t>{pad, pad, pad, pad}}});
    const ValueId variance = Op("Abs", {Weight({to}, 2)});
    return Op("BatchNormalization", {conv, Weight({to}, 2), Weight({to}), Weight({to}), variance},
              {{"epsilon", 0.01f}});
  }
  Graph Done(std::vector<ValueId> outputs) {
    std::vector<std::string> names;
    for (size_t i = 0; i < outputs.size(); ++i) names.push_back("y" + std::to_string(i));
    graph_.SetOutputs(std::move(outputs));
    graph_.set_output_names(std::move(names));
    return std::move(graph_);
  }

 private:
  Graph graph_;
  uint64_t seed_ = 0;
};

DimExpr Dim(const char* name) { return DimExpr::Symbol(name); }

constexpr int64_t kWidth = 24, kHeads = 3;

Graph TransformerBlock() {
  Builder b;
  const ValueId x = b.Input("x", DType::kF32, {Dim("N"), Dim("S"), kWidth});
  const ValueId mask = b.Input("mask", DType::kI64, {Dim("N"), Dim("S")});
  const ValueId keep =
      b.Op("Cast", {b.Op("Unsqueeze", {mask, b.List({1, 2})})}, {{"to", int64_t{1}}});
  const ValueId bias = b.Op("Mul", {b.Op("Sub", {b.Scalar(1), keep}), b.Scalar(-10000)});
  const ValueId in = b.LayerNorm(x, kWidth);
  const auto heads = [&](std::vector<int64_t> order) {
    const ValueId split =
        b.Op("Reshape", {b.Linear(in, kWidth, kWidth), b.List({0, 0, kHeads, kWidth / kHeads})});
    return b.Op("Transpose", {split}, {{"perm", std::move(order)}});
  };
  const ValueId query = heads({0, 2, 1, 3}), key = heads({0, 2, 3, 1});
  const ValueId value = heads({0, 2, 1, 3});
  const ValueId scores =
      b.Op("Div", {b.Op("MatMul", {query, key}), b.Scalar(std::sqrt(double{kWidth} / kHeads))});
  const ValueId weights = b.Op("Softmax", {b.Op("Add", {scores, bias})}, {{"axis", int64_t{-1}}});
  const ValueId mixed = b.Op("Transpose", {b.Op("MatMul", {weights, value})},
                             {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  const ValueId joined = b.Op("Reshape", {mixed, b.List({0, 0, kWidth})});
  const ValueId attended = b.Op("Add", {x, b.Linear(joined, kWidth, kWidth)});
  const ValueId hidden = b.Gelu(b.Linear(b.LayerNorm(attended, kWidth), kWidth, 4 * kWidth));
  const ValueId y = b.Op("Add", {attended, b.Linear(hidden, 4 * kWidth, kWidth)});
  const ValueId pooled =
      b.Op("Tanh", {b.Linear(b.Op("Gather", {y, b.List({0})}, {{"axis", int64_t{1}}}), kWidth, 5)});
  return b.Done({y, pooled});
}

Graph ConvolutionBlock() {
  Builder b;
  const ValueId x = b.Input("x", DType::kF32, {Dim("N"), 3, Dim("L"), Dim("L")});
  const ValueId stem = b.Op("HardSwish", {b.ConvNorm(x, 3, 16, 3, 2)});
  const ValueId wide = b.Op("Relu", {b.ConvNorm(stem, 16, 40, 1, 1)});
  const ValueId deep = b.Op("Relu", {b.ConvNorm(wide, 40, 40, 5, 1, 40)});
  const ValueId squeezed =
      b.Op("Relu", {b.ConvNorm(b.Op("GlobalAveragePool", {deep}), 40, 10, 1, 1)});
  const ValueId gate = b.Op("HardSigmoid", {b.ConvNorm(squeezed, 10, 40, 1, 1)});
  const ValueId narrow = b.ConvNorm(b.Op("Mul", {deep, gate}), 40, 16, 1, 1);
  const ValueId joined = b.Op("Add", {stem, narrow});
  const ValueId pooled = b.Op("MaxPool", {joined},
                              {{"kernel_shape", std::vector<int64_t>{3, 3}},
                               {"strides", std::vector<int64_t>{2, 2}},
                               {"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  const ValueId flat = b.Op("Flatten", {b.Op("GlobalAveragePool", {pooled})});
  const ValueId logits =
      b.Op("Gemm", {flat, b.Weight({11, 16}), b.Weight({11})}, {{"transB", int64_t{1}}});
  return b.Done({b.Op("Softmax", {logits}), joined});
}

Graph NormalizationChain() {
  Builder b;
  const ValueId x = b.Input("x", DType::kF32, {Dim("N"), Dim("L")});
  const ValueId likely = b.Op("Softmax", {x});
  const ValueId mean = b.Op("ReduceMean", {likely, b.List({-1})}, {{"keepdims", int64_t{1}}});
  const ValueId centred = b.Op("Sub", {likely, mean});
  const ValueId square = b.Op("ReduceMean", {b.Op("Mul", {centred, centred}), b.List({-1})},
                              {{"keepdims", int64_t{1}}});
  const ValueId normal =
      b.Op("Div", {centred, b.Op("Sqrt", {b.Op("Add", {square, b.Scalar(1e-9)})})});
  const ValueId top = b.Op("ReduceMax", {normal, b.List({-1})}, {{"keepdims", int64_t{1}}});
  const ValueId total = b.Op("ReduceL2", {normal, b.List({-1})}, {{"keepdims", int64_t{1}}});
  const ValueId best = b.Op("ArgMax", {x}, {{"axis", int64_t{-1}}});
  return b.Done({b.Op("LogSoftmax", {normal}), b.Op("Div", {top, total}), best});
}

}  // namespace

std::vector<BlockModel> BlockModels() {
  const auto random = [](std::vector<int64_t> shape) { return Random(DType::kF32, shape, 77); };
  return {
      {.name = "TransformerBlock",
       .make = TransformerBlock,
       .inputs =
           [random](int64_t batch, int64_t length) {
             // Rows of every length: the first element of a row always counts.
             std::vector<double> mask;
             for (int64_t row = 0; row < batch; ++row) {
               for (int64_t i = 0; i < length; ++i) mask.push_back(i <= (row * 5) % length);
             }
             return std::vector<Tensor>{random({batch, length, kWidth}),
                                        Values(DType::kI64, {batch, length}, mask)};
           }},
      {.name = "ConvolutionBlock",
       .make = ConvolutionBlock,
       .inputs =
           [random](int64_t batch, int64_t length) {
             return std::vector<Tensor>{random({batch, 3, length, length})};
           }},
      {.name = "NormalizationChain",
       .make = NormalizationChain,
       .inputs = [random](int64_t batch,
                          int64_t length) { return std::vector<Tensor>{random({batch, length})}; }},
  };
}

}  // namespace stampmill
