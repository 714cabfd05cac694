#include "compiler/llvm/kernel_harness.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "compiler/codegen/launch_plan.h"
#include "graph/nest_interpreter.h"

namespace stampmill {

GuardedBuffer::GuardedBuffer(size_t size, Side side) {
  size_t page = static_cast<size_t>(getpagesize());
  size_t inner = std::max<size_t>((size + page - 1) / page * page, page);
  mapping_size_ = inner + 2 * page;
  void* mapping = mmap(nullptr, mapping_size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapping != MAP_FAILED);
  mapping_ = static_cast<std::byte*>(mapping);
  CHECK_EQ(mprotect(mapping_ + page, inner, PROT_READ | PROT_WRITE), 0);
  data_ = side == Side::kBefore ? mapping_ + page : mapping_ + page + inner - size;
}

GuardedBuffer::~GuardedBuffer() { munmap(mapping_, mapping_size_); }

absl::StatusOr<const CpuLibrary*> LoadLibrary(const std::string& artifact) {
  ASSIGN_OR_RETURN(Artifact parsed,
                   Artifact::Parse(std::as_bytes(std::span<const char>(artifact)), nullptr));
  // The descriptor stays open: glibc knows the library by this name.
  int descriptor = memfd_create("stampmill-test", 0);
  CHECK_GE(descriptor, 0);
  size_t size = parsed.code().size();
  CHECK_EQ(write(descriptor, parsed.code().data(), size), static_cast<ssize_t>(size));
  std::string path = absl::StrCat("/proc/self/fd/", descriptor);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::InternalError(absl::StrCat("dlopen: ", dlerror()));
  auto query = reinterpret_cast<CpuLibraryQuery>(dlsym(library, kCpuLibraryQuerySymbol));
  if (query == nullptr) return absl::InternalError("no query function");
  return query();
}

absl::StatusOr<CompiledStage> CompiledStage::Compile(const StageBody& body, const Target& target) {
  CompiledStage stage;
  stage.body_ = body;
  stage.target_ = target;
  KernelSource source = {"stage", body};
  ASSIGN_OR_RETURN(std::string artifact, CompileKernels({&source, 1}, target, {}));
  ASSIGN_OR_RETURN(const CpuLibrary* library, LoadLibrary(artifact));
  CHECK_EQ(library->entry_count, 1u);
  stage.kernel_ = library->entries[0].function;
  return stage;
}

CompiledStage CompiledStage::WithBody(const StageBody& body) const {
  CompiledStage stage = *this;
  stage.body_ = body;
  return stage;
}

absl::Status CompiledStage::Run(std::span<const Tensor> operands, std::span<Tensor> outputs,
                                const DimExpr::SymbolValue& symbols, const Options& options) const {
  LaunchPlan plan = PlanLaunch(body_, target_);
  ASSIGN_OR_RETURN(int64_t tasks, plan.tasks.Evaluate(symbols));
  ASSIGN_OR_RETURN(int64_t scratch_bytes, plan.scratch_bytes.Evaluate(symbols));
  std::vector<DimExpr> parameters;
  CanonicalBytes(body_, &parameters);
  std::vector<int64_t> dims;
  for (const DimExpr& parameter : parameters) {
    ASSIGN_OR_RETURN(int64_t value, parameter.Evaluate(symbols));
    dims.push_back(value);
  }
  std::vector<std::unique_ptr<GuardedBuffer>> memory;
  std::vector<void*> buffers;
  auto add = [&](std::span<const std::byte> bytes) {
    memory.push_back(std::make_unique<GuardedBuffer>(bytes.size(), options.side));
    if (!bytes.empty()) memcpy(memory.back()->data(), bytes.data(), bytes.size());
    buffers.push_back(memory.back()->data());
  };
  for (const Tensor& operand : operands) add(operand.bytes());
  for (const Tensor& output : outputs) add(output.bytes());
  // Aligned as the device's scratch, so it ends where the size rounded up to 64 does.
  size_t scratch_size = (static_cast<size_t>(scratch_bytes) + 63) / 64 * 64;
  GuardedBuffer scratch(scratch_size, GuardedBuffer::Side::kAfter);
  memset(scratch.data(), 0xff, scratch_size);
  KernelArgs args = {buffers.data(), dims.data(), scratch.data()};
  int64_t calls = (tasks + options.tasks_per_call - 1) / options.tasks_per_call;
  for (int64_t n = 0; n < calls; ++n) {
    int64_t begin = (options.reverse ? calls - 1 - n : n) * options.tasks_per_call;
    int32_t code = kernel_(&args, begin, std::min(begin + options.tasks_per_call, tasks));
    if (code != 0) return absl::InternalError(absl::StrCat("kernel returned ", code));
  }
  for (size_t n = 0; n < outputs.size(); ++n) {
    std::span<std::byte> result = outputs[n].mutable_bytes();
    if (!result.empty()) memcpy(result.data(), buffers[operands.size() + n], result.size());
  }
  return absl::OkStatus();
}

std::vector<Target> RunnableTargets() {
  std::vector<Target> targets;
  Target host = Target::HostCpu();
  for (const char* text : {"cpu:x86-64", "cpu:x86-64-v3", "cpu:x86-64-v4"}) {
    absl::StatusOr<Target> target = Target::Parse(text);
    CHECK_OK(target);
    if (host.Runs(*target)) targets.push_back(*target);
  }
  return targets;
}

Tensor RandomTensor(DType dtype, std::vector<int64_t> shape, uint32_t seed) {
  absl::StatusOr<Tensor> tensor = Tensor::Allocate(dtype, std::move(shape));
  CHECK_OK(tensor);
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 2);
  for (int64_t n = 0; n < tensor->element_count(); ++n) {
    if (IsFloat(dtype)) {
      tensor->SetFromDouble(n, normal(random));
    } else if (dtype == DType::kBool) {
      tensor->SetFromInt64(n, static_cast<int64_t>(random() % 2));
    } else {
      int64_t value = static_cast<int64_t>(random() % 256);
      tensor->SetFromInt64(n, IsSignedInteger(dtype) ? value - 128 : value);
    }
  }
  return *std::move(tensor);
}

