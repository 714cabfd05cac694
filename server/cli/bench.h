// What the benchmarks of `stampmill bench` share: how their tables are printed.
#pragma once

#include <CLI/App.hpp>

#include "absl/status/statusor.h"
#include "server/cli/table.h"

namespace stampmill {

struct TableFormat {
  bool json = false;  // {"rows": [...]}, wins over csv
  bool csv = false;   // else for people
};

// --json and --csv.
void AddTableFormat(CLI::App& app, TableFormat& format);

// Prints the table, or why there is none; the exit status.
int PrintTable(const absl::StatusOr<Table>& table, const TableFormat& format);

}  // namespace stampmill
