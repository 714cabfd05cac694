// Commands come from the program through a ProgramCursor, in two forms: all of them kept with the
// plan, addresses written in their places when a step is bound; or piece after piece, made for one
// step with its addresses.
#include "runtime/model_step.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "graph/dim.h"
#include "graph/tensor.h"
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

// Room of a piece for buffers and dims of each of its commands; fewer, larger ones fit too.
constexpr size_t kPieceRefs = 8;
constexpr size_t kPieceDims = 8;

uint64_t AlignStaging(uint64_t size) {
  return (size + kStagingAlignment - 1) & ~(kStagingAlignment - 1);
}

// Whether `word` stands in the text and is not a part of a longer name.
bool HasWord(absl::string_view text, absl::string_view word) {
  const auto ends_name = [&](size_t at) {
    return at >= text.size() || !(absl::ascii_isalnum(static_cast<unsigned char>(text[at])) ||
                                  absl::StrContains("_.", text.substr(at, 1)));
  };
  for (size_t at = text.find(word); at != absl::string_view::npos; at = text.find(word, at + 1)) {
    if ((at == 0 || ends_name(at - 1)) && ends_name(at + word.size())) return true;
  }
  return false;
}

}  // namespace

// Commands with the buffers and dims that their spans point into: room is made before the first is
// appended, so that the spans stay good.
struct ModelStep::Commands {
  std::vector<Command> commands;
  std::vector<BufferRef> refs;
  std::vector<int64_t> dims;
  size_t command_count = 0, ref_count = 0, dim_count = 0;

  void Clear() { command_count = ref_count = dim_count = 0; }
  // Room for so many, and a signal behind them.
  void Reserve(size_t command_room, size_t ref_room, size_t dim_room) {
    if (commands.size() < command_room + 1) commands.resize(command_room + 1);
    if (refs.size() < ref_room) refs.resize(ref_room);
    if (dims.size() < dim_room) dims.resize(dim_room);
  }
  bool HasRoomFor(const ProgramCommand& command) const {
    return command_count + 1 < commands.size() &&
           ref_count + command.buffers.size() <= refs.size() &&
           dim_count + command.dims.size() <= dims.size();
  }
};

struct ModelStep::Places {
  std::vector<std::vector<Place>> of_buffers;          // inputs and outputs only
  std::vector<std::pair<int32_t, Place>> temporaries;  // buffer and place

  void Clear() {
    for (std::vector<Place>& places : of_buffers) places.clear();
    temporaries.clear();
  }
};

struct ModelStep::Plan {
  bool ready = false;
  bool whole = false;  // `commands` has all of the program's
  uint64_t last_use = 0;
  std::vector<int64_t> values;   // of all dim places; the first are the signature
  std::vector<int64_t> sizes;    // of buffers
  std::vector<int64_t> offsets;  // of temporaries
  int64_t arena_bytes = 0;
  uint64_t arena_address = 0;  // that the temporaries' refs were made for
  Commands commands;
  Places places;
};

absl::Status OutputTargetTooSmall(absl::string_view output, uint64_t got_bytes,
                                  uint64_t want_bytes) {
  return absl::InternalError(absl::StrCat(
      "shared memory size specified with the request for output '", output, "' (", got_bytes,
      " bytes) should be at least ", want_bytes, " bytes to hold the results"));
}

ModelStep::ModelStep(const Model* model)
    : model_(*model), late_(model->program()), cursor_(&model->program(), &late_) {}

ModelStep::~ModelStep() = default;

