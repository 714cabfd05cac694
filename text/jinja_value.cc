#include "text/jinja_value.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "absl/hash/hash.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

// Deeper parts of a key do not change its hash.
constexpr int kHashDepth = 8;
constexpr int kHashableDepth = 256;

constexpr size_t kChunkBytesMax = size_t{1} << 20;
// Shorter texts are copied when they grow.
constexpr size_t kGrowingBytes = 128;

bool IsIntegralDouble(double value) {
  return value >= -9223372036854775808.0 && value < 9223372036854775808.0 &&
         value == std::trunc(value);
}

uint64_t HashDeep(const JinjaValue& value, int depth) {
  switch (value.kind) {
    case ValueKind::kBool:
    case ValueKind::kInt:
      return absl::HashOf(value.integral());
    case ValueKind::kFloat:
      if (IsIntegralDouble(value.real)) return absl::HashOf(static_cast<int64_t>(value.real));
      return absl::HashOf(value.real);
    case ValueKind::kString:
      return absl::HashOf(value.str());
    case ValueKind::kTuple: {
      uint64_t hash = value.size;
      if (depth == 0) return hash;
      for (uint32_t i = 0; i < value.size; ++i) {
        hash = absl::HashOf(hash, HashDeep(value.items[i], depth - 1));
      }
      return hash;
    }
    default:
      return static_cast<uint64_t>(value.kind);
  }
}

bool IsHashableDeep(const JinjaValue& value, int depth) {
  switch (value.kind) {
    case ValueKind::kList:
    case ValueKind::kDict:
    case ValueKind::kKeysView:
    case ValueKind::kItemsView:
      return false;
    case ValueKind::kTuple:
      if (depth == 0) return false;
      for (uint32_t i = 0; i < value.size; ++i) {
        if (!IsHashableDeep(value.items[i], depth - 1)) return false;
      }
      return true;
    default:
      return true;
  }
}

bool EqualSequences(const JinjaValue& a, const JinjaValue& b, Budget* budget) {
  if (a.kind != b.kind || a.size != b.size) return false;
  for (uint32_t i = 0; i < a.size; ++i) {
    if (!Equals(a.items[i], b.items[i], budget)) return false;
  }
  return true;
}

bool EqualDicts(const Dict& a, const Dict& b, Budget* budget) {
  if (a.size != b.size) return false;
  for (uint32_t i = 0; i < a.size; ++i) {
    const DictEntry* const other = b.Find(a.entries[i].key);
    if (other == nullptr || !Equals(a.entries[i].value, other->value, budget)) return false;
  }
  return true;
}

bool EqualNumbers(const JinjaValue& a, const JinjaValue& b) {
  // long double holds every int64 and every double exactly.
  if (a.is_integral() && b.is_integral()) return a.integral() == b.integral();
  const auto wide = [](const JinjaValue& v) {
    return v.is(ValueKind::kFloat) ? static_cast<long double>(v.real)
                                   : static_cast<long double>(v.integral());
  };
  return wide(a) == wide(b);
}

bool EqualRanges(const JinjaRange& a, const JinjaRange& b) {
  if (a.size != b.size) return false;
  if (a.size == 0) return true;
  return a.start == b.start && (a.size == 1 || a.step == b.step);
}

}  // namespace

JinjaValue JinjaValue::Of(ValueKind kind) {
  JinjaValue result;
  result.kind = kind;
  return result;
}

JinjaValue JinjaValue::Bool(bool value) {
  JinjaValue result = Of(ValueKind::kBool);
  result.boolean = value;
  return result;
}

JinjaValue JinjaValue::Int(int64_t value) {
  JinjaValue result = Of(ValueKind::kInt);
  result.integer = value;
  return result;
}

JinjaValue JinjaValue::Float(double value) {
  JinjaValue result = Of(ValueKind::kFloat);
  result.real = value;
  return result;
}

JinjaValue JinjaValue::String(absl::string_view text) {
  JinjaValue result = Of(ValueKind::kString);
  result.size = static_cast<uint32_t>(text.size());
  if (!text.empty()) result.text = text.data();
  return result;
}

