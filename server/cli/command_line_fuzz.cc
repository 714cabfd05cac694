// A configuration file: read or refused, never more. What it sets may be a size.
#include <stdio.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/file.h"
#include "server/cli/command_line.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;  // NOLINT
  const auto file = CreateMemfd("config", 0);
  CHECK_OK(file);
  CHECK_OK(WriteAll(*file, std::as_bytes(std::span(data, size)), "config"));
  std::string name;
  std::vector<std::string> names;
  int count = 0;
  CommandLine line("fuzz", "reads a configuration");
  line.app().add_option("--name", name);
  line.app().add_option("--names", names)->take_all();
  line.app().add_option("--count", count);
  std::string command = "fuzz";
  std::string config = absl::StrCat("--config=/proc/self/fd/", file->get());
  char* argv[] = {command.data(), config.data()};
  // What is wrong is said on standard error, which a search for inputs has no use for.
  const int error = dup(2);
  CHECK(freopen("/dev/null", "w", stderr) != nullptr);
  if (!line.Parse(2, argv).has_value()) ParseSize("--name", name).IgnoreError();
  fflush(stderr);
  dup2(error, 2);
  close(error);
  return 0;
}
