#include "server/openai/tool_parser.h"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace stampmill {
namespace {

// Arguments in a string are kept whole until they end: as much as this, then it is no call.
constexpr size_t kBufferedBytesMax = 1 << 20;
constexpr size_t kNestingMax = 100;
constexpr size_t kNameBytesMax = 256;

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

size_t SpaceBefore(absl::string_view text) {
  size_t size = 0;
  while (size < text.size() && IsSpace(text[size])) ++size;
  return size;
}

// The longest end of `text` that begins `marker`, which is not in it.
size_t MarkerBeginning(absl::string_view text, absl::string_view marker) {
  for (size_t size = std::min(text.size(), marker.size() - 1); size > 0; --size) {
    if (absl::StartsWith(marker, text.substr(text.size() - size))) return size;
  }
  return 0;
}

// `text` is a beginning of `marker`, and not all of it.
bool MayBecome(absl::string_view text, absl::string_view marker) {
  return text.size() < marker.size() && absl::StartsWith(marker, text);
}

std::string TrimEnd(absl::string_view text) {
  return std::string(absl::StripTrailingAsciiWhitespace(text));
}

constexpr absl::string_view kHermesBegin = "<tool_call>", kHermesEnd = "</tool_call>";
constexpr absl::string_view kPythonTag = "<|python_tag|>";
constexpr absl::string_view kMistralMarker = "[TOOL_CALLS]", kMistralArguments = "[ARGS]";

}  // namespace

bool IsMarker(const OutputFormat& format, absl::string_view text) {
  if (text.empty()) return false;
  if (text == format.reasoning_begin || text == format.reasoning_end) return true;
  switch (format.tools) {
    case ToolFormat::kHermes:
      return text == kHermesBegin || text == kHermesEnd;
    case ToolFormat::kLlama3:
      return text == kPythonTag;
    case ToolFormat::kMistral:
      return text == kMistralMarker || text == kMistralArguments;
    case ToolFormat::kNone:
      break;
  }
  return false;
}

void OutputDelta::Clear() {
  content.clear();
  reasoning.clear();
  calls.clear();
}

void CallReader::PassOn(std::string& arguments) {
  if (!named()) return;
  arguments += buffered_;
  buffered_.clear();
}

CallReader::State CallReader::EndValue(std::string& arguments) {
  in_token_ = false;
  expect_ = Expect::kComma;
  boost::system::error_code error;
  if (key_ == "name") {
    const boost::json::value name = boost::json::parse({value_.data(), value_.size()}, error);
    if (error || !name.is_string() || name.get_string().empty() || has_name_) return State::kWrong;
    name_ = std::string(name.get_string().data(), name.get_string().size());
    has_name_ = true;
    PassOn(arguments);
  } else if (IsArguments() && !value_.empty()) {
    // Arguments in a string: the object is within.
    const boost::json::value text = boost::json::parse({value_.data(), value_.size()}, error);
    if (error || !text.is_string()) return State::kWrong;
    buffered_ += std::string(text.get_string().data(), text.get_string().size());
    PassOn(arguments);
  }
  value_.clear();
  return State::kReading;
}

// A byte of a key or value that does not end before it.
CallReader::State CallReader::AddToToken(char byte, std::string& arguments) {
  const bool is_key = expect_ == Expect::kKey;
  // An object of arguments is passed on; what else is of interest is kept.
  const bool pass = !is_key && IsArguments() && !nesting_.empty();
  if (is_key || IsArguments() || key_ == "name") {
    std::string& kept = is_key ? key_ : pass ? buffered_ : value_;
    kept.push_back(byte);
    if (kept.size() > kBufferedBytesMax) return State::kWrong;
  }
  if (pass) PassOn(arguments);
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (byte == '\\') {
      escaped_ = true;
    } else if (static_cast<unsigned char>(byte) < 0x20) {
      return State::kWrong;
    } else if (byte == '"') {
      in_string_ = false;
      if (!nesting_.empty()) return State::kReading;
      if (!is_key) return EndValue(arguments);
      key_.pop_back();
      in_token_ = false;
      expect_ = Expect::kColon;
    }
    return State::kReading;
  }
  if (byte == '"') {
    if (nesting_.empty()) return State::kWrong;
    in_string_ = true;
  } else if (byte == '{' || byte == '[') {
    if (nesting_.empty() || nesting_.size() >= kNestingMax) return State::kWrong;
    nesting_.push_back(byte);
  } else if (byte == '}' || byte == ']') {
    if (nesting_.empty() || nesting_.back() != (byte == '}' ? '{' : '[')) return State::kWrong;
    nesting_.pop_back();
    if (nesting_.empty()) return EndValue(arguments);
  }
  return State::kReading;
}

