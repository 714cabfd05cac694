#include "server/openai/errors.h"

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace stampmill {
namespace {

constexpr char kParam[] = "stampmill/param";
constexpr char kCode[] = "stampmill/code";
constexpr char kNotReadyCode[] = "not_ready";

absl::Status WithParam(absl::string_view param, absl::string_view message, absl::string_view code) {
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(param, ": ", message));
  status.SetPayload(kParam, absl::Cord(param));
  status.SetPayload(kCode, absl::Cord(code));
  return status;
}

std::string Payload(const absl::Status& status, absl::string_view url) {
  // The distribution's absl has an optional of its own.
  const auto payload = status.GetPayload(url);
  return payload.has_value() ? std::string(*payload) : "";
}

}  // namespace

absl::Status FieldError(absl::string_view param, absl::string_view message) {
  return WithParam(param, message, "invalid_value");
}

absl::Status UnsupportedField(absl::string_view param, absl::string_view message) {
  return WithParam(param, message, "unsupported_parameter");
}

absl::Status ContextTooLong(absl::string_view param, absl::string_view message) {
  return WithParam(param, message, "context_length_exceeded");
}

absl::Status NotReady(absl::string_view message) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kCode, absl::Cord(kNotReadyCode));
  return status;
}

ApiError ToApiError(const absl::Status& status) {
  ApiError error = {.message = std::string(status.message()),
                    .param = Payload(status, kParam),
                    .code = Payload(status, kCode)};
  const auto set = [&](int http_status, absl::string_view type, absl::string_view code) {
    error.status = http_status;
    error.type = std::string(type);
    if (error.code.empty()) error.code = std::string(code);
  };
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      set(400, "invalid_request_error", "");
      break;
    case absl::StatusCode::kNotFound:
      set(404, "invalid_request_error", "not_found");
      break;
    case absl::StatusCode::kUnimplemented:
      set(501, "not_supported_error", "not_supported");
      break;
    case absl::StatusCode::kUnavailable:
      if (error.code == kNotReadyCode) {
        set(503, "unavailable_error", kNotReadyCode);
        break;
      }
      [[fallthrough]];
    case absl::StatusCode::kResourceExhausted:
      set(429, "rate_limit_error", "rate_limit_exceeded");
      break;
    case absl::StatusCode::kDeadlineExceeded:
      set(503, "timeout_error", "timeout");
      break;
    default:
      set(500, "server_error", "internal_error");
  }
  return error;
}

}  // namespace stampmill
