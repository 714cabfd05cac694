// Chains of roundings. Between two roundings to a byte only 256 numbers are possible, so whatever a
// chain of elementwise operations computes there is known in full when a model is compiled: a
// normalisation that a quantiser spelled as subtraction, product and sum, each rounded, is a
// function of one code and the channel. Its steps become round(code * a + b), with constants of the
// channel, and the clamps after each become one at the end. That is done only where the shorter
// chain gives the same code as the longer one for every code of every channel.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "compiler/passes/coordinates.h"
#include "compiler/passes/fusion.h"
#include "compiler/passes/ranges.h"

namespace stampmill {
namespace {

constexpr int kCodes = 256;
constexpr int64_t kChannelsMax = 1 << 14;
template <typename T>
using Codes = std::array<T, kCodes>;

Expr Real(double value) { return Expr::Constant(DType::kF32, value); }

// A real that is a whole number of a known interval of at most 256: `value` and `shift`.
struct Code {
  Expr value;
  double shift = 0;
  Expr before;  // what is rounded; of a byte in memory: invalid
  double least = 0;
  double greatest = 0;
};

// select(compare(x, limit), x, limit): x and the limit.
std::optional<std::pair<Expr, double>> TakeClamp(const Expr& e, ExprOp compare) {
  if (e.op() != ExprOp::kSelect || e.dtype() != DType::kF32) return std::nullopt;
  const Expr& condition = e.operands()[0];
  const Expr& value = e.operands()[1];
  const Expr& limit = e.operands()[2];
  if (condition.op() != compare || !limit.IsConstant()) return std::nullopt;
  if (condition.operands()[0].id() != value.id() || condition.operands()[1] != limit) {
    return std::nullopt;
  }
  return std::make_pair(value, limit.constant_value());
}

Expr Clamped(Expr e, const Expr& least, const Expr& greatest) {
  e = Expr::Select(Expr::Binary(ExprOp::kGt, e, least), e, least);
  return Expr::Select(Expr::Binary(ExprOp::kLt, e, greatest), e, greatest);
}

bool IsByte(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }
double Least(DType dtype) { return dtype == DType::kI8 ? -128 : 0; }
double Greatest(DType dtype) { return dtype == DType::kI8 ? 127 : 255; }

// The byte behind real(byte) or real(i32(byte) + constant).
std::optional<Code> AsLoadedCode(const Expr& e) {
  if (e.op() != ExprOp::kCast || e.dtype() != DType::kF32) return std::nullopt;
  Expr byte = e.operands()[0];
  double shift = 0;
  if (byte.dtype() == DType::kI32) {
    const bool adds = byte.op() == ExprOp::kAdd, subtracts = byte.op() == ExprOp::kSub;
    if ((adds || subtracts) && byte.operands()[1].IsConstant()) {
      shift = byte.operands()[1].constant_value() * (adds ? 1 : -1);
      byte = byte.operands()[0];
    }
    if (byte.op() != ExprOp::kCast) return std::nullopt;
    byte = byte.operands()[0];
  }
  if (!IsByte(byte.dtype()) || std::abs(shift) > 65536) return std::nullopt;
  return Code{.value = Expr::Cast(DType::kF32, byte),
              .shift = shift,
              .before = Expr(),
              .least = Least(byte.dtype()) + shift,
              .greatest = Greatest(byte.dtype()) + shift};
}

std::optional<Code> AsCode(const Expr& e) {
  if (const std::optional<Code> loaded = AsLoadedCode(e)) return loaded;
  const auto upper = TakeClamp(e, ExprOp::kLt);
  if (!upper.has_value()) return std::nullopt;
  const auto lower = TakeClamp(upper->first, ExprOp::kGt);
  if (!lower.has_value() || !(upper->second - lower->second < kCodes)) return std::nullopt;
  if (lower->second != std::nearbyint(lower->second) || upper->second < lower->second ||
      upper->second != std::nearbyint(upper->second)) {
    return std::nullopt;
  }
  Expr rounded = lower->first;
  // What becomes of NaN.
  if (rounded.op() == ExprOp::kSelect && rounded.operands()[0].op() == ExprOp::kEq &&
      rounded.operands()[0].operands()[0].id() == rounded.operands()[0].operands()[1].id() &&
      rounded.operands()[0].operands()[0].id() == rounded.operands()[1].id()) {
    rounded = rounded.operands()[1];
  }
  if (rounded.op() != ExprOp::kRound) return std::nullopt;
  return Code{.value = e,
              .shift = 0,
              .before = rounded.operands()[0],
              .least = lower->second,
              .greatest = upper->second};
}

// The arithmetic from codes to what is rounded next, as a list of operations on arrays.
class Tape {
 public:
  Tape(const StageGraph& stages, const Stage& stage, size_t codes = 1)
      : stages_(stages), stage_(stage), count_(codes) {}

