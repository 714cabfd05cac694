// The bitcode of the skeletons, part of the read-only data.
#include "kernels/skeletons/skeletons.h"

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
STAMPMILL_EMBED(boxes);
STAMPMILL_EMBED(scan);
STAMPMILL_EMBED(sort);
STAMPMILL_EMBED(transform);

namespace stampmill {

std::span<const std::span<const std::byte>> SkeletonBitcode() {
  static const std::span<const std::byte> kModules[] = {
      {stampmill_bitcode_algebra, stampmill_bitcode_algebra_end},
      {stampmill_bitcode_boxes, stampmill_bitcode_boxes_end},
      {stampmill_bitcode_scan, stampmill_bitcode_scan_end},
      {stampmill_bitcode_sort, stampmill_bitcode_sort_end},
      {stampmill_bitcode_transform, stampmill_bitcode_transform_end},
  };
  return kModules;
}

}  // namespace stampmill
