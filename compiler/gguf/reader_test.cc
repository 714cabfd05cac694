#include "compiler/gguf/reader.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "compiler/gguf/testing/gguf_writer.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

using FileOr = absl::StatusOr<std::shared_ptr<const GgufFile>>;

FileOr Parse(const std::string& bytes) {
  auto owner = std::make_shared<std::string>(bytes);
  return GgufFile::Parse(AsBytes(*owner), owner);
}

void ExpectRefused(const std::string& bytes, const std::string& part) {
  const FileOr file = Parse(bytes);
  ASSERT_TRUE(absl::IsInvalidArgument(file.status())) << file.status() << "\nwanted " << part;
  EXPECT_TRUE(absl::StrContains(file.status().message(), part)) << file.status();
}

TEST(GgufFile, GivesMetadataByTypeAndTensorsAsViews) {
  GgufWriter writer;
  writer.Add("a.count", uint32_t{7});
  writer.Add("a.real", 0.5F);
  writer.AddFlag("a.flag", true);
  writer.Add("a.text", "words");
  writer.Add("a.list", std::vector<std::string>{"one", "", "three"});
  writer.Add("a.numbers", std::vector<int32_t>{3, -4});
  writer.AddTensor("w", {3, 2});
  writer.AddTensor("q", {2, 32}, 8, std::string(68, 'x'));  // q8_0
  writer.AddTensor("unknown", {5}, 99, "");
  const FileOr parsed = Parse(writer.Finish());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const GgufFile& file = **parsed;
  EXPECT_EQ(**file.Int("a.count"), 7);
  EXPECT_EQ(**file.Float("a.count"), 7);
  EXPECT_EQ(**file.Float("a.real"), 0.5);
  EXPECT_TRUE(**file.Bool("a.flag"));
  EXPECT_EQ(**file.String("a.text"), "words");
  EXPECT_EQ(**file.Strings("a.list"), (std::vector<absl::string_view>{"one", "", "three"}));
  EXPECT_EQ(**file.Ints("a.numbers"), (std::vector<int64_t>{3, -4}));
  EXPECT_EQ(**file.Floats("a.numbers"), (std::vector<float>{3, -4}));
  EXPECT_FALSE(file.Int("absent")->has_value());
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.FindTensor("w")->shape, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(file.FindTensor("w")->bytes.size(), 24u);
  EXPECT_EQ(AsText(file.FindTensor("q")->bytes), std::string(68, 'x'));
  EXPECT_TRUE(file.FindTensor("unknown")->bytes.empty());
  EXPECT_EQ(file.FindTensor("absent"), nullptr);
  EXPECT_EQ(file.keys()[3], "a.text");
}

TEST(GgufFile, ValuesOfOtherTypesAreRefusedByName) {
  GgufWriter writer;
  writer.Add("text", "words");
  writer.Add("list", std::vector<std::string>{"one"});
  writer.AddRaw("huge", GgufType::kU64, std::string(8, '\xff'));
  const FileOr file = Parse(writer.Finish());
  ASSERT_TRUE(file.ok()) << file.status();
  const std::vector<absl::Status> refused = {
      (*file)->Int("text").status(),  (*file)->Float("list").status(),
      (*file)->Bool("text").status(), (*file)->Strings("text").status(),
      (*file)->Ints("list").status(), (*file)->Int("huge").status()};
  for (const absl::Status& status : refused) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "metadata ")) << status;
  }
}

