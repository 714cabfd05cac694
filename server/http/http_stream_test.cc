// Streams of HttpServer, over real sockets.
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "server/http/http_limits.h"
#include "server/http/http_server.h"
#include "server/testing/http_client.h"

namespace stampmill {
namespace {

constexpr size_t kFull = kHttpStreamQueuedBytesMax / 2;
constexpr char kGet[] = "GET /stream HTTP/1.1\r\nHost: t\r\n\r\n";

// Every request to /stream waits in order for the test, which answers it; others are answered with
// their path.
class HttpStreamTest : public testing::Test {
 protected:
  void Start(HttpServerOptions options = {}) {
    auto made = HttpServer::Start(options, [this](HttpRequest request, HttpReply reply) {
      if (request.path != "/stream") {
        reply.Send({.content_type = "text/plain", .body = request.path});
        return;
      }
      reply.OnAbandon([this] { abandoned_.fetch_add(1); });
      const absl::MutexLock lock(&mutex_);
      replies_.push_back(std::move(reply));
    });
    CHECK_OK(made);
    server_ = *std::move(made);
  }
  ~HttpStreamTest() override { server_.reset(); }

  // The next request's reply.
  HttpReply Take() {
    const absl::MutexLock lock(&mutex_);
    const auto some = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !replies_.empty(); };
    mutex_.Await(absl::Condition(&some));
    HttpReply reply = std::move(replies_.front());
    replies_.pop_front();
    return reply;
  }
  HttpReply Begin(HttpClient& client, absl::string_view request = kGet) {
    CHECK(client.Send(request));
    HttpReply reply = Take();
    reply.BeginStream({.content_type = "text/event-stream", .headers = {{"X-A", "b"}}});
    return reply;
  }
  // Writes until kFull is queued; returns how many bytes that were.
  static size_t FillUp(HttpReply& reply) {
    const std::string piece(16 << 10, 's');
    size_t written = 0;
    while (reply.queued_bytes() < kFull && reply.Write(piece)) written += piece.size();
    return written;
  }
  void WaitForAbandoned(int count) {
    while (abandoned_.load() < count) std::this_thread::yield();
  }
  uint16_t port() const { return server_->port(); }

