// From OnnxTensor to Tensor: a view into the model file, or into a file beside it, wherever the
// bytes lie there as a tensor's do; else a copy.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "compiler/onnx/reader.h"
#include "graph/tensor.h"

namespace stampmill {

// The files beside a model that its tensors lie in, each mapped once. They stay within the model's
// folder: no absolute paths, no "..", and no symbolic link that leads out of it. Owned by one
// thread; the mappings belong to the tensors too.
class ExternalFiles {
 public:
  // `folder` is that of the model file; empty: the model has none and external data is refused.
  explicit ExternalFiles(std::string folder) : folder_(std::move(folder)) {}

  absl::StatusOr<std::shared_ptr<const Mapping>> Open(absl::string_view location);
  // Paths of those opened, relative to the folder, sorted.
  std::vector<std::string> names() const;

 private:
  std::string folder_;
  std::map<std::string, std::shared_ptr<const Mapping>> files_;
};

// `owner` keeps the bytes alive that the tensor was read from. INVALID_ARGUMENT when dims and data
// do not agree; UNIMPLEMENTED for element types that Stampmill lacks. Both name the tensor.
absl::StatusOr<Tensor> MakeTensor(const OnnxTensor& tensor, std::shared_ptr<const void> owner,
                                  ExternalFiles& files);

// "int4", "string": for messages; "type 99" for a number that is none.
std::string OnnxTypeName(int32_t data_type);

// The DType, or UNIMPLEMENTED naming the type.
absl::StatusOr<DType> SupportedDType(int32_t data_type);

}  // namespace stampmill
