// ModelStep: binds one step of a model to command lists: the shapes of its inputs to dim values,
// sizes, offsets of temporaries and launches, and the addresses of inputs and outputs to their
// places in them.
//
// What follows from the shapes alone, and from the elements of inputs that the program follows, is
// a plan, prepared once for such a signature and kept while it is among the lately used; a new
// signature reuses the oldest. Binding a step of a known signature writes only addresses. Plans,
// the arena of temporaries and the staging memory grow when a signature needs more than any before.
//
// A program with long repeats, or with reads, is submitted in pieces: the next one is made when the
// one before has run, so that a loop needs no memory for its iterations and ends when nobody waits
// for it any more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/program/program.h"
#include "devices/device.h"
#include "runtime/model.h"
#include "runtime/program_cursor.h"

namespace stampmill {

// What memory of a client's that cannot hold an output is refused with.
absl::Status OutputTargetTooSmall(absl::string_view output, uint64_t got_bytes,
                                  uint64_t want_bytes);

// Owned by one thread. One step at a time: between Begin and the end of the step's work nothing
// else may be begun.
class ModelStep {
 public:
  // Called before memory is taken with the bytes that the step then holds altogether.
  using ReserveFunction = std::function<absl::Status(uint64_t bytes)>;

  // `model` and its device are borrowed. `copies_max`: copies before and after the program in one
  // step at most.
  static absl::StatusOr<std::unique_ptr<ModelStep>> Create(const Model* model, size_t copies_max,
                                                           ReserveFunction reserve);
  ~ModelStep();

  // Chooses or prepares the plan for inputs of these shapes and contents, in the model's order;
  // what contents must be given Model::HasValueSymbols says. INVALID_ARGUMENT for shapes that do
  // not fit or fail one of the program's checks, RESOURCE_EXHAUSTED for memory.
  absl::Status Begin(std::span<const TensorShape* const> shapes,
                     std::span<const std::span<const std::byte>> contents = {});

  // After Begin.
  uint64_t input_bytes(int32_t input) const;
  // What an output is written in: its size, or, where that is known only from data, the most that
  // it may be.
  uint64_t output_bytes(int32_t output) const;
  bool has_late_size(int32_t output) const { return late_outputs_[static_cast<size_t>(output)]; }
  // Of an output with a late size: once the step has run.
  TensorShape output_shape(int32_t output) const;
  // Its size once the step has run. OUT_OF_RANGE where that is no size, or more than output_bytes.
  absl::StatusOr<uint64_t> final_output_bytes(int32_t output) const;
  // All of the program's dim places.
  std::span<const int64_t> dim_values() const;
  // REQUIRES: size_bytes is input_bytes or output_bytes of it.
  void BindInput(int32_t input, BufferRef bytes);
  void BindOutput(int32_t output, BufferRef bytes);
  // Memory of this step's own, good until the next Begin, for batches to be gathered in and outputs
  // that nobody wants. ReserveStaging must have grown it to the sum of the pieces' StagingBytes
  // before the first piece is taken.
  static uint64_t StagingBytes(uint64_t size_bytes);
  absl::Status ReserveStaging(uint64_t size_bytes);
  BufferRef TakeStaging(uint64_t size_bytes);
  // Gives the staging memory back. REQUIRES: no work is in flight.
  void ReleaseStaging();
  // Copies that run before and after the program. REQUIRES: at most copies_max.
  void CopyBefore(BufferRef source, BufferRef target);
  void CopyAfter(BufferRef source, BufferRef target);
  // The same for an output with a late size, as much as there is then; a target that is too small
  // for that fails the step.
  void CopyOutputAfter(int32_t output, BufferRef source, BufferRef target);

  // Gives copies, program and copies to `queue`, then a signal of `signal_value`; of a program that
  // runs in pieces the first. All inputs and outputs are bound.
  absl::Status Submit(Queue& queue, uint64_t signal_value);
  // Pieces are left to be submitted by Continue, once the signal of the one before has passed.
  bool unfinished() const { return unfinished_; }
  absl::Status Continue(Queue& queue, uint64_t signal_value);
  // Gives up what is left of a step.
  void Abandon() { unfinished_ = false; }
  // Submit and Continue to the end; blocks.
  absl::Status Run(Queue& queue, uint64_t& signal_value);
  // The same command by command, for profiles: calls `before` and `after` with the index of each of
  // the program's commands, in a repeat each time.
  absl::Status SubmitEach(Queue& queue, uint64_t& signal_value,
                          const std::function<void(size_t command)>& before,
                          const std::function<void(size_t command)>& after);

