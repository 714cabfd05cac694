#include "kernels/skeletons/skeletons.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "graph/dtype.h"
#include "kernels/skeletons/skeleton.h"

namespace stampmill {
namespace {

constexpr std::pair<DType, SkeletonType> kTypes[] = {
    {DType::kBool, kTypeBool}, {DType::kI8, kTypeI8},     {DType::kI16, kTypeI16},
    {DType::kI32, kTypeI32},   {DType::kI64, kTypeI64},   {DType::kU8, kTypeU8},
    {DType::kU16, kTypeU16},   {DType::kU32, kTypeU32},   {DType::kU64, kTypeU64},
    {DType::kF16, kTypeF16},   {DType::kBF16, kTypeBF16}, {DType::kF32, kTypeF32},
    {DType::kF64, kTypeF64}};
constexpr bool NumbersAgree() {
  for (const auto& [dtype, number] : kTypes) {
    if (static_cast<int64_t>(dtype) != number) return false;
  }
  return true;
}
static_assert(NumbersAgree());

}  // namespace

STAMPMILL_SKELETON(determinant);
STAMPMILL_SKELETON(dft);
STAMPMILL_SKELETON(group_by_expert);
STAMPMILL_SKELETON(join_lists);
STAMPMILL_SKELETON(linear_attention);
STAMPMILL_SKELETON(nonzero);
STAMPMILL_SKELETON(paged_attention);
STAMPMILL_SKELETON(place);
STAMPMILL_SKELETON(roi_align);
STAMPMILL_SKELETON(round_rows);
STAMPMILL_SKELETON(sample);
STAMPMILL_SKELETON(scan);
STAMPMILL_SKELETON(suppress);
STAMPMILL_SKELETON(top_k);
STAMPMILL_SKELETON(unique);

SkeletonFunction FindSkeleton(absl::string_view name) {
  static constexpr std::pair<absl::string_view, SkeletonFunction> kSkeletons[] = {
      {"determinant", stampmill_skeleton_determinant},
      {"dft", stampmill_skeleton_dft},
      {"group_by_expert", stampmill_skeleton_group_by_expert},
      {"join_lists", stampmill_skeleton_join_lists},
      {"linear_attention", stampmill_skeleton_linear_attention},
      {"nonzero", stampmill_skeleton_nonzero},
      {"paged_attention", stampmill_skeleton_paged_attention},
      {"place", stampmill_skeleton_place},
      {"roi_align", stampmill_skeleton_roi_align},
      {"round_rows", stampmill_skeleton_round_rows},
      {"sample", stampmill_skeleton_sample},
      {"scan", stampmill_skeleton_scan},
      {"suppress", stampmill_skeleton_suppress},
      {"top_k", stampmill_skeleton_top_k},
      {"unique", stampmill_skeleton_unique},
  };
  for (const auto& [known, function] : kSkeletons) {
    if (known == name) return function;
  }
  return nullptr;
}

absl::Status RunSkeleton(const Library& library, std::span<const Tensor> operands,
                         std::span<Tensor> outputs, const DimExpr::SymbolValue& symbols) {
  const SkeletonFunction run = FindSkeleton(library.skeleton);
  if (run == nullptr || operands.size() != library.operands.size() ||
      outputs.size() != library.outputs.size()) {
    return absl::InternalError(absl::StrCat("skeleton '", library.skeleton, "', ", operands.size(),
                                            " operands, ", outputs.size(), " outputs: no such"));
  }
  std::vector<int64_t> dims;
  for (const DimExpr& dim : library.dims) {
    ASSIGN_OR_RETURN(const int64_t value, dim.Evaluate(symbols));
    dims.push_back(value);
  }
  ASSIGN_OR_RETURN(const int64_t tasks, library.tasks.Evaluate(symbols));
  ASSIGN_OR_RETURN(const int64_t scratch_bytes, library.scratch_bytes.Evaluate(symbols));
  // Views may lie anywhere; skeletons want their elements aligned.
  std::vector<Tensor> aligned;
  std::vector<void*> buffers;
  for (const Tensor& operand : operands) {
    ASSIGN_OR_RETURN(Tensor copy, Tensor::Allocate(operand.dtype(), operand.shape()));
    std::ranges::copy(operand.bytes(), copy.mutable_bytes().begin());
    aligned.push_back(std::move(copy));
    buffers.push_back(aligned.back().mutable_bytes().data());
  }
  for (Tensor& output : outputs) buffers.push_back(output.mutable_bytes().data());
  ASSIGN_OR_RETURN(Tensor scratch, Tensor::Allocate(DType::kI64, {(scratch_bytes + 7) / 8}));
  for (int64_t task = 0; task < tasks; ++task) {
    run(library.configuration.data(), dims.data(), buffers.data(), scratch.mutable_bytes().data(),
        task);
  }
  return absl::OkStatus();
}

}  // namespace stampmill