CallReader::State CallReader::BeginValue(char byte, std::string& arguments) {
  if (byte == ',' || byte == '}' || byte == ']' || byte == ':') return State::kWrong;
  if (IsArguments()) {
    if (has_arguments_ || (byte != '{' && byte != '"')) return State::kWrong;
    has_arguments_ = true;
  }
  in_token_ = true;
  in_string_ = byte == '"';
  if (byte == '{' || byte == '[') nesting_.push_back(byte);
  (IsArguments() && byte == '{' ? buffered_ : value_).push_back(byte);
  PassOn(arguments);
  return State::kReading;
}

CallReader::State CallReader::Add(char byte, std::string& arguments) {
  if (in_token_) {
    const bool scalar_ends =
        !in_string_ && nesting_.empty() && (byte == ',' || byte == '}' || IsSpace(byte));
    if (!scalar_ends) return AddToToken(byte, arguments);
    if (EndValue(arguments) == State::kWrong) return State::kWrong;
  }
  if (IsSpace(byte)) return State::kReading;
  switch (expect_) {
    case Expect::kObject:
      if (byte != '{') return State::kWrong;
      expect_ = Expect::kKey;
      return State::kReading;
    case Expect::kKey:
      if (byte == '}' && !after_comma_) return State::kDone;
      if (byte != '"') return State::kWrong;
      key_.clear();
      in_token_ = in_string_ = true;
      return State::kReading;
    case Expect::kColon:
      if (byte != ':') return State::kWrong;
      expect_ = Expect::kValue;
      return State::kReading;
    case Expect::kValue:
      return BeginValue(byte, arguments);
    case Expect::kComma:
      if (byte == '}') return State::kDone;
      if (byte != ',') return State::kWrong;
      after_comma_ = true;
      expect_ = Expect::kKey;
      return State::kReading;
  }
  return State::kWrong;
}

OutputParser::OutputParser(OutputFormat format, std::function<std::string()> new_id)
    : format_(std::move(format)), new_id_(std::move(new_id)) {
  if (format_.reasoning_open && !format_.reasoning_end.empty()) state_ = State::kReasoning;
}

absl::string_view OutputParser::Marker() const {
  switch (format_.tools) {
    case ToolFormat::kHermes:
      return kHermesBegin;
    case ToolFormat::kLlama3:
      return kPythonTag;
    case ToolFormat::kMistral:
      return kMistralMarker;
    case ToolFormat::kNone:
      break;
  }
  return "";
}

bool OutputParser::IsTool(absl::string_view name) const {
  return std::any_of(format_.tool_names.begin(), format_.tool_names.end(),
                     [&](const std::string& tool) { return tool == name; });
}

void OutputParser::Add(absl::string_view piece, OutputDelta& out) {
  held_.append(piece.data(), piece.size());
  while (Step(/*last=*/false, out)) {
  }
}

void OutputParser::Finish(OutputDelta& out) {
  while (Step(/*last=*/true, out)) {
  }
  if (state_ == State::kCall && !announced_) GiveUpCall(out);
  state_ = State::kContent;
  out.content += std::exchange(held_, {});
}

bool OutputParser::Step(bool last, OutputDelta& out) {
  switch (state_) {
    case State::kBegin:
      return StepBegin(last, out);
    case State::kReasoning:
      return StepReasoning(last, out);
    case State::kContent:
      return StepContent(last, out);
    case State::kCall:
      return StepCall(last, out);
    case State::kAfterCall:
      return StepAfterCall(last, out);
    case State::kMistralBegin:
    case State::kMistralName:
      return StepMistral(last, out);
  }
  return false;
}

