// Reading keeps the file's own words; completing fills in what they leave out. Whether
// max_batch_size was written at all matters (0 is a choice, nothing is a question), which proto3
// messages do not tell: the parsers' own records do.
#include "runtime/model_config.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "runtime/limits.h"

namespace stampmill {
namespace {

// What a configuration of nested messages needs, and no more: the parsers recurse.
constexpr int kNestingMax = 32;

constexpr int64_t kDefaultMaxBatchSize = 32;
constexpr char kDefaultModelFilename[] = "model.onnx";

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!text_.empty()) return;
    text_ = line < 0 ? message
                     : absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

inference::DataType ToProto(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return inference::TYPE_BOOL;
    case DType::kI8:
      return inference::TYPE_INT8;
    case DType::kI16:
      return inference::TYPE_INT16;
    case DType::kI32:
      return inference::TYPE_INT32;
    case DType::kI64:
      return inference::TYPE_INT64;
    case DType::kU8:
      return inference::TYPE_UINT8;
    case DType::kU16:
      return inference::TYPE_UINT16;
    case DType::kU32:
      return inference::TYPE_UINT32;
    case DType::kU64:
      return inference::TYPE_UINT64;
    case DType::kF16:
      return inference::TYPE_FP16;
    case DType::kBF16:
      return inference::TYPE_BF16;
    case DType::kF32:
      return inference::TYPE_FP32;
    case DType::kF64:
      return inference::TYPE_FP64;
    case DType::kInvalid:
      break;
  }
  return inference::TYPE_INVALID;
}

template <typename Range>
std::string DimsText(const Range& dims) {
  return absl::StrCat("[", absl::StrJoin(dims.begin(), dims.end(), ","), "]");
}

absl::Status CheckSize(absl::string_view text, absl::string_view source) {
  if (text.size() <= kConfigFileBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(source, ": got ", text.size(), " bytes, limit ", kConfigFileBytesMax));
}

// The dims of a model's tensor, without the batch when `batched`.
std::vector<int64_t> DimsOf(const ProgramTensor& tensor, bool batched) {
  std::vector<int64_t> dims;
  for (const ProgramDim& dim : tensor.dims) dims.push_back(dim.fixed >= 0 ? dim.fixed : -1);
  if (batched && !dims.empty()) dims.erase(dims.begin());
  return dims;
}

// `client` and `model` hold the same elements: as many open dims, the same product of the others.
template <typename A, typename B>
bool ReshapeFits(const A& client, const B& model) {
  const auto summary = [](const auto& dims) {
    int64_t open = 0;
    std::optional<int64_t> product = 1;
    for (const int64_t dim : dims) {
      if (dim < 0) {
        ++open;
      } else if (dim == 0) {
        product = 0;
      } else if (product.has_value()) {
        product = *product > kTensorBytesMax / dim ? std::nullopt : std::optional(*product * dim);
      }
    }
    return std::pair(open, product);
  };
  return summary(client) == summary(model) && summary(client).second.has_value();
}

// Completes one configured tensor from the model's, or says how they differ.
template <typename Configured>
absl::Status CompleteTensor(const ProgramTensor& tensor, bool batched, Configured& configured) {
  const auto error = [&](const auto&... words) {
    return absl::InvalidArgumentError(
        absl::StrCat("configuration of tensor '", tensor.name, "': ", words...));
  };
  const inference::DataType dtype = ToProto(tensor.dtype);
  if (configured.data_type() == inference::TYPE_INVALID) configured.set_data_type(dtype);
  if (configured.data_type() != dtype) {
    return error("data_type: got ", inference::DataType_Name(configured.data_type()),
                 ", the model has ", inference::DataType_Name(dtype));
  }
  const std::vector<int64_t> dims = DimsOf(tensor, batched);
  if (configured.dims().empty() && !configured.has_reshape()) {
    configured.mutable_dims()->Add(dims.begin(), dims.end());
  }
  for (const int64_t dim : configured.dims()) {
    if (dim < -1) return error("dims: got ", DimsText(configured.dims()), ", limit -1");
  }
  if (configured.dims_size() >= kTensorRankMax) {
    return error("dims: got ", configured.dims_size(), " dims, limit ", kTensorRankMax - 1);
  }
  if (configured.has_reshape() && !ReshapeFits(configured.dims(), configured.reshape().shape())) {
    return error("reshape: dims ", DimsText(configured.dims()), " and shape ",
                 DimsText(configured.reshape().shape()), " have different sizes");
  }
  const auto& seen_by_model =
      configured.has_reshape() ? configured.reshape().shape() : configured.dims();
  bool fits = static_cast<size_t>(seen_by_model.size()) == dims.size();
  for (int i = 0; fits && i < seen_by_model.size(); ++i) {
    const int64_t of_model = dims[static_cast<size_t>(i)];
    fits = seen_by_model[i] == of_model || seen_by_model[i] == -1 || of_model == -1;
  }
  if (!fits) {
    return error("dims: got ", DimsText(seen_by_model), ", the model has ", DimsText(dims),
                 batched ? " after the batch" : "");
  }
  return absl::OkStatus();
}

