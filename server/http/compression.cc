#include "server/http/compression.h"

#include <zlib.h>

#include <algorithm>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace stampmill {
namespace {

constexpr int kWindowBits = 15;
constexpr size_t kChunk = 64 << 10;
constexpr std::byte kGzipFirstByte{0x1f};

}  // namespace

absl::StatusOr<std::string> Decompress(std::span<const std::byte> data, uint64_t bytes_max) {
  z_stream stream = {};
  // 32: zlib and gzip heads are told apart.
  CHECK_EQ(inflateInit2(&stream, kWindowBits + 32), Z_OK);
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
  std::string out;
  size_t taken = 0;
  int result = Z_OK;
  while (result != Z_STREAM_END) {
    if (stream.avail_in == 0 && taken < data.size()) {
      const size_t piece = std::min(data.size() - taken, size_t{1} << 30);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(data.data() + taken));
      stream.avail_in = static_cast<uInt>(piece);
      taken += piece;
    }
    const size_t begin = out.size();
    out.resize(begin + kChunk);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + begin);
    stream.avail_out = kChunk;
    result = inflate(&stream, Z_NO_FLUSH);
    out.resize(begin + kChunk - stream.avail_out);
    if (out.size() > bytes_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat("decompressed body: got more than the limit of ", bytes_max, " bytes"));
    }
    if (result == Z_STREAM_END) {
      const bool all = stream.avail_in == 0 && taken == data.size();
      if (all) break;
      // gzip is one member or several, zlib is one stream; nothing else may follow.
      if (data[0] != kGzipFirstByte || inflateReset2(&stream, kWindowBits + 16) != Z_OK) {
        return absl::InvalidArgumentError("compressed body: bytes after its end");
      }
      result = Z_OK;
      continue;
    }
    const bool starved = stream.avail_in == 0 && taken == data.size();
    if (result != Z_OK && !(result == Z_BUF_ERROR && !starved)) {
      return absl::InvalidArgumentError(
          absl::StrCat("compressed body: ", stream.msg != nullptr ? stream.msg : "ends too early"));
    }
    if (starved && stream.avail_out != 0) {
      return absl::InvalidArgumentError("compressed body: ends too early");
    }
  }
  return out;
}

std::string Compress(ContentCoding coding, std::span<const std::span<const std::byte>> pieces) {
  z_stream stream = {};
  const int window = coding == ContentCoding::kGzip ? kWindowBits + 16 : kWindowBits;
  CHECK_EQ(deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, deflateEnd);
  std::string out;
  const auto run = [&](std::span<const std::byte> piece, int flush) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(piece.data()));
    stream.avail_in = static_cast<uInt>(piece.size());
    int result = Z_OK;
    do {
      const size_t begin = out.size();
      out.resize(begin + kChunk);
      stream.next_out = reinterpret_cast<Bytef*>(out.data() + begin);
      stream.avail_out = kChunk;
      result = deflate(&stream, flush);
      out.resize(begin + kChunk - stream.avail_out);
    } while (stream.avail_out == 0 || (flush == Z_FINISH && result != Z_STREAM_END));
  };
  constexpr size_t kPieceMax = size_t{1} << 30;  // zlib counts in 32 bits
  for (std::span<const std::byte> piece : pieces) {
    for (size_t at = 0; at < piece.size(); at += kPieceMax) {
      run(piece.subspan(at, std::min(kPieceMax, piece.size() - at)), Z_NO_FLUSH);
    }
  }
  run({}, Z_FINISH);
  return out;
}

}  // namespace stampmill
