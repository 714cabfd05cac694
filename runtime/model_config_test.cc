#include "runtime/model_config.h"

#include <string>

#include "absl/status/status.h"
#include "compiler/program/program.h"
#include "compiler/program/test_program.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

// x: f32 [N, 4] -> y: f32 [N, 4]; batchable.
Program BatchableProgram() {
  Program program = MakeTestProgram();
  program.outputs.resize(1);
  return program;
}

Program FixedProgram() {
  Program program = BatchableProgram();
  program.batch_symbol.clear();
  program.batch_reason = "Add b mixes rows";
  return program;
}

absl::StatusOr<ModelConfig> Completed(const std::string& text,
                                      const Program& program = BatchableProgram()) {
  absl::StatusOr<ModelConfig> config = ModelConfig::FromText(text, "config.pbtxt");
  if (!config.ok()) return config;
  if (absl::Status status = config->Complete("m", program); !status.ok()) return status;
  return config;
}

TEST(ModelConfigTest, NothingGivenIsCompletedFromABatchableModel) {
  const auto config = Completed("");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->max_batch_size(), 32);
  EXPECT_TRUE(config->batching().dynamic);
  EXPECT_EQ(config->batching().max_queue_delay_nanos, 0);
  const inference::ModelConfig& proto = config->proto();
  EXPECT_EQ(proto.name(), "m");
  EXPECT_TRUE(proto.has_dynamic_batching());
  ASSERT_EQ(proto.input_size(), 1);
  EXPECT_EQ(proto.input(0).name(), "x");
  EXPECT_EQ(proto.input(0).data_type(), inference::TYPE_FP32);
  ASSERT_EQ(proto.input(0).dims_size(), 1);
  EXPECT_EQ(proto.input(0).dims(0), 4);
  EXPECT_EQ(proto.version_policy().latest().num_versions(), 1u);
}

TEST(ModelConfigTest, AModelThatDoesNotBatchGetsAllItsDims) {
  const auto config = Completed("", FixedProgram());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->max_batch_size(), 0);
  EXPECT_FALSE(config->batching().dynamic);
  ASSERT_EQ(config->proto().input(0).dims_size(), 2);
  EXPECT_EQ(config->proto().input(0).dims(0), -1);
}

TEST(ModelConfigTest, AWrittenZeroIsAChoice) {
  EXPECT_EQ(Completed("max_batch_size: 0")->max_batch_size(), 0);
  const auto json = ModelConfig::FromJson(R"({"max_batch_size": 0})", "config");
  ASSERT_TRUE(json.ok()) << json.status();
  ModelConfig config = *json;
  ASSERT_TRUE(config.Complete("m", BatchableProgram()).ok());
  EXPECT_EQ(config.max_batch_size(), 0);
}

TEST(ModelConfigTest, DimsThatNameTheBatchMeanNoBatching) {
  const auto config = Completed("input { name: 'x' dims: [-1, 4] }");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->max_batch_size(), 0);
}

