// The answers that both protocols give about the server and its models, as messages of the schema;
// the HTTP side prints them as JSON.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/grpc_service.pb.h"
#include "server/serving.h"

namespace stampmill {

inline constexpr char kServerName[] = "stampmill";
inline constexpr char kServerVersion[] = "0.1.0";

inference::ServerMetadataResponse ServerMetadata();
// NOT_FOUND and UNAVAILABLE as ModelRepository::Pin, INVALID_ARGUMENT for a bad version.
absl::StatusOr<inference::ModelMetadataResponse> ModelMetadata(const Serving& serving,
                                                               absl::string_view model,
                                                               absl::string_view version);
absl::StatusOr<inference::ModelConfigResponse> ModelConfiguration(const Serving& serving,
                                                                  absl::string_view model,
                                                                  absl::string_view version);
// Empty `model`: all. INVALID_ARGUMENT for models that are not known or not ready, as Triton says
// it.
absl::StatusOr<inference::ModelStatisticsResponse> ModelStatisticsOf(const Serving& serving,
                                                                     absl::string_view model,
                                                                     absl::string_view version);
// Whether it can be asked now. INVALID_ARGUMENT for a bad version.
absl::StatusOr<bool> IsModelReady(const Serving& serving, absl::string_view model,
                                  absl::string_view version);
inference::RepositoryIndexResponse RepositoryIndex(const Serving& serving, bool ready_only);
absl::StatusOr<inference::SystemSharedMemoryStatusResponse> SharedMemoryStatus(
    const Serving& serving, absl::string_view region);

// What is not offered (decision: answer UNIMPLEMENTED, advertise nothing).
absl::Status CudaSharedMemoryUnsupported();
absl::Status TraceUnsupported();
absl::Status LoggingUnsupported();

}  // namespace stampmill
