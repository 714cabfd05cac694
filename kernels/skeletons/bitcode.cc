// The bitcode of the skeletons, part of the read-only data.
#include "kernels/skeletons/skeletons.h"

// What the assembler includes is no input to the compiler's eyes: this makes it one, so that a
// skeleton that changed is embedded anew.
#if !__has_include("kernels/skeletons/algebra.bc")
#error "algebra.bc is missing"
#endif
#if !__has_include("kernels/skeletons/attention.bc")
#error "attention.bc is missing"
#endif
#if !__has_include("kernels/skeletons/boxes.bc")
#error "boxes.bc is missing"
#endif
#if !__has_include("kernels/skeletons/experts.bc")
#error "experts.bc is missing"
#endif
#if !__has_include("kernels/skeletons/sample.bc")
#error "sample.bc is missing"
#endif
#if !__has_include("kernels/skeletons/scan.bc")
#error "scan.bc is missing"
#endif
#if !__has_include("kernels/skeletons/sort.bc")
#error "sort.bc is missing"
#endif
#if !__has_include("kernels/skeletons/transform.bc")
#error "transform.bc is missing"
#endif

#define STAMPMILL_EMBED(name)                          \
  __asm__(                                             \
      ".section .rodata\n"                             \
      ".balign 16\n"                                   \
      "stampmill_bitcode_" #name                       \
      ":\n"                                            \
      ".incbin \"" GEN_DIR "/kernels/skeletons/" #name \
      ".bc\"\n"                                        \
      "stampmill_bitcode_" #name                       \
      "_end:\n"                                        \
      ".previous\n");                                  \
  extern "C" const std::byte stampmill_bitcode_##name[], stampmill_bitcode_##name##_end[]

STAMPMILL_EMBED(algebra);
STAMPMILL_EMBED(attention);
STAMPMILL_EMBED(boxes);
STAMPMILL_EMBED(experts);
STAMPMILL_EMBED(rounding);
STAMPMILL_EMBED(sample);
STAMPMILL_EMBED(scan);
STAMPMILL_EMBED(sort);
STAMPMILL_EMBED(transform);

namespace stampmill {

std::span<const std::span<const std::byte>> SkeletonBitcode() {
  static const std::span<const std::byte> kModules[] = {
      {stampmill_bitcode_algebra, stampmill_bitcode_algebra_end},
      {stampmill_bitcode_attention, stampmill_bitcode_attention_end},
      {stampmill_bitcode_boxes, stampmill_bitcode_boxes_end},
      {stampmill_bitcode_experts, stampmill_bitcode_experts_end},
      {stampmill_bitcode_rounding, stampmill_bitcode_rounding_end},
      {stampmill_bitcode_sample, stampmill_bitcode_sample_end},
      {stampmill_bitcode_scan, stampmill_bitcode_scan_end},
      {stampmill_bitcode_sort, stampmill_bitcode_sort_end},
      {stampmill_bitcode_transform, stampmill_bitcode_transform_end},
  };
  return kModules;
}

}  // namespace stampmill