DimExpr::SymbolValue SymbolValues(std::map<std::string, int64_t> values) {
  return [values = std::move(values)](absl::string_view name) -> std::optional<int64_t> {
    auto found = values.find(std::string(name));
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
}

absl::Status CompareTensors(const Tensor& actual, const Tensor& expected, Tolerance tolerance) {
  CHECK(actual.dtype() == expected.dtype());
  CHECK(actual.shape() == expected.shape());
  for (int64_t n = 0; n < expected.element_count(); ++n) {
    if (!IsFloat(expected.dtype())) {
      int64_t want = expected.ValueAsInt64(n);
      int64_t got = actual.ValueAsInt64(n);
      if (want == got) continue;
      return absl::InternalError(absl::StrCat("element ", n, ": got ", got, ", expected ", want));
    }
    double want = expected.ValueAsDouble(n);
    double got = actual.ValueAsDouble(n);
    if (want == got || (std::isnan(want) && std::isnan(got))) continue;
    if (std::fabs(want - got) <= tolerance.absolute + tolerance.relative * std::fabs(want)) {
      continue;
    }
    return absl::InternalError(
        absl::StrFormat("element %d: got %.9g, expected %.9g", n, got, want));
  }
  return absl::OkStatus();
}

namespace {

const Operand& OutputOf(const StageBody& body) {
  if (const Nest* nest = std::get_if<Nest>(&body)) return nest->output;
  return std::get<Contraction>(body).output;
}

std::span<const Operand> OperandsOf(const StageBody& body) {
  if (const Nest* nest = std::get_if<Nest>(&body)) return nest->operands;
  return std::get<Contraction>(body).operands;
}

absl::StatusOr<std::vector<int64_t>> Evaluated(const Shape& shape,
                                               const DimExpr::SymbolValue& symbols) {
  std::vector<int64_t> dims;
  for (const DimExpr& dim : shape) {
    ASSIGN_OR_RETURN(int64_t value, dim.Evaluate(symbols));
    dims.push_back(value);
  }
  return dims;
}

absl::Status CheckOn(const StageBody& body, const Target& target, std::span<const Tensor> operands,
                     const Tensor& expected, const DimExpr::SymbolValue& symbols,
                     Tolerance tolerance) {
  // Tests run one stage with many sizes.
  static std::map<std::string, CompiledStage>* const compiled =
      new std::map<std::string, CompiledStage>();
  std::vector<DimExpr> dims;
  std::string key = absl::StrCat(target.ToString(), CanonicalBytes(body, &dims));
  if (!compiled->contains(key)) {
    ASSIGN_OR_RETURN(CompiledStage fresh, CompiledStage::Compile(body, target));
    compiled->emplace(key, std::move(fresh));
  }
  CompiledStage stage = compiled->at(key).WithBody(body);
  Tensor first;
  for (int run = 0; run < 3; ++run) {
    CompiledStage::Options options;
    options.side = run == 1 ? GuardedBuffer::Side::kBefore : GuardedBuffer::Side::kAfter;
    options.tasks_per_call = run == 0 ? int64_t{1} << 40 : run;
    options.reverse = run == 2;
    ASSIGN_OR_RETURN(std::vector<int64_t> shape, Evaluated(OutputOf(body).shape, symbols));
    ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(OutputOf(body).dtype, shape));
    RETURN_IF_ERROR(stage.Run(operands, {&output, 1}, symbols, options));
    ASSIGN_OR_RETURN(Tensor shaped, output.Reshaped(expected.shape()));
    RETURN_IF_ERROR(CompareTensors(shaped, expected, tolerance));
    if (run == 0) {
      first = output;
    } else if (memcmp(first.bytes().data(), output.bytes().data(), output.bytes().size()) != 0) {
      return absl::InternalError("other bits with another split of the tasks");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStage(const StageBody& body, const std::map<std::string, int64_t>& symbols,
                        std::vector<Tensor> operands, uint32_t seed, Tolerance tolerance) {
  DimExpr::SymbolValue values = SymbolValues(symbols);
  operands.resize(OperandsOf(body).size());
  for (size_t n = 0; n < operands.size(); ++n) {
    if (operands[n].valid()) continue;
    const Operand& operand = OperandsOf(body)[n];
    ASSIGN_OR_RETURN(std::vector<int64_t> shape, Evaluated(operand.shape, values));
    operands[n] = RandomTensor(operand.dtype, shape, seed + static_cast<uint32_t>(n));
  }
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, Evaluated(OutputOf(body).shape, values));
  ASSIGN_OR_RETURN(Tensor expected, Tensor::Allocate(OutputOf(body).dtype, shape));
  RETURN_IF_ERROR(InterpretStage(body, operands, {&expected, 1}, values));
  const StageBody simple = Simplify(body);
  RETURN_IF_ERROR(Verify(simple));
  std::vector<Target> targets = RunnableTargets();
  const auto* contraction = std::get_if<Contraction>(&body);
  if (contraction != nullptr && contraction->blocks.has_value()) {
    const absl::StatusOr<Target> vnni = Target::Parse("cpu:x86-64-v4+vnni");
    CHECK_OK(vnni);
    if (Target::HostCpu().Runs(*vnni)) targets.push_back(*vnni);
  }
  for (const Target& target : targets) {
    for (const StageBody* form : {&body, &simple}) {
      absl::Status status = CheckOn(*form, target, operands, expected, values, tolerance);
      if (!status.ok()) {
        return absl::InternalError(absl::StrCat(target.ToString(),
                                                form == &simple ? ", simplified: " : ": ",
                                                status.message(), "\n", ToString(*form)));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace stampmill