// White space at the beginning is dropped where a tag or a call follows, and else content.
bool OutputParser::StepBegin(bool last, OutputDelta&) {
  const size_t space = SpaceBefore(held_);
  const absl::string_view rest = absl::string_view(held_).substr(space);
  if (rest.empty() && !last) return false;
  if (!format_.reasoning_begin.empty()) {
    if (absl::StartsWith(rest, format_.reasoning_begin)) {
      Consume(space + format_.reasoning_begin.size());
      state_ = State::kReasoning;
      return true;
    }
    if (!last && MayBecome(rest, format_.reasoning_begin)) return false;
  }
  const absl::string_view marker = Marker();
  if (!marker.empty()) {
    if (!last && MayBecome(rest, marker)) return false;
    if (absl::StartsWith(rest, marker)) {
      Consume(space);
      state_ = State::kContent;
      return true;
    }
  }
  if (format_.tools == ToolFormat::kLlama3 && absl::StartsWith(rest, "{")) {
    bare_ = true;
    BeginCall(held_.substr(0, space));
    Consume(space);
    return true;
  }
  state_ = State::kContent;
  return true;
}

// White space around the reasoning is dropped.
bool OutputParser::StepReasoning(bool last, OutputDelta& out) {
  if (!reasoning_sent_) {
    Consume(SpaceBefore(held_));
    const std::string& begin = format_.reasoning_begin;
    if (!begin.empty() && absl::StartsWith(held_, begin)) {
      Consume(begin.size());  // the model says again what the prompt has
      return true;
    }
    if (!last && MayBecome(held_, begin)) return false;
  }
  const size_t end = held_.find(format_.reasoning_end);
  if (end != std::string::npos) {
    out.reasoning += TrimEnd(absl::string_view(held_).substr(0, end));
    Consume(end + format_.reasoning_end.size());
    drop_space_ = true;
    state_ = State::kAfterCall;
    return true;
  }
  const size_t keep = last ? 0 : MarkerBeginning(held_, format_.reasoning_end);
  const std::string text = TrimEnd(absl::string_view(held_).substr(0, held_.size() - keep));
  reasoning_sent_ |= !text.empty();
  out.reasoning += text;
  Consume(last ? held_.size() : text.size());
  return false;
}

bool OutputParser::StepContent(bool last, OutputDelta& out) {
  const absl::string_view marker = Marker();
  if (marker.empty()) {
    out.content += std::exchange(held_, {});
    return false;
  }
  const size_t at = held_.find(std::string(marker));
  if (at == std::string::npos) {
    const size_t keep = last ? 0 : MarkerBeginning(held_, marker);
    out.content.append(held_, 0, held_.size() - keep);
    Consume(held_.size() - keep);
    return false;
  }
  out.content.append(held_, 0, at);
  Consume(at + marker.size());
  raw_ = std::string(marker);
  bare_ = false;
  in_array_ = false;
  if (format_.tools == ToolFormat::kMistral) {
    state_ = State::kMistralBegin;
  } else {
    BeginCall(marker);
  }
  return true;
}

void OutputParser::BeginCall(absl::string_view prefix) {
  state_ = State::kCall;
  raw_ = std::string(prefix);
  reader_ = {};
  announced_ = only_arguments_ = false;
}

void OutputParser::Announce(absl::string_view name, OutputDelta& out) {
  announced_ = true;
  raw_.clear();
  out.calls.push_back({.index = calls_++, .id = new_id_(), .name = std::string(name)});
}

void OutputParser::GiveUpCall(OutputDelta& out) {
  out.content += std::exchange(raw_, {});
  state_ = State::kContent;
}

