#include "server/testing/http_client.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"

namespace stampmill {
namespace {

// A search for inputs has a timer that signals.
template <typename Call>
ssize_t Uninterrupted(const Call& call) {
  ssize_t result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

HttpClient::HttpClient(uint16_t port, int receive_buffer_bytes)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  CHECK(socket_.valid());
  if (receive_buffer_bytes > 0) {
    CHECK(setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes,
                     sizeof(receive_buffer_bytes)) == 0);
  }
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
}

bool HttpClient::Send(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = Uninterrupted(
        [&] { return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); });
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void HttpClient::EndOfStream() { shutdown(socket_.get(), SHUT_WR); }

bool HttpClient::Fill() {
  char bytes[16384];
  const ssize_t got = Uninterrupted([&] { return ::recv(socket_.get(), bytes, sizeof(bytes), 0); });
  if (got <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(got));
  return true;
}

bool HttpClient::ReadEnd() {
  const size_t before = buffer_.size();
  while (Fill()) {
  }
  return buffer_.size() == before;
}

std::optional<HttpResponse> HttpClient::Read(bool no_body) {
  size_t end = buffer_.find("\r\n\r\n");
  while (end == std::string::npos) {
    if (!Fill()) return std::nullopt;
    end = buffer_.find("\r\n\r\n");
  }
  HttpResponse response;
  const std::vector<std::string> lines = absl::StrSplit(buffer_.substr(0, end), "\r\n");
  const std::vector<std::string> first = absl::StrSplit(lines[0], absl::MaxSplits(' ', 2));
  if (first.size() < 2 || !absl::SimpleAtoi(first[1], &response.status)) return std::nullopt;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> pair = absl::StrSplit(lines[i], absl::MaxSplits(": ", 1));
    response.headers[absl::AsciiStrToLower(pair[0])] = pair.size() > 1 ? pair[1] : "";
  }
  buffer_.erase(0, end + 4);
  size_t size = 0;
  if (const auto length = response.headers.find("content-length");
      !no_body && length != response.headers.end() && !absl::SimpleAtoi(length->second, &size)) {
    return std::nullopt;
  }
  while (buffer_.size() < size) {
    if (!Fill()) return std::nullopt;
  }
  response.body = buffer_.substr(0, size);
  buffer_.erase(0, size);
  return response;
}

std::optional<std::string> HttpClient::ReadChunk() {
  size_t end = buffer_.find("\r\n");
  while (end == std::string::npos) {
    if (!Fill()) return std::nullopt;
    end = buffer_.find("\r\n");
  }
  uint32_t size = 0;
  if (!absl::SimpleHexAtoi(buffer_.substr(0, end), &size)) return std::nullopt;
  const size_t begin = end + 2;
  while (buffer_.size() < begin + size + 2) {
    if (!Fill()) return std::nullopt;
  }
  if (buffer_.compare(begin + size, 2, "\r\n") != 0) return std::nullopt;
  std::string chunk = buffer_.substr(begin, size);
  buffer_.erase(0, begin + size + 2);
  return chunk;
}

std::optional<std::string> HttpClient::ReadChunks() {
  std::string all;
  for (;;) {
    const std::optional<std::string> chunk = ReadChunk();
    if (!chunk.has_value()) return std::nullopt;
    if (chunk->empty()) return all;
    all += *chunk;
  }
}

std::string HttpClient::ReadRest() {
  while (Fill()) {
  }
  return std::exchange(buffer_, {});
}

std::optional<HttpResponse> HttpClient::Get(absl::string_view path, absl::string_view headers) {
  if (!Send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: test\r\n", headers, "\r\n"))) {
    return std::nullopt;
  }
  return Read();
}

std::optional<HttpResponse> HttpClient::Post(absl::string_view path, absl::string_view body,
                                             absl::string_view headers) {
  if (!Send(absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: test\r\nContent-Length: ", body.size(),
                         "\r\n", headers, "\r\n", body))) {
    return std::nullopt;
  }
  return Read();
}

}  // namespace stampmill
