// A job (load or unload) has its name for itself while it runs: `busy` in the entry. What others
// may see changes under the mutex, in one step a version; compiling, loading and warming happen
// outside.
#include "runtime/model_repository.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <new>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "runtime/limits.h"
#include "runtime/repository_files.h"

namespace stampmill {

struct ModelRepository::Version {
  ModelState state = ModelState::kUnknown;
  std::string reason;                    // of what is not ready, or of a reload that failed
  std::unique_ptr<ServedModel> serving;  // when kReady
  std::string fingerprint;               // of the files that it was loaded from
};

struct ModelRepository::Entry {
  std::string name;
  std::map<int64_t, Version> versions;
  absl::Status failure;     // of the last load, when it came to no version
  bool wanted = false;      // loaded, or was to be: counts for readiness
  bool busy = false;        // a job runs
  std::string fingerprint;  // of all its files when a load was last begun
};

struct ModelRepository::Job {
  bool load = false;
  ModelLoadRequest request;
  Done done;
  bool running = false;
};

struct ModelRepository::LoadPlan {
  std::string name;
  ModelConfig config;
  std::map<int64_t, std::string> files;         // version -> model file
  std::map<int64_t, std::string> fingerprints;  // version -> of its files and the configuration
  std::string fingerprint;                      // of everything there is
  bool forced = false;                          // load also what did not change
  TemporaryModelFolder overrides;               // keeps the files
};

namespace {

absl::Status WithContext(const absl::Status& status, const std::string& context) {
  return absl::Status(status.code(), absl::StrCat(context, status.message()));
}

// Whether the same files may load another time: memory, the disk or the compile worker failed.
bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsInternal(status) || absl::IsDeadlineExceeded(status);
}

void LogLines(absl::string_view text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    LOG(INFO) << std::string(line);
  }
}

}  // namespace

const char* Name(ModelState state) {
  switch (state) {
    case ModelState::kLoading:
      return "LOADING";
    case ModelState::kReady:
      return "READY";
    case ModelState::kUnloading:
      return "UNLOADING";
    case ModelState::kUnavailable:
      return "UNAVAILABLE";
    case ModelState::kUnknown:
      break;
  }
  return "UNKNOWN";
}

ModelRepository::ModelRepository(ModelRepositoryOptions options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<ModelRepository>> ModelRepository::Create(
    ModelRepositoryOptions options) {
  CHECK(options.engine != nullptr && options.pool != nullptr && options.compile != nullptr);
  auto repository = std::unique_ptr<ModelRepository>(new ModelRepository(std::move(options)));
  const ModelRepositoryOptions& given = repository->options_;
  std::error_code error;
  for (const std::string& folder : given.folders) {
    if (!std::filesystem::is_directory(folder, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("model repository: got '", folder, "', which is no folder"));
    }
  }
  for (const ModelRepositoryOptions::File& file : given.files) {
    if (!std::filesystem::is_regular_file(file.path, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("model file: got '", file.path, "', which is no file"));
    }
    std::string name =
        file.name.empty() ? std::filesystem::path(file.path).stem().string() : file.name;
    if (!IsPathComponent(name)) {
      return absl::InvalidArgumentError(absl::StrCat("model name: got '", name, "'"));
    }
    const std::string message = absl::StrCat("model name: got '", name, "' twice");
    if (!repository->files_.emplace(std::move(name), file.path).second) {
      return absl::InvalidArgumentError(message);
    }
  }
  ModelRepository* const self = repository.get();
  for (int32_t i = 0; i < std::clamp(given.load_threads, 1, 64); ++i) {
    repository->workers_.emplace_back([self] { self->Work(); });
  }
  repository->reaper_ = std::thread([self] { self->Reap(); });
  return repository;
}

ModelRepository::~ModelRepository() {
  std::list<Job> dropped;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    for (auto job = jobs_.begin(); job != jobs_.end();) {
      const auto next = std::next(job);
      if (!job->running) dropped.splice(dropped.end(), jobs_, job);
      job = next;
    }
    changed_.SignalAll();
  }
  for (Job& job : dropped) job.done(absl::UnavailableError("server is shutting down"));
  for (std::thread& worker : workers_) worker.join();
  if (poller_.joinable()) poller_.join();
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [name, entry] : entries_) {
      for (auto& [number, version] : entry->versions) Retire(std::move(version.serving));
    }
    workers_gone_ = true;
    changed_.SignalAll();
  }
  if (reaper_.joinable()) reaper_.join();
}

