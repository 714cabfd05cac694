#include "runtime/model_repository.h"

#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "gtest/gtest.h"
#include "runtime/testing/engine_fixture.h"
#include "runtime/testing/test_models.h"

namespace stampmill {
namespace {

namespace fs = std::filesystem;

// A repository folder whose "model files" hold a number: the model's addend. "bad" does not
// compile.
class ModelRepositoryTest : public testing::Test {
 protected:
  ModelRepositoryTest() {
    std::string pattern = absl::StrCat(testing::TempDir(), "/repository_XXXXXX");
    CHECK(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
    fixture_.engine->Start();
  }
  ~ModelRepositoryTest() override {
    repository_.reset();
    fixture_.engine->Stop();
    fs::remove_all(folder_);
  }

  void Write(const std::string& path, const std::string& text) {
    const std::string whole = absl::StrCat(folder_, "/", path);
    CHECK_OK(MakeDirectories(fs::path(whole).parent_path().string()));
    CHECK_OK(AtomicReplaceFile(whole, AsBytes(text)));
  }

  absl::StatusOr<ModelImage> Compile(const std::string& path) {
    ++compiled_;
    if (!compile_failure_.ok()) return compile_failure_;
    absl::StatusOr<std::string> text = ReadFile(path);
    if (!text.ok()) return text.status();
    if (*text == "huge") throw std::bad_alloc();
    AddModelOptions options;
    if (!absl::SimpleAtoi(*text, &options.addend)) {
      return absl::InvalidArgumentError(absl::StrCat("cannot compile '", *text, "'"));
    }
    return MakeAddModel(options);
  }

  ModelRepository& Open(ModelRepositoryOptions options) {
    repository_.reset();
    options.engine = fixture_.engine.get();
    options.pool = fixture_.pool.get();
    options.compile = [this](const std::string& path, const auto&) { return Compile(path); };
    auto made = ModelRepository::Create(std::move(options));
    CHECK_OK(made);
    repository_ = *std::move(made);
    return *repository_;
  }
  ModelRepository& OpenExplicit(std::vector<std::string> load_models = {}) {
    ModelRepository& repository = Open({.folders = {folder_},
                                        .control_mode = ModelControlMode::kExplicit,
                                        .load_models = std::move(load_models)});
    EXPECT_TRUE(repository.Start().ok());
    return repository;
  }

  absl::Status Load(ModelLoadRequest request) {
    absl::Status result;
    absl::Notification done;
    repository_->Load(std::move(request), [&](absl::Status status) {
      result = std::move(status);
      done.Notify();
    });
    done.WaitForNotification();
    return result;
  }
  absl::Status Unload(const std::string& name) {
    absl::Status result;
    absl::Notification done;
    repository_->Unload(name, false, [&](absl::Status status) {
      result = std::move(status);
      done.Notify();
    });
    done.WaitForNotification();
    return result;
  }

  // What a model adds to 0: tells versions apart. -1: it is not ready.
  int32_t Answer(const std::string& name, int64_t version = 0) {
    auto pin = repository_->Pin(name, version);
    if (!pin.ok()) return -1;
    static const std::vector<int32_t> kZeros(4, 0);
    RequestHandle request = fixture_.MakeRequest(**pin, kZeros, 1);
    CHECK_OK(fixture_.engine->Submit(request));
    const RequestHandle ready = fixture_.WaitForReady();
    CHECK_OK(ready->status);
    return EngineFixture::Values(ready->outputs[0])[0] / 2;
  }
  // "NAME:VERSION STATE" of all rows.
  std::vector<std::string> Rows(bool ready_only = false) const {
    std::vector<std::string> rows;
    for (const ModelIndexEntry& row : repository_->Index(ready_only)) {
      rows.push_back(absl::StrCat(row.name, ":", row.version, " ", row.state));
    }
    return rows;
  }

  std::string folder_;
  EngineFixture fixture_;
  std::atomic<int> compiled_{0};
  absl::Status compile_failure_;  // of every model, unless OK
  std::unique_ptr<ModelRepository> repository_;
};

using Strings = std::vector<std::string>;

TEST_F(ModelRepositoryTest, ServesTheLatestVersionOfEveryFolderAndGivenFiles) {
  Write("a/1/model.onnx", "10");
  Write("a/2/model.onnx", "20");
  Write("a/x/model.onnx", "bad");
  Write("b/1/model.onnx", "30");
  Write("stray.txt", "");
  Write("files/one.onnx", "40");
  fs::rename(folder_ + "/files", folder_ + "_files");
  ModelRepository& repository =
      Open({.folders = {folder_},
            .files = {{.path = folder_ + "_files/one.onnx"},
                      {.name = "two", .path = folder_ + "_files/one.onnx"}}});
  EXPECT_FALSE(repository.IsReady());
  EXPECT_TRUE(repository.Start().ok());
  EXPECT_TRUE(repository.IsReady());
  EXPECT_EQ(Answer("a"), 20);
  EXPECT_EQ(Answer("a", 2), 20);
  EXPECT_EQ(Answer("b"), 30);
  EXPECT_EQ(Answer("one"), 40);
  EXPECT_EQ(Answer("two", 1), 40);
  EXPECT_EQ(repository.Pin("a", 1).status().message(),
            "Request for unknown model: 'a' version 1 is not found");
  EXPECT_EQ(repository.Pin("zz").status().message(),
            "Request for unknown model: 'zz' is not found");
  EXPECT_TRUE(absl::IsNotFound(repository.Pin("zz").status()));
  EXPECT_EQ(Rows(), Strings({"a:2 READY", "b:1 READY", "one:1 READY", "two:1 READY"}));
  EXPECT_EQ(repository.PinAll("")->size(), 4u);
  EXPECT_EQ(repository.PinAll("a")->size(), 1u);
  EXPECT_TRUE(absl::IsNotFound(repository.PinAll("zz").status()));
  fs::remove_all(folder_ + "_files");
}

TEST_F(ModelRepositoryTest, VersionPoliciesChoose) {
  for (const char* version : {"1", "2", "5", "10"}) {
    Write(absl::StrCat("all/", version, "/model.onnx"), version);
    Write(absl::StrCat("latest/", version, "/model.onnx"), version);
    Write(absl::StrCat("specific/", version, "/model.onnx"), version);
  }
  Write("all/config.pbtxt", "version_policy { all {} }");
  Write("latest/config.pbtxt", "version_policy { latest { num_versions: 2 } }");
  Write("specific/config.pbtxt", "version_policy { specific { versions: [1, 5, 99] } }");
  Open({.folders = {folder_}});
  EXPECT_TRUE(repository_->Start().ok());
  EXPECT_EQ(Rows(),
            Strings({"all:1 READY", "all:2 READY", "all:5 READY", "all:10 READY", "latest:5 READY",
                     "latest:10 READY", "specific:1 READY", "specific:5 READY"}));
  EXPECT_EQ(Answer("all"), 10);
  EXPECT_EQ(Answer("all", 2), 2);
  EXPECT_EQ(Answer("specific"), 5);
}

TEST_F(ModelRepositoryTest, ABadModelIsToldAndTheOthersServe) {
  Write("bad/1/model.onnx", "bad");
  Write("config/1/model.onnx", "1");
  Write("config/config.pbtxt", "nonsense: 1");
  Write("empty/readme", "");
  Write("good/1/model.onnx", "1");
  Write("missing/1/other.onnx", "1");
  ModelRepository& repository = Open({.folders = {folder_}});
  EXPECT_FALSE(repository.Start().ok());
  EXPECT_FALSE(repository.IsReady());
  EXPECT_EQ(Answer("good"), 1);
  EXPECT_EQ(Rows(), Strings({"bad:1 UNAVAILABLE", "config: UNAVAILABLE", "empty: UNAVAILABLE",
                             "good:1 READY", "missing: UNAVAILABLE"}));
  EXPECT_EQ(Rows(/*ready_only=*/true), Strings({"good:1 READY"}));
  EXPECT_EQ(repository.Index(false)[0].reason, "cannot compile 'bad'");
  EXPECT_TRUE(absl::IsNotFound(repository.Pin("bad").status()));
  EXPECT_FALSE(*repository.IsModelReady("bad"));
  EXPECT_TRUE(*repository.IsModelReady("good"));

  ModelRepository& lenient = Open({.folders = {folder_}, .strict_readiness = false});
  EXPECT_FALSE(lenient.Start().ok());
  EXPECT_TRUE(lenient.IsReady());
}

TEST_F(ModelRepositoryTest, ExplicitModeLoadsAndUnloadsByName) {
  Write("a/1/model.onnx", "1");
  Write("b/1/model.onnx", "2");
  ModelRepository& repository = OpenExplicit({"a"});
  EXPECT_TRUE(repository.IsReady());
  EXPECT_EQ(Rows(), Strings({"a:1 READY", "b: "}));
  EXPECT_TRUE(Load({.name = "b"}).ok());
  EXPECT_EQ(Answer("b"), 2);
  EXPECT_TRUE(Unload("a").ok());
  EXPECT_EQ(Answer("a"), -1);
  EXPECT_EQ(repository.Index(false)[0].reason, "unloaded");
  EXPECT_EQ(Rows(), Strings({"a:1 UNAVAILABLE", "b:1 READY"}));
  EXPECT_TRUE(Unload("unknown").ok());
  EXPECT_TRUE(Load({.name = "a"}).ok());
  EXPECT_EQ(Answer("a"), 1);
}

TEST_F(ModelRepositoryTest, LoadingUnknownOrHostileNamesIsAnErrorOfTheCallAlone) {
  Write("a/1/model.onnx", "1");
  ModelRepository& repository = OpenExplicit({"a"});
  for (const std::string& name : {std::string("zz"), std::string(".."), std::string("../a"),
                                  std::string("a/1"), std::string("a\0b", 3), std::string("")}) {
    EXPECT_TRUE(absl::IsNotFound(Load({.name = name}))) << name;
  }
  EXPECT_EQ(Load({.name = "zz"}).message(),
            "failed to load 'zz', failed to poll from model repository");
  EXPECT_TRUE(repository.IsReady());
  EXPECT_EQ(Rows(), Strings({"a:1 READY"}));
}

TEST_F(ModelRepositoryTest, WithoutAVersionToServeTheErrorSaysWhatIsThere) {
  Write("none/v1/model.onnx", "1");
  Write("some/1/model.onnx", "1");
  Write("some/2/model.onnx", "1");
  Write("some/config.pbtxt", "version_policy { specific { versions: 3 } }");
  OpenExplicit({});
  const absl::Status none = Load({.name = "none"});
  EXPECT_NE(none.message().find("no folder called 1"), absl::string_view::npos) << none;
  const absl::Status some = Load({.name = "some"});
  EXPECT_NE(some.message().find("folder has 1, 2"), absl::string_view::npos) << some;
  Write("some/config.pbtxt", "nonsense: 3");
  const absl::Status wrong = Load({.name = "some"});
  EXPECT_NE(wrong.message().find("load failed for model 'some': "), absl::string_view::npos)
      << wrong;
}

TEST_F(ModelRepositoryTest, AModelThatMemoryDoesNotReachForIsRefusedForThat) {
  Write("a/1/model.onnx", "1");
  Write("b/1/model.onnx", "huge");
  OpenExplicit({"a"});
  const absl::Status status = Load({.name = "b"});
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("model 'b': memory"), absl::string_view::npos) << status;
  EXPECT_EQ(Answer("a"), 1);
}

TEST_F(ModelRepositoryTest, AReloadSwapsAndAnUnchangedModelIsLeftAlone) {
  Write("a/1/model.onnx", "1");
  OpenExplicit({"a"});
  EXPECT_EQ(compiled_, 1);
  EXPECT_TRUE(Load({.name = "a"}).ok());
  EXPECT_EQ(compiled_, 1);
  Write("a/1/model.onnx", "7");
  EXPECT_TRUE(Load({.name = "a"}).ok());
  EXPECT_EQ(Answer("a"), 7);
  Write("a/2/model.onnx", "8");
  EXPECT_TRUE(Load({.name = "a"}).ok());
  EXPECT_EQ(Rows(), Strings({"a:2 READY"}));
  EXPECT_EQ(Answer("a"), 8);
}

TEST_F(ModelRepositoryTest, AFailedReloadKeepsTheOldServing) {
  Write("a/1/model.onnx", "1");
  OpenExplicit({"a"});
  Write("a/1/model.onnx", "bad");
  const absl::Status status = Load({.name = "a"});
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(status.message().find("load failed for model 'a': version 1"), absl::string_view::npos)
      << status;
  EXPECT_EQ(Answer("a"), 1);
  EXPECT_EQ(repository_->Index(false)[0].reason, "cannot compile 'bad'");
  EXPECT_TRUE(repository_->IsReady());
  // Also a newer version that fails, and a configuration that does not parse.
  Write("a/1/model.onnx", "1");
  Write("a/2/model.onnx", "bad");
  EXPECT_FALSE(Load({.name = "a"}).ok());
  EXPECT_EQ(Answer("a"), 1);
  Write("a/config.pbtxt", "nonsense: 1");
  EXPECT_FALSE(Load({.name = "a"}).ok());
  EXPECT_EQ(Answer("a"), 1);
}

TEST_F(ModelRepositoryTest, TheOldModelLivesUntilItsLastRequestEnds) {
  Write("a/1/model.onnx", "1");
  OpenExplicit({"a"});
  ModelPin pin = *repository_->Pin("a");
  Write("a/1/model.onnx", "2");
  EXPECT_TRUE(Load({.name = "a"}).ok());
  EXPECT_EQ(Answer("a"), 2);
  static const std::vector<int32_t> kZeros(4, 0);
  RequestHandle request = fixture_.MakeRequest(*pin, kZeros, 1);
  ASSERT_TRUE(fixture_.engine->Submit(request).ok());
  RequestHandle ready = fixture_.WaitForReady();
  EXPECT_EQ(EngineFixture::Values(ready->outputs[0])[0], 2);
}

TEST_F(ModelRepositoryTest, AnUnloadEndsWhenTheLastPinIsGone) {
  Write("a/1/model.onnx", "1");
  OpenExplicit({"a"});
  ModelPin pin = *repository_->Pin("a");
  absl::Notification done;
  repository_->Unload("a", false, [&](const absl::Status&) { done.Notify(); });
  // Nobody gets it any more, long before it is gone.
  while (repository_->Pin("a").ok()) std::this_thread::yield();
  EXPECT_FALSE(done.HasBeenNotified());
  pin.Reset();
  done.WaitForNotification();
}

TEST_F(ModelRepositoryTest, MemoryIsReturnedByAnUnload) {
  Write("a/1/model.onnx", "1");
  MemoryBudget budget("cpu", uint64_t{1} << 30);
  Open({.folders = {folder_}, .control_mode = ModelControlMode::kExplicit, .budget = &budget});
  EXPECT_TRUE(repository_->Start().ok());
  EXPECT_TRUE(Load({.name = "a"}).ok());
  EXPECT_GT(budget.reserved_bytes(), 0u);
  EXPECT_TRUE(Unload("a").ok());
  EXPECT_EQ(budget.reserved_bytes(), 0u);
}

TEST_F(ModelRepositoryTest, AConfigurationMayComeWithTheLoad) {
  Write("a/1/model.onnx", "1");
  OpenExplicit();
  EXPECT_TRUE(Load({.name = "a", .config_json = R"({"max_batch_size": 3})"}).ok());
  EXPECT_EQ((*repository_->Pin("a"))->config().max_batch_size(), 3);
  EXPECT_TRUE(absl::IsInvalidArgument(Load({.name = "a", .config_json = "{"})));
  EXPECT_TRUE(Load({.name = "a"}).ok());
  EXPECT_EQ((*repository_->Pin("a"))->config().max_batch_size(), 32);
}

TEST_F(ModelRepositoryTest, FilesMayComeWithTheLoad) {
  Write("a/1/model.onnx", "1");
  OpenExplicit({"a"});
  EXPECT_TRUE(Load({.name = "a", .config_json = "{}", .files = {{"3/model.onnx", "33"}}}).ok());
  EXPECT_EQ(Rows(), Strings({"a:3 READY"}));
  EXPECT_EQ(Answer("a"), 33);
  EXPECT_TRUE(Load({.name = "new", .config_json = "{}", .files = {{"1/model.onnx", "44"}}}).ok());
  EXPECT_EQ(Answer("new"), 44);
  for (const char* path : {"../x", "1/../../x", "/1/model.onnx", "1//model.onnx", "model.onnx",
                           "x/model.onnx", "-1/model.onnx", "01/model.onnx", "1/", "1/."}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(Load({.name = "a", .config_json = "{}", .files = {{path, "5"}}})))
        << path;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Load({.name = "a", .files = {{"1/model.onnx", "5"}}})));
  EXPECT_EQ(Answer("a"), 33);
  // Without overrides the folder's own model comes back.
  EXPECT_TRUE(Load({.name = "a"}).ok());
  EXPECT_EQ(Answer("a"), 1);
}

