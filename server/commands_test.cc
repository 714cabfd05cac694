// The offline commands as a user calls them, on small models, with the real compile worker: this
// test's own binary is the program that the worker is started from.
#include "server/cli/commands.h"

#include <sys/stat.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/placement.h"
#include "server/cli/command_line.h"
#include "server/cli/kernel_models.h"
#include "server/cli/npy.h"

namespace stampmill {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Command = int (*)(int, char**);

struct Outcome {
  int exit = -1;
  std::string output, error;
  boost::json::value json() const { return boost::json::parse(output); }
};

Outcome Call(Command command, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "command");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.exit = command(static_cast<int>(pointers.size()), pointers.data());
  fflush(stdout);
  outcome.output = ::testing::internal::GetCapturedStdout();
  outcome.error = ::testing::internal::GetCapturedStderr();
  return outcome;
}

class CommandsTest : public ::testing::Test {
 protected:
  CommandsTest() {
    std::string path = absl::StrCat(::testing::TempDir(), "/commands_XXXXXX");
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    root_ = path;
    const KernelModel model = {.name = "small",
                               .op_type = "MatMul",
                               .inputs = {{.name = "a/x", .shape = {3, 16}}},
                               .weights = {{.name = "w", .shape = {16, 8}}}};
    std::ofstream(root_ / "m.onnx", std::ios::binary) << SerializeKernelModel(model, 7);
  }
  ~CommandsTest() override { fs::remove_all(root_); }

  std::string model() const { return (root_ / "m.onnx").string(); }
  std::string At(const char* name) const { return (root_ / name).string(); }
  std::string CacheDir(const char* name = "cache") const {
    return absl::StrCat("--cache-dir=", At(name));
  }
  Outcome Compile(const char* target = "cpu:x86-64") {
    return Call(RunCompile, {model(), absl::StrCat("--target=", target),
                             absl::StrCat("--output=", At("cache"))});
  }

  fs::path root_;
};

TEST_F(CommandsTest, CompiledAheadOfTimeItRunsElsewhereWithoutCompiling) {
  const Outcome compiled = Compile();
  ASSERT_EQ(compiled.exit, kExitDone) << compiled.error;
  EXPECT_THAT(compiled.output, HasSubstr("1 kernels compiled"));
  // Another folder, another name; only the contents count.
  fs::create_directory(root_ / "elsewhere");
  fs::rename(root_ / "m.onnx", root_ / "elsewhere/other.onnx");
  const Outcome run = Call(
      RunRun, {At("elsewhere/other.onnx"), CacheDir(), "--cpu-isa=x86-64", "--threads=1",
               "--require-warm-cache", "--random-inputs", "--verify", "--repeat=5", "--profile",
               absl::StrCat("--output-dir=", At("out")), absl::StrCat("--trace=", At("trace.json")),
               absl::StrCat("--profile-chart=", At("chart.svg")), "--json"});
  ASSERT_EQ(run.exit, kExitDone) << run.error;
  const boost::json::value json = run.json();
  EXPECT_EQ(json.at("target").as_string(), "cpu:x86-64");
  EXPECT_TRUE(json.at("verify").at(0).at("agrees").as_bool());
  EXPECT_LE(json.at("p25_us").as_double(), json.at("p50_us").as_double());
  EXPECT_LE(json.at("p50_us").as_double(), json.at("p99_us").as_double());
  EXPECT_EQ(json.at("profile").at("rows").as_array().size(), 1u);
  const auto output = ReadNpy(At("out/y.npy"));
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->shape(), (std::vector<int64_t>{3, 8}));
  std::ifstream trace(root_ / "trace.json");
  const std::string events(std::istreambuf_iterator<char>(trace), {});
  EXPECT_EQ(boost::json::parse(events).at("traceEvents").as_array().size(), 1u);
  std::ifstream chart(root_ / "chart.svg");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(chart), {}), HasSubstr("</svg>"));
}

