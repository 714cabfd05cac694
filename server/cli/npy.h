// NumPy's .npy files, versions 1 to 3: what `run` takes and gives. C-contiguous or Fortran order is
// read (the latter is rearranged), little-endian types only; BF16 has no NumPy type and travels as
// u2 (reading it into a bf16 input is the caller's request).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/tensor.h"

namespace stampmill {

// Parses the contents of a file into a tensor with bytes of its own. INVALID_ARGUMENT says what is
// wrong; objects, strings, complex and big-endian numbers are refused.
absl::StatusOr<Tensor> ParseNpy(std::span<const std::byte> bytes);
std::string SerializeNpy(const Tensor& tensor);

// The same with files; errors name the path.
absl::StatusOr<Tensor> ReadNpy(absl::string_view path);
absl::Status WriteNpy(absl::string_view path, const Tensor& tensor);

}  // namespace stampmill
