#include "runtime/program_cursor.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "graph/dim.h"

namespace stampmill {
namespace {

using Kind = DimExpr::Kind;

// Regions entered and left in one call: a fraction of a millisecond.
constexpr int kTurnsMax = 4096;

// Where in the program a late symbol is set; later ones are greater.
using Moment = std::tuple<int64_t, int, int64_t>;

std::vector<Moment> Moments(const Program& program) {
  std::vector<Moment> moments(program.symbols.size());
  for (size_t i = 0; i < program.regions.size(); ++i) {
    const ProgramRegion& region = program.regions[i];
    const int64_t index = static_cast<int64_t>(i);
    const int64_t last = int64_t{region.first_command} + region.command_count - 1;
    if (region.iteration >= 0) {
      moments[static_cast<size_t>(region.iteration)] = {region.first_command, 0, index};
    }
    if (region.trips >= 0) moments[static_cast<size_t>(region.trips)] = {last, 2, -index};
  }
  for (size_t c = 0; c < program.commands.size(); ++c) {
    const ProgramCommand& command = program.commands[c];
    if (command.kind != ProgramCommand::Kind::kRead) continue;
    moments[static_cast<size_t>(command.symbol)] = {static_cast<int64_t>(c), 1, 0};
  }
  return moments;
}

void Evaluate(const DimTable::Instruction& instruction, std::span<int64_t> values, size_t place) {
  if (instruction.kind == Kind::kSymbol) return;
  if (instruction.kind == Kind::kConstant) {
    values[place] = instruction.value;
    return;
  }
  const int64_t a = values[static_cast<size_t>(instruction.a)];
  const int64_t b = values[static_cast<size_t>(instruction.b)];
  int64_t result = kBadDim;
  if (instruction.kind == Kind::kMul && (a == 0 || b == 0)) {
    result = 0;  // what is not chosen may be bad
  } else if (a == kBadDim || b == kBadDim ||
             !EvaluateDimOperation(instruction.kind, a, b, &result)) {
    result = kBadDim;
  }
  values[place] = result;
}

}  // namespace

LateDims::LateDims(const Program& program)
    : owners_(program.dims.size(), -1),
      dims_(program.symbols.size()),
      checks_(program.symbols.size()),
      within_(program.regions.size()) {
  const std::vector<Moment> moments = Moments(program);
  const size_t fixed = program.RequestSymbols();
  const auto later = [&](int32_t a, int32_t b) {
    if (a < 0 || b < 0) return std::max(a, b);
    return moments[static_cast<size_t>(a)] < moments[static_cast<size_t>(b)] ? b : a;
  };
  for (size_t i = fixed; i < program.dims.size(); ++i) {
    const DimTable::Instruction& dim = program.dims[i];
    if (dim.kind == Kind::kSymbol) {
      owners_[i] = static_cast<int32_t>(i);
      continue;
    }
    if (dim.kind == Kind::kConstant) continue;
    owners_[i] = later(owner(dim.a), owner(dim.b));
    if (owners_[i] >= 0) dims_[static_cast<size_t>(owners_[i])].push_back(static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < program.checks.size(); ++i) {
    const int32_t symbol = owner(program.checks[i].place);
    if (symbol >= 0) checks_[static_cast<size_t>(symbol)].push_back(static_cast<int32_t>(i));
  }
  std::vector<int32_t> order;
  for (size_t i = fixed; i < program.symbols.size(); ++i) order.push_back(static_cast<int32_t>(i));
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return moments[static_cast<size_t>(a)] < moments[static_cast<size_t>(b)];
  });
  for (size_t r = 0; r < within_.size(); ++r) {
    const int64_t first = program.regions[r].first_command;
    const int64_t end = first + program.regions[r].command_count;
    for (const int32_t symbol : order) {
      const auto [place, kind, index] = moments[static_cast<size_t>(symbol)];
      // Of regions that begin or end together with this one, those in it have greater numbers.
      const bool is_inside = place >= first && place < end &&
                             (kind == 1 || std::abs(index) >= static_cast<int64_t>(r));
      if (is_inside) within_[r].push_back(symbol);
    }
  }
}

absl::Status LateDims::SetSkipped(const Program& program, size_t region,
                                  std::span<int64_t> values) const {
  for (const int32_t symbol : within_[region]) RETURN_IF_ERROR(Set(program, symbol, 0, values));
  return absl::OkStatus();
}

