#include "runtime/model_step.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "devices/cpu/cpu_device.h"
#include "gtest/gtest.h"
#include "runtime/limits.h"
#include "runtime/local_runner.h"
#include "runtime/testing/test_models.h"

namespace stampmill {
namespace {

class ModelStepTest : public testing::Test {
 protected:
  ModelStepTest() {
    auto device = CreateCpuDevice({.threads = 1});
    CHECK_OK(device);
    device_ = *std::move(device);
    queue_ = *device_->CreateQueue(nullptr);
  }

  void Load(const AddModelOptions& options, ModelStep::ReserveFunction reserve = nullptr) {
    auto image = MakeAddModel(options);
    CHECK_OK(image);
    auto model = Model::Load(*std::move(image), device_.get());
    CHECK_OK(model);
    model_ = *std::move(model);
    auto step = ModelStep::Create(model_.get(), 4, std::move(reserve));
    CHECK_OK(step);
    step_ = *std::move(step);
  }
  absl::Status Begin(int64_t rows, int64_t columns) {
    const TensorShape shape = *TensorShape::From(std::vector<int64_t>{rows, columns});
    const TensorShape* const shapes[] = {&shape};
    return step_->Begin(shapes);
  }
  // x + 2 of each element of rows x columns numbers.
  void Run(int64_t rows, int64_t columns) {
    ASSERT_TRUE(Begin(rows, columns).ok());
    std::vector<int32_t> in(static_cast<size_t>(rows * columns)), out(in.size());
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i * 3);
    const auto ref = [](const std::vector<int32_t>& v) {
      return BufferRef{reinterpret_cast<uint64_t>(v.data()), v.size() * 4};
    };
    EXPECT_EQ(step_->input_bytes(0), in.size() * 4);
    EXPECT_EQ(step_->output_bytes(0), in.size() * 4);
    EXPECT_EQ(step_->output_shape(0), *TensorShape::From(std::vector<int64_t>{rows, columns}));
    step_->BindInput(0, ref(in));
    step_->BindOutput(0, ref(out));
    ASSERT_TRUE(step_->Submit(*queue_, ++signal_).ok());
    ASSERT_TRUE(queue_->Synchronize(signal_).ok());
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], in[i] + 2);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Queue> queue_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<ModelStep> step_;
  uint64_t signal_ = 0;
};

TEST_F(ModelStepTest, ASignatureIsPreparedOnceAndTheOldestGivesWay) {
  Load({.columns = -1});
  for (int round = 0; round < 3; ++round) {
    for (int64_t rows = 1; rows <= 5; ++rows) Run(rows, 7);
  }
  EXPECT_EQ(step_->plans_prepared(), 5);
  for (int64_t rows = 1; rows <= kStepPlansMax; ++rows) Run(rows, 8);
  EXPECT_EQ(step_->plans_prepared(), 5 + kStepPlansMax);
  Run(1, 7);
  EXPECT_EQ(step_->plans_prepared(), 6 + kStepPlansMax);
  Run(kStepPlansMax, 8);
  EXPECT_EQ(step_->plans_prepared(), 6 + kStepPlansMax);
}

TEST_F(ModelStepTest, PlansSurviveTheGrowthOfTheArena) {
  Load({.columns = -1});
  Run(2, 2);
  for (int64_t size = 10; size < 10000; size *= 7) {
    Run(size, 10);
    Run(2, 2);
  }
  Run(0, 5);  // nothing to do is done
}

TEST_F(ModelStepTest, MemoryThatIsRefusedFailsTheStepAndNotTheNext) {
  uint64_t limit = 1000;
  Load({.columns = -1}, [&limit](uint64_t bytes) {
    return bytes <= limit ? absl::OkStatus() : absl::ResourceExhaustedError("too much");
  });
  Run(4, 4);
  EXPECT_TRUE(absl::IsResourceExhausted(Begin(100, 100)));
  Run(4, 4);
  limit = 100000;
  Run(100, 100);
}

TEST_F(ModelStepTest, ShapesThatDoNotFitAreNamed) {
  Load({.columns = 4});
  const absl::Status status = Begin(1, 5);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(), "input 'IN': shape [1,5]: dim 1: got 5, want 4");
  const TensorShape shape = *TensorShape::From(std::vector<int64_t>{1, 1, 4});
  const TensorShape* const shapes[] = {&shape};
  EXPECT_TRUE(absl::IsInvalidArgument(step_->Begin(shapes)));
}

TEST_F(ModelStepTest, SizesThatOverflowAreRefused) {
  Load({.columns = -1});
  EXPECT_TRUE(absl::IsInvalidArgument(Begin(int64_t{1} << 40, int64_t{1} << 40)));
  EXPECT_TRUE(absl::IsInvalidArgument(Begin(1, int64_t{1} << 62)));
  EXPECT_TRUE(absl::IsInvalidArgument(Begin(int64_t{1} << 30, int64_t{1} << 20)));
}

using Trips = RepeatModelOptions::Trips;

