#include "compiler/passes/stage_graph.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "compiler/passes/coordinates.h"

namespace stampmill {

bool StageGraph::RunsOnceWithin(int32_t region, int32_t outer) const {
  while (region != outer && region >= 0) {
    const StageRegion& inner = regions[static_cast<size_t>(region)];
    if (inner.kind == StageRegion::Kind::kRepeat) return false;
    region = inner.parent;
  }
  return region == outer;
}

bool StageGraph::IsGraphOutput(ValueId root) const {
  return std::any_of(outputs.begin(), outputs.end(),
                     [&](ValueId output) { return Root(output) == root; });
}

bool StageGraph::IsState(ValueId root) const {
  return std::find(inputs.end() - states, inputs.end(), root) != inputs.end();
}

std::vector<int32_t> StageGraph::Readers(ValueId root) const {
  std::vector<int32_t> readers;
  for (size_t i = 0; i < stages.size(); ++i) {
    const Stage& stage = stages[i];
    if (stage.removed) continue;
    if (std::any_of(stage.operands.begin(), stage.operands.end(),
                    [&](ValueId operand) { return Root(operand) == root; })) {
      readers.push_back(static_cast<int32_t>(i));
    }
  }
  return readers;
}

std::vector<int32_t> StageGraph::Writers(ValueId root) const {
  std::vector<int32_t> writers;
  for (size_t i = 0; i < stages.size(); ++i) {
    const Stage& stage = stages[i];
    if (stage.removed) continue;
    if (std::any_of(stage.outputs.begin(), stage.outputs.end(),
                    [&](ValueId output) { return Root(output) == root; })) {
      writers.push_back(static_cast<int32_t>(i));
    }
  }
  return writers;
}

void StageGraph::DropRemoved() {
  std::erase_if(stages, [](const Stage& stage) { return stage.removed; });
}

std::string StageGraph::ToString() const {
  const auto name = [&](ValueId id) {
    const StageValue& v = value(id);
    return absl::StrCat(
        "%", id, ":", Name(v.dtype), stampmill::ToString(v.shape),
        v.alias_of != kNoValue ? absl::StrCat("=%", v.alias_of) : "",
        v.slice_of != kNoValue ? absl::StrCat("=%", v.slice_of, "+", v.offset.ToString()) : "",
        v.constant ? " const" : "");
  };
  std::string text;
  for (const Stage& stage : stages) {
    if (stage.removed) continue;
    std::vector<std::string> operands, results;
    for (ValueId id : stage.operands) operands.push_back(name(id));
    for (ValueId id : stage.outputs) results.push_back(name(id));
    std::string where;
    for (int32_t r = stage.region; r >= 0; r = regions[static_cast<size_t>(r)].parent) {
      const StageRegion& region = regions[static_cast<size_t>(r)];
      where = absl::StrCat(region.kind == StageRegion::Kind::kRepeat ? "repeat " : "if ",
                           region.count.ToString(), ": ", where);
    }
    if (!stage.reads.empty()) {
      absl::StrAppend(&text, where, stage.reads, " <- read (", absl::StrJoin(operands, ", "),
                      ")\n");
      continue;
    }
    absl::StrAppend(&text, where, absl::StrJoin(results, ", "), " <- ", stage.label, " (",
                    absl::StrJoin(operands, ", "), ")\n  ", stampmill::ToString(stage.body), "\n");
  }
  return text;
}

void RemoveUnreadStages(StageGraph& stages) {
  std::vector<bool> read(stages.values.size(), false);
  const auto use = [&](ValueId id) { read[static_cast<size_t>(stages.Owner(id))] = true; };
  for (ValueId output : stages.outputs) use(output);
  for (Stage& stage : stages.stages) stage.removed = true;
  // What a repeat carries is written behind where it is read.
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = stages.stages.size(); i-- > 0;) {
      Stage& stage = stages.stages[i];
      if (!stage.removed) continue;
      stage.removed = stage.reads.empty() &&
                      std::none_of(stage.outputs.begin(), stage.outputs.end(), [&](ValueId id) {
                        return read[static_cast<size_t>(stages.Owner(id))];
                      });
      if (stage.removed) continue;
      for (ValueId id : stage.operands) use(id);
      changed = true;
    }
  }
  stages.DropRemoved();
}

