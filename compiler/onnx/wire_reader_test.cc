#include "compiler/onnx/wire_reader.h"

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "compiler/onnx/testing/model_writer.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

TEST(WireReaderTest, ReadsFieldsInOrder) {
  const std::string inner = ProtoWriter().Int(1, -5).bytes();
  const std::string bytes =
      ProtoWriter().Int(1, 300).Float(2, 1.5f).Bytes(3, "name").Bytes(4, inner).bytes();
  WireReader in(AsBytes(bytes), "model");
  ASSERT_TRUE(in.Next());
  EXPECT_EQ(in.field(), 1);
  EXPECT_EQ(in.Int(), 300);
  ASSERT_TRUE(in.Next());
  EXPECT_EQ(in.Float(), 1.5f);
  ASSERT_TRUE(in.Next());
  EXPECT_EQ(in.Text(), "name");
  EXPECT_EQ(in.Text().data(), bytes.data() + bytes.find("name"));  // a view
  ASSERT_TRUE(in.Next());
  WireReader nested(in, "graph");
  ASSERT_TRUE(nested.Next());
  EXPECT_EQ(nested.Int(), -5);
  EXPECT_FALSE(nested.Next());
  EXPECT_FALSE(in.Next());
  EXPECT_TRUE(in.status().ok() && nested.status().ok());
}

TEST(WireReaderTest, ErrorsHaveAPathAndAPlace) {
  const std::string node = ProtoWriter().Int(4, 7).bytes();
  const std::string bytes = ProtoWriter().Bytes(7, ProtoWriter().Bytes(1, node).bytes()).bytes();
  WireReader model(AsBytes(bytes), "model");
  ASSERT_TRUE(model.Next());
  WireReader graph(model, "graph");
  ASSERT_TRUE(graph.Next());
  WireReader reader(graph, "node", 12);
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.Text(), "");
  EXPECT_EQ(reader.status().message(), "model.graph.node[12]: at byte 6: field 4 has wire type 0");
  EXPECT_FALSE(reader.Next());
  EXPECT_FALSE(graph.Adopt(reader.status()));
  EXPECT_FALSE(graph.Next());
}

TEST(WireReaderTest, DamagedFramesAreRefused) {
  const auto message_of = [](const std::string& bytes) {
    WireReader in(AsBytes(bytes), "m");
    while (in.Next()) {
    }
    return std::string(in.status().message());
  };
  EXPECT_EQ(message_of(std::string("\x08", 1)), "m: at byte 0: field 1: damaged varint");
  EXPECT_EQ(message_of(std::string("\x0a\x05"
                                   "abc",
                                   5)),
            "m: at byte 0: field 1: 5 bytes, 3 left: cut short");
  EXPECT_EQ(message_of(std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11)),
            "m: at byte 0: field 1: 18446744073709551615 bytes, 0 left: cut short");
  EXPECT_EQ(message_of(std::string("\x0d\x01\x02", 3)),
            "m: at byte 0: field 1: 4 bytes, 2 left: cut short");
  EXPECT_EQ(message_of(std::string("\x0b", 1)), "m: at byte 0: field 1 has wire type 3");
  EXPECT_EQ(message_of(std::string("\x00\x01", 2)), "m: at byte 0: damaged tag");
  EXPECT_EQ(message_of(std::string("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12)),
            "m: at byte 0: field 1: damaged varint");
  EXPECT_EQ(message_of(""), "");
}

TEST(WireReaderTest, PackedAndSingleNumbersReadAlike) {
  const std::string packed = ProtoWriter().Bytes(1, std::string("\x01\xac\x02", 3)).bytes();
  const std::string single = ProtoWriter().Int(1, 1).Int(1, 300).bytes();
  for (const std::string& bytes : {packed, single}) {
    WireReader in(AsBytes(bytes), "m");
    std::vector<uint64_t> values;
    while (in.Next()) {
      EXPECT_TRUE(ForEachVarint(in.Packed(WireReader::Type::kVarint), [&](uint64_t value) {
        values.push_back(value);
        return true;
      }));
    }
    EXPECT_EQ(values, (std::vector<uint64_t>{1, 300}));
  }
  EXPECT_FALSE(ForEachVarint(AsBytes("\x01\x80"), [](uint64_t) { return true; }));
}

}  // namespace
}  // namespace stampmill
