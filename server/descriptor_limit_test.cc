// The accepting sides in a process that has used up its descriptors: whoever connects then is
// refused at once instead of waiting in the backlog, and there is service again as soon as a
// descriptor is free. The server is this test's own binary, started anew, so that its clients do
// not share its descriptors.
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "gtest/gtest.h"
#include "server/grpc/grpc_acceptor.h"
#include "server/http/http_server.h"
#include "server/testing/http_client.h"

namespace stampmill {
namespace {

constexpr int kConnectionsMax = 2;

// --- The server's process.

// Leaves descriptors for kConnectionsMax connections, tells the port, and waits for the end of
// standard input.
int ServeWithFewDescriptors(uint16_t port) {
  const int next = dup(0);
  close(next);
  rlimit limit = {};
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = static_cast<rlim_t>(next) + kConnectionsMax;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(write(STDOUT_FILENO, &port, sizeof(port)) == sizeof(port));
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

int ServeHttp() {
  auto server = HttpServer::Start({.threads = 1},
                                  [](HttpRequest, HttpReply reply) { reply.Send(HttpAnswer()); });
  CHECK_OK(server);
  return ServeWithFewDescriptors((*server)->port());
}

// In gRPC's place: answers whoever was accepted, and closes what its client has left.
int ServeGrpc() {
  std::vector<int> connections;
  auto acceptor = GrpcAcceptor::Listen(
      {.address = "127.0.0.1",
       .accepted =
           [&connections](int, int fd) {
             static constexpr char kAnswer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
             CHECK(send(fd, kAnswer, strlen(kAnswer), MSG_NOSIGNAL) > 0);
             connections.push_back(fd);
           },
       .tick =
           [&connections] {
             std::erase_if(connections, [](int fd) {
               char bytes[1024];
               const bool left = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) == 0;
               if (left) close(fd);
               return left;
             });
           }});
  CHECK_OK(acceptor);
  (*acceptor)->Start();
  return ServeWithFewDescriptors((*acceptor)->port());
}

// --- The test's.

class DescriptorLimitTest : public testing::TestWithParam<const char*> {
 protected:
  DescriptorLimitTest() {
    int input[2], output[2];
    CHECK(pipe2(input, O_CLOEXEC) == 0 && pipe2(output, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    std::string program = "/proc/self/exe", side = GetParam();
    char* arguments[] = {program.data(), side.data(), nullptr};
    CHECK(posix_spawn(&child_, program.c_str(), &actions, nullptr, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(input[0]);
    close(output[1]);
    input_ = FileDescriptor(input[1]);
    const FileDescriptor port(output[0]);
    CHECK(read(port.get(), &port_, sizeof(port_)) == sizeof(port_));
  }
  ~DescriptorLimitTest() override {
    input_.Close();
    int status = 0;
    waitpid(child_, &status, 0);
    EXPECT_EQ(status, 0);
  }

  bool Serves(HttpClient& client) {
    const std::optional<HttpResponse> response = client.Get("/");
    return response.has_value() && response->status == 200;
  }

  pid_t child_ = -1;
  FileDescriptor input_;
  uint16_t port_ = 0;
};

TEST_P(DescriptorLimitTest, ClientsAreRefusedAtOnceAndServedAgainWithinASecond) {
  constexpr int kTooMany = 40;
  std::vector<std::unique_ptr<HttpClient>> served, refused;
  for (int i = 0; i < kConnectionsMax; ++i) {
    served.push_back(std::make_unique<HttpClient>(port_));
    ASSERT_TRUE(Serves(*served.back()));
  }
  const int64_t start = RealClock().NowNanos();
  for (int i = 0; i < kTooMany; ++i) refused.push_back(std::make_unique<HttpClient>(port_));
  for (const auto& client : refused) EXPECT_FALSE(Serves(*client));
  EXPECT_LT(RealClock().NowNanos() - start, 2'000'000'000);

  served.pop_back();
  const int64_t released = RealClock().NowNanos();
  do {
    ASSERT_LT(RealClock().NowNanos() - released, 1'000'000'000);
    served.push_back(std::make_unique<HttpClient>(port_));
  } while (!Serves(*served.back()));
}

INSTANTIATE_TEST_SUITE_P(Sides, DescriptorLimitTest, testing::Values("http", "grpc"));

}  // namespace
}  // namespace stampmill

int main(int argc, char** argv) {
  const std::string side = argc > 1 ? argv[1] : "";
  if (side == "http") return stampmill::ServeHttp();
  if (side == "grpc") return stampmill::ServeGrpc();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
