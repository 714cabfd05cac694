#include "compiler/safetensors/reader.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "graph/dtype.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

using FileOr = absl::StatusOr<std::shared_ptr<const SafetensorsFile>>;

std::string FileOf(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return absl::StrCat(bytes, header, data);
}

FileOr Parse(const std::string& bytes) {
  auto owner = std::make_shared<std::string>(bytes);
  return SafetensorsFile::Parse(AsBytes(*owner), owner, "w.safetensors");
}

void ExpectRefused(const std::string& bytes, const std::string& part) {
  const FileOr file = Parse(bytes);
  ASSERT_TRUE(absl::IsInvalidArgument(file.status())) << file.status() << "\nwanted " << part;
  EXPECT_TRUE(absl::StrContains(file.status().message(), part)) << file.status();
}

TEST(SafetensorsFile, GivesTensorsAsViews) {
  const FileOr file = Parse(FileOf(R"({"__metadata__":{"format":"pt"},
      "a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},
      "b":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[8,11]},
      "c":{"dtype":"BF16","shape":[],"data_offsets":[11,13]}})",
                                   "abcdefghijklm"));
  ASSERT_TRUE(file.ok()) << file.status();
  const std::span<const SafetensorsTensor> tensors = (*file)->tensors();
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].dtype, DType::kF32);
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(AsText(tensors[0].bytes), "abcdefgh");
  EXPECT_FALSE(tensors[1].dtype.has_value());
  EXPECT_EQ(tensors[1].dtype_text, "F8_E4M3");
  EXPECT_EQ(tensors[2].dtype, DType::kBF16);
  EXPECT_EQ(AsText(tensors[2].bytes), "lm");
}

TEST(SafetensorsFile, RefusesWhatIsWrong) {
  ExpectRefused("", "w.safetensors");
  ExpectRefused(std::string(8, '\xff'), "limit 0");
  ExpectRefused(FileOf("{", ""), "header");
  ExpectRefused(FileOf("[]", ""), "no object");
  ExpectRefused(FileOf(R"({"a":3})", ""), "tensor a: no object");
  ExpectRefused(FileOf(R"({"a":{"shape":[],"data_offsets":[0,0]}})", ""), "dtype");
  const auto tensor = [](const std::string& shape, const std::string& offsets) {
    return FileOf(absl::StrCat(R"({"a":{"dtype":"F32","shape":)", shape, R"(,"data_offsets":)",
                               offsets, "}}"),
                  "12345678");
  };
  EXPECT_TRUE(Parse(tensor("[2]", "[0,8]")).ok());
  ExpectRefused(tensor("[2]", "[0,9]"), "limit 8");
  ExpectRefused(tensor("[2]", "[8,0]"), "data_offsets");
  ExpectRefused(tensor("[2]", "[-8,0]"), "not a whole number");
  ExpectRefused(tensor("[2]", "[0]"), "data_offsets");
  ExpectRefused(tensor("[2.5]", "[0,8]"), "not a whole number");
  ExpectRefused(tensor("[3]", "[0,8]"), "the shape has 12");
  ExpectRefused(tensor("[4611686018427387904,4]", "[0,8]"), "tensor a");
}

}  // namespace
}  // namespace stampmill
