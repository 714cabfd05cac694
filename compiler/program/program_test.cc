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

TEST(ProgramTest, RegionsReadsAndValueSymbolsAreTheSameAfterSerialisation) {
  const Program program = MakeRegionProgram();
  ASSERT_TRUE(program.Verify().ok()) << program.Verify();
  const std::string bytes = program.Serialize();
  const auto parsed = Program::Parse(AsBytes(bytes));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->Serialize(), bytes);
  EXPECT_EQ(parsed->RequestSymbols(), 2u);
  EXPECT_EQ(parsed->regions[0].trips, 3);
  EXPECT_EQ(parsed->commands[1].offsets, (std::vector<int32_t>{-1, 2}));
  EXPECT_EQ(parsed->commands[2].dtype, DType::kI32);
  EXPECT_EQ(parsed->value_symbols[0].input, 1);
}

TEST(ProgramTest, RefusesEveryTruncation) {
  const std::string bytes = MakeRegionProgram().Serialize();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Program::Parse(AsBytes(bytes.substr(0, size))).status().code(),
              absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(Program::Parse(AsBytes(bytes + "x")).status().code(), absl::StatusCode::kDataLoss);
}

TEST(ProgramTest, AnAlteredByteIsRefusedOrGivesAProgramThatKeepsTheRules) {
  const std::string bytes = MakeRegionProgram().Serialize();
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

void ExpectBroken(const std::vector<BrokenRule>& rules, Program (*make)()) {
  for (const BrokenRule& rule : rules) {
    Program program = make();
    rule.breaks(program);
    const absl::Status status = program.Verify();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << rule.message;
    EXPECT_THAT(status.message(), HasSubstr(rule.message));
    EXPECT_FALSE(Program::Parse(AsBytes(program.Serialize())).ok()) << rule.message;
  }
}

TEST(ProgramTest, VerifyNamesTheBrokenRuleOfRegions) {
  using Kind = ProgramRegion::Kind;
  ExpectBroken(
      {
          {"region 0: empty", [](Program& p) { p.regions[0].command_count = 0; }},
          {"region 0: empty or out of order", [](Program& p) { p.regions[0].first_command = -1; }},
          {"region 1: empty or out of order",
           [](Program& p) {
             p.regions[0].first_command = 1;
             p.regions[0].command_count = 1;
           }},
          {"region 0: ends behind", [](Program& p) { p.regions[0].command_count = 5; }},
          {"region 1: ends behind", [](Program& p) { p.regions[1].command_count = 4; }},
          {"region 0: count place", [](Program& p) { p.regions[0].count_place = 8; }},
          {"region 0: proceed place", [](Program& p) { p.regions[0].proceed_place = 8; }},
          {"region 0: unknown kind", [](Program& p) { p.regions[0].kind = static_cast<Kind>(2); }},
          {"region 1: iteration of a branch",
           [](Program& p) {
             p.regions[1].iteration = 2;
             p.value_symbols.clear();
           }},
          {"a branch with trips", [](Program& p) { p.regions[1].proceed_place = 2; }},
          {"region 0: trips: set twice", [](Program& p) { p.regions[0].trips = 2; }},
          {"region 0: trips", [](Program& p) { p.regions[0].trips = 9; }},
          {"behind a late one",
           [](Program& p) {
             p.regions[0].trips = 0;
             p.inputs[0].dims[0] = {.fixed = 4};
           }},
          {"depth 65",
           [](Program& p) {
             p.regions.resize(66, {.first_command = 0, .command_count = 1, .count_place = 0});
           }},
          {"command 2: symbol", [](Program& p) { p.commands[2].symbol = -1; }},
          {"command 2: limit place", [](Program& p) { p.commands[2].limit_place = -1; }},
          {"command 2: reads no integer", [](Program& p) { p.commands[2].dtype = DType::kF32; }},
          {"command 2: got 0 buffers", [](Program& p) { p.commands[2].buffers.clear(); }},
          {"command 1: got 1 offsets", [](Program& p) { p.commands[1].offsets.pop_back(); }},
          {"command 1: offset place", [](Program& p) { p.commands[1].offsets[1] = 8; }},
          {"value symbol 0", [](Program& p) { p.value_symbols[0].symbol = 2; }},
          {"value symbol 0: input", [](Program& p) { p.value_symbols[0].input = 2; }},
          {"value symbol 0: element", [](Program& p) { p.value_symbols[0].element = -1; }},
          {"value symbol 0: of no integer", [](Program& p) { p.value_symbols[0].input = 0; }},
          {"value symbol 1: not behind",
           [](Program& p) { p.value_symbols.push_back(p.value_symbols[0]); }},
          {"beside inputs whose contents", [](Program& p) { p.batch_symbol = "N"; }},
      },
      MakeRegionProgram);
}

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
      {"states: got 9", [](Program& p) { p.states = 9; }},
      {"beside state", [](Program& p) { p.states = 1; }},
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
  ExpectBroken(rules, MakeTestProgram);
}

}  // namespace
}  // namespace stampmill
