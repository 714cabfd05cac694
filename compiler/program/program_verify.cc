// The rules that every program keeps, wherever it came from.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/program/program.h"

namespace stampmill {
namespace {

// Collects the first broken rule.
class Rules {
 public:
  template <typename... Words>
  void Require(bool holds, const Words&... words) {
    if (!holds && status_.ok()) status_ = absl::DataLossError(absl::StrCat("program: ", words...));
  }
  // `index` is one of `size` items, or -1 where it may be.
  template <typename... Words>
  void Index(int32_t index, size_t size, bool optional, const Words&... words) {
    if (optional && index == -1) return;
    Require(index >= 0 && static_cast<size_t>(index) < size, words..., ": got ", index, ", limit ",
            size);
  }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

void VerifyDims(const Program& program, Rules& rules) {
  rules.Require(program.symbols.size() <= program.dims.size(), "fewer dims than symbols");
  absl::flat_hash_set<std::string> names;
  for (const std::string& symbol : program.symbols) {
    rules.Require(!symbol.empty() && names.insert(symbol).second, "symbol '", symbol,
                  "': empty or twice");
  }
  for (size_t i = 0; i < program.dims.size(); ++i) {
    const DimTable::Instruction& dim = program.dims[i];
    const bool is_symbol = i < program.symbols.size();
    rules.Require(dim.kind <= DimExpr::Kind::kMax, "dim ", i, ": unknown kind ",
                  static_cast<int>(dim.kind));
    rules.Require((dim.kind == DimExpr::Kind::kSymbol) == is_symbol, "dim ", i,
                  ": symbols come first, and only there");
    if (is_symbol) {
      rules.Require(dim.value == static_cast<int64_t>(i), "dim ", i, ": symbol out of order");
    } else if (dim.kind != DimExpr::Kind::kConstant) {
      rules.Index(dim.a, i, false, "dim ", i, ": operand a");
      rules.Index(dim.b, i, false, "dim ", i, ": operand b");
    }
  }
  for (size_t i = 0; i < program.value_symbols.size(); ++i) {
    const Program::ValueSymbol& symbol = program.value_symbols[i];
    const std::string what = absl::StrCat("value symbol ", i);
    rules.Index(symbol.symbol, program.RequestSymbols(), false, what);
    rules.Index(symbol.input, program.inputs.size(), false, what, ": input");
    rules.Require(symbol.element >= 0, what, ": element ", symbol.element);
    rules.Require(i == 0 || symbol.symbol == program.value_symbols[i - 1].symbol + 1, what,
                  ": not behind the one before");
    if (!rules.status().ok()) return;
    const DType dtype = program.inputs[static_cast<size_t>(symbol.input)].dtype;
    rules.Require(IsInteger(dtype) || dtype == DType::kBool, what, ": of no integer");
  }
  for (const Program::Check& check : program.checks) {
    rules.Index(check.place, program.dims.size(), false, "check '", check.message, "'");
  }
  for (size_t i = 0; i < program.index_bounds.size(); ++i) {
    const Program::IndexBound& bound = program.index_bounds[i];
    const std::string what = absl::StrCat("index bound ", i);
    rules.Index(bound.input, program.inputs.size(), false, what, ": input");
    if (!rules.status().ok()) return;
    const DType dtype = program.inputs[static_cast<size_t>(bound.input)].dtype;
    rules.Require(dtype == DType::kI32 || dtype == DType::kI64, what, ": not of i32 or i64");
    rules.Require(bound.limit > 0, what, ": limit ", bound.limit);
    rules.Require(i == 0 || bound.input > program.index_bounds[i - 1].input, what,
                  ": not ascending");
  }
  rules.Require(program.states >= 0 && static_cast<size_t>(program.states) <= program.inputs.size(),
                "states: got ", program.states, ", limit ", program.inputs.size(), " inputs");
  rules.Require(program.batch_symbol.empty() || program.states == 0, "batch symbol '",
                program.batch_symbol, "': beside state");
  rules.Require(program.batch_symbol.empty() || names.contains(program.batch_symbol),
                "batch symbol '", program.batch_symbol, "': unknown");
  rules.Require(program.batch_symbol.empty() || program.value_symbols.empty(), "batch symbol '",
                program.batch_symbol, "': beside inputs whose contents matter");
}

void VerifyTensors(const Program& program, const std::vector<ProgramTensor>& tensors,
                   ProgramBuffer::Kind kind, Rules& rules) {
  const bool is_input = kind == ProgramBuffer::Kind::kInput;
  absl::flat_hash_set<std::string> names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ProgramTensor& tensor = tensors[i];
    const std::string what = absl::StrCat(is_input ? "input" : "output", " '", tensor.name, "'");
    rules.Require(names.insert(tensor.name).second, what, ": twice");
    rules.Require(tensor.dtype != DType::kInvalid && static_cast<int>(tensor.dtype) < kDTypeCount,
                  what, ": unknown dtype ", static_cast<int>(tensor.dtype));
    for (const ProgramDim& dim : tensor.dims) {
      if (dim.fixed >= 0) continue;
      rules.Require(dim.fixed == -1, what, ": negative dim ", dim.fixed);
      rules.Index(dim.place, is_input ? program.RequestSymbols() : program.dims.size(), false, what,
                  ": dim place");
    }
    rules.Index(tensor.buffer, program.buffers.size(), false, what, ": buffer");
    if (!rules.status().ok()) return;
    const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(tensor.buffer)];
    rules.Require(buffer.kind == kind && buffer.index == static_cast<int32_t>(i), what,
                  ": its buffer is another's");
  }
}

void VerifyBuffers(const Program& program, Rules& rules) {
  size_t interface_buffers = 0;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const ProgramBuffer& buffer = program.buffers[i];
    switch (buffer.kind) {
      case ProgramBuffer::Kind::kWeight:
        rules.Require(buffer.weight_offset <= program.weights_size &&
                          buffer.weight_size <= program.weights_size - buffer.weight_offset,
                      "buffer ", i, ": weights ", buffer.weight_offset, " + ", buffer.weight_size,
                      ", limit ", program.weights_size);
        continue;
      case ProgramBuffer::Kind::kTemporary:
        rules.Require(buffer.first_command >= 0 && buffer.first_command <= buffer.last_command,
                      "buffer ", i, ": its lifetime ends before it begins");
        rules.Index(buffer.last_command, program.commands.size(), false, "buffer ", i,
                    ": last command");
        break;
      case ProgramBuffer::Kind::kInput:
      case ProgramBuffer::Kind::kOutput:
        ++interface_buffers;
        break;
      default:
        rules.Require(false, "buffer ", i, ": unknown kind ", static_cast<int>(buffer.kind));
    }
    rules.Index(buffer.size_place, program.dims.size(), false, "buffer ", i, ": size place");
  }
  rules.Require(interface_buffers == program.inputs.size() + program.outputs.size(),
                "buffers of inputs and outputs: got ", interface_buffers, ", limit ",
                program.inputs.size() + program.outputs.size());
}

