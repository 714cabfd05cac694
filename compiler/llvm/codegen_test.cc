// What an artifact of the code generator is: one exported symbol, nothing undefined, the same bytes
// for the same input; and the errors for what cannot be generated.
#include "compiler/llvm/codegen.h"

#include <elf.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compiler/codegen/launch_plan.h"
#include "compiler/llvm/kernel_harness.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

// Every kind of code that might be tempted to call a library: copies, fills, roundings, remainders,
// conversions, powers, exponentials.
std::vector<KernelSource> TemptingKernels() {
  std::vector<KernelSource> sources;
  auto add = [&](Expr result) {
    Nest nest;
    nest.kept = {DimExpr::Symbol("N")};
    nest.operands = {{DType::kF32, nest.kept}, {DType::kF64, nest.kept}, {DType::kF16, nest.kept}};
    nest.result = result;
    nest.output = {result.dtype(), nest.kept};
    sources.push_back({absl::StrCat("kernel", sources.size()), nest});
  };
  Expr i = Expr::Coord(0);
  Expr f32 = Expr::Load(DType::kF32, 0, {i});
  Expr f64 = Expr::Load(DType::kF64, 1, {i});
  Expr f16 = Expr::Load(DType::kF16, 2, {i});
  add(f32);
  add(Expr::Constant(DType::kF32, 0));
  add(f16 * f16);
  add(Expr::Cast(DType::kF16, f64));
  for (const Expr& x : {f32, f64}) {
    add(Expr::Unary(ExprOp::kFloor, x));
    add(Expr::Unary(ExprOp::kRound, x));
    add(Expr::Unary(ExprOp::kExp, x));
    add(Expr::Unary(ExprOp::kSin, x));
    add(Expr::Binary(ExprOp::kRemainder, x, x));
    add(Expr::Binary(ExprOp::kPow, x, x));
    add(Expr::Cast(DType::kU64, x));
    add(Expr::Cast(x.dtype(), Expr::Cast(DType::kU64, x)));
  }
  return sources;
}

struct Symbols {
  std::vector<std::string> defined, undefined;
};

// Of the dynamic symbol table of an ELF64 shared object.
Symbols DynamicSymbols(std::span<const std::byte> code) {
  Symbols symbols;
  Elf64_Ehdr head;
  memcpy(&head, code.data(), sizeof(head));
  std::vector<Elf64_Shdr> sections(head.e_shnum);
  memcpy(sections.data(), code.data() + head.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_DYNSYM) continue;
    const Elf64_Shdr& names = sections[section.sh_link];
    for (size_t at = sizeof(Elf64_Sym); at < section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      memcpy(&symbol, code.data() + section.sh_offset + at, sizeof(symbol));
      std::string name =
          reinterpret_cast<const char*>(code.data() + names.sh_offset + symbol.st_name);
      (symbol.st_shndx == SHN_UNDEF ? symbols.undefined : symbols.defined).push_back(name);
    }
  }
  return symbols;
}

TEST(CodegenTest, ExportsTheQueryFunctionAndNeedsNothing) {
  std::vector<KernelSource> sources = TemptingKernels();
  for (const char* text :
       {"cpu:x86-64", "cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:x86-64-v4+vnni+bf16"}) {
    Target target = *Target::Parse(text);
    absl::StatusOr<std::string> bytes = CompileKernels(sources, target, {});
    ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
    Artifact artifact = *Artifact::Parse(std::as_bytes(std::span<const char>(*bytes)), nullptr);
    EXPECT_EQ(artifact.target(), target);
    Symbols symbols = DynamicSymbols(artifact.code());
    EXPECT_EQ(symbols.defined, std::vector<std::string>{kCpuLibraryQuerySymbol});
    EXPECT_EQ(symbols.undefined, std::vector<std::string>{});
  }
}

TEST(CodegenTest, ListsTheKernelsInOrderWithTheArtifactsDigest) {
  std::vector<KernelSource> sources = TemptingKernels();
  absl::StatusOr<std::string> bytes = CompileKernels(sources, Target::HostCpu(), {});
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  const CpuLibrary* library = *LoadLibrary(*bytes);
  EXPECT_EQ(library->abi_version, kKernelAbiVersion);
  ASSERT_EQ(library->entry_count, sources.size());
  for (size_t n = 0; n < sources.size(); ++n) {
    EXPECT_EQ(std::string(library->entries[n].name), sources[n].name);
  }
  Artifact artifact = *Artifact::Parse(std::as_bytes(std::span<const char>(*bytes)), nullptr);
  EXPECT_EQ(memcmp(library->source_digest, artifact.source_digest().bytes.data(), 32), 0);
}

TEST(CodegenTest, GivesTheSameBytesAgain) {
  std::vector<KernelSource> sources = TemptingKernels();
  sources.resize(6);
  std::string first = *CompileKernels(sources, Target::HostCpu(), {});
  EXPECT_EQ(first, *CompileKernels(sources, Target::HostCpu(), {}));
}

TEST(CodegenTest, RefusesWhatItCannotGenerate) {
  Library library;
  library.skeleton = "sort";
  library.operands = {{DType::kF32, {4}}};
  library.outputs = {{DType::kF32, {4}}};
  KernelSource source = {"k", library};
  absl::Status status = CompileKernels({&source, 1}, Target::HostCpu(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status.ToString();
  EXPECT_NE(status.message().find("sort"), absl::string_view::npos) << status.ToString();
  KernelSource unfinished = {"k", Nest()};
  status = CompileKernels({&unfinished, 1}, Target::HostCpu(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status.ToString();
  absl::StatusOr<Target> gpu = Target::Parse("cuda:sm_80");
  ASSERT_TRUE(gpu.ok());
  status = CompileKernels({}, *gpu, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status.ToString();
}

TEST(CodegenTest, PlansNothingForEmptyResults) {
  Nest nest;
  nest.kept = {DimExpr::Symbol("N"), 100};
  nest.operands = {};
  nest.result = Expr::Constant(DType::kF32, 1);
  nest.output = {DType::kF32, nest.kept};
  LaunchPlan plan = PlanLaunch(nest, Target::HostCpu());
  EXPECT_EQ(*plan.tasks.Evaluate(SymbolValues({{"N", 0}})), 0);
  EXPECT_EQ(*plan.tasks.Evaluate(SymbolValues({{"N", 1}})), 1);
}

}  // namespace
}  // namespace stampmill
