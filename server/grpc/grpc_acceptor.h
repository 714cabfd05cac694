// GrpcAcceptor: accepts gRPC's connections on a thread of its own and hands the descriptors over.
// gRPC's listener stops for ever when it once finds no free descriptor, and knows no
// limit on connections; this one refuses what is too much, says so in its counters, and accepts
// again as soon as there is room.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file.h"

namespace stampmill {

struct ConnectionCounters {
  int64_t connections = 0;          // open now
  int64_t connections_refused = 0;  // beyond the limit or without a descriptor
  int64_t clients_too_slow = 0;     // calls cancelled because the answer was not taken in time
};

class GrpcAcceptor {
 public:
  struct Options {
    std::string address;
    uint16_t port = 0;  // 0 picks a free one
    int32_t connections_max = 4096;
    // Takes an accepted, non-blocking descriptor over. Called on the accept thread.
    std::function<void(int listener, int fd)> accepted;
    // Called on the accept thread now and then (kGrpcSweepNanos).
    std::function<void()> tick;
  };

  // Listens; accepts nothing yet. UNAVAILABLE names address and port when they cannot be bound.
  static absl::StatusOr<std::unique_ptr<GrpcAcceptor>> Listen(Options options);
  ~GrpcAcceptor();  // Stop

  uint16_t port() const { return port_; }
  void Start();
  // Closes the listener and joins the thread. Connections stay with who took them.
  void Stop();
  ConnectionCounters counters() const;

 private:
  // A connection that was handed over. The socket's inode tells whether the descriptor is still it:
  // gRPC does not say when it closes one.
  struct Connection {
    int fd = -1;
    uint64_t inode = 0;
  };

  explicit GrpcAcceptor(Options options) : options_(std::move(options)) {}
  void Run();
  // False: no descriptor was free.
  bool AcceptAll();
  void RefuseWaiting();
  void Sweep();

  const Options options_;
  uint16_t port_ = 0;
  FileDescriptor listener_, stop_event_;
  FileDescriptor reserve_;  // given up for a moment to refuse a client when there are no others
  int64_t warn_again_nanos_ = 0;         // not before is it logged that there are none
  std::vector<Connection> connections_;  // the accept thread's
  std::atomic<int64_t> connection_count_{0};
  std::atomic<int64_t> refused_{0};
  std::thread thread_;
};

}  // namespace stampmill
