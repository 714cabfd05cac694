// Regular expressions as grammars: the whole text must match, as if `^(?:` and `)$` stood around.
//
// The syntax is regex_syntax.h's, in which ECMAScript's, Python's and Rust's expressions agree.
// Anchors at the ends of the text are kept; what looks at a character elsewhere (`\b`, `(?=a)`) is
// refused by name, and so is what is no finite automaton. An expression is run as an automaton in
// all its places at once, so none makes matching take longer than its size times the text's.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/code_point_set.h"
#include "text/grammar.h"
#include "text/grammar_builder.h"

namespace stampmill {

// INVALID_ARGUMENT: not well formed, or larger than the bounds of a grammar, with repetitions
// written out. UNIMPLEMENTED: what cannot be kept, with its name.
absl::StatusOr<std::unique_ptr<const Grammar>> GrammarOfRegex(absl::string_view pattern);

// The same as a piece of a larger grammar, in which `character` writes one character of a set.
absl::StatusOr<GrammarBuilder::Piece> AddRegex(
    absl::string_view pattern,
    const std::function<GrammarBuilder::Piece(const CodePointSet&)>& character,
    GrammarBuilder& builder);

}  // namespace stampmill
