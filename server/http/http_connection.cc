#include "server/http/http_connection.h"

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "server/http/http_limits.h"

namespace stampmill {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

namespace {

absl::string_view StatusText(int status) {
  return {http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status))).data(),
          http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status))).size()};
}

// The best coding the client accepts; q=0 refuses one.
ContentCoding AcceptedCoding(absl::string_view accept) {
  ContentCoding best = ContentCoding::kIdentity;
  double best_weight = 0;
  for (absl::string_view item : absl::StrSplit(accept, ',')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(item, ';');
    const std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(parts[0]));
    double weight = 1;
    for (size_t i = 1; i < parts.size(); ++i) {
      absl::string_view parameter = absl::StripAsciiWhitespace(parts[i]);
      if (absl::StartsWith(parameter, "q=") && !absl::SimpleAtod(parameter.substr(2), &weight)) {
        weight = 0;
      }
    }
    const ContentCoding coding = name == "gzip"      ? ContentCoding::kGzip
                                 : name == "deflate" ? ContentCoding::kDeflate
                                                     : ContentCoding::kIdentity;
    if (coding != ContentCoding::kIdentity && weight > best_weight) {
      best = coding;
      best_weight = weight;
    }
  }
  return best;
}

size_t BodyBytes(const HttpAnswer& answer) {
  size_t size = answer.body.size();
  for (const HttpSlice& slice : answer.slices) size += slice.bytes.size();
  return size;
}

void CompressAnswer(HttpAnswer& answer, ContentCoding coding) {
  std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(answer.body))};
  for (const HttpSlice& slice : answer.slices) pieces.push_back(slice.bytes);
  answer.body = Compress(coding, pieces);
  answer.slices.clear();
  answer.headers.emplace_back("Content-Encoding",
                              coding == ContentCoding::kGzip ? "gzip" : "deflate");
}

// `length` is the field that says where the body ends, or empty.
std::string AnswerHead(const HttpAnswer& answer, absl::string_view length, bool keep_alive) {
  std::string head = absl::StrCat("HTTP/1.1 ", answer.status, " ", StatusText(answer.status),
                                  "\r\nContent-Type: ", answer.content_type, "\r\n");
  if (!length.empty()) absl::StrAppend(&head, length, "\r\n");
  for (const auto& [name, value] : answer.headers) {
    absl::StrAppend(&head, name, ": ", value, "\r\n");
  }
  if (!keep_alive) absl::StrAppend(&head, "Connection: close\r\n");
  absl::StrAppend(&head, "\r\n");
  return head;
}

}  // namespace

HttpAnswer PlainErrorAnswer(int status, absl::string_view message) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = absl::StrCat("{\"error\":\"", message, "\"}");
  return answer;
}

HttpStream::Written HttpStream::Write(absl::string_view piece) {
  const absl::MutexLock lock(&mutex_);
  if (closed_) return Written::kGone;
  const size_t queued = queued_bytes_.load(std::memory_order_relaxed);
  if (queued >= kHttpStreamQueuedBytesMax) return Written::kTooMuch;
  text_.append(piece.data(), piece.size());
  queued_bytes_.store(queued + piece.size(), std::memory_order_relaxed);
  if (piece.empty()) return Written::kQueued;  // a chunk of no bytes would end the stream
  return std::exchange(announced_, true) ? Written::kQueued : Written::kNews;
}

HttpStream::Written HttpStream::End() {
  const absl::MutexLock lock(&mutex_);
  if (closed_) return Written::kGone;
  ended_ = true;
  return std::exchange(announced_, true) ? Written::kQueued : Written::kNews;
}

void HttpStream::OnDrained(absl::AnyInvocable<void()> on_drained, size_t low_mark) {
  {
    const absl::MutexLock lock(&mutex_);
    if (closed_) return;
    if (queued_bytes_.load(std::memory_order_relaxed) >= low_mark) {
      on_drained_ = std::move(on_drained);
      low_mark_ = low_mark;
      return;
    }
    on_drained_ = nullptr;
  }
  std::move(on_drained)();
}

