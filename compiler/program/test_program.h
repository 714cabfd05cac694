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

}  // namespace stampmill
