// ProgressLine: long work shown while it runs: one line that is written over on a terminal, plain
// lines elsewhere. On standard error, so that results can be piped.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace stampmill {

// Owned by one thread. The destructor clears the line of a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(absl::string_view what);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(absl::string_view line);

 private:
  const std::string what_;
  const bool terminal_;
  bool shown_ = false;
};

}  // namespace stampmill
