// Every operation on every dtype, generated for every class that this machine runs, against the
// functions of graph/expr_op.h: exact where those are, else within 4 ulp (f32), 1e-13 (f64), 1 ulp
// (f16, bf16). Arguments: special values in all pairs, random bits, and ordinary numbers.
#include "compiler/llvm/scalar_ops.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/codegen/launch_plan.h"
#include "compiler/llvm/codegen.h"
#include "compiler/llvm/kernel_harness.h"
#include "compiler/llvm/math.h"
#include "graph/expr_op.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

constexpr DType kDTypes[] = {DType::kBool, DType::kI8,  DType::kI16, DType::kI32, DType::kI64,
                             DType::kU8,   DType::kU16, DType::kU32, DType::kU64, DType::kF16,
                             DType::kBF16, DType::kF32, DType::kF64};

uint64_t Read(const Tensor& tensor, int64_t n) {
  size_t size = SizeBytes(tensor.dtype());
  uint64_t bits = 0;
  memcpy(&bits, tensor.bytes().data() + static_cast<size_t>(n) * size, size);
  return bits;
}

void Write(Tensor& tensor, int64_t n, uint64_t bits) {
  size_t size = SizeBytes(tensor.dtype());
  memcpy(tensor.mutable_bytes().data() + static_cast<size_t>(n) * size, &bits, size);
}

uint64_t BitsOf(DType dtype, double value) {
  Tensor one = *Tensor::Allocate(dtype, {1});
  one.SetFromDouble(0, value);
  return Read(one, 0);
}

std::vector<uint64_t> SpecialValues(DType dtype) {
  std::vector<uint64_t> values;
  if (dtype == DType::kBool) return {0, 1};
  if (IsFloat(dtype)) {
    double infinity = std::numeric_limits<double>::infinity();
    for (double value :
         {0.0,  1.0,   2.0,   3.0,     0.5,     0.25,     1.5,  7.0,   1e-3,      100.0,
          1e30, 1e-30, 1e-42, 65504.0, 3.14159, infinity, 88.5, 709.5, 0.9999999, 16777217.0}) {
      values.push_back(BitsOf(dtype, value));
      values.push_back(BitsOf(dtype, -value));
    }
    values.push_back(BitsOf(dtype, std::nan("")));
    return values;
  }
  int64_t width = static_cast<int64_t>(SizeBytes(dtype)) * 8;
  uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  uint64_t top = uint64_t{1} << (width - 1);
  for (uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{7},
                         uint64_t{31}, uint64_t{64}, top, top - 1, top + 1, mask, mask - 1}) {
    values.push_back(value & mask);
  }
  return values;
}

struct Arguments {
  Tensor a, b;
};

