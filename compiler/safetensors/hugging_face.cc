// What differs from GGUF beside names: rows of queries and keys are in their own order (pairs of
// halves), Gemma's norms lack the 1 that files of GGUF have added, GPT-2's matrices are transposed,
// Llama 3's scaling of frequencies is four numbers instead of a list of divisors.
#include "compiler/safetensors/hugging_face.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "compiler/safetensors/reader.h"
#include "graph/tensor.h"

namespace stampmill {

namespace json = boost::json;

namespace {

constexpr uint64_t kConfigBytesMax = uint64_t{16} << 20;
constexpr double kHeadSizeMax = 1 << 16;
constexpr double kContextMax = 1 << 30;

// model_type to GGUF's name of the architecture.
constexpr std::pair<absl::string_view, absl::string_view> kTypes[] = {
    {"gemma", "gemma"},        {"gemma2", "gemma2"},      {"gemma3_text", "gemma3"},
    {"gpt2", "gpt2"},          {"granite", "granite"},    {"llama", "llama"},
    {"mistral", "mistral"},    {"mixtral", "llama"},      {"phi3", "phi3"},
    {"qwen2", "qwen2"},        {"qwen2_moe", "qwen2moe"}, {"qwen3", "qwen3"},
    {"qwen3_moe", "qwen3moe"}, {"smollm3", "smollm3"},    {"starcoder2", "starcoder2"},
};

// Numbers of config.json to facts.
constexpr std::pair<const char*, const char*> kFacts[] = {
    {"hidden_size", "embedding_length"},
    {"n_embd", "embedding_length"},
    {"num_hidden_layers", "block_count"},
    {"n_layer", "block_count"},
    {"intermediate_size", "feed_forward_length"},
    {"max_position_embeddings", "context_length"},
    {"n_positions", "context_length"},
    {"num_attention_heads", "attention.head_count"},
    {"n_head", "attention.head_count"},
    {"num_key_value_heads", "attention.head_count_kv"},
    {"head_dim", "attention.key_length"},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
    {"layer_norm_epsilon", "attention.layer_norm_epsilon"},
    {"norm_epsilon", "attention.layer_norm_epsilon"},
    {"rope_theta", "rope.freq_base"},
    {"rope_local_base_freq", "rope.local.freq_base"},
    {"sliding_window", "attention.sliding_window"},
    {"sliding_window_pattern", "attention.sliding_window_pattern"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"embedding_multiplier", "embedding_scale"},
    {"residual_multiplier", "residual_scale"},
    {"attention_multiplier", "attention.scale"},
    {"logits_scaling", "logit_scale"},
    {"num_local_experts", "expert_count"},
    {"num_experts", "expert_count"},
    {"num_experts_per_tok", "expert_used_count"},
};

// Names within a layer.
constexpr std::pair<absl::string_view, absl::string_view> kLayerNames[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"ln_1", "attn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"ln_2", "ffn_norm"},
};
// Behind an expert's number, which GGUF has as the first dim of one weight.
constexpr absl::string_view kExpertPrefixes[] = {"block_sparse_moe.experts.", "mlp.experts."};
constexpr std::pair<absl::string_view, absl::string_view> kExpertNames[] = {
    {"w1", "ffn_gate_exps"},        {"w2", "ffn_down_exps"},    {"w3", "ffn_up_exps"},
    {"gate_proj", "ffn_gate_exps"}, {"up_proj", "ffn_up_exps"}, {"down_proj", "ffn_down_exps"},
};
constexpr int32_t kExpertsMax = 1 << 16;
// With norms before and behind each part, or only before.
constexpr std::pair<absl::string_view, absl::string_view> kSandwichNames[] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
};
constexpr std::pair<absl::string_view, absl::string_view> kPlainNames[] = {
    {"post_attention_layernorm", "ffn_norm"},
};
constexpr std::pair<absl::string_view, absl::string_view> kModelNames[] = {
    {"embed_tokens", "token_embd"}, {"wte", "token_embd"},   {"wpe", "position_embd"},
    {"norm", "output_norm"},        {"ln_f", "output_norm"}, {"lm_head", "output"},
};

absl::StatusOr<json::object> ParseObject(absl::string_view text) {
  boost::system::error_code error;
  json::value value = json::parse({text.data(), text.size()}, error);
  if (error || !value.is_object()) {
    return absl::InvalidArgumentError(error ? error.message() : "no JSON object");
  }
  return std::move(value.get_object());
}

absl::Status Named(absl::string_view path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<json::object> ReadObject(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kConfigBytesMax));
  absl::StatusOr<json::object> object = ParseObject(text);
  if (!object.ok()) return Named(path, object.status());
  return object;
}