JinjaValue JinjaValue::Undefined(absl::string_view name) {
  JinjaValue result = String(name);
  result.kind = ValueKind::kUndefined;
  return result;
}

JinjaValue JinjaValue::UndefinedBecause(absl::string_view message) {
  JinjaValue result = Undefined(message);
  result.is_message = true;
  return result;
}

DictEntry* Dict::Find(const JinjaValue& key) const {
  if (size == 0) return nullptr;
  if (key.is_string()) return Find(key.str());
  Budget budget = {.steps = INT64_MAX, .depth = kHashableDepth};
  if (table == nullptr) {
    for (uint32_t i = 0; i < size; ++i) {
      if (Equals(entries[i].key, key, &budget)) return &entries[i];
    }
    return nullptr;
  }
  const uint64_t hash = HashOf(key);
  const uint32_t mask = 2 * capacity - 1;
  for (uint32_t at = static_cast<uint32_t>(hash) & mask; table[at] != 0; at = (at + 1) & mask) {
    DictEntry& entry = entries[table[at] - 1];
    if (entry.hash == hash && Equals(entry.key, key, &budget)) return &entry;
  }
  return nullptr;
}

DictEntry* Dict::Find(absl::string_view key) const {
  if (table == nullptr) {
    for (uint32_t i = 0; i < size; ++i) {
      if (entries[i].key.is_string() && entries[i].key.str() == key) return &entries[i];
    }
    return nullptr;
  }
  const uint64_t hash = absl::HashOf(key);
  const uint32_t mask = 2 * capacity - 1;
  for (uint32_t at = static_cast<uint32_t>(hash) & mask; table[at] != 0; at = (at + 1) & mask) {
    DictEntry& entry = entries[table[at] - 1];
    if (entry.hash == hash && entry.key.is_string() && entry.key.str() == key) return &entry;
  }
  return nullptr;
}

