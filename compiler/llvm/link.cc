#include "compiler/llvm/link.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/file.h"
#include "lld/Common/CommonLinkerContext.h"
#include "lld/Common/Driver.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/IPO/AlwaysInliner.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/SROA.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

LLD_HAS_DRIVER(elf)

namespace stampmill {
namespace {

constexpr char kTriple[] = "x86_64-unknown-linux-gnu";
constexpr size_t kLibraryBytesMax = size_t{1} << 30;

void InitializeLlvmOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
}

const char* CpuName(const Target& target) {
  if (target.has_avx512()) return "x86-64-v4";
  return target.has_avx2() ? "x86-64-v3" : "x86-64";
}

// A folder for one link's files, removed with them at the end: lld can neither write to a file
// without a name nor to memory.
class LinkFolder {
 public:
  LinkFolder() {
    for (const char* place : {"/dev/shm", "/tmp"}) {
      std::string path = absl::StrCat(place, "/stampmill-link-XXXXXX");
      if (mkdtemp(path.data()) == nullptr) continue;
      path_ = path;
      return;
    }
  }
  ~LinkFolder() {
    if (path_.empty()) return;
    unlink(object().c_str());
    unlink(library().c_str());
    rmdir(path_.c_str());
  }
  LinkFolder(const LinkFolder&) = delete;
  LinkFolder& operator=(const LinkFolder&) = delete;

  bool valid() const { return !path_.empty(); }
  std::string object() const { return path_ + "/kernels.o"; }
  std::string library() const { return path_ + "/kernels.so"; }

 private:
  std::string path_;
};

bool WriteFile(const std::string& path, const std::string& bytes) {
  FILE* file = fopen(path.c_str(), "wbe");
  if (file == nullptr) return false;
  bool written = fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  return fclose(file) == 0 && written;
}

}  // namespace

absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> MakeTargetMachine(const Target& target,
                                                                       const CpuFacts& facts) {
  InitializeLlvmOnce();
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(kTriple, error);
  if (found == nullptr) return absl::UnimplementedError(absl::StrCat("llvm: ", error));
  llvm::TargetOptions options;
  std::unique_ptr<llvm::TargetMachine> machine(
      found->createTargetMachine(kTriple, CpuName(target), facts.features, options,
                                 llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Default));
  if (machine == nullptr) return absl::UnimplementedError("llvm: no x86-64 code generator");
  return machine;
}

namespace {

// A pass builder and the analyses that its pipelines ask for.
class Passes {
 public:
  Passes(llvm::TargetMachine& machine, const llvm::PipelineTuningOptions& tuning)
      : library_(llvm::Triple{kTriple}), builder_(&machine, tuning) {
    // No library: nothing may become a call.
    library_.disableAllFunctions();
    functions_.registerPass([&] { return llvm::TargetLibraryAnalysis(library_); });
    builder_.registerModuleAnalyses(modules_);
    builder_.registerCGSCCAnalyses(cycles_);
    builder_.registerFunctionAnalyses(functions_);
    builder_.registerLoopAnalyses(loops_);
    builder_.crossRegisterProxies(loops_, functions_, cycles_, modules_);
  }

  llvm::PassBuilder& builder() { return builder_; }
  void Run(llvm::ModulePassManager passes, llvm::Module& module) { passes.run(module, modules_); }

 private:
  llvm::TargetLibraryInfoImpl library_;
  llvm::PassBuilder builder_;
  llvm::LoopAnalysisManager loops_;
  llvm::FunctionAnalysisManager functions_;
  llvm::CGSCCAnalysisManager cycles_;
  llvm::ModuleAnalysisManager modules_;
};

}  // namespace

void Specialise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::FunctionPassManager each;
  each.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  each.addPass(llvm::InstCombinePass());
  each.addPass(llvm::SimplifyCFGPass());
  llvm::ModulePassManager all;
  all.addPass(llvm::AlwaysInlinerPass());
  all.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(each)));
  all.addPass(llvm::GlobalDCEPass());
  Passes(machine, llvm::PipelineTuningOptions()).Run(std::move(all), module);
}

void Optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::PipelineTuningOptions tuning;
  // Loops are written in vectors and unrolled where that pays: the emitters decide.
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  tuning.LoopUnrolling = false;
  tuning.LoopInterleaving = false;
  Passes passes(machine, tuning);
  passes.Run(passes.builder().buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2), module);
}

std::string EmitCode(llvm::Module& module, llvm::TargetMachine& machine, bool assembly) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  bool failed = machine.addPassesToEmitFile(
      passes, stream, nullptr,
      assembly ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile);
  if (failed) return std::string();
  passes.run(module);
  return std::string(bytes.data(), bytes.size());
}

absl::StatusOr<std::string> LinkSharedObject(const std::string& object) {
  LinkFolder folder;
  if (!folder.valid() || !WriteFile(folder.object(), object)) {
    return absl::ResourceExhaustedError("link: cannot write to /dev/shm or /tmp");
  }
  std::string input = folder.object();
  std::string output = folder.library();
  std::vector<const char*> arguments = {
      "ld.lld",      "-shared", "--no-undefined",   "--gc-sections",   "-z", "noexecstack",
      "-z",          "now",     "--hash-style=gnu", "--build-id=none", "-s", "--threads=1",
      input.c_str(), "-o",      output.c_str()};
  std::string words;
  llvm::raw_string_ostream stream(words);
  static absl::Mutex mutex(absl::kConstInit);
  absl::MutexLock lock(&mutex);
  bool linked = lld::elf::link(arguments, stream, stream, false, false);
  lld::CommonLinkerContext::destroy();
  if (!linked) return absl::InternalError(absl::StrCat("link: ", stream.str()));
  return ReadFile(output, kLibraryBytesMax);
}

}  // namespace stampmill
