// Bounds of the HTTP side, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stampmill {

// Request line and headers. Clients send below 2 KiB; proxies add a few more.
inline constexpr uint32_t kHttpHeadBytesMax = 64 << 10;
// Requests of one connection being answered: more wait in the client's socket.
inline constexpr size_t kHttpPipelineMax = 16;
// Answers of one connection that wait for the client to read: no further request of it is begun
// beyond this. A single answer may be larger.
inline constexpr size_t kHttpUnreadBytesMax = 64 << 10;
// What one stream holds for a client that does not read: about a thousand tokens' events. Beyond it
// the client is given up; a producer holds itself up before (HttpReply::OnDrained).
inline constexpr size_t kHttpStreamQueuedBytesMax = 256 << 10;
// One read from a socket; large bodies come in pieces of this size.
inline constexpr size_t kHttpReadBytes = 256 << 10;
// Where no large body is expected.
inline constexpr size_t kHttpSmallReadBytes = 8 << 10;
// Bytes kept of a client whose next request may not begin yet.
inline constexpr size_t kHttpWaitingBytesMax = 16 << 10;
// From the first byte of a head to its end.
inline constexpr int32_t kHttpHeadSeconds = 30;
// Answers below this are sent as they are: compressing costs more than the bytes.
inline constexpr size_t kHttpCompressBytesMin = 512;

// While no descriptor is free, the log says so this often.
inline constexpr int64_t kHttpDescriptorWarningNanos = 60'000'000'000;

}  // namespace stampmill
