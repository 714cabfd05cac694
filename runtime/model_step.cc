// A plan holds its launches' buffers and dims in two flat arrays that the commands' spans point
// into; both get their final size when the plan is made, so the spans stay good.
#include "runtime/model_step.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "graph/dim.h"
#include "runtime/limits.h"

namespace stampmill {
namespace {

// Values of Place::ref for what is no launch parameter.
constexpr int32_t kCopySource = -1;
constexpr int32_t kTarget = -2;  // of a copy or a fill

// Pieces of staging memory begin at multiples of this, as Device::Allocate's do.
constexpr uint64_t kStagingAlignment = 64;

// What one core does in a nanosecond, low on purpose: an estimate that is too long costs a thread
// change, one that is too short blocks the engine.
constexpr int64_t kFlopsPerNano = 8;
constexpr int64_t kBytesPerNano = 4;

uint64_t AlignStaging(uint64_t size) {
  return (size + kStagingAlignment - 1) & ~(kStagingAlignment - 1);
}

}  // namespace

struct ModelStep::Plan {
  bool ready = false;
  uint64_t last_use = 0;
  std::vector<int64_t> values;   // of all dim places; the first are the symbols, the signature
  std::vector<int64_t> sizes;    // of buffers
  std::vector<int64_t> offsets;  // of temporaries
  int64_t arena_bytes = 0;
  uint64_t arena_address = 0;  // that the temporaries' refs were made for
  std::vector<BufferRef> refs;
  std::vector<int64_t> dims;
  std::vector<Command> commands;  // of the program, then a place for the signal
};

ModelStep::ModelStep(const Model* model) : model_(*model) {}

ModelStep::~ModelStep() = default;

absl::StatusOr<std::unique_ptr<ModelStep>> ModelStep::Create(const Model* model, size_t copies_max,
                                                             ReserveFunction reserve) {
  auto step = std::unique_ptr<ModelStep>(new ModelStep(model));
  step->reserve_ = std::move(reserve);
  const Program& program = model->program();
  step->symbol_values_.resize(program.symbols.size());
  step->FindPlaces();
  step->copies_max_ = copies_max;
  step->copies_before_.reserve(copies_max);
  step->copies_after_.reserve(copies_max + 1);
  step->plan_scratch_.order.reserve(program.buffers.size());
  step->plan_scratch_.placed.reserve(program.buffers.size());

  const size_t plan_bytes =
      program.dims.size() * sizeof(int64_t) + program.buffers.size() * 2 * sizeof(int64_t) +
      step->ref_count_ * sizeof(BufferRef) + step->dim_count_ * sizeof(int64_t) +
      (program.commands.size() + 1) * sizeof(Command);
  // Without symbols there is one signature.
  const int64_t count =
      program.symbols.empty()
          ? 1
          : std::clamp<int64_t>(kStepPlanBytesMax / static_cast<int64_t>(plan_bytes), kStepPlansMin,
                                kStepPlansMax);
  step->plans_.resize(static_cast<size_t>(count));
  for (Plan& plan : step->plans_) {
    plan.values.resize(program.dims.size());
    plan.sizes.resize(program.buffers.size());
    plan.offsets.resize(program.buffers.size());
    plan.refs.resize(step->ref_count_);
    plan.dims.resize(step->dim_count_);
    plan.commands.resize(program.commands.size() + 1);
  }
  return step;
}

void ModelStep::FindPlaces() {
  const Program& program = model_.program();
  places_.resize(program.buffers.size());
  for (size_t c = 0; c < program.commands.size(); ++c) {
    const ProgramCommand& command = program.commands[c];
    for (size_t i = 0; i < command.buffers.size(); ++i) {
      const auto buffer = static_cast<size_t>(command.buffers[i]);
      int32_t ref = kTarget;
      if (command.kind == ProgramCommand::Kind::kLaunch) {
        ref = static_cast<int32_t>(ref_count_++);
      } else if (command.kind == ProgramCommand::Kind::kCopy && i == 0) {
        ref = kCopySource;
      }
      const Place place{static_cast<int32_t>(c), ref};
      switch (program.buffers[buffer].kind) {
        case ProgramBuffer::Kind::kInput:
        case ProgramBuffer::Kind::kOutput:
          places_[buffer].push_back(place);
          break;
        case ProgramBuffer::Kind::kTemporary:
          temporary_places_.emplace_back(command.buffers[i], place);
          break;
        case ProgramBuffer::Kind::kWeight:
          break;
      }
    }
    if (command.kind == ProgramCommand::Kind::kLaunch) dim_count_ += command.dims.size();
  }
}

absl::Status ModelStep::Begin(std::span<const TensorShape* const> shapes) {
  CHECK_EQ(shapes.size(), model_.program().inputs.size());
  current_ = nullptr;
  copies_before_.clear();
  copies_after_.clear();
  bytes_copied_ = 0;
  staging_used_ = 0;
  RETURN_IF_ERROR(model_.BindSymbols(shapes, symbol_values_));
  Plan* oldest = &plans_.front();
  for (Plan& plan : plans_) {
    if (plan.ready &&
        std::equal(symbol_values_.begin(), symbol_values_.end(), plan.values.begin())) {
      current_ = &plan;
      break;
    }
    if (plan.last_use < oldest->last_use) oldest = &plan;
  }
  if (current_ == nullptr) {
    RETURN_IF_ERROR(PreparePlan(*oldest));
    current_ = oldest;
  }
  // Only after an Allocate that failed is there less than when the plan was made.
  if (const auto arena_bytes = static_cast<uint64_t>(current_->arena_bytes);
      arena_bytes > arena_.size_bytes()) {
    RETURN_IF_ERROR(Grow(arena_, arena_bytes));
  }
  current_->last_use = ++uses_;
  if (current_->arena_address != arena_.address()) RebaseArena(*current_);
  return absl::OkStatus();
}

absl::Status ModelStep::PreparePlan(Plan& plan) {
  plan.ready = false;
  plan.last_use = 0;
  const Program& program = model_.program();
  std::copy(symbol_values_.begin(), symbol_values_.end(), plan.values.begin());
  RETURN_IF_ERROR(
      CheckValues(plan, EvaluateDims(program.dims, program.symbols.size(), plan.values)));
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const ProgramBuffer& buffer = program.buffers[i];
    plan.sizes[i] = buffer.kind == ProgramBuffer::Kind::kWeight
                        ? static_cast<int64_t>(buffer.weight_size)
                        : plan.values[static_cast<size_t>(buffer.size_place)];
    if (plan.sizes[i] < 0 || plan.sizes[i] > kTensorBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("shapes of the inputs: buffer ", i,
                                                     " of the program: got ", plan.sizes[i],
                                                     " bytes, limit ", kTensorBytesMax));
    }
  }
  plan.arena_bytes = PlanMemory(program, plan.sizes, plan.offsets, plan_scratch_);
  if (plan.arena_bytes < 0) {
    return absl::InvalidArgumentError(
        "shapes of the inputs: the temporaries of the program take more than 2^61 bytes");
  }
  RETURN_IF_ERROR(Grow(arena_, static_cast<uint64_t>(plan.arena_bytes)));
  RETURN_IF_ERROR(BuildCommands(plan));
  plan.arena_address = arena_.address();
  plan.ready = true;
  ++plans_prepared_;
  return absl::OkStatus();
}