TEST_F(ModelRepositoryTest, AModelFileMayNotLeaveItsFolder) {
  Write("a/1/model.onnx", "1");
  Write("a/config.pbtxt", "default_model_filename: '../../secret'");
  Write("secret", "9");
  OpenExplicit();
  EXPECT_TRUE(absl::IsInvalidArgument(Load({.name = "a"})));
}

TEST_F(ModelRepositoryTest, PollingFollowsTheFolder) {
  Write("a/1/model.onnx", "1");
  Write("b/1/model.onnx", "2");
  // Polled by hand: the thread's first look is an hour away.
  Open({.folders = {folder_}, .control_mode = ModelControlMode::kPoll, .poll_seconds = 3600});
  EXPECT_TRUE(repository_->Start().ok());
  EXPECT_EQ(compiled_, 2);
  repository_->Poll();
  EXPECT_EQ(compiled_, 2);
  Write("a/1/model.onnx", "5");
  Write("c/1/model.onnx", "3");
  fs::remove_all(folder_ + "/b");
  repository_->Poll();
  EXPECT_EQ(Answer("a"), 5);
  EXPECT_EQ(Answer("c"), 3);
  EXPECT_EQ(Answer("b"), -1);
  EXPECT_EQ(Rows(/*ready_only=*/true), Strings({"a:1 READY", "c:1 READY"}));
  EXPECT_TRUE(repository_->IsReady());
  // A broken change is tried once and told; mending it is seen.
  Write("a/1/model.onnx", "bad");
  repository_->Poll();
  const int after = compiled_;
  repository_->Poll();
  EXPECT_EQ(compiled_, after);
  EXPECT_EQ(Answer("a"), 5);
  Write("a/1/model.onnx", "6");
  repository_->Poll();
  EXPECT_EQ(Answer("a"), 6);
  const absl::Status status = Load({.name = "a"});
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(), "explicit model load / unload is not allowed if polling is enabled");
}

