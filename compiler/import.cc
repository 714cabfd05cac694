#include "compiler/import.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "compiler/gguf/importer.h"
#include "compiler/gguf/reader.h"
#include "compiler/language/architectures.h"
#include "compiler/safetensors/hugging_face.h"

namespace stampmill {
namespace {

constexpr char kConfigFile[] = "/config.json";

absl::StatusOr<bool> IsGguf(const std::string& path) {
  ASSIGN_OR_RETURN(const FileDescriptor file, OpenFile(path, O_RDONLY));
  char head[4];
  return pread(file.get(), head, sizeof(head), 0) == sizeof(head) &&
         memcmp(head, "GGUF", sizeof(head)) == 0;
}

absl::StatusOr<ImportedModel> ImportGguf(const std::string& path) {
  ASSIGN_OR_RETURN(std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  ImportedModel model;
  model.external_files = file->split_files();
  ASSIGN_OR_RETURN(const LanguageModelSource source, SourceOf(std::move(file)));
  ASSIGN_OR_RETURN(model.graph, BuildLanguageModel(source));
  return model;
}

absl::StatusOr<ImportedModel> ImportHuggingFace(const std::string& path) {
  ASSIGN_OR_RETURN(HuggingFaceModel read,
                   ReadHuggingFaceFolder(path.substr(0, path.size() - strlen(kConfigFile))));
  ImportedModel model;
  model.external_files = std::move(read.files);
  ASSIGN_OR_RETURN(model.graph, BuildLanguageModel(read.source));
  return model;
}

}  // namespace

absl::StatusOr<ImportedModel> ImportModel(const std::string& path) {
  if (absl::EndsWith(path, kConfigFile)) return ImportHuggingFace(path);
  ASSIGN_OR_RETURN(const bool is_gguf, IsGguf(path));
  return is_gguf ? ImportGguf(path) : ImportOnnx(path);
}

}  // namespace stampmill
