#include "compiler/onnx/wire_reader.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "google/protobuf/io/coded_stream.h"

namespace stampmill {
namespace {

// Longest tag and length: 5 and 10 bytes.
constexpr size_t kHeadMax = 16;

google::protobuf::io::CodedInputStream StreamOver(std::span<const std::byte> bytes) {
  return google::protobuf::io::CodedInputStream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                static_cast<int>(std::min(bytes.size(), kHeadMax)));
}

}  // namespace

size_t DecodeVarint(std::span<const std::byte> bytes, uint64_t* value) {
  google::protobuf::io::CodedInputStream stream = StreamOver(bytes);
  if (!stream.ReadVarint64(value)) return 0;
  return static_cast<size_t>(stream.CurrentPosition());
}

WireReader::WireReader(std::span<const std::byte> bytes, absl::string_view name)
    : bytes_(bytes), file_(bytes.data()), name_(name) {}

WireReader::WireReader(const WireReader& parent, absl::string_view field_name, int64_t index)
    : bytes_(parent.payload_),
      file_(parent.file_),
      parent_(&parent),
      name_(field_name),
      index_(index),
      depth_(parent.depth_ + 1) {
  if (parent.type_ != Type::kBytes) {
    Fail("not a message");
    bytes_ = {};
  }
}

bool WireReader::Next() {
  if (!status_.ok() || offset_ == bytes_.size()) return false;
  const std::span<const std::byte> rest = bytes_.subspan(offset_);
  google::protobuf::io::CodedInputStream stream = StreamOver(rest);
  const uint32_t tag = stream.ReadTagNoLastTag();
  const uint32_t type = tag & 7;
  field_ = static_cast<int32_t>(tag >> 3);
  if (field_ == 0) {
    Fail("damaged tag");
    return false;
  }
  if (type == 3 || type == 4 || type > 5) {
    Fail(absl::StrCat("field ", field_, " has wire type ", type));
    return false;
  }
  type_ = static_cast<Type>(type);
  size_t head = static_cast<size_t>(stream.CurrentPosition());
  uint64_t size = type_ == Type::kFixed64 ? 8 : 4;
  if (type_ == Type::kVarint || type_ == Type::kBytes) {
    if (!stream.ReadVarint64(&varint_)) {
      Fail(absl::StrCat("field ", field_, ": damaged varint"));
      return false;
    }
    const size_t end = static_cast<size_t>(stream.CurrentPosition());
    size = type_ == Type::kVarint ? end - head : varint_;
    if (type_ == Type::kBytes) head = end;
  }
  if (size > rest.size() - head) {
    // What is around a message of the file's end has room for it, so only the file can be short.
    Fail(absl::StrCat("field ", field_, ": ", size, " bytes, ", rest.size() - head, " left",
                      parent_ == nullptr ? ": cut short" : ""));
    return false;
  }
  payload_ = rest.subspan(head, size);
  offset_ += head + size;
  return true;
}

bool WireReader::Expect(Type type) {
  if (type_ == type) return true;
  Fail(absl::StrCat("field ", field_, " has wire type ", static_cast<int>(type_)));
  return false;
}

int64_t WireReader::Int() { return Expect(Type::kVarint) ? static_cast<int64_t>(varint_) : 0; }

float WireReader::Float() {
  float value = 0;
  if (Expect(Type::kFixed32)) memcpy(&value, payload_.data(), sizeof(value));
  return value;
}

std::span<const std::byte> WireReader::Bytes() {
  return Expect(Type::kBytes) ? payload_ : std::span<const std::byte>();
}

absl::string_view WireReader::Text() {
  const absl::string_view text = AsText(Bytes());
  if (IsUtf8(text)) return text;
  Fail(absl::StrCat("field ", field_, ": not UTF-8"));
  return "";
}

std::span<const std::byte> WireReader::Packed(Type single) {
  if (type_ == Type::kBytes || Expect(single)) return payload_;
  return {};
}

void WireReader::Fail(absl::string_view what) {
  if (!status_.ok()) return;
  const size_t place = bytes_.empty() ? 0 : static_cast<size_t>(bytes_.data() - file_) + offset_;
  status_ = absl::InvalidArgumentError(absl::StrCat(Path(), ": at byte ", place, ": ", what));
}

bool WireReader::Adopt(const absl::Status& status) {
  if (status_.ok()) status_ = status;
  return status_.ok();
}

std::string WireReader::Path() const {
  std::string path = parent_ == nullptr ? "" : absl::StrCat(parent_->Path(), ".");
  absl::StrAppend(&path, name_);
  if (index_ >= 0) absl::StrAppend(&path, "[", index_, "]");
  return path;
}

}  // namespace stampmill
