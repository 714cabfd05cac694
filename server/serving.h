// What the protocols serve: the parts of the daemon that both talk to, and the one way by which an
// inference goes through them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/waker.h"
#include "runtime/engine.h"
#include "runtime/model_repository.h"
#include "runtime/request.h"
#include "runtime/run_token.h"
#include "runtime/tensor_pool.h"
#include "server/language_models.h"
#include "server/wire.h"

namespace stampmill {

// An inference between its message and its answer; Request::context points to it. Made by a
// protocol, finished once, by Replies.
class InferCall {
 public:
  virtual ~InferCall() = default;
  // The request is over: request->status or its outputs. Answers and deletes the call.
  virtual void Finish(RequestHandle request) = 0;
};

// Takes finished requests from the engine and answers them: on its own thread when the engine wakes
// that, or on a thread that has just submitted. Thread-safe.
class Replies {
 public:
  // `waker` is the engine's reply waker. Both outlive it.
  Replies(Engine& engine, Waker& waker);
  ~Replies();  // stops; every call that is left was finished before

  // Answers what is ready, unless another thread is at it and will; what is too much for one caller
  // is left to the thread. The caller holds no lock that an InferCall's Finish takes.
  void Send();

 private:
  void Run();
  bool SendNext();
  Engine& engine_;
  Waker& waker_;
  RunToken token_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// Borrowed parts; all outlive it. Thread-safe.
class Serving {
 public:
  struct Parts {
    ModelRepository* repository = nullptr;
    TensorPool* pool = nullptr;
    RequestPool* requests = nullptr;
    Engine* engine = nullptr;
    Replies* replies = nullptr;
    LanguageModels* language = nullptr;  // null: none are served
  };
  explicit Serving(const Parts& parts) : parts_(parts) {}

  ModelRepository& repository() const { return *parts_.repository; }
  TensorPool& pool() const { return *parts_.pool; }
  RequestPool& requests() const { return *parts_.requests; }
  Engine& engine() const { return *parts_.engine; }
  // Null where there is none of this name and version (0: any).
  LanguageModel* FindLanguageModel(absl::string_view name, int64_t version) const;
  std::vector<LanguageModel*> ListLanguageModels() const;

  // A slot for a request to a ready model, pinned. NOT_FOUND, UNAVAILABLE (also when shutting down
  // or full).
  absl::StatusOr<RequestHandle> Begin(absl::string_view model, absl::string_view version,
                                      int64_t arrival_nanos) const;
  // Fills and submits. On success `call` is finished by Replies, which may be before this returns;
  // on failure the caller answers. The caller holds no lock that an InferCall's Finish takes.
  absl::Status Submit(const WireInference& wire, RequestHandle& request,
                      std::unique_ptr<InferCall>& call) const;

  // From SIGTERM on: not ready, and no new inference.
  void BeginShutdown() { shutting_down_.store(true, std::memory_order_release); }
  bool shutting_down() const { return shutting_down_.load(std::memory_order_acquire); }
  bool IsReady() const {
    return !shutting_down() && others_ready_.load(std::memory_order_acquire) &&
           repository().IsReady();
  }
  // Whether what is served beside the repository is ready: from the start it is.
  void SetOthersReady(bool ready) { others_ready_.store(ready, std::memory_order_release); }

 private:
  const Parts parts_;
  std::atomic<bool> shutting_down_{false};
  std::atomic<bool> others_ready_{true};
};

}  // namespace stampmill
