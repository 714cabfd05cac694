// Target: what code is generated for, as text with a total order within a kind:
// "cpu:x86-64", "cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:x86-64-v4+vnni", "cpu:x86-64-v4+vnni+bf16",
// "cuda:sm_80", "hip:gfx942", "npu:xdna1". A target needs no device: anything can be compiled
// anywhere. Immutable value.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

// What a processor says of itself, as far as the CPU classes depend on it: words of CPUID and XCR0.
struct CpuFeatureWords {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0;
  uint32_t leaf7_ecx = 0;
  uint32_t leaf7_1_eax = 0;
  uint32_t extended1_ecx = 0;  // leaf 0x80000001
  uint64_t xcr0 = 0;           // register state that the operating system keeps; 0 without OSXSAVE
};

class Target {
 public:
  Target() = default;  // "cpu:x86-64"
  // INVALID_ARGUMENT lists what is known. "cpu" alone is the host's class.
  static absl::StatusOr<Target> Parse(absl::string_view text);
  // The best CPU class this machine runs (cpuid and the OS's register state).
  static Target HostCpu();
  // The best class of a processor that says `words`.
  static Target OfCpu(const CpuFeatureWords& words);
  // All CPU classes, lowest first.
  static std::span<const Target> CpuClasses();

  absl::string_view kind() const { return kind_; }         // "cpu", "cuda", "hip", "npu"
  absl::string_view class_name() const { return class_; }  // "x86-64-v4+vnni"
  std::string ToString() const;                            // "cpu:x86-64-v4+vnni"

  // Whether code for `other` runs on hardware of this target: the same kind, and a class that is
  // not higher (cpu, cuda: PTX is translated on the device), or the same (hip, npu: machine code).
  bool Runs(const Target& other) const;
  bool operator==(const Target&) const = default;

  // CPU facts that code generation asks for; false for other kinds.
  bool has_avx2() const;  // v3 and up, with FMA and F16C
  bool has_avx512() const;
  bool has_vnni() const;
  bool has_bf16() const;

 private:
  Target(absl::string_view kind, absl::string_view class_name, int32_t rank)
      : kind_(kind), class_(class_name), rank_(rank) {}
  static absl::StatusOr<Target> ParseGpu(absl::string_view kind, absl::string_view class_name);

  std::string kind_ = "cpu";
  std::string class_ = "x86-64";
  int32_t rank_ = 0;  // order within the kind
};

}  // namespace stampmill