absl::Status ModelRepository::Start() {
  std::vector<ModelLoadRequest> loads;
  for (const auto& [name, path] : files_) loads.push_back({.name = name});
  const bool all = options_.control_mode != ModelControlMode::kExplicit ||
                   std::ranges::count(options_.load_models, "*") > 0;
  const absl::StatusOr<std::vector<std::string>> names = all ? FolderNames() : options_.load_models;
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (name != "*" && !files_.contains(name)) loads.push_back({.name = name});
  }
  absl::Status first = RunAndWait(std::move(loads), {});
  if (first.ok()) first = names.status();
  absl::MutexLock lock(&mutex_);
  started_ = true;
  folders_read_ = names.ok();
  if (options_.control_mode == ModelControlMode::kPoll) {
    poller_ = std::thread([this] { PollLoop(); });
  }
  if (options_.budget != nullptr) LogLines(options_.budget->Plan());
  return first;
}

// Looking up.

ServedModel* ModelRepository::FindReady(const Entry& entry, int64_t version) const {
  if (version > 0) {
    const auto found = entry.versions.find(version);
    return found == entry.versions.end() ? nullptr : found->second.serving.get();
  }
  for (auto v = entry.versions.rbegin(); v != entry.versions.rend(); ++v) {
    if (v->second.serving != nullptr) return v->second.serving.get();
  }
  return nullptr;
}

absl::Status ModelRepository::NotReady(absl::string_view name, int64_t version,
                                       const Entry* entry) const {
  std::string who = absl::StrCat("Request for unknown model: '", name, "'");
  if (version > 0) absl::StrAppend(&who, " version ", version);
  if (entry == nullptr || (version > 0 && !entry->versions.contains(version))) {
    return absl::NotFoundError(absl::StrCat(who, " is not found"));
  }
  if (version == 0) return absl::NotFoundError(absl::StrCat(who, " has no available versions"));
  return absl::UnavailableError(absl::StrCat(who, " is not at ready state"));
}

absl::StatusOr<ModelPin> ModelRepository::Pin(absl::string_view name, int64_t version) {
  absl::MutexLock lock(&mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return NotReady(name, version, nullptr);
  ServedModel* const model = FindReady(*found->second, version);
  if (model == nullptr) return NotReady(name, version, found->second.get());
  return model->Pin();
}

absl::StatusOr<std::vector<ModelPin>> ModelRepository::PinAll(absl::string_view name,
                                                              int64_t version) {
  std::vector<ModelPin> pins;
  absl::MutexLock lock(&mutex_);
  for (const auto& [entry_name, entry] : entries_) {
    if (!name.empty() && name != entry_name) continue;
    for (const auto& [number, v] : entry->versions) {
      if (v.serving != nullptr && (version == 0 || version == number)) {
        pins.push_back(v.serving->Pin());
      }
    }
  }
  if (pins.empty() && !name.empty()) {
    const auto found = entries_.find(name);
    return NotReady(name, version, found == entries_.end() ? nullptr : found->second.get());
  }
  return pins;
}

absl::StatusOr<bool> ModelRepository::IsModelReady(absl::string_view name, int64_t version) {
  const absl::Status status = Pin(name, version).status();
  if (status.ok()) return true;
  const absl::MutexLock lock(&mutex_);
  const auto entry = entries_.find(std::string(name));
  const bool known =
      entry != entries_.end() && (version == 0 || entry->second->versions.contains(version));
  if (!known) return status;
  return false;
}

bool ModelRepository::IsBusy() const {
  absl::MutexLock lock(&mutex_);
  return !jobs_.empty();
}

bool ModelRepository::IsReady() const {
  absl::MutexLock lock(&mutex_);
  if (!started_ || stopping_) return false;
  if (!options_.strict_readiness) return true;
  if (!folders_read_) return false;
  for (const auto& [name, entry] : entries_) {
    if (!entry->wanted) continue;
    if (FindReady(*entry, 0) == nullptr) return false;
    for (const auto& [number, version] : entry->versions) {
      if (version.state == ModelState::kUnavailable) return false;
    }
  }
  return true;
}

std::vector<ModelIndexEntry> ModelRepository::Index(bool ready_only) const {
  std::vector<std::string> known;
  if (!ready_only) known = FolderNames().value_or(std::vector<std::string>());
  for (const auto& [name, path] : files_) known.push_back(name);
  std::map<std::string, std::vector<ModelIndexEntry>> rows;
  for (const std::string& name : known) rows[name];
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [name, entry] : entries_) {
      for (const auto& [number, version] : entry->versions) {
        rows[name].push_back(
            {name, absl::StrCat(number), stampmill::Name(version.state), version.reason});
      }
      if (entry->versions.empty() && !entry->failure.ok()) {
        rows[name].push_back({name, "", stampmill::Name(ModelState::kUnavailable),
                              std::string(entry->failure.message())});
      }
    }
  }
  std::vector<ModelIndexEntry> index;
  for (auto& [name, versions] : rows) {
    if (versions.empty()) versions.push_back({name, "", "", ""});
    for (ModelIndexEntry& row : versions) {
      if (!ready_only || row.state == stampmill::Name(ModelState::kReady)) {
        index.push_back(std::move(row));
      }
    }
  }
  return index;
}