TEST_F(ModelRepositoryTest, ImpossibleOptionsAreRefused) {
  const auto create = [&](ModelRepositoryOptions options) {
    options.engine = fixture_.engine.get();
    options.pool = fixture_.pool.get();
    options.compile = [this](const std::string& path, const auto&) { return Compile(path); };
    return ModelRepository::Create(std::move(options)).status();
  };
  Write("m.onnx", "1");
  const std::string file = folder_ + "/m.onnx";
  EXPECT_TRUE(absl::IsInvalidArgument(create({.folders = {folder_ + "/absent"}})));
  EXPECT_TRUE(absl::IsInvalidArgument(create({.files = {{.path = folder_ + "/absent.onnx"}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(create({.files = {{.path = file}, {.path = file}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(create({.files = {{.name = "a/b", .path = file}}})));
}

TEST_F(ModelRepositoryTest, ManyCallersLoadUnloadAndPinAtOnce) {
  for (const char* name : {"a", "b"}) Write(absl::StrCat(name, "/1/model.onnx"), "1");
  OpenExplicit();
  std::vector<std::thread> callers;
  for (int t = 0; t < 3; ++t) {
    callers.emplace_back([this, t] {
      const std::string name(1, static_cast<char>('a' + t % 2));
      for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(Load({.name = name}).ok());
        repository_->Pin(name).status().IgnoreError();
        EXPECT_TRUE(Unload(name).ok());
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(Rows(/*ready_only=*/true), Strings());
}

TEST_F(ModelRepositoryTest, AFolderThatCannotBeReadIsAFailureAndNotReady) {
  const std::string gone = absl::StrCat(folder_, "/mount");
  Write("mount/one/1/model.onnx", "1");
  ModelRepository& repository =
      Open({.folders = {gone}, .control_mode = ModelControlMode::kPoll, .poll_seconds = 1000});
  fs::rename(gone, gone + "_away");
  EXPECT_TRUE(absl::IsNotFound(repository.Start()));
  EXPECT_FALSE(repository.IsReady());
  fs::rename(gone + "_away", gone);
  repository.Poll();
  EXPECT_TRUE(repository.IsReady());
  EXPECT_TRUE(repository.Pin("one").ok());
}

TEST_F(ModelRepositoryTest, WhatCannotBeSeenAtAPollServesOn) {
  const std::string mount = absl::StrCat(folder_, "/mount");
  Write("mount/one/1/model.onnx", "1");
  ModelRepository& repository =
      Open({.folders = {mount}, .control_mode = ModelControlMode::kPoll, .poll_seconds = 1000});
  ASSERT_TRUE(repository.Start().ok());
  fs::rename(mount, mount + "_away");
  repository.Poll();
  EXPECT_TRUE(repository.Pin("one").ok());
  EXPECT_TRUE(repository.IsReady());
  fs::rename(mount + "_away", mount);
  fs::remove_all(mount + "/one");
  repository.Poll();
  EXPECT_FALSE(repository.Pin("one").ok());
}

TEST_F(ModelRepositoryTest, AFailureThatMayPassIsTriedAgainAtTheNextPoll) {
  Write("one/1/model.onnx", "1");
  Write("bad/1/model.onnx", "bad");
  compile_failure_ = absl::InternalError("compile worker: killed by signal 9");
  ModelRepository& repository =
      Open({.folders = {folder_}, .control_mode = ModelControlMode::kPoll, .poll_seconds = 1000});
  EXPECT_FALSE(repository.Start().ok());
  compile_failure_ = absl::OkStatus();
  repository.Poll();
  EXPECT_TRUE(repository.Pin("one").ok());
  const int compiled = compiled_;
  repository.Poll();
  EXPECT_EQ(compiled_, compiled) << "a model that is wrong stays wrong";
}

TEST_F(ModelRepositoryTest, AFolderWhoseNameIsNoTextIsNoModel) {
  Write("one/1/model.onnx", "1");
  Write("\xff\xfe/1/model.onnx", "1");
  ModelRepository& repository = Open({.folders = {folder_}});
  ASSERT_TRUE(repository.Start().ok());
  const std::vector<ModelIndexEntry> index = repository.Index(false);
  ASSERT_EQ(index.size(), 1u);
  EXPECT_EQ(index[0].name, "one");
}

TEST_F(ModelRepositoryTest, AnotherBackendsModelIsRefusedForItsBackend) {
  Write("py/config.pbtxt", "backend: 'python'");
  Write("py/1/model.py", "pass");
  const absl::Status status = Open({.folders = {folder_}}).Start();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_NE(status.message().find("'python'"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace stampmill