template <typename Repeated>
absl::Status CompleteList(const std::vector<ProgramTensor>& tensors, bool batched, const char* what,
                          Repeated& configured) {
  std::vector<bool> seen(tensors.size(), false);
  for (auto& entry : configured) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const ProgramTensor& t) { return t.name == entry.name(); });
    if (found == tensors.end()) {
      std::vector<std::string> names;
      for (const ProgramTensor& tensor : tensors) names.push_back(tensor.name);
      return absl::InvalidArgumentError(
          absl::StrCat("configuration: unexpected ", what, " '", entry.name(),
                       "', the model has: ", absl::StrJoin(names, ", ")));
    }
    const auto index = static_cast<size_t>(found - tensors.begin());
    if (seen[index]) {
      return absl::InvalidArgumentError(
          absl::StrCat("configuration: ", what, " '", entry.name(), "' appears more than once"));
    }
    seen[index] = true;
    RETURN_IF_ERROR(CompleteTensor(*found, batched, entry));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (seen[i]) continue;
    auto* const added = configured.Add();
    added->set_name(tensors[i].name);
    RETURN_IF_ERROR(CompleteTensor(tensors[i], batched, *added));
  }
  return absl::OkStatus();
}

QueuePolicy ReadQueuePolicy(const inference::ModelQueuePolicy& policy) {
  return {.delay_on_timeout = policy.timeout_action() == inference::ModelQueuePolicy::DELAY,
          .default_timeout_us = policy.default_timeout_microseconds(),
          .allow_timeout_override = policy.allow_timeout_override(),
          .max_queue_size = policy.max_queue_size()};
}

}  // namespace

absl::StatusOr<ModelConfig> ModelConfig::FromText(absl::string_view text,
                                                  absl::string_view source) {
  RETURN_IF_ERROR(CheckSize(text, source));
  ModelConfig config;
  FirstError error;
  google::protobuf::TextFormat::ParseInfoTree locations;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&locations);
  parser.SetRecursionLimit(kNestingMax);
  if (!parser.ParseFromString(std::string(text), &config.proto_)) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": ", error.text()));
  }
  const auto* const field = inference::ModelConfig::descriptor()->FindFieldByNumber(
      inference::ModelConfig::kMaxBatchSizeFieldNumber);
  config.max_batch_size_given_ = locations.GetLocation(field, -1).line >= 0;
  return config;
}

absl::StatusOr<ModelConfig> ModelConfig::FromJson(absl::string_view json,
                                                  absl::string_view source) {
  RETURN_IF_ERROR(CheckSize(json, source));
  ModelConfig config;
  const std::string text(json);
  google::protobuf::Struct fields;
  auto status = google::protobuf::util::JsonStringToMessage(text, &fields);
  if (status.ok()) status = google::protobuf::util::JsonStringToMessage(text, &config.proto_);
  if (!status.ok()) {
    // The first line says what; those after it draw where.
    const std::string message = status.message().as_string();
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": ", message.substr(0, message.find('\n'))));
  }
  config.max_batch_size_given_ =
      fields.fields().contains("max_batch_size") || fields.fields().contains("maxBatchSize");
  return config;
}

