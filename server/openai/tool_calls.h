// How a model calls tools and marks its reasoning, as its chat template tells, and grammars that
// leave it no other way.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/text_constraint.h"
#include "server/openai/requests.h"
#include "server/openai/tool_parser.h"
#include "text/grammar.h"

namespace stampmill {

struct TemplateFormat {
  ToolFormat tools = ToolFormat::kNone;
  bool name_before_arguments = false;  // Mistral's newer form: [TOOL_CALLS]name[ARGS]{..}
  std::string reasoning_begin, reasoning_end;
};

// By the markers in the source of a template.
TemplateFormat FormatOfTemplate(absl::string_view source);

// What an answer may be beside calls.
enum class BesideCalls : uint8_t {
  kNothing,
  kText,  // text that does not begin as a call does (Llama 3), or begins with no marker
  kJson,  // a document of ToolGrammar::answer
};

struct ToolGrammar {
  TemplateFormat format;
  std::span<const Tool> tools;  // those that may be called; at least one
  bool parallel = true;         // more than one call, where the format has it
  BesideCalls beside = BesideCalls::kNothing;
  Constraint answer;  // kJson: kJsonObject or kJsonSchema
  // The first call's marker was written already.
  bool behind_marker = false;
};

// Everything that the grammar depends on.
std::string KeyOf(const ToolGrammar& grammar);
// What a call begins with; empty: calls have no marker.
std::string MarkerOf(const TemplateFormat& format);
// INVALID_ARGUMENT with the field of the schema that cannot be kept.
absl::StatusOr<std::unique_ptr<const Grammar>> GrammarOf(const ToolGrammar& grammar,
                                                         const ConstraintVocabulary& vocabulary);

}  // namespace stampmill
