// Any packet from the other side of the socket: refused, or taken apart without harm.
#include <sys/socket.h>

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "compiler/worker/protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;
  int ends[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor ours(ends[0]), theirs(ends[1]);
  if (size > 2 * kFrameBytesMax || send(theirs.get(), data, size, 0) < 0) return 0;
  const auto received = ReceiveFrame(ours, /*wait=*/true);
  if (!received.ok()) return 0;
  const Frame* frame = &**received;
  if (const auto line = frame->Line(); line.ok()) {
    CHECK_OK(SendFrame(ours, FrameKind::kProgress, LinePayload(*line), theirs.get()));
  }
  if (const auto digest = frame->ObjectDigest(); digest.ok()) {
    CHECK(ObjectPayload(*digest) == frame->payload);
  }
  const std::span<const std::byte> payload = AsBytes(frame->payload);
  if (const auto request = WorkerRequest::Parse(payload); request.ok()) {
    CHECK(WorkerRequest::Parse(AsBytes(request->Serialize())).ok());
  }
  if (const auto result = WorkerResult::Parse(payload); result.ok()) {
    CHECK(WorkerResult::Parse(AsBytes(result->Serialize())).ok());
  }
  return 0;
}
