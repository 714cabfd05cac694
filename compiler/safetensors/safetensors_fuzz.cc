// A safetensors file from anywhere: refused as invalid, or its tensors are views inside of it whose
// sizes are those of their shapes.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "compiler/safetensors/reader.h"
#include "graph/tensor.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;  // NOLINT
  // A copy of exactly this size: the sanitizer sees a read past it.
  auto copy = std::make_shared<std::vector<std::byte>>(size);
  for (size_t i = 0; i < size; ++i) (*copy)[i] = static_cast<std::byte>(data[i]);
  const std::span<const std::byte> bytes = *copy;
  const absl::StatusOr<std::shared_ptr<const SafetensorsFile>> file =
      SafetensorsFile::Parse(bytes, copy, "fuzz");
  if (!file.ok()) {
    CHECK(absl::IsInvalidArgument(file.status())) << file.status();
    return 0;
  }
  for (const SafetensorsTensor& tensor : (*file)->tensors()) {
    CHECK(tensor.bytes.data() >= bytes.data());
    CHECK(tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size());
    if (!tensor.dtype.has_value()) continue;
    CHECK_OK(Tensor::View(*tensor.dtype, tensor.shape, tensor.bytes, copy));
  }
  return 0;
}
