// A blocking HTTP/1.1 client for tests, which may also send what no good client would.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/file.h"

namespace stampmill {

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

// One connection. CHECK-fails when it cannot be made.
class HttpClient {
 public:
  // `receive_buffer_bytes`: of the socket, so that a client that does not read stops the server
  // early; 0: the system's.
  explicit HttpClient(uint16_t port, int receive_buffer_bytes = 0);

  // False when the server has closed the connection.
  bool Send(absl::string_view bytes);
  void EndOfStream();  // shutdown(SHUT_WR)
  // The next answer, 1xx included; nullopt when the connection ends before it is whole.
  // `no_body`: to a HEAD request.
  std::optional<HttpResponse> Read(bool no_body = false);
  // After Read gave the head of an answer in chunks: the next one, empty: the last; nullopt when
  // the connection ends before it is whole.
  std::optional<std::string> ReadChunk();
  // All chunks but the last, put together.
  std::optional<std::string> ReadChunks();
  // All bytes until the server closes.
  std::string ReadRest();
  // Waits until the server closes; true when nothing more came.
  bool ReadEnd();
  void Close() { socket_.Close(); }

  std::optional<HttpResponse> Get(absl::string_view path, absl::string_view headers = "");
  std::optional<HttpResponse> Post(absl::string_view path, absl::string_view body,
                                   absl::string_view headers = "");

 private:
  bool Fill();  // reads more; false at the end
  FileDescriptor socket_;
  std::string buffer_;
};

}  // namespace stampmill