// What a command may write to.
bool IsWritable(const ProgramBuffer& buffer) {
  return buffer.kind == ProgramBuffer::Kind::kOutput ||
         buffer.kind == ProgramBuffer::Kind::kTemporary;
}

void VerifyCommand(const Program& program, size_t i, Rules& rules) {
  const ProgramCommand& command = program.commands[i];
  for (const int32_t index : command.buffers) {
    rules.Index(index, program.buffers.size(), false, "command ", i, ": buffer");
    if (!rules.status().ok()) return;
    const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(index)];
    const int32_t number = static_cast<int32_t>(i);
    rules.Require(buffer.kind != ProgramBuffer::Kind::kTemporary ||
                      (buffer.first_command <= number && number <= buffer.last_command),
                  "command ", i, ": buffer ", index, " does not live then");
  }
  rules.Require(command.offsets.empty() || command.offsets.size() == command.buffers.size(),
                "command ", i, ": got ", command.offsets.size(), " offsets, limit ",
                command.buffers.size());
  for (const int32_t place : command.offsets) {
    rules.Index(place, program.dims.size(), true, "command ", i, ": offset place");
  }
  if (command.kind == ProgramCommand::Kind::kRead) {
    rules.Require(command.buffers.size() == 1, "command ", i, ": got ", command.buffers.size(),
                  " buffers, limit 1");
    rules.Index(command.limit_place, program.dims.size(), false, "command ", i, ": limit place");
    rules.Require(IsInteger(command.dtype) || command.dtype == DType::kBool, "command ", i,
                  ": reads no integer");
    return;
  }
  if (command.kind == ProgramCommand::Kind::kLaunch) {
    rules.Index(command.artifact, program.artifacts.size(), false, "command ", i, ": artifact");
    rules.Require(!command.entry.empty(), "command ", i, ": no entry");
    rules.Index(command.tasks_place, program.dims.size(), false, "command ", i, ": tasks place");
    for (const int32_t place : {command.scratch_place, command.flops_place, command.bytes_place}) {
      rules.Index(place, program.dims.size(), true, "command ", i, ": dim place");
    }
    for (const int32_t place : command.dims) {
      rules.Index(place, program.dims.size(), false, "command ", i, ": dim place");
    }
    return;
  }
  const bool is_copy = command.kind == ProgramCommand::Kind::kCopy;
  rules.Require(is_copy || command.kind == ProgramCommand::Kind::kFill, "command ", i,
                ": unknown kind ", static_cast<int>(command.kind));
  rules.Require(command.buffers.size() == (is_copy ? 2 : 1), "command ", i, ": got ",
                command.buffers.size(), " buffers, limit ", is_copy ? 2 : 1);
  if (!rules.status().ok()) return;
  rules.Require(IsWritable(program.buffers[static_cast<size_t>(command.buffers.back())]),
                "command ", i, ": writes to an input or weights");
}

