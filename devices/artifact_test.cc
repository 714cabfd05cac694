// Artifacts: what is written reads back, and no damaged byte passes.
#include "devices/artifact.h"

#include <gtest/gtest.h>

#include <string>

#include "base/bytes.h"

namespace stampmill {
namespace {

Digest SomeDigest() { return Sha256(AsBytes("descriptors")); }

std::string SomeArtifact() {
  return Artifact::Serialize(*Target::Parse("cpu:x86-64-v3"), SomeDigest(), AsBytes("the code"));
}

// Puts the right digest back over a head that a test has changed.
void FixHeadDigest(std::string* bytes) {
  const Digest digest = Sha256(AsBytes(absl::string_view(*bytes).substr(0, 160)));
  memcpy(bytes->data() + 160, digest.bytes.data(), digest.bytes.size());
}

void ExpectDataLoss(absl::string_view bytes, absl::string_view words) {
  absl::StatusOr<Artifact> parsed = Artifact::Parse(AsBytes(bytes), nullptr);
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(std::string(parsed.status().message()).find(std::string(words)), std::string::npos)
      << parsed.status();
}

TEST(ArtifactTest, WhatIsWrittenReadsBack) {
  const std::string bytes = SomeArtifact();
  absl::StatusOr<Artifact> artifact = Artifact::Parse(AsBytes(bytes), nullptr);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  EXPECT_EQ(artifact->target().ToString(), "cpu:x86-64-v3");
  EXPECT_EQ(artifact->abi_version(), kKernelAbiVersion);
  EXPECT_EQ(AsText(artifact->code()), "the code");
  EXPECT_EQ(artifact->code_digest(), Sha256(AsBytes("the code")));
  EXPECT_EQ(artifact->source_digest(), SomeDigest());
}

TEST(ArtifactTest, EmptyCodeIsAnArtifact) {
  const std::string bytes = Artifact::Serialize(*Target::Parse("npu:xdna1"), {}, {});
  absl::StatusOr<Artifact> artifact = Artifact::Parse(AsBytes(bytes), nullptr);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  EXPECT_TRUE(artifact->code().empty());
}

TEST(ArtifactTest, TheOwnerLivesAsLongAsACopy) {
  auto bytes = std::make_shared<std::string>(SomeArtifact());
  std::weak_ptr<std::string> watch = bytes;
  absl::StatusOr<Artifact> artifact = Artifact::Parse(AsBytes(*bytes), bytes);
  ASSERT_TRUE(artifact.ok());
  bytes.reset();
  {
    const Artifact copy = *artifact;
    artifact = absl::UnknownError("gone");
    EXPECT_FALSE(watch.expired());
    EXPECT_EQ(AsText(copy.code()), "the code");
  }
  EXPECT_TRUE(watch.expired());
}

TEST(ArtifactTest, EveryChangedBitIsFound) {
  const std::string good = SomeArtifact();
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] ^= static_cast<char>(1 << bit);
      ExpectDataLoss(bad, "artifact: ");
    }
  }
}

TEST(ArtifactTest, EveryTruncationAndEveryExtraByteIsFound) {
  const std::string good = SomeArtifact();
  for (size_t size = 0; size < good.size(); ++size) ExpectDataLoss(good.substr(0, size), "");
  ExpectDataLoss(good + '\0', "code size");
}

TEST(ArtifactTest, VersionsThatAreNotKnownAreNamed) {
  std::string bytes = SomeArtifact();
  bytes[8] = 2;
  FixHeadDigest(&bytes);
  ExpectDataLoss(bytes, "format version: got 2, known 1");
  bytes = SomeArtifact();
  bytes[12] = 9;
  FixHeadDigest(&bytes);
  ExpectDataLoss(bytes, "kernel ABI version: got 9, known 1");
}

TEST(ArtifactTest, ATargetThatIsNotInFullFormIsRefused) {
  for (const absl::string_view text :
       {absl::string_view("cpu"), absl::string_view("vax:780"),
        absl::string_view("cpu:x86-64\0v3", 13), absl::string_view("")}) {
    std::string bytes = SomeArtifact();
    std::string field(text);
    field.resize(64);
    bytes.replace(16, 64, field);
    FixHeadDigest(&bytes);
    ExpectDataLoss(bytes, "target");
  }
}

TEST(ArtifactTest, AWrongSizeOrReservedFieldIsRefusedEvenWithTheRightDigest) {
  for (const size_t offset : {144, 151, 152}) {
    std::string bytes = SomeArtifact();
    bytes[offset] ^= 0x40;
    FixHeadDigest(&bytes);
    ExpectDataLoss(bytes, "artifact: ");
  }
}

}  // namespace
}  // namespace stampmill