// OUT of a model that adds 1 so many times, for IN of rows x 4 elements from `first` on.
absl::StatusOr<std::vector<int32_t>> RunRepeat(LocalRunner& runner, int64_t rows, int32_t first,
                                               int64_t count) {
  Tensor in = *Tensor::Allocate(DType::kI32, {rows, 4});
  for (size_t i = 0; i < static_cast<size_t>(rows * 4); ++i) {
    in.mutable_values<int32_t>()[i] = first + static_cast<int32_t>(i);
  }
  const std::vector<Tensor> inputs = {in, Tensor::FromInt64({1}, std::vector<int64_t>{count})};
  auto outputs = runner.Run(inputs);
  if (!outputs.ok()) return outputs.status();
  const std::span<const int32_t> values = (*outputs)[0].values<int32_t>();
  return std::vector<int32_t>(values.begin(), values.end());
}

std::unique_ptr<LocalRunner> MakeRepeatRunner(const RepeatModelOptions& options, Device* device) {
  auto runner = LocalRunner::Create(*MakeRepeatModel(options), device);
  CHECK_OK(runner);
  return *std::move(runner);
}

TEST(RepeatTest, RunsAsOftenAsTheProgramSays) {
  auto device = *CreateCpuDevice({.threads = 1});
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{7},
                              static_cast<int64_t>(kPlanCommandsMax) * 3 + 1}) {
    const auto runner = MakeRepeatRunner({.count = count}, device.get());
    const auto out = RunRepeat(*runner, 2, 5, 0);
    ASSERT_TRUE(out.ok()) << out.status();
    for (size_t i = 0; i < out->size(); ++i) {
      ASSERT_EQ((*out)[i], 5 + static_cast<int32_t>(i) + count) << count;
    }
  }
}

TEST(RepeatTest, FollowsTheContentsOfAnInput) {
  auto device = *CreateCpuDevice({.threads = 1});
  const auto runner = MakeRepeatRunner({.trips = Trips::kInput}, device.get());
  for (int round = 0; round < 2; ++round) {
    for (const int64_t count : {4, 1, 0, 9, -3}) {
      const auto out = RunRepeat(*runner, 1, 100, count);
      ASSERT_TRUE(out.ok()) << out.status();
      EXPECT_EQ((*out)[0], 100 + std::max<int64_t>(count, 0));
    }
  }
  const auto refused = RunRepeat(*runner, 1, 0, std::numeric_limits<int64_t>::min());
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
}

TEST(RepeatTest, TheHostReadsHowOften) {
  auto device = *CreateCpuDevice({.threads = 1});
  const auto runner = MakeRepeatRunner({.trips = Trips::kRead, .count = 50}, device.get());
  for (const int32_t first : {3, 0, 20000, -5}) {
    const auto out = RunRepeat(*runner, 3, first, 0);
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ((*out)[1], first + 1 + std::clamp(first, 0, 50));
  }
}

TEST(RepeatTest, GoesOnWhileWhatTheHostReadsSaysSo) {
  auto device = *CreateCpuDevice({.threads = 1});
  for (const bool guarded : {false, true}) {
    const auto runner =
        MakeRepeatRunner({.trips = Trips::kWhile, .count = 1000, .guarded = guarded}, device.get());
    for (const int64_t rows : {1, 5, 2}) {
      const auto out = RunRepeat(*runner, rows, -30, 0);
      ASSERT_TRUE(out.ok()) << out.status();
      const bool left_out = guarded && rows > 2;
      EXPECT_EQ((*out)[0], left_out ? -30 : 1) << rows;
    }
  }
}

TEST(RepeatTest, ItsProfileCountsAllIterations) {
  auto device = *CreateCpuDevice({.threads = 1});
  const auto runner = MakeRepeatRunner({.trips = Trips::kWhile, .count = 40}, device.get());
  const std::vector<Tensor> inputs = {*Tensor::Allocate(DType::kI32, {1, 4}),
                                      Tensor::FromInt64({1}, std::vector<int64_t>{0})};
  const auto nanos = runner->Profile(inputs, 2);
  ASSERT_TRUE(nanos.ok()) << nanos.status();
  ASSERT_EQ(nanos->size(), 4u);
  EXPECT_GT((*nanos)[1], 0);
  EXPECT_EQ((*nanos)[2], 0);  // the read
}

