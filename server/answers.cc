#include "server/answers.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

// Only what works (perf_analyzer asks for statistics only where they are advertised).
constexpr absl::string_view kExtensions[] = {
    "model_repository",     "model_repository(unload_dependents)",
    "schedule_policy",      "model_configuration",
    "system_shared_memory", "binary_tensor_data",
    "parameters",           "statistics"};

void Fill(const DurationCount& from, inference::StatisticDuration* to) {
  to->set_count(from.count);
  to->set_ns(from.nanos);
}

void FillTensor(const ModelTensor& tensor, inference::ModelMetadataResponse::TensorMetadata* out) {
  out->set_name(tensor.name);
  const absl::string_view datatype = KServeName(tensor.dtype);
  out->set_datatype(std::string(datatype));
  for (int64_t dim : tensor.dims) out->add_shape(dim);
}

void FillStatistics(const ServedModel& model, inference::ModelStatistics* out) {
  const StatisticsSnapshot snapshot = model.statistics().Snapshot();
  out->set_name(model.name());
  out->set_version(absl::StrCat(model.version()));
  out->set_last_inference(snapshot.last_inference_ms);
  out->set_inference_count(snapshot.inference_count);
  out->set_execution_count(snapshot.execution_count);
  inference::InferStatistics* stats = out->mutable_inference_stats();
  Fill(snapshot.success, stats->mutable_success());
  Fill(snapshot.fail, stats->mutable_fail());
  Fill(snapshot.queue, stats->mutable_queue());
  Fill(snapshot.compute_input, stats->mutable_compute_input());
  Fill(snapshot.compute_infer, stats->mutable_compute_infer());
  Fill(snapshot.compute_output, stats->mutable_compute_output());
  stats->mutable_cache_hit();
  stats->mutable_cache_miss();
  for (const BatchStatistics& batch : snapshot.batches) {
    inference::InferBatchStatistics* entry = out->add_batch_stats();
    entry->set_batch_size(batch.batch_size);
    Fill(batch.compute_input, entry->mutable_compute_input());
    Fill(batch.compute_infer, entry->mutable_compute_infer());
    Fill(batch.compute_output, entry->mutable_compute_output());
  }
}

// The tensors of a language model, as Triton's vLLM backend has them; generate's fields are these.
struct LanguageTensor {
  const char* name;
  inference::DataType dtype;
  const char* datatype;
  int64_t dim;
  bool optional;
};
constexpr LanguageTensor kLanguageInputs[] = {
    {"text_input", inference::TYPE_STRING, "BYTES", 1, false},
    {"stream", inference::TYPE_BOOL, "BOOL", 1, true},
    {"sampling_parameters", inference::TYPE_STRING, "BYTES", 1, true},
    {"exclude_input_in_output", inference::TYPE_BOOL, "BOOL", 1, true}};
constexpr LanguageTensor kLanguageOutput = {"text_output", inference::TYPE_STRING, "BYTES", -1,
                                            false};
constexpr char kLanguagePlatform[] = "stampmill_language_model";

void FillTensor(const LanguageTensor& tensor,
                inference::ModelMetadataResponse::TensorMetadata* out) {
  out->set_name(tensor.name);
  out->set_datatype(tensor.datatype);
  out->add_shape(tensor.dim);
}

inference::ModelMetadataResponse LanguageMetadata(const LanguageModel& model) {
  inference::ModelMetadataResponse response;
  response.set_name(model.name());
  response.add_versions("1");
  response.set_platform(kLanguagePlatform);
  for (const LanguageTensor& tensor : kLanguageInputs) FillTensor(tensor, response.add_inputs());
  FillTensor(kLanguageOutput, response.add_outputs());
  return response;
}

inference::ModelConfigResponse LanguageConfiguration(const LanguageModel& model) {
  inference::ModelConfigResponse response;
  inference::ModelConfig& config = *response.mutable_config();
  config.set_name(model.name());
  config.set_platform(kLanguagePlatform);
  config.set_backend("stampmill");
  config.mutable_model_transaction_policy()->set_decoupled(true);
  for (const LanguageTensor& tensor : kLanguageInputs) {
    inference::ModelInput* input = config.add_input();
    input->set_name(tensor.name);
    input->set_data_type(tensor.dtype);
    input->add_dims(tensor.dim);
    input->set_optional(tensor.optional);
  }
  inference::ModelOutput* output = config.add_output();
  output->set_name(kLanguageOutput.name);
  output->set_data_type(kLanguageOutput.dtype);
  output->add_dims(kLanguageOutput.dim);
  return response;
}

}  // namespace

