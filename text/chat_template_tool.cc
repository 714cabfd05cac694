// Renders templates for tests that are not in C++: for each line of standard input, a JSON object
// {"template", "context", "now"}, one line of output, {"text"} or {"error"}.
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "text/chat_template.h"

namespace stampmill {
namespace {

absl::StatusOr<std::string> Rendered(const boost::json::object& request) {
  const boost::json::string& source = request.at("template").as_string();
  const absl::StatusOr<std::unique_ptr<ChatTemplate>> parsed =
      ChatTemplate::Parse(absl::string_view(source.data(), source.size()));
  if (!parsed.ok()) return parsed.status();
  RenderOptions options;
  const boost::json::value* const now = request.if_contains("now");
  if (now != nullptr) options.now_unix_seconds = now->as_int64();
  return (*parsed)->Render(request.at("context").as_object(), options);
}

}  // namespace
}  // namespace stampmill

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const boost::json::value request = boost::json::parse(line);
    const absl::StatusOr<std::string> text = stampmill::Rendered(request.as_object());
    boost::json::object answer;
    if (text.ok()) {
      answer["text"] = *text;
    } else {
      answer["error"] = std::string(text.status().message());
    }
    std::cout << boost::json::serialize(answer) << std::endl;
  }
  return 0;
}
