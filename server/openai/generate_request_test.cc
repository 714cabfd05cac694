#include "server/openai/generate_request.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

TEST(GenerateRequestTest, ParametersStandInsideOrBesideTheirObject) {
  for (const char* body :
       {R"({"text_input": "ab", "parameters": {"max_tokens": 5, "temperature": 0, "seed": 7}})",
        R"({"text_input": ["ab"], "max_tokens": 5, "temperature": 0, "seed": 7})",
        R"({"text_input": "ab", "sampling_parameters":
            "{\"max_tokens\": \"5\", \"temperature\": \"0\", \"seed\": 7}"})"}) {
    const auto request = ParseGenerateRequest(body, false);
    ASSERT_TRUE(request.ok()) << request.status() << body;
    ASSERT_EQ(request->completion.prompts.size(), 1U);
    EXPECT_EQ(request->completion.prompts[0].text, "ab");
    EXPECT_EQ(request->completion.options.stop.tokens_max, 5);
    EXPECT_EQ(request->completion.options.sampling.temperature, 0);
    EXPECT_EQ(request->completion.options.sampling.seed, 7U);
  }
}

TEST(GenerateRequestTest, TheInputIsToldUnlessStreamedOrExcluded) {
  const auto echoes = [](const char* body, bool events) {
    const auto request = ParseGenerateRequest(body, events);
    EXPECT_TRUE(request.ok()) << request.status();
    return request->completion.echo;
  };
  EXPECT_TRUE(echoes(R"({"text_input": "a"})", false));
  EXPECT_FALSE(echoes(R"({"text_input": "a", "exclude_input_in_output": true})", false));
  EXPECT_FALSE(echoes(R"({"text_input": "a"})", true));
  EXPECT_TRUE(echoes(R"({"text_input": "a", "stream": false})", true));
}

TEST(GenerateRequestTest, OnlyEventsAreStreamed) {
  EXPECT_TRUE(ParseGenerateRequest(R"({"text_input": "a"})", true)->completion.options.stream);
  EXPECT_FALSE(ParseGenerateRequest(R"({"text_input": "a"})", false)->completion.options.stream);
  EXPECT_FALSE(ParseGenerateRequest(R"({"text_input": "a", "stream": false})", true)
                   ->completion.options.stream);
}

TEST(GenerateRequestTest, WhatIsWrongIsNamed) {
  struct Case {
    const char* body;
    const char* part;
  };
  for (const Case& each : {
           Case{"{", "JSON"},
           Case{"{}", "text_input: missing"},
           Case{R"({"text_input": 5})", "text_input"},
           Case{R"({"text_input": ["a", "b"]})", "text_input"},
           Case{R"({"text_input": "a", "stream": true})", "stream"},
           Case{R"({"text_input": "a", "stream": 1})", "stream"},
           Case{R"({"text_input": "a", "parameters": []})", "parameters"},
           Case{R"({"text_input": "a", "parameters": {"n": 2}})", "parameters.n"},
           Case{R"({"text_input": "a", "beam_width": 4})", "beam_width"},
           Case{R"({"text_input": "a", "max_tokens": "many"})", "max_tokens"},
           Case{R"({"text_input": "a", "temperature": -1})", "temperature"},
           Case{R"({"text_input": "a", "sampling_parameters": "{"})", "JSON"},
           Case{R"({"text_input": "a", "id": 1})", "id"},
       }) {
    const auto request = ParseGenerateRequest(each.body, false);
    ASSERT_FALSE(request.ok()) << each.body;
    EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(request.status().message(), each.part)) << request.status();
  }
  EXPECT_FALSE(
      ParseGenerateRequest(R"({"text_input": "a", "exclude_input_in_output": false})", true).ok());
}

}  // namespace
}  // namespace stampmill
