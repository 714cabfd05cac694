#include "server/language_models.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace stampmill {

LanguageModels::LanguageModels(LanguageModelOptions common, MemoryBudget* budget)
    : common_(std::move(common)), budget_(*budget) {
  thread_ = std::thread([this] { Serve(); });
}

LanguageModels::~LanguageModels() { Stop(); }

absl::Status LanguageModels::Load(const std::string& name, const std::string& path,
                                  int32_t shares) {
  {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(CheckFree(name));
  }
  {
    // Before it costs anything; asked again when it is there.
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(CheckFree(name));
  }
  LanguageModelOptions options = common_;
  options.name = name;
  options.path = path;
  options.news_waker = &waker_;
  options.image.progress = [&](absl::string_view line) { LOG(INFO) << name << ": " << line; };
  ASSIGN_OR_RETURN(LanguageModelParts parts, LoadLanguageModelParts(options));
  RETURN_IF_ERROR(
      budget_.Reserve(MemoryBudget::Kind::kWeights, name, parts.model->program().weights_size));
  const absl::Status status = LoadReserved(options, std::move(parts), shares);
  if (!status.ok()) {
    budget_.Release(MemoryBudget::Kind::kWeights, name);
    budget_.Release(MemoryBudget::Kind::kKv, name);
  }
  return status;
}

absl::Status LanguageModels::LoadReserved(LanguageModelOptions& options, LanguageModelParts parts,
                                          int32_t shares) {
  const std::string& name = options.name;
  if (EmbeddingEngine::Serves(*parts.model)) return LoadEmbedding(options, std::move(parts));
  ASSIGN_OR_RETURN(const LanguageStep::Facts facts, LanguageStep::FactsOf(*parts.model));
  const uint64_t reserved = std::min(budget_.reserved_bytes(), budget_.budget_bytes());
  // Never 0, which would be no limit.
  options.kv_bytes_max =
      std::max<uint64_t>((budget_.budget_bytes() - reserved) / static_cast<uint64_t>(shares), 1);
  ASSIGN_OR_RETURN(std::unique_ptr<LanguageModel> model,
                   LanguageModel::Create(options, std::move(parts)));
  const LanguageEngineOptions& engine = model->engine().options();
  RETURN_IF_ERROR(budget_.Reserve(
      MemoryBudget::Kind::kKv, name,
      static_cast<uint64_t>(engine.kv_blocks) * static_cast<uint64_t>(facts.kv_bytes_of_block)));
  LOG(INFO) << "model '" << name << "': " << engine.context_tokens << " tokens of context, "
            << engine.kv_blocks << " blocks of " << kBlockTokens << " tokens in the cache, "
            << engine.sequences_max << " texts at once";
  model->engine().Start();
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckFree(name));
  models_.push_back(std::move(model));
  return absl::OkStatus();
}

absl::Status LanguageModels::LoadEmbedding(const LanguageModelOptions& options,
                                           LanguageModelParts parts) {
  ASSIGN_OR_RETURN(std::unique_ptr<EmbeddingModel> model,
                   EmbeddingModel::Create(options, std::move(parts)));
  LOG(INFO) << "model '" << options.name << "': embeddings of " << model->engine().width()
            << " elements, texts of up to " << model->context_tokens() << " tokens";
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckFree(options.name));
  embedding_models_.push_back(std::move(model));
  return absl::OkStatus();
}

absl::Status LanguageModels::CheckFree(absl::string_view name) const {
  const auto has_name = [&](const auto& model) { return model->name() == name; };
  if (std::ranges::none_of(models_, has_name) &&
      std::ranges::none_of(embedding_models_, has_name)) {
    return absl::OkStatus();
  }
  return absl::AlreadyExistsError(absl::StrCat("model '", name, "': there is one already"));
}

EmbeddingModel* LanguageModels::FindEmbedding(absl::string_view name) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& model : embedding_models_) {
    if (model->name() == name) return model.get();
  }
  return nullptr;
}

std::vector<EmbeddingModel*> LanguageModels::ListEmbedding() const {
  absl::MutexLock lock(&mutex_);
  std::vector<EmbeddingModel*> list;
  for (const auto& model : embedding_models_) list.push_back(model.get());
  return list;
}

LanguageModel* LanguageModels::Find(absl::string_view name) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& model : models_) {
    if (model->name() == name) return model.get();
  }
  return nullptr;
}

std::vector<LanguageModel*> LanguageModels::List() const {
  absl::MutexLock lock(&mutex_);
  std::vector<LanguageModel*> list;
  for (const auto& model : models_) list.push_back(model.get());
  return list;
}

absl::Status LanguageModels::Submit(LanguageModel& model, GenerationHandle& generation,
                                    std::shared_ptr<GenerationCall> call, int32_t index) {
  auto place = std::make_unique<Place>(Place{std::move(call), index});
  generation->context = place.get();
  RETURN_IF_ERROR(model.engine().Submit(generation));
  place.release();  // TakeNews deletes it
  return absl::OkStatus();
}

void LanguageModels::Run(std::function<void()> resume) {
  {
    absl::MutexLock lock(&mutex_);
    work_.push_back(std::move(resume));
  }
  waker_.Wake();
}

void LanguageModels::Serve() {
  for (;;) {
    const uint32_t seen = waker_.epoch();
    bool did = RunWork();
    for (LanguageModel* model : List()) did = TakeNews(*model) || did;
    if (did) continue;
    if (stopping_.load(std::memory_order_acquire) && in_flight() == 0) return;
    waker_.WaitUntil(seen, kNoDeadline);
  }
}

bool LanguageModels::RunWork() {
  std::vector<std::function<void()>> work;
  {
    absl::MutexLock lock(&mutex_);
    work.swap(work_);
  }
  for (const auto& each : work) each();
  return !work.empty();
}

bool LanguageModels::TakeNews(LanguageModel& model) {
  bool did = false;
  for (;;) {
    LanguageEngine::News news = model.engine().PopNews();
    if (news.generation == nullptr) return did;
    did = true;
    auto* const place = static_cast<Place*>(news.generation->context);
    place->call->Advance(*news.generation, place->index);
    model.engine().CaughtUp(*news.generation);
    if (news.over == nullptr) continue;
    const std::unique_ptr<Place> last(place);
    last->call->End(std::move(news.over), last->index);
  }
}

void LanguageModels::BeginDrain() {
  for (LanguageModel* model : List()) model->engine().BeginDrain();
  for (EmbeddingModel* model : ListEmbedding()) model->engine().BeginDrain();
}

int64_t LanguageModels::in_flight() const {
  int64_t texts = 0;
  for (LanguageModel* model : List()) texts += model->generations().in_use();
  for (EmbeddingModel* model : ListEmbedding()) texts += model->engine().in_flight();
  return texts;
}

void LanguageModels::Stop() {
  if (!thread_.joinable()) return;
  for (LanguageModel* model : List()) model->engine().Stop();
  for (EmbeddingModel* model : ListEmbedding()) model->engine().Stop();
  stopping_.store(true, std::memory_order_release);
  waker_.Wake();
  thread_.join();
}

}  // namespace stampmill