bool HttpStream::Take(std::string& text) {
  const absl::MutexLock lock(&mutex_);
  announced_ = false;
  text.swap(text_);
  return ended_;
}

absl::AnyInvocable<void()> HttpStream::Sent(size_t bytes) {
  const absl::MutexLock lock(&mutex_);
  const size_t queued = queued_bytes_.load(std::memory_order_relaxed) - bytes;
  queued_bytes_.store(queued, std::memory_order_relaxed);
  if (queued >= low_mark_) return nullptr;
  return std::exchange(on_drained_, nullptr);
}

void HttpStream::Close() {
  absl::AnyInvocable<void()> dropped;  // not under the mutex
  const absl::MutexLock lock(&mutex_);
  closed_ = true;
  text_.clear();
  queued_bytes_.store(0, std::memory_order_relaxed);
  dropped = std::exchange(on_drained_, nullptr);
}

HttpConnection::HttpConnection(std::shared_ptr<HttpServer::State> server, HttpWorker& worker,
                               tcp::socket socket)
    : state_(std::move(server)), server_(*state_), worker_(worker), socket_(std::move(socket)) {
  worker_.connections.insert(this);
  server_.connections.fetch_add(1, std::memory_order_relaxed);
  progress_nanos_ = RealClock().NowNanos();
  error_code gone;
  const tcp::endpoint peer = socket_.remote_endpoint(gone);
  if (!gone) peer_ = peer.address().to_string();
}

void HttpConnection::Answer(std::shared_ptr<HttpConnection> self, uint64_t sequence,
                            HttpAnswer answer) {
  if (self->server_.stopped.load(std::memory_order_acquire)) return;
  asio::io_context& context = self->worker_.context;
  asio::dispatch(context, [self = std::move(self), sequence, answer = std::move(answer)]() mutable {
    self->Accepted(sequence, std::move(answer));
  });
}

void HttpConnection::AnswerLater(std::shared_ptr<HttpConnection> self, uint64_t sequence,
                                 absl::AnyInvocable<HttpAnswer()> make) {
  if (self->server_.stopped.load(std::memory_order_acquire)) return;
  asio::io_context& context = self->worker_.context;
  asio::post(context, [self = std::move(self), sequence, make = std::move(make)]() mutable {
    self->Accepted(sequence, std::move(make)());
  });
}

void HttpConnection::BeginStream(std::shared_ptr<HttpConnection> self, uint64_t sequence,
                                 HttpAnswer head, std::shared_ptr<HttpStream> stream) {
  if (self->server_.stopped.load(std::memory_order_acquire)) return stream->Close();
  asio::io_context& context = self->worker_.context;
  // Not at once: the first piece may follow soon and then goes with the head.
  asio::post(context, [self = std::move(self), sequence, head = std::move(head),
                       stream = std::move(stream)]() mutable {
    self->StreamAccepted(sequence, std::move(head), std::move(stream));
  });
}

void HttpConnection::StreamNews(std::shared_ptr<HttpConnection> self, uint64_t sequence) {
  if (self->server_.stopped.load(std::memory_order_acquire)) return;
  asio::io_context& context = self->worker_.context;
  asio::post(context, [self = std::move(self), sequence] {
    Pending* pending = self->Find(sequence);
    if (pending == nullptr || self->closed_ || pending->stream == nullptr) return;
    self->CountUnread(*pending, pending->stream->queued_bytes());
    self->Write();
  });
}

void HttpConnection::BreakStream(std::shared_ptr<HttpConnection> self, uint64_t sequence,
                                 bool too_slow) {
  if (self->server_.stopped.load(std::memory_order_acquire)) return;
  asio::io_context& context = self->worker_.context;
  asio::post(context, [self = std::move(self), sequence, too_slow] {
    Pending* pending = self->Find(sequence);
    if (pending == nullptr || self->closed_) return;
    if (too_slow) {
      self->server_.too_slow.fetch_add(1, std::memory_order_relaxed);
    } else {
      pending->on_abandon = nullptr;  // who left is the handler
    }
    self->Close();
  });
}

