// HttpServer: HTTP/1.1 on a small pool of threads, knowing nothing of what is served. A connection
// lives on one thread; each complete request goes to the handler with an HttpReply that may be
// answered later and from any thread, at once or as a stream. Reading goes on, bounded, while
// requests run: pipelined requests run side by side and answer in order, and the end of the
// client's bytes means that it left, which the handler hears of.
//
// Bounds (http_limits.h): connections, bytes of head and body (the body's also after
// decompression), requests of one connection in flight, bytes of answers and streams that a client
// does not read, idle time; and bytes of all bodies together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/byte_budget.h"

namespace stampmill {

// One request. Owns its bytes; `body` has transfer and content encodings removed.
struct HttpRequest {
  std::string method;
  std::string path;   // as sent, without the query; percent-encoding kept
  std::string query;  // without '?'
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case, as they came
  std::string body;
  std::string peer;           // the client's address, without its port
  int64_t arrival_nanos = 0;  // monotonic: its first byte was read
  ByteBudget::Claim claim;    // on the bytes of `body`

  // Value of the first header of this (lower case) name; empty when there is none.
  absl::string_view Header(absl::string_view name) const;
  bool HasHeader(absl::string_view name) const;
};

// A piece of an answer that is sent from where it lies; `owner` keeps it.
struct HttpSlice {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;               // sent first
  std::vector<HttpSlice> slices;  // then these
  bool compressible = false;      // gzip or deflate if the client accepts one
};

class HttpConnection;
class HttpStream;

// The right and duty to answer one request, once: whole by Send, or as a stream by BeginStream, any
// number of Write, EndStream. Move-only; dropped unanswered it answers 500, dropped in a stream it
// closes the connection, so that the client sees that the answer is not whole. Used by one thread
// at a time. Cheap to move.
class HttpReply {
 public:
  HttpReply() = default;
  HttpReply(std::shared_ptr<HttpConnection> connection, uint64_t sequence);
  HttpReply(HttpReply&&) noexcept = default;
  HttpReply& operator=(HttpReply&& other) noexcept;
  ~HttpReply();

  bool valid() const { return connection_ != nullptr; }
  // A header of the answer, whoever gives that, or of the head of the stream.
  void AddHeader(std::string name, std::string value) {
    headers_.emplace_back(std::move(name), std::move(value));
  }
  void Send(HttpAnswer answer);
  // For answers that take long to make: `make` is called once, on the connection's thread, not in
  // here; or dropped if the server stops.
  void SendLater(absl::AnyInvocable<HttpAnswer()> make);
  // `on_abandon` is called on the connection's thread, at most once, if the client leaves before
  // Send or EndStream; at once if it has left already. To be set before the reply is handed to
  // another thread. A client that sends on behind a request of which it does not read the stream
  // may be noticed only when more of the stream is sent.
  void OnAbandon(absl::AnyInvocable<void()> on_abandon);

  // Status, content type and headers of a stream, and a body, which is its first piece. Its pieces
  // are sent as they come, as chunks, or until the connection closes for a client of HTTP/1.0;
  // never compressed. Whatever was pipelined behind it is answered after its end. REQUIRES: valid,
  // no slices; Send is not called any more.
  void BeginStream(HttpAnswer head);
  // REQUIRES of these: BeginStream was called. False: the client is gone, and what is written too.
  // A piece is taken whole while less than kHttpStreamQueuedBytesMax is queued; who writes beyond
  // that loses the client.
  bool Write(absl::string_view piece);
  // Bytes written that the client's socket did not take yet. From any thread that knows that the
  // reply stays where it is.
  size_t queued_bytes() const;
  // Calls `on_drained` once, as soon as less than `low_mark` bytes are queued: in here if it is so
  // now, else on the connection's thread. A second call replaces the first. Not called when the
  // client leaves before: OnAbandon tells of that.
  void OnDrained(absl::AnyInvocable<void()> on_drained, size_t low_mark);
  // Sends what is queued and then the end. The reply is not valid any more.
  void EndStream();

 private:
  void AnswerIfUnanswered();
  void MoveHeaders(HttpAnswer& answer);
  std::shared_ptr<HttpConnection> connection_;
  uint64_t sequence_ = 0;
  std::vector<std::pair<std::string, std::string>> headers_;
  std::shared_ptr<HttpStream> stream_;  // from BeginStream on
};

// Called on a connection's thread: must not block.
using HttpHandler = std::function<void(HttpRequest request, HttpReply reply)>;

struct HttpServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0 picks a free one
  int threads = 2;
  uint64_t body_bytes_max = uint64_t{64} << 20;
  int32_t connections_max = 4096;
  int32_t idle_seconds = 300;
  int32_t progress_seconds = 60;  // of a request that has begun and of an answer being sent
  ByteBudget* budget = nullptr;   // borrowed, outlives the server: bodies count; null: no bound
};

struct HttpServerCounters {
  int64_t connections = 0;          // open now
  int64_t connections_refused = 0;  // beyond the limit or without a descriptor
  int64_t clients_too_slow = 0;     // closed because they did not read or did not finish a request
};

class HttpServer {
 public:
  // Listens. UNAVAILABLE names address and port when they cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           HttpHandler handler);
  ~HttpServer();  // Stop

  uint16_t port() const;
  HttpServerCounters counters() const;
  // No new connections; requests in flight are answered with "Connection: close".
  void BeginDrain();
  // Closes what is left and joins the threads. Replies may outlive it and do nothing then.
  void Stop();

 private:
  friend class HttpConnection;
  struct State;
  explicit HttpServer(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace stampmill
