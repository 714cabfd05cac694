#include "server/compression.h"

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

TEST(CompressionTest, RefusesOtherBytes) {
  EXPECT_TRUE(absl::IsInvalidArgument(Decompress(Bytes("plain text"), 100).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Decompress({}, 100).status()));
}

}  // namespace
}  // namespace stampmill
