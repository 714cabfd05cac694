// A .npy file: "\x93NUMPY", u8 major, u8 minor, u16 (major 1) or u32 length of the header, the
// header (a Python dict literal: descr, fortran_order, shape), then the elements.
#include "server/cli/npy.h"

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "graph/dtype.h"

namespace stampmill {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kHeaderBytesMax = 65536;
constexpr uint64_t kFileBytesMax = uint64_t{1} << 36;
constexpr size_t kRankMax = 64;

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("npy header: ", what));
}

// Reads the one dict that NumPy writes; keys in any order, each once.
class HeaderParser {
 public:
  explicit HeaderParser(absl::string_view text) : rest_(text) {}

  absl::StatusOr<Header> Parse() {
    Header header;
    bool seen[3] = {};
    if (!Take("{")) return Malformed("does not begin with '{'");
    while (!Take("}")) {
      ASSIGN_OR_RETURN(const std::string key, String());
      if (!Take(":")) return Malformed("no ':' after a key");
      const int which = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : -1;
      if (which < 0 || seen[which]) return Malformed(absl::StrCat("key '", key, "'"));
      seen[which] = true;
      if (which == 0) {
        ASSIGN_OR_RETURN(header.descr, String());
      } else if (which == 1) {
        header.fortran_order = Take("True");
        if (!header.fortran_order && !Take("False")) return Malformed("fortran_order");
      } else {
        ASSIGN_OR_RETURN(header.shape, Shape());
      }
      if (!Take(",") && !At("}")) return Malformed("no ',' after a value");
    }
    SkipSpace();
    if (!rest_.empty()) return Malformed("text after '}'");
    if (!seen[0] || !seen[1] || !seen[2]) return Malformed("a key is missing");
    return header;
  }

 private:
  void SkipSpace() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }
  bool At(absl::string_view word) {
    SkipSpace();
    return rest_.substr(0, word.size()) == word;
  }
  bool Take(absl::string_view word) {
    SkipSpace();
    return absl::ConsumePrefix(&rest_, word);
  }
  absl::StatusOr<std::string> String() {
    const char quote = Take("'") ? '\'' : Take("\"") ? '"' : '\0';
    const size_t end = quote == '\0' ? absl::string_view::npos : rest_.find(quote);
    if (end == absl::string_view::npos) return Malformed("got no string where one is needed");
    const std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return text;
  }
  absl::StatusOr<std::vector<int64_t>> Shape() {
    std::vector<int64_t> shape;
    if (!Take("(")) return Malformed("shape is no tuple");
    while (!Take(")")) {
      SkipSpace();
      size_t digits = 0;
      while (digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9') ++digits;
      int64_t dim = 0;
      if (!absl::SimpleAtoi(rest_.substr(0, digits), &dim)) return Malformed("shape");
      rest_.remove_prefix(digits);
      absl::ConsumePrefix(&rest_, "L");  // Python 2 wrote it
      shape.push_back(dim);
      if (shape.size() > kRankMax) return Malformed(absl::StrCat("rank: limit ", kRankMax));
      if (!Take(",") && !At(")")) return Malformed("shape");
    }
    return shape;
  }

  absl::string_view rest_;
};

struct NumpyType {
  DType dtype;
  absl::string_view descr;
};
constexpr NumpyType kTypes[] = {
    {DType::kBool, "|b1"}, {DType::kI8, "|i1"},  {DType::kU8, "|u1"},  {DType::kI16, "<i2"},
    {DType::kI32, "<i4"},  {DType::kI64, "<i8"}, {DType::kU16, "<u2"}, {DType::kU32, "<u4"},
    {DType::kU64, "<u8"},  {DType::kF16, "<f2"}, {DType::kF32, "<f4"}, {DType::kF64, "<f8"},
};

absl::StatusOr<DType> TypeOf(absl::string_view descr) {
  for (const NumpyType& type : kTypes) {
    // One-byte types have no byte order; some writers name one all the same.
    if (descr == type.descr ||
        (type.descr[0] == '|' && descr.size() == 3 && descr.substr(1) == type.descr.substr(1) &&
         (descr[0] == '<' || descr[0] == '='))) {
      return type.dtype;
    }
  }
  return Malformed(absl::StrCat("descr: got '", descr, "', limit plain little-endian numbers"));
}