TEST(LocalRunnerTest, RunsAModelAndItsProfile) {
  auto device = *CreateCpuDevice({.threads = 1});
  auto runner =
      LocalRunner::Create(*MakeAddModel({.columns = -1, .second_output = true}), device.get());
  ASSERT_TRUE(runner.ok()) << runner.status();
  Tensor in = *Tensor::Allocate(DType::kI32, {2, 3});
  for (int i = 0; i < 6; ++i) in.mutable_values<int32_t>()[static_cast<size_t>(i)] = i;
  const std::vector<Tensor> inputs = {in};
  auto outputs = (*runner)->Run(inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(outputs->size(), 2u);
  EXPECT_EQ((*outputs)[0].shape(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ((*outputs)[0].values<int32_t>()[5], 7);
  EXPECT_EQ((*outputs)[1].values<int32_t>()[5], 6);
  EXPECT_TRUE((*runner)->RunAgain(inputs, *outputs).ok());
  const auto nanos = (*runner)->Profile(inputs, 3);
  ASSERT_TRUE(nanos.ok()) << nanos.status();
  EXPECT_EQ(nanos->size(), 3u);
  EXPECT_EQ((*runner)->dim_values()[0], 2);
  EXPECT_FALSE((*runner)->Run({}).ok());
  const std::vector<Tensor> wrong = {*Tensor::Allocate(DType::kF32, {2, 3})};
  EXPECT_TRUE(absl::IsInvalidArgument((*runner)->Run(wrong).status()));
}

TEST(LateOutputTest, HasTheSizeThatTheDataSays) {
  auto device = *CreateCpuDevice({.threads = 1});
  auto model = *Model::Load(*MakePrefixModel(), device.get());
  EXPECT_EQ(model->outputs()[0].dims, (std::vector<int64_t>{-1, 4}));
  auto step = *ModelStep::Create(model.get(), 4, nullptr);
  auto queue = *device->CreateQueue(nullptr);
  uint64_t signal = 0;
  const TensorShape shape = *TensorShape::From(std::vector<int64_t>{3, 4});
  const TensorShape* const shapes[] = {&shape};
  std::vector<int32_t> in(12, 5), out(12), target(12);
  const auto ref = [](std::vector<int32_t>& v, size_t count) {
    return BufferRef{reinterpret_cast<uint64_t>(v.data()), count * 4};
  };
  for (const int32_t found : {2, 0, 3, -7, 100}) {
    in[0] = found;
    const uint64_t want = static_cast<uint64_t>(std::clamp(found, 0, 3)) * 16;
    for (const size_t room : {12, 8, 0}) {
      ASSERT_TRUE(step->Begin(shapes).ok());
      ASSERT_TRUE(step->has_late_size(0));
      EXPECT_EQ(step->output_bytes(0), 48u);
      step->BindInput(0, ref(in, 12));
      step->BindOutput(0, ref(out, 12));
      step->CopyOutputAfter(0, ref(out, 12), ref(target, room));
      const absl::Status status = step->Run(*queue, signal);
      if (room * 4 < want) {
        EXPECT_EQ(status, OutputTargetTooSmall("OUT", room * 4, want));
        continue;
      }
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(*step->final_output_bytes(0), want);
      EXPECT_EQ(step->output_shape(0)[0], static_cast<int64_t>(want) / 16);
      EXPECT_EQ(step->bytes_copied(), static_cast<int64_t>(want));
      EXPECT_TRUE(
          std::equal(in.begin(), in.begin() + static_cast<int64_t>(want) / 4, target.begin()));
    }
  }
}

TEST(LateOutputTest, ALocalRunnerGivesWhatWasFound) {
  auto device = *CreateCpuDevice({.threads = 1});
  auto runner = *LocalRunner::Create(*MakePrefixModel(), device.get());
  for (const int32_t found : {2, 0, 3}) {
    std::vector<Tensor> inputs = {*Tensor::Allocate(DType::kI32, {3, 4})};
    inputs[0].mutable_values<int32_t>()[0] = found;
    const auto outputs = runner->Run(inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ((*outputs)[0].shape(), (std::vector<int64_t>{found, 4}));
    EXPECT_TRUE(runner->RunAgain(inputs, *outputs).ok());
    inputs[0].mutable_values<int32_t>()[0] = 1;
    EXPECT_TRUE(absl::IsInvalidArgument(runner->RunAgain(inputs, *outputs)));
    EXPECT_TRUE(runner->Profile(inputs, 2).ok());
  }
}

TEST(ModelTest, ProgramsThatDoNotFitWhatTheyCameWithAreRefused) {
  auto device = *CreateCpuDevice({.threads = 1});
  const auto load = [&](const auto& spoil) {
    ModelImage image = *MakeAddModel({});
    spoil(image);
    return Model::Load(std::move(image), device.get()).status();
  };
  EXPECT_TRUE(load([](ModelImage&) {}).ok());
  EXPECT_TRUE(absl::IsDataLoss(load([](ModelImage& i) { i.artifacts.clear(); })));
  EXPECT_TRUE(
      absl::IsDataLoss(load([](ModelImage& i) { i.weights = std::as_bytes(std::span("x")); })));
  EXPECT_FALSE(load([](ModelImage& i) { i.program.commands[0].entry = "absent"; }).ok());
  EXPECT_FALSE(load([](ModelImage& i) { i.program.commands[0].artifact = 9; }).ok());
  EXPECT_FALSE(load([](ModelImage& i) { i.program.outputs[0].dims[0].place = 1; }).ok());
  EXPECT_EQ(load([](ModelImage& i) { i.program.segments[0].device_kind = "npu"; }).code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace stampmill