  absl::Mutex mutex_;
  std::deque<HttpReply> replies_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> abandoned_{0};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpStreamTest, SendsEachPieceAsItComes) {
  Start();
  HttpClient client(port());
  HttpReply reply = Begin(client);
  const auto head = client.Read();
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(head->headers.at("transfer-encoding"), "chunked");
  EXPECT_EQ(head->headers.at("x-a"), "b");
  EXPECT_EQ(head->headers.count("content-length"), 0u);
  for (int i = 0; i < 20; ++i) {
    const std::string piece = absl::StrCat("data: ", i, "\r\n\r\n");
    EXPECT_TRUE(reply.Write(piece));
    EXPECT_EQ(client.ReadChunk(), piece);
  }
  EXPECT_TRUE(reply.Write(""));
  reply.EndStream();
  EXPECT_FALSE(reply.valid());
  EXPECT_EQ(client.ReadChunk(), "");
  EXPECT_EQ(client.Get("/next")->body, "/next");
  EXPECT_EQ(abandoned_.load(), 0);
}

TEST_F(HttpStreamTest, KeepsTheOrderOfPiecesOfManySizes) {
  Start();
  HttpClient client(port());
  HttpReply reply =
      Begin(client, "GET /stream HTTP/1.1\r\nHost: t\r\nAccept-Encoding: gzip\r\n\r\n");
  std::string all;
  std::thread writer([&] {
    for (size_t i = 0; i < 3000; ++i) {
      const std::string piece(i * i % 97, static_cast<char>('a' + i % 26));
      all += piece;
      EXPECT_TRUE(reply.Write(piece));
    }
    reply.EndStream();
  });
  EXPECT_EQ(client.Read()->headers.count("content-encoding"), 0u);
  const auto got = client.ReadChunks();
  writer.join();
  EXPECT_EQ(got, all);
}

TEST_F(HttpStreamTest, BeginsWithTheBodyOfTheHead) {
  Start();
  HttpClient client(port());
  ASSERT_TRUE(client.Send(kGet));
  HttpReply reply = Take();
  reply.BeginStream({.status = 201, .body = "first"});
  EXPECT_EQ(client.Read()->status, 201);
  EXPECT_EQ(client.ReadChunk(), "first");
  reply.EndStream();
  EXPECT_EQ(client.ReadChunk(), "");
}

TEST_F(HttpStreamTest, SendsUntilTheConnectionClosesToAnOldClient) {
  Start();
  HttpClient client(port());
  HttpReply reply = Begin(client, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto head = client.Read();
  EXPECT_EQ(head->headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(head->headers.at("connection"), "close");
  reply.Write("one ");
  reply.Write("two");
  reply.EndStream();
  EXPECT_EQ(client.ReadRest(), "one two");
}

TEST_F(HttpStreamTest, AnswersHeadWithoutThePieces) {
  Start();
  HttpClient client(port());
  HttpReply reply = Begin(client, "HEAD /stream HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_EQ(client.Read()->status, 200);
  std::atomic<int> drained{0};
  reply.Write(std::string(1000, 'x'));
  reply.OnDrained([&] { drained.fetch_add(1); }, 1);
  while (drained.load() < 1) std::this_thread::yield();
  EXPECT_EQ(reply.queued_bytes(), 0u);
  reply.EndStream();
  EXPECT_EQ(client.Get("/next")->body, "/next");
}

TEST_F(HttpStreamTest, AnswersWhatIsPipelinedBehindAfterTheEnd) {
  Start();
  HttpClient client(port());
  HttpReply first = Begin(client, absl::StrCat(kGet, "GET /a HTTP/1.1\r\nHost: t\r\n\r\n", kGet,
                                               "GET /b HTTP/1.1\r\nHost: t\r\n\r\n"));
  HttpReply second = Take();
  second.BeginStream({});
  second.Write("second");
  first.Write("fi");
  first.Write("rst");
  first.EndStream();
  EXPECT_EQ(client.Read()->status, 200);
  EXPECT_EQ(client.ReadChunks(), "first");
  EXPECT_EQ(client.Read()->body, "/a");
  EXPECT_EQ(client.Read()->status, 200);
  EXPECT_EQ(client.ReadChunk(), "second");
  second.EndStream();
  EXPECT_EQ(client.ReadChunk(), "");
  EXPECT_EQ(client.Read()->body, "/b");
}

// The head of the second stream is made while the first is being written.
TEST_F(HttpStreamTest, LosesNothingOfStreamsThatBeginBehindAWriteUnderWay) {
  Start({.threads = 1});
  HttpClient client(port(), /*receive_buffer_bytes=*/4096);
  std::string requests;
  for (int i = 0; i < 8; ++i) requests += kGet;
  HttpReply reply = Begin(client, requests);
  for (int i = 0; i < 8; ++i) {
    reply.Write(std::string(60'000, static_cast<char>('a' + i)));
    reply.EndStream();
    if (i == 7) break;
    reply = Take();
    reply.BeginStream({.headers = {{"X-A", "b"}}});
  }
  for (int i = 0; i < 8; ++i) {
    const auto head = client.Read();
    ASSERT_TRUE(head.has_value());
    EXPECT_EQ(head->headers.at("x-a"), "b");
    EXPECT_EQ(client.ReadChunks(), std::string(60'000, static_cast<char>('a' + i)));
  }
}

TEST_F(HttpStreamTest, TellsAtOnceThatTheClientLeft) {
  Start();
  for (const char* request :
       {kGet, "GET /stream HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
        "GET /stream HTTP/1.0\r\n\r\n", "HEAD /stream HTTP/1.1\r\nHost: t\r\n\r\n"}) {
    const int before = abandoned_.load();
    HttpClient client(port());
    HttpReply reply = Begin(client, request);
    EXPECT_TRUE(client.Read().has_value());
    client.Close();
    WaitForAbandoned(before + 1);  // though nothing is written
    while (reply.Write("x")) std::this_thread::yield();
    bool drained = false;
    reply.OnDrained([&] { drained = true; }, 1);
    EXPECT_FALSE(drained);
    reply.EndStream();
  }
}

TEST_F(HttpStreamTest, TellsThatTheClientLeftBeforeTheStream) {
  Start();
  HttpClient client(port());
  ASSERT_TRUE(client.Send("GET /stream HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"));
  HttpReply reply = Take();
  client.Close();
  WaitForAbandoned(1);
  reply.BeginStream({});
  while (reply.Write("x")) std::this_thread::yield();
}

TEST_F(HttpStreamTest, HoldsBackOnlyTheStreamOfASlowReader) {
  Start({.threads = 1});
  HttpClient slow(port(), /*receive_buffer_bytes=*/4096), quick(port());
  HttpReply held = Begin(slow);
  HttpReply free = Begin(quick);
  EXPECT_EQ(quick.Read()->status, 200);
  size_t written = 0;
  std::atomic<bool> drained{false};
  do {  // until the sockets are full too
    drained.store(false);
    written += FillUp(held);
    held.OnDrained([&] { drained.store(true); }, kFull / 2);
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(free.Write("token"));
      ASSERT_EQ(quick.ReadChunk(), "token");
    }
  } while (drained.load());
  EXPECT_EQ(slow.Read()->status, 200);
  for (size_t read = 0; read < written;) {
    const auto chunk = slow.ReadChunk();
    ASSERT_TRUE(chunk.has_value());
    read += chunk->size();
  }
  while (!drained.load()) std::this_thread::yield();
  EXPECT_LT(held.queued_bytes(), kFull / 2);
  bool at_once = false;
  held.OnDrained([&] { at_once = true; }, kFull);
  EXPECT_TRUE(at_once);
  held.EndStream();
  EXPECT_EQ(slow.ReadChunk(), "");
  EXPECT_EQ(abandoned_.load(), 0);
}

TEST_F(HttpStreamTest, GivesUpAClientThatDoesNotReadWhenItsQueueIsFull) {
  Start({.threads = 1});
  HttpClient slow(port(), /*receive_buffer_bytes=*/4096), other(port());
  HttpReply reply = Begin(slow);
  const std::string piece(64 << 10, 's');
  size_t queued_most = 0;
  while (reply.Write(piece)) queued_most = std::max(queued_most, reply.queued_bytes());
  WaitForAbandoned(1);
  EXPECT_LT(queued_most, kHttpStreamQueuedBytesMax + piece.size());
  EXPECT_EQ(server_->counters().clients_too_slow, 1);
  EXPECT_EQ(other.Get("/other")->body, "/other");
}

TEST_F(HttpStreamTest, ClosesAClientThatTakesNothingForTooLong) {
  Start({.threads = 1, .progress_seconds = 1});
  HttpClient silent(port()), stalled(port(), /*receive_buffer_bytes=*/4096);
  HttpReply quiet = Begin(silent);
  HttpReply full = Begin(stalled);
  EXPECT_EQ(silent.Read()->status, 200);
  while (abandoned_.load() < 1) FillUp(full);
  // The other stream had no news for as long, which is not the client's fault.
  EXPECT_FALSE(full.Write("x"));
  ASSERT_TRUE(quiet.Write("late"));
  EXPECT_EQ(silent.ReadChunk(), "late");
  EXPECT_EQ(server_->counters().clients_too_slow, 1);
  EXPECT_EQ(abandoned_.load(), 1);
}

TEST_F(HttpStreamTest, ShowsThatADroppedStreamIsNotWhole) {
  Start();
  HttpClient client(port());
  {
    HttpReply reply = Begin(client);
    reply.Write("half");
    EXPECT_EQ(client.Read()->status, 200);
    EXPECT_EQ(client.ReadChunk(), "half");
  }
  EXPECT_EQ(client.ReadChunk(), std::nullopt);
  EXPECT_EQ(abandoned_.load(), 0);
}

TEST_F(HttpStreamTest, DrainsStreamsThatAreOpen) {
  Start();
  HttpClient early(port()), late(port());
  HttpReply open = Begin(early);
  EXPECT_EQ(early.Read()->headers.count("connection"), 0u);
  ASSERT_TRUE(late.Send(kGet));
  HttpReply waiting = Take();
  server_->BeginDrain();
  waiting.BeginStream({});
  EXPECT_EQ(late.Read()->headers.at("connection"), "close");
  for (const auto& [client, reply] : {std::pair(&early, &open), std::pair(&late, &waiting)}) {
    ASSERT_TRUE(reply->Write("more"));
    EXPECT_EQ(client->ReadChunk(), "more");
    reply->EndStream();
    EXPECT_EQ(client->ReadChunk(), "");
    EXPECT_TRUE(client->ReadEnd());
  }
  while (server_->counters().connections > 0) std::this_thread::yield();
}

TEST_F(HttpStreamTest, OutlivesTheServer) {
  Start();
  HttpClient client(port());
  HttpReply reply = Begin(client);
  HttpReply other = Begin(client);
  server_->Stop();
  WaitForAbandoned(2);
  EXPECT_FALSE(reply.Write("x"));
  other.EndStream();
  reply.EndStream();
}

TEST_F(HttpStreamTest, IsAbandonedByManyClientsWhileTheyAreWritten) {
  Start();
  constexpr int kClients = 40;
  for (int i = 0; i < kClients; ++i) {
    HttpClient client(port());
    HttpReply reply = Begin(client);
    std::thread writer([reply = std::move(reply)]() mutable {
      while (reply.queued_bytes() >= kHttpStreamQueuedBytesMax / 2 || reply.Write("some tokens")) {
        std::this_thread::yield();
        if (reply.queued_bytes() == 0 && !reply.Write("")) break;
      }
    });
    if (i % 2 == 0) EXPECT_TRUE(client.Read().has_value());
    client.Close();
    writer.join();
  }
  WaitForAbandoned(kClients);
}

}  // namespace
}  // namespace stampmill