std::optional<double> Number(const json::object& object, absl::string_view key) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return value->to_number<double>();
}

std::string Text(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) return "";
  return std::string(value->get_string().data(), value->get_string().size());
}

std::optional<std::string> MappedName(
    std::span<const std::pair<absl::string_view, absl::string_view>> names,
    absl::string_view name) {
  for (const auto& [from, to] : names) {
    if (from == name) return std::string(to);
  }
  return std::nullopt;
}

// "ffn_up_exps.7" for expert 7's; StackExperts makes one weight of them.
std::optional<std::string> ExpertName(absl::string_view name) {
  for (const absl::string_view prefix : kExpertPrefixes) {
    if (!absl::ConsumePrefix(&name, prefix)) continue;
    const size_t dot = name.find('.');
    int32_t expert = 0;
    if (dot == absl::string_view::npos || !absl::SimpleAtoi(name.substr(0, dot), &expert) ||
        expert < 0 || expert >= kExpertsMax) {
      return std::nullopt;
    }
    const std::optional<std::string> mapped = MappedName(kExpertNames, name.substr(dot + 1));
    return mapped.has_value() ? std::optional(absl::StrCat(*mapped, ".", expert)) : std::nullopt;
  }
  return std::nullopt;
}

// GGUF's name of a weight; nullopt: none that is known.
std::optional<std::string> NameOf(absl::string_view name, bool sandwich) {
  for (const absl::string_view prefix : {"model.", "transformer.", "language_model.model."}) {
    if (absl::ConsumePrefix(&name, prefix)) break;
  }
  const size_t dot = name.rfind('.');
  if (dot == absl::string_view::npos) return std::nullopt;
  const absl::string_view part = name.substr(dot + 1);
  absl::string_view stem = name.substr(0, dot);
  if (part != "weight" && part != "bias") return std::nullopt;
  if (!absl::ConsumePrefix(&stem, "layers.") && !absl::ConsumePrefix(&stem, "h.")) {
    const std::optional<std::string> mapped = MappedName(kModelNames, stem);
    return mapped.has_value() ? std::optional(absl::StrCat(*mapped, ".", part)) : std::nullopt;
  }
  const size_t end = stem.find('.');
  int32_t layer = 0;
  if (end == absl::string_view::npos || !absl::SimpleAtoi(stem.substr(0, end), &layer)) {
    return std::nullopt;
  }
  const absl::string_view inner = stem.substr(end + 1);
  std::optional<std::string> mapped = MappedName(kLayerNames, inner);
  if (!mapped.has_value()) mapped = ExpertName(inner);
  if (!mapped.has_value()) {
    mapped = sandwich ? MappedName(kSandwichNames, inner) : MappedName(kPlainNames, inner);
  }
  if (!mapped.has_value()) return std::nullopt;
  return absl::StrCat("blk.", layer, ".", *mapped, ".", part);
}

void SetWeight(LanguageModelSource& source, const std::string& name, Tensor tensor) {
  auto owner = std::make_shared<const Tensor>(std::move(tensor));
  source.weights[name] = {
      .shape = owner->shape(), .type = owner->dtype(), .bytes = owner->bytes(), .owner = owner};
}

absl::StatusOr<Tensor> TensorOf(const SourceWeight& weight) {
  return Tensor::View(std::get<DType>(weight.type), weight.shape, weight.bytes, weight.owner);
}