void HttpConnection::OnAbandon(uint64_t sequence, absl::AnyInvocable<void()> on_abandon) {
  Pending* pending = Find(sequence);
  if (pending == nullptr || closed_) {
    on_abandon();
  } else {
    pending->on_abandon = std::move(on_abandon);
  }
}

void HttpConnection::CheckTimes(int64_t now) {
  const auto older = [&](int64_t since, int32_t seconds) {
    return now - since > int64_t{seconds} * 1'000'000'000;
  };
  const bool in_head = parser_.has_value() && !parser_->is_header_done();
  // Reading is no excuse for a client that does not take its answer.
  bool slow = writing_ && older(write_nanos_, server_.options.progress_seconds);
  bool idle = false;
  if (in_head) {
    slow |= older(request_nanos_, kHttpHeadSeconds);
  } else if (parser_.has_value()) {
    slow |= older(progress_nanos_, server_.options.progress_seconds);
  } else if (pending_.empty()) {
    idle = older(progress_nanos_, server_.options.idle_seconds);
  }
  if (slow) server_.too_slow.fetch_add(1, std::memory_order_relaxed);
  if (slow || idle) Close();
}

void HttpConnection::DrainIfIdle() {
  if (pending_.empty() && !parser_.has_value()) Close();
}

void HttpConnection::Close() {
  if (closed_) return;
  closed_ = true;
  const std::shared_ptr<HttpConnection> self = shared_from_this();
  worker_.connections.erase(this);
  server_.connections.fetch_sub(1, std::memory_order_relaxed);
  for (Pending& pending : pending_) {
    if (pending.stream != nullptr) pending.stream->Close();
    if (pending.on_abandon) std::move(pending.on_abandon)();
    pending.on_abandon = nullptr;
  }
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

HttpConnection::Pending* HttpConnection::Find(uint64_t sequence) {
  if (sequence < first_sequence_ || sequence >= next_sequence_) return nullptr;
  return &pending_[static_cast<size_t>(sequence - first_sequence_)];
}

bool HttpConnection::MayBeginRequest() const {
  return pending_.size() < kHttpPipelineMax && unread_bytes_ <= kHttpUnreadBytesMax;
}

void HttpConnection::Read() {
  if (reading_ != Reading::kNo || closed_) return;
  // While no request may begin, little is kept of what comes: enough to see the end of it, which
  // says that the client left.
  const bool waits = stop_parsing_ || !MayBeginRequest();
  if (waits && buffer_.size() >= kHttpWaitingBytesMax) return;
  if (waits) {
    reading_ = Reading::kApart;
    apart_.resize(kHttpSmallReadBytes);
    socket_.async_read_some(
        asio::buffer(apart_), [self = shared_from_this()](error_code error, size_t size) {
          asio::buffer_copy(self->buffer_.prepare(size), asio::buffer(self->apart_));
          self->OnRead(error, size);
        });
    return;
  }
  reading_ = Reading::kInPlace;
  const size_t want = parser_.has_value() ? kHttpReadBytes : kHttpSmallReadBytes;
  socket_.async_read_some(
      buffer_.prepare(want),
      [self = shared_from_this()](error_code error, size_t size) { self->OnRead(error, size); });
}

void HttpConnection::OnRead(error_code error, size_t size) {
  reading_ = Reading::kNo;
  if (error) {
    Close();
    return;
  }
  buffer_.commit(size);
  progress_nanos_ = RealClock().NowNanos();
  Parse();
  Read();
}

void HttpConnection::Parse() {
  while (!closed_ && !stop_parsing_ && buffer_.size() > 0 && MayBeginRequest()) {
    if (!parser_.has_value()) {
      parser_.emplace();
      parser_->eager(true);
      parser_->header_limit(kHttpHeadBytesMax);
      parser_->body_limit(server_.options.body_bytes_max);
      request_nanos_ = progress_nanos_;
      continue_sent_ = false;
    }
    error_code error;
    const bool head_before = parser_->is_header_done();
    const size_t used = parser_->put(buffer_.data(), error);
    if (error && error != http::error::need_more) {
      RefuseMalformed(error);
      return;
    }
    // A head is parsed only when all of it is there: it is at the front of the buffer.
    if (!head_before && parser_->is_header_done() && !CheckHead()) return;
    buffer_.consume(used);
    if (!ClaimBody()) return;
    if (parser_->is_done()) {
      Dispatch();
      continue;
    }
    SendContinue();
    if (error == http::error::need_more || used == 0) return;
  }
}

void HttpConnection::SendContinue() {
  if (!parser_->is_header_done() || continue_sent_ || !pending_.empty()) return;
  const auto expect = parser_->get().find(http::field::expect);
  if (expect == parser_->get().end()) return;
  continue_sent_ = true;
  static constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(socket_, asio::buffer(kContinue, sizeof(kContinue) - 1),
                    [self = shared_from_this()](error_code, size_t) {});
}

bool HttpConnection::CheckHead() {
  const auto& head = parser_->get();
  const absl::string_view bytes(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  const absl::string_view lines = bytes.substr(0, bytes.find("\r\n\r\n"));
  if (absl::StrContains(lines, "\r\n ") || absl::StrContains(lines, "\r\n\t")) {
    return RefuseHead(400, "a header field over several lines");
  }
  const size_t hosts = head.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && head.version() >= 11)) {
    return RefuseHead(400, absl::StrCat("header field Host: got ", hosts, ", limit 1"));
  }
  if (head[http::field::host].find_first_of(" \t,/?#@\\") != boost::beast::string_view::npos) {
    return RefuseHead(400, "header field Host: its value is no host");
  }
  const auto coding = head.find(http::field::transfer_encoding);
  if (coding == head.end()) return true;
  if (head.count(http::field::content_length) > 0) {
    return RefuseHead(400, "header fields: got both Content-Length and Transfer-Encoding");
  }
  if (!parser_->chunked() || head.version() < 11) {
    return RefuseHead(400, "header field Transfer-Encoding: where the body ends is not known");
  }
  if (boost::beast::iequals(coding->value(), "chunked")) return true;
  return RefuseHead(501, "header field Transfer-Encoding: limit chunked");
}