  // False where `e` is not arithmetic of so many codes and of constants, of one axis at most.
  bool Record(const Expr& e) {
    result_ = Visit(e);
    return result_ >= 0 && codes_.size() == count_;
  }
  const Code& code(size_t i = 0) const { return codes_[i]; }
  const std::optional<int32_t>& axis() const { return axis_; }
  int64_t channels() const { return channels_; }

  template <typename T, size_t N>
  std::array<T, N> Run(const std::array<T, N>& input, int64_t channel,
                       const std::array<T, N>* second = nullptr) const {
    std::vector<std::array<T, N>> values(ops_.size());
    for (size_t i = 0; i < ops_.size(); ++i) {
      const Op& op = ops_[i];
      std::array<T, N>& to = values[i];
      if (op.op == ExprOp::kCoord) {
        to = op.a == 0 ? input : *second;
      } else if (op.a < 0) {
        to.fill(static_cast<T>(op.constants.size() == 1
                                   ? op.constants[0]
                                   : op.constants[static_cast<size_t>(channel)]));
      } else {
        Apply(op.op, values[static_cast<size_t>(op.a)], values[static_cast<size_t>(op.b)], to);
      }
    }
    return values[static_cast<size_t>(result_)];
  }

 private:
  // kCoord: code number a. Without operands: constants, one or one for each channel.
  struct Op {
    ExprOp op = ExprOp::kConstant;
    int a = -1;
    int b = -1;
    std::vector<float> constants;
  };

  template <typename T, size_t N>
  static void Apply(ExprOp op, const std::array<T, N>& a, const std::array<T, N>& b,
                    std::array<T, N>& to) {
    for (size_t n = 0; op == ExprOp::kAdd && n < N; ++n) to[n] = a[n] + b[n];
    for (size_t n = 0; op == ExprOp::kSub && n < N; ++n) to[n] = a[n] - b[n];
    for (size_t n = 0; op == ExprOp::kMul && n < N; ++n) to[n] = a[n] * b[n];
    for (size_t n = 0; op == ExprOp::kDiv && n < N; ++n) to[n] = a[n] / b[n];
  }

  int Push(Op op) {
    ops_.push_back(std::move(op));
    return static_cast<int>(ops_.size()) - 1;
  }

  int Visit(const Expr& e) {
    if (e.dtype() != DType::kF32) return -1;
    if (const auto found = places_.find(e.id()); found != places_.end()) return found->second;
    const int place = VisitNew(e);
    places_.emplace(e.id(), place);
    return place;
  }

  int VisitNew(const Expr& e) {
    if (e.IsConstant()) return Push({.constants = {static_cast<float>(e.constant_value())}});
    if (e.op() == ExprOp::kLoad) return VisitLoad(e);
    if (const std::optional<Code> code = AsCode(e)) {
      if (codes_.size() == count_) return -1;
      codes_.push_back(*code);
      return Push(
          {.op = ExprOp::kCoord, .a = static_cast<int>(codes_.size()) - 1, .constants = {}});
    }
    if (e.op() != ExprOp::kAdd && e.op() != ExprOp::kSub && e.op() != ExprOp::kMul &&
        e.op() != ExprOp::kDiv) {
      return -1;
    }
    const int a = Visit(e.operands()[0]);
    const int b = a < 0 ? -1 : Visit(e.operands()[1]);
    return b < 0 ? -1 : Push({.op = e.op(), .a = a, .b = b, .constants = {}});
  }

  int VisitLoad(const Expr& e) {
    const std::optional<Tensor>& constant =
        stages_.value(stage_.operands[static_cast<size_t>(e.index())]).constant;
    if (!constant.has_value()) return -1;
    int64_t step = 0, stride = 1, extent = 1;
    const std::span<const Expr> at = LoadCoordinates(e);
    for (size_t i = at.size(); i-- > 0;) {
      const int64_t dim = constant->shape()[i];
      const bool is_zero = at[i].IsConstant() && at[i].constant_int() == 0;
      if (!is_zero) {
        if (at[i].op() != ExprOp::kCoord || step != 0 || dim > kChannelsMax) return -1;
        if (axis_.has_value() && (*axis_ != at[i].index() || channels_ != dim)) return -1;
        axis_ = at[i].index();
        step = stride;
        channels_ = extent = dim;
      }
      stride *= dim;
    }
    if (stride == 0) return -1;
    Op op;
    for (int64_t n = 0; n < extent; ++n) {
      op.constants.push_back(static_cast<float>(constant->ValueAsDouble(n * step)));
    }
    return Push(std::move(op));
  }

