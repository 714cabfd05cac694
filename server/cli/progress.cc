#include "server/cli/progress.h"

#include <unistd.h>

#include <cstdio>

namespace stampmill {

ProgressLine::ProgressLine(absl::string_view what)
    : what_(what), terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (terminal_ && shown_) fputs("\r\033[K", stderr);
}

void ProgressLine::Show(absl::string_view line) {
  const std::string text(line);
  if (terminal_) {
    fprintf(stderr, "\r\033[K%s: %s", what_.c_str(), text.c_str());
    fflush(stderr);
  } else {
    fprintf(stderr, "%s: %s\n", what_.c_str(), text.c_str());
  }
  shown_ = true;
}

}  // namespace stampmill
