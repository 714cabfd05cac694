#include "server/http/http_server.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "base/log.h"
#include "gtest/gtest.h"
#include "server/http/compression.h"
#include "server/testing/http_client.h"

namespace stampmill {
namespace {

HttpAnswer TextAnswer(std::string body) {
  HttpAnswer answer;
  answer.content_type = "text/plain";
  answer.body = std::move(body);
  return answer;
}

// Answers with the method, path, query and body; "/held" waits until Release.
class HttpServerTest : public testing::Test {
 protected:
  void Start(HttpServerOptions options = {}) {
    auto made = HttpServer::Start(options, [this](HttpRequest request, HttpReply reply) {
      Handle(std::move(request), std::move(reply));
    });
    CHECK_OK(made);
    server_ = *std::move(made);
  }
  ~HttpServerTest() override { Stop(); }

  void Stop() {
    server_.reset();
    Release();
  }

  void Release() {
    std::deque<HttpReply> held;
    {
      const absl::MutexLock lock(&mutex_);
      held.swap(held_);
    }
    for (HttpReply& reply : held) reply.Send(TextAnswer("released"));
  }
  // Blocks until `count` requests are held.
  void WaitForHeld(size_t count) {
    const absl::MutexLock lock(&mutex_);
    const auto enough = [&]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return held_.size() >= count; };
    mutex_.Await(absl::Condition(&enough));
  }
  void WaitForAbandoned(int count) {
    const absl::MutexLock lock(&mutex_);
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return abandoned_ >= count; };
    mutex_.Await(absl::Condition(&enough));
  }
  uint16_t port() const { return server_->port(); }
  // The handler never sees it, the client is told, and the connection ends.
  void ExpectRefused(absl::string_view bytes, int status) {
    const int handled = handled_.load();
    HttpClient client(port());
    ASSERT_TRUE(client.Send(bytes));
    const auto response = client.Read();
    ASSERT_TRUE(response.has_value()) << bytes;
    EXPECT_EQ(response->status, status) << bytes;
    EXPECT_EQ(response->headers.at("connection"), "close") << bytes;
    EXPECT_TRUE(client.ReadEnd()) << bytes;
    EXPECT_EQ(handled_.load(), handled) << bytes;
  }