bool OutputParser::StepCall(bool, OutputDelta& out) {
  for (size_t i = 0; i < held_.size(); ++i) {
    std::string arguments;
    const CallReader::State read = reader_.Add(held_[i], arguments);
    if (!announced_) raw_.push_back(held_[i]);
    const bool over =
        read != CallReader::State::kReading || (only_arguments_ && reader_.arguments_over());
    // Bare, it is a call only of a tool and with arguments; marked, the arguments may be missing.
    const bool is_call = reader_.named() ||
                         (over && !bare_ && read == CallReader::State::kDone && reader_.has_name());
    if (!announced_ && is_call && (!bare_ || IsTool(reader_.name()))) Announce(reader_.name(), out);
    if (announced_ && over && !reader_.has_arguments()) arguments = "{}";
    if (announced_ && !arguments.empty()) {
      if (out.calls.empty() || out.calls.back().index != calls_ - 1) {
        out.calls.push_back({.index = calls_ - 1});
      }
      out.calls.back().arguments += arguments;
    } else if (!announced_ && is_call) {
      // A JSON object that names no tool.
      Consume(i + 1);
      GiveUpCall(out);
      return true;
    }
    if (!over) continue;
    Consume(i + 1);
    if (announced_) {
      state_ = State::kAfterCall;
    } else {
      GiveUpCall(out);
    }
    return true;
  }
  held_.clear();
  return false;
}

// What ends a call, then white space, then another call or content.
bool OutputParser::StepAfterCall(bool last, OutputDelta&) {
  const size_t space = SpaceBefore(held_);
  const absl::string_view rest = absl::string_view(held_).substr(space);
  if (rest.empty()) {
    if (last) held_.clear();
    return false;
  }
  if (std::exchange(drop_space_, false) && space > 0) {
    Consume(space);
    return true;
  }
  if (in_array_) {
    if (rest[0] == ',' || rest[0] == ']') {
      in_array_ = rest[0] == ',';
      Consume(space + 1);
      return true;
    }
    if (rest[0] == '{') {
      BeginCall("");
      Consume(space);
      return true;
    }
    in_array_ = false;
  }
  if (format_.tools == ToolFormat::kHermes) {
    if (absl::StartsWith(rest, kHermesEnd)) {
      Consume(space + kHermesEnd.size());
      return true;
    }
    if (!last && MayBecome(rest, kHermesEnd)) return false;
  }
  if (format_.tools == ToolFormat::kLlama3) {
    if (rest[0] == ';' && calls_ > 0) {
      Consume(space + 1);
      return true;
    }
    if (rest[0] == '{') {
      bare_ = true;
      BeginCall(held_.substr(0, space));
      Consume(space);
      return true;
    }
  }
  if (const absl::string_view marker = Marker(); !marker.empty()) {
    if (!last && MayBecome(rest, marker)) return false;
    if (absl::StartsWith(rest, marker)) Consume(space);
  }
  state_ = State::kContent;
  return true;
}

// [TOOL_CALLS][{"name": ..}, ..] or [TOOL_CALLS]name[ARGS]{..}
bool OutputParser::StepMistral(bool last, OutputDelta& out) {
  if (state_ == State::kMistralBegin) {
    const size_t space = SpaceBefore(held_);
    if (space == held_.size()) {
      if (last) GiveUpCall(out);
      return last;
    }
    if (held_[space] == '[' || held_[space] == '{') {
      in_array_ = held_[space] == '[';
      const std::string prefix = raw_ + held_.substr(0, space + (in_array_ ? 1 : 0));
      Consume(space + (in_array_ ? 1 : 0));
      BeginCall(prefix);
      return true;
    }
    state_ = State::kMistralName;
  }
  const size_t brace = held_.find('{');
  if (brace == std::string::npos) {
    if (!last && held_.size() <= kNameBytesMax) return false;
    GiveUpCall(out);
    return true;
  }
  const std::string name(absl::StripAsciiWhitespace(held_.substr(0, held_.find_first_of("[{"))));
  if (name.empty() || brace > kNameBytesMax) {
    GiveUpCall(out);
    return true;
  }
  Consume(brace);
  // As if the arguments stood in a call.
  BeginCall("");
  Announce(name, out);
  std::string none;
  for (const char byte : absl::string_view(R"({"name":"x","arguments":)")) reader_.Add(byte, none);
  only_arguments_ = true;
  return true;
}

}  // namespace stampmill
