// Any bytes are refused or parse to a program that keeps its rules and comes out as it went in.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "compiler/program/program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const absl::StatusOr<Program> program = Program::Parse(bytes);
  if (!program.ok()) return 0;
  CHECK_OK(program->Verify());
  CHECK(program->Serialize() == AsText(bytes));
  std::vector<int64_t> sizes(program->buffers.size(), 100), offsets(program->buffers.size());
  MemoryPlanScratch scratch;
  CHECK_GE(PlanMemory(*program, sizes, offsets, scratch), 0);
  return 0;
}
