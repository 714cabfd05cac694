// ByteReader and ByteWriter: the byte formats of files and wires, little-endian, bounds-checked.
//
// A reader keeps the first error: after it, every read gives zero or an empty span, so a parser
// reads a whole record and asks once, before it acts on what it read:
//
//   ByteReader in(bytes, "program header");
//   const uint32_t version = in.U32();
//   const absl::string_view name = in.String();
//   RETURN_IF_ERROR(in.status());
//
// Neither class aligns anything. Both belong to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stampmill {

inline std::span<const std::byte> AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline absl::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Length of the valid UTF-8 sequence that `text` begins with, 0 when there is none (RFC 3629).
size_t Utf8Length(absl::string_view text);
bool IsUtf8(absl::string_view text);

class ByteReader {
 public:
  // Borrows `bytes`, and `name` (what is read, for messages), for its own life. Spans and strings
  // that it returns are views into `bytes`.
  explicit ByteReader(std::span<const std::byte> bytes, absl::string_view name = "bytes")
      : bytes_(bytes), name_(name) {}

  uint8_t U8() { return Fixed<uint8_t>("u8"); }
  uint16_t U16() { return Fixed<uint16_t>("u16"); }
  uint32_t U32() { return Fixed<uint32_t>("u32"); }
  uint64_t U64() { return Fixed<uint64_t>("u64"); }
  int32_t I32() { return Fixed<int32_t>("i32"); }
  int64_t I64() { return Fixed<int64_t>("i64"); }
  float F32() { return Fixed<float>("f32"); }
  double F64() { return Fixed<double>("f64"); }

  // LEB128, at most 10 bytes; more than 64 bits is an error. SignedVarint is zigzag-coded.
  uint64_t Varint();
  int64_t SignedVarint();

  // The next `size` bytes.
  std::span<const std::byte> Bytes(uint64_t size);

  // A u32 length and so many bytes.
  std::span<const std::byte> SizedBytes();
  absl::string_view String() { return AsText(SizedBytes()); }

  // A u32 count of elements that take at least `element_bytes_min` bytes each (REQUIRES: > 0): an
  // error if they cannot all be there, so that the count may be trusted for a reservation.
  uint32_t Count(size_t element_bytes_min);

  void Skip(uint64_t size) { Bytes(size); }
  // Skips to the next offset that is a multiple of `alignment` (REQUIRES: > 0).
  void AlignTo(size_t alignment);
  // An error if anything is left.
  void ExpectEnd();
  // Records an error at this place, unless there is one already. The format's own rules use it.
  void Fail(absl::string_view what);

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }
  bool ok() const { return status_.ok(); }
  // INVALID_ARGUMENT `name: offset N: what` after an error.
  const absl::Status& status() const { return status_; }

 private:
  template <typename T>
  T Fixed(const char* what) {
    T value{};
    if (!Has(sizeof(T), what)) return value;
    memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  bool Has(uint64_t size, absl::string_view what);

  std::span<const std::byte> bytes_;
  absl::string_view name_;
  size_t offset_ = 0;
  absl::Status status_;
};

// Appends to a string that it borrows; what ByteReader reads.
class ByteWriter {
 public:
  explicit ByteWriter(std::string* out) : out_(*out) {}

  void U8(uint8_t value) { Fixed(value); }
  void U16(uint16_t value) { Fixed(value); }
  void U32(uint32_t value) { Fixed(value); }
  void U64(uint64_t value) { Fixed(value); }
  void I32(int32_t value) { Fixed(value); }
  void I64(int64_t value) { Fixed(value); }
  void F32(float value) { Fixed(value); }
  void F64(double value) { Fixed(value); }
  void Varint(uint64_t value);
  void SignedVarint(int64_t value);
  void Bytes(std::span<const std::byte> bytes) { out_.append(AsText(bytes).data(), bytes.size()); }
  // REQUIRES: bytes.size() < 2^32.
  void SizedBytes(std::span<const std::byte> bytes);
  void String(absl::string_view text) { SizedBytes(AsBytes(text)); }
  // Zeros up to the next multiple of `alignment`, counted from the start of the string.
  void AlignTo(size_t alignment);

  size_t offset() const { return out_.size(); }
  // Overwrites what an earlier call wrote at `offset`: sizes and offsets known only later.
  // REQUIRES: those bytes exist.
  void PatchU32(size_t offset, uint32_t value);
  void PatchU64(size_t offset, uint64_t value);

 private:
  template <typename T>
  void Fixed(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    char bytes[sizeof(T)];
    memcpy(bytes, &value, sizeof(T));
    out_.append(bytes, sizeof(T));
  }

  std::string& out_;
};

}  // namespace stampmill
