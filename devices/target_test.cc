// Targets: text, order, and the classes of processors as they describe themselves.
#include "devices/target.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stampmill {
namespace {

TEST(TargetTest, EveryCpuClassReadsBackFromItsText) {
  ASSERT_EQ(Target::CpuClasses().size(), 5u);
  for (const Target& target : Target::CpuClasses()) {
    absl::StatusOr<Target> parsed = Target::Parse(target.ToString());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, target);
    EXPECT_EQ(parsed->kind(), "cpu");
  }
}

TEST(TargetTest, TheDefaultIsTheLowestCpuClass) {
  EXPECT_EQ(Target().ToString(), "cpu:x86-64");
  EXPECT_EQ(Target(), Target::CpuClasses()[0]);
}

TEST(TargetTest, CpuAloneIsTheHostsClass) { EXPECT_EQ(*Target::Parse("cpu"), Target::HostCpu()); }

TEST(TargetTest, OtherKindsReadBackFromTheirText) {
  for (const char* text : {"cuda:sm_80", "cuda:sm_120", "hip:gfx942", "hip:gfx90a", "npu:xdna1"}) {
    absl::StatusOr<Target> parsed = Target::Parse(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->ToString(), text);
    EXPECT_FALSE(parsed->has_avx2());
  }
}

TEST(TargetTest, UnknownTextIsRefusedWithTheKnownOnes) {
  for (const char* text : {"", "cpu:", "cpu:x86-64-v2", "cpu:x86-64-v4+bf16", "CPU", "gpu:sm_80",
                           "cuda:80", "cuda:sm_", "cuda:sm_8a", "cuda:sm_08", "cuda:sm_99999",
                           "hip:gfx9", "hip:gfxa42", "npu:xdna2", "npu", "cpu:x86-64 "}) {
    absl::StatusOr<Target> parsed = Target::Parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(parsed.status().message()).find("x86-64-v4+vnni+bf16"),
              std::string::npos);
  }
  const std::string hostile(1 << 20, 'x');
  EXPECT_LT(Target::Parse(hostile).status().message().size(), 400u);
}

TEST(TargetTest, ACpuRunsItsClassAndThoseBelow) {
  const std::span<const Target> classes = Target::CpuClasses();
  for (size_t i = 0; i < classes.size(); ++i) {
    for (size_t j = 0; j < classes.size(); ++j) {
      EXPECT_EQ(classes[i].Runs(classes[j]), j <= i) << i << " " << j;
    }
  }
}

TEST(TargetTest, OtherKindsRunWhatTheirMachineCodeAllows) {
  const auto target = [](const char* text) { return *Target::Parse(text); };
  EXPECT_TRUE(target("cuda:sm_90").Runs(target("cuda:sm_80")));
  EXPECT_FALSE(target("cuda:sm_80").Runs(target("cuda:sm_90")));
  EXPECT_TRUE(target("cuda:sm_100").Runs(target("cuda:sm_90")));
  EXPECT_TRUE(target("hip:gfx942").Runs(target("hip:gfx942")));
  EXPECT_FALSE(target("hip:gfx942").Runs(target("hip:gfx90a")));
  EXPECT_FALSE(target("cuda:sm_90").Runs(target("cpu:x86-64")));
}

TEST(TargetTest, FactsFollowTheClass) {
  const std::span<const Target> classes = Target::CpuClasses();
  for (size_t i = 0; i < classes.size(); ++i) {
    EXPECT_EQ(classes[i].has_avx2(), i >= 1);
    EXPECT_EQ(classes[i].has_avx512(), i >= 2);
    EXPECT_EQ(classes[i].has_vnni(), i >= 3);
    EXPECT_EQ(classes[i].has_bf16(), i >= 4);
  }
}

// A Zen 4 under an operating system that keeps all registers, word by word as it answers.
CpuFeatureWords Zen4() {
  return {.leaf1_ecx = 0xfefa3203,
          .leaf7_ebx = 0xf1bf97a9,
          .leaf7_ecx = 0x00405fce,
          .leaf7_1_eax = 0x00000020,
          .extended1_ecx = 0x75c237ff,
          .xcr0 = 0xe7};
}

TEST(TargetTest, TheClassIsTheHighestWhoseBitsAreAllThere) {
  CpuFeatureWords words = Zen4();
  EXPECT_EQ(Target::OfCpu(words).ToString(), "cpu:x86-64-v4+vnni+bf16");
  words.leaf7_1_eax = 0;
  EXPECT_EQ(Target::OfCpu(words).ToString(), "cpu:x86-64-v4+vnni");
  words.leaf7_ecx &= ~(1u << 11);
  EXPECT_EQ(Target::OfCpu(words).ToString(), "cpu:x86-64-v4");
  words.leaf7_ebx &= ~(1u << 31);  // AVX512VL
  EXPECT_EQ(Target::OfCpu(words).ToString(), "cpu:x86-64-v3");
  words.leaf1_ecx &= ~(1u << 12);  // FMA
  EXPECT_EQ(Target::OfCpu(words).ToString(), "cpu:x86-64");
  EXPECT_EQ(Target::OfCpu({}).ToString(), "cpu:x86-64");
}

TEST(TargetTest, RegistersThatTheSystemDoesNotKeepDoNotCount) {
  CpuFeatureWords words = Zen4();
  words.xcr0 = 0x7;
  EXPECT_EQ(Target::OfCpu(words).ToString(), "cpu:x86-64-v3");
  words.xcr0 = 0x3;
  EXPECT_EQ(Target::OfCpu(words).ToString(), "cpu:x86-64");
}

}  // namespace
}  // namespace stampmill