namespace {

// What all launches of a program hold, each taken once.
struct LaunchTotals {
  size_t refs = 0, dims = 0;
  size_t refs_of_one = 0, dims_of_one = 0;  // the most
};
LaunchTotals TotalsOf(const Program& program) {
  LaunchTotals totals;
  for (const ProgramCommand& command : program.commands) {
    if (command.kind != ProgramCommand::Kind::kLaunch) continue;
    totals.refs += command.buffers.size();
    totals.dims += command.dims.size();
    totals.refs_of_one = std::max(totals.refs_of_one, command.buffers.size());
    totals.dims_of_one = std::max(totals.dims_of_one, command.dims.size());
  }
  return totals;
}

bool RunsInPieces(const Program& program) {
  return program.symbols.size() > program.RequestSymbols();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelStep>> ModelStep::Create(const Model* model, size_t copies_max,
                                                             ReserveFunction reserve) {
  auto step = std::unique_ptr<ModelStep>(new ModelStep(model));
  step->reserve_ = std::move(reserve);
  const Program& program = model->program();
  step->symbol_values_.resize(program.RequestSymbols());
  step->bound_.resize(program.buffers.size());
  step->used_.resize(program.buffers.size(), 1);
  step->copies_max_ = copies_max;
  step->copies_before_.reserve(copies_max);
  step->copies_after_.reserve(copies_max + 1);
  step->late_copies_.reserve(copies_max);
  for (const ProgramTensor& output : program.outputs) {
    step->late_outputs_.push_back(std::ranges::any_of(output.dims, [&](const ProgramDim& dim) {
      return dim.fixed < 0 && step->late_.owner(dim.place) >= 0;
    }));
  }
  step->plan_scratch_.order.reserve(program.buffers.size());
  step->plan_scratch_.placed.reserve(program.buffers.size());

  const LaunchTotals totals = TotalsOf(program);
  size_t commands = program.commands.size();
  if (RunsInPieces(program)) {
    step->piece_ = std::make_unique<Commands>();
    step->piece_->Reserve(kPieceCommandsMax,
                          std::max(totals.refs_of_one, kPieceCommandsMax * kPieceRefs),
                          std::max(totals.dims_of_one, kPieceCommandsMax * kPieceDims));
    commands = std::max(commands, kPlanCommandsMax / 4);
  }
  const size_t plan_bytes = program.dims.size() * sizeof(int64_t) +
                            program.buffers.size() * 2 * sizeof(int64_t) +
                            totals.refs * (sizeof(BufferRef) + sizeof(Place)) +
                            totals.dims * sizeof(int64_t) + (commands + 1) * sizeof(Command);
  // Without symbols there is one signature.
  const int64_t count =
      step->symbol_values_.empty()
          ? 1
          : std::clamp<int64_t>(kStepPlanBytesMax / static_cast<int64_t>(plan_bytes), kStepPlansMin,
                                kStepPlansMax);
  step->plans_.resize(static_cast<size_t>(count));
  for (Plan& plan : step->plans_) {
    plan.values.resize(program.dims.size());
    plan.sizes.resize(program.buffers.size());
    plan.offsets.resize(program.buffers.size());
    plan.commands.Reserve(program.commands.size(), totals.refs, totals.dims);
    plan.places.of_buffers.resize(program.buffers.size());
  }
  return step;
}

absl::Status ModelStep::Begin(std::span<const TensorShape* const> shapes,
                              std::span<const std::span<const std::byte>> contents) {
  CHECK_EQ(shapes.size(), model_.program().inputs.size());
  current_ = nullptr;
  unfinished_ = false;
  copies_before_.clear();
  copies_after_.clear();
  late_copies_.clear();
  bytes_copied_ = 0;
  staging_used_ = 0;
  RETURN_IF_ERROR(model_.BindSymbols(shapes, symbol_values_));
  if (model_.HasValueSymbols()) RETURN_IF_ERROR(model_.BindValues(contents, symbol_values_));
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
  RETURN_IF_ERROR(Grow(arena_, static_cast<uint64_t>(current_->arena_bytes)));
  current_->last_use = ++uses_;
  if (current_->arena_address != arena_.address()) RebaseArena(*current_);
  return absl::OkStatus();
}

absl::Status ModelStep::PreparePlan(Plan& plan) {
  plan.ready = false;
  plan.last_use = 0;
  std::copy(symbol_values_.begin(), symbol_values_.end(), plan.values.begin());
  RETURN_IF_ERROR(EvaluatePlan(plan));
  RETURN_IF_ERROR(SizeBuffers(plan));
  plan.arena_bytes = PlanMemory(model_.program(), plan.sizes, plan.offsets, plan_scratch_);
  if (plan.arena_bytes < 0) {
    return absl::InvalidArgumentError(
        "shapes of the inputs: the temporaries of the program take more than 2^61 bytes");
  }
  RETURN_IF_ERROR(Grow(arena_, static_cast<uint64_t>(plan.arena_bytes)));
  RETURN_IF_ERROR(BuildWhole(plan));
  plan.arena_address = arena_.address();
  plan.ready = true;
  ++plans_prepared_;
  return absl::OkStatus();
}

absl::Status ModelStep::EvaluatePlan(Plan& plan) {
  const Program& program = model_.program();
  if (program.regions.empty() && piece_ == nullptr) {
    return CheckValues(plan, EvaluateDims(program.dims, program.symbols.size(), plan.values));
  }
  late_.EvaluateFixed(program, plan.values);
  return CheckValues(plan, -1);
}

absl::Status ModelStep::SizeBuffers(Plan& plan) {
  const Program& program = model_.program();
  if (!program.regions.empty()) FindUsedBuffers(plan);
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const ProgramBuffer& buffer = program.buffers[i];
    plan.sizes[i] = buffer.kind == ProgramBuffer::Kind::kWeight
                        ? static_cast<int64_t>(buffer.weight_size)
                        : plan.values[static_cast<size_t>(buffer.size_place)];
    if (used_[i] == 0) plan.sizes[i] = 0;
    if (plan.sizes[i] < 0 || plan.sizes[i] > kTensorBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("shapes of the inputs: buffer ", i,
                                                     " of the program: got ", plan.sizes[i],
                                                     " bytes, limit ", kTensorBytesMax));
    }
  }
  return absl::OkStatus();
}

