// Bytes of a client through a real connection: whatever comes, the server closes it in the end,
// answers the next client and stops.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "server/byte_budget.h"
#include "server/http/http_server.h"
#include "server/testing/http_client.h"

namespace stampmill {
namespace {

// Answers with what it got; /slice from memory of its own, /stream in pieces, /dropped not at all,
// /broken in the middle of a stream.
void Handle(HttpRequest request, HttpReply reply) {
  reply.OnAbandon([] {});
  if (request.path == "/dropped") return;
  if (request.path == "/stream" || request.path == "/broken") {
    reply.BeginStream({.content_type = "text/event-stream"});
    for (const char& c : request.body) reply.Write(absl::string_view(&c, 1));
    if (request.path == "/stream") reply.EndStream();
    return;
  }
  HttpAnswer answer;
  answer.compressible = true;
  answer.body = absl::StrCat(request.path, request.query);
  if (request.path == "/slice") {
    const auto owner = std::make_shared<std::string>(std::move(request.body));
    answer.slices.push_back({.bytes = std::as_bytes(std::span(*owner)), .owner = owner});
  } else {
    answer.body += request.body;
  }
  reply.Send(std::move(answer));
}

}  // namespace
}  // namespace stampmill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;  // NOLINT
  ByteBudget budget(32 << 10);
  auto server =
      HttpServer::Start({.threads = 1, .body_bytes_max = 64 << 10, .budget = &budget}, Handle);
  CHECK_OK(server);
  HttpClient client((*server)->port());
  client.Send(absl::string_view(reinterpret_cast<const char*>(data), size));
  client.EndOfStream();
  client.ReadEnd();
  HttpClient next((*server)->port());
  CHECK(next.Get("/")->status == 200);
  server->reset();
  CHECK_EQ(budget.used_bytes(), 0u);
  return 0;
}
