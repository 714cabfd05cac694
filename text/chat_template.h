// ChatTemplate: a model's own template, which makes one prompt of a conversation.
//
// Templates are programs in Jinja2 that come with a model's file, so they are as untrusted as the
// file: this is an interpreter of the language as Hugging Face's renderer sets it up (trim_blocks,
// lstrip_blocks, the immutable sandbox, break and continue, `generation` blocks, raise_exception,
// strftime_now, tojson that keeps characters). It reaches nothing outside its variables, and every
// loop, byte and level of nesting is counted against a bound. Values are Python's: how they print,
// compare, index and slice, by characters and not by bytes.
//
// Not there, and refused by name when the template is parsed: include, import, extends, block,
// autoescape, recursive loops. Integers beyond 64 bits are an error instead of growing.
#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

// What one rendering may take; what exceeds it ends with an error that names the bound. The
// defaults are some hundred times what a long conversation needs and end within tens of
// milliseconds.
struct RenderLimits {
  // Expressions and statements evaluated, and bytes and elements looked at by the dozen.
  int64_t steps_max = int64_t{1} << 20;
  // Of what is printed, captured by set, call and filter blocks and macros included.
  size_t output_bytes_max = size_t{16} << 20;
  // Of all strings, lists and dicts made while rendering, the context's own included.
  size_t value_bytes_max = size_t{64} << 20;
  // Levels of expressions, blocks, macros and values within each other.
  int depth_max = 400;
};

struct RenderOptions {
  // The moment that strftime_now shows, in UTC. Given and not read from a clock, so that a
  // rendering is a function of its arguments.
  int64_t now_unix_seconds = 0;
  RenderLimits limits;
};

struct JinjaProgram;

// Immutable, thread-safe.
class ChatTemplate {
 public:
  // INVALID_ARGUMENT with the line of what is wrong; UNIMPLEMENTED with the name of what is not
  // supported.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Parse(absl::string_view source);

  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // The text for `context`: the template's variables, which are by custom messages, tools,
  // documents, add_generation_prompt, bos_token, eos_token, enable_thinking. INVALID_ARGUMENT with
  // the line and what the template raised, did wrong with the values it was given, or exceeded.
  absl::StatusOr<std::string> Render(const boost::json::object& context,
                                     const RenderOptions& options = {}) const;

  // Whether the template mentions a variable of this name: what it takes no notice of (tools, say)
  // can be refused instead of lost.
  bool Mentions(absl::string_view variable) const;

 private:
  explicit ChatTemplate(std::unique_ptr<const JinjaProgram> program);

  const std::unique_ptr<const JinjaProgram> program_;
};

}  // namespace stampmill
