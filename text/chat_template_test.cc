#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace stampmill {
namespace {

// The text, or "error: ..." of parsing or rendering.
std::string Render(absl::string_view source, const std::string& context = "{}",
                   const RenderOptions& options = {}) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return absl::StrCat("error: ", parsed.status().message());
  const auto text = (*parsed)->Render(boost::json::parse(context).as_object(), options);
  return text.ok() ? *text : absl::StrCat("error: ", text.status().message());
}

std::string ErrorOf(absl::string_view source, const RenderLimits& limits) {
  return Render(source, "{}", {.limits = limits});
}

TEST(ChatTemplateTest, MakesAPromptOfMessages) {
  const absl::string_view source =
      "{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}<|end|>\n{% endfor %}\n"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}";
  EXPECT_EQ(Render(source, R"({"messages": [{"role": "user", "content": " Grüße 🎉 "}],
                               "add_generation_prompt": true})"),
            "<|user|>Grüße 🎉<|end|>\n<|assistant|>");
}

TEST(ChatTemplateTest, ShowsTheTimeItIsGiven) {
  EXPECT_EQ(Render("{{ strftime_now('%d %b %Y, %H:%M') }}", "{}", {.now_unix_seconds = 1720195629}),
            "05 Jul 2024, 16:07");
  EXPECT_EQ(Render("{{ strftime_now('%999999d') }}"),
            "error: line 1: strftime_now: more than 4096 bytes");
}

TEST(ChatTemplateTest, SaysWhatTheTemplateRaised) {
  EXPECT_EQ(Render("a\n{% if true %}\n{{ raise_exception('roles must alternate') }}{% endif %}"),
            "error: line 3: the template raised: roles must alternate");
}

TEST(ChatTemplateTest, NamesTheLineOfWhatDoesNotParse) {
  EXPECT_EQ(Render("a\n{% if %}"), "error: line 2: expected an expression, got the end of the tag");
  EXPECT_EQ(Render("\n\n{{ a b }}"), "error: line 3: expected '}}', got 'b'");
  EXPECT_EQ(Render("{% for x in y %}"),
            "error: line 1: unexpected end of template, expected 'endfor'");
  EXPECT_EQ(Render("\n{% wrong %}"), "error: line 2: unknown tag 'wrong'");
  EXPECT_EQ(Render("{{ x | wrong }}"), "error: line 1: no filter named 'wrong'");
  EXPECT_EQ(Render("{{ x is wrong }}"), "error: line 1: no test named 'wrong'");
  EXPECT_EQ(Render("{{ 'a\n"), "error: line 1: a string has no end");
  EXPECT_EQ(Render("ab\xFF"), "error: template: byte 2 is not UTF-8");
}

TEST(ChatTemplateTest, RefusesByNameWhatIsNotThere) {
  for (const absl::string_view tag : {"include 'a'", "import 'a' as b", "from 'a' import b",
                                      "extends 'a'", "block a", "autoescape true"}) {
    const std::string name(tag.substr(0, tag.find(' ')));
    const auto parsed = ChatTemplate::Parse(absl::StrCat("\n{% ", tag, " %}"));
    EXPECT_EQ(parsed.status(),
              absl::UnimplementedError(absl::StrCat("line 2: tag '", name, "' is not supported")));
  }
}

TEST(ChatTemplateTest, ChangesNothingItIsGiven) {
  for (const absl::string_view source :
       {"{{ x.append(1) }}", "{{ x.clear() }}", "{{ d.update({}) }}", "{{ d.pop('a') }}"}) {
    EXPECT_EQ(Render(source, R"({"x": [1], "d": {"a": 1}})"),
              "error: line 1: templates may not change lists and dicts");
  }
}