bool HttpConnection::RefuseHead(int status, absl::string_view message) {
  Refuse(status, absl::StrCat("malformed HTTP request: ", message));
  return false;
}

bool HttpConnection::ClaimBody() {
  if (server_.options.budget == nullptr || !parser_->is_header_done()) return true;
  if (server_.options.budget->Grow(claim_, parser_->get().body().size())) return true;
  Refuse(503, absl::StrCat("requests in flight: got more than the limit of ",
                           server_.options.budget->bytes_max(),
                           " bytes together (--max-inflight-bytes)"));
  return false;
}

void HttpConnection::RefuseMalformed(error_code error) {
  int status = 400;
  std::string message = absl::StrCat("malformed HTTP request: ", error.message());
  if (error == http::error::body_limit) {
    status = 413;
    message = absl::StrCat("request body: got more than the limit of ",
                           server_.options.body_bytes_max, " bytes (--http-max-input-size)");
  } else if (error == http::error::header_limit) {
    status = 431;
    message =
        absl::StrCat("request head: got more than the limit of ", kHttpHeadBytesMax, " bytes");
  }
  Refuse(status, message);
}

void HttpConnection::Refuse(int status, absl::string_view message) {
  stop_parsing_ = true;
  parser_.reset();
  claim_ = {};
  Pending& pending = AddPending();
  pending.keep_alive = false;
  Accepted(pending.sequence, PlainErrorAnswer(status, message));
}

HttpConnection::Pending& HttpConnection::AddPending() {
  pending_.push_back({});
  pending_.back().sequence = next_sequence_++;
  return pending_.back();
}

