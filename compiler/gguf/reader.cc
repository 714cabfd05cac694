#include "compiler/gguf/reader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "graph/block_format.h"
#include "graph/dtype.h"
#include "graph/tensor.h"

namespace stampmill {
namespace {

constexpr uint64_t kAlignmentDefault = 32;
constexpr uint32_t kRankMax = 4;  // of the format
constexpr int64_t kSplitsMax = 4096;
// What one tensor and one metadata entry take at least.
constexpr size_t kTensorBytesMin = 8 + 4 + 8 + 4 + 8;
constexpr size_t kValueBytesMin = 8 + 4 + 1;

// Bytes of a value of a type without a length of its own; 0 for strings, arrays and unknown types.
size_t FixedBytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    default:
      return 0;
  }
}

// A count of things that take `bytes_min` each, which must all be there.
uint64_t ReadCount(ByteReader& in, size_t bytes_min, absl::string_view what) {
  const uint64_t count = in.U64();
  if (in.ok() && count > in.remaining() / bytes_min) {
    in.Fail(absl::StrCat(what, ": got ", count, ", limit ", in.remaining() / bytes_min,
                         " in what is left of the file"));
    return 0;
  }
  return count;
}

absl::string_view ReadString(ByteReader& in) { return AsText(in.Bytes(in.U64())); }

GgufType ReadType(ByteReader& in) {
  const uint32_t type = in.U32();
  if (in.ok() && type > static_cast<uint32_t>(GgufType::kF64)) {
    in.Fail(absl::StrCat("metadata type: got ", type, ", limit 12"));
  }
  return static_cast<GgufType>(type);
}

GgufValue ReadValue(ByteReader& in, std::span<const std::byte> file) {
  GgufValue value;
  value.type = ReadType(in);
  size_t begin = in.offset();
  if (value.type == GgufType::kArray) {
    value.element = ReadType(in);
    if (in.ok() && value.element == GgufType::kArray) in.Fail("an array of arrays");
    const size_t fixed = FixedBytes(value.element);
    value.count = ReadCount(in, fixed > 0 ? fixed : 8, "array elements");
    begin = in.offset();
    if (fixed > 0) {
      in.Skip(value.count * fixed);
    } else {
      for (uint64_t i = 0; i < value.count && in.ok(); ++i) ReadString(in);
    }
  } else if (value.type == GgufType::kString) {
    ReadString(in);
  } else {
    in.Skip(FixedBytes(value.type));
  }
  if (in.ok()) value.bytes = file.subspan(begin, in.offset() - begin);
  return value;
}

// Bytes of a tensor; nullopt for a type that is not known.
absl::StatusOr<std::optional<uint64_t>> SizeOf(const GgufTensor& tensor) {
  ASSIGN_OR_RETURN(const int64_t elements, TensorElementCount(tensor.shape));
  if (const std::optional<DType> dtype = DTypeFromGgmlType(tensor.type)) {
    ASSIGN_OR_RETURN(const int64_t bytes, TensorSizeBytes(*dtype, tensor.shape));
    return static_cast<uint64_t>(bytes);
  }
  const std::optional<BlockFormat> format = BlockFormatFromGgmlType(tensor.type);
  if (!format.has_value()) return std::nullopt;
  const BlockFacts& facts = FactsOf(*format);
  const int64_t block = facts.elements;
  if (tensor.shape.back() % block != 0) {
    return absl::InvalidArgumentError(absl::StrCat("innermost dim: got ", tensor.shape.back(),
                                                   ", must be a multiple of ", block, " for ",
                                                   Name(*format)));
  }
  return static_cast<uint64_t>(elements / block) * static_cast<uint64_t>(facts.bytes);
}

// Finds the bytes of a tensor at `offset` of `data`.
absl::Status Place(GgufTensor& tensor, std::span<const std::byte> data, uint64_t offset,
                   uint64_t alignment) {
  ASSIGN_OR_RETURN(const std::optional<uint64_t> size, SizeOf(tensor));
  if (!size.has_value()) return absl::OkStatus();
  if (offset % alignment != 0 || offset > data.size() || *size > data.size() - offset) {
    return absl::InvalidArgumentError(absl::StrCat("got ", *size, " bytes at offset ", offset,
                                                   ", limit ", data.size(), ", alignment ",
                                                   alignment));
  }
  tensor.bytes = data.subspan(offset, *size);
  return absl::OkStatus();
}

