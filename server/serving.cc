#include "server/serving.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace stampmill {

absl::StatusOr<RequestHandle> Serving::Begin(absl::string_view model, absl::string_view version,
                                             int64_t arrival_nanos) const {
  if (shutting_down()) return absl::UnavailableError("Server exiting");
  ASSIGN_OR_RETURN(const int64_t number, ParseVersion(version));
  if (FindLanguageModel(model, number) != nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("model '", model, "' continues texts: use generate, generate_stream or /v1"));
  }
  ASSIGN_OR_RETURN(ModelPin pin, repository().Pin(model, number));
  ASSIGN_OR_RETURN(RequestHandle request, requests().Acquire());
  request->model = std::move(pin);
  request->times.arrival = arrival_nanos;
  return request;
}

LanguageModel* Serving::FindLanguageModel(absl::string_view name, int64_t version) const {
  if (parts_.language == nullptr || version > 1) return nullptr;
  return parts_.language->Find(name);
}

std::vector<LanguageModel*> Serving::ListLanguageModels() const {
  if (parts_.language == nullptr) return {};
  return parts_.language->List();
}

absl::Status Serving::Submit(const WireInference& wire, RequestHandle& request,
                             std::unique_ptr<InferCall>& call) const {
  RETURN_IF_ERROR(FillRequest(wire, pool(), *request));
  Engine& engine = request->model->engine();
  // From Submit on the call may be finished and deleted at any time.
  InferCall* const raw = call.release();
  request->context = raw;
  absl::Status status = engine.Submit(request);
  if (status.ok()) {
    parts_.replies->Send();
    return status;
  }
  call.reset(raw);
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::InvalidArgumentError(absl::StrCat(RequestPrefix(wire.id), status.message()));
}

Replies::Replies(Engine& engine, Waker& waker) : engine_(engine), waker_(waker) {
  thread_ = std::thread([this] { Run(); });
}

Replies::~Replies() {
  stopping_.store(true, std::memory_order_release);
  waker_.Wake();
  thread_.join();
}

void Replies::Send() {
  // Mostly others' answers, while this thread's own clients wait.
  constexpr int kSentHereMax = 16;
  if (!token_.Ask()) return;
  int sent = 0;
  do {
    token_.BeginRound();
    while (SendNext()) {
      if (++sent < kSentHereMax) continue;
      token_.HandOver();
      waker_.Wake();
      return;
    }
  } while (!token_.EndRound());
}

bool Replies::SendNext() {
  RequestHandle request = engine_.PopReady();
  if (request == nullptr) return false;
  auto* const call = static_cast<InferCall*>(request->context);
  CHECK(call != nullptr);
  call->Finish(std::move(request));
  return true;
}

void Replies::Run() {
  while (true) {
    const uint32_t seen = waker_.epoch();
    if (token_.TakeOver() || token_.Ask()) {
      do {
        token_.BeginRound();
        while (SendNext()) {
        }
      } while (!token_.EndRound());
    }
    if (stopping_.load(std::memory_order_acquire)) return;
    waker_.WaitUntil(seen, kNoDeadline);
  }
}

}  // namespace stampmill