absl::string_view DescrOf(DType dtype) {
  if (dtype == DType::kBF16) return "<u2";
  for (const NumpyType& type : kTypes) {
    if (type.dtype == dtype) return type.descr;
  }
  return "|V1";
}

// Elements in the order of first-axis-fastest `from`, written row-major.
void FromFortranOrder(std::span<const std::byte> from, size_t element_bytes, Tensor& tensor) {
  const std::vector<int64_t>& shape = tensor.shape();
  std::vector<int64_t> index(shape.size(), 0);
  std::byte* to = tensor.mutable_bytes().data();
  for (int64_t i = 0, n = tensor.element_count(); i < n; ++i) {
    int64_t offset = 0;
    for (size_t axis = shape.size(); axis-- > 0;) offset = offset * shape[axis] + index[axis];
    memcpy(to + i * static_cast<int64_t>(element_bytes),
           from.data() + offset * static_cast<int64_t>(element_bytes), element_bytes);
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

}  // namespace

absl::StatusOr<Tensor> ParseNpy(std::span<const std::byte> bytes) {
  ByteReader in(bytes, "npy");
  if (AsText(in.Bytes(kMagic.size())) != kMagic) {
    return absl::InvalidArgumentError("npy: not a NumPy file");
  }
  const uint8_t major = in.U8();
  in.U8();
  if (in.ok() && (major < 1 || major > 3)) {
    return absl::InvalidArgumentError(absl::StrCat("npy version: got ", major, ", limit 3"));
  }
  const uint32_t header_size = major == 1 ? in.U16() : in.U32();
  if (header_size > kHeaderBytesMax) {
    return Malformed(absl::StrCat("got ", header_size, " bytes, limit ", kHeaderBytesMax));
  }
  const absl::string_view text = AsText(in.Bytes(header_size));
  RETURN_IF_ERROR(in.status());
  ASSIGN_OR_RETURN(Header header, HeaderParser(text).Parse());
  ASSIGN_OR_RETURN(const DType dtype, TypeOf(header.descr));
  const std::span<const std::byte> data = bytes.subspan(in.offset());
  // The size first: a header may claim what no memory holds.
  ASSIGN_OR_RETURN(const Tensor view, Tensor::View(dtype, header.shape, data, nullptr));
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(dtype, std::move(header.shape)));
  if (header.fortran_order && tensor.rank() > 1) {
    FromFortranOrder(data, SizeBytes(dtype), tensor);
  } else if (!data.empty()) {
    memcpy(tensor.mutable_bytes().data(), data.data(), data.size());
  }
  if (dtype == DType::kBool) {
    for (std::byte& value : tensor.mutable_bytes()) {
      if (value != std::byte{0}) value = std::byte{1};
    }
  }
  return tensor;
}

std::string SerializeNpy(const Tensor& tensor) {
  std::string shape;
  for (const int64_t dim : tensor.shape()) absl::StrAppend(&shape, dim, ", ");
  // "(3, )" reads as a tuple of one as well as NumPy's own "(3,)".
  std::string header = absl::StrCat("{'descr': '", DescrOf(tensor.dtype()),
                                    "', 'fortran_order': False, 'shape': (", shape, "), }");
  // The elements begin at a multiple of 64.
  constexpr size_t kPreamble = 6 + 2 + 2;
  header.append(63 - (kPreamble + header.size()) % 64, ' ');
  header += '\n';
  std::string bytes;
  ByteWriter out(&bytes);
  out.Bytes(AsBytes(kMagic));
  out.U8(1);
  out.U8(0);
  out.U16(static_cast<uint16_t>(header.size()));
  out.Bytes(AsBytes(header));
  out.Bytes(tensor.bytes());
  return bytes;
}

absl::StatusOr<Tensor> ReadNpy(absl::string_view path) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kFileBytesMax));
  absl::StatusOr<Tensor> tensor = ParseNpy(AsBytes(bytes));
  if (tensor.ok()) return tensor;
  return absl::Status(tensor.status().code(), absl::StrCat(path, ": ", tensor.status().message()));
}

absl::Status WriteNpy(absl::string_view path, const Tensor& tensor) {
  return AtomicReplaceFile(path, AsBytes(SerializeNpy(tensor)));
}

}  // namespace stampmill
