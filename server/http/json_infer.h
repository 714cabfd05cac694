// The JSON forms of KServe v2 inference over HTTP, with the binary tensor extension: the request's
// header and data, and the answer.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/request.h"
#include "server/http/http_server.h"
#include "server/wire.h"

namespace stampmill {

// How each output is to be sent, parallel to Request::outputs.
struct OutputForm {
  bool binary = false;
  bool shared_memory = false;
};

// A parsed request. Owns what `wire` views, but for the body.
class JsonInference {
 public:
  // `body` outlives this. `json_bytes`: the length of the JSON part from the header
  // Inference-Header-Content-Length; -1: none was sent, the whole body is JSON; 0: a raw binary
  // request, the body is the one input's data. INVALID_ARGUMENT with Triton's texts, UNIMPLEMENTED
  // for what is asked and not offered (classification). The model's signature gives the dtype of
  // JSON data and the shape of raw requests.
  static absl::StatusOr<std::unique_ptr<JsonInference>> Parse(absl::string_view body,
                                                              int64_t json_bytes,
                                                              const ServedModel& model);
  ~JsonInference();

  const WireInference& wire() const { return wire_; }
  // For request.outputs after the request ran.
  OutputForm FormOf(absl::string_view output) const;

 private:
  struct Document;
  JsonInference();
  absl::Status ParseJson(absl::string_view json, absl::string_view binary,
                         const ServedModel& model);
  absl::Status ParseParameters(const boost::json::value& parameters);
  absl::Status ParseInputs(const boost::json::value& inputs, absl::string_view binary,
                           const ServedModel& model);
  absl::Status ParseOutputs(const boost::json::value& outputs);
  absl::Status ParseRaw(absl::string_view body, const ServedModel& model);

  std::unique_ptr<Document> document_;
  WireInference wire_;
  std::vector<std::string> decoded_;  // JSON data as tensor bytes
  std::vector<std::pair<std::string, OutputForm>> forms_;
  bool binary_default_ = false;
};

// The answer to a request that ended well: outputs as JSON, or binary after it. Slices keep
// `owner`.
HttpAnswer AnswerInference(const Request& request, const JsonInference& inference,
                           const std::shared_ptr<const void>& owner);

// Header "Inference-Header-Content-Length" against the body's size: as Parse's json_bytes.
absl::StatusOr<int64_t> ParseHeaderLength(const HttpRequest& request);

// {"error": message}
std::string ErrorJson(absl::string_view message);
// HTTP status of a Status.
int HttpStatus(const absl::Status& status);

}  // namespace stampmill
