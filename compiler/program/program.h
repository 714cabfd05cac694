// Program: a compiled model as data: what the runtime needs to serve it, and nothing of the
// compiler. Written by the compile worker, mapped and read at every start; no importer, pass or
// LLVM runs then.
//
// Commands run one after the other, but for regions of them that run under a condition or several
// times; what the host must know to go on is read from a buffer on the way.
//
// A program is a list of segments, each on one device kind, of command templates whose buffers,
// dims and counts are indices into tables; dims are evaluated once a step from the shapes of the
// bound inputs (graph/dim.h). Buffers are: inputs, outputs, weights (ranges of the packed weights
// file) and temporaries, whose lifetimes are command ranges; offsets of temporaries are planned per
// shape signature into arrays sized at load.
//
// The byte table is in program.cc beside the reader and writer; kProgramVersion changes with it.
// Reading never trusts the bytes: every index, count and size is checked (DATA_LOSS).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/hash.h"
#include "graph/dim.h"
#include "graph/dtype.h"

namespace stampmill {

inline constexpr uint32_t kProgramVersion = 4;

// A dim of an interface tensor: a fixed value or a place in the dim table.
struct ProgramDim {
  int64_t fixed = -1;  // >= 0: fixed
  int32_t place = -1;  // else the index into dim values; for inputs always a symbol's place
};

struct ProgramTensor {
  std::string name;
  DType dtype = DType::kInvalid;
  std::vector<ProgramDim> dims;
  int32_t buffer = -1;
};

struct ProgramBuffer {
  enum class Kind : uint8_t { kInput, kOutput, kWeight, kTemporary };
  Kind kind = Kind::kTemporary;
  int32_t size_place = -1;     // dim place of its size in bytes (kWeight: -1)
  int32_t index = -1;          // kInput, kOutput: position in the list
  uint64_t weight_offset = 0;  // kWeight: range of the packed weights
  uint64_t weight_size = 0;
  int32_t first_command = 0;  // kTemporary: lifetime, inclusive, in command numbers over all
  int32_t last_command = 0;   //   segments
};

struct ProgramCommand {
  // kRead waits for all commands before it and makes an element of a buffer a symbol's value.
  enum class Kind : uint8_t { kCopy, kFill, kLaunch, kRead };
  Kind kind = Kind::kLaunch;
  int32_t artifact = -1;         // kLaunch: index into artifacts
  std::string entry;             //   entry name in it
  std::vector<int32_t> buffers;  // kLaunch: parameters; kCopy: source, target; kFill: target;
                                 //   kRead: source
  // Dim places of the byte offsets at which the buffers begin for this command, -1: 0. Empty: all
  // are 0. A kCopy copies as much as its target then has.
  std::vector<int32_t> offsets;
  std::vector<int32_t> dims;   // kLaunch: dim places, in parameter order
  int32_t tasks_place = -1;    // kLaunch: dim place of the task count
  int32_t scratch_place = -1;  //   and of its scratch bytes (-1: none)
  int32_t flops_place = -1;    //   floating-point operations, for estimates and profiles
  int32_t bytes_place = -1;    //   bytes read and written
  uint8_t fill_value = 0;
  int32_t symbol = -1;            // kRead: the symbol, a late one
  int32_t limit_place = -1;       //   its greatest value: what is read is cut to [0, limit]
  DType dtype = DType::kInvalid;  //   of the element: an integer or bool
  std::string label;              // which operators it computes, for people
};

struct ProgramSegment {
  std::string device_kind;  // "cpu"
  int32_t first_command = 0;
  int32_t command_count = 0;
};

// Commands that run under a condition or several times: those of
// [first_command, first_command + command_count). Regions lie within each other or apart; a region
// comes behind those it lies in.
struct ProgramRegion {
  enum class Kind : uint8_t { kBranch, kRepeat };
  Kind kind = Kind::kBranch;
  int32_t first_command = 0;
  int32_t command_count = 0;   // > 0
  int32_t count_place = -1;    // kBranch: they run if it is > 0; kRepeat: so many times
  int32_t iteration = -1;      // kRepeat: the late symbol that numbers the iterations, from 0
  int32_t proceed_place = -1;  // kRepeat: no further iteration after one that leaves it <= 0; or -1
  int32_t trips = -1;          // kRepeat: the late symbol that says how many there were; or -1
};

// How deep regions may lie within each other.
inline constexpr size_t kRegionDepthMax = 64;

// An input that the graph passes to an output unchanged, or an output that is a weight or shares
// another's bytes, is a kCopy command.
struct Program {
  std::string model_name;
  std::string target;  // a target's text (devices/target.h)
  // By name; the first dim places. First those of a request, from its inputs' shapes and contents;
  // then the late ones, which regions and reads set on the way.
  std::vector<std::string> symbols;
  std::vector<DimTable::Instruction> dims;
  // Places that must hold for the program to be right for a request: `places[i] == 0` fails it with
  // `messages[i]` (for instance "dims 'H' and 'W' of inputs a, b: must be equal").
  struct Check {
    int32_t place = -1;  // value must be nonzero
    std::string message;
  };
  std::vector<Check> checks;
  // Inputs whose elements an operator reads at: a request with one outside of [-limit, limit - 1]
  // is refused, naming `reader`. At most one for each input, ascending.
  struct IndexBound {
    int32_t input = -1;
    int64_t limit = 0;
    std::string reader;
  };
  std::vector<IndexBound> index_bounds;
  // Symbols that have the value of an element of an integer or bool input.
  struct ValueSymbol {
    int32_t symbol = -1;  // ascending, one after the other
    int32_t input = -1;
    int64_t element = 0;
  };
  std::vector<ValueSymbol> value_symbols;
  std::vector<ProgramTensor> inputs;
  // How many of the last inputs are state: memory that the commands also write and whose contents
  // the next run needs.
  int32_t states = 0;
  std::vector<ProgramTensor> outputs;
  std::vector<ProgramBuffer> buffers;
  std::vector<Digest> artifacts;  // cache objects
  Digest weights;                 // cache object; zero digest: no weights
  uint64_t weights_size = 0;
  std::vector<ProgramSegment> segments;
  std::vector<ProgramCommand> commands;
  std::vector<ProgramRegion> regions;
  // Batching one-shot requests along dim 0 of every input and output is sound; the
  // symbol that is then the batch. Empty: not proved.
  std::string batch_symbol;
  std::string batch_reason;  // why not, for `inspect` and logs

  std::string Serialize() const;
  // DATA_LOSS says what is wrong.
  static absl::StatusOr<Program> Parse(std::span<const std::byte> bytes);
  // Index ranges, sizes, order; what Parse checks. For programs just built.
  absl::Status Verify() const;
  // How many symbols a request sets.
  size_t RequestSymbols() const;
};

// Byte offsets of temporaries in one arena, by first fit over lifetimes in order of size (the
// classic strip packing of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
// Inference", 2020). `sizes[i]` is buffer i's size; offsets[i] is written for temporaries, a
// multiple of
// 64. Returns the arena size, or -1 when a size is negative or the sum is past 2^61. Allocates
// nothing beyond `scratch`, which keeps its capacity between calls. REQUIRES: both spans have an
// element for each buffer.
struct MemoryPlanScratch {
  std::vector<int32_t> order;
  std::vector<int32_t> placed;
};
int64_t PlanMemory(const Program& program, std::span<const int64_t> sizes,
                   std::span<int64_t> offsets, MemoryPlanScratch& scratch);

}  // namespace stampmill
