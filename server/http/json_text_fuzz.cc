// Any bytes as text and as numbers: what is written is JSON, and reads back as what it was.
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "server/http/json_text.h"

namespace stampmill {
namespace {

void CheckText(absl::string_view bytes) {
  std::string text;
  AppendJsonString(bytes, text);
  const std::string read(boost::json::parse(text).as_string());
  // Bytes that are no UTF-8 were replaced; what was read has none of them any more.
  std::string again;
  AppendJsonString(read, again);
  CHECK(boost::json::parse(again).as_string() == read);
  const bool replaced = read.find("\xEF\xBF\xBD") != std::string::npos;
  if (!replaced) CHECK(bytes == read);
}

template <typename T>
void CheckNumber(const uint8_t* data, size_t size) {
  T value;
  if (size < sizeof(value)) return;
  std::memcpy(&value, data, sizeof(value));
  std::string text;
  AppendJsonNumber(value, text);
  double read = 0;
  CHECK(absl::SimpleAtod(text, &read)) << text;
  CHECK(std::isnan(value) ? std::isnan(read) : static_cast<T>(read) == value) << text;
}

}  // namespace
}  // namespace stampmill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;  // NOLINT
  CheckText(absl::string_view(reinterpret_cast<const char*>(data), size));
  CheckNumber<double>(data, size);
  CheckNumber<float>(data, size);
  return 0;
}
