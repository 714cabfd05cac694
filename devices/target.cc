#include "devices/target.h"

#include <cpuid.h>

#include <algorithm>
#include <array>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace stampmill {
namespace {

// Ranks are places in this list.
constexpr std::array<const char*, 5> kCpuClasses = {"x86-64", "x86-64-v3", "x86-64-v4",
                                                    "x86-64-v4+vnni", "x86-64-v4+vnni+bf16"};
enum CpuRank : int32_t { kBase, kV3, kV4, kVnni, kBf16 };

constexpr char kKnown[] =
    "cpu, cpu:CLASS (x86-64, x86-64-v3, x86-64-v4, x86-64-v4+vnni, x86-64-v4+vnni+bf16), "
    "cuda:sm_NN, hip:gfxNNN, npu:xdna1";

// The bits that the x86-64 psABI lists for each level.
constexpr uint32_t kLeaf1V3 = bit_SSE3 | bit_SSSE3 | bit_FMA | bit_CMPXCHG16B | bit_SSE4_1 |
                              bit_SSE4_2 | bit_MOVBE | bit_POPCNT | bit_OSXSAVE | bit_AVX |
                              bit_F16C;
constexpr uint32_t kLeaf7V3 = bit_BMI | bit_AVX2 | bit_BMI2;
constexpr uint32_t kExtendedV3 = 1u << 0 | 1u << 5;  // LAHF in 64-bit mode, LZCNT
constexpr uint32_t kLeaf7V4 =
    bit_AVX512F | bit_AVX512DQ | bit_AVX512CD | bit_AVX512BW | bit_AVX512VL;
constexpr uint32_t kLeaf7EcxVnni = 1u << 11;
constexpr uint32_t kLeaf71EaxBf16 = 1u << 5;
constexpr uint64_t kXcr0Avx = 0x6;      // xmm, ymm
constexpr uint64_t kXcr0Avx512 = 0xe6;  // and masks, zmm0-15, zmm16-31

bool HasAll(uint64_t word, uint64_t bits) { return (word & bits) == bits; }

CpuFeatureWords ReadCpu() {
  CpuFeatureWords words;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return words;
  words.leaf1_ecx = c;
  if (__get_cpuid(0x80000001, &a, &b, &c, &d)) words.extended1_ecx = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    words.leaf7_ebx = b;
    words.leaf7_ecx = c;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) words.leaf7_1_eax = a;
  }
  if (words.leaf1_ecx & bit_OSXSAVE) {
    uint32_t low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    words.xcr0 = uint64_t{high} << 32 | low;
  }
  return words;
}

int32_t RankOf(const CpuFeatureWords& words) {
  if (!HasAll(words.leaf1_ecx, kLeaf1V3) || !HasAll(words.leaf7_ebx, kLeaf7V3) ||
      !HasAll(words.extended1_ecx, kExtendedV3) || !HasAll(words.xcr0, kXcr0Avx)) {
    return kBase;
  }
  if (!HasAll(words.leaf7_ebx, kLeaf7V4) || !HasAll(words.xcr0, kXcr0Avx512)) return kV3;
  if (!HasAll(words.leaf7_ecx, kLeaf7EcxVnni)) return kV4;
  return HasAll(words.leaf7_1_eax, kLeaf71EaxBf16) ? kBf16 : kVnni;
}

absl::Status Unknown(absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("target: got '", text.substr(0, 64), "', known: ", kKnown));
}

}  // namespace

absl::StatusOr<Target> Target::Parse(absl::string_view text) {
  if (text == "cpu") return HostCpu();
  const size_t colon = text.find(':');
  if (colon == absl::string_view::npos) return Unknown(text);
  const absl::string_view kind = text.substr(0, colon);
  const absl::string_view class_name = text.substr(colon + 1);
  if (kind == "cpu") {
    for (const Target& target : CpuClasses()) {
      if (target.class_name() == class_name) return target;
    }
    return Unknown(text);
  }
  if (kind == "npu" && class_name == "xdna1") return Target(kind, class_name, 0);
  if (kind == "cuda" || kind == "hip") return ParseGpu(kind, class_name);
  return Unknown(text);
}

// "sm_80": a decimal number without leading zeros. "gfx942", "gfx90a": decimal digits, the last may
// be hexadecimal.
absl::StatusOr<Target> Target::ParseGpu(absl::string_view kind, absl::string_view class_name) {
  const absl::Status unknown = Unknown(absl::StrCat(kind, ":", class_name));
  const bool cuda = kind == "cuda";
  absl::string_view digits = class_name;
  if (!absl::ConsumePrefix(&digits, cuda ? "sm_" : "gfx")) return unknown;
  const size_t size_min = cuda ? 2 : 3;
  if (digits.size() < size_min || digits.size() > 4 || digits[0] == '0') return unknown;
  int32_t rank = 0;
  for (size_t i = 0; i < digits.size(); ++i) {
    const char c = digits[i];
    const bool hexadecimal = !cuda && i + 1 == digits.size();
    const bool decimal = c >= '0' && c <= '9';
    if (!decimal && !(hexadecimal && c >= 'a' && c <= 'f')) return unknown;
    rank = rank * (cuda ? 10 : 16) + (decimal ? c - '0' : c - 'a' + 10);
  }
  return Target(kind, class_name, rank);
}

Target Target::HostCpu() {
  // The processor does not change; a virtual machine's CPUID costs microseconds each.
  static const int32_t rank = RankOf(ReadCpu());
  return Target("cpu", kCpuClasses[rank], rank);
}

Target Target::OfCpu(const CpuFeatureWords& words) {
  const int32_t rank = RankOf(words);
  return Target("cpu", kCpuClasses[rank], rank);
}

std::span<const Target> Target::CpuClasses() {
  static const std::array<Target, kCpuClasses.size()>* const classes = [] {
    auto* all = new std::array<Target, kCpuClasses.size()>;
    for (size_t i = 0; i < kCpuClasses.size(); ++i) {
      (*all)[i] = Target("cpu", kCpuClasses[i], static_cast<int32_t>(i));
    }
    return all;
  }();
  return *classes;
}

std::string Target::ToString() const { return absl::StrCat(kind_, ":", class_); }

bool Target::Runs(const Target& other) const {
  if (kind_ != other.kind_) return false;
  return kind_ == "cpu" || kind_ == "cuda" ? other.rank_ <= rank_ : class_ == other.class_;
}

bool Target::has_avx2() const { return kind_ == "cpu" && rank_ >= kV3; }
bool Target::has_avx512() const { return kind_ == "cpu" && rank_ >= kV4; }
bool Target::has_vnni() const { return kind_ == "cpu" && rank_ >= kVnni; }
bool Target::has_bf16() const { return kind_ == "cpu" && rank_ >= kBf16; }

}  // namespace stampmill
