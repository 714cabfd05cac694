#include "runtime/embedding_engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "runtime/sequence.h"

namespace stampmill {
namespace {

// A step takes no more texts once it has so many tokens: enough that weights are read for many, few
// enough that who comes next waits a moment only.
constexpr int32_t kStepTokens = 512;

constexpr std::array<absl::string_view, 5> kInputNames = {"tokens", "positions", "sequences",
                                                          "tables", "outputs"};
constexpr absl::string_view kLasts = "lasts";
// In the order of Pooling.
constexpr std::array<absl::string_view, 4> kOutputNames = {"mean", "first", "last", "each"};

int32_t BlocksOfText(size_t tokens) {
  return (static_cast<int32_t>(tokens) + kBlockTokens - 1) / kBlockTokens;
}

template <typename T>
BufferRef Ref(std::vector<T>& values) {
  return {reinterpret_cast<uint64_t>(values.data()), values.size() * sizeof(T)};
}

absl::Status ShuttingDown() { return absl::UnavailableError("server is shutting down"); }

}  // namespace

bool EmbeddingEngine::Serves(const Model& model) {
  return model.outputs().size() == 1 && model.program().states > 0 &&
         std::ranges::find(kOutputNames, model.outputs()[0].name) != kOutputNames.end();
}

EmbeddingEngine::EmbeddingEngine(EmbeddingEngineOptions options)
    : options_(std::move(options)), inbox_(static_cast<size_t>(options_.jobs_max)) {}

absl::StatusOr<std::unique_ptr<EmbeddingEngine>> EmbeddingEngine::Create(
    EmbeddingEngineOptions options) {
  if (options.model == nullptr || options.context_tokens < 1 || options.jobs_max < 1) {
    return absl::InvalidArgumentError("embedding engine: model and limits are needed");
  }
  auto engine = std::unique_ptr<EmbeddingEngine>(new EmbeddingEngine(std::move(options)));
  RETURN_IF_ERROR(engine->ReadProgram());
  EmbeddingEngine* const e = engine.get();
  e->thread_ = std::thread([e] { e->Run(); });
  return engine;
}

absl::Status EmbeddingEngine::ReadProgram() {
  const Model& model = *options_.model;
  const size_t states = static_cast<size_t>(model.program().states);
  const size_t inputs = model.inputs().size() - states;
  const auto error = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("gives no embeddings: ", what));
  };
  if (!Serves(model) || model.outputs()[0].dims.size() != 2) return error("its outputs are others");
  pooling_ = static_cast<Pooling>(std::ranges::find(kOutputNames, model.outputs()[0].name) -
                                  kOutputNames.begin());
  width_ = model.outputs()[0].dims[1];
  sees_all_ = inputs == kInputNames.size() + 1;
  if ((inputs != kInputNames.size() && !sees_all_) || width_ < 1) {
    return error("its inputs are others");
  }
  for (size_t i = 0; i < inputs; ++i) {
    const absl::string_view want = i < kInputNames.size() ? kInputNames[i] : kLasts;
    if (model.inputs()[i].name != want) {
      return error(absl::StrCat("input '", model.inputs()[i].name, "'"));
    }
  }
  // Each text begins a block.
  const int32_t blocks =
      std::max(BlocksOfText(static_cast<size_t>(options_.context_tokens)), 0) + kStepTokens;
  ASSIGN_OR_RETURN(states_, CacheStates::Allocate(model, inputs, blocks));
  ASSIGN_OR_RETURN(step_, ModelStep::Create(&model, 0, nullptr));
  ASSIGN_OR_RETURN(queue_, model.device()->CreateQueue(&waker_));
  return absl::OkStatus();
}

EmbeddingEngine::~EmbeddingEngine() {
  Stop();
  queue_.reset();  // waits for its work, so it goes before what that uses
}

