// Any template with any context, separated by the first NUL byte: refused, or a rendering that ends
// within its bounds, in valid UTF-8, and comes out the same again.
#include <boost/json/parse.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "text/chat_template.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\0');
  const auto parsed = ChatTemplate::Parse(text.substr(0, end));
  if (!parsed.ok()) return 0;
  boost::json::object context;
  if (end != absl::string_view::npos) {
    boost::json::error_code error;
    const absl::string_view json = text.substr(end + 1);
    const boost::json::value value =
        boost::json::parse(boost::json::string_view(json.data(), json.size()), error);
    if (!error && value.is_object()) context = value.get_object();
  }
  const RenderOptions options = {
      .limits = {.steps_max = 100000, .output_bytes_max = 1 << 20, .value_bytes_max = 4 << 20}};
  const auto rendered = (*parsed)->Render(context, options);
  if (!rendered.ok()) return 0;
  CHECK_LE(rendered->size(), options.limits.output_bytes_max);
  CHECK_EQ(ReplaceInvalidUtf8(*rendered), *rendered);
  CHECK_EQ(*(*parsed)->Render(context, options), *rendered);
  return 0;
}
