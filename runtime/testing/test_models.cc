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

namespace {

// The repeat's commands and regions; dims of the program come from `dims`.
class RepeatProgram {
 public:
  explicit RepeatProgram(const RepeatModelOptions& options) : options_(options), dims_(program_) {}

  Program Make() {
    MakeSymbols();
    const int32_t four = dims_.Constant(4);
    size_ = dims_.Binary(Kind::kMul, rows_, four);
    const int32_t bytes = dims_.Binary(Kind::kMul, size_, four);
    const int32_t two = dims_.Constant(2);
    const int32_t both = dims_.Binary(Kind::kMul, bytes, two);
    zero_ = dims_.Constant(0);
    one_ = dims_.Constant(1);
    block_ = dims_.Constant(8);
    tasks_ =
        dims_.Binary(Kind::kFloorDiv, dims_.Binary(Kind::kAdd, size_, dims_.Constant(7)), block_);
    limit_ = dims_.Constant(options_.count);
    const int32_t left = dims_.Binary(Kind::kAdd, dims_.Constant(3),
                                      dims_.Binary(Kind::kMul, rows_, dims_.Constant(-1)));
    guard_ = dims_.Binary(Kind::kMax, zero_, left);
    if (count_ >= 0) count_ = dims_.Binary(Kind::kMax, zero_, count_);
    const auto turn = [&](int32_t step) {
      return dims_.Binary(Kind::kMul, bytes, dims_.Binary(Kind::kMod, step, two));
    };
    const int32_t next = dims_.Binary(Kind::kAdd, step_, one_);
    AddTensors(bytes, both);
    Add(0, -1, 3, -1, zero_);
    if (options_.trips == Trips::kRead) Read(0, -1);
    const auto first = static_cast<int32_t>(program_.commands.size());
    Add(3, turn(step_), 3, turn(next), one_);
    if (options_.trips == Trips::kWhile) Read(3, turn(next));
    const auto last = static_cast<int32_t>(program_.commands.size());
    if (options_.guarded) {
      program_.regions.push_back(
          {.first_command = first, .command_count = last - first, .count_place = guard_});
    }
    ProgramRegion repeat{.kind = ProgramRegion::Kind::kRepeat,
                         .first_command = first,
                         .command_count = last - first,
                         .count_place = CountPlace(),
                         .iteration = step_};
    repeat.trips = trips_;
    if (options_.trips == Trips::kWhile) {
      // Elements below 0 read as 0.
      repeat.proceed_place = dims_.Binary(
          Kind::kAdd, one_,
          dims_.Binary(Kind::kMul, dims_.Constant(-1), dims_.Binary(Kind::kMin, one_, element_)));
    }
    program_.regions.push_back(repeat);
    const int32_t trips = options_.trips == Trips::kWhile ? trips_ : CountPlace();
    const int32_t taken =
        options_.guarded ? dims_.Binary(Kind::kMul, trips, dims_.Binary(Kind::kMin, one_, guard_))
                         : trips;
    Add(3, turn(taken), 2, -1, zero_);
    program_.buffers[3].last_command = static_cast<int32_t>(program_.commands.size()) - 1;
    program_.segments = {{.device_kind = "cpu",
                          .first_command = 0,
                          .command_count = static_cast<int32_t>(program_.commands.size())}};
    return std::move(program_);
  }

 private:
  using Kind = DimExpr::Kind;
  using Trips = RepeatModelOptions::Trips;

  void MakeSymbols() {
    program_.model_name = "repeat";
    program_.target = "cpu:x86-64";
    program_.batch_reason = "the test says so";
    rows_ = dims_.Symbol("N");
    if (options_.trips == Trips::kInput) {
      count_ = dims_.Symbol("COUNT[0]");
      program_.value_symbols = {{.symbol = count_, .input = 1, .element = 0}};
    }
    step_ = dims_.Symbol("step");
    if (options_.trips == Trips::kRead || options_.trips == Trips::kWhile) {
      element_ = dims_.Symbol("element");
    }
    if (options_.trips == Trips::kWhile) trips_ = dims_.Symbol("trips");
  }

