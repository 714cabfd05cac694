#include "base/bytes.h"

#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace stampmill {

size_t Utf8Length(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return 0;
  const unsigned char first = byte(0);
  size_t length = 0;
  uint32_t low = 0x80, high = 0xBF;  // of the second byte
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  if (text.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return length;
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// The formats are little-endian and read by copying. A big-endian port swaps in Fixed.
static_assert(std::endian::native == std::endian::little);

bool ByteReader::Has(uint64_t size, absl::string_view what) {
  if (!status_.ok()) return false;
  if (size <= remaining()) return true;
  Fail(absl::StrCat(what, ": got ", remaining(), " bytes, needs ", size));
  return false;
}

uint64_t ByteReader::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (!Has(1, "varint")) return 0;
    const auto byte = static_cast<uint64_t>(bytes_[offset_++]);
    if (shift == 63 && byte > 1) break;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  Fail("varint: more than 64 bits");
  return 0;
}

int64_t ByteReader::SignedVarint() {
  const uint64_t coded = Varint();
  return static_cast<int64_t>((coded >> 1) ^ (~(coded & 1) + 1));
}

std::span<const std::byte> ByteReader::Bytes(uint64_t size) {
  if (!Has(size, "data")) return {};
  const std::span<const std::byte> result = bytes_.subspan(offset_, size);
  offset_ += size;
  return result;
}

std::span<const std::byte> ByteReader::SizedBytes() {
  const uint32_t size = U32();
  return Bytes(size);
}

uint32_t ByteReader::Count(size_t element_bytes_min) {
  CHECK_GT(element_bytes_min, 0);
  const uint32_t count = U32();
  if (!ok()) return 0;
  const size_t count_max = remaining() / element_bytes_min;
  if (count <= count_max) return count;
  Fail(absl::StrCat("count: got ", count, ", limit ", count_max, " by the bytes that follow"));
  return 0;
}

void ByteReader::AlignTo(size_t alignment) {
  CHECK_GT(alignment, 0);
  const size_t over = offset_ % alignment;
  if (over != 0) Skip(alignment - over);
}

void ByteReader::ExpectEnd() {
  if (remaining() != 0) Fail(absl::StrCat("end: got ", remaining(), " more bytes"));
}

void ByteReader::Fail(absl::string_view what) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(absl::StrCat(name_, ": offset ", offset_, ": ", what));
}

void ByteWriter::Varint(uint64_t value) {
  while (value >= 0x80) {
    U8(static_cast<uint8_t>(value | 0x80));
    value >>= 7;
  }
  U8(static_cast<uint8_t>(value));
}

void ByteWriter::SignedVarint(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  Varint((bits << 1) ^ (value < 0 ? ~uint64_t{0} : 0));
}

void ByteWriter::SizedBytes(std::span<const std::byte> bytes) {
  CHECK_LE(bytes.size(), std::numeric_limits<uint32_t>::max());
  U32(static_cast<uint32_t>(bytes.size()));
  Bytes(bytes);
}

void ByteWriter::AlignTo(size_t alignment) {
  CHECK_GT(alignment, 0);
  const size_t over = out_.size() % alignment;
  if (over != 0) out_.append(alignment - over, '\0');
}

void ByteWriter::PatchU32(size_t offset, uint32_t value) {
  CHECK_LE(offset + sizeof(value), out_.size());
  memcpy(out_.data() + offset, &value, sizeof(value));
}

void ByteWriter::PatchU64(size_t offset, uint64_t value) {
  CHECK_LE(offset + sizeof(value), out_.size());
  memcpy(out_.data() + offset, &value, sizeof(value));
}

}  // namespace stampmill
