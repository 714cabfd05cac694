// Internal to http_server: its threads and its connections.
#pragma once

#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "server/http/compression.h"
#include "server/http/http_server.h"

namespace stampmill {

// `{"error": message}`. `message` must need no escaping.
HttpAnswer PlainErrorAnswer(int status, absl::string_view message);

// One thread of the pool, and the connections that live on it.
struct HttpWorker {
  boost::asio::io_context context{1};
  boost::asio::steady_timer sweep{context};
  absl::flat_hash_set<HttpConnection*> connections;  // on the worker's thread
  bool stopping = false;
  std::thread thread;

  // Kept, so that each may close itself.
  std::vector<std::shared_ptr<HttpConnection>> AllConnections();
};

struct HttpServer::State : std::enable_shared_from_this<HttpServer::State> {
  HttpServerOptions options;
  HttpHandler handler;
  std::vector<std::unique_ptr<HttpWorker>> workers;
  std::unique_ptr<boost::asio::ip::tcp::acceptor> acceptor;
  std::unique_ptr<boost::asio::steady_timer> accept_retry;
  int reserve_descriptor = -1;  // given up for a moment to refuse a client when there are no others
  int64_t warn_again_nanos = 0;  // not before is it logged that there are none
  size_t next_worker = 0;
  uint16_t port = 0;
  std::atomic<bool> draining{false};
  std::atomic<bool> stopped{false};
  std::atomic<int64_t> connections{0};
  std::atomic<int64_t> refused{0};
  std::atomic<int64_t> too_slow{0};

  void Accept();
  void OnAccept(boost::system::error_code error, boost::asio::ip::tcp::socket socket,
                HttpWorker& worker);
  void RefuseWaiting();
  void Sweep(HttpWorker& worker);
};

// What passes from who writes a stream to the thread of its connection. Pieces that come faster
// than that thread turns to them make one chunk. Thread-safe.
class HttpStream {
 public:
  enum class Written { kGone, kQueued, kNews, kTooMuch };

  // The writer's. kNews: the connection's thread does not know yet.
  Written Write(absl::string_view piece);
  Written End();
  void OnDrained(absl::AnyInvocable<void()> on_drained, size_t low_mark);
  size_t queued_bytes() const { return queued_bytes_.load(std::memory_order_relaxed); }

  // The connection's. All that there is to send now; true: and nothing will follow. It counts as
  // queued until Sent. REQUIRES: `text` is empty, its memory is used again.
  bool Take(std::string& text);
  // The callback to call now, if there is one.
  absl::AnyInvocable<void()> Sent(size_t bytes);
  // The client left: whatever is written from now on is dropped.
  void Close();

