// WireReader: the fields of one protobuf message, one after the other, without generated code and
// without copies: strings, bytes and submessages are views. Tags and varints are decoded by
// protobuf's CodedInputStream over a few bytes at a time, so that neither a message nor a field is
// limited to 2 GiB, as a whole stream of protobuf's would be.
//
// Readers of nested messages form a chain on the stack, from which an error message gets its path:
// "model.graph.node[12].attribute[2].t: at byte 4711: field 9 has wire type 0". Owned by one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stampmill {

class WireReader {
 public:
  enum class Type : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  // The outermost message, which is called `name`. Borrows both.
  WireReader(std::span<const std::byte> bytes, absl::string_view name);
  // The message in the field that `parent` is at, which is called `field_name`; `index` counts it
  // among repeated ones, -1: not repeated. Borrows `parent`.
  WireReader(const WireReader& parent, absl::string_view field_name, int64_t index = -1);

  // Moves to the next field. False at the end and after an error, which status() tells apart.
  bool Next();
  int32_t field() const { return field_; }
  Type type() const { return type_; }

  // The value of the current field; fail and give nothing when it has another wire type.
  int64_t Int();
  float Float();                       // fixed32
  std::span<const std::byte> Bytes();  // length-delimited
  absl::string_view Text();            // length-delimited, UTF-8
  // Of a repeated number, packed or not: what is there in packed form. `single` is the wire type of
  // one number.
  std::span<const std::byte> Packed(Type single);

  // Sets an INVALID_ARGUMENT with path and place, unless there is an error already.
  void Fail(absl::string_view what);
  const absl::Status& status() const { return status_; }
  // Takes over an error of a nested reader.
  bool Adopt(const absl::Status& status);

  std::string Path() const;
  int depth() const { return depth_; }

 private:
  bool Expect(Type type);

  std::span<const std::byte> bytes_;
  size_t offset_ = 0;                // of the next field
  const std::byte* file_ = nullptr;  // start of the outermost message, for places in messages
  const WireReader* parent_ = nullptr;
  absl::string_view name_;
  int64_t index_ = -1;
  int depth_ = 0;
  int32_t field_ = 0;
  Type type_ = Type::kVarint;
  uint64_t varint_ = 0;
  std::span<const std::byte> payload_;  // of the current field; of a varint its own bytes
  absl::Status status_;
};

// Varints of a packed field. False when the bytes end within one or one is longer than 10 bytes;
// `visit` returns false to stop.
template <typename Visit>
bool ForEachVarint(std::span<const std::byte> packed, Visit visit);

// The next varint of `bytes`; its length, or 0 when there is none.
size_t DecodeVarint(std::span<const std::byte> bytes, uint64_t* value);

template <typename Visit>
bool ForEachVarint(std::span<const std::byte> packed, Visit visit) {
  while (!packed.empty()) {
    uint64_t value = 0;
    const size_t size = DecodeVarint(packed, &value);
    if (size == 0) return false;
    if (!visit(value)) return true;
    packed = packed.subspan(size);
  }
  return true;
}

}  // namespace stampmill
