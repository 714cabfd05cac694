#include "runtime/language_model.h"

#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <ctime>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "compiler/gguf/reader.h"
#include "compiler/safetensors/hugging_face.h"
#include "runtime/embedding_engine.h"
#include "runtime/model.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer_json.h"

namespace stampmill {
namespace {

constexpr char kPrefix[] = "tokenizer.ggml.";
constexpr uint64_t kConfigBytesMax = uint64_t{16} << 20;

absl::StatusOr<TextPool> Texts(const GgufFile& file, absl::string_view key) {
  TextPool pool;
  const GgufValue* value = file.Find(absl::StrCat(kPrefix, key));
  if (value == nullptr) return pool;
  if (value->bytes.size() > TextPool::kBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("metadata ", kPrefix, key, ": got ",
                                                   value->bytes.size(), " bytes, limit ",
                                                   TextPool::kBytesMax));
  }
  ASSIGN_OR_RETURN(const auto texts, file.Strings(absl::StrCat(kPrefix, key)));
  pool.Reserve(texts->size(), value->bytes.size());
  for (const absl::string_view text : *texts) pool.Add(text);
  return pool;
}

absl::StatusOr<GgufVocabulary> ReadVocabulary(const GgufFile& file) {
  GgufVocabulary v;
  for (const auto& [key, target] : {std::pair("model", &v.model), std::pair("pre", &v.pre)}) {
    ASSIGN_OR_RETURN(const auto text, file.String(absl::StrCat(kPrefix, key)));
    if (text.has_value()) *target = std::string(*text);
  }
  ASSIGN_OR_RETURN(v.tokens, Texts(file, "tokens"));
  ASSIGN_OR_RETURN(v.merges, Texts(file, "merges"));
  ASSIGN_OR_RETURN(auto scores, file.Floats(absl::StrCat(kPrefix, "scores")));
  if (scores.has_value()) v.scores = *std::move(scores);
  ASSIGN_OR_RETURN(const auto types, file.Ints(absl::StrCat(kPrefix, "token_type")));
  if (types.has_value()) v.token_type.assign(types->begin(), types->end());
  const std::pair<absl::string_view, std::optional<int32_t>*> ids[] = {
      {"bos_token_id", &v.bos_token_id},         {"eos_token_id", &v.eos_token_id},
      {"eot_token_id", &v.eot_token_id},         {"eom_token_id", &v.eom_token_id},
      {"unknown_token_id", &v.unknown_token_id}, {"seperator_token_id", &v.seperator_token_id},
      {"padding_token_id", &v.padding_token_id}, {"cls_token_id", &v.cls_token_id},
      {"mask_token_id", &v.mask_token_id}};
  for (const auto& [key, target] : ids) {
    ASSIGN_OR_RETURN(const auto id, file.Int(absl::StrCat(kPrefix, key)));
    if (id.has_value()) *target = static_cast<int32_t>(std::clamp<int64_t>(*id, -1, INT32_MAX));
  }
  const std::pair<absl::string_view, std::optional<bool>*> flags[] = {
      {"add_bos_token", &v.add_bos_token},
      {"add_eos_token", &v.add_eos_token},
      {"add_sep_token", &v.add_sep_token},
      {"add_space_prefix", &v.add_space_prefix},
      {"remove_extra_whitespaces", &v.remove_extra_whitespaces}};
  for (const auto& [key, target] : flags) {
    ASSIGN_OR_RETURN(*target, file.Bool(absl::StrCat(kPrefix, key)));
  }
  if (const GgufValue* map = file.Find(absl::StrCat(kPrefix, "precompiled_charsmap"))) {
    v.precompiled_charsmap.assign(reinterpret_cast<const char*>(map->bytes.data()),
                                  map->bytes.size());
  }
  return v;
}

// A folder of Hugging Face's layout: tokenizer.json, and what may lie beside it.
absl::StatusOr<LanguageModelFile> ReadFolder(const std::string& folder) {
  LanguageModelFile read;
  ASSIGN_OR_RETURN(const std::string tokenizer,
                   ReadFile(absl::StrCat(folder, "/tokenizer.json"), kTokenizerJsonBytesMax));
  ASSIGN_OR_RETURN(read.tokenizer, ParseTokenizerJson(tokenizer));
  const absl::StatusOr<std::string> beside =
      ReadFile(absl::StrCat(folder, "/tokenizer_config.json"), kConfigBytesMax);
  if (beside.ok()) {
    RETURN_IF_ERROR(ParseTokenizerConfigJson(*beside, &read.tokenizer));
    boost::system::error_code error;
    const boost::json::value value = boost::json::parse(*beside, error);
    const boost::json::object* object = error ? nullptr : value.if_object();
    const boost::json::value* text =
        object == nullptr ? nullptr : object->if_contains("chat_template");
    if (text != nullptr && text->is_string()) {
      read.chat_template.assign(text->get_string().data(), text->get_string().size());
    }
  }
  // Newer folders have the template in a file of its own.
  const absl::StatusOr<std::string> own =
      ReadFile(absl::StrCat(folder, "/chat_template.jinja"), kConfigBytesMax);
  if (own.ok()) read.chat_template = *own;
  ASSIGN_OR_RETURN(const HuggingFaceConfig config, ReadHuggingFaceConfig(folder));
  read.context_tokens = config.context_tokens;
  for (const int32_t token : config.end_tokens) read.tokenizer.ends_generation.push_back(token);
  return read;
}

bool IsFolder(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

absl::StatusOr<int32_t> ContextOf(const LanguageModelOptions& options,
                                  const LanguageModelFile& file) {
  if (options.context_tokens <= 0) {
    return static_cast<int32_t>(std::clamp<int64_t>(file.context_tokens, 1, 1 << 24));
  }
  if (file.context_tokens > 0 && options.context_tokens > file.context_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("--max-model-len: got ", options.context_tokens,
                                                   ", limit ", file.context_tokens,
                                                   ", the model's context"));
  }
  return options.context_tokens;
}

// As many blocks as all sequences can need, or as the memory allows, but what one can need at
// least.
absl::StatusOr<int32_t> BlocksOf(const LanguageModelOptions& options, const Model& model,
                                 int32_t context_tokens) {
  ASSIGN_OR_RETURN(const LanguageStep::Facts facts, LanguageStep::FactsOf(model));
  const int64_t of_one = (context_tokens + kBlockTokens - 1) / kBlockTokens;
  int64_t blocks = of_one * options.sequences_max;
  if (options.kv_bytes_max > 0) {
    const auto most =
        static_cast<int64_t>(options.kv_bytes_max /
                             static_cast<uint64_t>(std::max<int64_t>(facts.kv_bytes_of_block, 1)));
    blocks = std::min(blocks, most);
  }
  if (blocks < of_one) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cache of keys and values: ", of_one, " blocks of ", facts.kv_bytes_of_block,
                     " bytes for one text of ", context_tokens, " tokens, limit ", blocks,
                     " (--device-memory-budget, --max-model-len)"));
  }
  return static_cast<int32_t>(std::min<int64_t>(blocks, 1 << 24));
}

}  // namespace

