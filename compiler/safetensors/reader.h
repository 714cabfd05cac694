// SafetensorsFile: tensors of a file of the safetensors format, views into the mapped file.
//
// The format: u64 size of a header, little-endian; the header, a JSON object {"name": {"dtype":
// "F32", "shape": [2, 3], "data_offsets": [begin, end]}}, "__metadata__" aside; then the bytes,
// which the offsets count from their begin, without gaps or overlaps.
//
// A file is not trusted. INVALID_ARGUMENT says what is wrong and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/dtype.h"

namespace stampmill {

struct SafetensorsTensor {
  std::string name;
  std::optional<DType> dtype;  // nullopt: a type that Stampmill does not know
  std::string dtype_text;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// Immutable, thread-safe. Views stay good as long as the file lives.
class SafetensorsFile {
 public:
  static absl::StatusOr<std::shared_ptr<const SafetensorsFile>> Open(const std::string& path);
  // In memory, kept alive by `owner`; `name` is for messages.
  static absl::StatusOr<std::shared_ptr<const SafetensorsFile>> Parse(
      std::span<const std::byte> bytes, std::shared_ptr<const void> owner, absl::string_view name);

  std::span<const SafetensorsTensor> tensors() const { return tensors_; }

 private:
  SafetensorsFile() = default;

  std::shared_ptr<const void> owner_;
  std::vector<SafetensorsTensor> tensors_;
};

}  // namespace stampmill
