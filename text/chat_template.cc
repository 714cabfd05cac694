#include "text/chat_template.h"

#include <utility>

#include "base/status_macros.h"
#include "text/jinja_ast.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_parser.h"

namespace stampmill {

ChatTemplate::ChatTemplate(std::unique_ptr<const JinjaProgram> program)
    : program_(std::move(program)) {}

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(absl::string_view source) {
  ASSIGN_OR_RETURN(std::unique_ptr<const JinjaProgram> program, ParseJinja(source));
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(program)));
}

absl::StatusOr<std::string> ChatTemplate::Render(const boost::json::object& context,
                                                 const RenderOptions& options) const {
  return JinjaInterpreter(*program_, context, options).Run();
}

bool ChatTemplate::Mentions(absl::string_view variable) const {
  return program_->variable_ids.contains(variable);
}

}  // namespace stampmill
