// Bounds of the gRPC side, each with its reason.
#pragma once

#include <cstdint>

namespace stampmill {

// Requests of one stream being answered; more wait in the client.
inline constexpr int kGrpcStreamRequestsMax = 64;
// Calls of one connection at once. A client library multiplexes all its calls over one connection.
inline constexpr int kGrpcCallsPerConnectionMax = 1024;
// All headers of one call.
inline constexpr int kGrpcMetadataBytesMax = 64 << 10;
// How often the accept thread looks at connections, readiness and a full descriptor table.
inline constexpr int64_t kGrpcSweepNanos = 200'000'000;

}  // namespace stampmill
