// How values print: str() and repr() as Python has them, and JSON.
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_sort.h"
#include "text/unicode_case.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

void AppendHexEscape(char32_t character, std::string* out) {
  if (character < 0x100) {
    absl::StrAppend(out, "\\x", absl::Hex(character, absl::kZeroPad2));
  } else if (character < 0x10000) {
    absl::StrAppend(out, "\\u", absl::Hex(character, absl::kZeroPad4));
  } else {
    absl::StrAppend(out, "\\U", absl::Hex(character, absl::kZeroPad8));
  }
}

void AppendJsonString(absl::string_view text, bool ensure_ascii, std::string* out) {
  static constexpr absl::string_view kEscaped = "\"\\\n\r\t\f\b";
  static constexpr absl::string_view kLetters = "\"\\nrtfb";
  out->push_back('"');
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const Utf8Character next = DecodeUtf8(at, end);
    const char32_t c = next.code_point;
    const size_t escaped = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : absl::string_view::npos;
    if (escaped != absl::string_view::npos) {
      out->push_back('\\');
      out->push_back(kLetters[escaped]);
    } else if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000)) {
      absl::StrAppend(out, "\\u", absl::Hex(c, absl::kZeroPad4));
    } else if (ensure_ascii && c >= 0x10000) {
      absl::StrAppend(out, "\\u", absl::Hex(0xD800 + ((c - 0x10000) >> 10)), "\\u",
                      absl::Hex(0xDC00 + ((c - 0x10000) & 0x3FF)));
    } else {
      out->append(at, next.size_bytes);
    }
    at += next.size_bytes;
  }
  out->push_back('"');
}

// Writes one JSON document.
class JsonWriter {
 public:
  JsonWriter(JinjaInterpreter* in, const JsonStyle& style, std::string* out)
      : in_(*in), style_(style), out_(*out) {}

  bool Write(const JinjaValue& value) {
    const JinjaInterpreter::Level level(&in_);
    if (!in_.Charge(1)) return false;
    switch (value.kind) {
      case ValueKind::kNone:
        out_ += "null";
        return true;
      case ValueKind::kBool:
        out_ += value.boolean ? "true" : "false";
        return true;
      case ValueKind::kInt:
      case ValueKind::kUnsigned:
        return in_.AppendString(value, &out_);
      case ValueKind::kFloat:
        WriteFloat(value.real);
        return true;
      case ValueKind::kString:
        if (!in_.ChargeWork(value.size)) return false;
        AppendJsonString(value.str(), style_.ensure_ascii, &out_);
        return true;
      case ValueKind::kList:
      case ValueKind::kTuple:
        return WriteArray(value);
      case ValueKind::kDict:
        return WriteObject(*value.dict);
      default:
        in_.Fail(absl::StrCat("a ", TypeName(value), " cannot be written as JSON"));
        return false;
    }
  }

 private:
  void WriteFloat(double value) {
    if (std::isnan(value)) {
      out_ += "NaN";
    } else if (std::isinf(value)) {
      out_ += value < 0 ? "-Infinity" : "Infinity";
    } else {
      out_ += FloatRepr(value);
    }
  }

  bool NewLine() {
    if (!style_.has_indent) return true;
    if (!in_.ChargeWork(style_.indent.size() * depth_)) return false;
    out_ += '\n';
    for (size_t i = 0; i < depth_; ++i) out_ += style_.indent;
    return true;
  }

  bool WriteArray(const JinjaValue& value) {
    if (value.size == 0) {
      out_ += "[]";
      return true;
    }
    out_ += '[';
    ++depth_;
    for (uint32_t i = 0; i < value.size; ++i) {
      if (i > 0) out_ += style_.item_separator;
      if (!NewLine() || !Write(value.items[i])) return false;
    }
    --depth_;
    if (!NewLine()) return false;
    out_ += ']';
    return true;
  }

  bool WriteKey(const JinjaValue& key) {
    switch (key.kind) {
      case ValueKind::kString:
        return Write(key);
      case ValueKind::kNone:
      case ValueKind::kBool:
      case ValueKind::kInt:
      case ValueKind::kUnsigned:
      case ValueKind::kFloat:
        out_ += '"';
        if (!Write(key)) return false;
        out_ += '"';
        return true;
      default:
        in_.Fail(absl::StrCat("a ", TypeName(key), " cannot be a key of JSON"));
        return false;
    }
  }

  bool WriteObject(const Dict& dict) {
    if (dict.size == 0) {
      out_ += "{}";
      return true;
    }
    std::vector<const DictEntry*> entries;
    entries.reserve(dict.size);
    for (uint32_t i = 0; i < dict.size; ++i) entries.push_back(&dict.entries[i]);
    if (style_.sort_keys) {
      SortStably(&entries, [this](const DictEntry* a, const DictEntry* b) {
        return !in_.failed() && in_.Less(a->key, b->key);
      });
    }
    out_ += '{';
    ++depth_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      if (!NewLine() || !WriteKey(entries[i]->key)) return false;
      out_ += style_.key_separator;
      if (!Write(entries[i]->value)) return false;
    }
    --depth_;
    if (!NewLine()) return false;
    out_ += '}';
    return true;
  }

  JinjaInterpreter& in_;
  const JsonStyle& style_;
  std::string& out_;
  size_t depth_ = 0;
};

}  // namespace