  uint64_t memory_bytes() const { return arena_.size_bytes() + staging_.size_bytes(); }
  int64_t bytes_copied() const { return bytes_copied_; }  // by this step's copies
  // Plans prepared since it was made; stays the same while signatures repeat.
  int64_t plans_prepared() const { return plans_prepared_; }

 private:
  struct Plan;
  struct Places;
  struct Commands;
  // Where the address of an input, an output or a temporary stands in a list of commands.
  struct Place {
    int32_t command;
    int32_t ref;      // index into refs; kCopySource, kTarget
    uint64_t offset;  // from the buffer's begin
  };

  explicit ModelStep(const Model* model);
  absl::Status PreparePlan(Plan& plan);
  absl::Status EvaluatePlan(Plan& plan);
  absl::Status CheckValues(const Plan& plan, int32_t failed_place) const;
  // " (H = 33)": the symbols that the text names and their values.
  std::string ValuesOfSymbols(const Plan& plan, absl::string_view text) const;
  absl::Status SizeBuffers(Plan& plan);
  // Which buffers the commands use that may run.
  void FindUsedBuffers(const Plan& plan);
  // All commands of the program, if they are few enough to be kept.
  absl::Status BuildWhole(Plan& plan);
  // Appends command `c` of the program.
  absl::Status Append(const Plan& plan, int32_t c, Commands& commands, Places* places) const;
  absl::StatusOr<LaunchCommand> MakeLaunch(const Plan& plan, int32_t c, Commands& commands,
                                           Places* places) const;
  absl::StatusOr<BufferRef> RefOf(const Plan& plan, const ProgramCommand& command, size_t i) const;
  // Notes where the address of the command that is being appended to the plan's stands.
  void Note(const Plan& plan, const ProgramCommand& command, size_t i, int32_t ref, BufferRef made,
            Places& places) const;
  BufferRef BufferAt(const Plan& plan, int32_t buffer) const;
  absl::Status SubmitPiece(Queue& queue, uint64_t signal_value);
  absl::Status FillPiece();
  absl::Status FinishRead();
  // Late sizes of the copies after the program.
  absl::Status SizeLateCopies();
  absl::StatusOr<uint64_t> LateBytes(const Plan& plan, int32_t output) const;
  void RebaseArena(Plan& plan);
  void BindBuffer(int32_t buffer, BufferRef bytes);
  absl::Status Grow(Buffer& buffer, uint64_t size_bytes);
  uint64_t BytesOf(int32_t buffer) const;

  const Model& model_;
  ReserveFunction reserve_;
  std::vector<Plan> plans_;
  Plan* current_ = nullptr;
  uint64_t uses_ = 0;
  std::vector<int64_t> symbol_values_;  // of the step being begun
  std::vector<BufferRef> bound_;        // by buffer; inputs and outputs only
  std::vector<uint8_t> used_;           // by buffer
  LateDims late_;
  ProgramCursor cursor_;
  std::unique_ptr<Commands> piece_;  // null unless the program has regions or reads
  bool unfinished_ = false;
  int32_t pending_read_ = -1;  // the command that the piece in flight ends before
  int32_t held_ = -1;          // the next command, which the last piece had no room for
  MemoryPlanScratch plan_scratch_;
  Buffer arena_, staging_;
  uint64_t staging_used_ = 0;
  std::vector<Command> copies_before_, copies_after_;
  struct LateCopy {
    size_t copy;  // of copies_after_
    int32_t output;
  };
  std::vector<LateCopy> late_copies_;
  std::vector<bool> late_outputs_;  // by output
  size_t copies_max_ = 0;
  int64_t bytes_copied_ = 0;
  int64_t plans_prepared_ = 0;
};

}  // namespace stampmill