  const StageGraph& stages_;
  const Stage& stage_;
  std::vector<Op> ops_;
  absl::flat_hash_map<const void*, int> places_;
  size_t count_;
  std::vector<Code> codes_;
  std::optional<int32_t> axis_;
  int64_t channels_ = 1;
  int result_ = -1;
};

// What a chain ends in: a real code, or a byte.
struct Goal {
  Expr before;
  double zero = 0;  // added after rounding
  double least = 0;
  double greatest = 0;
  DType byte = DType::kInvalid;  // kInvalid: a real code
};

std::optional<Goal> AsGoal(const Expr& e) {
  if (const std::optional<Code> code = AsCode(e); code.has_value() && code->before.valid()) {
    return Goal{.before = code->before, .least = code->least, .greatest = code->greatest};
  }
  if (e.op() != ExprOp::kCast || !IsByte(e.dtype())) return std::nullopt;
  Goal goal{.before = Expr(),
            .least = Least(e.dtype()),
            .greatest = Greatest(e.dtype()),
            .byte = e.dtype()};
  Expr rounded = e.operands()[0];
  if (rounded.op() == ExprOp::kAdd && rounded.operands()[1].IsConstant()) {
    goal.zero = rounded.operands()[1].constant_value();
    rounded = rounded.operands()[0];
  }
  if (rounded.op() != ExprOp::kRound || rounded.dtype() != DType::kF32) return std::nullopt;
  if (goal.zero != std::nearbyint(goal.zero) || std::abs(goal.zero) > 65536) return std::nullopt;
  goal.before = rounded.operands()[0];
  return goal;
}

// One step of the shorter chain: round(x * factor + offset), for each channel.
struct Step {
  std::vector<float> factor, offset;
};

Codes<float> Apply(const Codes<float>& x, float factor, float offset) {
  Codes<float> y;
  for (size_t n = 0; n < kCodes; ++n) y[n] = x[n] * factor + offset;
  for (float& value : y) value = std::nearbyint(value);
  return y;
}

Codes<float> AllOf(const Code& code) {
  Codes<float> all;
  for (size_t n = 0; n < kCodes; ++n) {
    all[n] = static_cast<float>(std::min(code.least + static_cast<double>(n), code.greatest));
  }
  return all;
}

// What is tried near a tie, where a unit in the last place decides: 0, 1, -1, 2, ... of them.
constexpr int kTries = 9;
double Side(int number) { return (number & 1) != 0 ? (number + 1) / 2 : -number / 2; }
float Neighbour(double factor, int number) {
  return static_cast<float>(factor + std::abs(factor) * std::exp2(-24) * Side(number));
}
// By units of what products with codes have in the last place.
float Moved(double offset, int number) {
  return static_cast<float>(offset + std::exp2(-18) * Side(number));
}

// round(x * x_factor + (y * y_factor + offset)), clamped, of two codes: a sum of two rounded
// tensors, rounded.
struct Sum {
  Code x, y;
  float x_factor = 0, y_factor = 0, offset = 0;
};

// As it is computed where the second code is one of them.
Codes<float> Apply(const Sum& sum, const Codes<float>& x, float y) {
  const float rest = y * sum.y_factor + sum.offset;
  return Apply(x, sum.x_factor, rest);
}

bool Agrees(const Sum& sum, const Goal& goal, const std::vector<Codes<float>>& want) {
  Codes<float> x = AllOf(sum.x);
  const Codes<float> y = AllOf(sum.y);
  for (float& value : x) value -= static_cast<float>(sum.x.shift);
  for (size_t n = 0; n < kCodes; ++n) {
    Codes<float> got = Apply(sum, x, y[n] - static_cast<float>(sum.y.shift));
    for (float& value : got) {
      value = std::clamp(value, static_cast<float>(goal.least), static_cast<float>(goal.greatest));
    }
    if (got != want[n]) return false;
  }
  return true;
}

std::optional<Sum> FitSum(const StageGraph& stages, const Stage& stage, const Goal& goal) {
  Tape tape(stages, stage, 2);
  if (!tape.Record(goal.before) || tape.axis().has_value()) return std::nullopt;
  Sum sum{.x = tape.code(0), .y = tape.code(1)};
  const Codes<float> x = AllOf(sum.x), y = AllOf(sum.y);
  std::vector<Codes<float>> want;
  for (const float second : y) {
    Codes<float> all;
    all.fill(second);
    want.push_back(tape.Run(x, 0, &all));
    for (float& value : want.back()) {
      if (!(std::abs(value) < 1e30f)) return std::nullopt;
      value = std::clamp(std::nearbyint(value) + static_cast<float>(goal.zero),
                         static_cast<float>(goal.least), static_cast<float>(goal.greatest));
    }
  }
  const std::array<double, 3> ys = {0, 0, 1};
  const std::array<double, 3> plane = tape.Run(std::array<double, 3>{0, 1, 0}, 0, &ys);
  const double x_factor = plane[1] - plane[0], y_factor = plane[2] - plane[0];
  const double offset = plane[0] + goal.zero + x_factor * sum.x.shift + y_factor * sum.y.shift;
  if (!(std::abs(x_factor) + std::abs(y_factor) + std::abs(offset) < 1e6)) return std::nullopt;
  for (int n = 0; n < kTries * kTries; ++n) {
    sum.x_factor = Neighbour(x_factor, n / kTries / 3);
    sum.y_factor = Neighbour(y_factor, n / kTries % 3);
    sum.offset = Moved(offset, n % kTries);
    if (Agrees(sum, goal, want)) return sum;
  }
  return std::nullopt;
}

// The chain from a code to a goal, and what is found for it.
class Chain {
 public:
  Chain(const StageGraph& stages, const Stage& stage, Goal goal)
      : stages_(stages), stage_(stage), goal_(std::move(goal)) {}