// A number as stored, widened.
std::optional<int64_t> IntegerAt(GgufType type, const std::byte* at) {
  const auto as = [at]<typename T>(T value) -> int64_t {
    memcpy(&value, at, sizeof(value));
    return static_cast<int64_t>(value);
  };
  switch (type) {
    case GgufType::kU8:
      return as(uint8_t{});
    case GgufType::kI8:
      return as(int8_t{});
    case GgufType::kU16:
      return as(uint16_t{});
    case GgufType::kI16:
      return as(int16_t{});
    case GgufType::kU32:
      return as(uint32_t{});
    case GgufType::kI32:
      return as(int32_t{});
    case GgufType::kI64:
      return as(int64_t{});
    case GgufType::kU64: {
      const int64_t value = as(uint64_t{});
      return value < 0 ? std::nullopt : std::optional(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> RealAt(GgufType type, const std::byte* at) {
  if (type == GgufType::kF32) {
    float value;
    memcpy(&value, at, sizeof(value));
    return value;
  }
  if (type == GgufType::kF64) {
    double value;
    memcpy(&value, at, sizeof(value));
    return value;
  }
  const std::optional<int64_t> integer = IntegerAt(type, at);
  return integer.has_value() ? std::optional(static_cast<double>(*integer)) : std::nullopt;
}

absl::Status TypeError(absl::string_view key, absl::string_view want, const GgufValue& got) {
  return absl::InvalidArgumentError(absl::StrCat("metadata ", key, ": got type ",
                                                 static_cast<uint32_t>(got.type), ", want ", want));
}

}  // namespace

std::optional<DType> DTypeFromGgmlType(uint32_t ggml_type) {
  switch (ggml_type) {
    case 0:
      return DType::kF32;
    case 1:
      return DType::kF16;
    case 24:
      return DType::kI8;
    case 25:
      return DType::kI16;
    case 26:
      return DType::kI32;
    case 27:
      return DType::kI64;
    case 28:
      return DType::kF64;
    case 30:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

absl::StatusOr<std::shared_ptr<const GgufFile>> GgufFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(Mapping mapping, Mapping::File(path));
  auto owner = std::make_shared<const Mapping>(std::move(mapping));
  std::shared_ptr<GgufFile> file(new GgufFile());
  file->owners_.push_back(owner);
  RETURN_IF_ERROR(file->Read(owner->bytes(), path, true));
  RETURN_IF_ERROR(file->ReadSplits(path));
  return file;
}

absl::StatusOr<std::shared_ptr<const GgufFile>> GgufFile::Parse(std::span<const std::byte> bytes,
                                                                std::shared_ptr<const void> owner) {
  std::shared_ptr<GgufFile> file(new GgufFile());
  file->owners_.push_back(std::move(owner));
  RETURN_IF_ERROR(file->Read(bytes, "GGUF", true));
  ASSIGN_OR_RETURN(const std::optional<int64_t> count, file->Int("split.count"));
  if (count.value_or(1) > 1) return absl::InvalidArgumentError("GGUF: a part of a split model");
  return file;
}

absl::Status GgufFile::Read(std::span<const std::byte> bytes, const std::string& name, bool first) {
  ByteReader in(bytes, name);
  if (in.U32() != 0x46554747) in.Fail("not a GGUF file");
  const uint32_t version = in.U32();
  if (in.ok() && version != 2 && version != 3) {
    in.Fail(absl::StrFormat("GGUF version: got %d (0x%x), want 2 or 3, little-endian", version,
                            version));
  }
  const uint64_t tensor_count = ReadCount(in, kTensorBytesMin, "tensor count");
  const uint64_t value_count = ReadCount(in, kValueBytesMin, "metadata count");
  uint64_t alignment = kAlignmentDefault;
  for (uint64_t i = 0; i < value_count && in.ok(); ++i) {
    const absl::string_view key = ReadString(in);
    const GgufValue value = ReadValue(in, bytes);
    if (!in.ok()) break;
    if (key == "general.alignment") {
      const std::optional<int64_t> given = IntegerAt(value.type, value.bytes.data());
      if (!given.has_value() || *given <= 0 || *given > (1 << 20) || (*given & (*given - 1)) != 0) {
        in.Fail("general.alignment: must be a power of 2 up to 2^20");
        break;
      }
      alignment = static_cast<uint64_t>(*given);
    }
    if (!first) continue;
    if (!values_.try_emplace(key, value).second) {
      in.Fail(absl::StrCat("metadata ", key, ": given twice"));
    }
    keys_.push_back(key);
  }
  const size_t first_tensor = tensors_.size();
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < tensor_count && in.ok(); ++i) offsets.push_back(ReadTensor(in));
  RETURN_IF_ERROR(in.status());
  const uint64_t begin = (in.offset() + alignment - 1) / alignment * alignment;
  const std::span<const std::byte> data = bytes.subspan(std::min<size_t>(begin, bytes.size()));
  for (size_t i = 0; i < offsets.size(); ++i) {
    GgufTensor& tensor = tensors_[first_tensor + i];
    const absl::Status placed = Place(tensor, data, offsets[i], alignment);
    if (!placed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": tensor ", tensor.name, ": ", placed.message()));
    }
  }
  return absl::OkStatus();
}

// Name, shape and type of a tensor; returns the offset of its bytes.
uint64_t GgufFile::ReadTensor(ByteReader& in) {
  GgufTensor tensor;
  tensor.name = ReadString(in);
  const uint32_t rank = in.U32();
  if (in.ok() && (rank == 0 || rank > kRankMax)) {
    in.Fail(absl::StrCat("tensor ", tensor.name, ": rank: got ", rank, ", limit ", kRankMax));
  }
  for (uint32_t d = 0; d < rank && in.ok(); ++d) {
    const uint64_t dim = in.U64();
    if (dim == 0 || dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      in.Fail(absl::StrCat("tensor ", tensor.name, ": dim ", d, ": got ", dim));
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(dim));
  }
  tensor.type = in.U32();
  const uint64_t offset = in.U64();
  if (in.ok() && !tensor_index_.try_emplace(tensor.name, tensors_.size()).second) {
    in.Fail(absl::StrCat("tensor ", tensor.name, ": given twice"));
  }
  tensors_.push_back(std::move(tensor));
  return offset;
}

absl::Status GgufFile::ReadSplits(const std::string& path) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> count, Int("split.count"));
  if (count.value_or(1) <= 1) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<int64_t> number, Int("split.no"));
  if (*count > kSplitsMax || number.value_or(0) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": part ", number.value_or(0) + 1, " of ", *count,
                     " of a split model: name the first, of at most ", kSplitsMax));
  }
  const std::string ending = absl::StrFormat("-00001-of-%05d.gguf", *count);
  absl::string_view stem = path;
  if (!absl::ConsumeSuffix(&stem, ending)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the first part of a split model must be named NAME", ending));
  }
  const size_t slash = stem.rfind('/');
  const size_t folder = slash == absl::string_view::npos ? 0 : slash + 1;
  for (int64_t i = 2; i <= *count; ++i) {
    const std::string part = absl::StrFormat("%s-%05d-of-%05d.gguf", stem, i, *count);
    ASSIGN_OR_RETURN(Mapping mapping, Mapping::File(part));
    auto owner = std::make_shared<const Mapping>(std::move(mapping));
    owners_.push_back(owner);
    RETURN_IF_ERROR(Read(owner->bytes(), part, false));
    split_files_.push_back(part.substr(folder));
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> total, Int("split.tensors.count"));
  if (total.has_value() && *total != static_cast<int64_t>(tensors_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": got ", tensors_.size(), " tensors in all parts, want ", *total));
  }
  return absl::OkStatus();
}

