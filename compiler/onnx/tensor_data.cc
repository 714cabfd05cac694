#include "compiler/onnx/tensor_data.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "compiler/onnx/wire_reader.h"

namespace stampmill {
namespace {

using Pieces = std::vector<std::span<const std::byte>>;

constexpr size_t kRankMax = 32;

// Which *_data field holds elements of a type, and how.
enum class Field { kFloat, kInt32, kInt64, kDouble, kUint64 };

Field FieldOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Field::kFloat;
    case DType::kF64:
      return Field::kDouble;
    case DType::kI64:
      return Field::kInt64;
    case DType::kU32:
    case DType::kU64:
      return Field::kUint64;
    default:  // f16 and bf16 as their bits
      return Field::kInt32;
  }
}

const Pieces& PiecesOf(const OnnxTensor& tensor, Field field) {
  switch (field) {
    case Field::kFloat:
      return tensor.float_data;
    case Field::kInt32:
      return tensor.int32_data;
    case Field::kInt64:
      return tensor.int64_data;
    case Field::kDouble:
      return tensor.double_data;
    case Field::kUint64:
      return tensor.uint64_data;
  }
  return tensor.float_data;
}

absl::Status Error(const OnnxTensor& tensor, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name, "': ", what));
}

// A bool is 0 or 1 everywhere behind the importer.
absl::StatusOr<Tensor> WithCleanBools(Tensor tensor) {
  if (tensor.dtype() != DType::kBool) return tensor;
  const std::span<const std::byte> bytes = tensor.bytes();
  const auto clean = [](std::byte b) { return b <= std::byte{1}; };
  if (std::all_of(bytes.begin(), bytes.end(), clean)) return tensor;
  ASSIGN_OR_RETURN(Tensor copy, Tensor::Allocate(DType::kBool, tensor.shape()));
  std::transform(bytes.begin(), bytes.end(), copy.mutable_bytes().begin(),
                 [](std::byte b) { return b == std::byte{0} ? b : std::byte{1}; });
  return copy;
}

absl::StatusOr<Tensor> ViewOf(const OnnxTensor& tensor, DType dtype,
                              std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  absl::StatusOr<Tensor> view = Tensor::View(dtype, tensor.dims, bytes, std::move(owner));
  if (!view.ok()) return Error(tensor, view.status().message());
  return WithCleanBools(*std::move(view));
}

absl::StatusOr<int64_t> ExternalNumber(const OnnxTensor& tensor, absl::string_view key,
                                       absl::string_view text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 0) {
    return Error(tensor, absl::StrCat("external data: ", key, " is '", text, "'"));
  }
  return value;
}

absl::StatusOr<Tensor> MakeExternal(const OnnxTensor& tensor, DType dtype, int64_t size,
                                    ExternalFiles& files) {
  absl::string_view location;
  int64_t offset = 0;
  int64_t length = size;
  for (const auto& [key, value] : tensor.external) {
    if (key == "location") location = value;
    if (key == "offset") {
      ASSIGN_OR_RETURN(offset, ExternalNumber(tensor, key, value));
    }
    if (key == "length") {
      ASSIGN_OR_RETURN(length, ExternalNumber(tensor, key, value));
    }
  }
  if (length != size) {
    return Error(tensor,
                 absl::StrCat("external data: length ", length, ", its shape needs ", size));
  }
  absl::StatusOr<std::shared_ptr<const Mapping>> file = files.Open(location);
  if (!file.ok()) {
    return absl::Status(file.status().code(),
                        absl::StrCat("tensor '", tensor.name, "': ", file.status().message()));
  }
  const std::span<const std::byte> bytes = (*file)->bytes();
  if (static_cast<uint64_t>(offset) > bytes.size() ||
      static_cast<uint64_t>(length) > bytes.size() - static_cast<uint64_t>(offset)) {
    return Error(tensor, absl::StrCat("external data: ", length, " bytes at ", offset, " of '",
                                      location, "', which has ", bytes.size()));
  }
  return ViewOf(tensor, dtype,
                bytes.subspan(static_cast<size_t>(offset), static_cast<size_t>(length)), *file);
}

// Elements of a varint field: as many as bytes that end a varint.
int64_t CountVarints(const Pieces& pieces) {
  int64_t count = 0;
  for (const std::span<const std::byte> piece : pieces) {
    count += std::count_if(piece.begin(), piece.end(),
                           [](std::byte b) { return (b & std::byte{0x80}) == std::byte{0}; });
  }
  return count;
}

absl::StatusOr<Tensor> MakeFromVarints(const OnnxTensor& tensor, DType dtype, int64_t count,
                                       const Pieces& pieces) {
  const int64_t actual = CountVarints(pieces);
  if (actual != count) {
    return Error(tensor, absl::StrCat("got ", actual, " elements, its shape has ", count));
  }
  ASSIGN_OR_RETURN(Tensor result, Tensor::Allocate(dtype, tensor.dims));
  std::byte* target = result.mutable_bytes().data();
  const size_t element_size = SizeBytes(dtype);
  for (const std::span<const std::byte> piece : pieces) {
    const bool whole = ForEachVarint(piece, [&](uint64_t value) {
      if (dtype == DType::kBool) value = value != 0;
      memcpy(target, &value, element_size);  // the low bytes: little-endian, wraps
      target += element_size;
      return true;
    });
    if (!whole) return Error(tensor, "damaged varint in its data");
  }
  return result;
}

