// Compiled models as a whole: one compiled model serves every batch size and length, agrees with
// the operators' references, and gives a row the same bits whatever it is batched with and however
// many threads run it.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "devices/cpu/cpu_device.h"
#include "devices/target.h"
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "kernels/testing/op_test.h"
#include "tests/compiled/graph_compiler.h"
#include "tests/compiled/models.h"

namespace stampmill {
namespace {

// The lowest class, the first with fused multiply-add and the host's.
std::vector<Target> Targets() {
  const Target host = Target::HostCpu();
  std::vector<Target> targets = {Target()};
  for (const Target& target : {*Target::Parse("cpu:x86-64-v3"), host}) {
    if (host.Runs(target) && targets.back() != target) targets.push_back(target);
  }
  return targets;
}

// Rows [begin, end) of dim 0, copied.
Tensor Rows(const Tensor& tensor, int64_t begin, int64_t end) {
  std::vector<int64_t> shape(tensor.shape().begin(), tensor.shape().end());
  const size_t row_bytes = tensor.bytes().size() / static_cast<size_t>(shape[0]);
  shape[0] = end - begin;
  Tensor rows = *Tensor::Allocate(tensor.dtype(), shape);
  std::memcpy(rows.mutable_bytes().data(),
              tensor.bytes().data() + row_bytes * static_cast<size_t>(begin), rows.bytes().size());
  return rows;
}

// `times` copies of a tensor one after the other along dim 0.
Tensor Repeat(const Tensor& tensor, int64_t times) {
  std::vector<int64_t> shape(tensor.shape().begin(), tensor.shape().end());
  shape[0] *= times;
  Tensor all = *Tensor::Allocate(tensor.dtype(), shape);
  const size_t size = tensor.bytes().size();
  for (int64_t i = 0; i < times; ++i) {
    std::memcpy(all.mutable_bytes().data() + size * static_cast<size_t>(i), tensor.bytes().data(),
                size);
  }
  return all;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return std::ranges::equal(a.shape(), b.shape()) && std::ranges::equal(a.bytes(), b.bytes());
}

using Tensors = std::vector<Tensor>;

template <typename Change>
Tensors Each(const Tensors& tensors, const Change& change) {
  Tensors changed;
  for (const Tensor& tensor : tensors) changed.push_back(change(tensor));
  return changed;
}

class CompiledTest : public testing::TestWithParam<std::pair<BlockModel, Target>> {
 protected:
  const BlockModel& model() const { return GetParam().first; }
  const Target& target() const { return GetParam().second; }

  void SetUp() override {
    for (const int32_t threads : {1, 2}) {
      auto device = CreateCpuDevice({.threads = threads, .target = target()});
      ASSERT_TRUE(device.ok()) << device.status();
      devices_.push_back(*std::move(device));
      auto runner = compiler_.Compile(model().make(), devices_.back().get());
      ASSERT_TRUE(runner.ok()) << runner.status();
      runners_.push_back(*std::move(runner));
    }
  }

  // On 1 thread or 2.
  Tensors Run(const Tensors& inputs, int threads) {
    auto outputs = runners_[static_cast<size_t>(threads - 1)]->Run(inputs);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs.value_or(Tensors());
  }

  GraphCompiler compiler_{{.target = target()}};
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<LocalRunner>> runners_;
};

TEST_P(CompiledTest, OneCompiledModelServesEveryShape) {
  const Graph graph = model().make();
  const std::pair<int64_t, int64_t> shapes[] = {{1, 1},  {1, 2},  {3, 5}, {2, 16}, {1, 33},
                                                {9, 10}, {17, 8}, {0, 7}, {4, 31}, {2, 64}};
  for (const auto& [batch, length] : shapes) {
    const Tensors inputs = model().inputs(batch, length);
    const auto want = Interpret(graph, inputs);
    ASSERT_TRUE(want.ok()) << want.status();
    const Tensors got = Run(inputs, 2);
    ASSERT_EQ(got.size(), want->size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(Difference(got[i], (*want)[i], {.relative = 1e-4, .absolute = 1e-5}), "")
          << "batch " << batch << ", length " << length << ", output " << i;
    }
  }
}

TEST_P(CompiledTest, ARowDoesNotDependOnItsBatch) {
  EXPECT_TRUE(runners_[0]->model().batchable());
  for (const int64_t length : {13, 32}) {
    const Tensors inputs = model().inputs(8, length);
    const Tensors want = Run(inputs, 2);
    ASSERT_FALSE(want.empty());
    for (const auto& [begin, end] : {std::pair(0, 1), std::pair(5, 6), std::pair(7, 8),
                                     std::pair(2, 4), std::pair(0, 7), std::pair(1, 8)}) {
      const auto rows = [&](const Tensor& tensor) { return Rows(tensor, begin, end); };
      const Tensors got = Run(Each(inputs, rows), 2);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(SameBits(got[i], rows(want[i])))
            << "rows " << begin << " to " << end << " of length " << length << ", output " << i;
      }
    }
    const auto repeat = [](const Tensor& tensor) { return Repeat(tensor, 8); };
    const Tensors got = Run(Each(inputs, repeat), 2);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(SameBits(got[i], repeat(want[i])))
          << "64 rows of length " << length << ", output " << i;
    }
  }
}

TEST_P(CompiledTest, TheNumberOfThreadsDoesNotChangeABit) {
  for (const auto& [batch, length] :
       {std::pair(1, 40), std::pair(8, 21), std::pair(33, 16), std::pair(8, 128)}) {
    const Tensors inputs = model().inputs(batch, length);
    const Tensors one = Run(inputs, 1), two = Run(inputs, 2);
    ASSERT_EQ(one.size(), two.size());
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_TRUE(SameBits(one[i], two[i])) << "batch " << batch << ", output " << i;
    }
  }
}

std::vector<std::pair<BlockModel, Target>> Cases() {
  std::vector<std::pair<BlockModel, Target>> cases;
  for (const BlockModel& model : BlockModels()) {
    for (const Target& target : Targets()) cases.emplace_back(model, target);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Blocks, CompiledTest, testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = info.param.first.name + "_" + info.param.second.ToString();
  for (char& letter : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(letter))) letter = '_';
  }
  return name;
});

}  // namespace
}  // namespace stampmill
