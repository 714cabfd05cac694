// Grammar::FromGbnf: llama.cpp's notation for grammars.
#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "text/grammar.h"
#include "text/grammar_builder.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

using Piece = GrammarBuilder::Piece;

bool IsNamePart(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
}

// Errors stick: once there is one, everything returns at once.
class GbnfParser {
 public:
  explicit GbnfParser(absl::string_view source) : text_(source) {}

  absl::StatusOr<std::unique_ptr<const Grammar>> Run() {
    SkipSpace(/*newlines=*/true);
    while (status_.ok() && at_ < text_.size()) ParseRule();
    RETURN_IF_ERROR(status_);
    return builder_.Build(builder_.RuleNamed("root"));
  }

 private:
  void Fail(absl::string_view what) {
    const auto line = std::count(text_.begin(), text_.begin() + at_, '\n') + 1;
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat("grammar: line ", line, ": ", what));
    }
  }

  bool failed() const { return !status_.ok(); }
  absl::string_view rest() const { return text_.substr(at_); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Skip(absl::string_view what) {
    if (!absl::StartsWith(rest(), what)) return false;
    at_ += what.size();
    return true;
  }

  void SkipSpace(bool newlines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        break;
      }
    }
  }

  std::string Name() {
    const size_t begin = at_;
    while (IsNamePart(peek())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  void ParseRule() {
    const std::string name = Name();
    if (name.empty()) return Fail("expected the name of a rule");
    SkipSpace(/*newlines=*/false);
    if (!Skip("::=")) return Fail("expected '::='");
    SkipSpace(/*newlines=*/true);
    const Piece body = ParseChoice(/*nested=*/false, /*depth=*/0);
    if (failed()) return;
    if (at_ < text_.size() && peek() != '\n' && peek() != '\r') {
      return Fail(absl::StrCat("unexpected '", rest().substr(0, 1), "'"));
    }
    if (!builder_.Define(builder_.RuleNamed(name), body)) {
      return Fail(absl::StrCat("rule '", name, "' is defined twice"));
    }
    SkipSpace(/*newlines=*/true);
  }

  Piece ParseChoice(bool nested, int depth) {
    if (depth > Grammar::kDepthMax) {
      Fail(absl::StrCat("nested more than ", Grammar::kDepthMax, " levels deep"));
      return 0;
    }
    std::vector<Piece> choices = {ParseSequence(nested, depth)};
    while (!failed() && Skip("|")) {
      SkipSpace(/*newlines=*/true);
      choices.push_back(ParseSequence(nested, depth));
    }
    return failed() ? 0 : builder_.Choice(std::move(choices));
  }

  Piece ParseSequence(bool nested, int depth) {
    std::vector<Piece> pieces;
    while (!failed()) {
      std::optional<Piece> piece = ParsePiece(depth);
      if (!piece.has_value()) break;
      SkipSpace(nested);
      pieces.push_back(ParseRepeat(*piece));
      SkipSpace(nested);
    }
    return failed() ? 0 : builder_.Sequence(std::move(pieces));
  }

  // Nothing at the end of a sequence.
  std::optional<Piece> ParsePiece(int depth) {
    if (Skip("\"")) return ParseLiteral();
    if (Skip("[")) return ParseClass();
    if (Skip(".")) return builder_.Characters({}, /*negated=*/true);
    if (Skip("(")) {
      SkipSpace(/*newlines=*/true);
      const Piece piece = ParseChoice(/*nested=*/true, depth + 1);
      if (!failed() && !Skip(")")) Fail("expected ')'");
      return piece;
    }
    if (!IsNamePart(peek())) return std::nullopt;
    return builder_.Call(builder_.RuleNamed(Name()));
  }

  Piece ParseLiteral() {
    std::string bytes;
    while (!failed() && !Skip("\"")) {
      const std::optional<char32_t> character = Character();
      if (character.has_value()) AppendUtf8(*character, &bytes);
    }
    return builder_.Literal(bytes);
  }

  Piece ParseClass() {
    const bool negated = Skip("^");
    GrammarBuilder::CodePoints ranges;
    while (!failed() && !Skip("]")) {
      const std::optional<char32_t> low = Character();
      std::optional<char32_t> high = low;
      if (peek() == '-' && rest().size() > 1 && rest()[1] != ']') {
        ++at_;
        high = Character();
      }
      if (failed()) break;
      if (*high < *low) Fail("a range of characters ends before it begins");
      ranges.emplace_back(*low, *high);
    }
    if (!negated && ranges.empty()) Fail("a class has no characters");
    return failed() ? 0 : builder_.Characters(std::move(ranges), negated);
  }

  std::optional<char32_t> Character() {
    if (at_ == text_.size()) {
      Fail("a text or class has no end");
      return std::nullopt;
    }
    if (peek() == '\n') {
      Fail("a line ends within a text or class");
      return std::nullopt;
    }
    if (!Skip("\\")) {
      const Utf8Character next = DecodeUtf8(text_.data() + at_, text_.data() + text_.size());
      if (!next.valid) Fail("a byte is not UTF-8");
      at_ += next.size_bytes;
      return next.code_point;
    }
    const char c = peek();
    ++at_;
    static constexpr absl::string_view kLetters = "ntr\\\"[]-^";
    static constexpr absl::string_view kValues = "\n\t\r\\\"[]-^";
    const size_t letter = kLetters.find(c);
    if (letter != absl::string_view::npos) return kValues[letter];
    const size_t size = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const absl::string_view hex = at_ <= text_.size() ? text_.substr(at_, size) : "";
    uint32_t code = 0;
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    if (size == 0 || hex.size() < size || error != std::errc() || end != hex.data() + size ||
        code > kCodePointMax || (code >= 0xD800 && code <= 0xDFFF)) {
      at_ = std::min(at_, text_.size());
      Fail("an escape is not known or no character");
      return std::nullopt;
    }
    at_ += size;
    return code;
  }

  int64_t Number() {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(rest().data(), rest().data() + rest().size(), number);
    if (error != std::errc() || number < 0 || number > Grammar::kRepeatMax) {
      Fail(absl::StrCat("expected a number of times up to ", Grammar::kRepeatMax));
      return 0;
    }
    at_ += static_cast<size_t>(end - rest().data());
    return number;
  }

  Piece ParseRepeat(Piece piece) {
    for (int times = 0; !failed(); ++times) {
      if (times > Grammar::kDepthMax) {
        Fail("too many repetitions of one piece");
      } else if (Skip("*")) {
        piece = builder_.Repeat(piece, 0, GrammarBuilder::kUnbounded);
      } else if (Skip("+")) {
        piece = builder_.Repeat(piece, 1, GrammarBuilder::kUnbounded);
      } else if (Skip("?")) {
        piece = builder_.Repeat(piece, 0, 1);
      } else if (Skip("{")) {
        const int64_t least = Number();
        int64_t most = least;
        if (!failed() && Skip(",")) most = peek() == '}' ? GrammarBuilder::kUnbounded : Number();
        if (!failed() && !Skip("}")) Fail("expected '}'");
        if (most != GrammarBuilder::kUnbounded && most < least) Fail("a repetition is impossible");
        piece = builder_.Repeat(piece, least, most);
      } else {
        break;
      }
    }
    return piece;
  }

  const absl::string_view text_;
  size_t at_ = 0;
  absl::Status status_;
  GrammarBuilder builder_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Grammar>> Grammar::FromGbnf(absl::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("grammar: got ", source.size(), " bytes, limit ", kSourceBytesMax));
  }
  return GbnfParser(source).Run();
}

}  // namespace stampmill
