// What lies in a model repository folder, read without trusting it: model folders, their
// configuration, their versions, and a fingerprint that changes when any of it does.
//
//   FOLDER/NAME/config.pbtxt        optional
//   FOLDER/NAME/<version>/model.onnx (or the configuration's default_model_filename)
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/model_config.pb.h"

namespace stampmill {

// A name that is one component of a path: not empty, no separator, no NUL, not "." or "..", and
// UTF-8, as the protocols demand.
bool IsPathComponent(absl::string_view name);
// A relative path that stays below where it starts. INVALID_ARGUMENT names it.
absl::Status CheckInnerPath(absl::string_view path);

// Names of the model folders in `folder`, ascending. NOT_FOUND when it is no folder or cannot be
// read, RESOURCE_EXHAUSTED beyond kRepositoryEntriesMax entries.
absl::StatusOr<std::vector<std::string>> ListModelFolders(const std::string& folder);

struct ModelFolder {
  std::optional<std::string> config_text;
  std::string config_path;                  // for messages
  std::map<int64_t, std::string> versions;  // number -> folder
  // Changes when a file of the version, or the configuration, changes.
  std::map<int64_t, std::string> fingerprints;
  std::string config_fingerprint;
};
// NOT_FOUND when there is no such folder.
absl::StatusOr<ModelFolder> ReadModelFolder(const std::string& path);

// Of one file: device, inode, size and times; "absent" when there is none.
std::string FileFingerprint(const std::string& path);

// Those of `available` (ascending) that the policy serves, ascending. NOT_FOUND when none is left.
absl::StatusOr<std::vector<int64_t>> ChooseVersions(const inference::ModelVersionPolicy& policy,
                                                    const std::vector<int64_t>& available);

// The model's file of one version. NOT_FOUND names it.
absl::StatusOr<std::string> ModelFilePath(const std::string& version_folder,
                                          const std::string& default_filename);

// A model folder of files that a load request brought along, removed with this object. Move-only.
class TemporaryModelFolder {
 public:
  // `files`: "<version>/<path>" and contents. INVALID_ARGUMENT for paths that lead elsewhere.
  static absl::StatusOr<TemporaryModelFolder> Create(
      const std::map<std::string, std::string>& files);
  TemporaryModelFolder() = default;
  TemporaryModelFolder(TemporaryModelFolder&& other) noexcept;
  TemporaryModelFolder& operator=(TemporaryModelFolder&& other) noexcept;
  ~TemporaryModelFolder();

  const std::string& path() const { return path_; }

 private:
  void Remove();
  std::string path_;  // empty: none
};

}  // namespace stampmill