Arguments MakeArguments(DType dtype, bool is_binary, uint32_t seed) {
  std::vector<uint64_t> special = SpecialValues(dtype);
  std::vector<uint64_t> a, b;
  for (uint64_t x : special) {
    for (uint64_t y : is_binary ? special : std::vector<uint64_t>{0}) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  std::mt19937_64 random(seed);
  int64_t width = static_cast<int64_t>(SizeBytes(dtype)) * 8;
  uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  if (dtype == DType::kBool) mask = 1;
  for (int n = 0; n < 2000; ++n) {
    a.push_back(random() & mask);
    b.push_back(random() & mask);
  }
  if (IsFloat(dtype)) {
    for (double scale : {0.1, 1.0, 5.0, 40.0, 1000.0}) {
      std::normal_distribution<double> normal(0, scale);
      for (int n = 0; n < 1000; ++n) {
        a.push_back(BitsOf(dtype, normal(random)));
        b.push_back(BitsOf(dtype, normal(random)));
      }
    }
  }
  Arguments arguments;
  int64_t count = static_cast<int64_t>(a.size());
  arguments.a = *Tensor::Allocate(dtype, {count});
  arguments.b = *Tensor::Allocate(dtype, {count});
  for (int64_t n = 0; n < count; ++n) {
    Write(arguments.a, n, a[static_cast<size_t>(n)]);
    Write(arguments.b, n, b[static_cast<size_t>(n)]);
  }
  return arguments;
}

// The range in which f64 sine, cosine and tangent are promised (math.h).
bool IsOutOfRange(const Tensor& argument, ExprOp op, double x) {
  if (argument.dtype() != DType::kF64) return false;
  return (op == ExprOp::kSin || op == ExprOp::kCos || op == ExprOp::kTan) && std::isfinite(x) &&
         std::fabs(x) > 0x1p30;
}

bool IsExact(ExprOp op) {
  return op < ExprOp::kExp ? op != ExprOp::kPow && op != ExprOp::kAtan2 : op > ExprOp::kErf;
}

// Distance in units of the last place of the dtype, by the order of the bit patterns.
double UlpDistance(DType dtype, uint64_t x, uint64_t y) {
  int64_t width = static_cast<int64_t>(SizeBytes(dtype)) * 8;
  auto ordered = [width](uint64_t bits) {
    uint64_t sign = uint64_t{1} << (width - 1);
    return (bits & sign) != 0 ? -static_cast<double>(bits ^ sign) : static_cast<double>(bits);
  };
  return std::fabs(ordered(x) - ordered(y));
}

double AsDouble(DType dtype, uint64_t bits) {
  Tensor one = *Tensor::Allocate(dtype, {1});
  Write(one, 0, bits);
  return one.ValueAsDouble(0);
}

bool IsClose(ExprOp op, DType dtype, uint64_t got, uint64_t want) {
  if (got == want) return true;
  if (!IsFloat(dtype)) return false;
  double x = AsDouble(dtype, got);
  double y = AsDouble(dtype, want);
  if (std::isnan(x) && std::isnan(y)) return true;
  if (x == 0 && y == 0) return op == ExprOp::kMin || op == ExprOp::kMax || !IsExact(op);
  if (IsExact(op)) return false;
  if (dtype == DType::kF64) return std::fabs(x - y) <= 1e-13 * std::fabs(y) + 1e-300;
  return UlpDistance(dtype, got, want) <= (dtype == DType::kF32 ? 4 : 1);
}

StageBody MapOf(Expr (*make)(ExprOp, DType, Expr, Expr), ExprOp op, DType from, DType to,
                int64_t count) {
  Nest nest;
  nest.kept = {count};
  nest.operands = {{from, {count}}, {from, {count}}};
  Expr a = Expr::Load(from, 0, {Expr::Coord(0)});
  Expr b = Expr::Load(from, 1, {Expr::Coord(0)});
  nest.result = make(op, to, a, b);
  nest.output = {to, {count}};
  return nest;
}

Expr MakeOp(ExprOp op, DType to, Expr a, Expr b) {
  if (op == ExprOp::kCast) return Expr::Cast(to, a);
  if (op == ExprOp::kBitCast) return Expr::BitCast(to, a);
  return Arity(op) == 1 ? Expr::Unary(op, a) : Expr::Binary(op, a, b);
}

struct Case {
  ExprOp op;
  DType from, to;
};

// Compiles all cases into one library and checks each over the arguments.
void CheckCases(const std::vector<Case>& cases, const Target& target, bool is_binary) {
  if (cases.empty()) return;
  DType from = cases[0].from;
  Arguments arguments = MakeArguments(from, is_binary, 11);
  int64_t count = arguments.a.element_count();
  std::vector<KernelSource> sources;
  for (size_t n = 0; n < cases.size(); ++n) {
    sources.push_back({absl::StrCat("k", n), MapOf(MakeOp, cases[n].op, from, cases[n].to, count)});
  }
  absl::StatusOr<std::string> artifact = CompileKernels(sources, target, {});
  ASSERT_TRUE(artifact.ok()) << artifact.status().ToString();
  const CpuLibrary* library = *LoadLibrary(*artifact);
  for (size_t n = 0; n < cases.size(); ++n) {
    const Case& c = cases[n];
    Tensor output = *Tensor::Allocate(c.to, {count});
    void* buffers[] = {const_cast<std::byte*>(arguments.a.bytes().data()),
                       const_cast<std::byte*>(arguments.b.bytes().data()),
                       output.mutable_bytes().data()};
    KernelArgs args = {buffers, nullptr, nullptr};
    int64_t tasks = *PlanLaunch(sources[n].body, target).tasks.constant();
    ASSERT_EQ(library->entries[n].function(&args, 0, tasks), 0);
    ScalarFunction reference = FindScalarFunction(c.op, from, c.to);
    int64_t wrong = 0;
    for (int64_t i = 0; i < count && wrong < 3; ++i) {
      uint64_t x = Read(arguments.a, i);
      uint64_t y = Read(arguments.b, i);
      uint64_t want = reference(x, y);
      uint64_t got = Read(output, i);
      if (IsClose(c.op, c.to, got, want)) continue;
      if (IsOutOfRange(arguments.a, c.op, AsDouble(from, x))) continue;
      ++wrong;
      ADD_FAILURE() << target.ToString() << " " << Name(c.op) << " " << Name(from) << " to "
                    << Name(c.to) << " of " << AsDouble(from, x) << " (" << std::hex << x << "), "
                    << AsDouble(from, y) << " (" << y << "): got " << AsDouble(c.to, got) << " ("
                    << got << "), expected " << AsDouble(c.to, want) << " (" << want << ")";
    }
  }
}

class ScalarOpsTest : public testing::TestWithParam<DType> {};

TEST_P(ScalarOpsTest, ComputesEveryOperation) {
  DType from = GetParam();
  for (const Target& target : RunnableTargets()) {
    std::vector<Case> unary, binary;
    for (int number = 0; number < 256; ++number) {
      if (!IsExprOp(static_cast<uint8_t>(number))) continue;
      ExprOp op = static_cast<ExprOp>(number);
      if (Arity(op) != 1 && Arity(op) != 2) continue;
      for (DType to : kDTypes) {
        bool converts = op == ExprOp::kCast || op == ExprOp::kBitCast;
        if (!converts && to != (IsPredicate(op) ? DType::kBool : from)) continue;
        if (to == from && converts) continue;
        if (FindScalarFunction(op, from, to) == nullptr) continue;
        (Arity(op) == 1 ? unary : binary).push_back({op, from, to});
      }
    }
    CheckCases(unary, target, false);
    CheckCases(binary, target, true);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, ScalarOpsTest, testing::ValuesIn(kDTypes),
                         [](const testing::TestParamInfo<DType>& info) {
                           return std::string(Name(info.param));
                         });

}  // namespace
}  // namespace stampmill