absl::StatusOr<std::vector<std::string>> ModelRepository::FolderNames() const {
  std::vector<std::string> all;
  for (const std::string& folder : options_.folders) {
    absl::StatusOr<std::vector<std::string>> names = ListModelFolders(folder);
    if (!names.ok()) return WithContext(names.status(), "model repository: ");
    all.insert(all.end(), names->begin(), names->end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// Jobs.

void ModelRepository::Load(ModelLoadRequest request, Done done) {
  if (options_.control_mode != ModelControlMode::kExplicit) {
    done(absl::UnavailableError(
        "explicit model load / unload is not allowed if polling is enabled"));
    return;
  }
  Enqueue(/*load=*/true, std::move(request), std::move(done));
}

void ModelRepository::Unload(absl::string_view name, bool unload_dependents, Done done) {
  // Only ensembles have dependents.
  static_cast<void>(unload_dependents);
  if (options_.control_mode != ModelControlMode::kExplicit) {
    done(absl::UnavailableError(
        "explicit model load / unload is not allowed if polling is enabled"));
    return;
  }
  Enqueue(/*load=*/false, {.name = std::string(name)}, std::move(done));
}

void ModelRepository::Enqueue(bool load, ModelLoadRequest request, Done done) {
  absl::Status refused;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) {
      refused = absl::UnavailableError("server is shutting down");
    } else if (jobs_.size() >= static_cast<size_t>(kRepositoryJobsMax)) {
      refused = absl::UnavailableError(
          absl::StrCat("loads and unloads that wait: got one more, limit ", kRepositoryJobsMax));
    } else {
      jobs_.push_back({load, std::move(request), std::move(done), false});
      changed_.SignalAll();
      return;
    }
  }
  done(refused);
}

absl::Status ModelRepository::RunAndWait(std::vector<ModelLoadRequest> loads,
                                         std::vector<std::string> unloads) {
  absl::Mutex mutex;
  size_t left = loads.size() + unloads.size();
  absl::Status first;
  const auto done = [&](const absl::Status& status) {
    absl::MutexLock lock(&mutex);
    if (first.ok()) first = status;
    --left;
  };
  // Not more at once than the queue of jobs holds.
  const auto wait_for_room = [&](size_t waiting_max) {
    const auto has_room = [&] { return left <= waiting_max; };
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(&has_room));
  };
  size_t unsent = left;
  const auto send = [&](bool load, ModelLoadRequest request) {
    --unsent;
    wait_for_room(unsent + static_cast<size_t>(kRepositoryJobsMax) / 2);
    Enqueue(load, std::move(request), done);
  };
  for (ModelLoadRequest& load : loads) send(true, std::move(load));
  for (std::string& name : unloads) send(false, {.name = std::move(name)});
  wait_for_room(0);
  return first;
}

ModelRepository::Entry& ModelRepository::EntryOf(const std::string& name) {
  std::unique_ptr<Entry>& entry = entries_[name];
  if (entry == nullptr) {
    entry = std::make_unique<Entry>();
    entry->name = name;
  }
  return *entry;
}

ModelRepository::Job* ModelRepository::NextJob() {
  for (Job& job : jobs_) {
    if (job.running) continue;
    const auto entry = entries_.find(job.request.name);
    if (entry == entries_.end() || !entry->second->busy) return &job;
  }
  return nullptr;
}

