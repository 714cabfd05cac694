#include "server/http/compression.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(CompressionTest, GivesBackWhatItTook) {
  const std::string a(1000, 'a'), b = "b", c;
  const std::vector<std::span<const std::byte>> pieces = {Bytes(a), Bytes(b), Bytes(c)};
  for (const ContentCoding coding : {ContentCoding::kGzip, ContentCoding::kDeflate}) {
    const std::string compressed = Compress(coding, pieces);
    EXPECT_LT(compressed.size(), 200u);
    EXPECT_EQ(Decompress(Bytes(compressed), 1001).value(), a + b);
    EXPECT_TRUE(absl::IsResourceExhausted(Decompress(Bytes(compressed), 1000).status()));
    for (size_t size = 0; size < compressed.size(); ++size) {
      EXPECT_TRUE(
          absl::IsInvalidArgument(Decompress(Bytes(compressed).first(size), 2000).status()));
    }
  }
}

TEST(CompressionTest, RefusesBytesAfterTheEnd) {
  const std::string a(1000, 'a'), b(1000, 'b');
  const std::span<const std::byte> a_piece = Bytes(a), b_piece = Bytes(b);
  for (const ContentCoding coding : {ContentCoding::kGzip, ContentCoding::kDeflate}) {
    const std::string compressed = Compress(coding, {&a_piece, 1});
    for (const std::string& junk : {std::string("x"), std::string("\x1f"), std::string(1, '\0'),
                                    std::string(100'000, 'j'), compressed.substr(0, 8)}) {
      EXPECT_TRUE(absl::IsInvalidArgument(Decompress(Bytes(compressed + junk), 2000).status()));
    }
    // Only gzip's format has several members; the limit is for all of them together.
    const std::string two = compressed + Compress(coding, {&b_piece, 1});
    const absl::StatusOr<std::string> text = Decompress(Bytes(two), 2000);
    if (coding == ContentCoding::kGzip) {
      EXPECT_EQ(text.value(), a + b);
      EXPECT_TRUE(absl::IsResourceExhausted(Decompress(Bytes(two), 1999).status()));
    } else {
      EXPECT_TRUE(absl::IsInvalidArgument(text.status()));
    }
  }
}

TEST(CompressionTest, RefusesOtherBytes) {
  EXPECT_TRUE(absl::IsInvalidArgument(Decompress(Bytes("plain text"), 100).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Decompress({}, 100).status()));
}

}  // namespace
}  // namespace stampmill