TEST(ModelConfigTest, BatchingOfAModelThatMixesRowsIsRefusedWithTheReason) {
  const absl::Status status = Completed("max_batch_size: 8", FixedProgram()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_NE(status.message().find("Add b mixes rows"), absl::string_view::npos) << status;
}

TEST(ModelConfigTest, ReadsDynamicBatchingWithPrioritiesAndQueuePolicies) {
  const auto config = Completed(R"(
      max_batch_size: 8
      dynamic_batching {
        preferred_batch_size: [8, 4]
        max_queue_delay_microseconds: 100
        preserve_ordering: true
        priority_levels: 3
        default_priority_level: 2
        default_queue_policy { default_timeout_microseconds: 5 allow_timeout_override: true }
        priority_queue_policy { key: 3 value { timeout_action: DELAY max_queue_size: 7 } }
      })");
  ASSERT_TRUE(config.ok()) << config.status();
  const BatchingPolicy& policy = config->batching();
  EXPECT_EQ(policy.max_batch_size, 8);
  EXPECT_EQ(policy.preferred_sizes, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(policy.max_queue_delay_nanos, 100000);
  EXPECT_TRUE(policy.preserve_ordering);
  EXPECT_EQ(policy.default_level, 1);
  ASSERT_EQ(policy.levels.size(), 3u);
  EXPECT_EQ(policy.levels[0].default_timeout_us, 5u);
  EXPECT_TRUE(policy.levels[1].allow_timeout_override);
  EXPECT_TRUE(policy.levels[2].delay_on_timeout);
  EXPECT_EQ(policy.levels[2].max_queue_size, 7u);
}

TEST(ModelConfigTest, WhatDoesNotFitTheModelIsNamed) {
  const auto message = [](const std::string& text) {
    const absl::Status status = Completed(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_NE(message("input { name: 'w' }").find("unexpected input 'w'"), std::string::npos);
  EXPECT_NE(message("input { name: 'x' } input { name: 'x' }").find("more than once"),
            std::string::npos);
  EXPECT_NE(message("max_batch_size: 1 input { name: 'x' data_type: TYPE_INT8 }")
                .find("got TYPE_INT8, the model has TYPE_FP32"),
            std::string::npos);
  EXPECT_NE(message("max_batch_size: 1 input { name: 'x' dims: 5 }").find("got [5]"),
            std::string::npos);
  EXPECT_NE(message("max_batch_size: 1 input { name: 'x' dims: -2 }").find("limit -1"),
            std::string::npos);
  EXPECT_NE(message("name: 'other'").find("got 'other'"), std::string::npos);
  EXPECT_NE(message("max_batch_size: -1").find("limit 0"), std::string::npos);
  EXPECT_NE(message("max_batch_size: 4 dynamic_batching { preferred_batch_size: 5 }")
                .find("limit 1 to 4"),
            std::string::npos);
  EXPECT_NE(message("dynamic_batching { priority_levels: 2 }").find("default_priority_level"),
            std::string::npos);
  EXPECT_NE(message("dynamic_batching { priority_levels: 100000 }").find("limit 256"),
            std::string::npos);
}

TEST(ModelConfigTest, AReshapeMustKeepTheElements) {
  EXPECT_TRUE(
      Completed("max_batch_size: 2 input { name: 'x' dims: [2, 2] reshape { shape: 4 } }").ok());
  EXPECT_FALSE(
      Completed("max_batch_size: 2 input { name: 'x' dims: [2, 3] reshape { shape: 4 } }").ok());
  EXPECT_FALSE(
      Completed("max_batch_size: 2 input { name: 'x' dims: [-1] reshape { shape: 4 } }").ok());
}

TEST(ModelConfigTest, WhatIsNotServedIsUnimplementedAndNamed) {
  for (const auto& [text, field] : std::vector<std::pair<std::string, std::string>>{
           {"ensemble_scheduling {}", "ensemble_scheduling"},
           {"sequence_batching {}", "sequence_batching"},
           {"model_transaction_policy { decoupled: true }", "decoupled"},
           {"response_cache { enable: true }", "response_cache"},
           {"platform: 'tensorrt_plan'", "platform"},
           {"backend: 'python'", "backend"},
           {"instance_group { kind: KIND_GPU }", "instance_group"},
           {"input { name: 'x' optional: true }", "optional"},
           {"batch_input {}", "batch_input"}}) {
    const absl::Status status = Completed(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << text;
    EXPECT_NE(status.message().find(field), absl::string_view::npos) << status;
  }
  EXPECT_TRUE(
      Completed("platform: 'onnxruntime_onnx' instance_group { count: 2 kind: KIND_CPU }").ok());
}

TEST(ModelConfigTest, SyntaxErrorsHaveAPlace) {
  const absl::Status status =
      ModelConfig::FromText("name: 'm'\n  maxx: 3", "a/config.pbtxt").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(status.message().find("a/config.pbtxt: line 2, column"), absl::string_view::npos)
      << status;
  EXPECT_FALSE(ModelConfig::FromJson("{\"nam\": 1}", "config").ok());
  EXPECT_FALSE(ModelConfig::FromJson("{", "config").ok());
  EXPECT_FALSE(ModelConfig::FromJson("[]", "config").ok());
}

TEST(ModelConfigTest, DeepNestingIsRefusedAndDoesNotOverflowTheStack) {
  std::string text, json;
  for (int i = 0; i < 100000; ++i) {
    text += "dynamic_batching {";
    json += "{\"dynamic_batching\":";
  }
  EXPECT_FALSE(ModelConfig::FromText(text, "config.pbtxt").ok());
  EXPECT_FALSE(ModelConfig::FromJson(json, "config").ok());
  EXPECT_FALSE(ModelConfig::FromJson(std::string(100000, '['), "config").ok());
}

TEST(ModelConfigTest, SaysWhichFieldsHaveNoEffect) {
  const auto ignored = [](const std::string& text) {
    const auto config = ModelConfig::FromText(text, "config");
    EXPECT_TRUE(config.ok()) << config.status();
    return config->IgnoredFields();
  };
  EXPECT_TRUE(ignored("max_batch_size: 4 instance_group { kind: KIND_CPU count: 1 }").empty());
  EXPECT_EQ(ignored(R"(
                instance_group { count: 4 }
                optimization { graph { level: 1 } }
                parameters { key: 'intra_op_thread_count' value { string_value: '2' } }
                output { name: 'OUT' dims: [4] label_filename: 'labels.txt' })"),
            std::vector<std::string>(
                {"instance_group.count", "optimization", "parameters", "output.label_filename"}));
}

}  // namespace
}  // namespace stampmill
