// ModelStep: binds one step of a model to command lists: the shapes of its inputs to dim values,
// sizes, offsets of temporaries and launches, and the addresses of inputs and outputs to their
// places in them.
//
// What follows from shapes alone is a plan, prepared once for a shape signature and kept while it
// is among the lately used; all plans are allocated when the ModelStep is made, and a new signature
// reuses the oldest. Binding a step of a known signature writes only addresses. The arena of
// temporaries and the staging memory grow when a signature needs more than any before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/program/program.h"
#include "devices/device.h"
#include "runtime/model.h"

namespace stampmill {

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

  // Chooses or prepares the plan for inputs of these shapes, in the model's order. INVALID_ARGUMENT
  // for shapes that do not fit or fail one of the program's checks, RESOURCE_EXHAUSTED for memory.
  absl::Status Begin(std::span<const TensorShape* const> shapes);

  // After Begin.
  uint64_t input_bytes(int32_t input) const;
  uint64_t output_bytes(int32_t output) const;
  TensorShape output_shape(int32_t output) const;
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

  // Gives copies, program and copies to `queue`, then a signal of `signal_value`. All inputs and
  // outputs are bound.
  absl::Status Submit(Queue& queue, uint64_t signal_value);
  // The same command by command, for profiles: calls `ran` with the index of each of the program's
  // commands once it is done.
  absl::Status SubmitEach(Queue& queue, uint64_t& signal_value,
                          const std::function<void(size_t command)>& before,
                          const std::function<void(size_t command)>& after);

  uint64_t memory_bytes() const { return arena_.size_bytes() + staging_.size_bytes(); }
  int64_t bytes_copied() const { return bytes_copied_; }  // by this step's copies
  // Plans prepared since it was made; stays the same while signatures repeat.
  int64_t plans_prepared() const { return plans_prepared_; }

 private:
  struct Plan;
  // Where the address of an input or output stands in a plan.
  struct Place {
    int32_t command;
    int32_t ref;  // index into refs; kCopySource, kTarget
  };

  explicit ModelStep(const Model* model);
  void FindPlaces();
  absl::Status PreparePlan(Plan& plan);
  absl::Status CheckValues(const Plan& plan, int32_t failed_place) const;
  absl::Status BuildCommands(Plan& plan);
  BufferRef RefOf(const Plan& plan, int32_t buffer) const;
  void RebaseArena(Plan& plan);
  void BindBuffer(int32_t buffer, BufferRef bytes);
  absl::Status Grow(Buffer& buffer, uint64_t size_bytes);
  uint64_t BytesOf(int32_t buffer) const;

  const Model& model_;
  ReserveFunction reserve_;
  std::vector<Plan> plans_;
  Plan* current_ = nullptr;
  uint64_t uses_ = 0;
  std::vector<int64_t> symbol_values_;                       // of the step being begun
  std::vector<std::vector<Place>> places_;                   // by buffer; inputs and outputs only
  std::vector<std::pair<int32_t, Place>> temporary_places_;  // buffer and place
  size_t ref_count_ = 0, dim_count_ = 0;                     // of all launches
  MemoryPlanScratch plan_scratch_;
  Buffer arena_, staging_;
  uint64_t staging_used_ = 0;
  std::vector<Command> copies_before_, copies_after_;
  size_t copies_max_ = 0;
  int64_t bytes_copied_ = 0;
  int64_t plans_prepared_ = 0;
};

}  // namespace stampmill
