#include "compiler/gguf/testing/gguf_writer.h"

#include <utility>

#include "base/bytes.h"

namespace stampmill {
namespace {

constexpr size_t kAlignment = 32;

void WriteString(ByteWriter& out, absl::string_view text) {
  out.U64(text.size());
  out.Bytes(AsBytes(text));
}

}  // namespace

void GgufWriter::AddRaw(absl::string_view key, GgufType type, absl::string_view bytes) {
  ByteWriter out(&values_);
  WriteString(out, key);
  out.U32(static_cast<uint32_t>(type));
  out.Bytes(AsBytes(bytes));
  ++value_count_;
}

void GgufWriter::Add(absl::string_view key, uint32_t value) {
  std::string bytes;
  ByteWriter(&bytes).U32(value);
  AddRaw(key, GgufType::kU32, bytes);
}

void GgufWriter::Add(absl::string_view key, float value) {
  std::string bytes;
  ByteWriter(&bytes).F32(value);
  AddRaw(key, GgufType::kF32, bytes);
}

void GgufWriter::AddFlag(absl::string_view key, bool value) {
  AddRaw(key, GgufType::kBool, value ? absl::string_view("\1", 1) : absl::string_view("\0", 1));
}

void GgufWriter::Add(absl::string_view key, absl::string_view value) {
  std::string bytes;
  ByteWriter out(&bytes);
  WriteString(out, value);
  AddRaw(key, GgufType::kString, bytes);
}

void GgufWriter::Add(absl::string_view key, const std::vector<std::string>& values) {
  std::string bytes;
  ByteWriter out(&bytes);
  out.U32(static_cast<uint32_t>(GgufType::kString));
  out.U64(values.size());
  for (const std::string& value : values) WriteString(out, value);
  AddRaw(key, GgufType::kArray, bytes);
}

void GgufWriter::Add(absl::string_view key, const std::vector<int32_t>& values) {
  std::string bytes;
  ByteWriter out(&bytes);
  out.U32(static_cast<uint32_t>(GgufType::kI32));
  out.U64(values.size());
  for (const int32_t value : values) out.I32(value);
  AddRaw(key, GgufType::kArray, bytes);
}

void GgufWriter::AddTensor(absl::string_view name, std::vector<int64_t> shape, uint32_t ggml_type,
                           std::string bytes) {
  if (bytes.empty() && ggml_type == 0) {
    size_t size = sizeof(float);
    for (const int64_t dim : shape) size *= static_cast<size_t>(dim);
    bytes.assign(size, '\0');
  }
  tensors_.push_back({std::string(name), std::move(shape), ggml_type, std::move(bytes)});
}

std::string GgufWriter::Finish() const {
  std::string file;
  ByteWriter out(&file);
  out.Bytes(AsBytes("GGUF"));
  out.U32(version);
  out.U64(tensors_.size() + extra_tensors);
  out.U64(value_count_ + extra_values);
  out.Bytes(AsBytes(values_));
  uint64_t offset = misplaced;
  for (const Tensor& tensor : tensors_) {
    WriteString(out, tensor.name);
    out.U32(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t d = tensor.shape.size(); d-- > 0;) out.I64(tensor.shape[d]);
    out.U32(tensor.ggml_type);
    out.U64(offset);
    offset += (tensor.bytes.size() + kAlignment - 1) / kAlignment * kAlignment;
  }
  for (const Tensor& tensor : tensors_) {
    out.AlignTo(kAlignment);
    out.Bytes(AsBytes(tensor.bytes));
  }
  return file;
}

}  // namespace stampmill
