// Target: what code is generated for, as text with a total order within a kind (decision 19):
// "cpu:x86-64", "cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:x86-64-v4+vnni", "cpu:x86-64-v4+vnni+bf16",
// "cuda:sm_80", "hip:gfx942", "npu:xdna1". A target needs no device: anything can be compiled
// anywhere. Immutable value.
#pragma once

#include <compare>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

class Target {
 public:
  Target() = default;  // "cpu:x86-64"
  // INVALID_ARGUMENT lists what is known. "cpu" alone is the host's class.
  static absl::StatusOr<Target> Parse(absl::string_view text);
  // The best CPU class this machine runs (cpuid and the OS's register state).
  static Target HostCpu();

  absl::string_view kind() const;        // "cpu", "cuda", "hip", "npu"
  absl::string_view class_name() const;  // "x86-64-v4+vnni"
  std::string ToString() const;          // "cpu:x86-64-v4+vnni"

  // Whether code for `other` runs on hardware of this target.
  bool Runs(const Target& other) const;
  bool operator==(const Target&) const = default;

  // CPU facts that code generation asks for.
  bool has_avx2() const;     // v3 and up, with FMA and F16C
  bool has_avx512() const;
  bool has_vnni() const;
  bool has_bf16() const;

 private:
  std::string kind_ = "cpu";
  std::string class_ = "x86-64";
  int32_t rank_ = 0;
};

}  // namespace stampmill
