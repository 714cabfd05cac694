// Builds GGUF files in memory, for tests and corpora; sound ones and, on demand, others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "compiler/gguf/reader.h"

namespace stampmill {

class GgufWriter {
 public:
  void Add(absl::string_view key, uint32_t value);
  void Add(absl::string_view key, float value);
  void AddFlag(absl::string_view key, bool value);
  void Add(absl::string_view key, absl::string_view value);
  void Add(absl::string_view key, const std::vector<std::string>& values);
  void Add(absl::string_view key, const std::vector<int32_t>& values);
  // Any value, as its bytes behind the type.
  void AddRaw(absl::string_view key, GgufType type, absl::string_view bytes);
  // `shape` outermost first; zeros where `bytes` is empty and the type is f32.
  void AddTensor(absl::string_view name, std::vector<int64_t> shape, uint32_t ggml_type = 0,
                 std::string bytes = "");

  std::string Finish() const;

  uint32_t version = 3;
  // What the file says it has beyond what it has.
  uint64_t extra_tensors = 0, extra_values = 0;
  // Added to the offset of each tensor.
  uint64_t misplaced = 0;

 private:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    uint32_t ggml_type;
    std::string bytes;
  };
  std::string values_;
  uint64_t value_count_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace stampmill