 private:
  absl::Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool announced_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::AnyInvocable<void()> on_drained_ ABSL_GUARDED_BY(mutex_);
  size_t low_mark_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<size_t> queued_bytes_{0};  // written under the mutex
};

// Everything here runs on the worker's thread, but for what HttpReply posts to it. Every connection
// ends in Close; the last reference may be dropped by any thread.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpServer::State> server, HttpWorker& worker,
                 boost::asio::ip::tcp::socket socket);

  void Begin() { Read(); }

  // From any thread.
  static void Answer(std::shared_ptr<HttpConnection> self, uint64_t sequence, HttpAnswer answer);
  static void AnswerLater(std::shared_ptr<HttpConnection> self, uint64_t sequence,
                          absl::AnyInvocable<HttpAnswer()> make);

  // Likewise. The stream's owner calls StreamNews when there is something new to take.
  static void BeginStream(std::shared_ptr<HttpConnection> self, uint64_t sequence, HttpAnswer head,
                          std::shared_ptr<HttpStream> stream);
  static void StreamNews(std::shared_ptr<HttpConnection> self, uint64_t sequence);
  // Closes the connection: the stream will not come to its end. `too_slow`: by the client's fault.
  static void BreakStream(std::shared_ptr<HttpConnection> self, uint64_t sequence, bool too_slow);

  void OnAbandon(uint64_t sequence, absl::AnyInvocable<void()> on_abandon);

  // Closes a connection that made no progress for too long.
  void CheckTimes(int64_t now);
  void DrainIfIdle();
  void Close();

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // Into what a read that is under way goes. Parsing moves what is in buffer_, so it may not happen
  // while one goes there; one that waits for room goes elsewhere.
  enum class Reading { kNo, kInPlace, kApart };

  struct Pending {
    uint64_t sequence = 0;
    bool head_only = false;  // HEAD
    bool keep_alive = true;
    bool knows_chunks = true;  // HTTP/1.1
    ContentCoding coding = ContentCoding::kIdentity;
    bool answered = false;
    HttpAnswer answer;        // of a stream: the piece that is being sent
    std::string head;         // empty once a stream has sent it
    size_t unread_bytes = 0;  // its part of unread_bytes_
    std::shared_ptr<HttpStream> stream;
    bool stream_ended = false;
    std::string chunk_head, chunk_tail;  // around the piece that is being sent
    absl::AnyInvocable<void()> on_abandon;

    // The head and all that is known to come after it can be sent.
    bool whole() const { return answered && (stream == nullptr || stream_ended); }
  };

  Pending* Find(uint64_t sequence);
  bool MayBeginRequest() const;

  void Read();
  void OnRead(boost::system::error_code error, size_t size);
  void Parse();
  void SendContinue();
  // What the parser lets pass and RFC 9112 does not, above all whatever a proxy before us might
  // understand in another way. False: the client was told.
  bool CheckHead();
  bool RefuseHead(int status, absl::string_view message);
  // False: all bodies together are too many bytes, and the client was told.
  bool ClaimBody();
  void RefuseMalformed(boost::system::error_code error);
  // Answers what was read so far and closes: where the next request begins is not known.
  void Refuse(int status, absl::string_view message);
  Pending& AddPending();
  void Dispatch();
  // False: an encoding that is not known.
  absl::StatusOr<bool> DecodeBody(HttpRequest& request);

  void Accepted(uint64_t sequence, HttpAnswer answer);
  // Null if it is answered already or nobody waits for it any more.
  Pending* FindUnanswered(uint64_t sequence);
  void StreamAccepted(uint64_t sequence, HttpAnswer head, std::shared_ptr<HttpStream> stream);
  // The last answer of a connection that is drained says so.
  void EndIfDraining(Pending& pending);
  void PrepareAnswer(Pending& pending);
  void PrepareStream(Pending& pending);
  void CountUnread(Pending& pending, size_t bytes);
  // Sends every answer that is ready and next in order, in one gathered write; of a stream, what
  // there is.
  void Write();
  void TakePiece(Pending& pending);
  void OnWritten(boost::system::error_code error);
  // The client has what TakePiece took, or needs none of it.
  void PieceDone(Pending& pending);

  const std::shared_ptr<HttpServer::State> state_;  // replies keep connections, and these the pool
  HttpServer::State& server_;
  HttpWorker& worker_;
  boost::asio::ip::tcp::socket socket_;
  std::string peer_;  // its address
  boost::beast::flat_buffer buffer_;
  std::vector<char> apart_;
  std::optional<Parser> parser_;
  ByteBudget::Claim claim_;      // on the body that is being read
  std::deque<Pending> pending_;  // sequences [first_sequence_, next_sequence_)
  uint64_t first_sequence_ = 0;
  uint64_t next_sequence_ = 0;
  size_t unread_bytes_ = 0;
  std::vector<boost::asio::const_buffer> write_buffers_;
  size_t writing_count_ = 0;
  bool writing_piece_ = false;  // of a stream that goes on, behind the writing_count_ answers
  bool writing_last_ = false;
  int64_t progress_nanos_ = 0;  // something was read or written
  int64_t write_nanos_ = 0;     // the client took something
  int64_t request_nanos_ = 0;
  bool continue_sent_ = false;
  Reading reading_ = Reading::kNo;
  bool writing_ = false;
  bool stop_parsing_ = false;
  bool closed_ = false;
};

}  // namespace stampmill
