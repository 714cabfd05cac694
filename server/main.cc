// stampmill: one program; the first argument says what it does.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "runtime/placement.h"
#include "server/answers.h"
#include "server/cli/command_line.h"
#include "server/cli/commands.h"
#include "server/serve.h"

namespace stampmill {
namespace {

struct Subcommand {
  const char* name;
  const char* description;
  int (*run)(int argc, char** argv);
};

constexpr Subcommand kSubcommands[] = {
    {"serve", "serves models over HTTP and gRPC", RunServe},
    {"compile", "fills a kernel cache ahead of time", RunCompile},
    {"run", "one inference without a server", RunRun},
    {"generate", "one text by a language model without a server", RunGenerate},
    {"devices", "lists devices and what they can do", RunDevices},
    {"inspect", "describes a model", RunInspect},
    {"cache", "lists, verifies, prunes, exports and imports the kernel cache", RunCache},
    {"bench", "measures models, kernels and servers", RunBench},
};

void PrintUsage(FILE* out) {
  fputs("usage: stampmill COMMAND [ARGUMENTS...]\n\n", out);
  for (const Subcommand& command : kSubcommands) {
    fprintf(out, "  %-9s %s\n", command.name, command.description);
  }
  fputs("\nstampmill COMMAND --help describes its arguments; stampmill --version\n", out);
}

int Main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h" || name == "help") {
    PrintUsage(stdout);
    return kExitDone;
  }
  if (name == "--version") {
    printf("stampmill %s, compiler %s\n", kServerVersion, CompilerVersionText().c_str());
    return kExitDone;
  }
  // Not for people: serve and others start it.
  if (name == "compile-worker") return RunCompileWorkerProcess();
  for (const Subcommand& command : kSubcommands) {
    if (name == command.name) return command.run(argc - 1, argv + 1);
  }
  if (name.empty()) {
    PrintUsage(stderr);
    return kExitUsage;
  }
  return FailUsage(absl::StrCat("got '", name, "', which is no command; see stampmill --help"));
}

// What is opened later must not become standard input, output or error by its number. Libraries
// open descriptors as they are loaded, so that main() is too late: the dynamic loader calls this
// first.
void OpenStandardDescriptors(int, char**, char**) {
  for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = open("/dev/null", O_RDWR)) {
    if (fd <= STDERR_FILENO) continue;
    close(fd);
    return;
  }
}

[[gnu::section(".preinit_array"),
  gnu::used]] void (*const kBeforeLibraries)(int, char**, char**) = OpenStandardDescriptors;

}  // namespace
}  // namespace stampmill

int main(int argc, char** argv) {
  // Distributions build Abseil so that every mutex, gRPC's too, looks for cycles of locks: a
  // twentieth of what a call costs. Our tests are where that look belongs.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Libraries throw when the system has no more memory, threads or descriptors.
  try {
    return stampmill::Main(argc, argv);
  } catch (const std::exception& error) {
    return stampmill::Fail(absl::ResourceExhaustedError(error.what()));
  }
}
