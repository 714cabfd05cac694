// What a request pays for its chat template: rendering a conversation of 100 messages, and what a
// model pays once, parsing. The template is one of a thinking model with tools.
#include <benchmark/benchmark.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "base/check.h"
#include "text/chat_template.h"

namespace stampmill {
namespace {

std::string Source() {
  std::ifstream file("tests/templates/families/qwen.jinja");
  CHECK(file.good()) << "run in the root of the repository";
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

boost::json::object Conversation(int64_t messages) {
  boost::json::array list;
  for (int64_t i = 0; i < messages; ++i) {
    const bool is_user = i % 2 == 0;
    list.push_back(boost::json::object{
        {"role", is_user ? "user" : "assistant"},
        {"content", is_user ? "What is the weather in Zürich today, and will it rain tomorrow?"
                            : "<think>\nLet me see.\n</think>\n\nIt is sunny today; tomorrow there "
                              "will be some rain in the afternoon, so take an umbrella."}});
  }
  return {{"messages", list}, {"add_generation_prompt", true}};
}

void BM_Parse(benchmark::State& state) {
  const std::string source = Source();
  for (auto _ : state) CHECK_OK(ChatTemplate::Parse(source));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(source.size()));
}
BENCHMARK(BM_Parse);

void BM_Render(benchmark::State& state) {
  const auto parsed = ChatTemplate::Parse(Source());
  CHECK_OK(parsed);
  const boost::json::object context = Conversation(state.range(0));
  for (auto _ : state) CHECK_OK((*parsed)->Render(context));
}
BENCHMARK(BM_Render)->Arg(1)->Arg(10)->Arg(100)->Arg(1000);

}  // namespace
}  // namespace stampmill
