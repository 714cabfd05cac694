// ModelRepository: maps a name and version to a ready ServedModel. It finds models in repository
// folders (Triton's layout) and as single files, loads a new version beside the old, warms it, and
// swaps; the old one lives until its last request ends. A failed load leaves what serves in place
// and is told in the index.
//
// Loads and unloads run on the repository's own threads, one at a time for a name. Compiling is
// behind `CompileFunction`, so that the repository knows neither cache nor compiler.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "runtime/engine.h"
#include "runtime/memory_budget.h"
#include "runtime/model.h"
#include "runtime/model_config.h"
#include "runtime/served_model.h"
#include "runtime/tensor_pool.h"

namespace stampmill {

// Finds or makes the compiled form of the model file at `path` for the repository's device.
// `progress` takes lines for people. Called on repository threads, several at a time.
using CompileFunction = std::function<absl::StatusOr<ModelImage>(
    const std::string& path, const std::function<void(absl::string_view)>& progress)>;

enum class ModelControlMode { kNone, kPoll, kExplicit };

struct ModelRepositoryOptions {
  std::vector<std::string> folders;  // --model-repository
  struct File {
    std::string name;  // empty: the file's stem
    std::string path;
  };
  std::vector<File> files;  // MODEL arguments, NAME=PATH
  ModelControlMode control_mode = ModelControlMode::kNone;
  std::vector<std::string> load_models;  // --load-model, explicit mode; "*": all
  int64_t poll_seconds = 15;             // --repository-poll-secs
  bool strict_readiness = true;          // a model that failed makes the daemon not ready
  int32_t load_threads = 4;              // --model-load-thread-count
  Engine* engine = nullptr;              // borrowed, like the next two; all outlive it
  TensorPool* pool = nullptr;
  MemoryBudget* budget = nullptr;  // may be null: no accounting
  CompileFunction compile;
};

enum class ModelState { kUnknown, kLoading, kReady, kUnloading, kUnavailable };
const char* Name(ModelState state);  // "READY", "UNAVAILABLE", "LOADING", "UNLOADING", "UNKNOWN"

struct ModelIndexEntry {
  std::string name;
  std::string version;  // empty: never loaded
  std::string state;    // empty: never loaded; as Name(ModelState)
  std::string reason;
};

struct ModelLoadRequest {
  std::string name;
  std::string config_json;  // the `config` parameter; empty: the folder's config.pbtxt
  // "file:<version>/<file name>" parameters without the prefix, and the contents. With any of them
  // the folder's own versions are not looked at, as in Triton; `config_json` must be given.
  std::map<std::string, std::string> files;
};

class ModelRepository {
 public:
  // Checks that folders and files exist and that no name comes twice; loads nothing.
  static absl::StatusOr<std::unique_ptr<ModelRepository>> Create(ModelRepositoryOptions options);
  // Unloads everything. REQUIRES: the engine runs still, and no pin is held for ever.
  ~ModelRepository();

  // Loads what the mode says (none, poll: all; explicit: load_models) and returns when that is
  // done. The first failure, all others being in the index and the log; a repository folder that
  // cannot be read is one.
  absl::Status Start();

  // A ready model; version 0 is the highest that is ready. NOT_FOUND "Request for unknown model:
  // 'X' is not found" and, for one without a ready version, "... has no available versions";
  // UNAVAILABLE "... is not at ready state" for a version that is known.
  absl::StatusOr<ModelPin> Pin(absl::string_view name, int64_t version = 0);
  // All ready versions of `name` (empty: of all models), in order of name and version. `version`
  // 0: all. NOT_FOUND as above.
  absl::StatusOr<std::vector<ModelPin>> PinAll(absl::string_view name, int64_t version = 0);
  // False also for a model that failed; NOT_FOUND as Pin for one that is not known.
  absl::StatusOr<bool> IsModelReady(absl::string_view name, int64_t version = 0);
  // Start is done, and (strict_readiness) it could read the folders, or a later Poll could, and no
  // model that should serve failed.
  bool IsReady() const;
  std::vector<ModelIndexEntry> Index(bool ready_only) const;

  // Loads or unloads wait or run: the destructor would wait for those that run.
  bool IsBusy() const;

  // Asynchronous: `done` is called once, on a repository thread (or in the call itself when refused
  // at once). UNAVAILABLE unless the mode is explicit, with Triton's text. Load: INVALID_ARGUMENT,
  // NOT_FOUND, the compiler's errors. Unload: OK once memory is returned, also for unknown names.
  using Done = absl::AnyInvocable<void(absl::Status)>;
  void Load(ModelLoadRequest request, Done done);
  void Unload(absl::string_view name, bool unload_dependents, Done done);

  // One look at the folders for what appeared, changed and vanished (poll mode does this each
  // poll_seconds); returns when the loads and unloads it began are done.
  void Poll();

 private:
  struct Version;
  struct Entry;  // one name
  struct Job;
  struct LoadPlan;

  explicit ModelRepository(ModelRepositoryOptions options);

  // Jobs. A worker runs one at a time for a name; `Enqueue` calls `done` itself when it refuses.
  void Enqueue(bool load, ModelLoadRequest request, Done done);
  absl::Status RunAndWait(std::vector<ModelLoadRequest> loads, std::vector<std::string> unloads);
  void Work();
  Job* NextJob() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RunJob(Job& job);
  absl::Status RunLoad(Entry& entry, const ModelLoadRequest& request);
  absl::Status RunUnload(Entry& entry);

  // Parts of a load.
  absl::StatusOr<LoadPlan> PlanLoad(const Entry& entry, const ModelLoadRequest& request) const;
  absl::StatusOr<LoadPlan> PlanFileLoad(const Entry& entry, const ModelLoadRequest& request) const;
  absl::StatusOr<std::string> FindFolder(const std::string& name) const;
  absl::StatusOr<std::unique_ptr<ServedModel>> LoadVersion(const LoadPlan& plan, int64_t version);
  void Publish(Entry& entry, int64_t version, const std::string& fingerprint,
               absl::StatusOr<std::unique_ptr<ServedModel>> loaded);
  bool IsCurrent(const Entry& entry, int64_t version, const std::string& fingerprint) const;
  void DropOtherVersions(Entry& entry, const LoadPlan& plan);

  // Models that no longer serve wait here for their last request.
  void Retire(std::unique_ptr<ServedModel> model) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Reap();
  void WaitUntilUnpinned(const ServedModel& model) const;

  void PollLoop();
  // Names of all folders of models, ascending. The first folder that cannot be read fails it.
  absl::StatusOr<std::vector<std::string>> FolderNames() const;
  absl::Status NotReady(absl::string_view name, int64_t version, const Entry* entry) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ServedModel* FindReady(const Entry& entry, int64_t version) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Entry& EntryOf(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ModelRepositoryOptions options_;
  std::map<std::string, std::string> files_;  // name -> path of models given as files
  std::atomic<uint64_t> loads_{0};
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;  // jobs, busy names, retiring models, stopping
  std::map<std::string, std::unique_ptr<Entry>, std::less<>> entries_ ABSL_GUARDED_BY(mutex_);
  std::list<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<ServedModel>> retiring_ ABSL_GUARDED_BY(mutex_);
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool folders_read_ ABSL_GUARDED_BY(mutex_) = true;  // once; what serves then serves on
  bool poll_failed_ ABSL_GUARDED_BY(mutex_) = false;  // the last one could not read them
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool workers_gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> workers_;
  std::thread reaper_, poller_;
};

}  // namespace stampmill
