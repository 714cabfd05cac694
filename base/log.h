// LOG: lines to standard error, plain or JSON, for the whole process.
//
//   LOG(INFO) << "model " << name << " ready in " << millis << " ms";
//
// A line is one event: it is formatted in place (nothing is allocated, what is too long is cut and
// ends in "..."), control characters are escaped so that no client can forge a line, and it goes
// out in one write of at most PIPE_BUF bytes, which the kernel does not mix with others.
// Thread-safe without a lock.
#pragma once

#include <cstddef>
#include <ostream>
#include <streambuf>

#include "absl/strings/string_view.h"

#define LOG(severity)                                                                          \
  !::stampmill::LogEnabled(::stampmill::LogSeverity::k##severity)                              \
      ? static_cast<void>(0)                                                                   \
      : ::stampmill::LogStreamToVoid() &&                                                      \
            ::stampmill::LogMessage(__FILE__, __LINE__, ::stampmill::LogSeverity::k##severity) \
                .stream()

namespace stampmill {

enum class LogSeverity { kINFO, kWARNING, kERROR };
enum class LogFormat { kPlain, kJson };

// Process-wide, may be called at any time; the defaults are kPlain and kINFO.
void SetLogFormat(LogFormat format);
void SetLogThreshold(LogSeverity lowest);
bool LogEnabled(LogSeverity severity);

// Bytes of one message; with time, place and JSON escapes a line stays below PIPE_BUF (4096).
inline constexpr size_t kLogMessageBytesMax = 3072;

// One line in the making; the destructor writes it. Used through LOG only.
class LogMessage {
 public:
  LogMessage(const char* file, int line, LogSeverity severity);
  ~LogMessage();
  LogMessage(const LogMessage&) = delete;
  LogMessage& operator=(const LogMessage&) = delete;

  std::ostream& stream() { return stream_; }

 private:
  // Drops what does not fit and remembers that it did.
  class Buffer final : public std::streambuf {
   public:
    Buffer() { setp(text_, text_ + sizeof(text_)); }
    absl::string_view text() const { return {pbase(), static_cast<size_t>(pptr() - pbase())}; }
    bool cut() const { return cut_; }

   protected:
    int_type overflow(int_type c) override {
      cut_ = true;
      return traits_type::not_eof(c);
    }

   private:
    char text_[kLogMessageBytesMax];
    bool cut_ = false;
  };

  const char* const file_;
  const int line_;
  const LogSeverity severity_;
  Buffer buffer_;
  std::ostream stream_;
};

// Gives `condition ? void : stream` its common type; && binds weaker than <<.
struct LogStreamToVoid {
  void operator&&(std::ostream&) const {}
};

}  // namespace stampmill
