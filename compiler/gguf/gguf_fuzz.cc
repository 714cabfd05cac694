// A GGUF file from anywhere: refused with a reason that is the file's, or a graph whose shapes are
// inferred or refused likewise.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/gguf/importer.h"
#include "compiler/gguf/reader.h"
#include "compiler/language/architectures.h"
#include "kernels/op.h"

namespace stampmill {
namespace {

void CheckRefused(const absl::Status& status) {
  CHECK(absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ||
        absl::IsResourceExhausted(status))
      << status;
}

void CheckFile(absl::StatusOr<std::shared_ptr<const GgufFile>> file) {
  if (!file.ok()) return CheckRefused(file.status());
  for (const absl::string_view key : (*file)->keys()) {
    const absl::Status statuses[] = {(*file)->Int(key).status(),    (*file)->Float(key).status(),
                                     (*file)->Bool(key).status(),   (*file)->String(key).status(),
                                     (*file)->Floats(key).status(), (*file)->Strings(key).status(),
                                     (*file)->Ints(key).status()};
    for (const absl::Status& status : statuses) {
      if (!status.ok()) CheckRefused(status);
    }
  }
  const absl::StatusOr<LanguageModelSource> source = SourceOf(*std::move(file));
  if (!source.ok()) return CheckRefused(source.status());
  absl::StatusOr<Graph> graph = BuildLanguageModel(*source);
  if (!graph.ok()) return CheckRefused(graph.status());
  CHECK_OK(graph->Verify());
  const absl::Status inferred = InferShapes(*graph, {.fold_limit_bytes = 1 << 16});
  if (!inferred.ok()) CheckRefused(inferred);
}

}  // namespace
}  // namespace stampmill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;  // NOLINT
  // A copy of exactly this size: the sanitizer sees a read past it.
  auto copy = std::make_shared<std::vector<std::byte>>(size);
  for (size_t i = 0; i < size; ++i) (*copy)[i] = static_cast<std::byte>(data[i]);
  const std::span<const std::byte> bytes = *copy;
  CheckFile(GgufFile::Parse(bytes, std::move(copy)));
  return 0;
}
