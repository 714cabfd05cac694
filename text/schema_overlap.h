// Whether two JSON schemas can accept the same document, as far as their surface tells: what makes
// `oneOf` a plain choice.
#pragma once

#include <boost/json/value.hpp>

namespace stampmill {

// True only if no document can satisfy both: they have no type, or no constant, in common, or are
// of objects of which a property that both require is so apart. `root`: what `$ref` is within.
bool SchemasAreApart(const boost::json::value& root, const boost::json::value& a,
                     const boost::json::value& b);

}  // namespace stampmill
