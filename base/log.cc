#include "base/log.h"

#include <limits.h>
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/bytes.h"

namespace stampmill {
namespace {

// The sink's settings are the process's, like standard error itself.
constinit std::atomic<LogFormat> g_format{LogFormat::kPlain};
constinit std::atomic<LogSeverity> g_threshold{LogSeverity::kINFO};

const char* SeverityName(LogSeverity severity) {
  switch (severity) {
    case LogSeverity::kINFO:
      return "INFO";
    case LogSeverity::kWARNING:
      return "WARNING";
    case LogSeverity::kERROR:
      return "ERROR";
  }
  return "?";
}

// A line of at most PIPE_BUF bytes. Escapes are appended whole or not at all, and room for the cut
// mark and the end of the line is kept free.
class Line {
 public:
  void Append(absl::string_view text) {
    const size_t n = text.size() <= Room() ? text.size() : Room();
    memcpy(bytes_ + size_, text.data(), n);
    size_ += n;
  }

  // Appends `text` with control characters (and, for JSON, quotes and backslashes) escaped.
  void AppendEscaped(absl::string_view text, bool json, bool cut) {
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      char escape[8] = {c, 0};
      const auto code = static_cast<unsigned char>(c);
      if (const size_t sequence = Utf8Length(text.substr(i)); json && sequence != 1) {
        if (sequence == 0) {
          strcpy(escape, "\\ufffd");
        } else {
          memcpy(escape, text.data() + i, sequence);
          i += sequence - 1;
        }
      } else if (c == '\n') {
        strcpy(escape, "\\n");
      } else if (code < 0x20 || code == 0x7f) {
        snprintf(escape, sizeof(escape), json ? "\\u%04x" : "\\x%02x", code);
      } else if (json && (c == '"' || c == '\\')) {
        escape[0] = '\\';
        escape[1] = c;
        escape[2] = 0;
      }
      const size_t length = strlen(escape);
      if (length > Room()) {
        cut = true;
        break;
      }
      memcpy(bytes_ + size_, escape, length);
      size_ += length;
    }
    if (cut) AppendReserved("...");
  }

  // Uses the room that Append leaves free.
  void AppendReserved(absl::string_view text) {
    memcpy(bytes_ + size_, text.data(), text.size());
    size_ += text.size();
  }

  // Nobody waits for a reader that has stopped: after a while its lines are dropped, until there is
  // room again. A pipe that polls as writable takes PIPE_BUF bytes at once.
  void Write() const {
    static constinit std::atomic<bool> stuck{false};
    constexpr int kPatienceMs = 200;
    pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    const bool was_stuck = stuck.load(std::memory_order_relaxed);
    int ready = 0;
    do {
      ready = poll(&out, 1, was_stuck ? 0 : kPatienceMs);
    } while (ready < 0 && errno == EINTR);
    stuck.store(ready == 0, std::memory_order_relaxed);
    if (ready == 0) return;
    size_t written = 0;
    while (written < size_) {
      const ssize_t n = write(STDERR_FILENO, bytes_ + written, size_ - written);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;  // Nobody to tell.
      written += static_cast<size_t>(n);
    }
  }

 private:
  static constexpr size_t kReserved = 8;  // `..."}` and a newline
  size_t Room() const { return sizeof(bytes_) - kReserved - size_; }

  char bytes_[PIPE_BUF];
  size_t size_ = 0;
};

absl::string_view FileName(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

}  // namespace

void SetLogFormat(LogFormat format) { g_format.store(format, std::memory_order_relaxed); }
void SetLogThreshold(LogSeverity lowest) { g_threshold.store(lowest, std::memory_order_relaxed); }
bool LogEnabled(LogSeverity severity) {
  return severity >= g_threshold.load(std::memory_order_relaxed);
}

LogMessage::LogMessage(const char* file, int line, LogSeverity severity)
    : file_(file), line_(line), severity_(severity), stream_(&buffer_) {}

LogMessage::~LogMessage() {
  const int saved_errno = errno;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  char date[32];
  strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
  const bool json = g_format.load(std::memory_order_relaxed) == LogFormat::kJson;
  const absl::string_view file = FileName(file_).substr(0, 100);
  char head[256];
  snprintf(head, sizeof(head),
           json ? R"({"time":"%s.%06ldZ","severity":"%s","file":"%.*s","line":%d,"thread":%ld,)"
                  R"("message":")"
                : "%s.%06ldZ %s %.*s:%d [%ld] ",
           date, now.tv_nsec / 1000, SeverityName(severity_), static_cast<int>(file.size()),
           file.data(), line_, syscall(SYS_gettid));
  Line line;
  line.Append(head);
  line.AppendEscaped(buffer_.text(), json, buffer_.cut());
  line.AppendReserved(json ? "\"}\n" : "\n");
  line.Write();
  errno = saved_errno;
}

}  // namespace stampmill
