// Attention and the other operators of sequence models.
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "gtest/gtest.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

using Attributes = absl::flat_hash_map<std::string, Attribute>;

// Q, K and V by head, with groups of heads.
std::vector<Tensor> Heads(DType dtype, int64_t q_heads, int64_t kv_heads) {
  return {Random(dtype, {2, q_heads, 3, 8}, 1, 1), Random(dtype, {2, kv_heads, 5, 8}, 2, 1),
          Random(dtype, {2, kv_heads, 5, 6}, 3, 1)};
}

void ExpectAttention(std::vector<Tensor> inputs, Attributes attributes, int outputs = 1,
                     double relative = -1) {
  ExpectLoweringMatchesReference({.op_type = "Attention",
                                  .inputs = std::move(inputs),
                                  .attributes = std::move(attributes),
                                  .output_count = outputs,
                                  .tolerance = {.relative = relative, .absolute = 1e-2}});
}

TEST(Attention, AgreesWithReferenceForGroupsOfHeads) {
  for (const auto& [q, kv] : {std::pair(4, 4), std::pair(4, 2), std::pair(6, 1)}) {
    ExpectAttention(Heads(DType::kF32, q, kv), {});
    ExpectAttention(Heads(DType::kF32, q, kv), {{"scale", 0.3f}, {"softcap", 1.5f}});
  }
}

TEST(Attention, AgreesWithReferenceInEveryType) {
  for (const DType dtype : kFloatTypes) ExpectAttention(Heads(dtype, 4, 2), {}, 1, 0.05);
}

TEST(Attention, AgreesWithReferenceForMasksOfAllShapes) {
  const std::vector<std::vector<int64_t>> shapes = {
      {5}, {3}, {3, 5}, {3, 2}, {1, 5}, {4, 3, 5}, {2, 1, 1, 5}, {2, 4, 3, 5}, {1, 4, 1, 4}};
  for (const std::vector<int64_t>& shape : shapes) {
    for (const DType dtype : {DType::kBool, DType::kF32}) {
      for (const int64_t causal : {0, 1}) {
        std::vector<Tensor> inputs = Heads(DType::kF32, 4, 2);
        inputs.push_back(Random(dtype, shape, 9, 2));
        ExpectAttention(inputs, {{"is_causal", causal}});
      }
    }
  }
}

TEST(Attention, AgreesWithReferenceWithAPast) {
  for (const int64_t mode : {0, 1, 2, 3}) {
    std::vector<Tensor> inputs = Heads(DType::kF32, 4, 2);
    inputs.push_back(Random(DType::kBool, {3, 9}, 8));
    inputs.push_back(Random(DType::kF32, {2, 2, 4, 8}, 4, 1));
    inputs.push_back(Random(DType::kF32, {2, 2, 4, 6}, 5, 1));
    ExpectAttention(
        inputs, {{"is_causal", int64_t{1}}, {"qk_matmul_output_mode", mode}, {"softcap", 2.0f}}, 4);
  }
}

TEST(Attention, AgreesWithReferenceForWindowsAndPadding) {
  for (const int64_t left : {-1, 0, 2}) {
    for (const int64_t right : {-1, 0, 1}) {
      std::vector<Tensor> inputs = Heads(DType::kF32, 4, 2);
      ExpectAttention(inputs, {{"left_window_size", left}, {"right_window_size", right}});
      inputs.resize(6);
      inputs.push_back(Values(DType::kI64, {2}, {2, 5}));
      ExpectAttention(inputs, {{"left_window_size", left}, {"is_causal", int64_t{1}}});
    }
  }
}

TEST(Attention, AgreesWithReferenceForPackedHeads) {
  ExpectAttention({Random(DType::kF32, {2, 3, 16}, 1, 1), Random(DType::kF32, {2, 5, 8}, 2, 1),
                   Random(DType::kF32, {2, 5, 12}, 3, 1)},
                  {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}}, 4);
}

TEST(RotaryEmbedding, AgreesWithReference) {
  for (const int64_t interleaved : {0, 1}) {
    for (const int64_t rotated : {0, 4}) {
      const int64_t half = rotated == 0 ? 4 : 2;
      const Attributes attributes = {{"interleaved", interleaved},
                                     {"rotary_embedding_dim", rotated}};
      ExpectLoweringMatchesReference(
          {.op_type = "RotaryEmbedding",
           .inputs = {Random(DType::kF32, {2, 3, 5, 8}, 1), Random(DType::kF32, {2, 5, half}, 2, 1),
                      Random(DType::kF32, {2, 5, half}, 3, 1)},
           .attributes = attributes});
      Attributes packed = attributes;
      packed["num_heads"] = int64_t{3};
      ExpectLoweringMatchesReference(
          {.op_type = "RotaryEmbedding",
           .inputs = {Random(DType::kF32, {2, 5, 24}, 1), Random(DType::kF32, {9, half}, 2, 1),
                      Random(DType::kF32, {9, half}, 3, 1),
                      Values(DType::kI64, {2, 5}, {0, 1, 2, 3, 8, 4, 3, 2, 1, 0})},
           .attributes = packed});
    }
  }
}

TEST(CausalConvWithState, AgreesWithReference) {
  for (const std::string activation : {"none", "silu"}) {
    for (const int64_t taps : {1, 4}) {
      std::vector<Tensor> inputs = {Random(DType::kF32, {2, 3, 7}, 1),
                                    Random(DType::kF32, {3, 1, taps}, 2)};
      const auto expect = [&] {
        ExpectLoweringMatchesReference({.op_type = "CausalConvWithState",
                                        .inputs = inputs,
                                        .attributes = {{"activation", activation}},
                                        .output_count = 2});
      };
      expect();
      inputs.push_back(Random(DType::kF32, {3}, 3));
      inputs.push_back(Random(DType::kF32, {2, 3, taps - 1}, 4));
      expect();
    }
  }
}

}  // namespace
}  // namespace stampmill
