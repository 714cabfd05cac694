// CHECK: assertions that stay in release builds.
//
// A failed check is a mistake of ours, never of a client, a file or a device: those get an
// absl::Status. The macros print `file:line: CHECK failed: expression (values) message` to standard
// error and abort. Further words are streamed in: CHECK_LT(index, size()) << "block " << id.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define CHECK(condition)                \
  ABSL_PREDICT_TRUE(condition)          \
  ? static_cast<void>(0)                \
  : ::stampmill::CheckStreamToVoid() && \
          ::stampmill::CheckFailure(__FILE__, __LINE__, #condition).stream()

// Comparisons print both values. Integers of different signedness compare by value.
#define CHECK_EQ(a, b) STAMPMILL_CHECK_COMPARE(CheckEqual, ==, a, b)
#define CHECK_NE(a, b) STAMPMILL_CHECK_COMPARE(CheckNotEqual, !=, a, b)
#define CHECK_LT(a, b) STAMPMILL_CHECK_COMPARE(CheckLess, <, a, b)
#define CHECK_LE(a, b) STAMPMILL_CHECK_COMPARE(CheckLessEqual, <=, a, b)
#define CHECK_GT(a, b) STAMPMILL_CHECK_COMPARE(CheckGreater, >, a, b)
#define CHECK_GE(a, b) STAMPMILL_CHECK_COMPARE(CheckGreaterEqual, >=, a, b)

// CHECK_OK takes an absl::Status or an absl::StatusOr<T>.
#define CHECK_OK(expression)                                    \
  while (std::optional<std::string> stampmill_check_failure =   \
             ::stampmill::CheckIsOk((expression), #expression)) \
  ::stampmill::CheckFailure(__FILE__, __LINE__, *stampmill_check_failure).stream()

#define STAMPMILL_CHECK_COMPARE(comparison, symbol, a, b)                                \
  while (std::optional<std::string> stampmill_check_failure = ::stampmill::CheckCompare( \
             (a), (b), ::stampmill::comparison(), #a " " #symbol " " #b))                \
  ::stampmill::CheckFailure(__FILE__, __LINE__, *stampmill_check_failure).stream()

namespace stampmill {

// Collects the message of a failed check; the destructor prints it and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const std::string& what);
  [[noreturn]] ~CheckFailure();
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;

  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Gives `condition ? void : stream` its common type; && binds weaker than <<.
struct CheckStreamToVoid {
  void operator&&(std::ostream&) const {}
};

template <typename T>
concept CheckInteger = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> &&
                       !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                       !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

#define STAMPMILL_DEFINE_COMPARISON(name, symbol, by_value) \
  struct name {                                             \
    template <typename A, typename B>                       \
    bool operator()(const A& a, const B& b) const {         \
      if constexpr (CheckInteger<A> && CheckInteger<B>) {   \
        return std::by_value(a, b);                         \
      } else {                                              \
        return a symbol b;                                  \
      }                                                     \
    }                                                       \
  };
STAMPMILL_DEFINE_COMPARISON(CheckEqual, ==, cmp_equal)
STAMPMILL_DEFINE_COMPARISON(CheckNotEqual, !=, cmp_not_equal)
STAMPMILL_DEFINE_COMPARISON(CheckLess, <, cmp_less)
STAMPMILL_DEFINE_COMPARISON(CheckLessEqual, <=, cmp_less_equal)
STAMPMILL_DEFINE_COMPARISON(CheckGreater, >, cmp_greater)
STAMPMILL_DEFINE_COMPARISON(CheckGreaterEqual, >=, cmp_greater_equal)
#undef STAMPMILL_DEFINE_COMPARISON

template <typename T>
void CheckPrintValue(std::ostream& out, const T& value) {
  if constexpr (std::same_as<T, bool>) {
    out << (value ? "true" : "false");
  } else if constexpr (std::is_enum_v<T>) {
    out << +static_cast<std::underlying_type_t<T>>(value);
  } else if constexpr (std::same_as<T, signed char> || std::same_as<T, unsigned char>) {
    out << +value;
  } else if constexpr (requires { out << value; }) {
    out << value;
  } else {
    out << "(no text form)";
  }
}

template <typename A, typename B, typename Comparison>
std::optional<std::string> CheckCompare(const A& a, const B& b, Comparison comparison,
                                        const char* expression) {
  if (ABSL_PREDICT_TRUE(comparison(a, b))) return std::nullopt;
  std::ostringstream text;
  text << expression << " (";
  CheckPrintValue(text, a);
  text << " vs. ";
  CheckPrintValue(text, b);
  text << ")";
  return text.str();
}

std::optional<std::string> CheckIsOk(const absl::Status& status, const char* expression);

template <typename T>
std::optional<std::string> CheckIsOk(const absl::StatusOr<T>& value, const char* expression) {
  return CheckIsOk(value.status(), expression);
}

}  // namespace stampmill
