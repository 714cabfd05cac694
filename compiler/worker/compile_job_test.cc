#include "compiler/worker/compile_job.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/compiler_abi.h"
#include "compiler/onnx/testing/model_writer.h"
#include "compiler/program/program.h"
#include "devices/artifact.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// y = op((x + w)) over [N, columns] with w of that many values.
std::string AddModel(const std::string& op, int64_t columns, double value) {
  const std::vector<double> values(static_cast<size_t>(columns), value);
  return MakeModel(
      {.graph = {.inputs = {{"x", DType::kF32, {"N", columns}}},
                 .nodes = {{.op_type = "Add", .inputs = {"x", "w"}, .outputs = {"s"}},
                           {.op_type = op, .inputs = {"s"}, .outputs = {"y"}}},
                 .initializers = {{"w", MakeTestTensor(DType::kF32, {columns}, values)}},
                 .outputs = {"y"}}});
}

// Twenty maps with a reduction each between them, so that they stay kernels of their own.
std::string LongModel() {
  TestGraph graph = {.inputs = {{"x", DType::kF32, {"N", 32}}}};
  std::string last = "x";
  for (int i = 0; i < 20; ++i) {
    const std::string sum = absl::StrCat("sum", i), next = absl::StrCat("v", i);
    graph.nodes.push_back(
        {.op_type = "Softmax", .inputs = {last}, .outputs = {sum}, .attributes = {}});
    const std::vector<double> values(32, i + 0.5);
    graph.initializers.emplace_back(absl::StrCat("w", i),
                                    MakeTestTensor(DType::kF32, {32}, values));
    graph.nodes.push_back({.op_type = i % 2 == 0 ? "Pow" : "Mul",
                           .inputs = {sum, absl::StrCat("w", i)},
                           .outputs = {next}});
    last = next;
  }
  graph.outputs = {last};
  return MakeModel({.graph = graph});
}

class CompileJobTest : public ::testing::Test {
 protected:
  CompileJobTest() {
    std::string path = absl::StrCat(::testing::TempDir(), "/job_XXXXXX");
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    root_ = path;
    cache_ = *KernelCache::Open({.directory = (root_ / "cache").string()});
  }
  ~CompileJobTest() override { fs::remove_all(root_); }

  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(root_ / name, std::ios::binary) << bytes;
    return (root_ / name).string();
  }
  CompileJob Job(const std::string& path) {
    return {.model_path = path, .target = "cpu:x86-64", .threads = 2};
  }
  ModelRecord Find(const std::string& path, KernelCache& cache) {
    const auto record =
        cache.FindModel({.path = path, .target = "cpu:x86-64", .compiler_abi = CompilerAbi()});
    EXPECT_TRUE(record.ok()) << record.status();
    return record.value_or(ModelRecord{});
  }

  fs::path root_;
  std::unique_ptr<KernelCache> cache_;
};

TEST_F(CompileJobTest, ModelsOfARepositoryAreCalledByTheirFolder) {
  const auto name_of = [&](const std::string& path, int64_t columns) {
    fs::create_directories((root_ / path).parent_path());
    Write(path, AddModel("Exp", columns, 2));
    EXPECT_TRUE(RunCompileJob(Job((root_ / path).string()), *cache_).ok());
    return Find((root_ / path).string(), *cache_).name;
  };
  EXPECT_EQ(name_of("repository/resnet/3/model.onnx", 41), "resnet");
  EXPECT_EQ(name_of("repository/other/3/net.v2.onnx", 42), "net.v2");
  EXPECT_EQ(name_of("models/mine/model.onnx", 43), "model");
}

TEST_F(CompileJobTest, TheCacheHasAProgramWhoseKernelsAreInItsArtifacts) {
  const std::string path = Write("m.onnx", AddModel("Exp", 40, 2));
  const auto done = RunCompileJob(Job(path), *cache_);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_GE(done->kernels_compiled, 1);
  EXPECT_EQ(done->kernels_reused, 0);
  const ModelRecord record = Find(path, *cache_);
  EXPECT_EQ(record.name, "m");
  const auto program = Program::Parse((*cache_->Get(record.program))->bytes());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->target, "cpu:x86-64");
  for (const Digest& digest : program->artifacts) {
    const CacheObjectPtr object = *cache_->Get(digest);
    const auto artifact = Artifact::Parse(object->bytes(), object);
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    EXPECT_EQ(artifact->target().ToString(), "cpu:x86-64");
  }
  for (const ProgramCommand& command : program->commands) {
    if (command.kind == ProgramCommand::Kind::kLaunch) {
      EXPECT_TRUE(absl::StartsWith(command.entry, "k_")) << command.entry;
    }
  }
}

