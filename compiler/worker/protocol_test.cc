#include "compiler/worker/protocol.h"

#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "base/bytes.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

struct SocketPair {
  SocketPair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    a = FileDescriptor(ends[0]);
    b = FileDescriptor(ends[1]);
  }
  FileDescriptor a, b;
};

TEST(WorkerProtocolTest, MessagesAreTheSameAfterTheWire) {
  const WorkerRequest request = {.model_path = "/m/a.onnx",
                                 .target = "cpu:x86-64",
                                 .options = "fuse=0",
                                 .threads = 3,
                                 .cache_directory = "/c",
                                 .cache_is_default = true,
                                 .cache_writable = false,
                                 .memory_limit_bytes = 1 << 30};
  const auto parsed = WorkerRequest::Parse(AsBytes(request.Serialize()));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->Serialize(), request.Serialize());
  EXPECT_TRUE(parsed->cache_is_default);
  EXPECT_FALSE(parsed->cache_writable);

  const WorkerResult result = {.status = absl::NotFoundError("x"), .kernels_compiled = 5};
  const auto back = WorkerResult::Parse(AsBytes(result.Serialize()));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->status, result.status);
  EXPECT_EQ(back->kernels_compiled, 5);
  std::string unknown_code = result.Serialize();
  unknown_code[0] = 99;
  EXPECT_FALSE(WorkerResult::Parse(AsBytes(unknown_code)).ok());
}

TEST(WorkerProtocolTest, FramesCarryFiles) {
  SocketPair pair;
  const FileDescriptor file = *CreateMemfd("x", 123);
  ASSERT_TRUE(SendFrame(pair.a, FrameKind::kObject, ObjectPayload(Digest{}), file.get()).ok());
  ASSERT_TRUE(SendFrame(pair.a, FrameKind::kProgress, LinePayload("line"), -1).ok());
  auto first = ReceiveFrame(pair.b, true);
  ASSERT_TRUE(first.ok() && first->has_value());
  EXPECT_EQ(*FileSize((*first)->file), 123u);
  EXPECT_TRUE((*first)->ObjectDigest().ok());
  auto second = ReceiveFrame(pair.b, false);
  ASSERT_TRUE(second.ok() && second->has_value());
  EXPECT_FALSE((*second)->file.valid());
  EXPECT_EQ(*(*second)->Line(), "line");
  EXPECT_FALSE(ReceiveFrame(pair.b, false)->has_value());
}

TEST(WorkerProtocolTest, TheOtherSidesEndIsNoticed) {
  SocketPair pair;
  pair.a.Close();
  EXPECT_EQ(ReceiveFrame(pair.b, true).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(SendFrame(pair.b, FrameKind::kModel, "", -1).code(), absl::StatusCode::kUnavailable);
}

TEST(WorkerProtocolTest, FramesHaveALimit) {
  SocketPair pair;
  EXPECT_EQ(SendFrame(pair.a, FrameKind::kModel, std::string(kFrameBytesMax, 'x'), -1).code(),
            absl::StatusCode::kInvalidArgument);
  const std::string long_line(kFrameBytesMax * 2, 'x');
  EXPECT_TRUE(SendFrame(pair.a, FrameKind::kProgress, LinePayload(long_line), -1).ok());
  const std::string packet(kFrameBytesMax + 100, '\2');
  ASSERT_GT(send(pair.b.get(), packet.data(), packet.size(), 0), 0);
  EXPECT_EQ(ReceiveFrame(pair.a, true).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(ParseFrame({}).ok());
}

}  // namespace
}  // namespace stampmill