void ModelStep::FindUsedBuffers(const Plan& plan) {
  const Program& program = model_.program();
  for (size_t i = 0; i < used_.size(); ++i) {
    used_[i] = program.buffers[i].kind == ProgramBuffer::Kind::kTemporary ? 0 : 1;
  }
  size_t region = 0;
  for (size_t c = 0; c < program.commands.size(); ++c) {
    bool skipped = false;
    while (!skipped && region < program.regions.size() &&
           static_cast<size_t>(program.regions[region].first_command) == c) {
      const ProgramRegion& entered = program.regions[region++];
      skipped = late_.owner(entered.count_place) < 0 &&
                plan.values[static_cast<size_t>(entered.count_place)] <= 0;
      if (!skipped) continue;
      c += static_cast<size_t>(entered.command_count) - 1;
      while (region < program.regions.size() &&
             static_cast<size_t>(program.regions[region].first_command) <= c) {
        ++region;
      }
    }
    if (skipped) continue;
    for (const int32_t buffer : program.commands[c].buffers) {
      used_[static_cast<size_t>(buffer)] = 1;
    }
  }
}

absl::Status ModelStep::CheckValues(const Plan& plan, int32_t failed_place) const {
  const Program& program = model_.program();
  // A check that failed explains an overflow or a division by zero after it better than these do.
  for (const Program::Check& check : program.checks) {
    if (failed_place >= 0 && check.place >= failed_place) continue;
    if (plan.values[static_cast<size_t>(check.place)] != 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("shapes of the inputs: ", check.message,
                                                   ValuesOfSymbols(plan, check.message)));
  }
  if (failed_place < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("shapes of the inputs: a size overflows or a divisor is 0",
                   ValuesOfSymbols(plan, absl::StrJoin(program.symbols, " "))));
}

std::string ModelStep::ValuesOfSymbols(const Plan& plan, absl::string_view text) const {
  const std::vector<std::string>& symbols = model_.program().symbols;
  std::vector<std::string> values;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (HasWord(text, symbols[i])) {
      values.push_back(absl::StrCat(symbols[i], " = ", plan.values[i]));
    }
  }
  return values.empty() ? "" : absl::StrCat(" (", absl::StrJoin(values, ", "), ")");
}

