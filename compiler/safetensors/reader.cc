#include "compiler/safetensors/reader.h"

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "graph/tensor.h"

namespace stampmill {

namespace json = boost::json;

namespace {

// The largest header of a known model has a few MB.
constexpr uint64_t kHeaderBytesMax = uint64_t{100} << 20;

std::optional<DType> DTypeOf(absl::string_view text) {
  static constexpr std::pair<absl::string_view, DType> kTypes[] = {
      {"BOOL", DType::kBool}, {"I8", DType::kI8},   {"I16", DType::kI16}, {"I32", DType::kI32},
      {"I64", DType::kI64},   {"U8", DType::kU8},   {"U16", DType::kU16}, {"U32", DType::kU32},
      {"U64", DType::kU64},   {"F16", DType::kF16}, {"F32", DType::kF32}, {"F64", DType::kF64},
      {"BF16", DType::kBF16},
  };
  for (const auto& [name, dtype] : kTypes) {
    if (name == text) return dtype;
  }
  return std::nullopt;
}

// Whole numbers, not negative.
absl::StatusOr<std::vector<int64_t>> Numbers(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(key, ": no list"));
  }
  std::vector<int64_t> numbers;
  for (const json::value& element : value->get_array()) {
    if (!element.is_int64() || element.get_int64() < 0) {
      return absl::InvalidArgumentError(absl::StrCat(key, ": not a whole number"));
    }
    numbers.push_back(element.get_int64());
  }
  return numbers;
}

absl::StatusOr<SafetensorsTensor> ReadTensor(absl::string_view name, const json::value& value,
                                             std::span<const std::byte> bytes) {
  if (!value.is_object()) return absl::InvalidArgumentError("no object");
  const json::object& object = value.get_object();
  const json::value* dtype = object.if_contains("dtype");
  if (dtype == nullptr || !dtype->is_string()) {
    return absl::InvalidArgumentError("dtype: no text");
  }
  SafetensorsTensor tensor{.name = std::string(name)};
  tensor.dtype_text = std::string(dtype->get_string().data(), dtype->get_string().size());
  tensor.dtype = DTypeOf(tensor.dtype_text);
  ASSIGN_OR_RETURN(tensor.shape, Numbers(object, "shape"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, Numbers(object, "data_offsets"));
  const auto size = static_cast<int64_t>(bytes.size());
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > size) {
    return absl::InvalidArgumentError(absl::StrCat("data_offsets: limit ", size));
  }
  tensor.bytes =
      bytes.subspan(static_cast<size_t>(offsets[0]), static_cast<size_t>(offsets[1] - offsets[0]));
  if (!tensor.dtype.has_value()) return tensor;
  ASSIGN_OR_RETURN(const int64_t want, TensorSizeBytes(*tensor.dtype, tensor.shape));
  if (want != offsets[1] - offsets[0]) {
    return absl::InvalidArgumentError(absl::StrCat("data_offsets: got ", offsets[1] - offsets[0],
                                                   " bytes, the shape has ", want));
  }
  return tensor;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Open(
    const std::string& path) {
  ASSIGN_OR_RETURN(Mapping mapping, Mapping::File(path));
  auto owner = std::make_shared<const Mapping>(std::move(mapping));
  return Parse(owner->bytes(), owner, path);
}

absl::StatusOr<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Parse(
    std::span<const std::byte> bytes, std::shared_ptr<const void> owner, absl::string_view name) {
  ByteReader in(bytes, name);
  const uint64_t header_bytes = in.U64();
  if (in.ok() && header_bytes > std::min<uint64_t>(in.remaining(), kHeaderBytesMax)) {
    in.Fail(absl::StrCat("header: got ", header_bytes, " bytes, limit ",
                         std::min<uint64_t>(in.remaining(), kHeaderBytesMax)));
  }
  const absl::string_view header = AsText(in.Bytes(header_bytes));
  RETURN_IF_ERROR(in.status());
  boost::system::error_code error;
  const json::value root = json::parse({header.data(), header.size()}, error);
  if (error || !root.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": header: ", error ? error.message() : "no object"));
  }
  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile());
  file->owner_ = std::move(owner);
  const std::span<const std::byte> data = bytes.subspan(in.offset());
  for (const auto& [key, value] : root.get_object()) {
    const absl::string_view tensor_name(key.data(), key.size());
    if (tensor_name == "__metadata__") continue;
    absl::StatusOr<SafetensorsTensor> tensor = ReadTensor(tensor_name, value, data);
    if (!tensor.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": tensor ", tensor_name, ": ", tensor.status().message()));
    }
    file->tensors_.push_back(*std::move(tensor));
  }
  return file;
}

}  // namespace stampmill
