#include "text/number_grammar.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace stampmill {
namespace {

using Piece = GrammarBuilder::Piece;

constexpr int64_t kDigitsMax = 16;

Piece Digit(char low, char high, GrammarBuilder& builder) {
  return builder.Characters({{low, high}}, /*negated=*/false);
}

Piece AnyDigits(size_t count, GrammarBuilder& builder) {
  const auto times = static_cast<int64_t>(count);
  return builder.Repeat(Digit('0', '9', builder), times, times);
}

// Texts from `low` to `high` of equally many digits.
Piece Between(absl::string_view low, absl::string_view high, GrammarBuilder& builder) {
  if (low.empty()) return builder.Empty();
  const absl::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  if (low[0] == high[0]) {
    return builder.Sequence(
        {Digit(low[0], low[0], builder), Between(low_rest, high_rest, builder)});
  }
  const std::string zeros(low_rest.size(), '0'), nines(low_rest.size(), '9');
  std::vector<Piece> choices;
  char first = low[0], last = high[0];
  if (low_rest != zeros) {
    choices.push_back(
        builder.Sequence({Digit(first, first, builder), Between(low_rest, nines, builder)}));
    ++first;
  }
  const bool cut = high_rest != nines;
  if (cut) --last;
  if (first <= last) {
    choices.push_back(
        builder.Sequence({Digit(first, last, builder), AnyDigits(low_rest.size(), builder)}));
  }
  if (cut) {
    choices.push_back(
        builder.Sequence({Digit(high[0], high[0], builder), Between(zeros, high_rest, builder)}));
  }
  return builder.Choice(std::move(choices));
}

// The digits of the numbers from `low` >= 0 on, to `high` if there is one. Nothing if there are
// none.
std::optional<Piece> Magnitudes(int64_t low, std::optional<int64_t> high, GrammarBuilder& builder) {
  if (high.has_value() && low > *high) return std::nullopt;
  std::vector<Piece> choices;
  const std::string begin = absl::StrCat(low);
  const std::string end = high.has_value() ? absl::StrCat(*high) : std::string(begin.size(), '9');
  for (size_t size = begin.size(); size <= end.size(); ++size) {
    const std::string from = size == begin.size() ? begin : "1" + std::string(size - 1, '0');
    const std::string to = size == end.size() ? end : std::string(size, '9');
    choices.push_back(Between(from, to, builder));
  }
  if (!high.has_value()) {
    const auto least = static_cast<int64_t>(begin.size());
    choices.push_back(builder.Sequence(
        {Digit('1', '9', builder),
         builder.Repeat(Digit('0', '9', builder), least, std::max(least, kDigitsMax - 1))}));
  }
  return builder.Choice(std::move(choices));
}

// The range of the magnitudes of one sign; an empty one has its bounds crossed.
struct Side {
  int64_t low = 0;
  std::optional<int64_t> high;
  bool above_low = false, below_high = false;
};

Side Positive(const NumberRange& range) {
  Side side = {.high = range.most, .below_high = range.below_most};
  if (range.least.has_value() && *range.least >= 0) {
    side.low = *range.least;
    side.above_low = range.above_least;
  }
  return side;
}

Side Negative(const NumberRange& range) {
  NumberRange mirrored;
  if (range.least.has_value()) mirrored.most = -*range.least;
  if (range.most.has_value()) mirrored.least = -*range.most;
  mirrored.below_most = range.above_least;
  mirrored.above_least = range.below_most;
  Side side = Positive(mirrored);
  // Zero is written without a sign.
  if (side.low == 0) side.above_low = true;
  return side;
}

std::optional<Piece> Integers(Side side, GrammarBuilder& builder) {
  if (side.above_low) ++side.low;
  if (side.high.has_value() && side.below_high) --*side.high;
  return Magnitudes(side.low, side.high, builder);
}

// Whole ones as integers; with a fraction from the lower bound on, where it must not be zero if
// the bound is excluded, to the upper one.
std::optional<Piece> Fractions(const Side& side, GrammarBuilder& builder) {
  std::vector<Piece> choices;
  const Piece digits = builder.Repeat(Digit('0', '9', builder), 0, kDigitsMax);
  const Piece any = builder.Sequence({builder.Literal("."), Digit('0', '9', builder), digits});
  const Piece positive =
      builder.Sequence({builder.Literal("."), builder.Repeat(builder.Literal("0"), 0, kDigitsMax),
                        Digit('1', '9', builder), digits});
  const auto with = [&](std::optional<Piece> whole, Piece fraction) {
    if (whole.has_value()) choices.push_back(builder.Sequence({*whole, fraction}));
  };
  if (const std::optional<Piece> whole = Integers(side, builder)) choices.push_back(*whole);
  std::optional<int64_t> last = side.high;
  if (last.has_value()) --*last;
  if (!last.has_value() || side.low <= *last) {
    with(Magnitudes(side.low, side.low, builder), side.above_low ? positive : any);
    with(Magnitudes(side.low + 1, last, builder), any);
  }
  if (choices.empty()) return std::nullopt;
  return builder.Choice(std::move(choices));
}

template <typename F>
std::optional<Piece> BothSigns(const NumberRange& range, const F& make, GrammarBuilder& builder) {
  std::vector<Piece> choices;
  const bool has_positive =
      !range.most.has_value() || *range.most > 0 || (*range.most == 0 && !range.below_most);
  const bool has_negative = !range.least.has_value() || *range.least < 0;
  if (has_positive) {
    if (const auto piece = make(Positive(range), builder)) choices.push_back(*piece);
  }
  if (has_negative) {
    if (const auto piece = make(Negative(range), builder)) {
      choices.push_back(builder.Sequence({builder.Literal("-"), *piece}));
    }
  }
  if (choices.empty()) return std::nullopt;
  return builder.Choice(std::move(choices));
}

}  // namespace

std::optional<Piece> AddIntegers(const NumberRange& range, GrammarBuilder& builder) {
  return BothSigns(range, Integers, builder);
}

std::optional<Piece> AddNumbers(const NumberRange& range, GrammarBuilder& builder) {
  return BothSigns(range, Fractions, builder);
}

}  // namespace stampmill