void HttpConnection::Dispatch() {
  auto message = parser_->release();
  parser_.reset();
  Pending& pending = AddPending();
  pending.keep_alive = message.keep_alive() && !server_.draining.load(std::memory_order_relaxed);
  pending.head_only = message.method() == http::verb::head;
  pending.knows_chunks = message.version() >= 11;
  if (!pending.keep_alive) stop_parsing_ = !message.keep_alive();
  HttpRequest request;
  const auto method = message.method_string();
  request.method.assign(method.data(), method.size());
  const auto target = message.target();
  const size_t query = target.find('?');
  request.path.assign(target.data(), std::min(query, target.size()));
  if (query != target.npos)
    request.query.assign(target.data() + query + 1, target.size() - query - 1);
  request.headers.reserve(8);
  for (const auto& field : message) {
    const auto name = field.name_string();
    const auto value = field.value();
    request.headers.emplace_back(absl::AsciiStrToLower(absl::string_view(name.data(), name.size())),
                                 std::string(value.data(), value.size()));
  }
  request.body = std::move(message.body());
  request.peer = peer_;
  request.claim = std::exchange(claim_, {});
  request.arrival_nanos = request_nanos_;
  pending.coding = AcceptedCoding(request.Header("accept-encoding"));
  HttpReply reply(shared_from_this(), pending.sequence);
  const absl::StatusOr<bool> decoded = DecodeBody(request);
  if (!decoded.ok() || !*decoded) {
    reply.Send(decoded.ok()
                   ? PlainErrorAnswer(501, "Unsupported compression type")
                   : PlainErrorAnswer(absl::IsResourceExhausted(decoded.status()) ? 413 : 400,
                                      std::string(decoded.status().message())));
    return;
  }
  server_.handler(std::move(request), std::move(reply));
}

absl::StatusOr<bool> HttpConnection::DecodeBody(HttpRequest& request) {
  const std::string coding = absl::AsciiStrToLower(request.Header("content-encoding"));
  if (coding.empty() || coding == "identity") return true;
  if (coding != "gzip" && coding != "deflate") return false;
  absl::StatusOr<std::string> body =
      Decompress(std::as_bytes(std::span(request.body)), server_.options.body_bytes_max);
  if (!body.ok()) return body.status();
  request.body = *std::move(body);
  if (server_.options.budget != nullptr &&
      !server_.options.budget->Grow(request.claim, request.body.size())) {
    return absl::ResourceExhaustedError("decompressed request body: no room for it now");
  }
  return true;
}

HttpConnection::Pending* HttpConnection::FindUnanswered(uint64_t sequence) {
  Pending* pending = closed_ ? nullptr : Find(sequence);
  return pending == nullptr || pending->answered ? nullptr : pending;
}

void HttpConnection::Accepted(uint64_t sequence, HttpAnswer answer) {
  Pending* pending = FindUnanswered(sequence);
  if (pending == nullptr) return;
  pending->answered = true;
  pending->on_abandon = nullptr;
  pending->answer = std::move(answer);
  PrepareAnswer(*pending);
  CountUnread(*pending, pending->head.size() + BodyBytes(pending->answer));
  Write();
}

void HttpConnection::StreamAccepted(uint64_t sequence, HttpAnswer head,
                                    std::shared_ptr<HttpStream> stream) {
  Pending* pending = FindUnanswered(sequence);
  if (pending == nullptr) {
    stream->Close();
    return;
  }
  pending->answered = true;
  pending->answer = std::move(head);
  pending->stream = std::move(stream);
  PrepareStream(*pending);
  Write();
}

void HttpConnection::EndIfDraining(Pending& pending) {
  if (!server_.draining.load(std::memory_order_relaxed) || pending.sequence + 1 != next_sequence_) {
    return;
  }
  pending.keep_alive = false;
  stop_parsing_ = true;
}

void HttpConnection::PrepareAnswer(Pending& pending) {
  HttpAnswer& answer = pending.answer;
  EndIfDraining(pending);
  if (answer.compressible && pending.coding != ContentCoding::kIdentity &&
      BodyBytes(answer) >= kHttpCompressBytesMin) {
    CompressAnswer(answer, pending.coding);
  }
  pending.head =
      AnswerHead(answer, absl::StrCat("Content-Length: ", BodyBytes(answer)), pending.keep_alive);
  if (pending.head_only) {
    answer.body.clear();
    answer.slices.clear();
  }
}

void HttpConnection::PrepareStream(Pending& pending) {
  EndIfDraining(pending);
  if (!pending.knows_chunks) {
    pending.keep_alive = false;
    stop_parsing_ = true;
  }
  pending.head = AnswerHead(
      pending.answer, pending.knows_chunks ? "Transfer-Encoding: chunked" : "", pending.keep_alive);
}