inference::ServerMetadataResponse ServerMetadata() {
  inference::ServerMetadataResponse response;
  response.set_name(kServerName);
  response.set_version(kServerVersion);
  for (absl::string_view extension : kExtensions) response.add_extensions(std::string(extension));
  return response;
}

absl::StatusOr<inference::ModelMetadataResponse> ModelMetadata(const Serving& serving,
                                                               absl::string_view model,
                                                               absl::string_view version) {
  ASSIGN_OR_RETURN(const int64_t number, ParseVersion(version));
  if (const LanguageModel* language = serving.FindLanguageModel(model, number)) {
    return LanguageMetadata(*language);
  }
  ASSIGN_OR_RETURN(const std::vector<ModelPin> pins, serving.repository().PinAll(model, number));
  inference::ModelMetadataResponse response;
  for (const ModelPin& pin : pins) response.add_versions(absl::StrCat(pin->version()));
  const ServedModel& newest = *pins.back();
  response.set_name(newest.name());
  response.set_platform(newest.config().proto().platform());
  for (const ModelTensor& tensor : newest.inputs()) {
    FillTensor(tensor, response.add_inputs());
  }
  for (const ModelTensor& tensor : newest.outputs()) {
    FillTensor(tensor, response.add_outputs());
  }
  return response;
}

absl::StatusOr<inference::ModelConfigResponse> ModelConfiguration(const Serving& serving,
                                                                  absl::string_view model,
                                                                  absl::string_view version) {
  ASSIGN_OR_RETURN(const int64_t number, ParseVersion(version));
  if (const LanguageModel* language = serving.FindLanguageModel(model, number)) {
    return LanguageConfiguration(*language);
  }
  ASSIGN_OR_RETURN(const ModelPin pin, serving.repository().Pin(model, number));
  inference::ModelConfigResponse response;
  *response.mutable_config() = pin->config().proto();
  return response;
}

absl::StatusOr<inference::ModelStatisticsResponse> ModelStatisticsOf(const Serving& serving,
                                                                     absl::string_view model,
                                                                     absl::string_view version) {
  ASSIGN_OR_RETURN(const int64_t number, ParseVersion(version));
  absl::StatusOr<std::vector<ModelPin>> pins = serving.repository().PinAll(model, number);
  if (absl::IsNotFound(pins.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat("requested model '", model, "' is not available"));
  }
  RETURN_IF_ERROR(pins.status());
  inference::ModelStatisticsResponse response;
  for (const ModelPin& pin : *pins) FillStatistics(*pin, response.add_model_stats());
  return response;
}

absl::StatusOr<bool> IsModelReady(const Serving& serving, absl::string_view model,
                                  absl::string_view version) {
  ASSIGN_OR_RETURN(const int64_t number, ParseVersion(version));
  if (serving.shutting_down()) return false;
  if (serving.FindLanguageModel(model, number) != nullptr) return true;
  return serving.repository().IsModelReady(std::string(model), number);
}

inference::RepositoryIndexResponse RepositoryIndex(const Serving& serving, bool ready_only) {
  inference::RepositoryIndexResponse response;
  for (const ModelIndexEntry& entry : serving.repository().Index(ready_only)) {
    auto* model = response.add_models();
    model->set_name(entry.name);
    model->set_version(entry.version);
    model->set_state(entry.state);
    model->set_reason(entry.reason);
  }
  for (const LanguageModel* language : serving.ListLanguageModels()) {
    auto* model = response.add_models();
    model->set_name(language->name());
    model->set_version("1");
    model->set_state("READY");
  }
  return response;
}

absl::StatusOr<inference::SystemSharedMemoryStatusResponse> SharedMemoryStatus(
    const Serving& serving, absl::string_view region) {
  ASSIGN_OR_RETURN(const std::vector<ClientRegionStatus> regions,
                   serving.pool().ClientRegions(region));
  inference::SystemSharedMemoryStatusResponse response;
  for (const ClientRegionStatus& status : regions) {
    auto& entry = (*response.mutable_regions())[status.name];
    entry.set_name(status.name);
    entry.set_key(status.key);
    entry.set_offset(status.offset);
    entry.set_byte_size(status.byte_size);
  }
  return response;
}

absl::Status CudaSharedMemoryUnsupported() {
  return absl::UnimplementedError("CUDA shared memory is not supported");
}
absl::Status TraceUnsupported() { return absl::UnimplementedError("tracing is not supported"); }
absl::Status LoggingUnsupported() {
  return absl::UnimplementedError("the logging extension is not supported");
}

}  // namespace stampmill