absl::Status ModelStep::CheckValues(const Plan& plan, int32_t failed_place) const {
  const Program& program = model_.program();
  // A check that failed explains an overflow or a division by zero after it better than these do.
  for (const Program::Check& check : program.checks) {
    if (failed_place >= 0 && check.place >= failed_place) continue;
    if (plan.values[static_cast<size_t>(check.place)] == 0) {
      return absl::InvalidArgumentError(absl::StrCat("shapes of the inputs: ", check.message));
    }
  }
  if (failed_place < 0) return absl::OkStatus();
  std::string symbols;
  for (size_t i = 0; i < program.symbols.size(); ++i) {
    absl::StrAppend(&symbols, i == 0 ? "" : ", ", program.symbols[i], " = ", plan.values[i]);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("shapes of the inputs: a size overflows or a divisor is 0 (", symbols, ")"));
}

absl::Status ModelStep::BuildCommands(Plan& plan) {
  const Program& program = model_.program();
  const auto value = [&plan](int32_t place) { return plan.values[static_cast<size_t>(place)]; };
  size_t ref = 0, dim = 0;
  for (size_t c = 0; c < program.commands.size(); ++c) {
    const ProgramCommand& command = program.commands[c];
    if (command.kind == ProgramCommand::Kind::kCopy) {
      plan.commands[c] =
          CopyCommand{RefOf(plan, command.buffers[0]), RefOf(plan, command.buffers[1])};
      continue;
    }
    if (command.kind == ProgramCommand::Kind::kFill) {
      plan.commands[c] = FillCommand{RefOf(plan, command.buffers[0]), command.fill_value};
      continue;
    }
    LaunchCommand launch;
    launch.executable = model_.launches()[c].executable;
    launch.entry = model_.launches()[c].entry;
    launch.buffers = std::span(plan.refs).subspan(ref, command.buffers.size());
    launch.dims = std::span(plan.dims).subspan(dim, command.dims.size());
    for (const int32_t buffer : command.buffers) plan.refs[ref++] = RefOf(plan, buffer);
    for (const int32_t place : command.dims) plan.dims[dim++] = value(place);
    launch.tasks = value(command.tasks_place);
    launch.scratch_bytes = command.scratch_place < 0 ? 0 : value(command.scratch_place);
    if (launch.tasks < 0 || launch.scratch_bytes < 0 || launch.scratch_bytes > kTensorBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("shapes of the inputs: command ", c, " (", command.label, "): got ",
                       launch.tasks, " tasks, ", launch.scratch_bytes, " bytes of scratch"));
    }
    const int64_t flops = command.flops_place < 0 ? 0 : value(command.flops_place);
    const int64_t bytes = command.bytes_place < 0 ? 0 : value(command.bytes_place);
    if (command.flops_place >= 0 || command.bytes_place >= 0) {
      launch.nanos_estimate = std::max({flops / kFlopsPerNano, bytes / kBytesPerNano, int64_t{1}});
    }
    plan.commands[c] = launch;
  }
  return absl::OkStatus();
}