void HttpConnection::CountUnread(Pending& pending, size_t bytes) {
  unread_bytes_ += bytes - pending.unread_bytes;
  pending.unread_bytes = bytes;
}

void HttpConnection::TakePiece(Pending& pending) {
  std::string& piece = pending.answer.body;
  pending.stream_ended = pending.stream->Take(piece);
  if (pending.stream_ended) pending.on_abandon = nullptr;
  if (pending.head_only) PieceDone(pending);
  pending.chunk_head.clear();
  pending.chunk_tail.clear();
  if (pending.head_only || !pending.knows_chunks) return;
  if (!piece.empty()) {
    pending.chunk_head = absl::StrCat(absl::Hex(piece.size()), "\r\n");
    pending.chunk_tail = "\r\n";
  }
  if (pending.stream_ended) pending.chunk_tail += "0\r\n\r\n";
}

void HttpConnection::PieceDone(Pending& pending) {
  absl::AnyInvocable<void()> on_drained = pending.stream->Sent(pending.answer.body.size());
  pending.answer.body.clear();
  CountUnread(pending, pending.stream->queued_bytes());
  if (on_drained == nullptr) return;
  asio::post(worker_.context,
             [self = shared_from_this(), on_drained = std::move(on_drained)]() mutable {
               if (!self->closed_) std::move(on_drained)();
             });
}

void HttpConnection::Write() {
  if (writing_ || closed_) return;
  std::vector<asio::const_buffer>& buffers = write_buffers_;
  buffers.clear();
  writing_count_ = 0;
  writing_piece_ = writing_last_ = false;
  const auto add = [&](const auto& text) {
    if (!text.empty()) buffers.push_back(asio::buffer(text.data(), text.size()));
  };
  for (Pending& pending : pending_) {
    if (!pending.answered || writing_last_) break;
    if (pending.stream != nullptr) TakePiece(pending);
    add(pending.head);
    add(pending.chunk_head);
    add(pending.answer.body);
    for (const HttpSlice& slice : pending.answer.slices) add(slice.bytes);
    add(pending.chunk_tail);
    if (!pending.whole()) {  // what comes behind a stream waits for its end
      writing_piece_ = true;
      break;
    }
    ++writing_count_;
    writing_last_ = !pending.keep_alive;
  }
  if (buffers.empty() && writing_count_ == 0) return;
  writing_ = true;
  write_nanos_ = RealClock().NowNanos();
  asio::async_write(
      socket_, buffers,
      [self = shared_from_this()](const error_code& error, size_t) -> size_t {
        if (error) return 0;
        // Called before each piece: the client is reading.
        self->progress_nanos_ = self->write_nanos_ = RealClock().NowNanos();
        return kHttpReadBytes;
      },
      [self = shared_from_this()](error_code error, size_t) { self->OnWritten(error); });
}

void HttpConnection::OnWritten(error_code error) {
  writing_ = false;
  if (error || closed_) {
    Close();
    return;
  }
  progress_nanos_ = RealClock().NowNanos();
  for (size_t i = 0; i < writing_count_; ++i) {
    if (pending_.front().stream != nullptr) PieceDone(pending_.front());
    CountUnread(pending_.front(), 0);
    pending_.pop_front();
    ++first_sequence_;
  }
  if (writing_last_) {
    Close();
    return;
  }
  if (writing_piece_) {
    pending_.front().head.clear();
    PieceDone(pending_.front());
  }
  if (server_.draining.load(std::memory_order_relaxed)) DrainIfIdle();
  Write();
  // Of what is in the buffer, all that can be parsed was parsed before such a read began.
  if (reading_ != Reading::kInPlace) Parse();
  Read();
}

std::vector<std::shared_ptr<HttpConnection>> HttpWorker::AllConnections() {
  std::vector<std::shared_ptr<HttpConnection>> all;
  for (HttpConnection* connection : connections) all.push_back(connection->shared_from_this());
  return all;
}

}  // namespace stampmill
