// The kernels are devices/testing's `add` (in, out; size, addend, block) and `fail` (counters;
// task, code).
#include "runtime/testing/test_models.h"

#include <utility>

#include "base/status_macros.h"
#include "devices/testing/test_kernels.h"
#include "graph/dim.h"

namespace stampmill {
namespace {

// Adds instructions by name of what they compute.
class Dims {
 public:
  explicit Dims(Program& program) : program_(program) {}
  int32_t Symbol(const char* name) {
    program_.symbols.emplace_back(name);
    program_.dims.push_back({.kind = DimExpr::Kind::kSymbol,
                             .value = static_cast<int64_t>(program_.symbols.size()) - 1});
    return Last();
  }
  int32_t Constant(int64_t value) {
    program_.dims.push_back({.kind = DimExpr::Kind::kConstant, .value = value});
    return Last();
  }
  int32_t Binary(DimExpr::Kind kind, int32_t a, int32_t b) {
    program_.dims.push_back({.kind = kind, .a = a, .b = b});
    return Last();
  }
  // 1 while the dim is at most `limit`, else 0: min(1, max(0, limit + 1 - dim)).
  int32_t AtMost(int32_t dim, int64_t limit) {
    using Kind = DimExpr::Kind;
    const int32_t minus = Binary(Kind::kMul, dim, Constant(-1));
    const int32_t left = Binary(Kind::kAdd, Constant(limit + 1), minus);
    return Binary(Kind::kMin, Constant(1), Binary(Kind::kMax, Constant(0), left));
  }

 private:
  int32_t Last() const { return static_cast<int32_t>(program_.dims.size()) - 1; }
  Program& program_;
};

}  // namespace

Program MakeAddProgram(const AddModelOptions& options) {
  using Kind = DimExpr::Kind;
  Program program;
  program.model_name = "add";
  program.target = "cpu:x86-64";
  Dims dims(program);
  const int32_t rows = dims.Symbol("N");
  const bool open = options.columns < 0;
  const int32_t columns = open ? dims.Symbol("S") : dims.Constant(options.columns);
  const int32_t size = dims.Binary(Kind::kMul, rows, columns);
  const int32_t bytes = dims.Binary(Kind::kMul, size, dims.Constant(4));
  const int32_t addend = dims.Constant(options.addend);
  constexpr int64_t kBlock = 8;
  const int32_t block = dims.Constant(kBlock);
  const int32_t tasks =
      dims.Binary(Kind::kFloorDiv, dims.Binary(Kind::kAdd, size, dims.Constant(kBlock - 1)), block);
  const int32_t zero = dims.Constant(0);
  const int32_t one = dims.Constant(1);
  const int32_t flops = dims.Binary(Kind::kMul, rows, dims.Constant(options.nanos_per_row * 8));
  if (options.rows_max >= 0) {
    program.checks = {
        {.place = dims.AtMost(rows, options.rows_max), .message = "dim 'N': too many rows"}};
  }
  const std::vector<ProgramDim> shape = {
      {.place = rows}, open ? ProgramDim{.place = columns} : ProgramDim{.fixed = options.columns}};
  program.inputs = {{.name = "IN", .dtype = DType::kI32, .dims = shape, .buffer = 0}};
  program.outputs = {{.name = "OUT", .dtype = DType::kI32, .dims = shape, .buffer = 1}};
  program.buffers = {{.kind = ProgramBuffer::Kind::kInput, .size_place = bytes, .index = 0},
                     {.kind = ProgramBuffer::Kind::kOutput, .size_place = bytes, .index = 0},
                     {.kind = ProgramBuffer::Kind::kTemporary,
                      .size_place = bytes,
                      .first_command = 0,
                      .last_command = options.second_output ? 2 : 1}};
  program.artifacts = {Sha256({})};
  const auto add = [&](int32_t in, int32_t out) {
    return ProgramCommand{.artifact = 0,
                          .entry = "add",
                          .buffers = {in, out},
                          .dims = {size, addend, block},
                          .tasks_place = tasks,
                          .flops_place = flops,
                          .label = "Add"};
  };
  program.commands = {add(0, 2), add(2, 1)};
  if (options.fail) {
    program.commands[1] = {.artifact = 0,
                           .entry = "fail",
                           .buffers = {1},
                           .dims = {zero, one},
                           .tasks_place = one,
                           .label = "Fail"};
  }
  if (options.second_output) {
    program.outputs.push_back({.name = "COPY", .dtype = DType::kI32, .dims = shape, .buffer = 3});
    program.buffers.push_back(
        {.kind = ProgramBuffer::Kind::kOutput, .size_place = bytes, .index = 1});
    program.commands.push_back({.kind = ProgramCommand::Kind::kCopy, .buffers = {2, 3}});
  }
  program.segments = {{.device_kind = "cpu",
                       .first_command = 0,
                       .command_count = static_cast<int32_t>(program.commands.size())}};
  if (options.batchable) {
    program.batch_symbol = "N";
  } else {
    program.batch_reason = "the test says so";
  }
  return program;
}

absl::StatusOr<ModelImage> MakeAddModel(const AddModelOptions& options) {
  ModelImage image;
  image.program = MakeAddProgram(options);
  if (options.index_limit > 0) {
    image.program.index_bounds = {
        {.input = 0, .limit = options.index_limit, .reader = "node 'g' (Gather)"}};
  }
  ASSIGN_OR_RETURN(Artifact kernels, TestKernels());
  image.artifacts.push_back(std::move(kernels));
  return image;
}

}  // namespace stampmill