absl::Status ModelStep::BuildWhole(Plan& plan) {
  const Program& program = model_.program();
  plan.whole = false;
  plan.commands.Clear();
  plan.places.Clear();
  size_t commands = 0, refs = 0, dims = 0;
  cursor_.Begin();
  for (;;) {
    ASSIGN_OR_RETURN(const int32_t c, cursor_.Next(plan.values));
    if (c == ProgramCursor::kEnd) break;
    if (piece_ != nullptr) {
      const bool is_long = c == ProgramCursor::kNoneYet || commands == kPlanCommandsMax;
      if (is_long || program.commands[static_cast<size_t>(c)].kind == ProgramCommand::Kind::kRead) {
        return absl::OkStatus();
      }
    }
    if (c == ProgramCursor::kNoneYet) continue;
    ++commands;
    refs += program.commands[static_cast<size_t>(c)].buffers.size();
    dims += program.commands[static_cast<size_t>(c)].dims.size();
  }
  plan.commands.Reserve(commands, refs, dims);
  cursor_.Begin();
  for (;;) {
    ASSIGN_OR_RETURN(const int32_t c, cursor_.Next(plan.values));
    if (c == ProgramCursor::kEnd) break;
    if (c == ProgramCursor::kNoneYet) continue;
    RETURN_IF_ERROR(Append(plan, c, plan.commands, &plan.places));
  }
  plan.whole = true;
  return absl::OkStatus();
}

absl::Status ModelStep::Append(const Plan& plan, int32_t c, Commands& commands,
                               Places* places) const {
  const ProgramCommand& command = model_.program().commands[static_cast<size_t>(c)];
  Command& made = commands.commands[commands.command_count];
  if (command.kind == ProgramCommand::Kind::kLaunch) {
    ASSIGN_OR_RETURN(made, MakeLaunch(plan, c, commands, places));
  } else if (command.kind == ProgramCommand::Kind::kCopy) {
    CopyCommand copy;
    ASSIGN_OR_RETURN(copy.source, RefOf(plan, command, 0));
    ASSIGN_OR_RETURN(copy.target, RefOf(plan, command, 1));
    const ProgramBuffer& target = model_.program().buffers[static_cast<size_t>(command.buffers[1])];
    if (target.kind == ProgramBuffer::Kind::kOutput && has_late_size(target.index)) {
      ASSIGN_OR_RETURN(copy.target.size_bytes, LateBytes(plan, target.index));
    }
    if (copy.source.size_bytes < copy.target.size_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("shapes of the inputs: command ", c, " (", command.label, "): copies ",
                       copy.target.size_bytes, " bytes of ", copy.source.size_bytes));
    }
    copy.source.size_bytes = copy.target.size_bytes;
    made = copy;
    if (places != nullptr) {
      Note(plan, command, 0, kCopySource, copy.source, *places);
      Note(plan, command, 1, kTarget, copy.target, *places);
    }
  } else {
    ASSIGN_OR_RETURN(const BufferRef target, RefOf(plan, command, 0));
    made = FillCommand{target, command.fill_value};
    if (places != nullptr) Note(plan, command, 0, kTarget, target, *places);
  }
  ++commands.command_count;
  return absl::OkStatus();
}