  void AddTensors(int32_t bytes, int32_t both) {
    const std::vector<ProgramDim> shape = {{.place = rows_}, {.fixed = 4}};
    program_.inputs = {
        {.name = "IN", .dtype = DType::kI32, .dims = shape, .buffer = 0},
        {.name = "COUNT", .dtype = DType::kI64, .dims = {{.fixed = 1}}, .buffer = 1}};
    program_.outputs = {{.name = "OUT", .dtype = DType::kI32, .dims = shape, .buffer = 2}};
    program_.buffers = {{.kind = ProgramBuffer::Kind::kInput, .size_place = bytes, .index = 0},
                        {.kind = ProgramBuffer::Kind::kInput, .size_place = block_, .index = 1},
                        {.kind = ProgramBuffer::Kind::kOutput, .size_place = bytes, .index = 0},
                        {.kind = ProgramBuffer::Kind::kTemporary, .size_place = both}};
    program_.artifacts = {Sha256({})};
  }

  void Add(int32_t in, int32_t in_offset, int32_t out, int32_t out_offset, int32_t addend) {
    program_.commands.push_back({.artifact = 0,
                                 .entry = "add",
                                 .buffers = {in, out},
                                 .offsets = {in_offset, out_offset},
                                 .dims = {size_, addend, block_},
                                 .tasks_place = tasks_,
                                 .flops_place = one_,
                                 .label = "Add"});
  }
  void Read(int32_t from, int32_t offset) {
    program_.commands.push_back({.kind = ProgramCommand::Kind::kRead,
                                 .buffers = {from},
                                 .offsets = {offset},
                                 .symbol = element_,
                                 .limit_place = limit_,
                                 .dtype = DType::kI32,
                                 .label = "Read"});
  }
  int32_t CountPlace() const {
    if (options_.trips == Trips::kInput) return count_;
    return options_.trips == Trips::kRead ? element_ : limit_;
  }

  const RepeatModelOptions options_;
  Program program_;
  Dims dims_;
  int32_t rows_ = -1, count_ = -1, step_ = -1, element_ = -1, trips_ = -1;
  int32_t size_ = -1, zero_ = -1, one_ = -1, block_ = -1, tasks_ = -1, limit_ = -1, guard_ = -1;
};

}  // namespace

Program MakeRepeatProgram(const RepeatModelOptions& options) {
  return RepeatProgram(options).Make();
}

absl::StatusOr<ModelImage> MakeRepeatModel(const RepeatModelOptions& options) {
  ModelImage image;
  image.program = MakeRepeatProgram(options);
  ASSIGN_OR_RETURN(Artifact kernels, TestKernels());
  image.artifacts.push_back(std::move(kernels));
  return image;
}

absl::StatusOr<ModelImage> MakePrefixModel() {
  using Kind = DimExpr::Kind;
  ModelImage image;
  Program& program = image.program;
  program.model_name = "prefix";
  program.target = "cpu:x86-64";
  program.batch_reason = "the test says so";
  Dims dims(program);
  const int32_t rows = dims.Symbol("N");
  const int32_t found = dims.Symbol("found");
  const int32_t bytes = dims.Binary(Kind::kMul, rows, dims.Constant(16));
  program.inputs = {
      {.name = "IN", .dtype = DType::kI32, .dims = {{.place = rows}, {.fixed = 4}}, .buffer = 0}};
  program.outputs = {
      {.name = "OUT", .dtype = DType::kI32, .dims = {{.place = found}, {.fixed = 4}}, .buffer = 1}};
  program.buffers = {{.kind = ProgramBuffer::Kind::kInput, .size_place = bytes, .index = 0},
                     {.kind = ProgramBuffer::Kind::kOutput, .size_place = bytes, .index = 0}};
  program.commands.push_back({.kind = ProgramCommand::Kind::kRead,
                              .buffers = {0},
                              .symbol = found,
                              .limit_place = rows,
                              .dtype = DType::kI32,
                              .label = "Read"});
  program.commands.push_back(
      {.kind = ProgramCommand::Kind::kCopy, .buffers = {0, 1}, .label = "output"});
  program.segments = {{.device_kind = "cpu", .first_command = 0, .command_count = 2}};
  return image;
}

}  // namespace stampmill