// Matrices of single experts to one weight [experts, rows, columns].
absl::Status StackExperts(LanguageModelSource& source) {
  std::map<std::string, std::map<int32_t, std::string>> stacks;  // by the weight's name, by expert
  for (const auto& [name, weight] : source.weights) {
    const size_t at = name.find("_exps.");
    if (at == std::string::npos) continue;
    const size_t stem = at + absl::string_view("_exps").size();
    int32_t expert = 0;
    absl::string_view number = absl::string_view(name).substr(stem + 1);
    if (!absl::ConsumeSuffix(&number, ".weight") || !absl::SimpleAtoi(number, &expert)) continue;
    stacks[absl::StrCat(name.substr(0, stem), ".weight")][expert] = name;
  }
  for (const auto& [name, experts] : stacks) {
    const auto count = static_cast<int64_t>(experts.size());
    const SourceWeight first = source.weights.at(experts.begin()->second);
    std::vector<int64_t> shape = first.shape;
    shape.insert(shape.begin(), count);
    ASSIGN_OR_RETURN(Tensor stack, Tensor::Allocate(std::get<DType>(first.type), shape));
    size_t at = 0;
    for (const auto& [expert, single] : experts) {
      const SourceWeight& weight = source.weights.at(single);
      if (expert >= count || weight.shape != first.shape || weight.type != first.type) {
        return absl::InvalidArgumentError(absl::StrCat("weight ", name, ": expert ", expert, " of ",
                                                       count, " is missing or unlike the others"));
      }
      std::ranges::copy(weight.bytes, stack.mutable_bytes().begin() + static_cast<int64_t>(at));
      at += weight.bytes.size();
    }
    for (const auto& [expert, single] : experts) source.weights.erase(single);
    SetWeight(source, name, std::move(stack));
  }
  return absl::OkStatus();
}

absl::Status AddOneToNorms(LanguageModelSource& source) {
  std::vector<std::string> norms;
  for (const auto& [name, weight] : source.weights) {
    if (absl::StrContains(name, "norm")) norms.push_back(name);
  }
  for (const std::string& name : norms) {
    ASSIGN_OR_RETURN(const Tensor norm, TensorOf(source.weights.at(name)));
    ASSIGN_OR_RETURN(Tensor sum, Tensor::Allocate(DType::kF32, norm.shape()));
    for (int64_t i = 0; i < norm.element_count(); ++i) {
      sum.SetFromDouble(i, norm.ValueAsDouble(i) + 1);
    }
    SetWeight(source, name, std::move(sum));
  }
  return absl::OkStatus();
}

// GPT-2's layers multiply from the other side.
absl::Status TransposeMatrices(LanguageModelSource& source) {
  std::vector<std::string> names;
  for (const auto& [name, weight] : source.weights) {
    if (weight.shape.size() == 2 && absl::StartsWith(name, "blk.")) names.push_back(name);
  }
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const Tensor from, TensorOf(source.weights.at(name)));
    const int64_t rows = from.shape()[0], columns = from.shape()[1];
    ASSIGN_OR_RETURN(Tensor to, Tensor::Allocate(from.dtype(), {columns, rows}));
    const size_t size = SizeBytes(from.dtype());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        std::memcpy(to.mutable_bytes().data() + static_cast<size_t>(c * rows + r) * size,
                    from.bytes().data() + static_cast<size_t>(r * columns + c) * size, size);
      }
    }
    SetWeight(source, name, std::move(to));
  }
  return absl::OkStatus();
}

// Llama 3: long waves are stretched, short ones kept, those between a mixture.
absl::Status AddLlama3Divisors(const json::object& scaling, int64_t dims,
                               LanguageModelSource& source) {
  const double factor = Number(scaling, "factor").value_or(8);
  const double low = Number(scaling, "low_freq_factor").value_or(1);
  const double high = Number(scaling, "high_freq_factor").value_or(4);
  const double context = Number(scaling, "original_max_position_embeddings").value_or(8192);
  const auto base = source.facts.find("rope.freq_base");
  const double theta = base == source.facts.end() ? 10000 : std::get<double>(base->second);
  if (!(factor > 0) || !(high > low) || !(context > 0) || dims < 2) {
    return absl::InvalidArgumentError("rope_scaling: out of range");
  }
  ASSIGN_OR_RETURN(Tensor divisors, Tensor::Allocate(DType::kF32, {dims / 2}));
  for (int64_t pair = 0; pair < dims / 2; ++pair) {
    const double wave = 2 * std::numbers::pi *
                        std::pow(theta, 2 * static_cast<double>(pair) / static_cast<double>(dims));
    double divisor = 1;
    if (wave > context / low) {
      divisor = factor;
    } else if (wave >= context / high) {
      const double smooth = (context / wave - low) / (high - low);
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    divisors.SetFromDouble(pair, divisor);
  }
  SetWeight(source, "rope_freqs.weight", std::move(divisors));
  return absl::OkStatus();
}

absl::Status ReadRope(const json::object& config, int64_t dims, LanguageModelSource& source) {
  const json::value* value = config.if_contains("rope_scaling");
  if (value == nullptr || !value->is_object()) return absl::OkStatus();
  const json::object& scaling = value->get_object();
  std::string kind = Text(scaling, "rope_type");
  if (kind.empty()) kind = Text(scaling, "type");
  if (kind == "default" || kind.empty()) return absl::OkStatus();
  if (kind == "llama3") return AddLlama3Divisors(scaling, dims, source);
  source.facts["rope.scaling.type"] = kind;
  const std::pair<const char*, const char*> facts[] = {
      {"factor", "rope.scaling.factor"},
      {"original_max_position_embeddings", "rope.scaling.original_context_length"},
      {"beta_fast", "rope.scaling.yarn_beta_fast"},
      {"beta_slow", "rope.scaling.yarn_beta_slow"},
      {"attention_factor", "rope.scaling.attn_factor"}};
  for (const auto& [from, to] : facts) {
    if (const std::optional<double> number = Number(scaling, from)) source.facts[to] = *number;
  }
  for (const auto& [from, to] : {std::pair("long_factor", "rope_factors_long.weight"),
                                 std::pair("short_factor", "rope_factors_short.weight")}) {
    const json::value* list = scaling.if_contains(from);
    if (list == nullptr || !list->is_array()) continue;
    const json::array& numbers = list->get_array();
    ASSIGN_OR_RETURN(Tensor tensor,
                     Tensor::Allocate(DType::kF32, {static_cast<int64_t>(numbers.size())}));
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!numbers[i].is_number()) return absl::InvalidArgumentError("rope_scaling: no numbers");
      tensor.SetFromDouble(static_cast<int64_t>(i), numbers[i].to_number<double>());
    }
    SetWeight(source, to, std::move(tensor));
  }
  return absl::OkStatus();
}

