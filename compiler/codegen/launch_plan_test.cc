// The forms that Simplify reaches and how stages are cut into tasks. That simplified stages compute
// the same is tested with generated code (compiler/llvm).
#include "compiler/codegen/launch_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

Expr C(int32_t axis) { return Expr::Coord(axis); }
DimExpr S(const char* name) { return DimExpr::Symbol(name); }

int64_t Value(const DimExpr& dim, std::map<std::string, int64_t> symbols) {
  auto value = [&](absl::string_view name) -> std::optional<int64_t> {
    return symbols.at(std::string(name));
  };
  return *dim.Evaluate(value);
}

Nest MapOver(Shape shape) {
  Nest nest;
  nest.kept = shape;
  nest.operands = {{DType::kF32, shape}};
  std::vector<Expr> at;
  for (size_t n = 0; n < shape.size(); ++n) at.push_back(C(static_cast<int32_t>(n)));
  nest.result = Expr::Load(DType::kF32, 0, at) * Expr::Constant(DType::kF32, 2);
  nest.output = {DType::kF32, shape};
  return nest;
}

TEST(SimplifyTest, MakesOneAxisOfAnElementwiseMap) {
  Nest nest = std::get<Nest>(Simplify(MapOver({S("N"), 3, S("H"), S("W")})));
  EXPECT_EQ(nest.kept, Shape{S("N") * 3 * S("H") * S("W")});
  EXPECT_EQ(nest.operands[0].shape, nest.kept);
  EXPECT_EQ(nest.output.shape, nest.kept);
  EXPECT_TRUE(nest.output_coordinates.empty());
  EXPECT_TRUE(Verify(nest).ok());
}

TEST(SimplifyTest, GivesEqualStagesEqualBytes) {
  std::vector<DimExpr> first, second;
  EXPECT_EQ(CanonicalBytes(Simplify(MapOver({S("N"), 8, S("W")})), &first),
            CanonicalBytes(Simplify(MapOver({S("A"), 1, S("B"), 1})), &second));
  EXPECT_EQ(first, std::vector<DimExpr>{8 * S("N") * S("W")});
  EXPECT_EQ(second, std::vector<DimExpr>{S("A") * S("B")});
}

TEST(SimplifyTest, KeepsAxesApartThatABroadcastTellsApart) {
  Nest nest = MapOver({S("N"), S("C"), S("H"), S("W")});
  nest.operands.push_back({DType::kF32, {1, S("C"), 1, 1}});
  Expr zero = Expr::ConstantInt(DType::kI64, 0);
  nest.result = nest.result + Expr::Load(DType::kF32, 1, {zero, C(1), zero, zero});
  nest = std::get<Nest>(Simplify(nest));
  EXPECT_EQ(nest.kept, (Shape{S("N"), S("C"), S("H") * S("W")}));
  EXPECT_EQ(nest.operands[1].shape, Shape{S("C")});
}

TEST(SimplifyTest, MergesTheAxesThatATransposeKeepsTogether) {
  Nest nest;
  nest.kept = {S("C"), S("H"), S("W")};
  nest.operands = {{DType::kF32, {S("H"), S("W"), S("C")}}};
  nest.result = Expr::Load(DType::kF32, 0, {C(1), C(2), C(0)});
  nest.output = {DType::kF32, nest.kept};
  nest = std::get<Nest>(Simplify(nest));
  EXPECT_EQ(nest.kept, (Shape{S("C"), S("H") * S("W")}));
}