TEST_F(CommandsTest, AColdCacheIsAnErrorWhereAWarmOneIsRequired) {
  const Outcome run =
      Call(RunRun, {model(), CacheDir(), "--require-warm-cache", "--random-inputs", "--threads=1"});
  EXPECT_EQ(run.exit, kExitFailed);
  EXPECT_THAT(run.error, HasSubstr("--require-warm-cache"));
}

// 1: the work failed, 2: the command line is wrong. A file that is named but missing or damaged is
// the work's failure, and so is what this build has no backend for.
TEST_F(CommandsTest, TheExitStatusMeansTheSameOnEveryCommand) {
  const std::string missing = At("none.onnx"), broken = At("broken.onnx"), cache = CacheDir();
  std::ofstream(broken) << "no model";
  std::ofstream(At("broken.npy")) << "no array";
  Tensor wrong_type = *Tensor::Allocate(DType::kI32, {3, 16});
  ASSERT_TRUE(WriteNpy(At("i32.npy"), wrong_type).ok());
  const std::string cache_is_file = absl::StrCat("--cache-dir=", model());
  const std::string precision = "--activation-precision=f16";
  constexpr char kPrecisions[] = "--activation-precision: got 'f16', limit auto, f32, bf16";
  struct Case {
    Command command;
    std::vector<std::string> arguments;
    int exit;
    const char* words;
  };
  const std::vector<Case> cases = {
      {RunRun, {missing, cache, "--random-inputs"}, kExitFailed, "none.onnx"},
      {RunRun, {broken, cache, "--random-inputs"}, kExitFailed, "broken.onnx"},
      {RunCompile, {missing, cache}, kExitFailed, "none.onnx"},
      {RunCompile, {broken, cache}, kExitFailed, "broken.onnx"},
      {RunInspect, {missing}, kExitFailed, "none.onnx"},
      {RunInspect, {broken}, kExitFailed, "broken.onnx"},
      {RunBench, {"model", missing, cache}, kExitFailed, "none.onnx"},
      {RunRun, {model(), cache, "--input=a/x=/no/such.npy"}, kExitFailed, "/no/such.npy"},
      {RunRun, {model(), cache, "--input=a/x=" + At("broken.npy")}, kExitFailed, "npy"},
      {RunRun, {model(), cache, "--input=a/x=" + At("i32.npy")}, kExitFailed, "dtype"},
      {RunRun, {model(), cache, "--random-inputs", "--device=npu:0"}, kExitFailed, "npu"},
      {RunCompile, {model(), cache, "--target=npu:xdna1"}, kExitFailed, "cpu:x86-64-v4+vnni"},
      {RunCompile, {missing, cache, "--target=cuda:sm_80"}, kExitFailed, "cpu:x86-64, "},
      {RunCache, {"import", missing, cache}, kExitFailed, "none.onnx"},
      {RunRun, {}, kExitUsage, "MODEL"},
      {RunCompile, {}, kExitUsage, "MODEL"},
      {RunInspect, {}, kExitUsage, "MODEL"},
      {RunRun, {missing, cache, "--random-inputs", "--cpu-isa=foo"}, kExitUsage, "foo"},
      {RunInspect, {missing, "--cpu-isa=foo"}, kExitUsage, "foo"},
      {RunBench, {"model", missing, cache, "--cpu-isa=foo"}, kExitUsage, "foo"},
      {RunBench, {"kernel", cache, "--filter=matmul 1x", "--cpu-isa=foo"}, kExitUsage, "foo"},
      {RunCompile, {missing, cache, "--target=foo"}, kExitUsage, "foo"},
      {RunRun, {missing, cache, "--random-inputs", "--device=foo"}, kExitUsage, "foo"},
      {RunRun, {missing, cache, "--random-inputs", "--compile-options=foo"}, kExitUsage, "foo"},
      {RunCompile, {missing, cache, "--compile-options=foo"}, kExitUsage, "foo"},
      {RunRun, {missing, cache, "--random-inputs", precision}, kExitUsage, kPrecisions},
      {RunCompile, {missing, cache, precision}, kExitUsage, kPrecisions},
      {RunInspect, {missing, precision}, kExitUsage, kPrecisions},
      {RunBench, {"model", missing, cache, precision}, kExitUsage, kPrecisions},
      {RunBench, {"kernel", cache, "--filter=matmul 1x", precision}, kExitUsage, kPrecisions},
      {RunRun, {model(), cache_is_file, "--random-inputs"}, kExitUsage, "directory"},
      {RunCompile, {model(), cache_is_file}, kExitUsage, "directory"},
      {RunCache, {"list", cache_is_file}, kExitUsage, "directory"},
      {RunRun, {model(), cache}, kExitUsage, "--random-inputs"},
      {RunRun, {model(), cache, "--input=a/x"}, kExitUsage, "NAME=VALUE"},
      {RunRun, {model(), cache, "--random-inputs", "--input=b=x.npy"}, kExitUsage, "'b'"},
      {RunRun, {model(), cache, "--random-inputs", "--shape=a/x=3x17"}, kExitUsage, "want 16"},
      {RunRun, {model(), cache, "--random-inputs", "--shape=a/x=3"}, kExitUsage, "rank"},
      {RunRun, {model(), cache, "--random-inputs", "--shape=a/x=3xq"}, kExitUsage, "3xq"},
      {RunCache, {"prune", cache, "--max-size=-1"}, kExitUsage, "--max-size: got '-1'"},
      {RunCache, {"prune", cache, "--max-size=1.5x"}, kExitUsage, "--max-size"},
      {RunCache, {"import", cache}, kExitUsage, "FILE"},
  };
  for (const Case& c : cases) {
    const Outcome outcome = Call(c.command, c.arguments);
    const std::string line = absl::StrJoin(c.arguments, " ");
    EXPECT_EQ(outcome.exit, c.exit) << line << ": " << outcome.error;
    EXPECT_THAT(outcome.error, HasSubstr(c.words)) << line;
    EXPECT_THAT(outcome.error, HasSubstr("stampmill: ")) << line;
  }
  EXPECT_TRUE(fs::exists(model()));
}

