// `stampmill bench model|kernel|serve`: hands over to the benchmark that is named.
#include "server/cli/bench.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/cli/command_line.h"
#include "server/cli/commands.h"

namespace stampmill {
namespace {

struct Benchmark {
  const char* name;
  const char* summary;
  int (*run)(int argc, char** argv);
};

constexpr Benchmark kBenchmarks[] = {
    {"model", "latency of a model without a server", RunBenchModel},
    {"kernel", "speed of compiled kernels against what the machine can do", RunBenchKernel},
    {"serve", "load on a server over HTTP or gRPC", RunBenchServe},
};

}  // namespace

void AddTableFormat(CLI::App& app, TableFormat& format) {
  app.add_flag("--json", format.json, "print JSON");
  app.add_flag("--csv", format.csv, "print CSV");
}

int PrintTable(const absl::StatusOr<Table>& table, const TableFormat& format) {
  if (!table.ok()) return Fail(table.status());
  if (format.json) {
    PrintJson({{"rows", table->Json()}});
  } else {
    fputs((format.csv ? table->Csv() : table->Text()).c_str(), stdout);
  }
  return kExitDone;
}

int RunBench(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  for (const Benchmark& benchmark : kBenchmarks) {
    if (name == benchmark.name) return benchmark.run(argc - 1, argv + 1);
  }
  if (name == "--help" || name == "-h") {
    for (const Benchmark& benchmark : kBenchmarks) {
      printf("stampmill bench %-8s %s\n", benchmark.name, benchmark.summary);
    }
    return kExitDone;
  }
  return FailUsage(absl::StrCat("bench: got '", name, "', limit model, kernel, serve"));
}

}  // namespace stampmill
