#include "base/bytes.h"

#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

TEST(Bytes, ReadsBackWhatWasWritten) {
  std::string data;
  ByteWriter out(&data);
  out.U8(0xfe);
  out.U16(0xfedc);
  out.U32(0xfedcba98);
  out.U64(0xfedcba9876543210);
  out.I32(-5);
  out.I64(std::numeric_limits<int64_t>::min());
  out.F32(-1.5f);
  out.F64(1e300);
  out.String("name");
  out.AlignTo(16);
  out.Bytes(AsBytes("tail"));

  ByteReader in(AsBytes(data));
  EXPECT_EQ(in.U8(), 0xfe);
  EXPECT_EQ(in.U16(), 0xfedc);
  EXPECT_EQ(in.U32(), 0xfedcba98);
  EXPECT_EQ(in.U64(), 0xfedcba9876543210);
  EXPECT_EQ(in.I32(), -5);
  EXPECT_EQ(in.I64(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(in.F32(), -1.5f);
  EXPECT_EQ(in.F64(), 1e300);
  EXPECT_EQ(in.String(), "name");
  in.AlignTo(16);
  EXPECT_EQ(in.offset() % 16, 0u);
  EXPECT_EQ(AsText(in.Bytes(4)), "tail");
  in.ExpectEnd();
  EXPECT_TRUE(in.ok()) << in.status();
}

TEST(Bytes, AreLittleEndian) {
  std::string data;
  ByteWriter(&data).U32(0x01020304);
  EXPECT_EQ(data, std::string("\x04\x03\x02\x01"));
}

TEST(Bytes, CodeVarintsOfEveryLength) {
  for (int bits = 0; bits <= 64; ++bits) {
    for (const uint64_t delta : {0, 1}) {
      const uint64_t value = (bits == 64 ? 0 : uint64_t{1} << bits) - delta;
      std::string data;
      ByteWriter out(&data);
      out.Varint(value);
      out.SignedVarint(static_cast<int64_t>(value));
      ByteReader in(AsBytes(data));
      EXPECT_EQ(in.Varint(), value);
      EXPECT_EQ(in.SignedVarint(), static_cast<int64_t>(value));
      in.ExpectEnd();
      EXPECT_TRUE(in.ok()) << in.status();
    }
  }
}

TEST(Bytes, RefuseAVarintBeyond64Bits) {
  for (const std::string& data :
       {std::string(11, '\xff'), std::string(9, '\xff') + "\x02", std::string(10, '\x80')}) {
    ByteReader in(AsBytes(data));
    in.Varint();
    EXPECT_EQ(in.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Bytes, NameThePlaceOfTheFirstErrorAndStayFailed) {
  const std::string data = "abcdef";
  ByteReader in(AsBytes(data), "header");
  in.U32();
  EXPECT_EQ(in.U32(), 0u);
  EXPECT_EQ(in.status(), absl::InvalidArgumentError("header: offset 4: u32: got 2 bytes, needs 4"));
  EXPECT_EQ(in.U8(), 0);
  EXPECT_EQ(in.Varint(), 0u);
  EXPECT_TRUE(in.String().empty());
  in.Fail("later");
  EXPECT_EQ(in.offset(), 4u);
  EXPECT_EQ(in.status(), absl::InvalidArgumentError("header: offset 4: u32: got 2 bytes, needs 4"));
}

TEST(Bytes, RefuseHugeSizes) {
  const std::string data(64, '\xff');
  {
    ByteReader in(AsBytes(data));
    EXPECT_TRUE(in.Bytes(std::numeric_limits<uint64_t>::max()).empty());
    EXPECT_FALSE(in.ok());
  }
  {
    ByteReader in(AsBytes(data));
    EXPECT_TRUE(in.String().empty());
    EXPECT_FALSE(in.ok());
  }
  {
    ByteReader in(AsBytes(data));
    EXPECT_EQ(in.Count(8), 0u);
    EXPECT_FALSE(in.ok());
  }
}

TEST(Bytes, TakeACountThatTheRestCanHold) {
  std::string data;
  ByteWriter out(&data);
  out.U32(2);
  out.U64(1);
  out.U64(2);
  {
    ByteReader in(AsBytes(data));
    EXPECT_EQ(in.Count(8), 2u);
    EXPECT_TRUE(in.ok());
  }
  ByteReader in(AsBytes(data));
  EXPECT_EQ(in.Count(9), 0u);
  EXPECT_FALSE(in.ok());
}

TEST(Bytes, RefuseAnythingAfterTheEnd) {
  ByteReader in(AsBytes("x"));
  in.ExpectEnd();
  EXPECT_FALSE(in.ok());
}

TEST(Bytes, PatchWhatIsKnownLater) {
  std::string data;
  ByteWriter out(&data);
  out.U32(0);
  out.U64(0);
  out.PatchU32(0, 7);
  out.PatchU64(4, 9);
  ByteReader in(AsBytes(data));
  EXPECT_EQ(in.U32(), 7u);
  EXPECT_EQ(in.U64(), 9u);
}

TEST(Utf8Test, IsToldFromOtherBytes) {
  EXPECT_TRUE(IsUtf8("serving_default_input:0"));
  EXPECT_TRUE(IsUtf8("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"));
  EXPECT_FALSE(IsUtf8("\xff"));
  EXPECT_FALSE(IsUtf8("\xc3"));
  EXPECT_FALSE(IsUtf8("\xc0\x80"));
  EXPECT_FALSE(IsUtf8("\xed\xa0\x80"));
  EXPECT_FALSE(IsUtf8("\xf4\x90\x80\x80"));
  EXPECT_FALSE(IsUtf8("\xe2\x28\xa1"));
}

}  // namespace
}  // namespace stampmill
