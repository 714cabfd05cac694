// A model file from anywhere: refused with a reason that is the model's, or a graph that verifies.
// Once from memory, and once as a file in a folder with data for external tensors. The same bytes
// are tried as a file of one tensor.
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/onnx/importer.h"

namespace stampmill {
namespace {

// Has "data", 64 bytes, and "link" to a file outside.
class ModelFolder {
 public:
  ModelFolder() {
    const char* const parent = getenv("TEST_TMPDIR");
    std::string pattern = std::string(parent == nullptr ? "/tmp" : parent) + "/onnx_fuzz_XXXXXX";
    CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    std::ofstream(path_ / "data", std::ios::binary) << std::string(64, '\1');
    std::filesystem::create_symlink("/proc/self/exe", path_ / "link");
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }

  // Its path; one at a time.
  std::string WriteModel(const uint8_t* data, size_t size) const {
    std::string path = path_ / "model.onnx";
    // A new file: graphs of the last one may map it yet.
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    return path;
  }

 private:
  std::filesystem::path path_;
};

void CheckRefused(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kNotFound:            // external data, as are the others:
    case absl::StatusCode::kFailedPrecondition:  // a path through something that is no folder
    case absl::StatusCode::kPermissionDenied:
      return;
    default:
      CHECK(false) << status;
  }
}

void CheckModel(absl::StatusOr<ImportedModel> model) {
  if (!model.ok()) return CheckRefused(model.status());
  CHECK_OK(model->graph.Verify());
  CHECK_OK(model->graph.SortTopologically());
  model->graph.RemoveDeadNodes();
  CHECK_OK(model->graph.Verify());
  model->graph.ToString();
}

}  // namespace
}  // namespace stampmill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;  // NOLINT
  // A copy of exactly this size: the sanitizer sees a read past it.
  auto copy = std::make_shared<std::vector<std::byte>>(size);
  for (size_t i = 0; i < size; ++i) (*copy)[i] = static_cast<std::byte>(data[i]);
  const std::span<const std::byte> bytes = *copy;
  CheckModel(ImportOnnxBytes(bytes, std::move(copy)));
  static const ModelFolder folder;
  const std::string path = folder.WriteModel(data, size);
  CheckModel(ImportOnnx(path));
  if (const auto tensor = ReadOnnxTensorFile(path); !tensor.ok()) CheckRefused(tensor.status());
  return 0;
}
