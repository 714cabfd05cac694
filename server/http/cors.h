// CorsPolicy: which web pages of other origins may use the daemon from a browser (the fetch
// standard's CORS protocol, --allowed-origins). Nobody may unless told so: the daemon listens
// beside whatever else runs on the machine, and any page could use it else.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/http/http_server.h"

namespace stampmill {

// Immutable.
class CorsPolicy {
 public:
  // Allows nobody.
  CorsPolicy() = default;
  // A comma-separated list of origins (scheme://host[:port]), or "*" alone for all. What is listed
  // may also send cookies and other credentials; with "*" browsers allow none. INVALID_ARGUMENT
  // names what is no origin.
  static absl::StatusOr<CorsPolicy> Parse(absl::string_view list);

  // Gives the answer of a request its headers. True: it was the question beforehand (a preflight),
  // and is answered.
  bool Handle(const HttpRequest& request, HttpReply& reply) const;

 private:
  bool Allows(absl::string_view origin) const;

  bool all_ = false;
  std::vector<std::string> origins_;  // lower case
};

}  // namespace stampmill
