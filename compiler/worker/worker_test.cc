// The whole path of a compile: client, worker process, library with LLVM, cache.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
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

  // Takes all of a model out of the cache; what is gone is damage.
  static OpenCompiledModel OpenAll(KernelCache& cache, std::vector<CacheObjectPtr>* read) {
    return [&cache, read](const ModelRecord& record) -> absl::Status {
      read->clear();
      std::vector<Digest> all = record.objects;
      all.push_back(record.program);
      for (const Digest& digest : all) {
        absl::StatusOr<CacheObjectPtr> object = cache.Get(digest);
        if (!object.ok()) return absl::DataLossError(object.status().message());
        read->push_back(*std::move(object));
      }
      return absl::OkStatus();
    };
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

TEST_F(WorkerTest, WhatTheWorkerCouldNotWriteIsLoggedOnceWithItsReason) {
  ASSERT_TRUE(Compile(Request(), *OpenCache()).ok());
  const ModelRecord record = *OpenCache()->FindModel(SourceOf(Request()));
  for (const Digest& object : record.objects) {
    const fs::path path = root_ / "cache/v1/objects" / object.ToHex();
    fs::remove(path);
    fs::create_directories(path / "that" / "stays");
  }
  const auto cache = OpenCache();
  for (const Digest& object : record.objects) {
    EXPECT_TRUE(absl::IsDataLoss(cache->Get(object).status()));
  }
  EXPECT_EQ(cache->unwritten_reason(), "");
  ::testing::internal::CaptureStderr();
  const auto done = Compile(Request(), *cache);
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_GE(cache->counters().write_failures, 2);
  EXPECT_THAT(cache->unwritten_reason(), HasSubstr("Is a directory"));
  const size_t told = log.find("could not be written");
  ASSERT_NE(told, std::string::npos) << log;
  EXPECT_THAT(log.substr(told), HasSubstr("Is a directory"));
  EXPECT_EQ(log.find("could not be written", told + 1), std::string::npos) << log;
}

TEST_F(WorkerTest, DamagedObjectsAreRebuiltAndUsedAtOnceWhoeverMetThem) {
  ASSERT_TRUE(Compile(Request(), *OpenCache()).ok());
  const ModelRecord record = *OpenCache()->FindModel(SourceOf(Request()));
  std::vector<Digest> all = record.objects;
  all.push_back(record.program);
  const fs::path objects = root_ / "cache/v1/objects";
  for (const Digest& victim : all) {
    const fs::path path = objects / victim.ToHex();
    const std::vector<std::function<void()>> damages = {
        [&] { fs::resize_file(path, 0); }, [&] { fs::resize_file(path, 20); },
        [&] {
          std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
          const char first = static_cast<char>(file.get() ^ 1);
          file.seekp(0);
          file.put(first);
        },
        [&] {
          const Digest& other = victim == all[0] ? all[1] : all[0];
          fs::copy_file(objects / other.ToHex(), path, fs::copy_options::overwrite_existing);
        },
        [&] {
          fs::remove(path);
          fs::create_directories(path / "that" / "stays");
        }};
    for (size_t i = 0; i < damages.size(); ++i) {
      SCOPED_TRACE(absl::StrCat(victim.ToHex(), " damaged in way ", i));
      damages[i]();
      const auto cache = OpenCache();
      EXPECT_TRUE(absl::IsDataLoss(cache->Get(victim).status()));
      // What is read within Compile is taken like what was read before.
      std::vector<CacheObjectPtr> read;
      const auto done = Compile(Request(), *cache, OpenAll(*cache, &read));
      ASSERT_TRUE(done.ok()) << done.status();
      EXPECT_THAT(read, ::testing::SizeIs(all.size()));
      EXPECT_EQ(cache->counters().corrupt_refused, 1);
      if (fs::is_directory(path)) fs::remove_all(path);
    }
    // Met by nobody before: found while Compile opens the model.
    if (fs::exists(path)) fs::resize_file(path, 10);
    const auto cache = OpenCache();
    std::vector<CacheObjectPtr> read;
    const auto done = Compile(Request(), *cache, OpenAll(*cache, &read));
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_THAT(read, ::testing::SizeIs(all.size()));
    EXPECT_THAT(cache->Verify()->problems, ::testing::IsEmpty());
  }
}

TEST_F(WorkerTest, AModelThatTheCacheMayNotKeepIsOpenedBeforeItIsPruned) {
  const auto cache =
      *KernelCache::Open({.directory = (root_ / "cache").string(), .size_bytes_max = 1});
  for (int start = 0; start < 2; ++start) {
    std::vector<CacheObjectPtr> read;
    ::testing::internal::CaptureStderr();
    const auto done = Compile(Request(), *cache, OpenAll(*cache, &read));
    const std::string log = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(done->kernels_compiled, 1);
    EXPECT_THAT(read, ::testing::SizeIs(3));
    EXPECT_THAT(log, HasSubstr("m.onnx: compiled for cpu:x86-64, but the cache does not keep it"));
    EXPECT_FALSE(cache->HasModel(SourceOf(Request())));
    EXPECT_EQ(cache->List()->objects, 0);
  }
}

TEST_F(WorkerTest, WhatIsGoneBeforeItIsOpenedIsCompiledIntoMemory) {
  const auto cache = OpenCache();
  std::vector<CacheObjectPtr> read;
  int tries = 0;
  // As where another process prunes that does not see the lock.
  const auto done = Compile(Request(), *cache, [&](const ModelRecord& record) {
    if (++tries == 1) {
      fs::remove(root_ / "cache/v1/objects" / record.program.ToHex());
      fs::remove(root_ / "cache/v1/models" / record.Key().ToHex());
    }
    return OpenAll(*cache, &read)(record);
  });
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(tries, 2);
  EXPECT_THAT(read, ::testing::SizeIs(3));
  EXPECT_EQ(cache->counters().objects_in_memory, 3);
}

TEST_F(WorkerTest, ADirectoryThatCannotBeUsedIsCompiledWithout) {
  fs::create_directory(root_ / "cache");
  std::ofstream(root_ / "cache/v1") << "a file";
  const auto cache = OpenCache();
  std::vector<CacheObjectPtr> read;
  const auto done = Compile(Request(), *cache, OpenAll(*cache, &read));
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_THAT(read, ::testing::SizeIs(3));
  EXPECT_EQ(cache->counters().write_failures, 3);
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
