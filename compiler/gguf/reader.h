// GgufFile: a model file of the GGUF format, versions 2 and 3, little-endian, as it lies in memory:
// metadata and tensors are views into the mapped file (or files: a model may be split into several,
// NAME-00001-of-00003.gguf and so on, the first of which names the metadata).
//
// The format (gguf.md of the ggml project), all numbers little-endian:
//   "GGUF", u32 version, u64 tensor count, u64 metadata count,
//   metadata: string key, u32 type, value; a string is u64 length and bytes; an array is u32
//             element type, u64 count and so many values,
//   tensors:  string name, u32 rank, u64 dims (innermost first), u32 type, u64 offset,
//   padding to `general.alignment` (32), then the tensors' bytes at their offsets from there.
//
// A file is not trusted: counts, lengths, offsets and products are checked before anything is read
// or reserved. INVALID_ARGUMENT says what is wrong and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "graph/dtype.h"

namespace stampmill {

// Numbers of the format.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// A metadata value: bytes of the file. Of an array `element` is the type and `count` the number of
// its elements; arrays of arrays are not known to any model and are refused.
struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;
  uint64_t count = 0;
  std::span<const std::byte> bytes;  // of strings: with their lengths
};

struct GgufTensor {
  absl::string_view name;
  std::vector<int64_t> shape;        // outermost first; at least one dim
  uint32_t type = 0;                 // ggml_type, see graph/block_format.h
  std::span<const std::byte> bytes;  // empty for a type that Stampmill does not know
};

// Of ggml's types those that are plain numbers (kF32, kF16, ...).
std::optional<DType> DTypeFromGgmlType(uint32_t ggml_type);

// Immutable, thread-safe. Views stay good as long as the file lives.
class GgufFile {
 public:
  // All splits of the model, of which `path` names the first or only one.
  static absl::StatusOr<std::shared_ptr<const GgufFile>> Open(const std::string& path);
  // One file in memory, kept alive by `owner`. A split is INVALID_ARGUMENT: there is no folder.
  static absl::StatusOr<std::shared_ptr<const GgufFile>> Parse(std::span<const std::byte> bytes,
                                                               std::shared_ptr<const void> owner);

  // Typed access: nullopt when the key is absent; INVALID_ARGUMENT naming the key when its value
  // has another type or is out of range. Any integer type is an Int, any real or integer a Float.
  absl::StatusOr<std::optional<int64_t>> Int(absl::string_view key) const;
  absl::StatusOr<std::optional<double>> Float(absl::string_view key) const;
  absl::StatusOr<std::optional<bool>> Bool(absl::string_view key) const;
  absl::StatusOr<std::optional<absl::string_view>> String(absl::string_view key) const;
  // Arrays; absent: nullopt.
  absl::StatusOr<std::optional<std::vector<int64_t>>> Ints(absl::string_view key) const;
  absl::StatusOr<std::optional<std::vector<float>>> Floats(absl::string_view key) const;
  absl::StatusOr<std::optional<std::vector<absl::string_view>>> Strings(
      absl::string_view key) const;
  const GgufValue* Find(absl::string_view key) const;
  // Keys in the order of the file.
  std::span<const absl::string_view> keys() const { return keys_; }

  std::span<const GgufTensor> tensors() const { return tensors_; }
  const GgufTensor* FindTensor(absl::string_view name) const;
  // File names of the splits behind the first, in the folder of the first.
  const std::vector<std::string>& split_files() const { return split_files_; }

 private:
  GgufFile() = default;
  absl::Status Read(std::span<const std::byte> bytes, const std::string& name, bool first);
  uint64_t ReadTensor(ByteReader& in);
  absl::Status ReadSplits(const std::string& path);
  absl::StatusOr<const GgufValue*> FindArray(absl::string_view key,
                                             absl::string_view elements) const;

  std::vector<std::shared_ptr<const void>> owners_;
  std::vector<absl::string_view> keys_;
  absl::flat_hash_map<absl::string_view, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  absl::flat_hash_map<absl::string_view, size_t> tensor_index_;
  std::vector<std::string> split_files_;
};

}  // namespace stampmill
