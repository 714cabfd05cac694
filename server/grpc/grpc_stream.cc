#include "server/grpc/grpc_stream.h"

#include <string>
#include <utility>

#include "base/status_macros.h"
#include "server/grpc/grpc_limits.h"

namespace stampmill {

// A request of the stream that the engine has.
class InferStream::Call final : public InferCall {
 public:
  Call(std::shared_ptr<InferStream> stream, std::shared_ptr<Exchange> exchange)
      : stream_(std::move(stream)), exchange_(std::move(exchange)) {}

  void Finish(RequestHandle request) override {
    const std::unique_ptr<Call> self(this);
    absl::Status status = request->status;
    if (status.ok()) status = CheckResponseSize(*request);
    if (status.ok()) FillResponse(*request, *exchange_->response.mutable_infer_response());
    request.reset();
    stream_->Answer(*exchange_, status);
  }

 private:
  const std::shared_ptr<InferStream> stream_;
  const std::shared_ptr<Exchange> exchange_;
};

InferStream* InferStream::Begin(InferenceCalls& calls, grpc::CallbackServerContext& context) {
  const auto metadata = context.client_metadata().find("triton_grpc_error");
  const bool real_errors =
      metadata != context.client_metadata().end() && metadata->second == "true";
  auto stream =
      std::make_shared<InferStream>(calls, context.c_call(), real_errors,
                                    EngineDeadline(context, calls.serving().engine().clock()));
  InferStream* const raw = stream.get();
  stream->self_ = std::move(stream);
  const bool open = calls.AddStream(raw);
  const absl::MutexLock lock(&raw->mutex_);
  if (open) {
    raw->ReadNext();
  } else {
    raw->End(absl::UnavailableError("Server exiting"));
  }
  return raw;
}

void InferStream::ReadNext() {
  if (reading_ || read_all_ || ended_ || exchanges_.size() >= kGrpcStreamRequestsMax) return;
  if (held_bytes_ >= kGrpcStreamBytesMax) return;
  reading_ = true;
  incoming_ = std::make_shared<Exchange>();
  StartRead(&incoming_->message);
}

void InferStream::OnReadDone(bool ok) {
  std::shared_ptr<Exchange> exchange;
  {
    const absl::MutexLock lock(&mutex_);
    reading_ = false;
    exchange = std::move(incoming_);
    if (!ok) read_all_ = true;
    if (!ok || ended_) {
      Advance();
      return;
    }
    exchange->bytes = exchange->message.ByteSizeLong();
    held_bytes_ += exchange->bytes;
    exchanges_.push_back(exchange);
  }
  Start(exchange);
  const absl::MutexLock lock(&mutex_);
  ReadNext();
}

void InferStream::Start(const std::shared_ptr<Exchange>& exchange) {
  const absl::Status status = TryStart(exchange);
  if (!status.ok()) Answer(*exchange, status);
}

absl::Status InferStream::TryStart(const std::shared_ptr<Exchange>& exchange) {
  const inference::ModelInferRequest& message = exchange->message;
  if (!calls_.budget().Grow(exchange->claim, message.ByteSizeLong())) {
    return InflightBytesExceeded(calls_.budget());
  }
  const Serving& serving = calls_.serving();
  ASSIGN_OR_RETURN(
      RequestHandle request,
      serving.Begin(message.model_name(), message.model_version(), RealClock().NowNanos()));
  request->deadline_nanos = deadline_nanos_;
  RETURN_IF_ERROR(ParseInference(message, exchange->inference.wire, exchange->inference.decoded));
  {
    const absl::MutexLock lock(&mutex_);
    // End has passed: nobody would cancel what is submitted now.
    if (ended_) return absl::CancelledError("the stream has ended");
    exchange->cancel = {.engine = &request->model->engine(), .tag = request->tag()};
  }
  std::unique_ptr<InferCall> call = std::make_unique<Call>(shared_from_this(), exchange);
  return serving.Submit(exchange->inference.wire, request, call);
}

void InferStream::Answer(Exchange& exchange, const absl::Status& status) {
  inference::ModelStreamInferResponse& response = exchange.response;
  if (!status.ok()) {
    response.Clear();
    response.set_error_message(std::string(status.message()));
    response.mutable_infer_response()->set_id(exchange.message.id());
    response.mutable_infer_response()->set_model_name(exchange.message.model_name());
  }
  // One answer a request: it is always the final one.
  (*response.mutable_infer_response()->mutable_parameters())["triton_final_response"]
      .set_bool_param(true);
  const absl::MutexLock lock(&mutex_);
  exchange.cancel = {};
  exchange.answered = true;
  exchange.error = status;
  // Only the answer is needed from here on.
  held_bytes_ -= exchange.bytes;
  exchange.message.Clear();
  exchange.bytes = response.ByteSizeLong();
  held_bytes_ += exchange.bytes;
  Advance();
}

void InferStream::Advance() {
  if (writing_ || ended_) return;
  if (exchanges_.empty()) {
    if (read_all_) End(absl::OkStatus());
    return;
  }
  Exchange& next = *exchanges_.front();
  if (!next.answered) return;
  if (real_errors_ && !next.error.ok()) {
    End(next.error);
    return;
  }
  writing_ = true;
  answer_due_nanos_ = calls_.answers().Begin(call_, next.bytes);
  StartWrite(&next.response);
}

void InferStream::OnWriteDone(bool ok) {
  const absl::MutexLock lock(&mutex_);
  writing_ = false;
  calls_.answers().End(call_, answer_due_nanos_);
  held_bytes_ -= exchanges_.front()->bytes;
  exchanges_.pop_front();
  if (!ok) End(absl::CancelledError("the client left"));
  Advance();
  ReadNext();
}

void InferStream::OnCancel() {
  const absl::MutexLock lock(&mutex_);
  End(absl::CancelledError("cancelled by the client"));
}

void InferStream::Drain() {
  const absl::MutexLock lock(&mutex_);
  read_all_ = true;
  Advance();
}

// What still runs is of no use to anybody.
void InferStream::End(const absl::Status& status) {
  if (ended_) return;
  ended_ = read_all_ = true;
  for (const std::shared_ptr<Exchange>& exchange : exchanges_) {
    if (exchange->cancel.engine != nullptr) exchange->cancel.engine->Cancel(exchange->cancel.tag);
  }
  Finish(ToGrpcStatus(status));
}

void InferStream::OnDone() {
  calls_.RemoveStream(this);
  // The last reference, unless requests still run.
  const std::shared_ptr<InferStream> self = std::move(self_);
}

}  // namespace stampmill
