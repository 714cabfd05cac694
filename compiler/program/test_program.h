// A small whole program for tests: two launches and a copy over symbolic sizes.
#pragma once

#include "compiler/program/program.h"

namespace stampmill {

inline Program MakeTestProgram() {
  Program program;
  program.model_name = "test";
  program.target = "cpu:x86-64-v3";
  program.symbols = {"N"};
  // N, 16, N * 16 (bytes of everything), 1
  program.dims = {{.kind = DimExpr::Kind::kSymbol, .value = 0},
                  {.kind = DimExpr::Kind::kConstant, .value = 16},
                  {.kind = DimExpr::Kind::kMul, .a = 0, .b = 1},
                  {.kind = DimExpr::Kind::kConstant, .value = 1}};
  program.checks = {{.place = 3, .message = "dims 'N' of inputs x, y: must be equal"}};
  program.inputs = {
      {.name = "x", .dtype = DType::kF32, .dims = {{.place = 0}, {.fixed = 4}}, .buffer = 0}};
  program.outputs = {
      {.name = "y", .dtype = DType::kF32, .dims = {{.place = 0}, {.fixed = 4}}, .buffer = 1},
      {.name = "z", .dtype = DType::kI64, .dims = {}, .buffer = 2}};
  using Kind = ProgramBuffer::Kind;
  program.buffers = {
      {.kind = Kind::kInput, .size_place = 2, .index = 0},
      {.kind = Kind::kOutput, .size_place = 2, .index = 0},
      {.kind = Kind::kOutput, .size_place = 1, .index = 1},
      {.kind = Kind::kWeight, .weight_offset = 64, .weight_size = 16},
      {.kind = Kind::kTemporary, .size_place = 2, .first_command = 0, .last_command = 1}};
  program.artifacts = {Sha256(std::as_bytes(std::span("artifact")))};
  program.weights = Sha256(std::as_bytes(std::span("weights")));
  program.weights_size = 80;
  program.segments = {{.device_kind = "cpu", .first_command = 0, .command_count = 3}};
  program.commands = {{.artifact = 0,
                       .entry = "k_a",
                       .buffers = {0, 3, 4},
                       .dims = {0},
                       .tasks_place = 3,
                       .flops_place = 2,
                       .bytes_place = 2,
                       .label = "Add a"},
                      {.artifact = 0,
                       .entry = "k_b",
                       .buffers = {4, 1},
                       .dims = {0},
                       .tasks_place = 3,
                       .scratch_place = 1,
                       .label = "Relu b"},
                      {.kind = ProgramCommand::Kind::kCopy, .buffers = {3, 2}}};
  program.batch_symbol = "N";
  return program;
}

// The same with its first two commands under a condition, within a repeat of them and of a read.
inline Program MakeRegionProgram() {
  Program program = MakeTestProgram();
  program.symbols = {"N", "SR[0]", "step", "trips", "element"};
  program.batch_symbol.clear();
  // The five symbols take the first places.
  std::vector<DimTable::Instruction> dims;
  for (int64_t i = 0; i < 5; ++i) dims.push_back({.kind = DimExpr::Kind::kSymbol, .value = i});
  for (size_t i = 1; i < program.dims.size(); ++i) {
    DimTable::Instruction dim = program.dims[i];
    if (dim.kind == DimExpr::Kind::kMul) dim = {.kind = dim.kind, .a = 0, .b = 5};
    dims.push_back(dim);
  }
  program.dims = dims;  // N, SR[0], step, trips, element, 16, N * 16, 1
  const auto moved = [](int32_t place) { return place > 0 ? place + 4 : place; };
  program.checks[0].place = moved(program.checks[0].place);
  for (ProgramBuffer& buffer : program.buffers) buffer.size_place = moved(buffer.size_place);
  program.buffers[3].size_place = -1;
  for (ProgramCommand& command : program.commands) {
    for (int32_t* place : {&command.tasks_place, &command.scratch_place, &command.flops_place,
                           &command.bytes_place}) {
      *place = moved(*place);
    }
  }
  program.inputs.push_back({.name = "SR", .dtype = DType::kI64, .dims = {}, .buffer = 5});
  program.buffers.push_back({.kind = ProgramBuffer::Kind::kInput, .size_place = 5, .index = 1});
  program.value_symbols = {{.symbol = 1, .input = 1, .element = 0}};
  program.commands[1].offsets = {-1, 2};
  program.commands.insert(program.commands.begin() + 2, {.kind = ProgramCommand::Kind::kRead,
                                                         .buffers = {4},
                                                         .symbol = 4,
                                                         .limit_place = 5,
                                                         .dtype = DType::kI32,
                                                         .label = "Read"});
  program.buffers[4].last_command = 2;
  program.segments[0].command_count = 4;
  program.regions = {{.kind = ProgramRegion::Kind::kRepeat,
                      .first_command = 0,
                      .command_count = 3,
                      .count_place = 1,
                      .iteration = 2,
                      .proceed_place = 4,
                      .trips = 3},
                     {.first_command = 0, .command_count = 2, .count_place = 0}};
  return program;
}

}  // namespace stampmill
