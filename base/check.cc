#include "base/check.h"

#include <unistd.h>

#include <cstdlib>

namespace stampmill {

CheckFailure::CheckFailure(const char* file, int line, const std::string& what) {
  stream_ << file << ":" << line << ": CHECK failed: " << what << " ";
}

CheckFailure::~CheckFailure() {
  stream_ << "\n";
  // Past the log sink on purpose: whatever state that is in, these words get out.
  const std::string text = stream_.str();
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = write(STDERR_FILENO, text.data() + written, text.size() - written);
    if (n <= 0) break;
    written += static_cast<size_t>(n);
  }
  std::abort();
}

std::optional<std::string> CheckIsOk(const absl::Status& status, const char* expression) {
  if (ABSL_PREDICT_TRUE(status.ok())) return std::nullopt;
  return std::string(expression) + " is ok (" + status.ToString() + ")";
}

}  // namespace stampmill