void ModelRepository::Work() {
  for (;;) {
    Job* job = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      while ((job = NextJob()) == nullptr && !stopping_) changed_.Wait(&mutex_);
      if (job == nullptr) return;
      job->running = true;
      EntryOf(job->request.name).busy = true;
    }
    const absl::Status status = RunJob(*job);
    Done done = std::move(job->done);
    {
      absl::MutexLock lock(&mutex_);
      const auto found = entries_.find(job->request.name);
      found->second->busy = false;
      // Names that came to nothing leave no trace: clients may ask for any.
      if (!found->second->wanted && found->second->versions.empty()) entries_.erase(found);
      jobs_.remove_if([job](const Job& j) { return &j == job; });
      changed_.SignalAll();
    }
    done(status);
  }
}

absl::Status ModelRepository::RunJob(Job& job) {
  Entry* entry = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    entry = &EntryOf(job.request.name);
  }
  try {
    return job.load ? RunLoad(*entry, job.request) : RunUnload(*entry);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat("model '", job.request.name, "': memory: none is left for loading"));
  } catch (const std::exception& e) {
    return absl::InternalError(
        absl::StrCat("model '", job.request.name, "': exception: ", e.what()));
  }
}

// Loading.

absl::StatusOr<std::string> ModelRepository::FindFolder(const std::string& name) const {
  std::string found;
  if (IsPathComponent(name)) {
    for (const std::string& folder : options_.folders) {
      std::error_code error;
      const std::string path = absl::StrCat(folder, "/", name);
      if (!std::filesystem::is_directory(path, error)) continue;
      if (!found.empty()) {
        return absl::InvalidArgumentError(absl::StrCat("it is in ", found, " and in ", path));
      }
      found = path;
    }
  }
  if (found.empty()) {
    return absl::NotFoundError(
        absl::StrCat("failed to load '", name, "', failed to poll from model repository"));
  }
  return found;
}

absl::StatusOr<ModelRepository::LoadPlan> ModelRepository::PlanFileLoad(
    const Entry& entry, const ModelLoadRequest& request) const {
  LoadPlan plan;
  if (!request.config_json.empty()) {
    ASSIGN_OR_RETURN(plan.config, ModelConfig::FromJson(request.config_json, "config"));
  }
  const std::string& path = files_.at(entry.name);
  plan.files[1] = path;
  plan.fingerprint = FileFingerprint(path);
  plan.fingerprints[1] = absl::StrCat(request.config_json, "\n", plan.fingerprint);
  return plan;
}

absl::StatusOr<ModelRepository::LoadPlan> ModelRepository::PlanLoad(
    const Entry& entry, const ModelLoadRequest& request) const {
  if (!request.files.empty() && request.config_json.empty()) {
    return absl::InvalidArgumentError("file overrides need the parameter 'config'");
  }
  if (request.files.empty() && files_.contains(entry.name)) return PlanFileLoad(entry, request);
  LoadPlan plan;
  ModelFolder folder;
  if (request.files.empty()) {
    ASSIGN_OR_RETURN(const std::string path, FindFolder(entry.name));
    ASSIGN_OR_RETURN(folder, ReadModelFolder(path));
  } else {
    if (!IsPathComponent(entry.name)) {
      return absl::InvalidArgumentError(absl::StrCat("model name: got '", entry.name, "'"));
    }
    ASSIGN_OR_RETURN(plan.overrides, TemporaryModelFolder::Create(request.files));
    ASSIGN_OR_RETURN(folder, ReadModelFolder(plan.overrides.path()));
    plan.forced = true;
  }
  std::string config_fingerprint = folder.config_fingerprint;
  if (!request.config_json.empty()) {
    ASSIGN_OR_RETURN(plan.config, ModelConfig::FromJson(request.config_json, "config"));
    config_fingerprint = request.config_json;
  } else if (folder.config_text.has_value()) {
    ASSIGN_OR_RETURN(plan.config, ModelConfig::FromText(*folder.config_text, folder.config_path));
  }
  // Of another backend's model there may be no file that would be looked for.
  RETURN_IF_ERROR(plan.config.CheckSupported());
  std::vector<int64_t> available;
  plan.fingerprint = folder.config_fingerprint;
  for (const auto& [version, path] : folder.versions) {
    available.push_back(version);
    absl::StrAppend(&plan.fingerprint, "\n", folder.fingerprints[version]);
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> chosen,
                   ChooseVersions(plan.config.version_policy(), available));
  for (const int64_t version : chosen) {
    ASSIGN_OR_RETURN(plan.files[version],
                     ModelFilePath(folder.versions[version], plan.config.default_model_filename()));
    plan.fingerprints[version] =
        absl::StrCat(config_fingerprint, "\n", folder.fingerprints[version]);
  }
  return plan;
}