TEST(GgufFile, EveryTruncationIsRefused) {
  GgufWriter writer;
  writer.Add("a.text", "words");
  writer.Add("a.list", std::vector<std::string>{"one", "two"});
  writer.AddTensor("w", {3, 2});
  const std::string whole = writer.Finish();
  ASSERT_TRUE(Parse(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_TRUE(absl::IsInvalidArgument(Parse(whole.substr(0, size)).status())) << size;
  }
}

TEST(GgufFile, WhatCannotBeIsRefusedWithItsReason) {
  const auto with = [](const std::function<void(GgufWriter&)>& change) {
    GgufWriter writer;
    writer.Add("a", uint32_t{1});
    writer.AddTensor("w", {2, 2});
    change(writer);
    return writer.Finish();
  };
  ExpectRefused("GGML....", "not a GGUF file");
  ExpectRefused(with([](GgufWriter& w) { w.version = 1; }), "version: got 1");
  ExpectRefused(with([](GgufWriter& w) { w.version = 0x03000000; }), "little-endian");
  ExpectRefused(with([](GgufWriter& w) { w.extra_tensors = uint64_t{1} << 60; }), "tensor count");
  ExpectRefused(with([](GgufWriter& w) { w.extra_values = ~uint64_t{0} - 1; }), "metadata count");
  ExpectRefused(with([](GgufWriter& w) { w.Add("a", uint32_t{2}); }), "metadata a: given twice");
  ExpectRefused(with([](GgufWriter& w) { w.AddTensor("w", {1}); }), "tensor w: given twice");
  ExpectRefused(with([](GgufWriter& w) { w.AddTensor("z", {0}); }), "dim 0: got 0");
  ExpectRefused(with([](GgufWriter& w) { w.AddTensor("z", {1, 1, 1, 1, 1}); }), "rank: got 5");
  ExpectRefused(with([](GgufWriter& w) { w.AddTensor("z", {33}, 8, "x"); }), "multiple of 32");
  ExpectRefused(with([](GgufWriter& w) { w.AddTensor("z", {int64_t{1} << 62, 8}, 1, "x"); }),
                "tensor z");
  ExpectRefused(with([](GgufWriter& w) { w.misplaced = 8; }), "alignment 32");
  ExpectRefused(with([](GgufWriter& w) { w.misplaced = ~uint64_t{31}; }), "tensor w");
  ExpectRefused(with([](GgufWriter& w) { w.Add("general.alignment", uint32_t{3}); }),
                "general.alignment");
  ExpectRefused(with([](GgufWriter& w) { w.AddRaw("x", static_cast<GgufType>(13), "x"); }),
                "metadata type: got 13");
  // An array of arrays, and one of more strings than there are bytes.
  ExpectRefused(with([](GgufWriter& w) {
                  w.AddRaw("x", GgufType::kArray, absl::string_view("\x09\0\0\0", 4));
                }),
                "array of arrays");
  ExpectRefused(with([](GgufWriter& w) {
                  w.AddRaw("x", GgufType::kArray,
                           absl::string_view("\x08\0\0\0\xff\xff\xff\xff\0\0\0\0", 12));
                }),
                "array elements");
}

class SplitTest : public testing::Test {
 protected:
  SplitTest() : folder_(std::filesystem::path(testing::TempDir()) / "split") {
    std::filesystem::create_directories(folder_);
  }
  std::string Path(int part, int count) const {
    return (folder_ / absl::StrCat("m-0000", part, "-of-0000", count, ".gguf")).string();
  }
  static void Write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  static GgufWriter Part(uint32_t number, uint32_t count) {
    GgufWriter writer;
    writer.Add("split.no", number);
    writer.Add("split.count", count);
    writer.Add("split.tensors.count", uint32_t{2});
    writer.AddTensor(absl::StrCat("w", number), {4});
    return writer;
  }

  const std::filesystem::path folder_;
};

TEST_F(SplitTest, AModelInPartsIsOne) {
  Write(Path(1, 2), Part(0, 2).Finish());
  Write(Path(2, 2), Part(1, 2).Finish());
  const FileOr file = GgufFile::Open(Path(1, 2));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->tensors().size(), 2u);
  EXPECT_NE((*file)->FindTensor("w1"), nullptr);
  EXPECT_EQ((*file)->split_files(), (std::vector<std::string>{"m-00002-of-00002.gguf"}));
}

TEST_F(SplitTest, PartsThatDoNotFitAreRefused) {
  Write(Path(1, 3), Part(0, 3).Finish());
  EXPECT_TRUE(absl::IsNotFound(GgufFile::Open(Path(1, 3)).status()));
  Write(Path(2, 3), Part(1, 3).Finish());
  Write(Path(3, 3), Part(2, 3).Finish());
  const absl::Status count = GgufFile::Open(Path(1, 3)).status();
  EXPECT_TRUE(absl::StrContains(count.message(), "got 3 tensors")) << count;
  const absl::Status second = GgufFile::Open(Path(2, 3)).status();
  EXPECT_TRUE(absl::StrContains(second.message(), "name the first")) << second;
}

}  // namespace
}  // namespace stampmill