absl::Status EmbeddingEngine::Submit(std::unique_ptr<EmbeddingJob> job) {
  CHECK(job != nullptr);
  if (job->texts.empty()) return absl::InvalidArgumentError("no texts");
  for (const std::vector<int32_t>& text : job->texts) {
    if (text.empty() || text.size() > static_cast<size_t>(options_.context_tokens)) {
      return absl::InvalidArgumentError(absl::StrCat("text: got ", text.size(), " tokens, limit ",
                                                     options_.context_tokens, ", 1 at least"));
    }
  }
  // Counted before the look at draining_: Stop sees either the job or its refusal.
  const int64_t before = in_flight_.fetch_add(1, std::memory_order_seq_cst);
  const bool draining = draining_.load(std::memory_order_seq_cst);
  if (draining || before >= options_.jobs_max) {
    in_flight_.fetch_sub(1, std::memory_order_seq_cst);
    waker_.Wake();
    return draining ? ShuttingDown()
                    : absl::UnavailableError(
                          absl::StrCat("too many requests wait, limit ", options_.jobs_max));
  }
  inbox_.PushCertainly(job.release());
  waker_.Wake();
  return absl::OkStatus();
}

void EmbeddingEngine::BeginDrain() { draining_.store(true, std::memory_order_seq_cst); }

void EmbeddingEngine::Stop() {
  draining_.store(true, std::memory_order_seq_cst);
  stopping_.store(true, std::memory_order_seq_cst);
  waker_.Wake();
  if (thread_.joinable()) thread_.join();
}

void EmbeddingEngine::Run() {
  for (;;) {
    const uint32_t seen = waker_.epoch();
    const bool arrived = DrainInbox();
    const bool stopping = stopping_.load(std::memory_order_seq_cst);
    if (stopping) {
      while (!jobs_.empty()) {
        std::unique_ptr<EmbeddingJob> job = std::move(jobs_.front());
        jobs_.pop_front();
        Finish(std::move(job), ShuttingDown());
      }
      if (in_flight_.load(std::memory_order_seq_cst) == 0) return;
    }
    DropCancelled();
    if (!jobs_.empty()) {
      FormStep();
      FinishJobs(RunStep());
    } else if (!arrived) {
      waker_.WaitUntil(seen, kNoDeadline);
    }
  }
}

bool EmbeddingEngine::DrainInbox() {
  bool did = false;
  while (const std::optional<EmbeddingJob*> job = inbox_.Pop()) {
    jobs_.emplace_back(*job);
    jobs_.back()->embeddings_.resize(jobs_.back()->texts.size());
    did = true;
  }
  return did;
}

void EmbeddingEngine::DropCancelled() {
  for (size_t i = 0; i < jobs_.size();) {
    const auto& cancelled = jobs_[i]->cancelled;
    if (cancelled == nullptr || !cancelled->load(std::memory_order_acquire)) {
      ++i;
      continue;
    }
    std::unique_ptr<EmbeddingJob> job = std::move(jobs_[i]);
    jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(i));
    Finish(std::move(job), absl::CancelledError("request was cancelled"));
  }
}

void EmbeddingEngine::FormStep() {
  texts_.clear();
  for (std::vector<int32_t>* list :
       {&tokens_, &positions_, &lasts_, &sequences_, &tables_, &outputs_}) {
    list->clear();
  }
  // One text of each job in turn.
  for (bool added = true; added;) {
    added = false;
    for (const std::unique_ptr<EmbeddingJob>& job : jobs_) {
      if (job->begun_ == job->texts.size()) continue;
      const size_t size = job->texts[job->begun_].size();
      if (!texts_.empty() && tokens_.size() + size > kStepTokens) continue;
      AddText(*job, job->begun_++);
      added = true;
    }
  }
  int32_t most = 0;
  for (const Text& text : texts_) {
    most = std::max(most, BlocksOfText(text.job->texts[text.index].size()));
  }
  int32_t block = 0;
  for (const Text& text : texts_) {
    const int32_t own = BlocksOfText(text.job->texts[text.index].size());
    for (int32_t i = 0; i < most; ++i) tables_.push_back(i < own ? block + i : 0);
    block += own;
  }
}

void EmbeddingEngine::AddText(EmbeddingJob& job, size_t index) {
  const std::vector<int32_t>& text = job.texts[index];
  const auto size = static_cast<int32_t>(text.size());
  const auto first = static_cast<int32_t>(tokens_.size());
  tokens_.insert(tokens_.end(), text.begin(), text.end());
  for (int32_t i = 0; i < size; ++i) positions_.push_back(i);
  lasts_.insert(lasts_.end(), text.size(), size - 1);
  sequences_.insert(sequences_.end(), text.size(), static_cast<int32_t>(texts_.size()));
  const auto begin = static_cast<int32_t>(outputs_.size());
  switch (pooling_) {
    case Pooling::kFirst:
      outputs_.push_back(first);
      break;
    case Pooling::kLast:
      outputs_.push_back(first + size - 1);
      break;
    case Pooling::kMean:
    case Pooling::kEach:
      for (int32_t i = 0; i < size; ++i) outputs_.push_back(first + i);
      break;
  }
  texts_.push_back({.job = &job,
                    .index = index,
                    .outputs_begin = begin,
                    .outputs = static_cast<int32_t>(outputs_.size()) - begin});
}

