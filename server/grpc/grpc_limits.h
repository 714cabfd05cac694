// Bounds of the gRPC side, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stampmill {

// Requests of one stream being answered; more wait in the client.
inline constexpr int kGrpcStreamRequestsMax = 64;
// Bytes that one stream holds before no more of it is read: what a client that does not read its
// answers can pin, beside one exchange of any size.
inline constexpr size_t kGrpcStreamBytesMax = size_t{1} << 20;
// Calls of one connection at once. A client library multiplexes all its calls over one connection.
inline constexpr int kGrpcCallsPerConnectionMax = 1024;
// All headers of one call.
inline constexpr int kGrpcMetadataBytesMax = 64 << 10;
// A client takes an answer within this and the time that its bytes need at the rate below, else the
// call is cancelled: what is not taken keeps its outputs' memory.
inline constexpr int64_t kGrpcAnswerNanos = 60'000'000'000;
inline constexpr int64_t kGrpcAnswerBytesPerSecondMin = 256 << 10;
// A connection whose client acknowledges nothing of what was sent for this long is reset.
inline constexpr int kGrpcUnackedMillis = 60'000;
// When the server stops, calls are refused with a word why until none came for this long,
inline constexpr int64_t kGrpcQuietNanos = 50'000'000;
// and for this long at most; what comes later is cut off by gRPC.
inline constexpr int64_t kGrpcRefuseNanos = 300'000'000;
// How often the accept thread looks at connections and readiness.
inline constexpr int64_t kGrpcSweepNanos = 200'000'000;
// And, while no descriptor is free, at who waits to be refused.
inline constexpr int64_t kGrpcAcceptRetryNanos = 20'000'000;
// How often the log says so meanwhile.
inline constexpr int64_t kGrpcDescriptorWarningNanos = 60'000'000'000;

}  // namespace stampmill
