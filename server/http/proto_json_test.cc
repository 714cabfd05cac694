#include "server/http/proto_json.h"

#include "gtest/gtest.h"
#include "proto/grpc_service.pb.h"

namespace stampmill {
namespace {

TEST(ProtoJsonTest, WritesLargeIntegersAsNumbersAndEnumsByName) {
  inference::ModelStatistics statistics;
  statistics.set_name("m\"x");
  statistics.set_inference_count(uint64_t{1} << 63);
  EXPECT_EQ(ProtoToJson(statistics, {.print_defaults = false}),
            R"({"name":"m\"x","inference_count":9223372036854775808})");
  inference::ModelInput input;
  input.set_data_type(inference::TYPE_FP32);
  input.add_dims(-1);
  EXPECT_EQ(ProtoToJson(input, {.print_defaults = false}),
            R"({"data_type":"TYPE_FP32","dims":[-1]})");
}

TEST(ProtoJsonTest, PrintsDefaultsWhenAsked) {
  inference::RepositoryIndexResponse::ModelIndex index;
  index.set_name("a");
  EXPECT_EQ(ProtoToJson(index, {.print_defaults = true}),
            R"({"name":"a","version":"","state":"","reason":""})");
  EXPECT_EQ(ProtoToJson(index, {.print_defaults = false}), R"({"name":"a"})");
  inference::ModelStatisticsResponse empty;
  EXPECT_EQ(ProtoToJson(empty, {.print_defaults = true}), R"({"model_stats":[]})");
}

TEST(ProtoJsonTest, WritesMapsInOrderOfKey) {
  inference::SystemSharedMemoryStatusResponse response;
  (*response.mutable_regions())["b"].set_key("/b");
  (*response.mutable_regions())["a"].set_key("/a");
  EXPECT_EQ(ProtoToJson(response, {.print_defaults = false}),
            R"({"regions":{"a":{"key":"/a"},"b":{"key":"/b"}}})");
}

}  // namespace
}  // namespace stampmill
