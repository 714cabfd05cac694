// TfIdfVectorizer over integers: how often each n-gram of a pool occurs in a row, its items next to
// each other or a fixed distance apart.
//
// Lowered as a reduction over distances and places for each column; columns that several n-grams
// share have a slot for each.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/families.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

struct Grams {
  enum class Mode : uint8_t { kCount, kWeight, kBoth } mode = Mode::kCount;
  int64_t columns = 0;
  int64_t distances = 1;                                     // 1 .. distances
  std::vector<std::pair<std::vector<int64_t>, int64_t>> of;  // items, column
  std::vector<float> weights;                                // by column; empty: all 1

  size_t longest() const {
    size_t length = 1;
    for (const auto& [items, column] : of) length = std::max(length, items.size());
    return length;
  }
  // n-grams that share a column, at most.
  int64_t slots() const {
    std::map<int64_t, int64_t> counts;
    int64_t most = 1;
    for (const auto& [items, column] : of) most = std::max(most, ++counts[column]);
    return most;
  }
};

// Far above any vocabulary; columns make the output.
constexpr int64_t kColumnsMax = int64_t{1} << 28;

absl::Status GramError(const Node& node, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": ", what));
}

// The n-grams of one pool, whose sizes `counts` says by the position that each size begins at.
absl::Status ReadPool(const Node& node, int64_t least, int64_t most, Grams& grams) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> counts, node.Ints("ngram_counts", {}));
  ASSIGN_OR_RETURN(const std::vector<int64_t> columns, node.Ints("ngram_indexes", {}));
  ASSIGN_OR_RETURN(const std::vector<int64_t> pool, node.Ints("pool_int64s", {}));
  const int64_t end = static_cast<int64_t>(pool.size());
  std::map<std::vector<int64_t>, int64_t> places;
  size_t next = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const int64_t stop = i + 1 < counts.size() ? counts[i + 1] : end;
    const int64_t size = static_cast<int64_t>(i) + 1;
    if (counts[i] < 0 || counts[i] > stop || stop > end || (stop - counts[i]) % size != 0) {
      return GramError(node, absl::StrCat("ngram_counts: element ", i, ": got ", counts[i],
                                          ", does not fit a pool of ", end));
    }
    for (int64_t at = counts[i]; at < stop; at += size, ++next) {
      if (next >= columns.size()) {
        return GramError(node, absl::StrCat("ngram_indexes: got ", columns.size(),
                                            " values for more n-grams in the pool"));
      }
      if (size < least || size > most) continue;
      // Of equal ones the last counts.
      places[{pool.begin() + at, pool.begin() + at + size}] = columns[next];
    }
  }
  for (const int64_t column : columns) {
    if (column < 0 || column >= kColumnsMax) {
      return GramError(
          node, absl::StrCat("ngram_indexes: got ", column, ", limits 0 and ", kColumnsMax - 1));
    }
    grams.columns = std::max(grams.columns, column + 1);
  }
  if (columns.empty()) return GramError(node, "ngram_indexes must not be empty");
  grams.of.assign(places.begin(), places.end());
  return absl::OkStatus();
}

absl::StatusOr<Grams> ReadGrams(const Node& node) {
  Grams grams;
  ASSIGN_OR_RETURN(const std::string mode, node.String("mode", ""));
  if (mode == "TF") {
    grams.mode = Grams::Mode::kCount;
  } else if (mode == "IDF") {
    grams.mode = Grams::Mode::kWeight;
  } else if (mode == "TFIDF") {
    grams.mode = Grams::Mode::kBoth;
  } else {
    return GramError(node, absl::StrCat("mode: got '", mode, "', want TF, IDF or TFIDF"));
  }
  if (node.Has("pool_strings")) {
    return absl::UnimplementedError(
        absl::StrCat(node.Describe(), ": pool_strings: strings are not supported"));
  }
  ASSIGN_OR_RETURN(const int64_t least, node.Int("min_gram_length", 1));
  ASSIGN_OR_RETURN(const int64_t most, node.Int("max_gram_length", 1));
  ASSIGN_OR_RETURN(const int64_t skips, node.Int("max_skip_count", 0));
  constexpr int64_t kSkipsMax = 1 << 16;
  if (least < 1 || most < least || skips < 0 || skips > kSkipsMax) {
    return GramError(node, absl::StrCat("gram lengths ", least, " to ", most, ", max_skip_count ",
                                        skips, " (limit ", kSkipsMax, ")"));
  }
  grams.distances = skips + 1;
  RETURN_IF_ERROR(ReadPool(node, least, most, grams));
  ASSIGN_OR_RETURN(grams.weights, node.Floats("weights"));
  if (!grams.weights.empty() && static_cast<int64_t>(grams.weights.size()) < grams.columns) {
    return GramError(node, absl::StrCat("weights: got ", grams.weights.size(), " values for ",
                                        grams.columns, " columns"));
  }
  return grams;
}

absl::Status InferTfIdf(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(0));
  ASSIGN_OR_RETURN(const Grams grams, ReadGrams(context.node()));
  if (dtype != DType::kI32 && dtype != DType::kI64) {
    return context.Error(absl::StrCat("X is ", Name(dtype), ", must be i32 or i64"));
  }
  if (x.empty() || x.size() > 2) {
    return context.Error(absl::StrCat("X: got rank ", x.size(), ", want 1 or 2"));
  }
  Shape y(x.begin(), x.end() - 1);
  y.push_back(grams.columns);
  return context.SetOutput(0, DType::kF32, std::move(y));
}

References TfIdfReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const Grams grams, ReadGrams(arguments.node));
  const Tensor& input = arguments.inputs[0];
  const Dims x = Int64Values(input);
  const int64_t length = input.shape().back();
  Dims dims(input.shape().begin(), input.shape().end() - 1);
  const int64_t rows = ProductOf(dims);
  dims.push_back(grams.columns);
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(DType::kF32, dims));
  const std::span<float> y = output.mutable_values<float>();
  std::ranges::fill(y, 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    for (const auto& [items, column] : grams.of) {
      const int64_t size = static_cast<int64_t>(items.size());
      for (int64_t distance = 1; distance <= (size == 1 ? 1 : grams.distances); ++distance) {
        for (int64_t start = 0; start + distance * (size - 1) < length; ++start) {
          bool equal = true;
          for (int64_t i = 0; equal && i < size; ++i) {
            equal = x[static_cast<size_t>(row * length + start + i * distance)] ==
                    items[static_cast<size_t>(i)];
          }
          if (equal) y[static_cast<size_t>(row * grams.columns + column)] += 1;
        }
      }
    }
    for (int64_t column = 0; column < grams.columns; ++column) {
      float& value = y[static_cast<size_t>(row * grams.columns + column)];
      if (grams.mode == Grams::Mode::kWeight) value = value > 0 ? 1 : 0;
      if (grams.mode != Grams::Mode::kCount && !grams.weights.empty()) {
        value *= grams.weights[static_cast<size_t>(column)];
      }
    }
  }
  return One(std::move(output));
}

// Items of each column and slot [columns, slots, longest] and their number [columns, slots], 0 for
// a slot that is not used.
struct GramTables {
  Tensor items, sizes;
};
absl::StatusOr<GramTables> TablesOf(const Grams& grams) {
  const int64_t slots = grams.slots(), longest = static_cast<int64_t>(grams.longest());
  GramTables tables;
  ASSIGN_OR_RETURN(tables.items, Tensor::Allocate(DType::kI64, {grams.columns, slots, longest}));
  ASSIGN_OR_RETURN(tables.sizes, Tensor::Allocate(DType::kI64, {grams.columns, slots}));
  const std::span<int64_t> items = tables.items.mutable_values<int64_t>();
  const std::span<int64_t> sizes = tables.sizes.mutable_values<int64_t>();
  std::ranges::fill(items, 0);
  std::ranges::fill(sizes, 0);
  for (const auto& [gram, column] : grams.of) {
    int64_t place = column * slots;
    while (sizes[static_cast<size_t>(place)] != 0) ++place;
    sizes[static_cast<size_t>(place)] = static_cast<int64_t>(gram.size());
    std::ranges::copy(gram, items.begin() + place * longest);
  }
  return tables;
}

absl::Status LowerTfIdf(LowerContext& context) {
  ASSIGN_OR_RETURN(const Grams grams, ReadGrams(context.node()));
  ASSIGN_OR_RETURN(GramTables tables, TablesOf(grams));
  const int64_t slots = grams.slots(), longest = static_cast<int64_t>(grams.longest());
  const Shape x = context.InputShape(0);
  const Shape y = *context.output(0).shape;
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  const int32_t items = operands.Add(context.NewConstant(std::move(tables.items), "items"),
                                     DType::kI64, {grams.columns, slots, longest});
  const int32_t sizes = operands.Add(context.NewConstant(std::move(tables.sizes), "sizes"),
                                     DType::kI64, {grams.columns, slots});
  const std::vector<Expr> c = Coords(0, y.size());
  const std::vector<Expr> reduced = Coords(y.size(), 3);
  const Expr& slot = reduced[0];
  const Expr distance = reduced[1] + Int(1);
  const Expr size = operands.Load(sizes, {c.back(), slot});
  // A single item has no distance.
  Expr match = And(Less(Int(0), size), Or(Less(Int(1), size), Equal(distance, Int(1))));
  for (int64_t i = 0; i < longest; ++i) {
    const Expr place = reduced[2] + distance * Int(i);
    const Expr inside = Less(place, Extent(x.back()));
    std::vector<Expr> from(c.begin(), c.end() - 1);
    from.push_back(place);
    const DType dtype = operands.operand(input).dtype;
    const Expr item = Expr::Cast(
        DType::kI64, operands.LoadIf(inside, input, std::move(from), Expr::ConstantInt(dtype, 0)));
    const Expr equal = And(inside, Equal(item, operands.Load(items, {c.back(), slot, Int(i)})));
    match = And(match, Or(LessEqual(size, Int(i)), equal));
  }
  Nest nest{.kept = y, .reduced = {slots, grams.distances, x.back()}};
  nest.reductions = {SumReduction(Expr::Cast(DType::kF32, match))};
  Expr value = Expr::Reduced(DType::kF32, 0);
  if (grams.mode == Grams::Mode::kWeight) {
    value = Expr::Cast(DType::kF32, Less(Expr::Constant(DType::kF32, 0), value));
  }
  if (grams.mode != Grams::Mode::kCount && !grams.weights.empty()) {
    ASSIGN_OR_RETURN(Tensor weights, Tensor::Allocate(DType::kF32, {grams.columns}));
    std::copy_n(grams.weights.begin(), grams.columns, weights.mutable_values<float>().begin());
    const ValueId id = context.NewConstant(std::move(weights), "weights");
    const int32_t operand = operands.Add(id, DType::kF32, {grams.columns});
    value = value * operands.Load(operand, {c.back()});
  }
  nest.result = value;
  nest.output = {.dtype = DType::kF32, .shape = y};
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

}  // namespace

std::span<const OpDefinition> TfIdfOps() {
  static constexpr OpDefinition kOps[] = {
      {.name = "TfIdfVectorizer",
       .domain = "",
       .min_inputs = 1,
       .max_inputs = 1,
       .infer = InferTfIdf,
       .reference = TfIdfReference,
       .variants = kNest<LowerTfIdf>},
  };
  return kOps;
}

}  // namespace stampmill
