#include "server/grpc/grpc_acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/grpc/grpc_limits.h"

namespace stampmill {
namespace {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
};

std::optional<SocketAddress> ParseAddress(const std::string& text, uint16_t port) {
  SocketAddress address;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.size = sizeof(*v4);
  } else if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.size = sizeof(*v6);
  } else {
    return std::nullopt;
  }
  return address;
}

uint16_t BoundPort(int fd) {
  SocketAddress bound;
  bound.size = sizeof(bound.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound.storage), &bound.size) != 0) return 0;
  return ntohs(bound.storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&bound.storage)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port);
}

uint64_t SocketInode(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

FileDescriptor OpenReserve() { return FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcAcceptor>> GrpcAcceptor::Listen(Options options) {
  const std::optional<SocketAddress> address = ParseAddress(options.address, options.port);
  if (!address.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("address: got '", options.address, "', which is no IP address"));
  }
  auto acceptor = std::unique_ptr<GrpcAcceptor>(new GrpcAcceptor(std::move(options)));
  acceptor->listener_ = FileDescriptor(
      ::socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int listener = acceptor->listener_.get();
  const int on = 1;
  if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(listener, reinterpret_cast<const sockaddr*>(&address->storage), address->size) != 0 ||
      listen(listener, SOMAXCONN) != 0) {
    return absl::UnavailableError(absl::StrCat("listen on ", acceptor->options_.address, ":",
                                               acceptor->options_.port, ": ", strerror(errno)));
  }
  acceptor->port_ = BoundPort(listener);
  acceptor->stop_event_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!acceptor->stop_event_.valid()) {
    return absl::UnavailableError(absl::StrCat("eventfd: ", strerror(errno)));
  }
  acceptor->reserve_ = OpenReserve();
  return acceptor;
}

GrpcAcceptor::~GrpcAcceptor() { Stop(); }

void GrpcAcceptor::Start() {
  thread_ = std::thread([this] { Run(); });
}

void GrpcAcceptor::Stop() {
  if (thread_.joinable()) {
    eventfd_write(stop_event_.get(), 1);
    thread_.join();
  }
  listener_.Close();
}

ConnectionCounters GrpcAcceptor::counters() const {
  return {.connections = connection_count_.load(std::memory_order_relaxed),
          .connections_refused = refused_.load(std::memory_order_relaxed)};
}

void GrpcAcceptor::Run() {
  pollfd polls[2] = {{.fd = stop_event_.get(), .events = POLLIN, .revents = 0},
                     {.fd = listener_.get(), .events = POLLIN, .revents = 0}};
  const int sweep_ms = static_cast<int>(kGrpcSweepNanos / 1'000'000);
  const int retry_ms = static_cast<int>(kGrpcAcceptRetryNanos / 1'000'000);
  bool out_of_descriptors = false;
  while (true) {
    // Without descriptors the listener stays readable: look again only when the time is up.
    polls[1].events = out_of_descriptors ? 0 : POLLIN;
    ::poll(polls, 2, out_of_descriptors ? retry_ms : sweep_ms);
    if (polls[0].revents != 0) return;
    out_of_descriptors = !AcceptAll();
    Sweep();
    options_.tick();
  }
}

bool GrpcAcceptor::AcceptAll() {
  while (true) {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return true;
      RefuseWaiting();
      return false;
    }
    if (static_cast<int32_t>(connections_.size()) >= options_.connections_max) Sweep();
    if (static_cast<int32_t>(connections_.size()) >= options_.connections_max) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      ::close(fd);
      continue;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    // gRPC lets a write wait for ever, and cancelling a call does not take back what is in it.
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kGrpcUnackedMillis, sizeof(kGrpcUnackedMillis));
    connections_.push_back({.fd = fd, .inode = SocketInode(fd)});
    connection_count_.store(static_cast<int64_t>(connections_.size()), std::memory_order_relaxed);
    options_.accepted(listener_.get(), fd);
  }
}

void GrpcAcceptor::RefuseWaiting() {
  // As many as wait, within reason: each hears at once that there is no room.
  constexpr int kRefusedAtOnce = 256;
  if (const int64_t now = RealClock().NowNanos(); now >= warn_again_nanos_) {
    warn_again_nanos_ = now + kGrpcDescriptorWarningNanos;
    LOG(WARNING) << "gRPC: no descriptor is free, connections are refused (ulimit -n)";
  }
  reserve_.Close();
  for (int i = 0; i < kRefusedAtOnce; ++i) {
    const FileDescriptor client(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client.valid()) break;
    refused_.fetch_add(1, std::memory_order_relaxed);
  }
  reserve_ = OpenReserve();
}

void GrpcAcceptor::Sweep() {
  std::erase_if(connections_, [](const Connection& c) { return SocketInode(c.fd) != c.inode; });
  connection_count_.store(static_cast<int64_t>(connections_.size()), std::memory_order_relaxed);
}

}  // namespace stampmill
