#include "server/http/http_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/http/http_connection.h"
#include "server/http/http_limits.h"

namespace stampmill {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

absl::string_view HttpRequest::Header(absl::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return "";
}

bool HttpRequest::HasHeader(absl::string_view name) const {
  return std::any_of(headers.begin(), headers.end(),
                     [&](const auto& header) { return header.first == name; });
}

HttpReply::HttpReply(std::shared_ptr<HttpConnection> connection, uint64_t sequence)
    : connection_(std::move(connection)), sequence_(sequence) {}

HttpReply& HttpReply::operator=(HttpReply&& other) noexcept {
  if (this != &other) {
    AnswerIfUnanswered();
    connection_ = std::move(other.connection_);
    sequence_ = other.sequence_;
    headers_ = std::move(other.headers_);
    stream_ = std::move(other.stream_);
  }
  return *this;
}

HttpReply::~HttpReply() { AnswerIfUnanswered(); }

void HttpReply::AnswerIfUnanswered() {
  if (connection_ == nullptr) return;
  if (stream_ != nullptr) {
    HttpConnection::BreakStream(std::move(connection_), sequence_, /*too_slow=*/false);
  } else {
    Send(PlainErrorAnswer(500, "the request was dropped without an answer"));
  }
}

void HttpReply::MoveHeaders(HttpAnswer& answer) {
  for (auto& header : headers_) answer.headers.push_back(std::move(header));
  headers_.clear();
}

void HttpReply::Send(HttpAnswer answer) {
  if (connection_ == nullptr) return;
  CHECK(stream_ == nullptr);
  MoveHeaders(answer);
  HttpConnection::Answer(std::move(connection_), sequence_, std::move(answer));
}

void HttpReply::BeginStream(HttpAnswer head) {
  CHECK(connection_ != nullptr && stream_ == nullptr && head.slices.empty());
  stream_ = std::make_shared<HttpStream>();
  MoveHeaders(head);
  const std::string first = std::exchange(head.body, {});
  HttpConnection::BeginStream(connection_, sequence_, std::move(head), stream_);
  if (!first.empty()) Write(first);
}

bool HttpReply::Write(absl::string_view piece) {
  CHECK(stream_ != nullptr);
  switch (stream_->Write(piece)) {
    case HttpStream::Written::kQueued:
      return true;
    case HttpStream::Written::kNews:
      HttpConnection::StreamNews(connection_, sequence_);
      return true;
    case HttpStream::Written::kTooMuch:
      HttpConnection::BreakStream(connection_, sequence_, /*too_slow=*/true);
      return false;
    case HttpStream::Written::kGone:
      return false;
  }
  return false;
}

size_t HttpReply::queued_bytes() const {
  CHECK(stream_ != nullptr);
  return stream_->queued_bytes();
}

void HttpReply::OnDrained(absl::AnyInvocable<void()> on_drained, size_t low_mark) {
  CHECK(stream_ != nullptr);
  stream_->OnDrained(std::move(on_drained), low_mark);
}

void HttpReply::EndStream() {
  CHECK(stream_ != nullptr);
  if (stream_->End() == HttpStream::Written::kNews) {
    HttpConnection::StreamNews(connection_, sequence_);
  }
  stream_ = nullptr;
  connection_ = nullptr;
}

void HttpReply::SendLater(absl::AnyInvocable<HttpAnswer()> make) {
  if (connection_ == nullptr) return;
  if (!headers_.empty()) {
    make = [make = std::move(make), headers = std::exchange(headers_, {})]() mutable {
      HttpAnswer answer = make();
      for (auto& header : headers) answer.headers.push_back(std::move(header));
      return answer;
    };
  }
  HttpConnection::AnswerLater(std::move(connection_), sequence_, std::move(make));
}

void HttpReply::OnAbandon(absl::AnyInvocable<void()> on_abandon) {
  if (connection_ != nullptr) connection_->OnAbandon(sequence_, std::move(on_abandon));
}

void HttpServer::State::Accept() {
  if (draining.load(std::memory_order_relaxed)) return;
  HttpWorker& worker = *workers[next_worker++ % workers.size()];
  acceptor->async_accept(worker.context, [this, &worker](error_code error, tcp::socket socket) {
    OnAccept(error, std::move(socket), worker);
  });
}

void HttpServer::State::OnAccept(error_code error, tcp::socket socket, HttpWorker& worker) {
  if (error == asio::error::operation_aborted) return;
  if (!error && connections.load(std::memory_order_relaxed) < options.connections_max) {
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    asio::post(worker.context, [this, &worker, socket = std::move(socket)]() mutable {
      if (worker.stopping) return;
      std::make_shared<HttpConnection>(shared_from_this(), worker, std::move(socket))->Begin();
    });
    Accept();
    return;
  }
  if (error == asio::error::no_descriptors ||
      error == error_code(ENFILE, boost::system::system_category())) {
    RefuseWaiting();
    // A client whose connection could not even be refused waits in the backlog: look again soon.
    accept_retry->expires_after(std::chrono::milliseconds(20));
    accept_retry->async_wait([this](error_code aborted) {
      if (!aborted) Accept();
    });
    return;
  }
  refused.fetch_add(1, std::memory_order_relaxed);
  Accept();
}

void HttpServer::State::RefuseWaiting() {
  // As many as wait, within reason: each sees its connection close at once.
  constexpr int kRefusedAtOnce = 256;
  if (const int64_t now = RealClock().NowNanos(); now >= warn_again_nanos) {
    warn_again_nanos = now + kHttpDescriptorWarningNanos;
    LOG(WARNING) << "HTTP: no descriptor is free, connections are refused (ulimit -n)";
  }
  if (reserve_descriptor >= 0) ::close(reserve_descriptor);
  for (int i = 0; i < kRefusedAtOnce; ++i) {
    const int client =
        ::accept4(acceptor->native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) break;
    ::close(client);
    refused.fetch_add(1, std::memory_order_relaxed);
  }
  reserve_descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void HttpServer::State::Sweep(HttpWorker& worker) {
  worker.sweep.expires_after(std::chrono::seconds(1));
  worker.sweep.async_wait([this, &worker](error_code aborted) {
    if (aborted || worker.stopping) return;
    const int64_t now = RealClock().NowNanos();
    for (const auto& connection : worker.AllConnections()) {
      connection->CheckTimes(now);
      if (draining.load(std::memory_order_relaxed)) connection->DrainIfIdle();
    }
    Sweep(worker);
  });
}

HttpServer::HttpServer(std::shared_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              HttpHandler handler) {
  auto state = std::make_shared<State>();
  state->options = options;
  state->handler = std::move(handler);
  for (int i = 0; i < std::max(1, options.threads); ++i) {
    state->workers.push_back(std::make_unique<HttpWorker>());
  }
  error_code error;
  const asio::ip::address address = asio::ip::make_address(options.address, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("address: got '", options.address, "', which is no IP address"));
  }
  const tcp::endpoint endpoint(address, options.port);
  state->acceptor = std::make_unique<tcp::acceptor>(state->workers[0]->context);
  tcp::acceptor& acceptor = *state->acceptor;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("listen on ", options.address, ":", options.port, ": ", error.message()));
  }
  state->port = acceptor.local_endpoint().port();
  state->accept_retry = std::make_unique<asio::steady_timer>(state->workers[0]->context);
  state->reserve_descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  state->Accept();
  for (auto& worker : state->workers) {
    state->Sweep(*worker);
    worker->thread = std::thread([&context = worker->context] { context.run(); });
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::~HttpServer() { Stop(); }

uint16_t HttpServer::port() const { return state_->port; }

HttpServerCounters HttpServer::counters() const {
  return {.connections = state_->connections.load(std::memory_order_relaxed),
          .connections_refused = state_->refused.load(std::memory_order_relaxed),
          .clients_too_slow = state_->too_slow.load(std::memory_order_relaxed)};
}

void HttpServer::BeginDrain() {
  if (state_->draining.exchange(true)) return;
  asio::post(state_->workers[0]->context, [this] {
    error_code ignored;
    state_->acceptor->close(ignored);
  });
  for (auto& worker : state_->workers) {
    asio::post(worker->context, [&w = *worker] {
      for (const auto& connection : w.AllConnections()) connection->DrainIfIdle();
    });
  }
}

void HttpServer::Stop() {
  if (!state_->workers[0]->thread.joinable()) return;
  BeginDrain();
  // With its connections closed and timers cancelled a context runs out of work and its thread
  // ends.
  for (auto& worker : state_->workers) {
    asio::post(worker->context, [this, &w = *worker] {
      for (const auto& connection : w.AllConnections()) connection->Close();
      w.stopping = true;
      w.sweep.cancel();
      if (&w == state_->workers[0].get()) state_->accept_retry->cancel();
    });
  }
  for (auto& worker : state_->workers) worker->thread.join();
  state_->stopped.store(true, std::memory_order_release);
  // What was posted too late keeps its connection, and that the context: it finds all closed.
  for (auto& worker : state_->workers) {
    worker->context.restart();
    worker->context.poll();
  }
  if (state_->reserve_descriptor >= 0) ::close(state_->reserve_descriptor);
}

}  // namespace stampmill
