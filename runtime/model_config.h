// ModelConfig: how a model is to be served: Triton's config.pbtxt (or its JSON form), completed
// from the compiled model and checked against it, and the numbers that the scheduler takes from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/program/program.h"
#include "proto/model_config.pb.h"

namespace stampmill {

// What happens to requests that wait in one priority level.
struct QueuePolicy {
  bool delay_on_timeout = false;        // timeout_action DELAY: runs after all others; else REJECT
  uint64_t default_timeout_us = 0;      // 0: none
  bool allow_timeout_override = false;  // a request's own timeout may replace the default
  uint32_t max_queue_size = 0;          // 0: no bound but the daemon's
};

// The numbers of one model's scheduler.
struct BatchingPolicy {
  int64_t max_batch_size = 1;            // rows of one step; 1 when the model does not batch
  bool dynamic = false;                  // requests may be put together
  std::vector<int64_t> preferred_sizes;  // ascending
  int64_t max_queue_delay_nanos = 0;
  bool preserve_ordering = false;                     // answers in order of arrival
  int32_t default_level = 0;                          // of requests with priority 0
  std::vector<QueuePolicy> levels = {QueuePolicy{}};  // 0 is the highest priority
};

// Immutable once completed.
class ModelConfig {
 public:
  ModelConfig() = default;  // says nothing: all comes from the model

  // INVALID_ARGUMENT with line and column. `source` names the text in messages.
  static absl::StatusOr<ModelConfig> FromText(absl::string_view text, absl::string_view source);
  static absl::StatusOr<ModelConfig> FromJson(absl::string_view json, absl::string_view source);

  // Fills what is missing from the model and checks the rest against it: names, dtypes, dims,
  // max_batch_size only for a program proved batchable (FAILED_PRECONDITION says why it is not).
  // What Stampmill does not do (ensembles, sequence batching, decoupled, ...) is UNIMPLEMENTED,
  // naming the field. Missing scheduling: batchable models get max_batch_size 32 and dynamic
  // batching without delay.
  absl::Status Complete(absl::string_view name, const Program& program);

  // Before Complete. UNIMPLEMENTED for what Stampmill does not do.
  absl::Status CheckSupported() const;
  // Before Complete: fields that are set, for other servers, and have no effect here.
  std::vector<std::string> IgnoredFields() const;

  // Before Complete: which versions are served; needs no program.
  const inference::ModelVersionPolicy& version_policy() const { return proto_.version_policy(); }
  // The model's file in a version's folder; empty: model.onnx.
  const std::string& default_model_filename() const { return proto_.default_model_filename(); }
  const std::string& name() const { return proto_.name(); }

  // After Complete.
  const inference::ModelConfig& proto() const { return proto_; }  // for the ModelConfig calls
  const BatchingPolicy& batching() const { return batching_; }
  // 0: the first dim of the model's tensors is not a batch.
  int64_t max_batch_size() const { return proto_.max_batch_size(); }

 private:
  absl::Status CompleteBatching(const Program& program);
  absl::Status CompleteTensors(const Program& program);
  absl::Status ReadBatchingPolicy();

  inference::ModelConfig proto_;
  bool max_batch_size_given_ = false;  // also when given as 0
  BatchingPolicy batching_;
};

}  // namespace stampmill