// A picture of 3 channels with 2 columns before it and some behind.
TEST(SimplifyTest, MergesTheFewChannelsOfAPadIntoItsColumns) {
  const auto number = [](int64_t value) { return Expr::ConstantInt(DType::kI64, value); };
  const auto pad = [&](int64_t channels, DType dtype) {
    Nest nest;
    nest.kept = {S("H"), S("P"), channels};
    nest.operands = {{dtype, {S("H"), S("W"), channels}}};
    const Expr place = C(1) - number(2);
    const Expr within = Expr::Binary(ExprOp::kBitAnd, Expr::Binary(ExprOp::kLe, number(0), place),
                                     Expr::Binary(ExprOp::kLt, place, Expr::Dim(S("W"))));
    nest.result =
        Expr::GuardedLoad(dtype, 0, {C(0), place, C(2)}, within, Expr::ConstantInt(dtype, 0));
    nest.output = {dtype, nest.kept};
    return std::get<Nest>(Simplify(nest));
  };
  const Nest nest = pad(3, DType::kF32);
  EXPECT_TRUE(Verify(nest).ok());
  EXPECT_EQ(nest.kept, (Shape{S("H"), 3 * S("P")}));
  EXPECT_EQ(nest.operands[0].shape, (Shape{S("H"), 3 * S("W")}));
  const Expr place = C(1) - number(6);
  EXPECT_EQ(nest.result.operands()[0],
            Expr::Binary(ExprOp::kBitAnd, Expr::Binary(ExprOp::kLe, number(0), place),
                         Expr::Binary(ExprOp::kLt, place, Expr::Dim(3 * S("W")))));
  EXPECT_EQ(nest.result.operands()[2], C(0));
  EXPECT_EQ(nest.result.operands()[3], place);
  EXPECT_EQ(pad(16, DType::kF32).kept.size(), 3u);
  EXPECT_EQ(pad(3, DType::kU8).kept.size(), 3u);
}

TEST(SimplifyTest, LeavesAxesThatAreComputedWith) {
  Nest nest = MapOver({S("N"), S("M")});
  nest.result = nest.result + Expr::Cast(DType::kF32, C(1));
  EXPECT_EQ(std::get<Nest>(Simplify(nest)).kept.size(), 2u);
}

TEST(SimplifyTest, MergesRowsAndBatchesOfContractions) {
  Contraction c;
  c.batch = {S("B"), 12};
  c.m = {S("H"), 1, S("W")};
  c.n = S("N");
  c.k = {4, 8};
  c.panel = 32;
  c.operands = {{DType::kF32, {S("B"), 12, S("H"), 1, S("W"), 4, 8}},
                {DType::kF32, {S("B"), 12, CeilDiv(S("N"), 32), 32, 32}}};
  std::vector<Expr> at;
  for (int32_t n = 0; n < 7; ++n) at.push_back(C(n));
  c.a = Expr::Load(DType::kF32, 0, at);
  c.b = 1;
  c.b_batched = true;
  c.result = Expr::Accumulator(DType::kF32, 0);
  c.output = {DType::kF32, {S("B"), 12, S("H"), 1, S("W"), S("N")}};
  Contraction simple = std::get<Contraction>(Simplify(c));
  ASSERT_TRUE(Verify(simple).ok()) << Verify(simple).ToString();
  EXPECT_EQ(simple.batch, Shape{S("B") * 12});
  EXPECT_EQ(simple.m, Shape{S("H") * S("W")});
  EXPECT_EQ(simple.k, Shape{32});
  EXPECT_EQ(simple.operands[1].shape, (Shape{S("B") * 12, CeilDiv(S("N"), 32), 32, 32}));
}

TEST(LaunchPlanTest, CutsLargeMapsIntoManyTasksAndSmallOnesNot) {
  LaunchPlan plan = PlanLaunch(Simplify(MapOver({S("N"), S("M")})), Target());
  EXPECT_EQ(Value(plan.tasks, {{"N", 0}, {"M", 5}}), 0);
  EXPECT_EQ(Value(plan.tasks, {{"N", 4}, {"M", 16}}), 1);
  EXPECT_GE(Value(plan.tasks, {{"N", 128}, {"M", 512}}), 4);
  EXPECT_GE(Value(plan.tasks, {{"N", 1000}, {"M", 1000}}), 16);
  EXPECT_EQ(Value(plan.scratch_bytes, {{"N", 4}, {"M", 16}}), 0);
  EXPECT_EQ(Value(plan.bytes, {{"N", 4}, {"M", 16}}), 4 * 16 * 4 * 2);
}

