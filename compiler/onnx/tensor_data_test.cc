#include "compiler/onnx/tensor_data.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "compiler/onnx/testing/model_writer.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

absl::StatusOr<Tensor> Read(const std::string& proto, ExternalFiles& files) {
  const absl::StatusOr<OnnxTensor> tensor = ReadOnnxTensor(AsBytes(proto));
  if (!tensor.ok()) return tensor.status();
  return MakeTensor(*tensor, nullptr, files);
}

absl::StatusOr<Tensor> Read(const std::string& proto) {
  ExternalFiles files("");
  return Read(proto, files);
}

ProtoWriter Head(DType dtype, const std::vector<int64_t>& dims) {
  ProtoWriter out;
  for (const int64_t dim : dims) out.Int(1, dim);
  out.Int(2, OnnxDataType(dtype)).Bytes(8, "w");
  return out;
}

TEST(TensorDataTest, RawDataOfEveryTypeIsAView) {
  for (int i = 1; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    const Tensor tensor = MakeTestTensor(dtype, {3}, {1, 0, 1});
    const std::string proto = MakeTensorProto("w", tensor);
    const absl::StatusOr<Tensor> read = Read(proto);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->dtype(), dtype);
    EXPECT_EQ(read->ValueAsDouble(0), 1) << Name(dtype);
    const char* data = reinterpret_cast<const char*>(read->bytes().data());
    EXPECT_TRUE(data >= proto.data() && data < proto.data() + proto.size());
  }
}

TEST(TensorDataTest, TypedFieldsReadAsRawDoes) {
  ProtoWriter floats = Head(DType::kF32, {2});
  floats.Float(4, 1.5f).Float(4, -2.0f);
  EXPECT_EQ(Read(floats.bytes())->values<float>()[1], -2.0f);

  for (const DType dtype : {DType::kI8, DType::kI16, DType::kI32, DType::kU8, DType::kU16}) {
    ProtoWriter ints = Head(dtype, {2});
    ints.Int(5, 7).Int(5, -1);
    const absl::StatusOr<Tensor> read = Read(ints.bytes());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->ValueAsInt64(0), 7) << Name(dtype);
    EXPECT_EQ(read->ValueAsInt64(1), Tensor::Scalar(dtype, -1).ValueAsInt64(0)) << Name(dtype);
  }
  EXPECT_EQ(Read(Head(DType::kI64, {1}).Int(7, INT64_MIN).bytes())->ValueAsInt64(0), INT64_MIN);
  EXPECT_EQ(Read(Head(DType::kU64, {1}).Int(11, -1).bytes())->ValueAsDouble(0), 0x1p64);
  EXPECT_EQ(Read(Head(DType::kU32, {1}).Int(11, 5).bytes())->ValueAsInt64(0), 5);
  EXPECT_EQ(Read(Head(DType::kF16, {1}).Int(5, 0x3c00).bytes())->ValueAsDouble(0), 1.0);
  EXPECT_EQ(Read(Head(DType::kBF16, {1}).Int(5, 0x3f80).bytes())->ValueAsDouble(0), 1.0);
  EXPECT_EQ(Read(Head(DType::kBool, {1}).Int(5, 256).bytes())->ValueAsInt64(0), 1);
  const double value = 2.25;
  std::string packed(sizeof(value), '\0');
  memcpy(packed.data(), &value, sizeof(value));
  EXPECT_EQ(Read(Head(DType::kF64, {1}).Bytes(10, packed).bytes())->ValueAsDouble(0), value);
}

TEST(TensorDataTest, BoolsBecomeZeroOrOne) {
  const absl::StatusOr<Tensor> read =
      Read(Head(DType::kBool, {3}).Bytes(9, std::string("\x00\x01\x07", 3)).bytes());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->values<uint8_t>()[2], 1);
}

TEST(TensorDataTest, DataAndShapeMustAgree) {
  const auto code = [](const ProtoWriter& proto) { return Read(proto.bytes()).status().code(); };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(Head(DType::kF32, {2}).Bytes(9, "1234")), kInvalid);
  EXPECT_EQ(code(Head(DType::kF32, {2}).Float(4, 1)), kInvalid);
  EXPECT_EQ(code(Head(DType::kI64, {2}).Int(7, 1)), kInvalid);
  EXPECT_EQ(code(Head(DType::kF32, {2})), kInvalid);  // no data
  EXPECT_EQ(code(Head(DType::kF32, {-2}).Bytes(9, "1234")), kInvalid);
  EXPECT_EQ(code(Head(DType::kF32, {int64_t{1} << 40, int64_t{1} << 40}).Bytes(9, "")), kInvalid);
  EXPECT_EQ(code(Head(DType::kI8, {int64_t{1} << 50})), kInvalid);  // refused before allocating
  EXPECT_EQ(code(Head(DType::kF32, std::vector<int64_t>(33, 1)).Float(4, 1)), kInvalid);
  EXPECT_TRUE(Read(Head(DType::kF32, {0, 5}).bytes()).ok());
  EXPECT_EQ(Read(Head(DType::kF32, {2}).Float(4, 1).bytes()).status().message(),
            "tensor 'w': tensor of f32 and shape [2]: got 4 bytes, need 8");
}

