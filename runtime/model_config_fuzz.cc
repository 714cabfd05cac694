// Any text is refused or completes for a model that batches and for one that does not; what is
// completed keeps the rules that the scheduler and the requests' checks build on. The first byte
// chooses the form: '{' is JSON.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "runtime/limits.h"
#include "runtime/model_config.h"

namespace stampmill {
namespace {

// x f32 [N, 4], y i64 [N, S, 2] -> z f32 [N]. Only what Complete reads of a program.
Program FuzzProgram(bool batchable) {
  Program program;
  program.symbols = {"N", "S"};
  program.inputs = {
      {.name = "x", .dtype = DType::kF32, .dims = {{.place = 0}, {.fixed = 4}}},
      {.name = "y", .dtype = DType::kI64, .dims = {{.place = 0}, {.place = 1}, {.fixed = 2}}}};
  program.outputs = {{.name = "z", .dtype = DType::kF32, .dims = {{.place = 0}}}};
  if (batchable) program.batch_symbol = "N";
  return program;
}

void CheckCompleted(const ModelConfig& config) {
  const BatchingPolicy& policy = config.batching();
  CHECK_GE(policy.max_batch_size, 1);
  CHECK_EQ(policy.max_batch_size, std::max<int64_t>(1, config.max_batch_size()));
  CHECK_GE(policy.max_queue_delay_nanos, 0);
  CHECK(!policy.levels.empty() && policy.levels.size() <= kPriorityLevelsMax);
  CHECK(policy.default_level >= 0 &&
        static_cast<size_t>(policy.default_level) < policy.levels.size());
  for (const int64_t size : policy.preferred_sizes) {
    CHECK(size >= 1 && size <= policy.max_batch_size);
  }
  CHECK(std::is_sorted(policy.preferred_sizes.begin(), policy.preferred_sizes.end()));
  CHECK_EQ(config.proto().input_size(), 2);
  CHECK_EQ(config.proto().output_size(), 1);
}

}  // namespace
}  // namespace stampmill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool batchable : {false, true}) {
    absl::StatusOr<ModelConfig> config = size > 0 && text.front() == '{'
                                             ? ModelConfig::FromJson(text, "config")
                                             : ModelConfig::FromText(text, "config.pbtxt");
    if (config.ok() && config->Complete("m", FuzzProgram(batchable)).ok()) CheckCompleted(*config);
  }
  return 0;
}
