#include "compiler/program/program.h"

#include <functional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "compiler/program/test_program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

using ::testing::HasSubstr;

TEST(ProgramTest, IsTheSameAfterSerialisation) {
  Program program = MakeTestProgram();
  program.inputs[0].dtype = DType::kI32;
  program.index_bounds = {{.input = 0, .limit = 77, .reader = "node 'g' (Gather)"}};
  ASSERT_TRUE(program.Verify().ok()) << program.Verify();
  const std::string bytes = program.Serialize();
  const auto parsed = Program::Parse(AsBytes(bytes));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->Serialize(), bytes);
  EXPECT_EQ(parsed->commands[1].label, "Relu b");
  EXPECT_EQ(parsed->buffers[4].last_command, 1);
  EXPECT_EQ(parsed->inputs[0].dims[1].fixed, 4);
  EXPECT_EQ(parsed->weights, program.weights);
  EXPECT_EQ(parsed->index_bounds[0].limit, 77);
  EXPECT_EQ(parsed->index_bounds[0].reader, "node 'g' (Gather)");
}

TEST(ProgramTest, RefusesEveryTruncation) {
  const std::string bytes = MakeTestProgram().Serialize();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Program::Parse(AsBytes(bytes.substr(0, size))).status().code(),
              absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(Program::Parse(AsBytes(bytes + "x")).status().code(), absl::StatusCode::kDataLoss);
}

TEST(ProgramTest, AnAlteredByteIsRefusedOrGivesAProgramThatKeepsTheRules) {
  const std::string bytes = MakeTestProgram().Serialize();
  for (size_t place = 0; place < bytes.size(); ++place) {
    for (const int change : {0x01, 0x80, 0xff}) {
      std::string altered = bytes;
      altered[place] = static_cast<char>(altered[place] ^ change);
      const auto parsed = Program::Parse(AsBytes(altered));
      if (parsed.ok()) EXPECT_TRUE(parsed->Verify().ok());
    }
  }
}

struct BrokenRule {
  const char* message;
  std::function<void(Program&)> breaks;
};

TEST(ProgramTest, VerifyNamesTheBrokenRule) {
  const std::vector<BrokenRule> rules = {
      {"symbol", [](Program& p) { p.symbols[0] = ""; }},
      {"symbols come first", [](Program& p) { p.dims[1].kind = DimExpr::Kind::kSymbol; }},
      {"symbol out of order", [](Program& p) { p.dims[0].value = 3; }},
      {"operand b", [](Program& p) { p.dims[2].b = 2; }},
      {"operand a", [](Program& p) { p.dims[2].a = -1; }},
      {"unknown kind", [](Program& p) { p.dims[2].kind = static_cast<DimExpr::Kind>(99); }},
      {"check", [](Program& p) { p.checks[0].place = 4; }},
      {"index bound 0: input", [](Program& p) { p.index_bounds = {{1, 5, "g"}}; }},
      {"not of i32 or i64", [](Program& p) { p.index_bounds = {{0, 5, "g"}}; }},
      {"index bound 0: limit 0",
       [](Program& p) {
         p.inputs[0].dtype = DType::kI32;
         p.index_bounds = {{0, 0, "g"}};
       }},
      {"not ascending",
       [](Program& p) {
         p.inputs[0].dtype = DType::kI32;
         p.index_bounds = {{0, 5, "g"}, {0, 6, "g"}};
       }},
      {"batch symbol", [](Program& p) { p.batch_symbol = "M"; }},
      {"twice", [](Program& p) { p.outputs[1].name = "y"; }},
      {"unknown dtype", [](Program& p) { p.inputs[0].dtype = static_cast<DType>(77); }},
      {"dim place", [](Program& p) { p.inputs[0].dims[0].place = 1; }},
      {"negative dim", [](Program& p) { p.inputs[0].dims[1].fixed = -4; }},
      {"buffer: got", [](Program& p) { p.inputs[0].buffer = 9; }},
      {"another's", [](Program& p) { p.inputs[0].buffer = 1; }},
      {"weights 64", [](Program& p) { p.buffers[3].weight_size = 17; }},
      {"weights", [](Program& p) { p.buffers[3].weight_size = ~uint64_t{0}; }},
      {"lifetime", [](Program& p) { p.buffers[4].first_command = 2; }},
      {"last command", [](Program& p) { p.buffers[4].last_command = 3; }},
      {"size place", [](Program& p) { p.buffers[4].size_place = -1; }},
      {"buffers of inputs and outputs",
       [](Program& p) {
         p.buffers.push_back({.kind = ProgramBuffer::Kind::kInput, .size_place = 0, .index = 0});
       }},
      {"does not live", [](Program& p) { p.commands[2].buffers[0] = 4; }},
      {"command 0: buffer", [](Program& p) { p.commands[0].buffers[1] = 5; }},
      {"artifact", [](Program& p) { p.commands[0].artifact = 1; }},
      {"no entry", [](Program& p) { p.commands[0].entry = ""; }},
      {"tasks place", [](Program& p) { p.commands[0].tasks_place = -1; }},
      {"dim place", [](Program& p) { p.commands[0].scratch_place = -2; }},
      {"dim place", [](Program& p) { p.commands[0].dims[0] = 4; }},
      {"limit 2", [](Program& p) { p.commands[2].buffers.pop_back(); }},
      {"writes to an input", [](Program& p) { p.commands[2].buffers[1] = 0; }},
      {"unknown kind",
       [](Program& p) { p.commands[2].kind = static_cast<ProgramCommand::Kind>(9); }},
      {"do not follow", [](Program& p) { p.segments[0].first_command = 1; }},
      {"limit 3", [](Program& p) { p.segments[0].command_count = 2; }},
      {"device kind", [](Program& p) { p.segments[0].device_kind = ""; }},
      {"digest without size", [](Program& p) { p.weights = Digest{}; }},
  };
  for (const BrokenRule& rule : rules) {
    Program program = MakeTestProgram();
    rule.breaks(program);
    const absl::Status status = program.Verify();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << rule.message;
    EXPECT_THAT(status.message(), HasSubstr(rule.message));
    EXPECT_FALSE(Program::Parse(AsBytes(program.Serialize())).ok()) << rule.message;
  }
}

}  // namespace
}  // namespace stampmill