absl::Status ModelRepository::RunLoad(Entry& entry, const ModelLoadRequest& request) {
  absl::StatusOr<LoadPlan> plan = PlanLoad(entry, request);
  if (!plan.ok()) {
    absl::MutexLock lock(&mutex_);
    // A client's name that is nowhere is an error of the call, not a model that should serve.
    const bool is_call_error = absl::IsNotFound(plan.status()) && started_ && !entry.wanted;
    entry.wanted = !is_call_error;
    entry.failure = plan.status();
    if (is_call_error) return plan.status();
    LOG(ERROR) << "model '" << entry.name << "': " << std::string(plan.status().message());
    return WithContext(plan.status(), absl::StrCat("load failed for model '", entry.name, "': "));
  }
  plan->name = entry.name;
  {
    absl::MutexLock lock(&mutex_);
    entry.wanted = true;
    entry.failure = absl::OkStatus();
    entry.fingerprint = plan->fingerprint;
  }
  absl::Status first;
  for (const auto& [version, path] : plan->files) {
    const std::string& fingerprint = plan->fingerprints[version];
    if (!plan->forced && IsCurrent(entry, version, fingerprint)) continue;
    {
      absl::MutexLock lock(&mutex_);
      Version& v = entry.versions[version];
      if (v.serving == nullptr) v = {.state = ModelState::kLoading, .reason = ""};
    }
    absl::StatusOr<std::unique_ptr<ServedModel>> loaded = LoadVersion(*plan, version);
    if (!loaded.ok() && first.ok()) {
      first = WithContext(loaded.status(),
                          absl::StrCat("load failed for model '", entry.name, "': version ",
                                       version, " is at UNAVAILABLE state: "));
    }
    Publish(entry, version, plan->forced ? "" : fingerprint, std::move(loaded));
  }
  if (first.ok()) {
    DropOtherVersions(entry, *plan);
  } else if (MayPass(first)) {
    // The next poll tries again.
    absl::MutexLock lock(&mutex_);
    entry.fingerprint.clear();
  }
  return first;
}

bool ModelRepository::IsCurrent(const Entry& entry, int64_t version,
                                const std::string& fingerprint) const {
  absl::MutexLock lock(&mutex_);
  const auto found = entry.versions.find(version);
  return found != entry.versions.end() && found->second.serving != nullptr &&
         found->second.fingerprint == fingerprint;
}

absl::StatusOr<std::unique_ptr<ServedModel>> ModelRepository::LoadVersion(const LoadPlan& plan,
                                                                          int64_t version) {
  const int64_t begin = options_.engine->clock().NowNanos();
  const std::string who = absl::StrCat("model '", plan.name, "' version ", version);
  ASSIGN_OR_RETURN(ModelImage image,
                   options_.compile(plan.files.at(version), [&who](absl::string_view line) {
                     LOG(INFO) << who << ": " << std::string(line);
                   }));
  ModelConfig config = plan.config;
  if (const std::vector<std::string> ignored = config.IgnoredFields(); !ignored.empty()) {
    LOG(WARNING) << who
                 << ": of its configuration has no effect here: " << absl::StrJoin(ignored, ", ");
  }
  RETURN_IF_ERROR(config.Complete(plan.name, image.program));
  ASSIGN_OR_RETURN(std::shared_ptr<const Model> model,
                   Model::Load(std::move(image), options_.engine->device()));
  ASSIGN_OR_RETURN(std::unique_ptr<ServedModel> served,
                   ServedModel::Create(std::move(model), std::move(config),
                                       {.name = plan.name,
                                        .version = version,
                                        .load_number = loads_.fetch_add(1),
                                        .engine = options_.engine,
                                        .pool = options_.pool,
                                        .budget = options_.budget}));
  RETURN_IF_ERROR(served->Warm());
  const int64_t nanos = options_.engine->clock().NowNanos() - begin;
  served->statistics().SetLoadNanos(nanos);
  LOG(INFO) << who << ": ready in " << nanos / 1'000'000 << " ms";
  return served;
}

void ModelRepository::Publish(Entry& entry, int64_t version, const std::string& fingerprint,
                              absl::StatusOr<std::unique_ptr<ServedModel>> loaded) {
  absl::MutexLock lock(&mutex_);
  Version& v = entry.versions[version];
  if (loaded.ok()) {
    Retire(std::move(v.serving));
    v = {.state = ModelState::kReady,
         .reason = "",
         .serving = *std::move(loaded),
         .fingerprint = fingerprint};
    return;
  }
  const std::string message(loaded.status().message());
  LOG(ERROR) << "model '" << entry.name << "' version " << version << ": " << message;
  v.reason = message;
  if (v.serving == nullptr) v.state = ModelState::kUnavailable;
}