void* ValueArena::Allocate(size_t bytes) {
  constexpr size_t kAlign = alignof(JinjaValue);
  if (bytes > bytes_max_) {
    exhausted_ = true;
    return nullptr;
  }
  // Nothing takes a place too: null means that there is none left.
  bytes = (std::max<size_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
  if (static_cast<size_t>(end_ - at_) < bytes) {
    const size_t chunk = std::max(bytes, next_chunk_bytes_);
    if (bytes > bytes_max_ - bytes_) {
      exhausted_ = true;
      return nullptr;
    }
    chunks_.push_back(std::make_unique_for_overwrite<char[]>(chunk));
    next_chunk_bytes_ = std::min(2 * next_chunk_bytes_, kChunkBytesMax);
    at_ = chunks_.back().get();
    end_ = at_ + chunk;
    bytes_ += std::min(chunk, bytes_max_ - bytes_);
  }
  void* const result = at_;
  at_ += bytes;
  return result;
}

bool ValueArena::Concatenate(absl::string_view a, absl::string_view b, absl::string_view* result) {
  if (a.empty() || b.empty()) {
    *result = a.empty() ? b : a;
    return true;
  }
  for (Growing& growing : growing_) {
    if (growing.end != a.data() + a.size() ||
        static_cast<size_t>(growing.limit - growing.end) < b.size()) {
      continue;
    }
    std::memcpy(growing.end, b.data(), b.size());
    growing.end += b.size();
    *result = absl::string_view(a.data(), a.size() + b.size());
    return true;
  }
  const size_t size = a.size() + b.size();
  if (size > UINT32_MAX) {
    exhausted_ = true;
    return false;
  }
  const size_t room = size < kGrowingBytes ? size : 2 * size;
  char* const text = AllocateArray<char>(room);
  if (text == nullptr) return false;
  std::memcpy(text, a.data(), a.size());
  std::memcpy(text + a.size(), b.data(), b.size());
  if (room > size) {
    std::move_backward(std::begin(growing_), std::end(growing_) - 1, std::end(growing_));
    growing_[0] = {.end = text + size, .limit = text + room};
  }
  *result = absl::string_view(text, size);
  return true;
}

absl::string_view TypeName(const JinjaValue& value) {
  switch (value.kind) {
    case ValueKind::kUndefined:
      return "undefined";
    case ValueKind::kNone:
      return "none";
    case ValueKind::kBool:
      return "bool";
    case ValueKind::kInt:
    case ValueKind::kUnsigned:
      return "int";
    case ValueKind::kFloat:
      return "float";
    case ValueKind::kString:
      return "str";
    case ValueKind::kList:
      return "list";
    case ValueKind::kTuple:
      return "tuple";
    case ValueKind::kDict:
      return "dict";
    case ValueKind::kRange:
      return "range";
    case ValueKind::kIterator:
      return "generator";
    case ValueKind::kKeysView:
      return "dict_keys";
    case ValueKind::kValuesView:
      return "dict_values";
    case ValueKind::kItemsView:
      return "dict_items";
    case ValueKind::kNamespace:
      return "namespace";
    case ValueKind::kLoop:
      return "loop";
    case ValueKind::kMacro:
      return "macro";
    case ValueKind::kFunction:
      return "function";
    case ValueKind::kMethod:
      return "method";
    case ValueKind::kCycler:
      return "cycler";
    case ValueKind::kJoiner:
      return "joiner";
  }
  return "";
}

bool IsTrue(const JinjaValue& value) {
  switch (value.kind) {
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return false;
    case ValueKind::kBool:
      return value.boolean;
    case ValueKind::kInt:
      return value.integer != 0;
    case ValueKind::kFloat:
      return value.real != 0;
    case ValueKind::kString:
    case ValueKind::kList:
    case ValueKind::kTuple:
      return value.size != 0;
    case ValueKind::kDict:
    case ValueKind::kKeysView:
    case ValueKind::kValuesView:
    case ValueKind::kItemsView:
      return value.dict->size != 0;
    case ValueKind::kRange:
      return value.range->size != 0;
    default:
      return true;
  }
}

bool IsHashable(const JinjaValue& value) { return IsHashableDeep(value, kHashableDepth); }

uint64_t HashOf(const JinjaValue& value) { return HashDeep(value, kHashDepth); }

bool Equals(const JinjaValue& a, const JinjaValue& b, Budget* budget) {
  if (--budget->steps < 0) return false;
  if (a.is_number() && b.is_number()) return EqualNumbers(a, b);
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return true;
    case ValueKind::kUnsigned:
      return a.unsigned_integer == b.unsigned_integer;
    case ValueKind::kString:
      budget->steps -= a.size / 32;
      return a.str() == b.str();
    case ValueKind::kRange:
      return EqualRanges(*a.range, *b.range);
    case ValueKind::kFunction:
      return a.function == b.function;
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kDict:
    case ValueKind::kItemsView: {
      if (budget->depth == 0) {
        budget->too_deep = true;
        return false;
      }
      --budget->depth;
      const bool equal =
          a.is_sequence() ? EqualSequences(a, b, budget) : EqualDicts(*a.dict, *b.dict, budget);
      ++budget->depth;
      return equal;
    }
    case ValueKind::kKeysView:
      return a.dict->size == b.dict->size &&
             std::all_of(a.dict->entries, a.dict->entries + a.dict->size,
                         [&](const DictEntry& entry) { return b.dict->Find(entry.key); });
    default:
      // Identity: of the one pointer that such a value is.
      return a.iterator == b.iterator;
  }
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The shortest digits that read back as the same number, as d.ddde+xx.
  char digits[32];
  const auto end =
      std::to_chars(digits, digits + sizeof(digits), value, std::chars_format::scientific).ptr;
  const std::string scientific(digits, end);
  const size_t e = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return scientific;
  char fixed[64];
  std::string result(
      fixed, std::to_chars(fixed, fixed + sizeof(fixed), value, std::chars_format::fixed).ptr);
  if (result.find('.') == std::string::npos) result += ".0";
  return result;
}

int64_t CountCharacters(absl::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

size_t CharacterOffset(absl::string_view text, int64_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) {
    at += DecodeUtf8(text.data() + at, text.data() + text.size()).size_bytes;
  }
  return at;
}

bool IsAscii(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace stampmill
