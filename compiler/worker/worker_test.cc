// The whole path of a compile: client, worker process, library with LLVM, cache.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/onnx/testing/model_writer.h"
#include "compiler/worker/worker_main.h"
#include "compiler/worker/worker_process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string ModelBytes(int64_t columns) {
  const std::vector<double> values(static_cast<size_t>(columns), 1.5);
  return MakeModel(
      {.graph = {.inputs = {{"x", DType::kF32, {"N", columns}}},
                 .nodes = {{.op_type = "Mul", .inputs = {"x", "w"}, .outputs = {"y"}}},
                 .initializers = {{"w", MakeTestTensor(DType::kF32, {columns}, values)}},
                 .outputs = {"y"}}});
}

class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest() {
    std::string path = absl::StrCat(::testing::TempDir(), "/worker_XXXXXX");
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    root_ = fs::canonical(path);
    std::ofstream(root_ / "m.onnx", std::ios::binary) << ModelBytes(64);
  }
  ~WorkerTest() override { fs::remove_all(root_); }

  std::unique_ptr<KernelCache> OpenCache(bool writable = true) {
    return *KernelCache::Open({.directory = (root_ / "cache").string(), .writable = writable});
  }
  // The program beside its library, as Bazel builds them.
  static fs::path Program() { return fs::absolute("compiler/worker/worker_program"); }
  CompileRequest Request() {
    return {.model_path = (root_ / "m.onnx").string(),
            .target = "cpu:x86-64",
            .threads = 1,
            .worker_program = Program().string()};
  }

  fs::path root_;
};

TEST_F(WorkerTest, CompilesIntoTheCacheAndKeepsLlvmOutOfThisProcess) {
  const auto cache = OpenCache();
  const auto done = Compile(Request(), *cache);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->kernels_compiled, 1);
  EXPECT_TRUE(cache->FindModel(SourceOf(Request())).ok());
  EXPECT_EQ(cache->counters().objects_in_memory, 0);
  std::ifstream maps("/proc/self/maps");
  const std::string mapped(std::istreambuf_iterator<char>(maps), {});
  EXPECT_EQ(mapped.find("LLVM"), std::string::npos);
}

TEST_F(WorkerTest, HandsItsResultsOverWhereTheCacheCannotBeWritten) {
  const auto cache = OpenCache(/*writable=*/false);
  ASSERT_TRUE(Compile(Request(), *cache).ok());
  const auto record = cache->FindModel(SourceOf(Request()));
  ASSERT_TRUE(record.ok()) << record.status();
  for (const Digest& object : record->objects) EXPECT_TRUE(cache->Get(object).ok());
  EXPECT_EQ(cache->counters().objects_in_memory, 3);
}

TEST_F(WorkerTest, DamagedKernelsAreRebuiltToldOfAndCounted) {
  const auto cache = OpenCache();
  ASSERT_TRUE(Compile(Request(), *cache).ok());
  const ModelRecord record = *cache->FindModel(SourceOf(Request()));
  const fs::path v1 = root_ / "cache/v1";
  // Without its record the model is compiled anew, from the kernels that are there.
  const auto compile_again = [&] {
    fs::remove(v1 / "models" / record.Key().ToHex());
    ::testing::internal::CaptureStderr();
    const auto done = Compile(Request(), *cache);
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(done.ok()) << done.status();
    return std::pair(*done, log);
  };
  EXPECT_EQ(compile_again().first.kernels_reused, 1);
  EXPECT_EQ(cache->counters().corrupt_refused, 0);

  const fs::path kernel = fs::directory_iterator(v1 / "kernels")->path();
  std::ofstream(kernel) << "no kernel record";
  const auto [first, first_log] = compile_again();
  EXPECT_EQ(first.kernels_compiled, 1);
  EXPECT_THAT(first_log, HasSubstr(kernel.string()));
  EXPECT_EQ(cache->counters().corrupt_refused, 1);

  const fs::path artifact = v1 / "objects" / record.objects[0].ToHex();
  std::ofstream(artifact) << "no artifact";
  const auto [second, second_log] = compile_again();
  EXPECT_THAT(second_log, HasSubstr(artifact.string()));
  EXPECT_EQ(cache->counters().corrupt_refused, 2);
  EXPECT_TRUE(Compile(Request(), *OpenCache()).ok());
  EXPECT_THAT(cache->Verify()->problems, ::testing::IsEmpty());
}