absl::StatusOr<LanguageModelFile> ReadLanguageModelFile(const std::string& path) {
  if (IsFolder(path)) return ReadFolder(path);
  ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  LanguageModelFile read;
  ASSIGN_OR_RETURN(GgufVocabulary vocabulary, ReadVocabulary(*file));
  ASSIGN_OR_RETURN(read.tokenizer, SpecOfGguf(std::move(vocabulary)));
  ASSIGN_OR_RETURN(const auto chat_template, file->String("tokenizer.chat_template"));
  read.chat_template = std::string(chat_template.value_or(""));
  ASSIGN_OR_RETURN(const auto architecture, file->String("general.architecture"));
  ASSIGN_OR_RETURN(const auto context,
                   file->Int(absl::StrCat(architecture.value_or(""), ".context_length")));
  read.context_tokens = context.value_or(0);
  return read;
}

namespace {

absl::Status Named(const LanguageModelOptions& options, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("model ", options.path, ": ", status.message()));
}

}  // namespace

absl::StatusOr<LanguageModelParts> LoadLanguageModelParts(const LanguageModelOptions& options) {
  LanguageModelParts parts;
  // A folder is known to the compiler by the file that describes it.
  const std::string described =
      IsFolder(options.path) ? absl::StrCat(options.path, "/config.json") : options.path;
  ASSIGN_OR_RETURN(ModelImage image, FindOrCompileModel(described, options.image, *options.cache));
  absl::StatusOr<LanguageModelFile> file = ReadLanguageModelFile(options.path);
  if (!file.ok()) return Named(options, file.status());
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer =
      Tokenizer::Create(std::move(file->tokenizer));
  if (!tokenizer.ok()) return Named(options, tokenizer.status());
  parts.tokenizer = *std::move(tokenizer);
  parts.chat_template =
      options.chat_template.empty() ? std::move(file->chat_template) : options.chat_template;
  ASSIGN_OR_RETURN(parts.context_tokens, ContextOf(options, *file));
  ASSIGN_OR_RETURN(parts.model, Model::Load(std::move(image), options.device));
  return parts;
}