  // The steps back to where values are not codes any more. False when there are none.
  bool Find() {
    Expr before = goal_.before;
    while (before.valid()) {
      Tape tape(stages_, stage_);
      if (!tape.Record(before) || !SameAxis(tape)) break;
      tapes_.push_front(std::move(tape));
      before = tapes_.front().code().before;
    }
    return !tapes_.empty();
  }
  const Code& code() const { return tapes_[0].code(); }
  const std::optional<int32_t>& axis() const { return axis_; }

  // Fits the steps of all channels. False when one of them cannot be met.
  bool Fit() {
    steps_.assign(tapes_.size(), {});
    for (int64_t channel = 0; channel < channels_; ++channel) {
      if (!FitChannel(channel)) return false;
    }
    return true;
  }
  const std::vector<Step>& steps() const { return steps_; }
  // Between which values the end lies, for each channel.
  const std::vector<float>& least() const { return least_; }
  const std::vector<float>& greatest() const { return greatest_; }
  bool needs_limits() const { return needs_limits_; }

 private:
  bool SameAxis(const Tape& tape) {
    if (!tape.axis().has_value()) return true;
    if (axis_.has_value() && (*axis_ != *tape.axis() || channels_ != tape.channels())) return false;
    axis_ = tape.axis();
    channels_ = tape.channels();
    return true;
  }

  bool FitChannel(int64_t channel) {
    Codes<float> want = AllOf(code()), got = want;
    for (float& value : got) value -= static_cast<float>(code().shift);
    exact_.fill(true);
    for (size_t i = 0; i < tapes_.size(); ++i) {
      const bool last = i + 1 == tapes_.size();
      const double zero = last ? goal_.zero : 0;
      const double least = last ? goal_.least : tapes_[i + 1].code().least;
      const double greatest = last ? goal_.greatest : tapes_[i + 1].code().greatest;
      Codes<float> next = tapes_[i].Run(want, channel);
      for (float& value : next) {
        if (!(std::abs(value) < 1e30f)) return false;
        value = std::clamp(std::nearbyint(value) + static_cast<float>(zero),
                           static_cast<float>(least), static_cast<float>(greatest));
      }
      if (!FitStep(i, channel, next, least, greatest, zero, got)) return false;
      want = next;
    }
    return CheckEnd(want, got);
  }

