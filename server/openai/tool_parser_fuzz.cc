// Texts of models: the first byte chooses the format, the second the size of the pieces. The same
// comes out as when the text comes whole.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "server/openai/tool_parser.h"

namespace stampmill {
namespace {

struct Output {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Output&) const = default;
};

Output ParseIn(const OutputFormat& format, absl::string_view text, size_t size) {
  OutputParser parser(format, [] { return std::string("id"); });
  OutputDelta delta;
  Output output;
  const auto take = [&] {
    for (const ToolCallDelta& call : delta.calls) {
      if (!call.name.empty()) output.calls.emplace_back(call.name, "");
      CHECK_EQ(call.index + 1, static_cast<int32_t>(output.calls.size()));
      output.calls.back().second += call.arguments;
    }
    output.content += delta.content;
    output.reasoning += delta.reasoning;
    delta.Clear();
  };
  for (size_t at = 0; at < text.size(); at += size) {
    parser.Add(text.substr(at, size), delta);
    take();
  }
  parser.Finish(delta);
  take();
  return output;
}

}  // namespace
}  // namespace stampmill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;  // NOLINT
  if (size < 2) return 0;
  OutputFormat format = {.tools = static_cast<ToolFormat>(data[0] % 4), .tool_names = {"f", "g"}};
  if ((data[0] & 4) != 0) {
    format.reasoning_begin = "<think>";
    format.reasoning_end = "</think>";
    format.reasoning_open = (data[0] & 8) != 0;
  }
  const absl::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Output whole = ParseIn(format, text, text.size() + 1);
  CHECK(ParseIn(format, text, 1 + data[1] % 16) == whole);
  CHECK(ParseIn(format, text, 1) == whole);
  if (format.tools == ToolFormat::kNone && format.reasoning_begin.empty()) {
    CHECK(whole.content == text);
  }
  return 0;
}
