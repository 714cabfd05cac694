// Any packet from the other side: refused, or taken apart without harm.
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "compiler/worker/protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;
  const auto frame = ParseFrame(std::as_bytes(std::span(data, size)));
  if (!frame.ok()) return 0;
  frame->ProgressLine().status().IgnoreError();
  frame->ObjectDigest().status().IgnoreError();
  const std::span<const std::byte> payload = AsBytes(frame->payload);
  if (const auto request = WorkerRequest::Parse(payload); request.ok()) {
    CHECK(WorkerRequest::Parse(AsBytes(request->Serialize())).ok());
  }
  if (const auto result = WorkerResult::Parse(payload); result.ok()) {
    CHECK(WorkerResult::Parse(AsBytes(result->Serialize())).ok());
  }
  return 0;
}
