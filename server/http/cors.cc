#include "server/http/cors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stampmill {
namespace {

// What scripts may read beside what they always may.
constexpr char kExposedHeaders[] =
    "Inference-Header-Content-Length, Retry-After, endpoint-load-metrics";

bool IsOrigin(absl::string_view text) {
  const size_t colon = text.find("://");
  if (colon == 0 || colon == text.npos) return false;
  const absl::string_view host = text.substr(colon + 3);
  return !host.empty() && std::ranges::none_of(text, [](char c) {
    return absl::ascii_isspace(static_cast<unsigned char>(c)) ||
           absl::ascii_iscntrl(static_cast<unsigned char>(c)) || c == '*';
  }) && host.find_first_of("/?#@") == host.npos;
}

}  // namespace

absl::StatusOr<CorsPolicy> CorsPolicy::Parse(absl::string_view list) {
  CorsPolicy policy;
  for (absl::string_view each : absl::StrSplit(list, ',')) {
    each = absl::StripAsciiWhitespace(each);
    if (each == "*") {
      policy.all_ = true;
    } else if (IsOrigin(each)) {
      policy.origins_.push_back(absl::AsciiStrToLower(each));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--allowed-origins: got '", each, "', want scheme://host[:port] or *"));
    }
  }
  if (policy.all_ && !policy.origins_.empty()) {
    return absl::InvalidArgumentError("--allowed-origins: got * beside others, want it alone");
  }
  return policy;
}

bool CorsPolicy::Allows(absl::string_view origin) const {
  return all_ || std::ranges::find(origins_, absl::AsciiStrToLower(origin)) != origins_.end();
}

bool CorsPolicy::Handle(const HttpRequest& request, HttpReply& reply) const {
  if (!all_ && origins_.empty()) return false;
  // Also where there is no origin: who keeps answers must not give this one to another page.
  if (!all_) reply.AddHeader("Vary", "Origin");
  const absl::string_view origin = request.Header("origin");
  if (origin.empty()) return false;
  const bool asks =
      request.method == "OPTIONS" && request.HasHeader("access-control-request-method");
  if (!Allows(origin)) {
    // A request itself is answered as one without a browser is, but the page does not see it.
    if (!asks) return false;
    HttpAnswer refusal;
    refusal.status = 403;
    refusal.body = R"({"error":"this origin is none of --allowed-origins"})";
    reply.Send(std::move(refusal));
    return true;
  }
  reply.AddHeader("Access-Control-Allow-Origin", all_ ? "*" : std::string(origin));
  if (!all_) reply.AddHeader("Access-Control-Allow-Credentials", "true");
  if (!asks) {
    reply.AddHeader("Access-Control-Expose-Headers", kExposedHeaders);
    return false;
  }
  reply.AddHeader("Access-Control-Allow-Methods", "GET, POST, HEAD, OPTIONS");
  const absl::string_view headers = request.Header("access-control-request-headers");
  if (!headers.empty()) reply.AddHeader("Access-Control-Allow-Headers", std::string(headers));
  reply.AddHeader("Access-Control-Max-Age", "600");
  HttpAnswer answer;
  answer.content_type = "text/plain";
  reply.Send(std::move(answer));
  return true;
}

}  // namespace stampmill