void LateDims::EvaluateFixed(const Program& program, std::span<int64_t> values) const {
  for (size_t i = program.RequestSymbols(); i < values.size(); ++i) {
    if (owners_[i] >= 0) {
      values[i] = kBadDim;
    } else {
      Evaluate(program.dims[i], values, i);
    }
  }
}

absl::Status LateDims::Set(const Program& program, int32_t symbol, int64_t value,
                           std::span<int64_t> values) const {
  const auto s = static_cast<size_t>(symbol);
  values[s] = value;
  for (const int32_t place : dims_[s]) {
    Evaluate(program.dims[static_cast<size_t>(place)], values, static_cast<size_t>(place));
  }
  for (const int32_t index : checks_[s]) {
    const Program::Check& check = program.checks[static_cast<size_t>(index)];
    if (values[static_cast<size_t>(check.place)] != 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(check.message, " (", program.symbols[s], " = ", value, ")"));
  }
  return absl::OkStatus();
}

ProgramCursor::ProgramCursor(const Program* program, const LateDims* late)
    : program_(*program), late_(*late), after_(program->regions.size()) {
  frames_.reserve(kRegionDepthMax);
  for (size_t i = 0; i < after_.size(); ++i) {
    const int64_t end =
        int64_t{program_.regions[i].first_command} + program_.regions[i].command_count;
    size_t next = i + 1;
    while (next < after_.size() && program_.regions[next].first_command < end) ++next;
    after_[i] = next;
  }
}

void ProgramCursor::Begin() {
  frames_.clear();
  position_ = 0;
  next_region_ = 0;
}

absl::StatusOr<int64_t> ProgramCursor::Value(int32_t place, std::span<const int64_t> values) const {
  const int64_t value = values[static_cast<size_t>(place)];
  if (value != kBadDim) return value;
  return absl::InvalidArgumentError(
      "shapes of the inputs: a condition or count overflows or has a divisor of 0");
}

absl::Status ProgramCursor::Enter(std::span<int64_t> values) {
  const ProgramRegion& region = program_.regions[next_region_];
  ASSIGN_OR_RETURN(const int64_t count, Value(region.count_place, values));
  if (count <= 0) {
    const size_t skipped = next_region_;
    position_ += region.command_count;
    next_region_ = after_[next_region_];
    return late_.SetSkipped(program_, skipped, values);
  }
  frames_.push_back({next_region_, region.kind == ProgramRegion::Kind::kRepeat ? count : 1, 0});
  ++next_region_;
  if (region.iteration < 0) return absl::OkStatus();
  return late_.Set(program_, region.iteration, 0, values);
}

absl::Status ProgramCursor::EndIteration(std::span<int64_t> values) {
  Frame& frame = frames_.back();
  const ProgramRegion& region = program_.regions[frame.region];
  ++frame.iteration;
  bool goes_on = frame.iteration < frame.count;
  if (goes_on && region.proceed_place >= 0) {
    ASSIGN_OR_RETURN(const int64_t proceed, Value(region.proceed_place, values));
    goes_on = proceed > 0;
  }
  if (goes_on) {
    position_ = region.first_command;
    next_region_ = frame.region + 1;
    return late_.Set(program_, region.iteration, frame.iteration, values);
  }
  const int64_t trips = frame.iteration;
  frames_.pop_back();
  if (region.trips < 0) return absl::OkStatus();
  return late_.Set(program_, region.trips, trips, values);
}

absl::StatusOr<int32_t> ProgramCursor::Next(std::span<int64_t> values) {
  const std::vector<ProgramRegion>& regions = program_.regions;
  for (int turns = 0; turns < kTurnsMax; ++turns) {
    if (!frames_.empty()) {
      const ProgramRegion& region = regions[frames_.back().region];
      if (position_ == region.first_command + region.command_count) {
        RETURN_IF_ERROR(EndIteration(values));
        continue;
      }
    }
    if (next_region_ < regions.size() && regions[next_region_].first_command == position_) {
      RETURN_IF_ERROR(Enter(values));
      continue;
    }
    if (static_cast<size_t>(position_) == program_.commands.size()) return kEnd;
    return position_++;
  }
  return kNoneYet;
}

}  // namespace stampmill