TEST_F(WorkerTest, TheModelsFaultComesBackAsItsOwnError) {
  std::ofstream(root_ / "m.onnx", std::ios::binary) << "no model at all";
  const auto cache = OpenCache();
  EXPECT_EQ(Compile(Request(), *cache).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WorkerTest, WithoutTheLibraryTheErrorNamesIt) {
  // A copy, not a link: the worker looks beside what /proc/self/exe leads to.
  fs::copy_file(Program(), root_ / "alone");
  CompileRequest request = Request();
  request.worker_program = (root_ / "alone").string();
  const auto cache = OpenCache();
  const absl::Status status = Compile(request, *cache).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr((root_ / kCompilerLibraryName).string()));
  // Something else under its name.
  std::ofstream(root_ / kCompilerLibraryName) << "no library";
  EXPECT_EQ(Compile(request, *cache).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(WorkerTest, MemoryHasALimit) {
  // A few bytes that become 80 MB when constants are folded.
  constexpr double kCount = 20'000'000;
  std::ofstream(root_ / "m.onnx", std::ios::binary) << MakeModel(
      {.graph = {.inputs = {{"x", DType::kF32, {1}}},
                 .nodes = {{.op_type = "Expand", .inputs = {"one", "shape"}, .outputs = {"big"}},
                           {.op_type = "Mul", .inputs = {"x", "big"}, .outputs = {"y"}}},
                 .initializers = {{"one", MakeTestTensor(DType::kF32, {1}, {1})},
                                  {"shape", MakeTestTensor(DType::kI64, {1}, {kCount})}},
                 .outputs = {"y"}}});
  CompileRequest request = Request();
  request.memory_limit_bytes = int64_t{40} << 20;
  const auto cache = OpenCache();
  const absl::Status status = Compile(request, *cache).status();
  // The allocation that fails may be ours, which is told, or LLVM's, which ends the worker.
  EXPECT_TRUE(absl::IsResourceExhausted(status) || absl::IsInternal(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("memory"));
}

TEST_F(WorkerTest, AfterKillTheNextCompileSucceeds) {
  const auto cache = OpenCache();
  for (const char* moment : {"reading the model", "compiled 1 of 1 kernels", "packing weights"}) {
    const auto worker =
        *WorkerProcess::Start({.program = Program().string(), .time_limit_seconds = 60});
    const pid_t pid = worker->pid();
    const auto killed = worker->Run({.model_path = Request().model_path,
                                     .target = Request().target,
                                     .threads = 1,
                                     .cache_directory = cache->directory()},
                                    [pid, moment](const Frame& frame) -> absl::Status {
                                      const auto line = frame.Line();
                                      if (line.ok() && *line == moment) kill(pid, SIGKILL);
                                      return absl::OkStatus();
                                    });
    if (killed.ok()) continue;  // it was done before the signal came
    EXPECT_THAT(killed.status().message(), HasSubstr("signal 9"));
  }
  ASSERT_TRUE(Compile(Request(), *cache).ok());
  EXPECT_THAT(cache->Verify()->problems, ::testing::IsEmpty());
}

TEST_F(WorkerTest, DiesWithItsParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    auto worker = WorkerProcess::Start({.program = Program().string(), .time_limit_seconds = 60});
    const pid_t pid = worker.ok() ? (*worker)->pid() : -1;
    if (write(ends[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
    raise(SIGKILL);  // no destructor runs
  }
  pid_t worker = -1;
  ASSERT_EQ(read(ends[0], &worker, sizeof(worker)), static_cast<ssize_t>(sizeof(worker)));
  waitpid(parent, nullptr, 0);
  ASSERT_GT(worker, 0);
  // It is no child of this process: /proc says when it is gone, or a zombie of init.
  for (bool gone = false; !gone;) {  // the test's own time limit bounds it
    std::ifstream stat(absl::StrCat("/proc/", worker, "/stat"));
    const std::string text(std::istreambuf_iterator<char>(stat), {});
    gone = text.empty() || text.find(") Z ") != std::string::npos;
    if (!gone) sched_yield();
  }
  close(ends[0]);
  close(ends[1]);
}

TEST_F(WorkerTest, ByHandItSaysThatItIsNot) {
  const int status = system(absl::StrCat(Program().string(), " 2>/dev/null").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

}  // namespace
}  // namespace stampmill