absl::StatusOr<LaunchCommand> ModelStep::MakeLaunch(const Plan& plan, int32_t c, Commands& commands,
                                                    Places* places) const {
  const ProgramCommand& command = model_.program().commands[static_cast<size_t>(c)];
  const auto value = [&plan](int32_t place) { return plan.values[static_cast<size_t>(place)]; };
  const Model::Launch& resolved = model_.launches()[static_cast<size_t>(c)];
  LaunchCommand launch;
  launch.executable = resolved.executable;
  launch.entry = resolved.entry;
  launch.buffers = std::span(commands.refs).subspan(commands.ref_count, command.buffers.size());
  launch.dims = std::span(commands.dims).subspan(commands.dim_count, command.dims.size());
  for (size_t i = 0; i < command.buffers.size(); ++i) {
    const auto ref = static_cast<int32_t>(commands.ref_count++);
    BufferRef& made = commands.refs[static_cast<size_t>(ref)];
    ASSIGN_OR_RETURN(made, RefOf(plan, command, i));
    if (places != nullptr) Note(plan, command, i, ref, made, *places);
  }
  bool bad = false;
  for (const int32_t place : command.dims) {
    bad |= value(place) == kBadDim;
    commands.dims[commands.dim_count++] = value(place);
  }
  launch.tasks = value(command.tasks_place);
  launch.scratch_bytes = command.scratch_place < 0 ? 0 : value(command.scratch_place);
  if (bad || launch.tasks < 0 || launch.scratch_bytes < 0 ||
      launch.scratch_bytes > kTensorBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("shapes of the inputs: command ", c, " (", command.label, "): got ",
                     launch.tasks, " tasks, ", launch.scratch_bytes, " bytes of scratch",
                     bad ? ", a size overflows or a divisor is 0" : ""));
  }
  const int64_t flops = command.flops_place < 0 ? 0 : value(command.flops_place);
  const int64_t bytes = command.bytes_place < 0 ? 0 : value(command.bytes_place);
  if (command.flops_place >= 0 || command.bytes_place >= 0) {
    launch.nanos_estimate = std::max({flops / kFlopsPerNano, bytes / kBytesPerNano, int64_t{1}});
  }
  return launch;
}

absl::StatusOr<BufferRef> ModelStep::RefOf(const Plan& plan, const ProgramCommand& command,
                                           size_t i) const {
  BufferRef ref = BufferAt(plan, command.buffers[i]);
  if (command.offsets.empty() || command.offsets[i] < 0) return ref;
  const int64_t offset = plan.values[static_cast<size_t>(command.offsets[i])];
  if (offset < 0 || static_cast<uint64_t>(offset) > ref.size_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("shapes of the inputs: ", command.label,
                                                   ": buffer ", command.buffers[i], ": got offset ",
                                                   offset, ", limit ", ref.size_bytes));
  }
  return BufferRef{ref.address + static_cast<uint64_t>(offset),
                   ref.size_bytes - static_cast<uint64_t>(offset)};
}

BufferRef ModelStep::BufferAt(const Plan& plan, int32_t index) const {
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
      // In a plan that is kept 0, until bound.
      return {bound_[static_cast<size_t>(index)].address, size};
  }
  return {};
}

void ModelStep::Note(const Plan& plan, const ProgramCommand& command, size_t i, int32_t ref,
                     BufferRef made, Places& places) const {
  const int32_t index = command.buffers[i];
  const ProgramBuffer& buffer = model_.program().buffers[static_cast<size_t>(index)];
  const auto position = static_cast<int32_t>(plan.commands.command_count);
  const Place place{position, ref, made.address - BufferAt(plan, index).address};
  switch (buffer.kind) {
    case ProgramBuffer::Kind::kInput:
    case ProgramBuffer::Kind::kOutput:
      places.of_buffers[static_cast<size_t>(index)].push_back(place);
      break;
    case ProgramBuffer::Kind::kTemporary:
      places.temporaries.emplace_back(index, place);
      break;
    case ProgramBuffer::Kind::kWeight:
      break;
  }
}

namespace {

// Moves the range at one place of a command list to `address`.
void SetPlace(std::vector<Command>& commands, std::vector<BufferRef>& refs, int32_t command,
              int32_t ref, uint64_t address) {
  Command& c = commands[static_cast<size_t>(command)];
  if (ref >= 0) {
    refs[static_cast<size_t>(ref)].address = address;
  } else if (ref == kCopySource) {
    std::get<CopyCommand>(c).source.address = address;
  } else if (CopyCommand* const copy = std::get_if<CopyCommand>(&c); copy != nullptr) {
    copy->target.address = address;
  } else {
    std::get<FillCommand>(c).target.address = address;
  }
}

}  // namespace

void ModelStep::RebaseArena(Plan& plan) {
  for (const auto& [buffer, place] : plan.places.temporaries) {
    SetPlace(plan.commands.commands, plan.commands.refs, place.command, place.ref,
             BufferAt(plan, buffer).address + place.offset);
  }
  plan.arena_address = arena_.address();
}