BufferRef ModelStep::RefOf(const Plan& plan, int32_t index) const {
  const ProgramBuffer& buffer = model_.program().buffers[static_cast<size_t>(index)];
  const auto size = static_cast<uint64_t>(plan.sizes[static_cast<size_t>(index)]);
  switch (buffer.kind) {
    case ProgramBuffer::Kind::kWeight:
      return {model_.weights().address + buffer.weight_offset, size};
    case ProgramBuffer::Kind::kTemporary:
      return {arena_.address() + static_cast<uint64_t>(plan.offsets[static_cast<size_t>(index)]),
              size};
    case ProgramBuffer::Kind::kInput:
    case ProgramBuffer::Kind::kOutput:
      return {0, size};  // until bound
  }
  return {};
}

namespace {

// Writes the address at one place of a command list.
void SetPlace(std::vector<Command>& commands, std::vector<BufferRef>& refs, int32_t command,
              int32_t ref, BufferRef value) {
  Command& c = commands[static_cast<size_t>(command)];
  if (ref >= 0) {
    refs[static_cast<size_t>(ref)] = value;
  } else if (ref == kCopySource) {
    std::get<CopyCommand>(c).source = value;
  } else if (CopyCommand* const copy = std::get_if<CopyCommand>(&c); copy != nullptr) {
    copy->target = value;
  } else {
    std::get<FillCommand>(c).target = value;
  }
}

}  // namespace

void ModelStep::RebaseArena(Plan& plan) {
  for (const auto& [buffer, place] : temporary_places_) {
    SetPlace(plan.commands, plan.refs, place.command, place.ref, RefOf(plan, buffer));
  }
  plan.arena_address = arena_.address();
}

void ModelStep::BindBuffer(int32_t buffer, BufferRef bytes) {
  CHECK_EQ(bytes.size_bytes, BytesOf(buffer));
  for (const Place& place : places_[static_cast<size_t>(buffer)]) {
    SetPlace(current_->commands, current_->refs, place.command, place.ref, bytes);
  }
}

void ModelStep::BindInput(int32_t input, BufferRef bytes) {
  BindBuffer(model_.program().inputs[static_cast<size_t>(input)].buffer, bytes);
}

