#include "compiler/compile.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/compiler_abi.h"
#include "compiler/worker/worker_process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The worker is a stand-in (fake_worker.cc); the real one is tested where LLVM is linked.
class CompileTest : public ::testing::Test {
 protected:
  CompileTest() {
    std::string path = absl::StrCat(::testing::TempDir(), "/compile_XXXXXX");
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    root_ = path;
    std::ofstream(root_ / "m.onnx") << "a model";
    cache_ = OpenCache(true);
  }
  ~CompileTest() override { fs::remove_all(root_); }

  std::unique_ptr<KernelCache> OpenCache(bool writable) {
    auto cache = KernelCache::Open({.directory = (root_ / "cache").string(), .writable = writable});
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  CompileRequest Request(const std::string& how = "") {
    return {.model_path = (root_ / "m.onnx").string(),
            .target = "cpu:x86-64-v3",
            .options = how,
            .worker_program = fs::absolute("compiler/worker/fake_worker").string(),
            .progress = [this](absl::string_view line) { lines_.emplace_back(line); }};
  }
  absl::Status Failure(const std::string& how) { return Compile(Request(how), *cache_).status(); }

  fs::path root_;
  std::unique_ptr<KernelCache> cache_;
  std::vector<std::string> lines_;
};

TEST_F(CompileTest, TheCacheHasTheModelAfterwards) {
  const auto done = Compile(Request(), *cache_);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->kernels_compiled, 3);
  EXPECT_EQ(done->kernels_reused, 4);
  EXPECT_EQ(done->seconds, 1.5);
  EXPECT_THAT(lines_, ElementsAre("compiled 3 of 3 kernels"));
  EXPECT_TRUE(cache_->FindModel(SourceOf(Request())).ok());
  // The second time there is nothing to do.
  EXPECT_EQ(Compile(Request(), *cache_)->kernels_compiled, 0);
  EXPECT_THAT(lines_, ::testing::SizeIs(1));
}

TEST_F(CompileTest, AModelIsCompiledOnceForManyThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> compiled{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      CompileRequest request = Request();
      request.progress = nullptr;
      const auto done = Compile(request, *cache_);
      ASSERT_TRUE(done.ok()) << done.status();
      if (done->kernels_compiled > 0) ++compiled;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiled, 1);
}

TEST_F(CompileTest, ResultsComeInMemoryWhenTheCacheCannotBeWritten) {
  const auto reader = OpenCache(false);
  const auto done = Compile(Request(), *reader);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(reader->counters().objects_in_memory, 1);
  const auto record = reader->FindModel(SourceOf(Request()));
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_TRUE(reader->Get(record->program).ok());
  EXPECT_FALSE(OpenCache(false)->HasModel(SourceOf(Request())));
}

TEST_F(CompileTest, AnErrorOfTheModelComesAsItIs) {
  EXPECT_EQ(Failure("refuses"), absl::UnimplementedError("node 'n' (Foo): not supported"));
}

TEST_F(CompileTest, AnAbortIsOneErrorWithTheLastWords) {
  const absl::Status status = Failure("abort");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("signal 6"));
  EXPECT_THAT(status.message(), HasSubstr("first words | LLVM ERROR: Cannot select"));
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
}

TEST_F(CompileTest, AWorkerThatIsKilledOrEndsIsAnError) {
  EXPECT_THAT(Failure("killed").message(), HasSubstr("signal 9"));
  EXPECT_THAT(Failure("exit").message(), HasSubstr("exit status 7"));
  EXPECT_EQ(Failure("silent").code(), absl::StatusCode::kInternal);
}

TEST_F(CompileTest, AnEndlessLoopEndsAtTheTimeLimit) {
  for (const char* how : {"loop", "stderr without end"}) {
    CompileRequest request = Request(how);
    request.time_limit_seconds = 1;
    const absl::Status status = Compile(request, *cache_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(status.message(), HasSubstr("limit 1 s"));
  }
}

TEST_F(CompileTest, WhatAWorkerSaysIsNotTrusted) {
  EXPECT_EQ(Failure("garbage").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Failure("altered object").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Failure("claims too much").message(), HasSubstr("the cache does not have it"));
}

TEST_F(CompileTest, AMissingProgramOrModelIsAnError) {
  CompileRequest request = Request();
  request.worker_program = "/no/such/program";
  EXPECT_THAT(Compile(request, *cache_).status().message(), HasSubstr("/no/such/program"));
  fs::remove(root_ / "m.onnx");
  EXPECT_EQ(Compile(Request(), *cache_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CompileTest, AProgramThatIsNoWorkerIsAnError) {
  CompileRequest request = Request();
  request.worker_program = "/bin/false";
  EXPECT_THAT(Compile(request, *cache_).status().message(), HasSubstr("exit status 1"));
}

TEST_F(CompileTest, KilledFromOutsideInTheMiddle) {
  // As kill -9 of the worker by hand: from another thread, once it is known to run.
  auto worker =
      *WorkerProcess::Start({.program = Request().worker_program, .time_limit_seconds = 60});
  const pid_t pid = worker->pid();
  const auto result =
      worker->Run({.model_path = "x", .options = "loop"}, [pid](Frame) -> absl::Status {
        kill(pid, SIGKILL);
        return absl::OkStatus();
      });
  EXPECT_THAT(result.status().message(), HasSubstr("signal 9"));
}

TEST_F(CompileTest, TheCompilerAbiIsADigest) { EXPECT_NE(CompilerAbi(), Digest{}); }

}  // namespace
}  // namespace stampmill