namespace {

absl::Status CheckOperand(const Stage& stage, const StageGraph& stages, const Operand& operand,
                          ValueId id, absl::string_view what) {
  const StageValue& value = stages.value(id);
  if (operand.dtype == value.dtype && operand.shape == value.shape) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "stage ", stage.label, ": ", what, " is ", Name(operand.dtype), ToString(operand.shape),
      ", its value '", value.name, "' ", Name(value.dtype), ToString(value.shape)));
}

absl::Status CheckStage(const Stage& stage, const StageGraph& stages) {
  if (!stage.reads.empty()) {
    const bool fits = stage.operands.size() == 1 && stage.outputs.empty() &&
                      stages.late_limits.contains(stage.reads);
    if (fits) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("stage ", stage.label, ": a read of no one value"));
  }
  RETURN_IF_ERROR(Verify(stage.body));
  const std::vector<Operand>& operands = std::visit(
      [](const auto& body) -> const std::vector<Operand>& { return body.operands; }, stage.body);
  if (operands.size() != stage.operands.size()) {
    return absl::InternalError(absl::StrCat("stage ", stage.label, ": operand count"));
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    RETURN_IF_ERROR(
        CheckOperand(stage, stages, operands[i], stage.operands[i], absl::StrCat("operand ", i)));
  }
  std::vector<Operand> outputs;
  if (const auto* nest = std::get_if<Nest>(&stage.body)) outputs = {nest->output};
  if (const auto* contraction = std::get_if<Contraction>(&stage.body)) {
    outputs = {contraction->output};
  }
  if (const auto* library = std::get_if<Library>(&stage.body)) outputs = library->outputs;
  if (outputs.size() != stage.outputs.size()) {
    return absl::InternalError(absl::StrCat("stage ", stage.label, ": output count"));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    RETURN_IF_ERROR(
        CheckOperand(stage, stages, outputs[i], stage.outputs[i], absl::StrCat("output ", i)));
  }
  return absl::OkStatus();
}

}  // namespace

namespace {

// Stages of a repeat follow each other.
absl::Status CheckRegions(const StageGraph& stages) {
  std::vector<bool> left(stages.regions.size(), false);
  std::vector<bool> inside(stages.regions.size(), false);
  for (const Stage& stage : stages.stages) {
    if (stage.removed) continue;
    std::vector<bool> now(stages.regions.size(), false);
    for (int32_t r = stage.region; r >= 0; r = stages.regions[static_cast<size_t>(r)].parent) {
      if (static_cast<size_t>(r) >= now.size()) {
        return absl::InternalError(absl::StrCat("stage ", stage.label, ": region ", r));
      }
      now[static_cast<size_t>(r)] = true;
    }
    for (size_t r = 0; r < now.size(); ++r) {
      if (stages.regions[r].kind != StageRegion::Kind::kRepeat) continue;
      if (inside[r] && !now[r]) left[r] = true;
      if (now[r] && left[r]) {
        return absl::InternalError(absl::StrCat("stage ", stage.label, ": back in repeat ", r));
      }
    }
    inside = std::move(now);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Verify(const StageGraph& stages) {
  RETURN_IF_ERROR(CheckRegions(stages));
  std::vector<bool> written(stages.values.size(), false);
  for (ValueId input : stages.inputs) written[static_cast<size_t>(input)] = true;
  for (size_t i = 0; i < stages.values.size(); ++i) {
    if (stages.values[i].constant.has_value()) written[i] = true;
  }
  const auto check_written = [&](ValueId id, absl::string_view user) -> absl::Status {
    // An alias of something written, or of a constant whose own copy under this shape is one too.
    if (written[static_cast<size_t>(stages.Owner(id))] || written[static_cast<size_t>(id)]) {
      return absl::OkStatus();
    }
    return absl::InternalError(
        absl::StrCat(user, ": value '", stages.value(id).name, "' is read before it is written"));
  };
  for (const Stage& stage : stages.stages) {
    if (stage.removed) continue;
    RETURN_IF_ERROR(CheckStage(stage, stages));
    for (ValueId operand : stage.operands) {
      RETURN_IF_ERROR(check_written(operand, stage.label));
    }
    for (ValueId output : stage.outputs) written[static_cast<size_t>(stages.Owner(output))] = true;
  }
  for (ValueId output : stages.outputs) RETURN_IF_ERROR(check_written(output, "output"));
  return absl::OkStatus();
}

}  // namespace stampmill
