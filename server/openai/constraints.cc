#include "server/openai/constraints.h"

#include <boost/json/parse.hpp>

#include "absl/strings/str_cat.h"
#include "server/openai/errors.h"
#include "text/json_schema.h"
#include "text/regex_grammar.h"

namespace stampmill {

namespace json = boost::json;

absl::StatusOr<std::unique_ptr<const Grammar>> GrammarOf(const Constraint& constraint) {
  absl::StatusOr<std::unique_ptr<const Grammar>> grammar;
  switch (constraint.kind) {
    case Constraint::Kind::kJsonObject:
      grammar = GrammarOfJsonSchema({{"type", "object"}});
      break;
    case Constraint::Kind::kJsonSchema: {
      if (constraint.text.size() > Grammar::kSourceBytesMax) {
        return FieldError(constraint.param,
                          absl::StrCat("got a schema of ", constraint.text.size(), " bytes, limit ",
                                       Grammar::kSourceBytesMax));
      }
      boost::system::error_code error;
      const json::value schema = json::parse(constraint.text, error, {}, {.max_depth = 200});
      if (error) return FieldError(constraint.param, "no valid JSON");
      grammar = GrammarOfJsonSchema(schema);
      break;
    }
    case Constraint::Kind::kRegex:
      grammar = GrammarOfRegex(constraint.text);
      break;
    case Constraint::Kind::kChoice:
      grammar = Grammar::FromChoice(constraint.choices);
      break;
    case Constraint::Kind::kGrammar:
      grammar = Grammar::FromGbnf(constraint.text);
      break;
    case Constraint::Kind::kNone:
      return FieldError(constraint.param, "there is no constraint");
  }
  if (grammar.ok()) return grammar;
  if (absl::IsUnimplemented(grammar.status())) {
    return UnsupportedField(constraint.param, grammar.status().message());
  }
  return FieldError(constraint.param, grammar.status().message());
}

std::string KeyOf(const Constraint& constraint) {
  std::string key = absl::StrCat(static_cast<int>(constraint.kind), " ", constraint.text);
  for (const std::string& choice : constraint.choices) {
    absl::StrAppend(&key, " ", choice.size(), " ", choice);
  }
  return key;
}

std::vector<std::unique_ptr<TextConstraint>> ConstraintPool::Take(
    const ConstraintVocabulary& vocabulary, const std::string& key, size_t count) {
  std::vector<std::unique_ptr<TextConstraint>> taken;
  absl::MutexLock lock(&mutex_);
  for (auto at = kept_.begin(); at != kept_.end() && taken.size() < count;) {
    if (at->vocabulary == &vocabulary && at->key == key) {
      taken.push_back(std::move(at->constraint));
      at = kept_.erase(at);
    } else {
      ++at;
    }
  }
  return taken;
}

void ConstraintPool::Return(const ConstraintVocabulary& vocabulary, const std::string& key,
                            std::unique_ptr<TextConstraint> constraint) {
  constraint->Rest();
  std::list<Kept> dropped;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  kept_.push_front({&vocabulary, key, std::move(constraint)});
  if (kept_.size() > kKeptMax) dropped.splice(dropped.begin(), kept_, std::prev(kept_.end()));
}

}  // namespace stampmill
