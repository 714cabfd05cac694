#include "server/http/cors.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "server/testing/http_client.h"

namespace stampmill {
namespace {

constexpr char kAsks[] =
    "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type,x-a\r\n";

// A server that says OK to everything.
class CorsTest : public testing::Test {
 protected:
  void Start(absl::string_view origins) {
    auto policy = CorsPolicy::Parse(origins);
    CHECK_OK(policy);
    Start(*std::move(policy));
  }
  void Start(CorsPolicy policy) {
    auto made = HttpServer::Start(
        {}, [policy = std::move(policy)](const HttpRequest& request, HttpReply reply) {
          if (policy.Handle(request, reply)) return;
          HttpAnswer answer;
          if (request.path == "/stream") {
            reply.BeginStream(std::move(answer));
            reply.Write("OK");
            return reply.EndStream();
          }
          if (request.path == "/later") return reply.SendLater([] { return HttpAnswer(); });
          reply.Send(std::move(answer));
        });
    CHECK_OK(made);
    server_ = *std::move(made);
  }

  HttpResponse Ask(absl::string_view method, absl::string_view origin, absl::string_view more = "",
                   absl::string_view path = "/") {
    HttpClient client(server_->port());
    client.Send(absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: x\r\nOrigin: ", origin, "\r\n",
                             more, "\r\n"));
    std::optional<HttpResponse> response = client.Read();
    CHECK(response.has_value());
    return *std::move(response);
  }

  std::unique_ptr<HttpServer> server_;
};

std::string Header(const HttpResponse& response, const std::string& name) {
  const auto found = response.headers.find(name);
  return found == response.headers.end() ? "none" : found->second;
}

TEST_F(CorsTest, NobodyIsAllowedUnlessToldSo) {
  Start(CorsPolicy());
  const HttpResponse response = Ask("OPTIONS", "https://a.example", kAsks);
  EXPECT_EQ(Header(response, "access-control-allow-origin"), "none");
  EXPECT_EQ(Header(response, "vary"), "none");
}

TEST_F(CorsTest, AListedOriginIsToldSoWithItsCredentials) {
  Start("https://a.example, http://localhost:3000");
  for (const char* path : {"/", "/stream", "/later"}) {
    const HttpResponse response = Ask("GET", "http://localhost:3000", "", path);
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(Header(response, "access-control-allow-origin"), "http://localhost:3000") << path;
    EXPECT_EQ(Header(response, "access-control-allow-credentials"), "true");
    EXPECT_EQ(Header(response, "vary"), "Origin");
  }
}

TEST_F(CorsTest, APreflightIsAnsweredBeforeTheHandler) {
  Start("https://a.example");
  const HttpResponse response = Ask("OPTIONS", "https://a.example", kAsks);
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(Header(response, "access-control-allow-headers"), "content-type,x-a");
  EXPECT_EQ(Header(response, "access-control-allow-methods"), "GET, POST, HEAD, OPTIONS");
  EXPECT_EQ(Header(response, "access-control-max-age"), "600");
}

TEST_F(CorsTest, OtherOriginsAreRefusedBeforehandAndElseNotToldOf) {
  Start("https://a.example");
  EXPECT_EQ(Ask("OPTIONS", "https://a.example.evil", kAsks).status, 403);
  const HttpResponse response = Ask("GET", "https://evil.example");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(Header(response, "access-control-allow-origin"), "none");
  // So that no cache gives this answer to a page that may see it.
  EXPECT_EQ(Header(response, "vary"), "Origin");
}

TEST_F(CorsTest, AStarAllowsAllWithoutCredentials) {
  Start("*");
  const HttpResponse response = Ask("GET", "https://any.example");
  EXPECT_EQ(Header(response, "access-control-allow-origin"), "*");
  EXPECT_EQ(Header(response, "access-control-allow-credentials"), "none");
  EXPECT_EQ(Ask("OPTIONS", "null", kAsks).status, 200);
}

TEST(CorsPolicyTest, WhatIsNoOriginIsRefused) {
  for (const char* list : {"", "a.example", "https://a.example/path", "https://", "*,https://a",
                           "https://*.example", "https://a b", "https://a,,https://b"}) {
    EXPECT_FALSE(CorsPolicy::Parse(list).ok()) << list;
  }
  EXPECT_TRUE(CorsPolicy::Parse("http://[::1]:80").ok());
}

}  // namespace
}  // namespace stampmill
