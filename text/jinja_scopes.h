// Which variables a block hides from the start.
//
// Jinja2 compiles a template to functions and decides by name, before anything runs, where each
// variable of a block comes from. A block that assigns a name without having read it before takes
// the name for its own throughout: blocks within it, and macros, see it as undefined until the
// assignment, even where the context has a variable of the name. Templates are written against
// that, so it is worked out here, once a template is parsed.
#pragma once

#include "text/jinja_ast.h"

namespace stampmill {

// Fills in `hidden` of the program and of all its statements.
void FindHiddenVariables(JinjaProgram* program);

}  // namespace stampmill
