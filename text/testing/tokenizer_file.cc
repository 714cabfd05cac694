#include "text/testing/tokenizer_file.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer_json.h"

namespace stampmill {
namespace {

enum Type : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64
};

struct Reader {
  absl::string_view rest;

  absl::string_view Take(uint64_t size) {
    CHECK(size <= rest.size()) << "the file is cut";
    const absl::string_view bytes = rest.substr(0, size);
    rest.remove_prefix(size);
    return bytes;
  }
  template <typename T>
  T Number() {
    T value;
    std::memcpy(&value, Take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  absl::string_view String() { return Take(Number<uint64_t>()); }
  int64_t Integer(uint32_t type) {
    switch (type) {
      case kUint8:
      case kInt8:
      case kBool:
        return Number<uint8_t>();
      case kUint16:
      case kInt16:
        return Number<uint16_t>();
      case kUint32:
      case kFloat32:
        return Number<uint32_t>();
      case kInt32:
        return Number<int32_t>();
      default:
        return Number<int64_t>();
    }
  }
};

using Texts = std::map<std::string, absl::string_view>;
using Numbers = std::map<std::string, int64_t>;

void TakeSingles(const Texts& texts, const Numbers& numbers, GgufVocabulary* result) {
  const auto text = [&](const char* key) {
    const auto found = texts.find(key);
    return found == texts.end() ? std::string() : std::string(found->second);
  };
  result->model = text("tokenizer.ggml.model");
  result->pre = text("tokenizer.ggml.pre");
  const auto number = [&](const char* key) -> std::optional<int32_t> {
    const auto found = numbers.find(std::string("tokenizer.ggml.") + key);
    if (found == numbers.end()) return std::nullopt;
    return static_cast<int32_t>(found->second);
  };
  const auto flag = [&](const char* key) -> std::optional<bool> {
    const std::optional<int32_t> value = number(key);
    return value ? std::optional(*value != 0) : std::nullopt;
  };
  result->bos_token_id = number("bos_token_id");
  result->eos_token_id = number("eos_token_id");
  result->eot_token_id = number("eot_token_id");
  result->eom_token_id = number("eom_token_id");
  result->unknown_token_id = number("unknown_token_id");
  result->seperator_token_id = number("seperator_token_id");
  result->padding_token_id = number("padding_token_id");
  result->cls_token_id = number("cls_token_id");
  result->mask_token_id = number("mask_token_id");
  result->add_bos_token = flag("add_bos_token");
  result->add_eos_token = flag("add_eos_token");
  result->add_sep_token = flag("add_sep_token");
  result->add_space_prefix = flag("add_space_prefix");
  result->remove_extra_whitespaces = flag("remove_extra_whitespaces");
}

GgufVocabulary ReadGgufVocabulary(const std::string& path) {
  const auto file = Mapping::File(path);
  CHECK_OK(file);
  Reader reader = {
      absl::string_view(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size())};
  CHECK_EQ(reader.Take(4), "GGUF");
  CHECK(reader.Number<uint32_t>() >= 2);
  reader.Number<uint64_t>();  // tensors
  const uint64_t keys = reader.Number<uint64_t>();
  GgufVocabulary result;
  Texts texts;
  Numbers numbers;
  for (uint64_t i = 0; i < keys; ++i) {
    const std::string key(reader.String());
    const uint32_t type = reader.Number<uint32_t>();
    if (type == kString) {
      texts[key] = reader.String();
      continue;
    }
    if (type != kArray) {
      numbers[key] = reader.Integer(type);
      continue;
    }
    const uint32_t element = reader.Number<uint32_t>();
    const uint64_t count = reader.Number<uint64_t>();
    for (uint64_t k = 0; k < count; ++k) {
      if (element == kString) {
        const absl::string_view text = reader.String();
        if (key == "tokenizer.ggml.tokens") result.tokens.Add(text);
        if (key == "tokenizer.ggml.merges") result.merges.Add(text);
      } else if (element == kFloat32) {
        const float value = reader.Number<float>();
        if (key == "tokenizer.ggml.scores") result.scores.push_back(value);
      } else {
        const int64_t value = reader.Integer(element);
        if (key == "tokenizer.ggml.token_type") {
          result.token_type.push_back(static_cast<int32_t>(value));
        }
        if (key == "tokenizer.ggml.precompiled_charsmap") {
          result.precompiled_charsmap.push_back(static_cast<char>(value));
        }
      }
    }
  }
  TakeSingles(texts, numbers, &result);
  return result;
}

}  // namespace

absl::StatusOr<TokenizerSpec> ReadTokenizerFile(const std::string& path, const std::string& pre) {
  if (absl::EndsWith(path, ".json")) {
    ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
    return ParseTokenizerJson(json);
  }
  GgufVocabulary vocabulary = ReadGgufVocabulary(path);
  if (!pre.empty()) vocabulary.pre = pre;
  return SpecOfGguf(std::move(vocabulary));
}

}  // namespace stampmill
