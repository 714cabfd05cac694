// What requests ask answers to conform to, as constraints that an engine can keep.
//
// Compiling is bounded and happens on the thread of the request. What has been compiled is kept,
// with what its matchers have learnt, since clients ask for the same again and again.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "runtime/text_constraint.h"
#include "server/openai/requests.h"
#include "text/grammar.h"

namespace stampmill {

// The grammar of a constraint that is not kNone. INVALID_ARGUMENT with the field:
// what is malformed, too large, or cannot be kept.
absl::StatusOr<std::unique_ptr<const Grammar>> GrammarOf(const Constraint& constraint);

// Stands for everything that a constraint says.
std::string KeyOf(const Constraint& constraint);

// Constraints that no text uses now. Thread-safe.
class ConstraintPool {
 public:
  static constexpr size_t kKeptMax = 16;

  // `count` constraints of what `key` stands for, at their beginning; `compile` makes the grammar
  // if none is kept. `vocabulary` is borrowed until they are destroyed, and the pool.
  template <typename Compile>
  absl::StatusOr<std::vector<std::unique_ptr<TextConstraint>>> Acquire(
      const ConstraintVocabulary& vocabulary, const std::string& key, size_t count,
      const Compile& compile) {
    std::vector<std::unique_ptr<TextConstraint>> constraints = Take(vocabulary, key, count);
    std::shared_ptr<const Grammar> grammar;
    if (!constraints.empty()) grammar = constraints.front()->grammar();
    if (grammar == nullptr) {
      absl::StatusOr<std::unique_ptr<const Grammar>> compiled = compile();
      if (!compiled.ok()) return compiled.status();
      grammar = *std::move(compiled);
    }
    while (constraints.size() < count) {
      constraints.push_back(std::make_unique<TextConstraint>(grammar, &vocabulary));
    }
    return constraints;
  }
  // Takes back what a text has used.
  void Return(const ConstraintVocabulary& vocabulary, const std::string& key,
              std::unique_ptr<TextConstraint> constraint);

 private:
  struct Kept {
    const ConstraintVocabulary* vocabulary;
    std::string key;
    std::unique_ptr<TextConstraint> constraint;
  };
  std::vector<std::unique_ptr<TextConstraint>> Take(const ConstraintVocabulary& vocabulary,
                                                    const std::string& key, size_t count);

  absl::Mutex mutex_;
  std::list<Kept> kept_ ABSL_GUARDED_BY(mutex_);  // the last returned first
};

}  // namespace stampmill
