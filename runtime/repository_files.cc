// Symbolic links are followed, as in Triton: who may write the repository may name what it serves.
#include "runtime/repository_files.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "runtime/limits.h"

namespace stampmill {
namespace {

namespace fs = std::filesystem;

constexpr char kDefaultModelFilename[] = "model.onnx";
// Files of a version are looked at this deep: external data may lie in a folder of its own.
constexpr int kVersionDepthMax = 4;

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Names in a folder, ascending. "." and ".." are not among them.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) {
  std::error_code error;
  fs::directory_iterator entry(path, error);
  if (error) {
    return absl::NotFoundError(absl::StrCat("folder ", path, ": ", error.message()));
  }
  std::vector<std::string> names;
  while (entry != fs::directory_iterator()) {
    if (names.size() == static_cast<size_t>(kRepositoryEntriesMax)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("folder ", path, ": more entries than limit ", kRepositoryEntriesMax));
    }
    names.push_back(entry->path().filename().string());
    entry.increment(error);
    if (error) return absl::UnavailableError(absl::StrCat("folder ", path, ": ", error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<int64_t> ParseVersion(absl::string_view name) {
  int64_t version = 0;
  // One spelling a version: no sign, no leading zero.
  if (!absl::SimpleAtoi(name, &version) || version < 1 || absl::StrCat(version) != name) {
    return std::nullopt;
  }
  return version;
}

void AppendFingerprint(const std::string& path, int depth, std::string& text) {
  absl::StrAppend(&text, path, "=", FileFingerprint(path), "\n");
  if (depth == 0 || !IsFolder(path)) return;
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(path);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    AppendFingerprint(absl::StrCat(path, "/", name), depth - 1, text);
  }
}

}  // namespace

bool IsPathComponent(absl::string_view name) {
  return !name.empty() && name != "." && name != ".." && IsUtf8(name) &&
         name.find('/') == absl::string_view::npos && name.find('\0') == absl::string_view::npos;
}

absl::Status CheckInnerPath(absl::string_view path) {
  for (const absl::string_view component : absl::StrSplit(path, '/')) {
    if (!IsPathComponent(component)) {
      return absl::InvalidArgumentError(
          absl::StrCat("path '", path, "' may not leave the model's folder"));
    }
  }
  return absl::OkStatus();
}

std::string FileFingerprint(const std::string& path) {
  struct stat s;
  if (stat(path.c_str(), &s) != 0) return "absent";
  return absl::StrCat(s.st_dev, ":", s.st_ino, ":", s.st_size, ":", s.st_mtim.tv_sec, ".",
                      s.st_mtim.tv_nsec, ":", s.st_ctim.tv_sec, ".", s.st_ctim.tv_nsec);
}

absl::StatusOr<std::vector<std::string>> ListModelFolders(const std::string& folder) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(folder));
  std::erase_if(names, [&](const std::string& name) {
    return name.front() == '.' || !IsPathComponent(name) ||
           !IsFolder(absl::StrCat(folder, "/", name));
  });
  return names;
}

absl::StatusOr<ModelFolder> ReadModelFolder(const std::string& path) {
  ModelFolder folder;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(path));
  for (const std::string& name : names) {
    const std::string entry = absl::StrCat(path, "/", name);
    const std::optional<int64_t> version = ParseVersion(name);
    if (!version.has_value() || !IsFolder(entry)) continue;
    folder.versions[*version] = entry;
    AppendFingerprint(entry, kVersionDepthMax, folder.fingerprints[*version]);
  }
  folder.config_path = absl::StrCat(path, "/config.pbtxt");
  folder.config_fingerprint = FileFingerprint(folder.config_path);
  absl::StatusOr<std::string> text = ReadFile(folder.config_path, kConfigFileBytesMax);
  if (text.ok()) {
    folder.config_text = *std::move(text);
  } else if (!absl::IsNotFound(text.status())) {
    return text.status();
  }
  return folder;
}

absl::StatusOr<std::vector<int64_t>> ChooseVersions(const inference::ModelVersionPolicy& policy,
                                                    const std::vector<int64_t>& available) {
  std::vector<int64_t> chosen;
  if (policy.has_specific()) {
    for (const int64_t version : policy.specific().versions()) {
      if (std::binary_search(available.begin(), available.end(), version)) {
        chosen.push_back(version);
      }
    }
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  } else {
    // Without a policy: the latest one.
    const uint64_t count = policy.has_all()      ? available.size()
                           : policy.has_latest() ? std::max(1u, policy.latest().num_versions())
                                                 : 1;
    chosen.assign(
        available.end() - static_cast<ptrdiff_t>(std::min<uint64_t>(count, available.size())),
        available.end());
  }
  if (chosen.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "at least one version must be available under the version policy, the model's folder has ",
        available.empty() ? "no folder called 1 or another number"
                          : absl::StrJoin(available, ", ")));
  }
  return chosen;
}

absl::StatusOr<std::string> ModelFilePath(const std::string& version_folder,
                                          const std::string& default_filename) {
  const std::string name = default_filename.empty() ? kDefaultModelFilename : default_filename;
  RETURN_IF_ERROR(CheckInnerPath(name));
  std::string path = absl::StrCat(version_folder, "/", name);
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return absl::NotFoundError(absl::StrCat("model file ", path, " does not exist"));
  }
  return path;
}

TemporaryModelFolder::TemporaryModelFolder(TemporaryModelFolder&& other) noexcept
    : path_(std::exchange(other.path_, std::string())) {}

TemporaryModelFolder& TemporaryModelFolder::operator=(TemporaryModelFolder&& other) noexcept {
  if (this != &other) {
    Remove();
    path_ = std::exchange(other.path_, std::string());
  }
  return *this;
}

TemporaryModelFolder::~TemporaryModelFolder() { Remove(); }

void TemporaryModelFolder::Remove() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

absl::StatusOr<TemporaryModelFolder> TemporaryModelFolder::Create(
    const std::map<std::string, std::string>& files) {
  for (const auto& [name, contents] : files) {
    RETURN_IF_ERROR(CheckInnerPath(name));
    const std::vector<std::string> parts = absl::StrSplit(name, absl::MaxSplits('/', 1));
    if (parts.size() != 2 || !ParseVersion(parts[0]).has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("file override '", name, "': limit <version>/<file name>"));
    }
  }
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) return absl::UnavailableError(absl::StrCat("temporary folder: ", error.message()));
  std::string pattern = (parent / "stampmill_model_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("mkdtemp ", pattern));
  }
  TemporaryModelFolder folder;
  folder.path_ = pattern;
  for (const auto& [name, contents] : files) {
    const std::string path = absl::StrCat(folder.path_, "/", name);
    RETURN_IF_ERROR(MakeDirectories(fs::path(path).parent_path().string(), 0700));
    RETURN_IF_ERROR(AtomicReplaceFile(path, AsBytes(contents), 0600));
  }
  return folder;
}

}  // namespace stampmill