void AppendStringRepr(absl::string_view text, std::string* out) {
  const bool has_single = text.find('\'') != absl::string_view::npos;
  const bool has_double = text.find('"') != absl::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out->push_back(quote);
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const Utf8Character next = DecodeUtf8(at, end);
    const char32_t c = next.code_point;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out->push_back('\\');
      out->push_back(c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    } else if (CharacterProperties(c) & kPrintable) {
      out->append(at, next.size_bytes);
    } else {
      AppendHexEscape(c, out);
    }
    at += next.size_bytes;
  }
  out->push_back(quote);
}

bool AppendJson(JinjaInterpreter& in, const JinjaValue& value, const JsonStyle& style,
                std::string* out) {
  return JsonWriter(&in, style, out).Write(value);
}

bool JinjaInterpreter::AppendString(const JinjaValue& value, std::string* out) {
  if (failed()) return false;
  if (value.is_undefined()) return true;
  if (!value.is_string()) return AppendRepr(value, out);
  if (!ChargeScan(value.size)) return false;
  out->append(value.text, value.size);
  return true;
}

JinjaValue JinjaInterpreter::ToString(const JinjaValue& value) {
  if (failed() || value.is_string()) return value;
  std::string text;
  return AppendString(value, &text) ? NewString(text) : JinjaValue();
}

bool JinjaInterpreter::AppendRepr(const JinjaValue& value, std::string* out) {
  const Level level(this);
  if (!Charge(1)) return false;
  switch (value.kind) {
    case ValueKind::kUndefined:
      *out += "Undefined";
      return true;
    case ValueKind::kNone:
      *out += "None";
      return true;
    case ValueKind::kBool:
      *out += value.boolean ? "True" : "False";
      return true;
    case ValueKind::kInt:
      absl::StrAppend(out, value.integer);
      return true;
    case ValueKind::kUnsigned:
      absl::StrAppend(out, value.unsigned_integer);
      return true;
    case ValueKind::kFloat:
      *out += FloatRepr(value.real);
      return true;
    case ValueKind::kString:
      if (!ChargeWork(value.size)) return false;
      if (value.is_markup) *out += "Markup(";
      AppendStringRepr(value.str(), out);
      if (value.is_markup) *out += ")";
      return true;
    case ValueKind::kList:
    case ValueKind::kTuple:
      return AppendSequence(value, out);
    case ValueKind::kDict:
      return AppendDict(*value.dict, out);
    case ValueKind::kRange:
      absl::StrAppend(out, "range(", value.range->start, ", ", value.range->stop);
      if (value.range->step != 1) absl::StrAppend(out, ", ", value.range->step);
      *out += ")";
      return true;
    case ValueKind::kKeysView:
    case ValueKind::kValuesView:
    case ValueKind::kItemsView:
      return AppendView(value, out);
    case ValueKind::kNamespace:
      *out += "<Namespace ";
      if (!AppendDict(*value.dict, out)) return false;
      *out += ">";
      return true;
    case ValueKind::kLoop:
      absl::StrAppend(out, "<LoopContext ", value.loop->index0 + 1, "/", LoopLength(value.loop),
                      ">");
      return !failed();
    case ValueKind::kMacro:
      *out += "<Macro ";
      AppendStringRepr(value.macro->statement->signature.name, out);
      *out += ">";
      return true;
    default:
      Fail(absl::StrCat("a ", TypeName(value), " cannot be printed"));
      return false;
  }
}

bool JinjaInterpreter::AppendSequence(const JinjaValue& value, std::string* out) {
  const bool is_list = value.is(ValueKind::kList);
  *out += is_list ? '[' : '(';
  for (uint32_t i = 0; i < value.size; ++i) {
    if (i > 0) *out += ", ";
    if (!AppendRepr(value.items[i], out)) return false;
  }
  if (!is_list && value.size == 1) *out += ',';
  *out += is_list ? ']' : ')';
  return true;
}

bool JinjaInterpreter::AppendDict(const Dict& dict, std::string* out) {
  *out += '{';
  for (uint32_t i = 0; i < dict.size; ++i) {
    if (i > 0) *out += ", ";
    if (!AppendRepr(dict.entries[i].key, out)) return false;
    *out += ": ";
    if (!AppendRepr(dict.entries[i].value, out)) return false;
  }
  *out += '}';
  return true;
}

bool JinjaInterpreter::AppendView(const JinjaValue& value, std::string* out) {
  std::span<const JinjaValue> items;
  if (!Items(value, &items)) return false;
  JinjaValue list = JinjaValue::Of(ValueKind::kList);
  list.size = static_cast<uint32_t>(items.size());
  list.items = items.data();
  absl::StrAppend(out, TypeName(value), "(");
  if (!AppendSequence(list, out)) return false;
  *out += ')';
  return true;
}

}  // namespace stampmill
