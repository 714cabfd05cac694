// Values of a template while it renders: Python's, in an arena that dies with the rendering.
//
// A JinjaValue is 16 bytes and owns nothing: strings, lists and dicts lie in the rendering's arena,
// in the parsed template or in the context, all of which outlive it. Nothing is ever changed in
// place but namespaces, iterators and the states of loops, cyclers and joiners. Strings are valid
// UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stampmill {

enum class ValueKind : uint8_t {
  kUndefined,  // text: what is undefined
  kNone,
  kBool,
  kInt,
  kUnsigned,  // above INT64_MAX, from the context: may be printed, not computed with
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kIterator,  // a Python generator: can be run through once
  kKeysView,
  kValuesView,
  kItemsView,
  kNamespace,
  kLoop,
  kMacro,
  kFunction,
  kMethod,
  kCycler,
  kJoiner,
};

struct JinjaValue;
struct Dict;
struct JinjaRange;
struct Iterator;
struct LoopState;
struct Macro;
struct Method;
struct Cycler;
struct Joiner;
enum class Builtin : uint8_t;

struct JinjaValue {
  ValueKind kind = ValueKind::kUndefined;
  // Of a string: what `escape` or `safe` gave, which is not escaped again.
  bool is_markup = false;
  // Of undefined: its text is the whole message, not the name of what is undefined.
  bool is_message = false;
  // Of a tuple: what groupby made, with fields `grouper` and `list`.
  bool is_group = false;
  // Of a string its bytes; of a list or tuple its elements.
  uint32_t size = 0;
  union {
    bool boolean;
    int64_t integer;
    uint64_t unsigned_integer;
    double real;
    const char* text = "";
    const JinjaValue* items;
    Dict* dict;  // also of views and namespaces
    const JinjaRange* range;
    Iterator* iterator;
    LoopState* loop;
    const Macro* macro;
    const Method* method;
    Cycler* cycler;
    Joiner* joiner;
    Builtin function;
  };

  static JinjaValue None() { return Of(ValueKind::kNone); }
  static JinjaValue Bool(bool value);
  static JinjaValue Int(int64_t value);
  static JinjaValue Float(double value);
  // `text` must outlive the rendering. REQUIRES: fewer than 2^32 bytes.
  static JinjaValue String(absl::string_view text);
  static JinjaValue Undefined(absl::string_view name);
  static JinjaValue UndefinedBecause(absl::string_view message);
  static JinjaValue Of(ValueKind kind);

  bool is(ValueKind wanted) const { return kind == wanted; }
  bool is_undefined() const { return kind == ValueKind::kUndefined; }
  bool is_none() const { return kind == ValueKind::kNone; }
  bool is_string() const { return kind == ValueKind::kString; }
  // bool counts as an integer, as in Python.
  bool is_integral() const { return kind == ValueKind::kInt || kind == ValueKind::kBool; }
  bool is_number() const { return is_integral() || kind == ValueKind::kFloat; }
  bool is_sequence() const { return kind == ValueKind::kList || kind == ValueKind::kTuple; }
  // REQUIRES: is_string() or is_undefined().
  absl::string_view str() const { return absl::string_view(text, size); }
  // REQUIRES: is_integral().
  int64_t integral() const { return kind == ValueKind::kBool ? boolean : integer; }
  // REQUIRES: is_number().
  double number() const {
    return kind == ValueKind::kFloat ? real : static_cast<double>(integral());
  }
};
static_assert(sizeof(JinjaValue) == 16);

struct DictEntry {
  JinjaValue key;
  JinjaValue value;
  uint64_t hash;
};

// In order of insertion, with a hash table once there are more than kLinearMax entries.
struct Dict {
  static constexpr uint32_t kLinearMax = 8;

  DictEntry* entries = nullptr;
  uint32_t size = 0;
  uint32_t capacity = 0;
  uint32_t* table = nullptr;  // of 2 * capacity places: index + 1 of an entry, 0 for none

  // Null where there is none. REQUIRES: `key` is hashable.
  DictEntry* Find(const JinjaValue& key) const;
  DictEntry* Find(absl::string_view key) const;
};

struct JinjaRange {
  int64_t start;
  int64_t stop;
  int64_t step;
  int64_t size;
};

struct Iterator {
  const JinjaValue* items;
  uint32_t size;
  uint32_t at = 0;
};

struct Method {
  JinjaValue self;
  absl::string_view name;
};

struct Cycler {
  const JinjaValue* items;
  uint32_t size;
  uint32_t at = 0;
};

struct Joiner {
  JinjaValue separator;
  bool used = false;
};

// Memory of one rendering, given back as a whole. Owned by the thread that renders.
class ValueArena {
 public:
  // `bytes_max` is limited to 2^32 - 1, what sizes of values can say.
  explicit ValueArena(size_t bytes_max)
      : bytes_max_(bytes_max < UINT32_MAX ? bytes_max : UINT32_MAX) {}
  ValueArena(const ValueArena&) = delete;
  ValueArena& operator=(const ValueArena&) = delete;

  // Null when the bound is reached, and from then on exhausted(). Aligned for any JinjaValue.
  void* Allocate(size_t bytes);

  template <typename T>
  T* AllocateArray(size_t count) {
    if (count > bytes_max_ / sizeof(T)) {
      exhausted_ = true;
      return nullptr;
    }
    return static_cast<T*>(Allocate(count * sizeof(T)));
  }

  // `a` followed by `b`. Where `a` was itself made here and room was left behind it, `b` is written
  // there: a text that grows by a little at a time costs what is added. False when exhausted.
  bool Concatenate(absl::string_view a, absl::string_view b, absl::string_view* result);

  bool exhausted() const { return exhausted_; }

 private:
  // Texts with room behind them, most recent first.
  struct Growing {
    char* end = nullptr;
    char* limit = nullptr;
  };

  const size_t bytes_max_;
  size_t bytes_ = 0;
  char* at_ = nullptr;
  char* end_ = nullptr;
  size_t next_chunk_bytes_ = size_t{8} << 10;
  bool exhausted_ = false;
  std::vector<std::unique_ptr<char[]>> chunks_;
  Growing growing_[4];
};

// What Python calls the type, for messages.
absl::string_view TypeName(const JinjaValue& value);

// bool(value).
bool IsTrue(const JinjaValue& value);

// Whether a value can be a key of a dict.
bool IsHashable(const JinjaValue& value);

// Equal values have equal hashes. REQUIRES: IsHashable(value).
uint64_t HashOf(const JinjaValue& value);

// What may still be spent; a comparison that spends it all gives any answer, and the caller looks.
struct Budget {
  int64_t steps;
  int depth;  // how deep values may be nested
  bool too_deep = false;
};

// a == b.
bool Equals(const JinjaValue& a, const JinjaValue& b, Budget* budget);

// repr(float), which is also how floats print.
std::string FloatRepr(double value);

// How many characters a text has.
int64_t CountCharacters(absl::string_view text);

// The byte where character `index` begins; text.size() for the one past the end.
// REQUIRES: 0 <= index <= CountCharacters(text).
size_t CharacterOffset(absl::string_view text, int64_t index);

bool IsAscii(absl::string_view text);

}  // namespace stampmill