TEST_F(CompileJobTest, EqualKernelsOfAnotherModelAreReused) {
  ASSERT_TRUE(RunCompileJob(Job(Write("a.onnx", AddModel("Exp", 40, 2))), *cache_).ok());
  const auto done = RunCompileJob(Job(Write("b.onnx", AddModel("Exp", 40, 3))), *cache_);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->kernels_compiled, 0);
  EXPECT_GE(done->kernels_reused, 1);
}

TEST_F(CompileJobTest, ADamagedArtifactIsNotReused) {
  const std::string a = Write("a.onnx", AddModel("Exp", 40, 2));
  ASSERT_TRUE(RunCompileJob(Job(a), *cache_).ok());
  const ModelRecord record = Find(a, *cache_);
  for (const Digest& digest : record.objects) {
    std::ofstream(root_ / "cache/v1/objects" / digest.ToHex()) << "damaged";
  }
  cache_ = *KernelCache::Open({.directory = (root_ / "cache").string()});
  const auto done = RunCompileJob(Job(Write("b.onnx", AddModel("Exp", 40, 3))), *cache_);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_GE(done->kernels_compiled, 1);
  EXPECT_GE(cache_->counters().corrupt_refused, 1);
}

TEST_F(CompileJobTest, ThreadsDoNotChangeTheResult) {
  const std::string path = Write("m.onnx", LongModel());
  const auto other = *KernelCache::Open({.directory = (root_ / "other").string()});
  CompileJob job = Job(path);
  job.threads = 1;
  ASSERT_TRUE(RunCompileJob(job, *cache_).ok());
  job.threads = 3;
  const auto done = RunCompileJob(job, *other);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(Find(path, *cache_).program, Find(path, *other).program);
}

TEST_F(CompileJobTest, ProgressIsToldInOrder) {
  std::vector<std::string> lines;
  CompileJob job = Job(Write("m.onnx", LongModel()));
  job.progress = [&lines](absl::string_view line) { lines.emplace_back(line); };
  ASSERT_TRUE(RunCompileJob(job, *cache_).ok());
  EXPECT_EQ(lines.front(), "reading the model");
  EXPECT_EQ(lines.back(), "packing weights");
  EXPECT_THAT(lines, ::testing::Contains(::testing::StartsWith("compiled ")));
}

TEST_F(CompileJobTest, AModelThatChangesMeanwhileIsNotKept) {
  const std::string path = Write("m.onnx", AddModel("Exp", 40, 2));
  CompileJob job = Job(path);
  job.progress = [this](absl::string_view line) {
    if (line == "packing weights") Write("m.onnx", AddModel("Exp", 41, 2));
  };
  EXPECT_EQ(RunCompileJob(job, *cache_).status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(cache_->List()->models, ::testing::IsEmpty());
}

TEST_F(CompileJobTest, ResultsStayInMemoryWhereTheCacheCannotBeWritten) {
  const auto memory = *KernelCache::Open({});
  const std::string path = Write("m.onnx", AddModel("Exp", 40, 2));
  ASSERT_TRUE(RunCompileJob(Job(path), *memory).ok());
  EXPECT_TRUE(memory->Get(Find(path, *memory).program).ok());
  EXPECT_GE(memory->in_memory().objects.size(), 3u);
}

TEST_F(CompileJobTest, WhatIsWrongWithAModelIsNamed) {
  EXPECT_EQ(RunCompileJob(Job((root_ / "none.onnx").string()), *cache_).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(RunCompileJob(Job(Write("g.onnx", "garbage")), *cache_).status().code(),
            absl::StatusCode::kInvalidArgument);
  const absl::Status unknown =
      RunCompileJob(Job(Write("u.onnx", AddModel("NoSuchOperator", 4, 1))), *cache_).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(unknown.message(), HasSubstr("NoSuchOperator"));
  EXPECT_THAT(unknown.message(), HasSubstr((root_ / "u.onnx").string()));
  CompileJob job = Job(Write("m.onnx", AddModel("Exp", 4, 1)));
  job.target = "cpu:z80";
  EXPECT_EQ(RunCompileJob(job, *cache_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(cache_->List()->models, ::testing::IsEmpty());
}

}  // namespace
}  // namespace stampmill