absl::Status ModelConfig::Complete(absl::string_view name, const Program& program) {
  RETURN_IF_ERROR(CheckSupported());
  if (proto_.name().empty()) proto_.set_name(std::string(name));
  if (name != proto_.name()) {
    return absl::InvalidArgumentError(absl::StrCat("configuration: name: got '", proto_.name(),
                                                   "', the model is called '", name, "'"));
  }
  if (proto_.platform().empty()) proto_.set_platform("stampmill_onnx");
  if (proto_.backend().empty()) proto_.set_backend("stampmill");
  if (proto_.default_model_filename().empty()) {
    proto_.set_default_model_filename(kDefaultModelFilename);
  }
  if (proto_.version_policy().policy_choice_case() ==
      inference::ModelVersionPolicy::POLICY_CHOICE_NOT_SET) {
    proto_.mutable_version_policy()->mutable_latest()->set_num_versions(1);
  }
  RETURN_IF_ERROR(CompleteBatching(program));
  RETURN_IF_ERROR(CompleteTensors(program));
  return ReadBatchingPolicy();
}

absl::Status ModelConfig::CheckSupported() const {
  const auto refuse = [](absl::string_view field, absl::string_view what = "") {
    return absl::UnimplementedError(
        absl::StrCat("configuration: ", field, " is not supported", what));
  };
  if (proto_.has_ensemble_scheduling()) return refuse("ensemble_scheduling");
  if (proto_.has_sequence_batching()) return refuse("sequence_batching");
  if (proto_.model_transaction_policy().decoupled()) return refuse("decoupled");
  if (proto_.response_cache().enable()) return refuse("response_cache");
  if (proto_.batch_input_size() > 0) return refuse("batch_input");
  if (proto_.batch_output_size() > 0) return refuse("batch_output");
  if (proto_.model_repository_agents().agents_size() > 0) return refuse("model_repository_agents");
  if (proto_.model_operations().op_library_filename_size() > 0) return refuse("model_operations");
  const std::string& platform = proto_.platform();
  if (!platform.empty() && platform != "onnxruntime_onnx" && platform != "stampmill_onnx") {
    return refuse("platform", absl::StrCat(": got '", platform, "', limit: onnxruntime_onnx"));
  }
  const std::string& backend = proto_.backend();
  if (!backend.empty() && backend != "onnxruntime" && backend != "stampmill") {
    return refuse("backend", absl::StrCat(": got '", backend, "', limit: onnxruntime, stampmill"));
  }
  for (const inference::ModelInstanceGroup& group : proto_.instance_group()) {
    if (group.kind() == inference::ModelInstanceGroup::KIND_GPU || group.gpus_size() > 0) {
      return refuse(
          "instance_group",
          ": got KIND_GPU, this device is a cpu: take the group out or use KIND_AUTO or KIND_CPU");
    }
  }
  for (const inference::ModelInput& input : proto_.input()) {
    const std::string where = absl::StrCat(": input '", input.name(), "'");
    if (input.is_shape_tensor()) return refuse("is_shape_tensor", where);
    if (input.allow_ragged_batch()) return refuse("allow_ragged_batch", where);
    if (input.optional()) return refuse("optional", where);
    if (input.is_non_linear_format_io()) return refuse("is_non_linear_format_io", where);
  }
  for (const inference::ModelOutput& output : proto_.output()) {
    const std::string where = absl::StrCat(": output '", output.name(), "'");
    if (output.is_shape_tensor()) return refuse("is_shape_tensor", where);
    if (output.is_non_linear_format_io()) return refuse("is_non_linear_format_io", where);
  }
  for (const inference::ModelWarmup& sample : proto_.model_warmup()) {
    for (const auto& [input, data] : sample.inputs()) {
      if (data.has_input_data_file()) {
        return refuse("model_warmup.inputs.input_data_file",
                      absl::StrCat(": '", sample.name(), "', input '", input, "'"));
      }
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> ModelConfig::IgnoredFields() const {
  std::vector<std::string> fields;
  if (std::ranges::any_of(proto_.instance_group(), [](const inference::ModelInstanceGroup& group) {
        return group.count() > 1;
      })) {
    fields.push_back("instance_group.count");
  }
  if (proto_.has_optimization()) fields.push_back("optimization");
  if (proto_.parameters_size() > 0) fields.push_back("parameters");
  if (proto_.cc_model_filenames_size() > 0) fields.push_back("cc_model_filenames");
  if (proto_.metric_tags_size() > 0) fields.push_back("metric_tags");
  for (const inference::ModelOutput& output : proto_.output()) {
    if (output.label_filename().empty()) continue;
    fields.push_back("output.label_filename");
    break;
  }
  return fields;
}

absl::Status ModelConfig::CompleteBatching(const Program& program) {
  if (proto_.max_batch_size() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("configuration: max_batch_size: got ", proto_.max_batch_size(), ", limit 0"));
  }
  const bool batchable = !program.batch_symbol.empty();
  if (proto_.max_batch_size() > 0 && !batchable) {
    return absl::FailedPreconditionError(
        absl::StrCat("configuration: max_batch_size: got ", proto_.max_batch_size(),
                     ", limit 0: the model cannot be batched: ", program.batch_reason));
  }
  if (!max_batch_size_given_ && batchable) {
    // Dims that name every dim of the model's tensor leave no room for a batch before them.
    bool dims_have_batch = false;
    for (const inference::ModelInput& input : proto_.input()) {
      const int rank = input.has_reshape() ? input.reshape().shape_size() : input.dims_size();
      for (const ProgramTensor& tensor : program.inputs) {
        if (tensor.name == input.name() && static_cast<size_t>(rank) == tensor.dims.size()) {
          dims_have_batch = true;
        }
      }
    }
    if (!dims_have_batch) proto_.set_max_batch_size(kDefaultMaxBatchSize);
  }
  if (proto_.max_batch_size() > 1 &&
      proto_.scheduling_choice_case() == inference::ModelConfig::SCHEDULING_CHOICE_NOT_SET) {
    proto_.mutable_dynamic_batching();
  }
  return absl::OkStatus();
}

absl::Status ModelConfig::CompleteTensors(const Program& program) {
  const bool batched = proto_.max_batch_size() > 0;
  RETURN_IF_ERROR(CompleteList(program.inputs, batched, "input", *proto_.mutable_input()));
  return CompleteList(program.outputs, batched, "output", *proto_.mutable_output());
}

absl::Status ModelConfig::ReadBatchingPolicy() {
  const auto error = [](absl::string_view field, const auto&... words) {
    return absl::InvalidArgumentError(
        absl::StrCat("configuration: dynamic_batching.", field, ": got ", words...));
  };
  BatchingPolicy policy;
  policy.max_batch_size = std::max<int64_t>(1, proto_.max_batch_size());
  if (!proto_.has_dynamic_batching()) {
    batching_ = std::move(policy);
    return absl::OkStatus();
  }
  const inference::ModelDynamicBatching& given = proto_.dynamic_batching();
  policy.dynamic = policy.max_batch_size > 1;
  policy.preserve_ordering = given.preserve_ordering();
  for (const int32_t size : given.preferred_batch_size()) {
    if (size < 1 || size > policy.max_batch_size) {
      return error("preferred_batch_size", size, ", limit 1 to ", policy.max_batch_size);
    }
    policy.preferred_sizes.push_back(size);
  }
  std::sort(policy.preferred_sizes.begin(), policy.preferred_sizes.end());
  constexpr uint64_t kDelayMaxUs = std::numeric_limits<int64_t>::max() / 1000;
  if (given.max_queue_delay_microseconds() > kDelayMaxUs) {
    return error("max_queue_delay_microseconds", given.max_queue_delay_microseconds(), ", limit ",
                 kDelayMaxUs);
  }
  policy.max_queue_delay_nanos = static_cast<int64_t>(given.max_queue_delay_microseconds()) * 1000;
  const uint64_t levels = given.priority_levels();
  if (levels > kPriorityLevelsMax) {
    return error("priority_levels", levels, ", limit ", kPriorityLevelsMax);
  }
  if (levels > 0 &&
      (given.default_priority_level() < 1 || given.default_priority_level() > levels)) {
    return error("default_priority_level", given.default_priority_level(), ", limit 1 to ", levels);
  }
  policy.default_level = levels == 0 ? 0 : static_cast<int32_t>(given.default_priority_level()) - 1;
  policy.levels.assign(std::max<uint64_t>(1, levels),
                       ReadQueuePolicy(given.default_queue_policy()));
  for (const auto& [level, level_policy] : given.priority_queue_policy()) {
    if (level < 1 || level > levels) {
      return error("priority_queue_policy", "key ", level, ", limit 1 to ", levels);
    }
    policy.levels[level - 1] = ReadQueuePolicy(level_policy);
  }
  batching_ = std::move(policy);
  return absl::OkStatus();
}

}  // namespace stampmill
