// `stampmill devices`: what there is, what it can do, and for each kind without a device, why.
#include <boost/json.hpp>
#include <cstdio>

#include "runtime/placement.h"
#include "server/cli/command_line.h"
#include "server/cli/commands.h"
#include "server/cli/table.h"

namespace stampmill {

int RunDevices(int argc, char** argv) {
  bool json = false;
  CommandLine line("devices", "lists every device found, and why there is none of a kind");
  line.app().add_flag("--json", json, "print JSON");
  if (const std::optional<int> exit = line.Parse(argc, argv)) return *exit;
  const std::vector<DeviceReport> reports = ListDevices();
  if (!json) {
    Table table({"device", "name", "target", "threads", "memory"});
    for (const DeviceReport& report : reports) {
      for (const DeviceInfo& info : report.devices) {
        table.Add({info.id, info.emulated ? info.name + " (emulated)" : info.name,
                   info.target.ToString(), info.threads,
                   SizeText(static_cast<uint64_t>(info.memory_bytes))});
      }
    }
    fputs(table.Text().c_str(), stdout);
    for (const DeviceReport& report : reports) {
      if (report.devices.empty())
        printf("%s: none: %s\n", report.kind.c_str(), report.reason.c_str());
    }
    return kExitDone;
  }
  boost::json::array found, missing;
  for (const DeviceReport& report : reports) {
    for (const DeviceInfo& info : report.devices) {
      found.push_back({{"id", info.id},
                       {"kind", report.kind},
                       {"name", info.name},
                       {"target", info.target.ToString()},
                       {"threads", info.threads},
                       {"memory_bytes", info.memory_bytes},
                       {"emulated", info.emulated}});
    }
    if (report.devices.empty()) {
      missing.push_back({{"kind", report.kind}, {"reason", report.reason}});
    }
  }
  PrintJson({{"devices", found}, {"not_found", missing}});
  return kExitDone;
}

}  // namespace stampmill
