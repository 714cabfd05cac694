// `stampmill cache list|verify|prune|export|import`: care of a kernel cache directory.
#include <boost/json.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/placement.h"
#include "server/cli/command_line.h"
#include "server/cli/commands.h"
#include "server/cli/table.h"

namespace stampmill {
namespace {

int List(KernelCache& cache, bool json) {
  const absl::StatusOr<CacheListing> listing = cache.List();
  if (!listing.ok()) return Fail(listing.status());
  Table table({"model", "target", "options", "size", "last used", "compile ms", "key"});
  boost::json::array models;
  for (const CacheListing::Model& model : listing->models) {
    const std::string key = model.key.ToHex();
    table.Add({model.record.name, model.record.target, model.record.options,
               SizeText(model.size_bytes), TimeText(model.used_unix_seconds),
               model.record.compile_milliseconds, key.substr(0, 16)});
    models.push_back({{"name", model.record.name},
                      {"target", model.record.target},
                      {"options", model.record.options},
                      {"key", key},
                      {"program", model.record.program.ToHex()},
                      {"objects", model.record.objects.size() + 1},
                      {"size_bytes", model.size_bytes},
                      {"used_unix_seconds", model.used_unix_seconds},
                      {"compile_ms", model.record.compile_milliseconds}});
  }
  if (json) {
    PrintJson(
        {{"directory", cache.directory()},
         {"models", models},
         {"objects", listing->objects},
         {"objects_bytes", listing->objects_bytes},
         {"problems", boost::json::array(listing->problems.begin(), listing->problems.end())}});
    return kExitDone;
  }
  fputs(table.Text().c_str(), stdout);
  printf("%zu models, %ld objects, %s in %s\n", listing->models.size(), listing->objects,
         SizeText(listing->objects_bytes).c_str(), cache.directory().c_str());
  for (const std::string& problem : listing->problems)
    printf("cannot be read: %s\n", problem.c_str());
  return kExitDone;
}

int Verify(KernelCache& cache, bool json) {
  const absl::StatusOr<CacheVerifyReport> report = cache.Verify();
  if (!report.ok()) return Fail(report.status());
  if (json) {
    PrintJson({{"objects", report->objects},
               {"records", report->records},
               {"problems", boost::json::array(report->problems.begin(), report->problems.end())}});
  } else {
    for (const std::string& problem : report->problems) printf("%s\n", problem.c_str());
    printf("%ld objects and %ld records read, %zu damaged\n", report->objects, report->records,
           report->problems.size());
  }
  if (report->problems.empty()) return kExitDone;
  return Fail(absl::DataLossError(
      absl::StrCat("cache verify: damaged entries: got ", report->problems.size(), ", limit 0")));
}

int Prune(KernelCache& cache, uint64_t size_max, bool json) {
  const absl::StatusOr<CachePruneReport> report = cache.Prune(size_max);
  if (!report.ok()) return Fail(report.status());
  if (json) {
    PrintJson({{"models_removed", report->models_removed},
               {"objects_removed", report->objects_removed},
               {"bytes_removed", report->bytes_removed},
               {"bytes_kept", report->bytes_kept}});
  } else {
    printf("removed %ld models and %ld objects (%s), kept %s\n", report->models_removed,
           report->objects_removed, SizeText(report->bytes_removed).c_str(),
           SizeText(report->bytes_kept).c_str());
  }
  return kExitDone;
}

}  // namespace

int RunCache(int argc, char** argv) {
  std::string action, directory, file;
  std::vector<std::string> models;
  std::string size_text = "16GiB";
  bool json = false;
  CommandLine line("cache", "lists, verifies, prunes, exports or imports a kernel cache");
  line.app()
      .add_option("ACTION", action, "list, verify, prune, export or import")
      ->required()
      ->check(CLI::IsMember({"list", "verify", "prune", "export", "import"}));
  line.app().add_option("FILE", file, "the archive, for export and import");
  line.app().add_option("--cache-dir", directory, "the kernel cache (default: the user's own)");
  line.app()
      .add_option("--model", models, "export: only this model, by name or key; may be repeated")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  line.app()
      .add_option("--max-size", size_text, "prune: what the rest may take, e.g. 4GiB; 0: nothing")
      ->capture_default_str();
  line.app().add_flag("--json", json, "print JSON");
  if (const std::optional<int> exit = line.Parse(argc, argv)) return *exit;
  const bool needs_file = action == "export" || action == "import";
  if (needs_file == file.empty()) {
    return FailUsage(
        absl::StrCat("cache ", action, ": FILE: ", needs_file ? "missing" : "got one, needs none"));
  }
  const absl::StatusOr<uint64_t> size_max =
      size_text == "0" ? absl::StatusOr<uint64_t>(0) : ParseSize("--max-size", size_text);
  if (!size_max.ok()) return Fail(FromFlags(size_max.status()));
  const bool writes = action == "prune" || action == "import";
  auto cache = OpenKernelCache(directory, kCacheBytesDefault, /*writable=*/writes);
  if (!cache.ok()) return Fail(FromFlags(cache.status()));
  if (action == "list") return List(**cache, json);
  if (action == "verify") return Verify(**cache, json);
  if (action == "prune") return Prune(**cache, *size_max, json);
  if (action == "export") {
    if (const absl::Status done = (*cache)->Export(file, models); !done.ok()) return Fail(done);
    return kExitDone;
  }
  const absl::StatusOr<int64_t> imported = (*cache)->Import(file);
  if (!imported.ok()) return Fail(imported.status());
  printf("%ld models imported\n", *imported);
  return kExitDone;
}

}  // namespace stampmill