void ModelStep::BindOutput(int32_t output, BufferRef bytes) {
  BindBuffer(model_.program().outputs[static_cast<size_t>(output)].buffer, bytes);
}

uint64_t ModelStep::BytesOf(int32_t buffer) const {
  return static_cast<uint64_t>(current_->sizes[static_cast<size_t>(buffer)]);
}

uint64_t ModelStep::input_bytes(int32_t input) const {
  return BytesOf(model_.program().inputs[static_cast<size_t>(input)].buffer);
}

uint64_t ModelStep::output_bytes(int32_t output) const {
  return BytesOf(model_.program().outputs[static_cast<size_t>(output)].buffer);
}

TensorShape ModelStep::output_shape(int32_t output) const {
  TensorShape shape;
  for (const ProgramDim& dim : model_.program().outputs[static_cast<size_t>(output)].dims) {
    shape.Append(dim.fixed >= 0 ? dim.fixed : current_->values[static_cast<size_t>(dim.place)]);
  }
  return shape;
}

std::span<const int64_t> ModelStep::dim_values() const { return current_->values; }

absl::Status ModelStep::Grow(Buffer& buffer, uint64_t size_bytes) {
  if (size_bytes <= buffer.size_bytes()) return absl::OkStatus();
  const uint64_t others = memory_bytes() - buffer.size_bytes();
  if (reserve_) RETURN_IF_ERROR(reserve_(others + size_bytes));
  buffer = Buffer();  // returned first, so that both are never held at once
  absl::StatusOr<Buffer> grown = model_.device()->Allocate(size_bytes);
  if (!grown.ok()) {
    if (reserve_) reserve_(others).IgnoreError();
    return grown.status();
  }
  buffer = *std::move(grown);
  return absl::OkStatus();
}

absl::Status ModelStep::ReserveStaging(uint64_t size_bytes) { return Grow(staging_, size_bytes); }

uint64_t ModelStep::StagingBytes(uint64_t size_bytes) { return AlignStaging(size_bytes); }

BufferRef ModelStep::TakeStaging(uint64_t size_bytes) {
  const BufferRef taken{staging_.address() + staging_used_, size_bytes};
  staging_used_ += AlignStaging(size_bytes);
  CHECK_LE(staging_used_, staging_.size_bytes());
  return taken;
}

void ModelStep::ReleaseStaging() {
  staging_ = Buffer();
  staging_used_ = 0;
  // Less than before is always granted.
  if (reserve_) reserve_(memory_bytes()).IgnoreError();
}

void ModelStep::CopyBefore(BufferRef source, BufferRef target) {
  CHECK_LT(copies_before_.size(), copies_max_);
  copies_before_.push_back(CopyCommand{source, target});
  bytes_copied_ += static_cast<int64_t>(source.size_bytes);
}

void ModelStep::CopyAfter(BufferRef source, BufferRef target) {
  CHECK_LT(copies_after_.size(), copies_max_);
  copies_after_.push_back(CopyCommand{source, target});
  bytes_copied_ += static_cast<int64_t>(source.size_bytes);
}

absl::Status ModelStep::Submit(Queue& queue, uint64_t signal_value) {
  const SignalCommand signal{signal_value};
  if (!copies_before_.empty()) RETURN_IF_ERROR(queue.Submit(copies_before_));
  std::span<Command> program(current_->commands);
  if (copies_after_.empty()) {
    program.back() = signal;
    return queue.Submit(program);
  }
  RETURN_IF_ERROR(queue.Submit(program.first(program.size() - 1)));
  copies_after_.push_back(signal);
  return queue.Submit(copies_after_);
}

absl::Status ModelStep::SubmitEach(Queue& queue, uint64_t& signal_value,
                                   const std::function<void(size_t command)>& before,
                                   const std::function<void(size_t command)>& after) {
  const std::span<Command> program(current_->commands);
  for (size_t c = 0; c + 1 < program.size(); ++c) {
    Command pair[2] = {program[c], SignalCommand{++signal_value}};
    before(c);
    RETURN_IF_ERROR(queue.Submit(pair));
    RETURN_IF_ERROR(queue.Synchronize(signal_value));
    after(c);
  }
  return absl::OkStatus();
}

}  // namespace stampmill
