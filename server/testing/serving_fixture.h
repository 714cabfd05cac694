// All that the protocols serve, over a CPU device and models made by hand: a repository folder
// whose "model files" hold a number, the addend of a model IN i32 [N,4] -> OUT = IN + 2 * addend.
// "bad" does not compile, and "wait" not before it is told to.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "gtest/gtest.h"
#include "runtime/model_repository.h"
#include "runtime/testing/engine_fixture.h"
#include "runtime/testing/test_models.h"
#include "server/serving.h"

namespace stampmill {

class ServingFixture {
 public:
  // Serves "add" (addend 1); knows "bad".
  explicit ServingFixture(EngineFixtureOptions options = {}) : engine(WithTurns(options)) {
    std::string pattern = absl::StrCat(testing::TempDir(), "/serving_XXXXXX");
    CHECK(mkdtemp(pattern.data()) != nullptr);
    folder = pattern;
    AddModelFile("add", "1");
    AddModelFile("bad", "bad");
    engine.engine->Start();
    ModelRepositoryOptions repository_options;
    repository_options.folders = {folder};
    repository_options.control_mode = ModelControlMode::kExplicit;
    repository_options.load_models = {"add"};
    repository_options.engine = engine.engine.get();
    repository_options.pool = engine.pool.get();
    repository_options.compile = [this](const std::string& path, const auto&) {
      return Make(path);
    };
    auto made = ModelRepository::Create(std::move(repository_options));
    CHECK_OK(made);
    repository = *std::move(made);
    CHECK_OK(repository->Start());
    replies = std::make_unique<Replies>(*engine.engine, engine.reply_waker);
    serving = std::make_unique<Serving>(Serving::Parts{.repository = repository.get(),
                                                       .pool = engine.pool.get(),
                                                       .requests = &engine.requests,
                                                       .engine = engine.engine.get(),
                                                       .replies = replies.get()});
  }
  // What uses `serving` is stopped before.
  ~ServingFixture() {
    if (!compile_waiting.HasBeenNotified()) compile_waiting.Notify();
    repository.reset();
    engine.engine->Stop();
    replies.reset();
    std::filesystem::remove_all(folder);
  }

  void AddModelFile(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(folder, "/", name, "/1");
    CHECK_OK(MakeDirectories(path));
    CHECK_OK(AtomicReplaceFile(absl::StrCat(path, "/model.onnx"), AsBytes(text)));
  }

  EngineFixture engine;
  std::string folder;
  std::unique_ptr<ModelRepository> repository;
  std::unique_ptr<Serving> serving;
  std::unique_ptr<Replies> replies;
  absl::Notification compile_waiting;  // of files that hold "wait"

 private:
  static EngineFixtureOptions WithTurns(EngineFixtureOptions options) {
    options.submitters_turn = true;
    return options;
  }
  absl::StatusOr<ModelImage> Make(const std::string& path) const {
    absl::StatusOr<std::string> text = ReadFile(path);
    if (!text.ok()) return text.status();
    if (*text == "wait") compile_waiting.WaitForNotification();
    AddModelOptions options;
    if (!absl::SimpleAtoi(*text, &options.addend)) {
      return absl::InvalidArgumentError(absl::StrCat("cannot compile '", *text, "'"));
    }
    return MakeAddModel(options);
  }
};

}  // namespace stampmill