TEST_F(CommandsTest, InputsComeFromFiles) {
  Tensor input = *Tensor::Allocate(DType::kF32, {3, 16});
  for (int64_t i = 0; i < 48; ++i) input.SetFromDouble(i, static_cast<double>(i % 5));
  ASSERT_TRUE(WriteNpy(At("x.npy"), input).ok());
  const Outcome run = Call(RunRun, {model(), CacheDir(), "--threads=1", "--verify",
                                    absl::StrCat("--input=a/x=", At("x.npy"))});
  EXPECT_EQ(run.exit, kExitDone) << run.error;
  EXPECT_THAT(run.output, HasSubstr("yes"));

  EXPECT_EQ(Call(RunRun, {model(), CacheDir()}).exit, kExitUsage);
  const Outcome unknown =
      Call(RunRun, {model(), CacheDir(), absl::StrCat("--input=b=", At("x.npy"))});
  EXPECT_EQ(unknown.exit, kExitUsage);
  EXPECT_THAT(unknown.error, HasSubstr("the model's inputs are a/x"));
  EXPECT_EQ(Call(RunRun, {model(), CacheDir(), "--input=a/x=/no/such.npy"}).exit, kExitFailed);
}

TEST_F(CommandsTest, IndicesThatAnOperatorDoesNotHaveAreRefused) {
  const KernelModel gather = {.name = "gather",
                              .op_type = "Gather",
                              .inputs = {{.name = "data", .shape = {10, 4}},
                                         {.name = "ids", .dtype = DType::kI64, .shape = {100}}}};
  std::ofstream(At("g.onnx"), std::ios::binary) << SerializeKernelModel(gather, 1);
  const auto run = [&](const char* largest) {
    return Call(RunRun, {At("g.onnx"), CacheDir(), "--threads=1", "--random-inputs", "--verify",
                         absl::StrCat("--random-int-max=", largest)});
  };
  EXPECT_EQ(run("9").exit, kExitDone);
  const Outcome refused = run("10");
  EXPECT_EQ(refused.exit, kExitFailed);
  EXPECT_THAT(refused.error, HasSubstr("input 'ids': element "));
  EXPECT_THAT(refused.error, HasSubstr("got 10, limits -10 and 9 (indices of node"));
  EXPECT_THAT(refused.error, HasSubstr("Gather"));
}