void ModelRepository::DropOtherVersions(Entry& entry, const LoadPlan& plan) {
  absl::MutexLock lock(&mutex_);
  for (auto v = entry.versions.begin(); v != entry.versions.end();) {
    const auto next = std::next(v);
    if (!plan.files.contains(v->first)) {
      Retire(std::move(v->second.serving));
      entry.versions.erase(v);
    }
    v = next;
  }
}

// Unloading.

absl::Status ModelRepository::RunUnload(Entry& entry) {
  std::vector<std::unique_ptr<ServedModel>> leaving;
  {
    absl::MutexLock lock(&mutex_);
    entry.wanted = false;
    entry.failure = absl::OkStatus();
    entry.fingerprint.clear();
    for (auto& [number, version] : entry.versions) {
      version.state = ModelState::kUnloading;
      version.fingerprint.clear();
      if (version.serving != nullptr) leaving.push_back(std::move(version.serving));
    }
  }
  for (std::unique_ptr<ServedModel>& model : leaving) {
    WaitUntilUnpinned(*model);
    LOG(INFO) << "model '" << model->name() << "' version " << model->version() << ": unloaded";
    model.reset();
  }
  absl::MutexLock lock(&mutex_);
  for (auto& [number, version] : entry.versions) {
    version.state = ModelState::kUnavailable;
    version.reason = "unloaded";
  }
  return absl::OkStatus();
}

void ModelRepository::WaitUntilUnpinned(const ServedModel& model) const {
  Waker& unpinned = options_.engine->unpinned_waker();
  for (;;) {
    const uint32_t seen = unpinned.epoch();
    if (model.pins() == 0) return;
    unpinned.WaitUntil(seen, kNoDeadline);
  }
}

void ModelRepository::Retire(std::unique_ptr<ServedModel> model) {
  if (model == nullptr) return;
  retiring_.push_back(std::move(model));
  changed_.SignalAll();
}

void ModelRepository::Reap() {
  for (;;) {
    std::unique_ptr<ServedModel> model;
    {
      absl::MutexLock lock(&mutex_);
      while (retiring_.empty() && !workers_gone_) changed_.Wait(&mutex_);
      if (retiring_.empty()) return;
      model = std::move(retiring_.back());
      retiring_.pop_back();
    }
    WaitUntilUnpinned(*model);
  }
}

// Polling.

void ModelRepository::Poll() {
  std::vector<ModelLoadRequest> loads;
  std::vector<std::string> unloads;
  absl::StatusOr<std::vector<std::string>> folders = FolderNames();
  {
    absl::MutexLock lock(&mutex_);
    // Once, not at each poll.
    if (!folders.ok() && !poll_failed_) LOG(ERROR) << std::string(folders.status().message());
    poll_failed_ = !folders.ok();
    if (folders.ok()) folders_read_ = true;
  }
  // What cannot be seen has not gone: all that serves goes on.
  if (!folders.ok()) return;
  std::vector<std::string> names = *std::move(folders);
  for (const auto& [name, path] : files_) names.push_back(name);
  for (const std::string& name : names) {
    Entry probe;
    probe.name = name;
    const absl::StatusOr<LoadPlan> plan = PlanLoad(probe, {.name = name});
    absl::MutexLock lock(&mutex_);
    const auto found = entries_.find(name);
    if (found == entries_.end() || !plan.ok() || found->second->fingerprint != plan->fingerprint) {
      // One that could not even be planned is tried again only when it says something new.
      if (found != entries_.end() && !plan.ok() && found->second->failure == plan.status())
        continue;
      loads.push_back({.name = name});
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [name, entry] : entries_) {
      if (entry->wanted && std::ranges::count(names, name) == 0) unloads.push_back(name);
    }
  }
  // Failures are in the index and the log.
  RunAndWait(std::move(loads), std::move(unloads)).IgnoreError();
}

void ModelRepository::PollLoop() {
  for (;;) {
    {
      const auto stop = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stop),
                                  absl::Seconds(std::max<int64_t>(1, options_.poll_seconds)))) {
        return;
      }
    }
    Poll();
  }
}

}  // namespace stampmill