TEST(LaunchPlanTest, TilesJoinTheAxesThatAreReadAndWrittenAlong) {
  const Target target = *Target::Parse("cpu:x86-64-v4");
  Nest nest;
  nest.kept = {S("N"), S("W"), 2, S("H")};
  nest.operands = {{DType::kF32, {S("N"), 2, S("H"), S("W")}}};
  nest.result = Expr::Load(DType::kF32, 0, {C(0), C(2), C(3), C(1)});
  nest.output = {DType::kF32, nest.kept};
  NestSchedule schedule = ScheduleNest(nest, target);
  EXPECT_EQ(schedule.lane_axis, 3);
  EXPECT_EQ(schedule.tile_axis, 1);
  EXPECT_EQ(schedule.row_axes, (std::vector<int64_t>{0, 2, 1}));
  EXPECT_EQ(schedule.lanes, (std::vector<int64_t>{16, 4, 1}));
  for (int64_t height : {1, 63, 64, 127, 128, 1000}) {
    EXPECT_EQ(Value(schedule.row_shape[2], {{"W", height}}), std::max<int64_t>(height / 64, 1));
  }
  EXPECT_EQ(Value(schedule.tasks, {{"N", 3}, {"W", 0}, {"H", 40}}), 0);
  // Every other element as well.
  const Expr twice = C(1) * Expr::ConstantInt(DType::kI64, 2);
  nest.result = Expr::Load(DType::kF32, 0, {C(0), C(2), C(3), twice});
  EXPECT_EQ(ScheduleNest(nest, target).tile_axis, 1);
  nest.result = Expr::Load(DType::kF32, 0, {C(0), C(2), C(3), twice + twice});
  EXPECT_EQ(ScheduleNest(nest, target).tile_axis, -1);
  // What is read along the axis that is written along, or by no axis at all, has no tiles.
  nest.result = Expr::Load(DType::kF32, 0, {C(0), C(2), C(1), C(3)});
  EXPECT_EQ(ScheduleNest(nest, target).tile_axis, -1);
  nest.result = Expr::Load(DType::kF32, 0, {C(0), C(2), C(3), Expr::ConstantInt(DType::kI64, 0)});
  EXPECT_EQ(ScheduleNest(nest, target).tile_axis, -1);
}

TEST(LaunchPlanTest, WindowsThatShareLoadsGoTogether) {
  const Target target = *Target::Parse("cpu:x86-64-v3");
  Nest nest;
  nest.kept = {S("H"), S("W"), 128};
  nest.reduced = {3, 3};
  nest.operands = {{DType::kF32, {S("H") + 2, S("W") + 2, 128}}, {DType::kF32, {3, 3, 128}}};
  Expr sum = Expr::Accumulator(DType::kF32, 0);
  Expr pixel = Expr::Load(DType::kF32, 0, {C(0) + C(3), C(1) + C(4), C(2)});
  nest.reductions = {{.init = {Expr::Constant(DType::kF32, 0)},
                      .update = {sum + pixel * Expr::Load(DType::kF32, 1, {C(3), C(4), C(2)})},
                      .merge = {sum + Expr::Accumulator(DType::kF32, 1)},
                      .result = sum}};
  nest.result = Expr::Reduced(DType::kF32, 0);
  nest.output = {DType::kF32, nest.kept};
  NestSchedule schedule = ScheduleNest(nest, target);
  EXPECT_EQ(schedule.rows_together, 4);
  // Tasks are whole lines, or parts of lines that fours fill.
  for (int64_t width : {5, 14, 56}) {
    for (int64_t height : {1, 56, 1000}) {
      int64_t rows = Value(schedule.rows_per_task, {{"H", height}, {"W", width}});
      EXPECT_EQ(rows % (rows < width ? 4 : width), 0) << height << "x" << width;
    }
  }
  EXPECT_EQ(Value(schedule.rows_per_task, {{"H", 100}, {"W", 10000}}) % 4, 0);
  // Two windows side by side that read nothing in common.
  Expr three = Expr::ConstantInt(DType::kI64, 3);
  nest.reductions[0].update = {
      sum + Expr::Load(DType::kF32, 0, {C(0) + C(3), C(1) * three + C(4), C(2)})};
  EXPECT_EQ(ScheduleNest(nest, target).rows_together, 1);
}