absl::Status ReadFacts(const json::object& config, LanguageModelSource& source) {
  for (const auto& [from, to] : kFacts) {
    if (const std::optional<double> number = Number(config, from)) source.facts[to] = *number;
  }
  const auto fact = [&](const char* name) {
    const auto found = source.facts.find(name);
    return found == source.facts.end() ? 0.0 : std::get<double>(found->second);
  };
  if (fact("attention.key_length") > 0) {
    source.facts["attention.value_length"] = fact("attention.key_length");
  }
  double head = fact("attention.key_length");
  if (head == 0 && fact("attention.head_count") > 0) {
    head = fact("embedding_length") / fact("attention.head_count");
  }
  const double rotated = head * Number(config, "partial_rotary_factor").value_or(1);
  if (!(rotated >= 0 && rotated <= kHeadSizeMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_dim: got ", rotated, " rotated, limit ", kHeadSizeMax));
  }
  source.facts["rope.dimension_count"] = std::floor(rotated);
  if (const std::optional<double> scalar = Number(config, "query_pre_attn_scalar")) {
    source.facts["attention.scale"] = 1 / std::sqrt(*scalar);
  }
  if (source.architecture != "llama") {
    const json::value* sums_to_one = config.if_contains("norm_topk_prob");
    source.facts["expert_weights_norm"] =
        sums_to_one != nullptr && sums_to_one->is_bool() && sums_to_one->get_bool();
  }
  // A window that the model does not use.
  const json::value* uses = config.if_contains("use_sliding_window");
  if (uses != nullptr && uses->is_bool() && !uses->get_bool()) {
    source.facts.erase("attention.sliding_window");
  }
  return ReadRope(config, static_cast<int64_t>(rotated), source);
}

// The names of the files with weights, sorted.
absl::StatusOr<std::vector<std::string>> WeightFiles(const std::string& folder) {
  const std::string index = absl::StrCat(folder, "/model.safetensors.index.json");
  absl::StatusOr<json::object> listed = ReadObject(index);
  if (absl::IsNotFound(listed.status())) return std::vector<std::string>{"model.safetensors"};
  RETURN_IF_ERROR(listed.status());
  std::vector<std::string> files;
  const json::value* map = listed->if_contains("weight_map");
  if (map == nullptr || !map->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(index, ": weight_map: no object"));
  }
  for (const auto& [name, file] : map->get_object()) {
    if (!file.is_string() || file.get_string().find('/') != json::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(index, ": weight_map: no file's name"));
    }
    files.emplace_back(file.get_string().data(), file.get_string().size());
  }
  std::ranges::sort(files);
  files.erase(std::ranges::unique(files).begin(), files.end());
  return files;
}

