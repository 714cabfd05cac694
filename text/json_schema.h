// JSON schemas as grammars: every text of the grammar is a JSON document that the schema accepts.
//
// Not the other way round: objects have the schema's properties in the schema's order, others only
// behind them, numbers have at most 17 digits, and between tokens stands little white space. Of
// draft 2020-12: type, enum, const, properties, required, additionalProperties, items, prefixItems,
// minItems, maxItems, minLength, maxLength, pattern, format, minimum, maximum and their exclusive
// forms (integers), anyOf, oneOf of schemas that cannot overlap, allOf of one schema, $ref within
// the document (recursive ones too), $defs, and boolean schemas. Annotations are passed over; every
// other keyword is refused by name, since a constraint that is not kept is worse than an error.
#pragma once

#include <boost/json/value.hpp>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/grammar.h"
#include "text/grammar_builder.h"

namespace stampmill {

// INVALID_ARGUMENT: not a schema, or one that nothing can satisfy. UNIMPLEMENTED: a keyword, or a
// combination, that cannot be kept. Both with the place in the schema, as a JSON pointer.
absl::StatusOr<std::unique_ptr<const Grammar>> GrammarOfJsonSchema(
    const boost::json::value& schema);

// The same as a rule of a grammar that has more than the document. `name` begins the names of its
// rules, and no others'.
absl::StatusOr<GrammarBuilder::Rule> AddJsonSchema(const boost::json::value& schema,
                                                   absl::string_view name, GrammarBuilder& builder);

}  // namespace stampmill