  void Handle(HttpRequest request, HttpReply reply) {
    handled_.fetch_add(1);
    if (request.path == "/held") {
      reply.OnAbandon([this] {
        const absl::MutexLock lock(&mutex_);
        ++abandoned_;
      });
      const absl::MutexLock lock(&mutex_);
      held_.push_back(std::move(reply));
      return;
    }
    if (request.path == "/large") {
      HttpAnswer answer = TextAnswer("");
      auto owner = std::make_shared<std::string>(8 << 20, 'x');
      answer.slices.push_back({std::as_bytes(std::span(*owner)), owner});
      reply.Send(std::move(answer));
      return;
    }
    if (request.path == "/drop") return;
    if (request.path == "/long") {
      std::string text;
      while (text.size() < 80'000) absl::StrAppend(&text, request.body, ";");
      reply.SendLater([text] { return TextAnswer(text); });
      return;
    }
    HttpAnswer answer = TextAnswer(
        absl::StrCat(request.method, " ", request.path, " ", request.query, " ", request.body));
    answer.compressible = true;
    reply.Send(std::move(answer));
  }

  absl::Mutex mutex_;
  std::deque<HttpReply> held_ ABSL_GUARDED_BY(mutex_);
  int abandoned_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<int> handled_{0};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersOnOneConnectionAgainAndAgain) {
  Start();
  HttpClient client(port());
  EXPECT_EQ(client.Get("/a?x=1")->body, "GET /a x=1 ");
  EXPECT_EQ(client.Post("/b", "hello")->body, "POST /b  hello");
  EXPECT_EQ(client.Get("/c")->status, 200);
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInTheirOrder) {
  Start();
  HttpClient client(port());
  std::string bytes = "GET /held HTTP/1.1\r\nHost: t\r\n\r\n";
  for (int i = 0; i < 40; ++i) absl::StrAppend(&bytes, "GET /", i, " HTTP/1.1\r\nHost: t\r\n\r\n");
  ASSERT_TRUE(client.Send(bytes));
  WaitForHeld(1);
  Release();
  EXPECT_EQ(client.Read()->body, "released");
  for (int i = 0; i < 40; ++i) EXPECT_EQ(client.Read()->body, absl::StrCat("GET /", i, "  "));
}

// A read waits for the next request while answers wait for the client; when one is written, what
// had come before is parsed under that read.
TEST_F(HttpServerTest, KeepsPipelinedRequestsApartWhileAnswersWait) {
  Start();
  for (int round = 0; round < 20; ++round) {
    HttpClient client(port(), 4096);
    std::string bytes;
    std::vector<std::string> expected;
    for (int i = 0; i < 12; ++i) {
      const std::string body(static_cast<size_t>(100 + 37 * i), static_cast<char>('a' + i));
      absl::StrAppend(&bytes, "POST /long HTTP/1.1\r\nHost: t\r\nContent-Length: ", body.size(),
                      "\r\n\r\n", body);
      expected.push_back(body);
    }
    size_t sent = 0;
    for (const std::string& body : expected) {
      const size_t piece = std::min(bytes.size() - sent, static_cast<size_t>(1300 + 91 * round));
      ASSERT_TRUE(client.Send(bytes.substr(sent, piece)));
      sent += piece;
      const auto response = client.Read();
      ASSERT_TRUE(response.has_value()) << body;
      ASSERT_EQ(response->status, 200) << response->body;
      ASSERT_EQ(response->body.substr(0, body.size() + 1), body + ";");
    }
    // What did not fit into the rounds above.
    ASSERT_EQ(sent, bytes.size());
  }
}

TEST_F(HttpServerTest, TakesChunksWithExtensionsAndTrailers) {
  Start();
  HttpClient client(port());
  ASSERT_TRUE(
      client.Send("POST /c HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "5;name=value\r\nhello\r\n6;q=\"a b\"\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n"
                  "GET /next HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_EQ(client.Read()->body, "POST /c  hello world");
  EXPECT_EQ(client.Read()->body, "GET /next  ");
}

TEST_F(HttpServerTest, TakesRequestsByteByByte) {
  Start();
  HttpClient client(port());
  for (const char c : std::string("POST /s HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nok")) {
    ASSERT_TRUE(client.Send(absl::string_view(&c, 1)));
  }
  EXPECT_EQ(client.Read()->body, "POST /s  ok");
}

TEST_F(HttpServerTest, SendsContinueWhenAsked) {
  Start();
  HttpClient client(port());
  ASSERT_TRUE(client.Send(
      "POST /e HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(client.Read()->status, 100);
  ASSERT_TRUE(client.Send("ok"));
  EXPECT_EQ(client.Read()->body, "POST /e  ok");
}

TEST_F(HttpServerTest, AnswersHeadWithoutABody) {
  Start();
  HttpClient client(port());
  ASSERT_TRUE(client.Send("HEAD /h HTTP/1.1\r\nHost: t\r\n\r\n"));
  const auto response = client.Read(/*no_body=*/true);
  EXPECT_EQ(response->headers.at("content-length"), "9");
  EXPECT_EQ(client.Get("/n")->body, "GET /n  ");
}

TEST_F(HttpServerTest, ClosesWhenTheClientAsks) {
  Start();
  HttpClient client(port());
  EXPECT_EQ(client.Get("/a", "Connection: close\r\n")->headers.at("connection"), "close");
  EXPECT_TRUE(client.ReadEnd());
  HttpClient old(port());
  ASSERT_TRUE(old.Send("GET /a HTTP/1.0\r\n\r\n"));
  EXPECT_EQ(old.Read()->status, 200);
  EXPECT_TRUE(old.ReadEnd());
}

TEST_F(HttpServerTest, RefusesWhatIsNotHttp) {
  Start();
  for (const char* bytes :
       {"\r\n\r\n\r\n\x16\x03\x01", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    ExpectRefused(bytes, 400);
  }
}

TEST_F(HttpServerTest, RefusesHeadsThatAProxyMightUnderstandInAnotherWay) {
  Start();
  for (const char* fields :
       {"", "Host: a\r\nHost: a\r\n", "Host: a b\r\n", "Host: u@a\r\n", "Host: a\r\nX: 1\r\n 2\r\n",
        "Host: a\r\nX:\r\n\t2\r\n",
        "Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Host: a\r\nTransfer-Encoding: gzip\r\nContent-Length: 5\r\n",
        "Host: a\r\nTransfer-Encoding: gzip\r\n", "Host: a\r\nTransfer-Encoding: chunked, gzip\r\n",
        "Host: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n"}) {
    ExpectRefused(absl::StrCat("POST / HTTP/1.1\r\n", fields, "\r\n0\r\n\r\n"), 400);
  }
  ExpectRefused("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
                501);
  ExpectRefused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400);
  HttpClient client(port());
  ASSERT_TRUE(
      client.Send("POST /a HTTP/1.1\r\nhOST: [::1]:80\r\nTransfer-Encoding: Chunked\r\n"
                  "\r\n1\r\nx\r\n0\r\n\r\n"));
  EXPECT_EQ(client.Read()->body, "POST /a  x");
}

TEST_F(HttpServerTest, RefusesWhatIsTooLarge) {
  Start({.body_bytes_max = 1000});
  HttpClient body(port());
  EXPECT_EQ(body.Post("/", std::string(1001, 'x'))->status, 413);
  HttpClient fits(port());
  EXPECT_EQ(fits.Post("/", std::string(1000, 'x'))->status, 200);
  HttpClient head(port());
  ASSERT_TRUE(
      head.Send(absl::StrCat("GET / HTTP/1.1\r\nHost: t\r\nX: ", std::string(70 << 10, 'x'))));
  EXPECT_EQ(head.Read()->status, 431);
}

TEST_F(HttpServerTest, BoundsTheBytesOfAllBodiesTogether) {
  ByteBudget budget(10'000);
  Start({.budget = &budget});
  HttpClient first(port());
  ASSERT_TRUE(first.Send(absl::StrCat(
      "POST /held HTTP/1.1\r\nHost: t\r\nContent-Length: 8000\r\n\r\n", std::string(8000, 'x'))));
  WaitForHeld(1);
  // The handler drops the request, and so its claim.
  while (budget.used_bytes() > 0) std::this_thread::yield();
  HttpClient half(port());
  ASSERT_TRUE(half.Send(absl::StrCat("POST /x HTTP/1.1\r\nHost: t\r\nContent-Length: 9001\r\n\r\n",
                                     std::string(9000, 'x'))));
  HttpClient second(port());
  std::optional<HttpResponse> response;
  // The first bytes may not be read yet.
  while (budget.used_bytes() < 9000) std::this_thread::yield();
  response = second.Post("/", std::string(2000, 'x'));
  ASSERT_TRUE(response.has_value());
  EXPECT_EQ(response->status, 503);
  ASSERT_TRUE(half.Send("x"));
  EXPECT_EQ(half.Read()->status, 200);
  HttpClient third(port());
  EXPECT_EQ(third.Post("/", std::string(2000, 'x'))->status, 200);
  Stop();
}

TEST_F(HttpServerTest, DecodesAndEncodesGzipAndDeflate) {
  Start();
  const std::string text(5000, 'a');
  const std::span<const std::byte> piece = std::as_bytes(std::span(text));
  for (const auto& [coding, name] :
       {std::pair(ContentCoding::kGzip, "gzip"), std::pair(ContentCoding::kDeflate, "deflate")}) {
    HttpClient client(port());
    const auto response = client.Post(
        "/z", Compress(coding, {&piece, 1}),
        absl::StrCat("Content-Encoding: ", name, "\r\nAccept-Encoding: ", name, ";q=0.5, br\r\n"));
    ASSERT_EQ(response->status, 200);
    EXPECT_EQ(response->headers.at("content-encoding"), name);
    EXPECT_LT(response->body.size(), 500u);
    EXPECT_EQ(Decompress(std::as_bytes(std::span(response->body)), 10'000).value(),
              absl::StrCat("POST /z  ", text));
  }
}

TEST_F(HttpServerTest, RefusesBadEncodings) {
  Start({.body_bytes_max = 10'000});
  HttpClient client(port());
  EXPECT_EQ(client.Post("/", "x", "Content-Encoding: br\r\n")->status, 501);
  EXPECT_EQ(client.Post("/", "plain", "Content-Encoding: gzip\r\n")->status, 400);
  const std::string text = "text";
  const std::span<const std::byte> text_piece = std::as_bytes(std::span(text));
  EXPECT_EQ(client
                .Post("/", Compress(ContentCoding::kGzip, {&text_piece, 1}) + "junk",
                      "Content-Encoding: gzip\r\n")
                ->status,
            400);
  const std::string bomb(1 << 20, '\0');
  const std::span<const std::byte> piece = std::as_bytes(std::span(bomb));
  EXPECT_EQ(
      client.Post("/", Compress(ContentCoding::kGzip, {&piece, 1}), "Content-Encoding: gzip\r\n")
          ->status,
      413);
  EXPECT_EQ(client.Get("/", "Accept-Encoding: gzip;q=0\r\n")->headers.count("content-encoding"),
            0u);
}

TEST_F(HttpServerTest, TellsTheHandlerThatTheClientLeft) {
  Start();
  HttpClient client(port());
  ASSERT_TRUE(
      client.Send("GET /held HTTP/1.1\r\nHost: t\r\n\r\nGET /held HTTP/1.1\r\nHost: t\r\n\r\n"));
  WaitForHeld(2);
  client.Close();
  WaitForAbandoned(2);
  Release();  // into nothing
  HttpClient other(port());
  EXPECT_EQ(other.Get("/")->status, 200);
}

TEST_F(HttpServerTest, AnswersRequestsThatWereDropped) {
  Start();
  HttpClient client(port());
  EXPECT_EQ(client.Get("/drop")->status, 500);
  EXPECT_EQ(client.Get("/")->status, 200);
}

TEST_F(HttpServerTest, StopsTakingRequestsOfAClientThatDoesNotRead) {
  Start({.threads = 1});
  HttpClient greedy(port(), /*receive_buffer_bytes=*/4096);
  // Far more answers than sockets hold: the rest of the requests waits.
  std::string bytes;
  for (int i = 0; i < 12; ++i) absl::StrAppend(&bytes, "GET /large HTTP/1.1\r\nHost: t\r\n\r\n");
  ASSERT_TRUE(greedy.Send(bytes));
  HttpClient other(port());
  EXPECT_EQ(other.Get("/")->status, 200);
  EXPECT_LE(handled_.load(), 4);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(greedy.Read()->body.size(), size_t{8} << 20);
}

TEST_F(HttpServerTest, ForgetsAClientThatLeavesInTheMiddleOfAnAnswer) {
  Start({.threads = 1});
  HttpClient greedy(port(), /*receive_buffer_bytes=*/4096);
  ASSERT_TRUE(greedy.Send("GET /large HTTP/1.1\r\nHost: t\r\n\r\n"));
  while (handled_.load() < 1) std::this_thread::yield();
  greedy.Close();
  while (server_->counters().connections > 0) std::this_thread::yield();
  HttpClient other(port());
  EXPECT_EQ(other.Get("/")->status, 200);
  Stop();  // joins the thread, which would not end if it still tried to write
}

TEST_F(HttpServerTest, ServesBesideManyIdleConnections) {
  Start();
  std::vector<std::unique_ptr<HttpClient>> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(std::make_unique<HttpClient>(port()));
  HttpClient client(port());
  EXPECT_EQ(client.Get("/")->status, 200);
  EXPECT_EQ(idle[299]->Get("/")->status, 200);
  EXPECT_GE(server_->counters().connections, 2);
}

TEST_F(HttpServerTest, RefusesConnectionsBeyondTheLimit) {
  Start({.threads = 1, .connections_max = 2});
  HttpClient first(port()), second(port());
  EXPECT_EQ(first.Get("/")->status, 200);
  EXPECT_EQ(second.Get("/")->status, 200);
  HttpClient third(port());
  EXPECT_FALSE(third.Get("/").has_value());
  EXPECT_GE(server_->counters().connections_refused, 1);
  first.Close();
  while (server_->counters().connections > 1) std::this_thread::yield();
  HttpClient fourth(port());
  EXPECT_EQ(fourth.Get("/")->status, 200);
}

TEST_F(HttpServerTest, RecoversFromHavingNoDescriptors) {
  // UBSan needs descriptors the first time that it sees a class of the log.
  LOG(INFO) << "without descriptors";
  Start({.threads = 1});
  HttpClient before(port());
  EXPECT_EQ(before.Get("/")->status, 200);
  HttpClient early(port());  // its socket exists already
  EXPECT_EQ(early.Get("/")->status, 200);
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int probe = dup(0);
  close(probe);
  rlimit low = limit;
  // One more descriptor than there are: the client's own.
  low.rlim_cur = static_cast<rlim_t>(probe) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  {
    HttpClient refused(port());
    EXPECT_FALSE(refused.Get("/").has_value());
  }
  EXPECT_EQ(before.Get("/")->status, 200);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_GE(server_->counters().connections_refused, 1);
  HttpClient after(port());
  EXPECT_EQ(after.Get("/")->status, 200);
}

TEST_F(HttpServerTest, DrainsWhatIsInFlight) {
  Start();
  HttpClient busy(port()), idle(port());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(busy.Send("GET /held HTTP/1.1\r\nHost: t\r\n\r\n"));
  }
  EXPECT_EQ(idle.Get("/")->status, 200);
  WaitForHeld(2);
  server_->BeginDrain();
  EXPECT_TRUE(idle.ReadEnd());
  Release();
  // Only the last answer of the connection says that it is the last.
  std::optional<HttpResponse> answer = busy.Read();
  EXPECT_EQ(answer->body, "released");
  EXPECT_EQ(answer->headers.count("connection"), 0u);
  answer = busy.Read();
  EXPECT_EQ(answer->body, "released");
  EXPECT_EQ(answer->headers["connection"], "close");
  EXPECT_TRUE(busy.ReadEnd());
  while (server_->counters().connections > 0) std::this_thread::yield();
}

TEST_F(HttpServerTest, RefusesAnAddressThatIsTaken) {
  Start();
  const auto again = HttpServer::Start({.port = port()}, [](HttpRequest, HttpReply) {});
  EXPECT_TRUE(absl::IsUnavailable(again.status()));
  const auto wrong = HttpServer::Start({.address = "nowhere"}, [](HttpRequest, HttpReply) {});
  EXPECT_TRUE(absl::IsInvalidArgument(wrong.status()));
}

}  // namespace
}  // namespace stampmill
