// From the cache to a running model, without a compiler: the records and objects are made by hand.
#include "runtime/model_image.h"

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "compiler/compile.h"
#include "devices/cpu/cpu_device.h"
#include "gtest/gtest.h"
#include "runtime/local_runner.h"
#include "runtime/testing/test_models.h"

namespace stampmill {
namespace {

class ModelImageTest : public testing::Test {
 protected:
  ModelImageTest() {
    std::string pattern = absl::StrCat(testing::TempDir(), "/image_XXXXXX");
    CHECK(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
    path_ = folder_ + "/m.onnx";
    CHECK_OK(AtomicReplaceFile(path_, AsBytes("not read")));
    auto cache = KernelCache::Open({});
    CHECK_OK(cache);
    cache_ = *std::move(cache);
    auto device = CreateCpuDevice({.threads = 1});
    CHECK_OK(device);
    device_ = *std::move(device);
    options_.target = "cpu:x86-64";
  }
  ~ModelImageTest() override { std::filesystem::remove_all(folder_); }

  // The add model with one more output, W, that is a range of its weights.
  ModelImage MakeImage() {
    ModelImage image = *MakeAddModel({.batchable = false});
    Program& program = image.program;
    const auto size_place = static_cast<int32_t>(program.dims.size());
    program.dims.push_back({.kind = DimExpr::Kind::kConstant, .value = 8});
    const auto buffer = static_cast<int32_t>(program.buffers.size());
    program.buffers.push_back(
        {.kind = ProgramBuffer::Kind::kOutput, .size_place = size_place, .index = 1});
    program.buffers.push_back(
        {.kind = ProgramBuffer::Kind::kWeight, .weight_offset = 64, .weight_size = 8});
    program.outputs.push_back(
        {.name = "W", .dtype = DType::kI32, .dims = {{.fixed = 2}}, .buffer = buffer});
    program.commands.push_back(
        {.kind = ProgramCommand::Kind::kCopy, .buffers = {buffer + 1, buffer}});
    program.segments[0].command_count++;
    program.weights_size = 72;
    return image;
  }

  // Puts everything but the objects in `without` into the cache.
  ModelRecord Store(bool with_artifact = true) {
    ModelImage image = MakeImage();
    const Artifact& artifact = image.artifacts[0];
    const std::string code =
        Artifact::Serialize(artifact.target(), artifact.source_digest(), artifact.code());
    ModelRecord record;
    image.program.artifacts = {with_artifact ? *cache_->Put(AsBytes(code)) : Sha256(AsBytes(code))};
    std::string weights(72, '\0');
    const int32_t values[2] = {41, 42};
    memcpy(weights.data() + 64, values, sizeof(values));
    const std::span<const std::byte> parts[] = {AsBytes(weights)};
    image.program.weights = *cache_->PutWeights(parts);
    record.program = *cache_->Put(AsBytes(image.program.Serialize()));
    record.name = "m";
    record.target = options_.target;
    record.compiler_abi = SourceOf({.model_path = path_, .target = options_.target}).compiler_abi;
    record.sources = {{"m.onnx", *cache_->FileDigest(path_)}};
    record.objects = {image.program.weights};
    if (with_artifact) record.objects.push_back(image.program.artifacts[0]);
    return record;
  }

  std::string folder_, path_;
  std::unique_ptr<KernelCache> cache_;
  std::unique_ptr<Device> device_;
  ModelImageOptions options_;
};

TEST_F(ModelImageTest, AModelInTheCacheRunsWithoutACompiler) {
  ASSERT_TRUE(cache_->PutModel(Store()).ok());
  options_.require_warm_cache = true;
  auto image = FindOrCompileModel(path_, options_, *cache_);
  ASSERT_TRUE(image.ok()) << image.status();
  auto runner = LocalRunner::Create(*std::move(image), device_.get());
  ASSERT_TRUE(runner.ok()) << runner.status();
  const std::vector<Tensor> inputs = {*Tensor::Allocate(DType::kI32, {1, 4})};
  const auto outputs = (*runner)->Run(inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ((*outputs)[0].values<int32_t>()[3], 2);
  EXPECT_EQ((*outputs)[1].values<int32_t>()[0], 41);
  EXPECT_EQ((*outputs)[1].values<int32_t>()[1], 42);
}

TEST_F(ModelImageTest, ANeededCompileIsAnErrorWhereTheCacheMustBeWarm) {
  options_.require_warm_cache = true;
  const absl::Status status = FindOrCompileModel(path_, options_, *cache_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("--require-warm-cache"), absl::string_view::npos);
  EXPECT_NE(status.message().find(path_), absl::string_view::npos);
}

TEST_F(ModelImageTest, AnObjectThatIsGoneIsDataLoss) {
  const ModelRecord record = Store(/*with_artifact=*/false);
  const absl::Status status = OpenModelImage(record, *cache_).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

TEST_F(ModelImageTest, AMissingModelFileIsNamed) {
  options_.require_warm_cache = true;
  const absl::Status status =
      FindOrCompileModel(folder_ + "/absent.onnx", options_, *cache_).status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("absent.onnx"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace stampmill
