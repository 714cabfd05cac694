// Bytes of a client through a real connection: whatever comes, the server closes it in the end and
// answers the next client.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "server/http_server.h"
#include "server/testing/http_client.h"

namespace stampmill {
namespace {

HttpServer& Server() {
  static HttpServer* const server = [] {
    auto made = HttpServer::Start({.threads = 1, .body_bytes_max = 1 << 16},
                                  [](HttpRequest request, HttpReply reply) {
                                    HttpAnswer answer;
                                    answer.body = request.path + request.query + request.body;
                                    answer.compressible = true;
                                    reply.Send(std::move(answer));
                                  });
    CHECK_OK(made);
    return made->release();
  }();
  return *server;
}

}  // namespace
}  // namespace stampmill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;  // NOLINT
  HttpClient client(Server().port());
  client.Send(absl::string_view(reinterpret_cast<const char*>(data), size));
  client.EndOfStream();
  client.ReadEnd();
  HttpClient next(Server().port());
  CHECK(next.Get("/")->status == 200);
  return 0;
}
