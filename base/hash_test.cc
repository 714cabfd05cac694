#include "base/hash.h"

#include <set>
#include <string>

#include "absl/hash/hash.h"
#include "base/bytes.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

// Known answers: FIPS 180-2 appendix B; xxHash's own test of the empty input.
constexpr char kEmptySha256[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr char kAbcSha256[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(Hash, Sha256GivesKnownAnswers) {
  EXPECT_EQ(Sha256({}).ToHex(), kEmptySha256);
  EXPECT_EQ(Sha256(AsBytes("abc")).ToHex(), kAbcSha256);
}

TEST(Hash, Sha256OfPartsIsThatOfTheWhole) {
  Sha256Stream stream;
  stream.Update("a");
  stream.Update(AsBytes(""));
  stream.Update(AsBytes("bc"));
  EXPECT_EQ(stream.Finish().ToHex(), kAbcSha256);
  EXPECT_EQ(stream.Finish().ToHex(), kEmptySha256);
}

TEST(Hash, DigestSurvivesItsTextForm) {
  const Digest digest = Sha256(AsBytes("x"));
  EXPECT_EQ(Digest::FromHex(digest.ToHex()), digest);
  EXPECT_FALSE(Digest::FromHex("abc").has_value());
  EXPECT_FALSE(Digest::FromHex(std::string(63, 'a') + "g").has_value());
  EXPECT_FALSE(Digest::FromHex(std::string(64, 'A')).has_value());
  EXPECT_FALSE(Digest::FromHex(std::string(65, 'a')).has_value());
}

TEST(Hash, DigestsAreOrderedAndHashed) {
  const Digest a = Sha256(AsBytes("a")), b = Sha256(AsBytes("b"));
  EXPECT_NE(a, b);
  EXPECT_TRUE(a < b || b < a);
  EXPECT_EQ(std::set<Digest>({a, b, a}).size(), 2u);
  EXPECT_EQ(absl::HashOf(a), absl::HashOf(Sha256(AsBytes("a"))));
}

TEST(Hash, Xxh3GivesKnownAnswers) {
  EXPECT_EQ(Xxh3({}), 0x2D06800538D394C2u);
  EXPECT_NE(Xxh3(AsBytes("a")), Xxh3(AsBytes("b")));
}

}  // namespace
}  // namespace stampmill
