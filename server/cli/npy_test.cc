#include "server/cli/npy.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "gmock/gmock.h"
#include "graph/dtype.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

using ::testing::HasSubstr;

// A file as NumPy would write it, with this header text and data.
std::string File(const std::string& header, const std::string& data, char version = 1) {
  std::string text = header;
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  std::string bytes("\x93NUMPY", 6);
  ByteWriter out(&bytes);
  out.U8(static_cast<uint8_t>(version));
  out.U8(0);
  if (version == 1) {
    out.U16(static_cast<uint16_t>(text.size()));
  } else {
    out.U32(static_cast<uint32_t>(text.size()));
  }
  return bytes + text + data;
}

absl::Status Refusal(const std::string& file) { return ParseNpy(AsBytes(file)).status(); }

TEST(NpyTest, EveryTypeIsTheSameAfterwards) {
  for (int i = 1; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    Tensor tensor = *Tensor::Allocate(dtype, {2, 3});
    for (int64_t j = 0; j < 6; ++j) tensor.SetFromInt64(j, dtype == DType::kBool ? j % 2 : j);
    const auto parsed = ParseNpy(AsBytes(SerializeNpy(tensor)));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->dtype(), dtype == DType::kBF16 ? DType::kU16 : dtype);
    EXPECT_EQ(parsed->shape(), tensor.shape());
    EXPECT_TRUE(std::equal(parsed->bytes().begin(), parsed->bytes().end(), tensor.bytes().begin()));
  }
}

TEST(NpyTest, ScalarsVectorsAndEmptyTensors) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, std::vector<int64_t>{5}, std::vector<int64_t>{3, 0, 2}}) {
    const Tensor tensor = *Tensor::Allocate(DType::kF32, shape);
    const std::string file = SerializeNpy(tensor);
    EXPECT_EQ((file.size() - tensor.bytes().size()) % 64, 0u);
    const auto parsed = ParseNpy(AsBytes(file));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->shape(), shape);
  }
}

TEST(NpyTest, FortranOrderIsRearranged) {
  // [[0, 1, 2], [3, 4, 5]] column by column.
  const auto parsed =
      ParseNpy(AsBytes(File("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }",
                            std::string("\0\3\1\4\2\5", 6))));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(AsText(parsed->bytes()), absl::string_view("\0\1\2\3\4\5", 6));
}

TEST(NpyTest, WritersDifferInSpelling) {
  EXPECT_TRUE(
      Refusal(File("{\"shape\": (2L,), 'fortran_order': False, 'descr': '<i1'}", "ab")).ok());
  EXPECT_TRUE(Refusal(File("{'descr': '<f4', 'fortran_order': False, 'shape': (), }",
                           std::string(4, '\0'), 2))
                  .ok());
  EXPECT_TRUE(Refusal(File("{'descr': '<f4', 'fortran_order': False, 'shape': (), }",
                           std::string(4, '\0'), 3))
                  .ok());
}

TEST(NpyTest, BooleansAreZeroOrOne) {
  const auto parsed = ParseNpy(AsBytes(
      File("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", std::string("\0\1\7", 3))));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(AsText(parsed->bytes()), absl::string_view("\0\1\1", 3));
}

TEST(NpyTest, WhatIsWrongIsNamed) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  EXPECT_THAT(Refusal("not a file").message(), HasSubstr("not a NumPy file"));
  EXPECT_THAT(Refusal(File(good, "1234567", 9)).message(), HasSubstr("version"));
  for (const char* header :
       {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
        "{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }",
        "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 2, }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3), }",
        "{'descr': '<f4', 'fortran_order': False, }", "{'descr': '<f4' 'fortran_order': False}",
        "{'descr': '<f4', 'descr': '<f4', 'shape': (2,), }", "{'descr', '<f4'}", "{'descr': <f4}",
        "{'other': '<f4'}", "['descr']",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } x",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }"}) {
    EXPECT_EQ(Refusal(File(header, "12345678")).code(), absl::StatusCode::kInvalidArgument)
        << header;
  }
  // More or fewer bytes than the shape takes.
  EXPECT_FALSE(Refusal(File(good, "1234567")).ok());
  EXPECT_FALSE(Refusal(File(good, "123456789")).ok());
  const std::string file = File(good, "12345678");
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_FALSE(Refusal(file.substr(0, size)).ok());
}

TEST(NpyTest, ErrorsNameTheFile) {
  EXPECT_THAT(ReadNpy("/no/such.npy").status().message(), HasSubstr("/no/such.npy"));
}

}  // namespace
}  // namespace stampmill
