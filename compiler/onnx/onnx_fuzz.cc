// A model file from anywhere: refused with a reason that is the model's, or a graph that verifies.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"
#include "compiler/onnx/importer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;
  // A copy of exactly this size: the sanitizer sees a read past it.
  auto copy = std::make_shared<std::vector<std::byte>>(size);
  for (size_t i = 0; i < size; ++i) (*copy)[i] = static_cast<std::byte>(data[i]);
  const std::span<const std::byte> bytes = *copy;
  absl::StatusOr<ImportedModel> model = ImportOnnxBytes(bytes, std::move(copy));
  if (!model.ok()) {
    CHECK(absl::IsInvalidArgument(model.status()) || absl::IsUnimplemented(model.status()) ||
          absl::IsResourceExhausted(model.status()))
        << model.status();
    return 0;
  }
  CHECK_OK(model->graph.Verify());
  CHECK_OK(model->graph.SortTopologically());
  model->graph.RemoveDeadNodes();
  CHECK_OK(model->graph.Verify());
  model->graph.ToString();
  return 0;
}