absl::Status EmbeddingEngine::RunStep() {
  const Model& model = *options_.model;
  if (queue_ == nullptr) {
    ASSIGN_OR_RETURN(queue_, model.device()->CreateQueue(&waker_));
    signal_ = 0;
  }
  std::vector<std::vector<int32_t>*> inputs = {&tokens_, &positions_, &sequences_, &tables_,
                                               &outputs_};
  if (sees_all_) inputs.push_back(&lasts_);
  std::vector<TensorShape> shapes;
  for (const std::vector<int32_t>* input : inputs) {
    const auto count = static_cast<int64_t>(input->size());
    const auto rows = static_cast<int64_t>(texts_.size());
    std::vector<int64_t> dims = {count};
    if (input == &tables_) dims = {rows, count / rows};
    ASSIGN_OR_RETURN(shapes.emplace_back(), TensorShape::From(dims));
  }
  for (const TensorShape& shape : states_->shapes()) shapes.push_back(shape);
  std::vector<const TensorShape*> pointers;
  for (const TensorShape& shape : shapes) pointers.push_back(&shape);
  RETURN_IF_ERROR(step_->Begin(pointers));
  for (size_t i = 0; i < inputs.size(); ++i) {
    step_->BindInput(static_cast<int32_t>(i), Ref(*inputs[i]));
  }
  states_->Bind(*step_, inputs.size());
  rows_.resize(outputs_.size() * static_cast<size_t>(width_));
  step_->BindOutput(0, Ref(rows_));
  const absl::Status status = step_->Run(*queue_, signal_);
  // Part of the step may have been taken: its memory is free only when the queue is.
  if (!status.ok()) queue_.reset();
  return status;
}

void EmbeddingEngine::TakeEmbedding(const Text& text) {
  const auto width = static_cast<size_t>(width_);
  std::vector<double> sums(width);
  for (int32_t row = 0; row < text.outputs; ++row) {
    const float* const from = rows_.data() + static_cast<size_t>(text.outputs_begin + row) * width;
    for (size_t i = 0; i < width; ++i) sums[i] += static_cast<double>(from[i]);
  }
  double squares = 0;
  for (const double sum : sums) squares += sum * sum;
  const double factor = squares > 0 ? 1 / std::sqrt(squares) : 0;
  std::vector<float>& embedding = text.job->embeddings_[text.index];
  for (const double sum : sums) embedding.push_back(static_cast<float>(sum * factor));
}

// Those whose last text was in the step; if it failed, all that were in it.
void EmbeddingEngine::FinishJobs(const absl::Status& status) {
  if (status.ok()) {
    for (const Text& text : texts_) TakeEmbedding(text);
  }
  for (size_t i = 0; i < jobs_.size();) {
    EmbeddingJob* const job = jobs_[i].get();
    const bool was_there =
        std::ranges::any_of(texts_, [&](const Text& text) { return text.job == job; });
    if (status.ok() ? job->begun_ < job->texts.size() : !was_there) {
      ++i;
      continue;
    }
    std::unique_ptr<EmbeddingJob> owned = std::move(jobs_[i]);
    jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(i));
    Finish(std::move(owned), status);
  }
}

void EmbeddingEngine::Finish(std::unique_ptr<EmbeddingJob> job, const absl::Status& status) {
  absl::Status end = status;
  if (end.ok()) {
    for (const std::vector<float>& embedding : job->embeddings_) {
      for (const float value : embedding) {
        if (!std::isfinite(value)) end = absl::InternalError("the embedding is not finite");
      }
    }
  }
  if (end.ok()) {
    job->done(std::move(job->embeddings_));
  } else {
    job->done(end);
  }
  job.reset();
  in_flight_.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace stampmill