TEST(TensorDataTest, WhatIsMissingIsNamed) {
  const absl::Status status = Read(ProtoWriter().Int(2, 22).Bytes(8, "w").bytes()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "tensor 'w': element type int4 is not supported");
  EXPECT_EQ(Read(ProtoWriter().Int(2, 8).bytes()).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Read(ProtoWriter().Int(2, 99).bytes()).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Read(Head(DType::kF32, {1}).Bytes(3, "").Float(4, 1).bytes()).status().code(),
            absl::StatusCode::kUnimplemented);
}

class ExternalDataTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* base = getenv("TEST_TMPDIR");
    std::string name = absl::StrCat(base == nullptr ? "/tmp" : base, "/external.XXXXXX");
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    ASSERT_TRUE(MakeDirectories(absl::StrCat(root_, "/model/sub")).ok());
    for (const char* path : {"/model/w.bin", "/model/sub/w.bin", "/secret.bin"}) {
      ASSERT_TRUE(AtomicReplaceFile(absl::StrCat(root_, path), AsBytes("0123456789abcdef")).ok());
    }
  }

  static std::string External(absl::string_view location, absl::string_view offset,
                              absl::string_view length) {
    ProtoWriter out = Head(DType::kI32, {2});
    const auto entry = [&out](absl::string_view key, absl::string_view value) {
      if (!value.empty()) out.Bytes(13, ProtoWriter().Bytes(1, key).Bytes(2, value).bytes());
    };
    entry("location", location);
    entry("offset", offset);
    entry("length", length);
    return out.Int(14, 1).bytes();
  }

  absl::StatusOr<Tensor> ReadExternal(absl::string_view location, absl::string_view offset = "",
                                      absl::string_view length = "") {
    ExternalFiles files(absl::StrCat(root_, "/model"));
    absl::StatusOr<Tensor> tensor = Read(External(location, offset, length), files);
    names_ = files.names();
    return tensor;
  }

  std::string root_;
  std::vector<std::string> names_;
};

TEST_F(ExternalDataTest, TensorsLieInFilesBesideTheModel) {
  const absl::StatusOr<Tensor> tensor = ReadExternal("sub/w.bin", "4", "8");
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(AsText(tensor->bytes()), "456789ab");
  EXPECT_EQ(names_, (std::vector<std::string>{"sub/w.bin"}));
  EXPECT_EQ(AsText(ReadExternal("w.bin")->bytes()), "01234567");
}

TEST_F(ExternalDataTest, PathsStayInTheModelsFolder) {
  ASSERT_EQ(symlink("../secret.bin", absl::StrCat(root_, "/model/link.bin").c_str()), 0);
  ASSERT_EQ(symlink("..", absl::StrCat(root_, "/model/up").c_str()), 0);
  ASSERT_EQ(symlink("sub/w.bin", absl::StrCat(root_, "/model/inner.bin").c_str()), 0);
  const std::string absolute = absl::StrCat(root_, "/model/w.bin");
  for (const std::string& location :
       {std::string("../secret.bin"), std::string("sub/../../secret.bin"), absolute,
        std::string("link.bin"), std::string("up/secret.bin"), std::string(),
        std::string("w.bin\0", 6)}) {
    EXPECT_EQ(ReadExternal(location).status().code(), absl::StatusCode::kInvalidArgument)
        << location << ": " << ReadExternal(location).status();
  }
  EXPECT_TRUE(ReadExternal("inner.bin").ok());
  EXPECT_EQ(ReadExternal("absent.bin").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ReadExternal("sub").ok());
}

TEST_F(ExternalDataTest, RangesStayInTheFile) {
  EXPECT_EQ(ReadExternal("w.bin", "9", "8").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadExternal("w.bin", "9223372036854775807", "8").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadExternal("w.bin", "0", "7").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadExternal("w.bin", "-1", "8").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadExternal("w.bin", "x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ReadExternal("w.bin", "8", "8").ok());
}

TEST_F(ExternalDataTest, ModelsInMemoryHaveNone) {
  EXPECT_EQ(Read(External("w.bin", "0", "8")).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stampmill