void ModelStep::BindBuffer(int32_t buffer, BufferRef bytes) {
  CHECK_EQ(bytes.size_bytes, BytesOf(buffer));
  bound_[static_cast<size_t>(buffer)] = bytes;
  for (const Place& place : current_->places.of_buffers[static_cast<size_t>(buffer)]) {
    SetPlace(current_->commands.commands, current_->commands.refs, place.command, place.ref,
             bytes.address + place.offset);
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

absl::StatusOr<uint64_t> ModelStep::final_output_bytes(int32_t output) const {
  if (!has_late_size(output)) return output_bytes(output);
  return LateBytes(*current_, output);
}

absl::StatusOr<uint64_t> ModelStep::LateBytes(const Plan& plan, int32_t output) const {
  const ProgramTensor& tensor = model_.program().outputs[static_cast<size_t>(output)];
  const int64_t limit = plan.sizes[static_cast<size_t>(tensor.buffer)];
  auto bytes = static_cast<int64_t>(SizeBytes(tensor.dtype));
  for (const ProgramDim& dim : tensor.dims) {
    const int64_t extent = dim.fixed >= 0 ? dim.fixed : plan.values[static_cast<size_t>(dim.place)];
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) bytes = -1;
    if (bytes < 0) break;
  }
  if (bytes >= 0 && bytes <= limit) return static_cast<uint64_t>(bytes);
  return absl::OutOfRangeError(
      absl::StrCat("output '", tensor.name, "': got ", bytes, " bytes, limit ", limit));
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

void ModelStep::CopyOutputAfter(int32_t output, BufferRef source, BufferRef target) {
  CHECK_LT(copies_after_.size(), copies_max_);
  late_copies_.push_back({copies_after_.size(), output});
  copies_after_.push_back(CopyCommand{source, target});
}

absl::Status ModelStep::SizeLateCopies() {
  for (const LateCopy& late : late_copies_) {
    auto& copy = std::get<CopyCommand>(copies_after_[late.copy]);
    ASSIGN_OR_RETURN(const uint64_t bytes, LateBytes(*current_, late.output));
    if (copy.target.size_bytes < bytes) {
      return OutputTargetTooSmall(model_.program().outputs[static_cast<size_t>(late.output)].name,
                                  copy.target.size_bytes, bytes);
    }
    copy.source.size_bytes = copy.target.size_bytes = bytes;
    bytes_copied_ += static_cast<int64_t>(bytes);
  }
  return absl::OkStatus();
}

absl::Status ModelStep::Submit(Queue& queue, uint64_t signal_value) {
  const SignalCommand signal{signal_value};
  if (!copies_before_.empty()) RETURN_IF_ERROR(queue.Submit(copies_before_));
  if (!current_->whole) {
    cursor_.Begin();
    pending_read_ = held_ = -1;
    unfinished_ = true;
    return SubmitPiece(queue, signal_value);
  }
  RETURN_IF_ERROR(SizeLateCopies());
  const size_t count = current_->commands.command_count;
  const std::span<Command> program = std::span(current_->commands.commands).first(count + 1);
  if (copies_after_.empty()) {
    program.back() = signal;
    return queue.Submit(program);
  }
  RETURN_IF_ERROR(queue.Submit(program.first(count)));
  copies_after_.push_back(signal);
  return queue.Submit(copies_after_);
}

absl::Status ModelStep::Continue(Queue& queue, uint64_t signal_value) {
  CHECK(unfinished_);
  const absl::Status read = FinishRead();
  if (read.ok()) return SubmitPiece(queue, signal_value);
  unfinished_ = false;
  return read;
}

absl::Status ModelStep::Run(Queue& queue, uint64_t& signal_value) {
  RETURN_IF_ERROR(Submit(queue, ++signal_value));
  RETURN_IF_ERROR(queue.Synchronize(signal_value));
  while (unfinished_) {
    RETURN_IF_ERROR(Continue(queue, ++signal_value));
    RETURN_IF_ERROR(queue.Synchronize(signal_value));
  }
  return absl::OkStatus();
}

absl::Status ModelStep::SubmitPiece(Queue& queue, uint64_t signal_value) {
  if (absl::Status filled = FillPiece(); !filled.ok()) {
    unfinished_ = false;
    return filled;
  }
  if (!unfinished_) RETURN_IF_ERROR(SizeLateCopies());
  const bool is_last = !unfinished_ && !copies_after_.empty();
  const std::span<Command> commands =
      std::span(piece_->commands).first(piece_->command_count + (is_last ? 0 : 1));
  if (!is_last) commands.back() = SignalCommand{signal_value};
  RETURN_IF_ERROR(queue.Submit(commands));
  if (!is_last) return absl::OkStatus();
  copies_after_.push_back(SignalCommand{signal_value});
  return queue.Submit(copies_after_);
}

absl::Status ModelStep::FillPiece() {
  const Program& program = model_.program();
  piece_->Clear();
  int64_t nanos = 0;
  while (nanos < kPieceNanosMax) {
    int32_t c = std::exchange(held_, -1);
    if (c < 0) {
      ASSIGN_OR_RETURN(c, cursor_.Next(current_->values));
    }
    if (c == ProgramCursor::kNoneYet) return absl::OkStatus();
    if (c == ProgramCursor::kEnd) {
      unfinished_ = false;
      return absl::OkStatus();
    }
    const ProgramCommand& command = program.commands[static_cast<size_t>(c)];
    if (command.kind == ProgramCommand::Kind::kRead) {
      pending_read_ = c;
      return absl::OkStatus();
    }
    if (!piece_->HasRoomFor(command)) {
      held_ = c;
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(Append(*current_, c, *piece_, nullptr));
    const Command& made = piece_->commands[piece_->command_count - 1];
    const auto* launch = std::get_if<LaunchCommand>(&made);
    nanos += launch == nullptr ? 0 : launch->nanos_estimate;
  }
  return absl::OkStatus();
}

absl::Status ModelStep::FinishRead() {
  if (pending_read_ < 0) return absl::OkStatus();
  const Program& program = model_.program();
  const ProgramCommand& command =
      program.commands[static_cast<size_t>(std::exchange(pending_read_, -1))];
  ASSIGN_OR_RETURN(const BufferRef source, RefOf(*current_, command, 0));
  const int64_t limit = current_->values[static_cast<size_t>(command.limit_place)];
  if (limit == kBadDim || source.size_bytes < SizeBytes(command.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("shapes of the inputs: ", command.label,
                                                   ": reads an element of ", source.size_bytes,
                                                   " bytes, limit ", limit));
  }
  const int64_t value =
      LoadAsInt64(command.dtype, reinterpret_cast<const std::byte*>(source.address));
  return late_.Set(program, command.symbol,
                   std::clamp<int64_t>(value, 0, std::max<int64_t>(limit, 0)), current_->values);
}

absl::Status ModelStep::SubmitEach(Queue& queue, uint64_t& signal_value,
                                   const std::function<void(size_t command)>& before,
                                   const std::function<void(size_t command)>& after) {
  Commands one;
  const LaunchTotals totals = TotalsOf(model_.program());
  one.Reserve(1, totals.refs_of_one, totals.dims_of_one);
  cursor_.Begin();
  for (;;) {
    ASSIGN_OR_RETURN(const int32_t c, cursor_.Next(current_->values));
    if (c == ProgramCursor::kEnd) return absl::OkStatus();
    if (c == ProgramCursor::kNoneYet) continue;
    if (model_.program().commands[static_cast<size_t>(c)].kind == ProgramCommand::Kind::kRead) {
      pending_read_ = c;
      RETURN_IF_ERROR(FinishRead());
      continue;
    }
    one.Clear();
    RETURN_IF_ERROR(Append(*current_, c, one, nullptr));
    one.commands[1] = SignalCommand{++signal_value};
    before(static_cast<size_t>(c));
    RETURN_IF_ERROR(queue.Submit(std::span(one.commands).first(2)));
    RETURN_IF_ERROR(queue.Synchronize(signal_value));
    after(static_cast<size_t>(c));
  }
}

}  // namespace stampmill