TEST_F(CommandsTest, SeveralTargetsInOneCall) {
  const Outcome compiled = Compile("cpu:x86-64,cpu:x86-64-v3");
  ASSERT_EQ(compiled.exit, kExitDone) << compiled.error;
  const Outcome list = Call(RunCache, {"list", CacheDir(), "--json"});
  EXPECT_EQ(list.json().at("models").as_array().size(), 2u);
  EXPECT_EQ(Compile("cpu:z80").exit, kExitUsage);
}

TEST_F(CommandsTest, CacheIsListedVerifiedExportedImportedAndPruned) {
  ASSERT_EQ(Compile().exit, kExitDone);
  EXPECT_THAT(Call(RunCache, {"list", CacheDir()}).output, HasSubstr("cpu:x86-64"));
  EXPECT_EQ(Call(RunCache, {"verify", CacheDir()}).exit, kExitDone);
  ASSERT_EQ(Call(RunCache, {"export", At("all.archive"), CacheDir()}).exit, kExitDone);
  ASSERT_EQ(Call(RunCache, {"import", At("all.archive"), CacheDir("copy")}).exit, kExitDone);
  const Outcome run = Call(RunRun, {model(), CacheDir("copy"), "--cpu-isa=x86-64", "--threads=1",
                                    "--require-warm-cache", "--random-inputs"});
  EXPECT_EQ(run.exit, kExitDone) << run.error;

  for (const auto& object : fs::directory_iterator(root_ / "copy/v1/objects")) {
    std::ofstream(object.path(), std::ios::app) << "x";
  }
  const Outcome damaged = Call(RunCache, {"verify", CacheDir("copy")});
  EXPECT_EQ(damaged.exit, kExitFailed);
  EXPECT_THAT(damaged.error, HasSubstr("damaged entries"));
  EXPECT_EQ(Call(RunCache, {"prune", CacheDir(), "--max-size=0"}).exit, kExitDone);
  EXPECT_EQ(Call(RunCache, {"list", CacheDir(), "--json"}).json().at("models").as_array().size(),
            0u);
  std::ofstream(root_ / "all.archive") << "no archive";
  EXPECT_EQ(Call(RunCache, {"import", At("all.archive"), CacheDir()}).exit, kExitFailed);
  EXPECT_EQ(Call(RunCache, {"export", CacheDir()}).exit, kExitUsage);
  EXPECT_EQ(Call(RunCache, {"polish", CacheDir()}).exit, kExitUsage);
}

