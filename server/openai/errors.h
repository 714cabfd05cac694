// Errors as the OpenAI API tells them: a message, a type, the parameter that is to blame, a code.
// Within the daemon they are absl::Status; parameter and code travel as payloads.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stampmill {

// INVALID_ARGUMENT `param: message`. `param` is the path of the field, as "messages[2].role".
absl::Status FieldError(absl::string_view param, absl::string_view message);
// INVALID_ARGUMENT with code "unsupported_parameter": known, and not offered here.
absl::Status UnsupportedField(absl::string_view param, absl::string_view message);
// INVALID_ARGUMENT with code "context_length_exceeded".
absl::Status ContextTooLong(absl::string_view param, absl::string_view message);
// UNAVAILABLE with code "not_ready", 503: models are being loaded.
absl::Status NotReady(absl::string_view message);

struct ApiError {
  int status = 500;  // of HTTP
  std::string message;
  std::string type;   // "invalid_request_error", "server_error", ...
  std::string param;  // empty: null
  std::string code;   // empty: null
};

// REQUIRES: !status.ok().
ApiError ToApiError(const absl::Status& status);

}  // namespace stampmill