// The first-level cache has 64 sets of lines, of 8 ways at least.
TEST(LaunchPlanTest, RowsAreReadInPlaceUnlessATileFillsASetOfTheCache) {
  auto reads_in_place = [](int64_t row_elements, const char* target_text) {
    Target target = *Target::Parse(target_text);
    Contraction c;
    c.m = {S("M")};
    c.n = 64;
    c.k = {48};
    c.panel = PanelWidth(c.n, DType::kF32, target);
    c.operands = {{DType::kF32, {S("M"), row_elements}}, {DType::kF32, {4, 48, c.panel}}};
    c.a = Expr::Load(DType::kF32, 0, {C(0), C(1)});
    c.b = 1;
    c.result = Expr::Accumulator(DType::kF32, 0);
    c.output = {DType::kF32, {S("M"), 64}};
    return ScheduleContraction(c, target).direct_a;
  };
  for (int64_t row_elements : {48, 512, 768, 1040, 1536}) {
    EXPECT_TRUE(reads_in_place(row_elements, "cpu:x86-64-v4")) << row_elements;
  }
  for (int64_t row_elements : {1024, 2048, 3072}) {
    EXPECT_FALSE(reads_in_place(row_elements, "cpu:x86-64-v4")) << row_elements;
    // Its tiles have half as many rows.
    EXPECT_TRUE(reads_in_place(row_elements, "cpu:x86-64-v3")) << row_elements;
  }
}

TEST(LaunchPlanTest, GroupsOfPanelsAreEvenAndLargeWhereRowsArePackedForEach) {
  const Target target = *Target::Parse("cpu:x86-64-v4");
  auto schedule = [&](int64_t m, int64_t n, int64_t k) {
    Contraction c;
    c.m = {m};
    c.n = n;
    c.k = {k};
    c.panel = 32;
    c.operands = {{DType::kF32, {m, k}}, {DType::kF32, {n / 32, k, 32}}};
    c.a = Expr::Load(DType::kF32, 0, {C(0), C(1)});
    c.b = 1;
    c.result = Expr::Accumulator(DType::kF32, 0);
    c.output = {DType::kF32, {m, n}};
    return ScheduleContraction(c, target);
  };
  auto groups = [&](int64_t m, int64_t n, int64_t k) {
    return *schedule(m, n, k).panel_groups.constant();
  };
  ASSERT_FALSE(schedule(49, 512, 2048).direct_a);
  EXPECT_EQ(groups(49, 512, 2048), 4);  // few tasks: of 128 columns
  EXPECT_EQ(groups(490, 512, 2048), 2);
  EXPECT_EQ(groups(49, 2048, 2048), 10);
  EXPECT_EQ(groups(49, 2048, 512), 32);  // tasks that follow each other share what is packed
}

TEST(LaunchPlanTest, CountsWhatIsComputedAndNotWhereItLies) {
  Nest nest;
  nest.kept = {S("H"), 64};
  nest.reduced = {3};
  nest.operands = {{DType::kF32, {S("H"), 64}}, {DType::kF32, {3}}};
  const Expr place = C(0) + C(2);
  const Expr pixel = Expr::GuardedLoad(DType::kF32, 0, {place, C(1)},
                                       Expr::Binary(ExprOp::kLt, place, Expr::Dim(S("H"))),
                                       Expr::Constant(DType::kF32, 0));
  const Expr sum = Expr::Accumulator(DType::kF32, 0);
  nest.reductions = {{.init = {Expr::Constant(DType::kF32, 0)},
                      .update = {sum + pixel * Expr::Load(DType::kF32, 1, {C(2)})},
                      .merge = {sum + Expr::Accumulator(DType::kF32, 1)},
                      .result = sum}};
  nest.result =
      Expr::Binary(ExprOp::kMax, Expr::Reduced(DType::kF32, 0), Expr::Constant(DType::kF32, 0));
  nest.output = {DType::kF32, nest.kept};
  EXPECT_EQ(Value(PlanLaunch(nest, Target()).flops, {{"H", 5}}), 5 * 64 * (3 * 2 + 1));
}

TEST(LaunchPlanTest, PanelsAreWholeVectors) {
  Target widest = *Target::Parse("cpu:x86-64-v4");
  EXPECT_EQ(PanelWidth(384, DType::kF32, widest), 32);
  EXPECT_EQ(PanelWidth(10, DType::kF32, widest), 16);
  EXPECT_EQ(PanelWidth(S("N"), DType::kF64, widest), 16);
  EXPECT_EQ(PanelWidth(384, DType::kF32, *Target::Parse("cpu:x86-64-v3")), 16);
  EXPECT_EQ(PanelWidth(384, DType::kF32, *Target::Parse("cpu:x86-64")), 8);
}

}  // namespace
}  // namespace stampmill
