// A config.json from anywhere: refused with a reason, or facts of a known architecture, numbers
// that are within bounds, and weights that are as large as their shapes say.
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "compiler/safetensors/hugging_face.h"
#include "graph/tensor.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;  // NOLINT
  const absl::StatusOr<HuggingFaceConfig> config =
      ParseHuggingFaceConfig({reinterpret_cast<const char*>(data), size});
  if (!config.ok()) {
    CHECK(absl::IsInvalidArgument(config.status()) || absl::IsUnimplemented(config.status()))
        << config.status();
    return 0;
  }
  CHECK(!config->source.architecture.empty());
  CHECK_GE(config->context_tokens, 0);
  for (const int32_t token : config->end_tokens) CHECK_GE(token, 0);
  for (const auto& [name, weight] : config->source.weights) {
    CHECK_OK(Tensor::View(std::get<DType>(weight.type), weight.shape, weight.bytes, weight.owner));
  }
  return 0;
}