const GgufValue* GgufFile::Find(absl::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

const GgufTensor* GgufFile::FindTensor(absl::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

absl::StatusOr<std::optional<int64_t>> GgufFile::Int(absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> integer = IntegerAt(value->type, value->bytes.data());
  if (!integer.has_value()) return TypeError(key, "an integer", *value);
  return integer;
}

absl::StatusOr<std::optional<double>> GgufFile::Float(absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<double> real = RealAt(value->type, value->bytes.data());
  if (!real.has_value()) return TypeError(key, "a number", *value);
  return real;
}

absl::StatusOr<std::optional<bool>> GgufFile::Bool(absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kBool) return TypeError(key, "a bool", *value);
  return value->bytes[0] != std::byte{0};
}

absl::StatusOr<std::optional<absl::string_view>> GgufFile::String(absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString) return TypeError(key, "a string", *value);
  return AsText(value->bytes.subspan(sizeof(uint64_t)));
}

absl::StatusOr<const GgufValue*> GgufFile::FindArray(absl::string_view key,
                                                     absl::string_view elements) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return nullptr;
  if (value->type != GgufType::kArray) {
    return TypeError(key, absl::StrCat("an array of ", elements), *value);
  }
  return value;
}

absl::StatusOr<std::optional<std::vector<int64_t>>> GgufFile::Ints(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, FindArray(key, "integers"));
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> integers;
  const size_t size = FixedBytes(value->element);
  for (uint64_t i = 0; i < value->count; ++i) {
    // A bool is a number here: arrays of flags are written as either.
    const GgufType type = value->element == GgufType::kBool ? GgufType::kU8 : value->element;
    const std::optional<int64_t> integer = IntegerAt(type, value->bytes.data() + i * size);
    if (!integer.has_value()) return TypeError(key, "an array of integers", *value);
    integers.push_back(*integer);
  }
  return integers;
}

absl::StatusOr<std::optional<std::vector<float>>> GgufFile::Floats(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, FindArray(key, "numbers"));
  if (value == nullptr) return std::nullopt;
  std::vector<float> reals;
  const size_t size = FixedBytes(value->element);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<double> real = RealAt(value->element, value->bytes.data() + i * size);
    if (!real.has_value()) return TypeError(key, "an array of numbers", *value);
    reals.push_back(static_cast<float>(*real));
  }
  return reals;
}

absl::StatusOr<std::optional<std::vector<absl::string_view>>> GgufFile::Strings(
    absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, FindArray(key, "strings"));
  if (value == nullptr) return std::nullopt;
  if (value->element != GgufType::kString) return TypeError(key, "an array of strings", *value);
  std::vector<absl::string_view> strings;
  strings.reserve(value->count);
  ByteReader in(value->bytes, "metadata");
  for (uint64_t i = 0; i < value->count; ++i) strings.push_back(ReadString(in));
  RETURN_IF_ERROR(in.status());
  return strings;
}

}  // namespace stampmill