void VerifyRegions(const Program& program, Rules& rules) {
  std::vector<int64_t> ends;  // of the regions around
  int64_t before = 0;
  for (size_t i = 0; i < program.regions.size() && rules.status().ok(); ++i) {
    const ProgramRegion& region = program.regions[i];
    const std::string what = absl::StrCat("region ", i);
    const int64_t end = int64_t{region.first_command} + region.command_count;
    rules.Require(region.first_command >= before && region.command_count > 0, what,
                  ": empty or out of order");
    before = region.first_command;
    while (!ends.empty() && ends.back() <= region.first_command) ends.pop_back();
    rules.Require(
        end <= (ends.empty() ? static_cast<int64_t>(program.commands.size()) : ends.back()), what,
        ": ends behind what it lies in");
    ends.push_back(end);
    rules.Require(ends.size() <= kRegionDepthMax, what, ": depth ", ends.size(), ", limit ",
                  kRegionDepthMax);
    rules.Index(region.count_place, program.dims.size(), false, what, ": count place");
    rules.Require(region.kind <= ProgramRegion::Kind::kRepeat, what, ": unknown kind ",
                  static_cast<int>(region.kind));
    const bool repeats = region.kind == ProgramRegion::Kind::kRepeat;
    rules.Require(repeats == (region.iteration >= 0), what, ": iteration of a branch");
    rules.Require(repeats || (region.proceed_place == -1 && region.trips == -1), what,
                  ": a branch with trips");
    rules.Index(region.proceed_place, program.dims.size(), true, what, ": proceed place");
  }
}

// Each late symbol is set at one place; they are the last.
void VerifyLateSymbols(const Program& program, Rules& rules) {
  std::vector<bool> set(program.symbols.size(), false);
  const auto late = [&](int32_t symbol, const std::string& what) {
    rules.Index(symbol, set.size(), false, what);
    if (!rules.status().ok()) return;
    rules.Require(!set[static_cast<size_t>(symbol)], what, ": set twice");
    set[static_cast<size_t>(symbol)] = true;
  };
  for (size_t i = 0; i < program.regions.size(); ++i) {
    const ProgramRegion& region = program.regions[i];
    if (region.kind == ProgramRegion::Kind::kBranch) continue;
    late(region.iteration, absl::StrCat("region ", i, ": iteration"));
    if (region.trips != -1) late(region.trips, absl::StrCat("region ", i, ": trips"));
  }
  for (size_t i = 0; i < program.commands.size(); ++i) {
    if (program.commands[i].kind != ProgramCommand::Kind::kRead) continue;
    late(program.commands[i].symbol, absl::StrCat("command ", i, ": symbol"));
  }
  if (!rules.status().ok()) return;
  for (size_t i = 1; i < set.size(); ++i) {
    rules.Require(set[i] || !set[i - 1], "symbol '", program.symbols[i],
                  "': one of a request behind a late one");
  }
}

void VerifySegments(const Program& program, Rules& rules) {
  int64_t next = 0;
  for (const ProgramSegment& segment : program.segments) {
    rules.Require(!segment.device_kind.empty(), "segment without a device kind");
    rules.Require(segment.first_command == next && segment.command_count >= 0,
                  "segments do not follow each other");
    next += segment.command_count;
  }
  rules.Require(next == static_cast<int64_t>(program.commands.size()), "segments: got ", next,
                " commands, limit ", program.commands.size());
}

}  // namespace

absl::Status Program::Verify() const {
  Rules rules;
  VerifyDims(*this, rules);
  VerifyTensors(*this, inputs, ProgramBuffer::Kind::kInput, rules);
  VerifyTensors(*this, outputs, ProgramBuffer::Kind::kOutput, rules);
  VerifyBuffers(*this, rules);
  RETURN_IF_ERROR(rules.status());
  for (size_t i = 0; i < commands.size() && rules.status().ok(); ++i) {
    VerifyCommand(*this, i, rules);
  }
  VerifySegments(*this, rules);
  VerifyRegions(*this, rules);
  VerifyLateSymbols(*this, rules);
  rules.Require((weights == Digest{}) == (weights_size == 0), "weights: digest without size");
  return rules.status();
}

}  // namespace stampmill