absl::Status ReadWeights(const std::string& path, bool sandwich, bool tied,
                         LanguageModelSource& source) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const SafetensorsFile> file, SafetensorsFile::Open(path));
  for (const SafetensorsTensor& tensor : file->tensors()) {
    // Buffers that older exporters wrote beside the weights.
    if (absl::EndsWith(tensor.name, ".attn.bias") || absl::EndsWith(tensor.name, "inv_freq") ||
        absl::EndsWith(tensor.name, ".attn.masked_bias")) {
      continue;
    }
    const std::optional<std::string> name = NameOf(tensor.name, sandwich);
    if (!name.has_value()) {
      return absl::UnimplementedError(
          absl::StrCat(path, ": tensor ", tensor.name, ": not a weight that its model_type has"));
    }
    if (tied && *name == "output.weight") continue;
    if (!tensor.dtype.has_value()) {
      return absl::UnimplementedError(absl::StrCat(path, ": tensor ", tensor.name, ": dtype ",
                                                   tensor.dtype_text, " is not supported"));
    }
    source.weights[*name] = {
        .shape = tensor.shape, .type = *tensor.dtype, .bytes = tensor.bytes, .owner = file};
  }
  return absl::OkStatus();
}

// One number or a list of them; what is no token is left out.
std::vector<int32_t> EndTokens(const json::object& config) {
  std::vector<int32_t> tokens;
  const auto add = [&](const json::value& id) {
    if (id.is_int64() && id.get_int64() >= 0 && id.get_int64() < INT32_MAX) {
      tokens.push_back(static_cast<int32_t>(id.get_int64()));
    }
  };
  const json::value* ends = config.if_contains("eos_token_id");
  if (ends == nullptr) return tokens;
  if (!ends->is_array()) {
    add(*ends);
    return tokens;
  }
  for (const json::value& id : ends->get_array()) add(id);
  return tokens;
}

}  // namespace

absl::StatusOr<HuggingFaceConfig> ParseHuggingFaceConfig(absl::string_view text) {
  ASSIGN_OR_RETURN(const json::object object, ParseObject(text));
  HuggingFaceConfig config;
  LanguageModelSource& source = config.source;
  const std::string type = Text(object, "model_type");
  const std::optional<std::string> architecture = MappedName(kTypes, type);
  if (!architecture.has_value()) {
    std::vector<absl::string_view> known;
    for (const auto& [name, gguf] : kTypes) known.push_back(name);
    return absl::UnimplementedError(absl::StrCat(
        "model_type '", type, "' is not supported; those that are: ", absl::StrJoin(known, ", ")));
  }
  source.architecture = *architecture;
  source.pairs_halves = true;
  RETURN_IF_ERROR(ReadFacts(object, source));
  const json::value* tied = object.if_contains("tie_word_embeddings");
  config.is_tied = tied != nullptr && tied->is_bool()
                       ? tied->get_bool()
                       : absl::StartsWith(source.architecture, "gemma");
  const auto context = source.facts.find("context_length");
  if (context != source.facts.end()) {
    const double tokens = std::get<double>(context->second);
    if (tokens >= 1 && tokens <= kContextMax) config.context_tokens = static_cast<int64_t>(tokens);
  }
  config.end_tokens = EndTokens(object);
  return config;
}

absl::StatusOr<HuggingFaceConfig> ReadHuggingFaceConfig(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/config.json");
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kConfigBytesMax));
  absl::StatusOr<HuggingFaceConfig> config = ParseHuggingFaceConfig(text);
  if (!config.ok()) return Named(path, config.status());
  return config;
}

absl::StatusOr<HuggingFaceModel> ReadHuggingFaceFolder(const std::string& folder) {
  ASSIGN_OR_RETURN(HuggingFaceConfig config, ReadHuggingFaceConfig(folder));
  HuggingFaceModel model = {.source = std::move(config.source), .files = {}};
  LanguageModelSource& source = model.source;
  const bool gemma = absl::StartsWith(source.architecture, "gemma");
  const bool sandwich = gemma && source.architecture != "gemma";
  ASSIGN_OR_RETURN(model.files, WeightFiles(folder));
  for (const std::string& file : model.files) {
    RETURN_IF_ERROR(ReadWeights(absl::StrCat(folder, "/", file), sandwich, config.is_tied, source));
  }
  RETURN_IF_ERROR(StackExperts(source));
  if (gemma) RETURN_IF_ERROR(AddOneToNorms(source));
  if (source.architecture == "gpt2") RETURN_IF_ERROR(TransposeMatrices(source));
  const auto embedding = source.weights.find("token_embd.weight");
  if (embedding != source.weights.end() && !embedding->second.shape.empty()) {
    source.vocabulary = embedding->second.shape[0];
  }
  return model;
}

}  // namespace stampmill
