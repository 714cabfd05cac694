// HttpService: the routes of KServe v2 over HTTP (health, metadata, configuration, inference,
// statistics, repository, shared memory) and /metrics.
#pragma once

#include <functional>
#include <string>

#include "server/http/http_server.h"
#include "server/serving.h"

namespace stampmill {

// Thread-safe; outlives the HttpServer that calls it.
class HttpService {
 public:
  // `metrics` gives the text of /metrics. Borrows `serving`.
  HttpService(const Serving& serving, std::function<std::string()> metrics);

  // The handler of an HttpServer.
  void Handle(HttpRequest request, HttpReply reply) const;

 private:
  const Serving& serving_;
  const std::function<std::string()> metrics_;
};

// "%2F" and the like decoded; INVALID_ARGUMENT for a broken escape or a NUL.
absl::StatusOr<std::string> PercentDecode(absl::string_view text);

}  // namespace stampmill