absl::StatusOr<std::unique_ptr<LanguageModel>> LanguageModel::Load(
    const LanguageModelOptions& options) {
  ASSIGN_OR_RETURN(LanguageModelParts parts, LoadLanguageModelParts(options));
  if (EmbeddingEngine::Serves(*parts.model)) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", options.path, ": gives embeddings and no text"));
  }
  return Create(options, std::move(parts));
}

absl::StatusOr<std::unique_ptr<LanguageModel>> LanguageModel::Create(
    const LanguageModelOptions& options, LanguageModelParts parts) {
  auto model = std::unique_ptr<LanguageModel>(new LanguageModel());
  model->name_ = options.name;
  model->tokenizer_ = std::move(parts.tokenizer);
  for (int32_t id = 0; id < model->tokenizer_->vocabulary_size(); ++id) {
    if (model->tokenizer_->EndsGeneration(id)) model->end_tokens_.push_back(id);
  }
  if (!parts.chat_template.empty()) {
    absl::StatusOr<std::unique_ptr<ChatTemplate>> parsed = ChatTemplate::Parse(parts.chat_template);
    if (!parsed.ok()) return Named(options, parsed.status());
    model->chat_template_ = *std::move(parsed);
    model->chat_template_source_ = std::move(parts.chat_template);
  }
  absl::StatusOr<int32_t> blocks = BlocksOf(options, *parts.model, parts.context_tokens);
  if (!blocks.ok()) return Named(options, blocks.status());
  if (options.device->info().host_memory) {
    // Every step reads all of them.
    const BufferRef weights = parts.model->weights();
    model->weights_move_.emplace(
        std::span(reinterpret_cast<const std::byte*>(weights.address), weights.size_bytes));
  }
  model->generations_ =
      std::make_unique<GenerationPool>(options.waiting_max + options.sequences_max);
  const Tokenizer* const texts = model->tokenizer_.get();
  ASSIGN_OR_RETURN(model->engine_,
                   LanguageEngine::Create({.model = std::move(parts.model),
                                           .generations = model->generations_.get(),
                                           .news_waker = options.news_waker,
                                           .clock = &RealClock(),
                                           .token_bytes =
                                               [texts](int32_t token) {
                                                 return texts->IsSpecial(token)
                                                            ? absl::string_view()
                                                            : texts->TokenBytes(token);
                                               },
                                           .vocabulary = texts->vocabulary_size(),
                                           .context_tokens = parts.context_tokens,
                                           .sequences_max = options.sequences_max,
                                           .waiting_max = options.waiting_max,
                                           .step_tokens_max = options.step_tokens_max,
                                           .kv_blocks = *blocks,
                                           .drafts_max = options.drafts_max}));
  std::random_device random;
  model->root_ = RootHash(uint64_t{random()} << 32 | random(), "");
  model->loaded_unix_seconds_ = time(nullptr);
  return model;
}

const ConstraintVocabulary& LanguageModel::constraint_vocabulary() const {
  std::call_once(constraint_vocabulary_once_, [this] {
    constraint_vocabulary_ = std::make_unique<const ConstraintVocabulary>(tokenizer_.get());
  });
  return *constraint_vocabulary_;
}

LanguageModel::~LanguageModel() {
  if (engine_ != nullptr) engine_->Stop();
}

}  // namespace stampmill
