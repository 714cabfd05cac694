// OutputParser: what a model writes, taken apart into content, reasoning and calls of tools, while
// it is being written.
//
// Formats: Hermes and Qwen (<tool_call>{"name": .., "arguments": ..}</tool_call>), Llama 3 (the
// same JSON bare, with "parameters", alone or behind <|python_tag|>), Mistral ([TOOL_CALLS] with an
// array of calls, or with a name and the arguments); reasoning in tags at the beginning. A marker
// is never sent in halves, and what only looked like a call until it went wrong is content.
// Arguments are passed on as they come, once the name is known.
//
// Markers are often special tokens: the text must have them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/openai/responses.h"

namespace stampmill {

enum class ToolFormat : uint8_t { kNone, kHermes, kLlama3, kMistral };

struct OutputFormat {
  ToolFormat tools = ToolFormat::kNone;
  // Empty: the model does not reason in tags. As "<think>", "</think>".
  std::string reasoning_begin, reasoning_end;
  // The prompt has the first tag already.
  bool reasoning_open = false;
  // A bare JSON object of Llama 3 is a call only of one of these: an answer in JSON is none.
  std::vector<std::string> tool_names;
};

// Whether a special token of this text says something in the format, and is no mere control token.
bool IsMarker(const OutputFormat& format, absl::string_view text);

struct OutputDelta {
  std::string content;
  std::string reasoning;
  std::vector<ToolCallDelta> calls;

  void Clear();
};

// Reads one call, a JSON object, byte by byte: finds its name and passes its arguments on.
class CallReader {
 public:
  enum class State : uint8_t { kReading, kDone, kWrong };

  // The next byte. Arguments that may be passed on are appended to `arguments`, as soon as named().
  State Add(char byte, std::string& arguments);
  // The name and the beginning of the arguments were read: it is a call.
  bool named() const { return has_name_ && has_arguments_; }
  bool has_name() const { return has_name_; }
  const std::string& name() const { return name_; }
  bool has_arguments() const { return has_arguments_; }
  bool arguments_over() const { return has_arguments_ && IsArguments() && !in_token_; }

 private:
  enum class Expect : uint8_t { kObject, kKey, kColon, kValue, kComma };

  bool IsArguments() const { return key_ == "arguments" || key_ == "parameters"; }
  State AddToToken(char byte, std::string& arguments);
  State BeginValue(char byte, std::string& arguments);
  State EndValue(std::string& arguments);
  void PassOn(std::string& arguments);

  Expect expect_ = Expect::kObject;
  bool after_comma_ = false;
  std::string key_, value_, name_;
  std::string buffered_;  // arguments before the name is known
  bool has_name_ = false, has_arguments_ = false;
  // Within a key or a value.
  bool in_token_ = false, in_string_ = false, escaped_ = false;
  std::string nesting_;  // the brackets that are open
};

// Owned by one thread.
class OutputParser {
 public:
  // `new_id` makes the id of each call.
  OutputParser(OutputFormat format, std::function<std::string()> new_id);

  // Appends to `out` what is known of the text now.
  void Add(absl::string_view piece, OutputDelta& out);
  // No more comes: appends what was held back.
  void Finish(OutputDelta& out);

  int32_t calls() const { return calls_; }
  // Within the reasoning.
  bool is_reasoning() const { return state_ == State::kReasoning; }

 private:
  enum class State : uint8_t {
    kBegin,  // nothing but white space yet
    kReasoning,
    kContent,
    kCall,  // within a call's JSON
    kAfterCall,
    kMistralBegin,  // behind [TOOL_CALLS]
    kMistralName,
  };

  // Handles the front of held_; false: more bytes must come first.
  bool Step(bool last, OutputDelta& out);
  bool StepBegin(bool last, OutputDelta& out);
  bool StepReasoning(bool last, OutputDelta& out);
  bool StepContent(bool last, OutputDelta& out);
  bool StepCall(bool last, OutputDelta& out);
  bool StepAfterCall(bool last, OutputDelta& out);
  bool StepMistral(bool last, OutputDelta& out);

  void BeginCall(absl::string_view prefix);
  void Announce(absl::string_view name, OutputDelta& out);
  void GiveUpCall(OutputDelta& out);
  absl::string_view Marker() const;
  bool IsTool(absl::string_view name) const;
  void Consume(size_t bytes) { held_.erase(0, bytes); }

  const OutputFormat format_;
  const std::function<std::string()> new_id_;
  State state_ = State::kBegin;
  std::string held_;
  std::string raw_;  // of a call that may be none after all
  CallReader reader_;
  bool bare_ = false;            // a call without a marker before it
  bool announced_ = false;       // the call's name was sent
  bool in_array_ = false;        // of Mistral's
  bool only_arguments_ = false;  // the name came before
  bool reasoning_sent_ = false;
  bool drop_space_ = false;
  int32_t calls_ = 0;
};

}  // namespace stampmill