absl::StatusOr<Tensor> MakeFromFixed(const OnnxTensor& tensor, DType dtype, int64_t size,
                                     const Pieces& pieces, std::shared_ptr<const void> owner) {
  if (pieces.size() == 1) return ViewOf(tensor, dtype, pieces[0], std::move(owner));
  uint64_t actual = 0;
  for (const std::span<const std::byte> piece : pieces) actual += piece.size();
  if (actual != static_cast<uint64_t>(size)) {
    return Error(tensor, absl::StrCat("got ", actual, " bytes of data, its shape needs ", size));
  }
  ASSIGN_OR_RETURN(Tensor result, Tensor::Allocate(dtype, tensor.dims));
  std::byte* target = result.mutable_bytes().data();
  for (const std::span<const std::byte> piece : pieces) {
    if (!piece.empty()) memcpy(target, piece.data(), piece.size());
    target += piece.size();
  }
  return result;
}

}  // namespace

std::string OnnxTypeName(int32_t data_type) {
  static constexpr const char* kNames[] = {
      "undefined",      "float",      "uint8",          "int8",       "uint16",    "int16",
      "int32",          "int64",      "string",         "bool",       "float16",   "double",
      "uint32",         "uint64",     "complex64",      "complex128", "bfloat16",  "float8e4m3fn",
      "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",      "int4",      "float4e2m1",
      "float8e8m0",     "uint2",      "int2",           "float6e2m3", "float6e3m2"};
  if (data_type >= 0 && static_cast<size_t>(data_type) < std::size(kNames)) {
    return kNames[data_type];
  }
  return absl::StrCat("type ", data_type);
}

absl::StatusOr<DType> SupportedDType(int32_t data_type) {
  if (const std::optional<DType> dtype = DTypeFromOnnx(data_type)) return *dtype;
  return absl::UnimplementedError(
      absl::StrCat("element type ", OnnxTypeName(data_type), " is not supported"));
}

absl::StatusOr<Tensor> MakeTensor(const OnnxTensor& tensor, std::shared_ptr<const void> owner,
                                  ExternalFiles& files) {
  const absl::StatusOr<DType> dtype = SupportedDType(tensor.data_type);
  if (!dtype.ok()) {
    return absl::UnimplementedError(
        absl::StrCat("tensor '", tensor.name, "': ", dtype.status().message()));
  }
  if (tensor.has_segment) {
    return absl::UnimplementedError(
        absl::StrCat("tensor '", tensor.name, "': segments are not supported"));
  }
  if (tensor.dims.size() > kRankMax) {
    return Error(tensor, absl::StrCat("rank ", tensor.dims.size(), ", limit ", kRankMax));
  }
  const absl::StatusOr<int64_t> size = TensorSizeBytes(*dtype, tensor.dims);
  if (!size.ok()) return Error(tensor, size.status().message());
  if (tensor.is_external) return MakeExternal(tensor, *dtype, *size, files);
  if (tensor.raw.has_value()) return ViewOf(tensor, *dtype, *tensor.raw, std::move(owner));
  const Field field = FieldOf(*dtype);
  const Pieces& pieces = PiecesOf(tensor, field);
  if (field == Field::kFloat || field == Field::kDouble) {
    return MakeFromFixed(tensor, *dtype, *size, pieces, std::move(owner));
  }
  return MakeFromVarints(tensor, *dtype, *size / static_cast<int64_t>(SizeBytes(*dtype)), pieces);
}

absl::StatusOr<std::shared_ptr<const Mapping>> ExternalFiles::Open(absl::string_view location) {
  const auto refuse = [&location](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("external data '", location, "': ", why));
  };
  if (folder_.empty()) return refuse("the model has no folder");
  if (location.empty() || location.find('\0') != absl::string_view::npos) {
    return refuse("not a file name");
  }
  if (location[0] == '/') return refuse("the path is absolute");
  for (const absl::string_view part : absl::StrSplit(location, '/')) {
    if (part == "..") return refuse("the path leaves the model's folder");
  }
  if (const auto known = files_.find(std::string(location)); known != files_.end()) {
    return known->second;
  }
  // Where the opened file lies, not where it seemed to lie before it was opened.
  const std::string path = absl::StrCat(folder_, "/", location);
  ASSIGN_OR_RETURN(const FileDescriptor fd, OpenFile(path, O_RDONLY | O_NONBLOCK));
  char folder[PATH_MAX];
  char opened[PATH_MAX];
  const ssize_t size = readlink(absl::StrCat("/proc/self/fd/", fd.get()).c_str(), opened, PATH_MAX);
  if (size <= 0 || size >= PATH_MAX || realpath(folder_.c_str(), folder) == nullptr) {
    return refuse("cannot tell where it lies");
  }
  std::string prefix = folder;
  if (prefix.back() != '/') prefix += '/';
  if (absl::string_view(opened, static_cast<size_t>(size)).substr(0, prefix.size()) != prefix) {
    return refuse("a symbolic link leaves the model's folder");
  }
  ASSIGN_OR_RETURN(const uint64_t file_size, FileSize(fd));
  ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(fd, 0, file_size, Mapping::Access::kRead));
  auto shared = std::make_shared<const Mapping>(std::move(mapping));
  files_.emplace(std::string(location), shared);
  return shared;
}

std::vector<std::string> ExternalFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) names.push_back(name);
  return names;
}

}  // namespace stampmill
