#include "compiler/worker/protocol.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

// Leaves room for the rest of a frame.
constexpr size_t kTextBytesMax = kFrameBytesMax / 2;

absl::string_view Cut(absl::string_view text) { return text.substr(0, kTextBytesMax); }

absl::Status Gone() { return absl::UnavailableError("compile worker: the other side is gone"); }

}  // namespace

std::string WorkerRequest::Serialize() const {
  std::string payload;
  ByteWriter out(&payload);
  out.U32(kWorkerProtocolVersion);
  out.String(model_path);
  out.String(target);
  out.String(options);
  out.I32(threads);
  out.String(cache_directory);
  out.U8(cache_is_default ? 1 : 0);
  out.U8(cache_writable ? 1 : 0);
  out.I64(memory_limit_bytes);
  return payload;
}

absl::StatusOr<WorkerRequest> WorkerRequest::Parse(std::span<const std::byte> payload) {
  ByteReader in(payload, "compile request");
  const uint32_t version = in.U32();
  if (in.ok() && version != kWorkerProtocolVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("compile request version: got ", version, ", limit ", kWorkerProtocolVersion));
  }
  WorkerRequest request;
  request.model_path = std::string(in.String());
  request.target = std::string(in.String());
  request.options = std::string(in.String());
  request.threads = in.I32();
  request.cache_directory = std::string(in.String());
  request.cache_is_default = in.U8() != 0;
  request.cache_writable = in.U8() != 0;
  request.memory_limit_bytes = in.I64();
  in.ExpectEnd();
  RETURN_IF_ERROR(in.status());
  return request;
}

std::string WorkerResult::Serialize() const {
  std::string payload;
  ByteWriter out(&payload);
  out.I32(static_cast<int32_t>(status.code()));
  out.String(Cut(status.message()));
  out.I64(kernels_compiled);
  out.I64(kernels_reused);
  out.I64(milliseconds);
  return payload;
}

absl::StatusOr<WorkerResult> WorkerResult::Parse(std::span<const std::byte> payload) {
  ByteReader in(payload, "compile result");
  WorkerResult result;
  const int32_t code = in.I32();
  const absl::string_view message = in.String();
  result.kernels_compiled = in.I64();
  result.kernels_reused = in.I64();
  result.milliseconds = in.I64();
  in.ExpectEnd();
  if (code < 0 || code > static_cast<int32_t>(absl::StatusCode::kUnauthenticated)) {
    in.Fail("unknown status code");
  }
  RETURN_IF_ERROR(in.status());
  result.status = absl::Status(static_cast<absl::StatusCode>(code), message);
  return result;
}

std::string LinePayload(absl::string_view line) {
  std::string payload;
  ByteWriter(&payload).String(Cut(line));
  return payload;
}

absl::StatusOr<std::string> Frame::Line() const {
  ByteReader in(AsBytes(payload), "compile line");
  const absl::string_view line = in.String();
  in.ExpectEnd();
  RETURN_IF_ERROR(in.status());
  return std::string(line);
}

std::string ObjectPayload(const Digest& digest) {
  return std::string(AsText(std::as_bytes(std::span(digest.bytes))));
}

absl::StatusOr<Digest> Frame::ObjectDigest() const {
  Digest digest;
  if (payload.size() != digest.bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("compile object: got ", payload.size(),
                                                   " bytes, limit ", digest.bytes.size()));
  }
  memcpy(digest.bytes.data(), payload.data(), digest.bytes.size());
  return digest;
}

absl::StatusOr<Frame> ParseFrame(std::span<const std::byte> packet) {
  ByteReader in(packet, "compile frame");
  const uint8_t kind = in.U8();
  if (in.ok() && (kind < static_cast<uint8_t>(FrameKind::kRequest) ||
                  kind > static_cast<uint8_t>(FrameKind::kUnwritten))) {
    in.Fail("unknown kind");
  }
  RETURN_IF_ERROR(in.status());
  Frame frame;
  frame.kind = static_cast<FrameKind>(kind);
  frame.payload = std::string(AsText(packet.subspan(1)));
  return frame;
}

absl::Status SendFrame(const FileDescriptor& socket, FrameKind kind, absl::string_view payload,
                       int file) {
  if (payload.size() + 1 > kFrameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("compile frame: got ", payload.size() + 1, " bytes, limit ", kFrameBytesMax));
  }
  uint8_t kind_byte = static_cast<uint8_t>(kind);
  iovec parts[2] = {{.iov_base = &kind_byte, .iov_len = 1},
                    {.iov_base = const_cast<char*>(payload.data()), .iov_len = payload.size()}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &file, sizeof(file));
  }
  while (sendmsg(socket.get(), &message, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return Gone();
    return absl::ErrnoToStatus(errno, "compile worker: sendmsg");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Frame>> ReceiveFrame(const FileDescriptor& socket, bool wait) {
  std::string packet(kFrameBytesMax, '\0');
  iovec part = {.iov_base = packet.data(), .iov_len = packet.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t size;
  do {
    size = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
  } while (size < 0 && errno == EINTR);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::optional<Frame>();
  if (size < 0 && errno != ECONNRESET) {
    return absl::ErrnoToStatus(errno, "compile worker: recvmsg");
  }
  FileDescriptor file;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int received = -1;
    memcpy(&received, CMSG_DATA(header), sizeof(received));
    file = FileDescriptor(received);
  }
  if (size <= 0) return Gone();
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("compile frame: got more than ", kFrameBytesMax, " bytes or one file"));
  }
  ASSIGN_OR_RETURN(Frame frame, ParseFrame(AsBytes(packet).first(static_cast<size_t>(size))));
  frame.file = std::move(file);
  return std::optional<Frame>(std::move(frame));
}

}  // namespace stampmill