  // A factor and an offset by which `got` becomes `next` where that is not clamped. Near a tie a
  // unit in the last place decides: the neighbours of the first choice are tried too.
  bool FitStep(size_t i, int64_t channel, const Codes<float>& next, double least, double greatest,
               double zero, Codes<float>& got) {
    const std::array<double, 2> line = tapes_[i].Run(std::array<double, 2>{0, 1}, channel);
    const double factor = line[1] - line[0];
    const double offset = line[0] + zero + (i == 0 ? factor * code().shift : 0);
    if (!(std::abs(factor) < 1e6) || !(std::abs(offset) < 1e6)) return false;
    for (int n = 0; n < kTries * kTries; ++n) {
      const float a = Neighbour(factor, n / kTries), b = Moved(offset, n % kTries);
      const Codes<float> y = Apply(got, a, b);
      bool agrees = true;
      for (size_t c = 0; c < kCodes; ++c) {
        const bool free = exact_[c] && next[c] > least && next[c] < greatest;
        agrees &= !free || y[c] == next[c];
      }
      if (!agrees) continue;
      steps_[i].factor.push_back(a);
      steps_[i].offset.push_back(b);
      for (size_t c = 0; c < kCodes; ++c) exact_[c] &= y[c] == next[c];
      got = y;
      return true;
    }
    return false;
  }

  // Whatever was clamped on the way is clamped at the end: all steps are monotonic, so the values
  // of the codes at both ends are the least and the greatest.
  bool CheckEnd(const Codes<float>& want, const Codes<float>& got) {
    const auto [low, high] = std::minmax(want.front(), want.back());
    least_.push_back(low);
    greatest_.push_back(high);
    for (size_t n = 0; n < kCodes; ++n) {
      if (std::clamp(got[n], low, high) != want[n]) return false;
      needs_limits_ |= std::clamp(got[n], static_cast<float>(goal_.least),
                                  static_cast<float>(goal_.greatest)) != want[n];
    }
    return true;
  }

  const StageGraph& stages_;
  const Stage& stage_;
  Goal goal_;
  std::deque<Tape> tapes_;
  std::optional<int32_t> axis_;
  int64_t channels_ = 1;
  std::vector<Step> steps_;
  Codes<bool> exact_;  // of the current channel: codes that no clamp was left out for
  std::vector<float> least_, greatest_;
  bool needs_limits_ = false;
};

class CodeFolder {
 public:
  CodeFolder(StageGraph& stages, Stage& stage)
      : stages_(stages), stage_(stage), ranges_(stages, stage) {}

  Expr Fold(const Expr& e) {
    if (const auto found = done_.find(e.id()); found != done_.end()) return found->second.second;
    Expr result = FoldNew(e);
    done_.emplace(e.id(), std::make_pair(e, result));
    return result;
  }

 private:
  Expr FoldNew(const Expr& e) {
    if (const std::optional<Goal> goal = AsGoal(e)) {
      Chain chain(stages_, stage_, *goal);
      if (chain.Find() && HasRoom() && chain.Fit()) return Shortened(chain, *goal);
      if (const std::optional<Sum> sum = FitSum(stages_, stage_, *goal)) return Summed(*sum, *goal);
    }
    if (e.operands().empty() || IsLoad(e)) return e;
    std::vector<Expr> operands;
    bool same = true;
    for (const Expr& operand : e.operands()) {
      operands.push_back(Fold(operand));
      same &= operands.back().id() == operand.id();
    }
    return same ? e : e.WithOperands(std::move(operands));
  }

  Expr Summed(const Sum& sum, const Goal& goal) {
    const Expr x = Fold(sum.x.value), y = Fold(sum.y.value);
    const auto scaled = [](const Expr& e, float factor) {
      return e * Real(static_cast<double>(factor));
    };
    Expr all = scaled(y, sum.y_factor) + Real(static_cast<double>(sum.offset));
    all = scaled(x, sum.x_factor) + all;
    return Ended(Expr::Unary(ExprOp::kRound, all), goal);
  }

  static Expr Ended(const Expr& rounded, const Goal& goal) {
    const Expr clamped = Clamped(rounded, Real(goal.least), Real(goal.greatest));
    return goal.byte == DType::kInvalid ? clamped : Expr::Cast(goal.byte, clamped);
  }

  // Each step may bring two operands, the end two more.
  bool HasRoom() const { return stage_.operands.size() + 4 < kOperandsMax; }