TEST_F(CommandsTest, InspectDescribesAModelWithoutCompilingIt) {
  const Outcome text = Call(RunInspect, {model()});
  EXPECT_EQ(text.exit, kExitDone) << text.error;
  EXPECT_THAT(text.output, HasSubstr("MatMul"));
  const boost::json::value json = Call(RunInspect, {model(), "--json"}).json();
  EXPECT_EQ(json.at("parameters").as_int64(), 128);
  EXPECT_EQ(json.at("kernels").as_int64(), 1);
  EXPECT_EQ(json.at("problem").as_string(), "");
  EXPECT_FALSE(fs::exists(root_ / "cache"));

  const KernelModel unknown = {
      .name = "unknown", .op_type = "NoSuchOperator", .inputs = {{.name = "x", .shape = {3}}}};
  std::ofstream(root_ / "u.onnx", std::ios::binary) << SerializeKernelModel(unknown, 1);
  const boost::json::value described = Call(RunInspect, {At("u.onnx"), "--json"}).json();
  EXPECT_THAT(std::string(described.at("problem").as_string().c_str()),
              HasSubstr("NoSuchOperator"));
  EXPECT_TRUE(described.at("operators").at(0).at("devices").as_array().empty());
  EXPECT_EQ(Call(RunInspect, {At("none.onnx")}).exit, kExitFailed);
}

TEST_F(CommandsTest, DevicesSaysWhyThereIsNoneOfAKind) {
  const boost::json::value json = Call(RunDevices, {"--json"}).json();
  EXPECT_EQ(json.at("devices").at(0).at("id").as_string(), "cpu");
  EXPECT_EQ(json.at("not_found").as_array().size(), 3u);
  EXPECT_THAT(Call(RunDevices, {}).output, HasSubstr("cuda: none: "));
  const Outcome run = Call(RunRun, {model(), "--device=cuda:0", CacheDir(), "--random-inputs"});
  EXPECT_EQ(run.exit, kExitFailed);
  EXPECT_THAT(run.error, HasSubstr("no cuda backend"));
}

TEST_F(CommandsTest, BenchmarksPrintRows) {
  const Outcome model_rows = Call(RunBench, {"model", model(), CacheDir(), "--threads=1",
                                             "--repeat=3", "--rounds=2", "--json"});
  ASSERT_EQ(model_rows.exit, kExitDone) << model_rows.error;
  const boost::json::array models = model_rows.json().at("rows").as_array();
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].at("engine").as_string(), "stampmill");
  EXPECT_EQ(models[0].at("runs").as_int64(), 6);  // of both rounds
  const Outcome csv = Call(
      RunBench, {"model", model(), CacheDir(), "--threads=1", "--repeat=3", "--rounds=1", "--csv"});
  EXPECT_THAT(csv.output, HasSubstr("engine,version,model,threads"));
  // A peer that cannot run the model is said, not dropped.
  const Outcome beside = Call(RunBench, {"model", model(), CacheDir(), "--threads=1", "--repeat=3",
                                         "--rounds=1", "--peer-python=/bin/false", "--json"});
  const boost::json::array engines = beside.json().at("rows").as_array();
  ASSERT_EQ(engines.size(), 3u);
  EXPECT_EQ(engines[2].at("engine").as_string(), "openvino");
  EXPECT_THAT(std::string(engines[2].at("error").as_string()), HasSubstr("gave no result"));
  const Outcome kernel =
      Call(RunBench, {"kernel", "--filter=matmul 1x", CacheDir(), "--rounds=1", "--json"});
  ASSERT_EQ(kernel.exit, kExitDone) << kernel.error;
  const boost::json::value row = kernel.json().at("rows").at(0);
  EXPECT_EQ(row.at("dtype").as_string(), "f32");
  EXPECT_GT(row.at("utilisation").as_double(), 0);
  EXPECT_EQ(Call(RunBench, {"nothing"}).exit, kExitUsage);
}

TEST_F(CommandsTest, EveryCommandHasHelp) {
  for (const Command command :
       {RunCompile, RunRun, RunInspect, RunDevices, RunCache, RunBenchModel, RunBenchKernel}) {
    const Outcome help = Call(command, {"--help"});
    EXPECT_EQ(help.exit, kExitDone);
    EXPECT_THAT(help.output, HasSubstr("--"));
    EXPECT_EQ(Call(command, {"--no-such-flag"}).exit, kExitUsage);
  }
}

}  // namespace
}  // namespace stampmill

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "compile-worker") {
    return stampmill::RunCompileWorkerProcess();
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