TEST(ChatTemplateTest, TellsWhichVariablesItMentions) {
  const auto parsed = ChatTemplate::Parse("{% if tools %}{{ messages }}{% endif %}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE((*parsed)->Mentions("tools"));
  EXPECT_TRUE((*parsed)->Mentions("messages"));
  EXPECT_FALSE((*parsed)->Mentions("documents"));
}

TEST(ChatTemplateTest, RefusesTextThatIsNotUtf8) {
  const auto parsed = ChatTemplate::Parse("{{ a }}{{ b }}");
  ASSERT_TRUE(parsed.ok());
  boost::json::object context;
  context["a"] = "\xC3(";
  EXPECT_EQ((*parsed)->Render(context).status(),
            absl::InvalidArgumentError("line 1: a text of the context is not UTF-8"));
  context["a"] = 1;
  context["b"] = boost::json::object({{"\xED\xA0\x80", 1}});
  EXPECT_EQ((*parsed)->Render(context).status(),
            absl::InvalidArgumentError("line 1: a key of the context is not UTF-8"));
}

TEST(ChatTemplateTest, PrintsUnsignedNumbersButDoesNotCompute) {
  const std::string context = R"({"x": 18446744073709551615})";
  EXPECT_EQ(Render("{{ x }} {{ x | tojson }} {{ x is integer }} {{ x == x }}", context),
            "18446744073709551615 18446744073709551615 True True");
  EXPECT_TRUE(absl::StartsWith(Render("{{ x + 1 }}", context), "error: line 1: cannot apply +"));
}

// -- bounds

TEST(ChatTemplateTest, EndsLoopsThatRunTooLong) {
  const absl::string_view nested =
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
  EXPECT_EQ(Render(nested), "error: line 1: takes more than 1048576 steps");
  EXPECT_EQ(ErrorOf("{% for a in range(100) %}\n{{ a }}{% endfor %}", {.steps_max = 50}),
            "error: line 2: takes more than 50 steps");
}

TEST(ChatTemplateTest, EndsTextsThatDouble) {
  const absl::string_view doubling =
      "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}";
  EXPECT_EQ(Render(doubling), "error: line 1: values take more than 67108864 bytes");
  const absl::string_view lists =
      "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
      "{% endfor %}";
  EXPECT_EQ(ErrorOf(lists, {.value_bytes_max = 1 << 20}),
            "error: line 1: values take more than 1048576 bytes");
  EXPECT_TRUE(absl::StartsWith(Render("{{ 'x' * 99999999999 }}"), "error: line 1: values take"));
  EXPECT_TRUE(absl::StartsWith(Render("{{ [0] * 4611686018427387904 }}"), "error: line 1: values"));
  EXPECT_TRUE(absl::StartsWith(Render("{{ 'x'.center(9999999999) }}"), "error: line 1: takes"));
  EXPECT_TRUE(absl::StartsWith(Render("{{ '%9999999d' % 1 }}"), "error: line 1: a field"));
  EXPECT_TRUE(absl::StartsWith(Render("{{ ('x' * 65536).replace('x', 'x' * 65536) }}"),
                               "error: line 1: takes more than"));
}

TEST(ChatTemplateTest, EndsOutputThatGrows) {
  EXPECT_EQ(ErrorOf("{% for a in range(100) %}0123456789{% endfor %}", {.output_bytes_max = 500}),
            "error: line 1: prints more than 500 bytes");
  EXPECT_EQ(ErrorOf("{% set x %}0123456789{% endset %}{{ x }}", {.output_bytes_max = 15}),
            "error: line 1: prints more than 15 bytes");
}

TEST(ChatTemplateTest, EndsRecursion) {
  EXPECT_EQ(Render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
            "error: line 1: nested more than 400 levels deep");
  // A list within itself again and again: printing, comparing, JSON and hashing go down.
  const absl::string_view deep =
      "{% set ns = namespace(x=[], y=[]) %}{% for i in range(2000) %}{% set ns.x = [ns.x] %}"
      "{% set ns.y = [ns.y] %}{% endfor %}";
  for (const absl::string_view use :
       {"{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x == ns.y }}", "{{ ns.x < ns.y }}"}) {
    EXPECT_EQ(Render(absl::StrCat(deep, use)), "error: line 1: nested more than 400 levels deep")
        << use;
  }
  EXPECT_EQ(Render("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"),
            "error: line 1: nested more than 400 levels deep");
}

TEST(ChatTemplateTest, RefusesTemplatesNestedTooDeep) {
  const auto repeated = [](absl::string_view text, int times) {
    std::string result;
    for (int i = 0; i < times; ++i) absl::StrAppend(&result, text);
    return result;
  };
  const std::string error = "error: line 1: nested more than 160 levels deep";
  EXPECT_EQ(Render(absl::StrCat("{{ ", repeated("(", 9999), "1", repeated(")", 9999), " }}")),
            error);
  EXPECT_EQ(Render(absl::StrCat("{{ ", repeated("[", 9999), "1", repeated("]", 9999), " }}")),
            error);
  EXPECT_EQ(Render(absl::StrCat("{{ ", repeated("-", 10000), "1 }}")), error);
  EXPECT_EQ(Render(absl::StrCat("{{ ", repeated("not ", 10000), "1 }}")), error);
  EXPECT_EQ(Render(absl::StrCat("{{ 1", repeated(" + 1", 10000), " }}")), error);
  EXPECT_EQ(Render(absl::StrCat("{{ a", repeated("[0]", 10000), " }}")), error);
  EXPECT_EQ(Render(absl::StrCat("{{ a", repeated("|e", 10000), " }}")), error);
  EXPECT_EQ(Render(absl::StrCat("{{ ", repeated("1 if 1 else ", 10000), "1 }}")), error);
  EXPECT_EQ(Render(repeated("{% if 1 %}", 10000)), error);
  EXPECT_EQ(Render(repeated("{% for x in y %}", 10000)), error);
  // As deep as it may be, it runs.
  EXPECT_EQ(Render(absl::StrCat("{{ 1", repeated(" + 1", 150), " }}")), "151");
  EXPECT_EQ(Render(absl::StrCat(repeated("{% if 1 %}", 60), "x", repeated("{% endif %}", 60))),
            "x");
}

TEST(ChatTemplateTest, GrowsTextsInPlace) {
  // Copied at each turn, the text would take 20,000 times its length.
  const absl::string_view source =
      "{% set ns = namespace(s='') %}{% for i in range(20000) %}"
      "{% set ns.s = ns.s + '0123456789' %}{% endfor %}{{ ns.s | length }}";
  EXPECT_EQ(Render(source), "200000");
  // What was there before stays what it was.
  EXPECT_EQ(Render("{% set a = 'x' * 200 %}{% set b = a ~ 'b' %}{% set c = b ~ 'c' %}"
                   "{% set d = b ~ 'd' %}{{ b[-2:] }}{{ c[-2:] }}{{ d[-2:] }}"),
            "xbbcbd");
}

TEST(ChatTemplateTest, RendersOnManyThreadsAtOnce) {
  const auto parsed = ChatTemplate::Parse(
      "{% macro m(x) %}<{{ x }}>{% endmacro %}{% for i in range(n) %}{{ m(i) }}{% endfor %}");
  ASSERT_TRUE(parsed.ok());
  std::vector<std::thread> threads;
  for (int n = 1; n <= 4; ++n) {
    threads.emplace_back([&, n] {
      boost::json::object context;
      context["n"] = n;
      std::string expected;
      for (int i = 0; i < n; ++i) absl::StrAppend(&expected, "<", i, ">");
      for (int turn = 0; turn < 100; ++turn) {
        const auto text = (*parsed)->Render(context);
        ASSERT_TRUE(text.ok());
        EXPECT_EQ(*text, expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace stampmill