  Expr Shortened(const Chain& chain, const Goal& goal) {
    const Code& code = chain.code();
    Expr x = Fold(code.value);
    // A value that is an ordinary number need not be clamped before the end.
    const bool unclamped = code.before.valid() && StaysOrdinary(chain, ranges_.Of(code.before));
    if (unclamped) x = Expr::Unary(ExprOp::kRound, Fold(code.before));
    for (const Step& step : chain.steps()) x = Applied(step, x, chain.axis());
    const bool limits = chain.needs_limits() || (unclamped && !SpansAll(chain, goal));
    if (goal.byte == DType::kInvalid) {
      if (!limits) return Ended(x, goal);
      return Clamped(x, PerChannel(chain.least(), DType::kF32, chain.axis()),
                     PerChannel(chain.greatest(), DType::kF32, chain.axis()));
    }
    Expr byte = Ended(x, goal);
    if (!limits) return byte;
    byte = Expr::Binary(ExprOp::kMax, byte, PerChannel(chain.least(), goal.byte, chain.axis()));
    return Expr::Binary(ExprOp::kMin, byte, PerChannel(chain.greatest(), goal.byte, chain.axis()));
  }

  // Every number of `range` leads through all steps to an ordinary number.
  static bool StaysOrdinary(const Chain& chain, const Range& range) {
    double most = std::max(std::abs(range.least), std::abs(range.greatest));
    for (const Step& step : chain.steps()) {
      double factor = 0, offset = 0;
      for (float f : step.factor) factor = std::max(factor, static_cast<double>(std::abs(f)));
      for (float f : step.offset) offset = std::max(offset, static_cast<double>(std::abs(f)));
      if (!(most < 1e30)) return false;
      most = most * factor + offset;
    }
    return most < 1e30;
  }

  // Both ends of every channel are those of the type.
  static bool SpansAll(const Chain& chain, const Goal& goal) {
    const auto is = [](const std::vector<float>& values, double value) {
      return std::all_of(values.begin(), values.end(), [&](float v) { return v == value; });
    };
    return is(chain.least(), goal.least) && is(chain.greatest(), goal.greatest);
  }

  Expr Applied(const Step& step, const Expr& x, const std::optional<int32_t>& axis) {
    const auto is = [](const std::vector<float>& values, float value) {
      return std::all_of(values.begin(), values.end(), [&](float v) { return v == value; });
    };
    const bool scales = !is(step.factor, 1), moves = !is(step.offset, 0);
    if (!scales && !moves) return x;
    const bool whole = std::all_of(step.offset.begin(), step.offset.end(),
                                   [](float v) { return v == std::nearbyint(v); });
    if (!scales && whole) return x + PerChannel(step.offset, DType::kF32, axis);
    Expr y = x;
    if (scales) y = y * PerChannel(step.factor, DType::kF32, axis);
    if (moves) y = y + PerChannel(step.offset, DType::kF32, axis);
    return Expr::Unary(ExprOp::kRound, y);
  }

  // A constant where all channels have the same, else a load.
  Expr PerChannel(const std::vector<float>& values, DType dtype,
                  const std::optional<int32_t>& axis) {
    const bool same =
        std::all_of(values.begin(), values.end(), [&](float v) { return v == values[0]; });
    if (same) return Expr::Constant(dtype, static_cast<double>(values[0]));
    const auto channels = static_cast<int64_t>(values.size());
    absl::StatusOr<Tensor> tensor = Tensor::Allocate(dtype, {channels});
    CHECK(tensor.ok()) << tensor.status().ToString();
    for (int64_t i = 0; i < channels; ++i) {
      tensor->SetFromDouble(i, static_cast<double>(values[static_cast<size_t>(i)]));
    }
    const Operand operand = {.dtype = dtype, .shape = {channels}};
    stages_.values.push_back(
        {.name = "codes", .dtype = dtype, .shape = operand.shape, .constant = *std::move(tensor)});
    const int32_t index =
        AddOperand(stage_, operand, static_cast<ValueId>(stages_.values.size()) - 1);
    return Expr::Load(dtype, index, {Expr::Coord(*axis)});
  }

  StageGraph& stages_;
  Stage& stage_;
  Ranges ranges_;
  // The expressions are kept: an id is one only as long as its node lives.
  absl::flat_hash_map<const void*, std::pair<Expr, Expr>> done_;
};

}  // namespace

void FoldCodes(StageGraph& stages) {
  for (size_t s = 0; s < stages.stages.size(); ++s) {
    Stage& stage = stages.stages[s];
    if (stage.removed || std::holds_alternative<Library>(stage.body)) continue;
    if (auto* nest = std::get_if<Nest>(&stage.body)) {
      nest->result = CodeFolder(stages, stage).Fold(nest->result);
    } else {
      auto& contraction = std::get<Contraction>(stage.body);
      contraction.result = CodeFolder(stages, stage).Fold(contraction.result);
    }
    CompactOperands(stage);
  }
}

}  // namespace stampmill
