// BatchBinding: puts the tensors of the requests of one step where the step reads and writes them.
//
// A request alone is bound in place: its inputs are read where they lie, its outputs written where
// they go, and the daemon copies nothing (but outputs that a client puts over its inputs). Requests
// together are gathered into staging memory by copies; their outputs are written once into one
// lease for all and handed out as slices of it, or copied on where a client wants them in memory of
// its own.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "runtime/model_step.h"
#include "runtime/request.h"
#include "runtime/tensor_pool.h"

namespace stampmill {

// Owned by the engine thread. Allocates only when made.
class BatchBinding {
 public:
  // Borrowed, outlive it.
  BatchBinding(const Model* model, ModelStep* step, TensorPool* pool);

  // Begins a step for `batch` and binds everything. Outputs of each request get dtype, shape,
  // lease and bytes: of those with a late size what they may take at most. A failure is the whole
  // batch's; one that is a single request's own (its target is too small) is set as that request's
  // status and the others run.
  absl::Status Bind(std::span<Request* const> batch);
  // When the step has run: what was not known before of outputs whose sizes depend on data.
  absl::Status FinishOutputs(Request& request);
  // Bind failed because others hold the pool's memory: later it may not.
  bool pool_is_full() const { return pool_is_full_; }

 private:
  struct OutputPlace {
    bool wanted_in_pool = false;
    bool direct = false;  // the step writes the client's memory
    Lease lease;          // for the whole batch
    BufferRef whole;      // that the step writes
  };
  absl::Status BeginStep(std::span<Request* const> batch);
  void DescribeOutputs(std::span<Request* const> batch);
  absl::Status PlaceOutputs(std::span<Request* const> batch);
  void BindInputs(std::span<Request* const> batch);
  void HandOutOutputs(std::span<Request* const> batch);

  const Model& model_;
  ModelStep& step_;
  TensorPool& pool_;
  int64_t rows_ = 0;
  bool pool_is_full_ = false;
  std::vector<TensorShape> shapes_;  // of the batch's inputs
  std::vector<const TensorShape*> shape_pointers_;
  std::vector<std::span<const std::byte>> contents_;
  std::vector<OutputPlace> outputs_;
};

}  // namespace stampmill
