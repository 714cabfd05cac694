// RNN, GRU and LSTM over sequences, in one or both directions.
//
// The input's part of all gates is one contraction over all steps; then comes a repeat of the
// steps, each a contraction of the state with the recurrent weights and maps that make the new
// state. A state lies in two places that take turns: step t reads place t mod 2 and writes the
// other. A single step, which streams have, is no repeat.
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/contraction.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

// Inputs, the same places in all three operators; the last two are LSTM's.
enum : size_t { kX, kW, kR, kB, kLengths, kInitialH, kInitialC, kPeephole };

enum class Cell { kRnn, kGru, kLstm };

// An activation: one formula over doubles for the reference, one over Exprs.
struct Activation {
  std::string name;  // lower case
  float alpha = 0, beta = 0;
};

struct Recurrence {
  Cell cell = Cell::kRnn;
  int64_t gates = 1;
  int64_t hidden = 0;
  int64_t directions = 1;
  bool reverse = false;  // of the only direction
  bool batch_first = false;
  bool input_forget = false;
  bool linear_before_reset = false;
  float clip = 0;                       // 0: none
  std::vector<Activation> activations;  // for each direction, in the operator's order

  size_t activation_count() const { return cell == Cell::kLstm ? 3 : cell == Cell::kGru ? 2 : 1; }
  bool IsReverse(int64_t direction) const { return directions == 2 ? direction == 1 : reverse; }
  const Activation& activation(int64_t direction, size_t i) const {
    return activations[static_cast<size_t>(direction) * activation_count() + i];
  }
};

absl::StatusOr<Activation> DefaultActivation(const Node& node, const std::string& given) {
  const std::string name = absl::AsciiStrToLower(given);
  for (const auto& [known, alpha, beta] :
       std::initializer_list<std::tuple<const char*, float, float>>{{"relu", 0, 0},
                                                                    {"tanh", 0, 0},
                                                                    {"sigmoid", 0, 0},
                                                                    {"affine", 1, 0},
                                                                    {"leakyrelu", 0.01f, 0},
                                                                    {"thresholdedrelu", 1, 0},
                                                                    {"scaledtanh", 1, 1},
                                                                    {"hardsigmoid", 0.2f, 0.5f},
                                                                    {"elu", 1, 0},
                                                                    {"softsign", 0, 0},
                                                                    {"softplus", 0, 0}}) {
    if (name == known) return Activation{name, alpha, beta};
  }
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": activations: got '", given, "'"));
}

absl::StatusOr<std::vector<Activation>> ReadActivations(const Node& node, const Recurrence& r) {
  std::vector<std::string> names;
  if (const auto found = node.attributes.find("activations"); found != node.attributes.end()) {
    const auto* given = std::get_if<std::vector<std::string>>(&found->second);
    if (given == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(node.Describe(), ": activations: not a list of names"));
    }
    names = *given;
  }
  const size_t count = r.activation_count();
  if (names.empty()) {
    for (int64_t d = 0; d < r.directions; ++d) {
      if (r.cell != Cell::kRnn) names.push_back("Sigmoid");
      for (size_t i = r.cell == Cell::kRnn ? 0 : 1; i < count; ++i) names.push_back("Tanh");
    }
  }
  if (names.size() != count * static_cast<size_t>(r.directions)) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": activations: got ",
                                                   names.size(), ", want ",
                                                   count * static_cast<size_t>(r.directions)));
  }
  ASSIGN_OR_RETURN(const std::vector<float> alphas, node.Floats("activation_alpha"));
  ASSIGN_OR_RETURN(const std::vector<float> betas, node.Floats("activation_beta"));
  std::vector<Activation> activations;
  for (size_t i = 0; i < names.size(); ++i) {
    ASSIGN_OR_RETURN(Activation activation, DefaultActivation(node, names[i]));
    if (i < alphas.size()) activation.alpha = alphas[i];
    if (i < betas.size()) activation.beta = betas[i];
    activations.push_back(std::move(activation));
  }
  return activations;
}

absl::StatusOr<Recurrence> ReadRecurrence(const Node& node, const Shape& r_shape) {
  Recurrence r;
  r.cell = node.op_type == "LSTM" ? Cell::kLstm : node.op_type == "GRU" ? Cell::kGru : Cell::kRnn;
  r.gates = r.cell == Cell::kLstm ? 4 : r.cell == Cell::kGru ? 3 : 1;
  ASSIGN_OR_RETURN(const std::string direction, node.String("direction", "forward"));
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": direction: got '", direction, "'"));
  }
  r.directions = direction == "bidirectional" ? 2 : 1;
  r.reverse = direction == "reverse";
  if (r_shape.size() != 3 || !r_shape[2].is_constant()) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": R: got shape ", ToString(r_shape)));
  }
  ASSIGN_OR_RETURN(r.hidden, node.Int("hidden_size", *r_shape[2].constant()));
  ASSIGN_OR_RETURN(r.clip, node.Float("clip", 0));
  ASSIGN_OR_RETURN(const int64_t layout, node.Int("layout", 0));
  ASSIGN_OR_RETURN(const int64_t input_forget, node.Int("input_forget", 0));
  ASSIGN_OR_RETURN(const int64_t linear, node.Int("linear_before_reset", 0));
  r.batch_first = layout != 0;
  r.input_forget = input_forget != 0;
  r.linear_before_reset = linear != 0;
  ASSIGN_OR_RETURN(r.activations, ReadActivations(node, r));
  return r;
}

absl::Status RequireShape(InferContext& context, size_t input, const Shape& want) {
  if (!context.HasInput(input)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(input));
  if (shape.size() != want.size()) {
    return context.Error(
        absl::StrCat("input ", input, ": got shape ", ToString(shape), ", want ", ToString(want)));
  }
  for (size_t i = 0; i < want.size(); ++i) {
    RETURN_IF_ERROR(RequireEqual(context, shape[i], want[i],
                                 absl::StrCat("dims of input ", input, " as X and R have them")));
  }
  return absl::OkStatus();
}

absl::Status InferRecurrent(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(kX));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(kX));
  ASSIGN_OR_RETURN(const Shape weights, context.InputShape(kR));
  if (!IsFloat(dtype)) return context.Error("X: recurrent operators take floating-point tensors");
  for (const size_t i : {kW, kR, kB, kInitialH, kInitialC, kPeephole}) {
    if (!context.HasInput(i)) continue;
    ASSIGN_OR_RETURN(const DType own, context.InputDType(i));
    if (own != dtype) return context.Error(absl::StrCat("input ", i, ": got type ", Name(own)));
  }
  if (x.size() != 3) return context.Error(absl::StrCat("X: got shape ", ToString(x)));
  ASSIGN_OR_RETURN(const Recurrence r, ReadRecurrence(context.node(), weights));
  const DimExpr steps = x[r.batch_first ? 1 : 0], batch = x[r.batch_first ? 0 : 1];
  const DimExpr d = r.directions, h = r.hidden;
  const Shape state = r.batch_first ? Shape{batch, d, h} : Shape{d, batch, h};
  RETURN_IF_ERROR(RequireShape(context, kW, {d, h * r.gates, x[2]}));
  RETURN_IF_ERROR(RequireShape(context, kR, {d, h * r.gates, h}));
  RETURN_IF_ERROR(RequireShape(context, kB, {d, h * r.gates * 2}));
  RETURN_IF_ERROR(RequireShape(context, kLengths, {batch}));
  RETURN_IF_ERROR(RequireShape(context, kInitialH, state));
  RETURN_IF_ERROR(RequireShape(context, kInitialC, state));
  RETURN_IF_ERROR(RequireShape(context, kPeephole, {d, h * 3}));
  RETURN_IF_ERROR(context.SetOutput(
      0, dtype, r.batch_first ? Shape{batch, steps, d, h} : Shape{steps, d, batch, h}));
  for (size_t i = 1; i < context.output_count(); ++i) {
    RETURN_IF_ERROR(context.SetOutput(i, dtype, state));
  }
  return absl::OkStatus();
}

// Reference.

double Apply(const Activation& f, double x) {
  if (f.name == "relu") return std::max(0.0, x);
  if (f.name == "tanh") return std::tanh(x);
  if (f.name == "sigmoid") return 1 / (1 + std::exp(-x));
  if (f.name == "affine") return f.alpha * x + f.beta;
  if (f.name == "leakyrelu") return x < 0 ? f.alpha * x : x;
  if (f.name == "thresholdedrelu") return x > f.alpha ? x : 0;
  if (f.name == "scaledtanh") return f.alpha * std::tanh(f.beta * x);
  if (f.name == "hardsigmoid") return std::clamp(f.alpha * x + f.beta, 0.0, 1.0);
  if (f.name == "elu") return x < 0 ? f.alpha * (std::exp(x) - 1) : x;
  if (f.name == "softsign") return x / (1 + std::abs(x));
  return std::log(1 + std::exp(x));
}

// The operator's tensors as plain numbers; missing ones are zero.
class PlainRecurrence {
 public:
  PlainRecurrence(const ReferenceArguments& arguments, const Recurrence& r) : r_(r) {
    const Dims& x = arguments.inputs[kX].shape();
    steps_ = x[r.batch_first ? 1 : 0];
    batch_ = x[r.batch_first ? 0 : 1];
    inputs_ = x[2];
    const auto read = [&](size_t i, int64_t count) {
      const bool has = i < arguments.inputs.size() && arguments.inputs[i].valid();
      return has ? ReadValues<double>(arguments.inputs[i])
                 : std::vector<double>(static_cast<size_t>(count), 0);
    };
    const int64_t state = r.directions * batch_ * r.hidden;
    x_ = read(kX, 0);
    w_ = read(kW, 0);
    recurrent_ = read(kR, 0);
    bias_ = read(kB, r.directions * 2 * r.gates * r.hidden);
    h_ = read(kInitialH, state);
    c_ = read(kInitialC, state);
    peephole_ = read(kPeephole, r.directions * 3 * r.hidden);
    lengths_ = read(kLengths, 0);
    if (lengths_.empty()) lengths_.assign(static_cast<size_t>(batch_), static_cast<double>(steps_));
    y_.assign(static_cast<size_t>(steps_ * state), 0);
  }

  void Run() {
    for (int64_t d = 0; d < r_.directions; ++d) {
      for (int64_t n = 0; n < batch_; ++n) {
        const int64_t length =
            std::clamp<int64_t>(static_cast<int64_t>(lengths_[static_cast<size_t>(n)]), 0, steps_);
        for (int64_t s = 0; s < length; ++s) Step(d, n, r_.IsReverse(d) ? length - 1 - s : s);
      }
    }
  }

  const std::vector<double>& y() const { return y_; }
  const std::vector<double>& h() const { return h_; }
  const std::vector<double>& c() const { return c_; }

 private:
  size_t StateAt(int64_t d, int64_t n) const {
    return static_cast<size_t>((r_.batch_first ? n * r_.directions + d : d * batch_ + n) *
                               r_.hidden);
  }

  double Clipped(double x) const {
    return r_.clip > 0 ? std::clamp<double>(x, -r_.clip, r_.clip) : x;
  }

  // weights[d, row, :] times a vector.
  double Row(const std::vector<double>& weights, int64_t d, int64_t row, const double* vector,
             int64_t length) const {
    const double* line = weights.data() + (d * r_.gates * r_.hidden + row) * length;
    double sum = 0;
    for (int64_t i = 0; i < length; ++i) sum += line[i] * vector[i];
    return sum;
  }
  double Bias(int64_t d, int64_t row, bool recurrent) const {
    const int64_t rows = r_.gates * r_.hidden;
    return bias_[static_cast<size_t>(d * 2 * rows + (recurrent ? rows : 0) + row)];
  }

  void Step(int64_t d, int64_t n, int64_t t) {
    const int64_t hidden = r_.hidden;
    const double* x = x_.data() + (r_.batch_first ? n * steps_ + t : t * batch_ + n) * inputs_;
    double* h = h_.data() + StateAt(d, n);
    const auto from_x = [&](int64_t gate, int64_t j) {
      return Row(w_, d, gate * hidden + j, x, inputs_) + Bias(d, gate * hidden + j, false);
    };
    const auto from_h = [&](int64_t gate, int64_t j, const double* state) {
      return Row(recurrent_, d, gate * hidden + j, state, hidden) +
             Bias(d, gate * hidden + j, true);
    };
    const auto activate = [&](size_t i, double value) {
      return Apply(r_.activation(d, i), Clipped(value));
    };
    std::vector<double> next(static_cast<size_t>(hidden));
    if (r_.cell == Cell::kRnn) {
      for (int64_t j = 0; j < hidden; ++j) {
        next[static_cast<size_t>(j)] = activate(0, from_x(0, j) + from_h(0, j, h));
      }
    } else if (r_.cell == Cell::kGru) {
      std::vector<double> reset(next.size()), gated(next.size());
      for (int64_t j = 0; j < hidden; ++j) {
        reset[static_cast<size_t>(j)] = activate(0, from_x(1, j) + from_h(1, j, h));
        gated[static_cast<size_t>(j)] = reset[static_cast<size_t>(j)] * h[j];
      }
      for (int64_t j = 0; j < hidden; ++j) {
        const double update = activate(0, from_x(0, j) + from_h(0, j, h));
        const double recurrent = r_.linear_before_reset
                                     ? reset[static_cast<size_t>(j)] * from_h(2, j, h)
                                     : from_h(2, j, gated.data());
        const double candidate = activate(1, from_x(2, j) + recurrent);
        next[static_cast<size_t>(j)] = (1 - update) * candidate + update * h[j];
      }
    } else {
      double* c = c_.data() + StateAt(d, n);
      const double* p = peephole_.data() + d * 3 * hidden;
      for (int64_t j = 0; j < hidden; ++j) {
        const double input = activate(0, from_x(0, j) + from_h(0, j, h) + p[j] * c[j]);
        const double forget =
            r_.input_forget
                ? 1 - input
                : activate(0, from_x(2, j) + from_h(2, j, h) + p[2 * hidden + j] * c[j]);
        const double value = activate(1, from_x(3, j) + from_h(3, j, h));
        c[j] = forget * c[j] + input * value;
        const double output = activate(0, from_x(1, j) + from_h(1, j, h) + p[hidden + j] * c[j]);
        next[static_cast<size_t>(j)] = output * Apply(r_.activation(d, 2), c[j]);
      }
    }
    const int64_t line = r_.batch_first ? (n * steps_ + t) * r_.directions + d
                                        : (t * r_.directions + d) * batch_ + n;
    for (int64_t j = 0; j < hidden; ++j) {
      h[j] = next[static_cast<size_t>(j)];
      y_[static_cast<size_t>(line * hidden + j)] = h[j];
    }
  }

  const Recurrence& r_;
  int64_t steps_ = 0, batch_ = 0, inputs_ = 0;
  std::vector<double> x_, w_, recurrent_, bias_, h_, c_, peephole_, lengths_, y_;
};

absl::StatusOr<std::vector<Tensor>> RecurrentReference(const ReferenceArguments& arguments) {
  const Tensor& x = arguments.inputs[kX];
  const Dims& weights = arguments.inputs[kR].shape();
  ASSIGN_OR_RETURN(const Recurrence r,
                   ReadRecurrence(arguments.node, Shape(weights.begin(), weights.end())));
  PlainRecurrence plain(arguments, r);
  plain.Run();
  const int64_t steps = x.shape()[r.batch_first ? 1 : 0], batch = x.shape()[r.batch_first ? 0 : 1];
  const Dims all = r.batch_first ? Dims{batch, steps, r.directions, r.hidden}
                                 : Dims{steps, r.directions, batch, r.hidden};
  const Dims state =
      r.batch_first ? Dims{batch, r.directions, r.hidden} : Dims{r.directions, batch, r.hidden};
  std::vector<Tensor> outputs(arguments.node.outputs.size());
  if (!outputs.empty()) {
    ASSIGN_OR_RETURN(outputs[0], MakeTensor(x.dtype(), all, plain.y()));
  }
  if (outputs.size() > 1) {
    ASSIGN_OR_RETURN(outputs[1], MakeTensor(x.dtype(), state, plain.h()));
  }
  if (outputs.size() > 2) {
    ASSIGN_OR_RETURN(outputs[2], MakeTensor(x.dtype(), state, plain.c()));
  }
  return outputs;
}

// Lowering. All states are [direction, batch, hidden] in the compute type.

Expr ApplyExpr(const Activation& f, const Expr& x) {
  const DType dtype = x.dtype();
  const auto c = [&](double value) { return Expr::Constant(dtype, value); };
  const auto call = [](ExprOp op, const Expr& v) { return Expr::Unary(op, v); };
  if (f.name == "relu") return Maximum(c(0), x);
  if (f.name == "tanh") return call(ExprOp::kTanh, x);
  if (f.name == "sigmoid") return c(1) / (c(1) + call(ExprOp::kExp, -x));
  if (f.name == "affine") return c(f.alpha) * x + c(f.beta);
  if (f.name == "leakyrelu") return Expr::Select(Less(x, c(0)), c(f.alpha) * x, x);
  if (f.name == "thresholdedrelu") return Expr::Select(Less(c(f.alpha), x), x, c(0));
  if (f.name == "scaledtanh") return c(f.alpha) * call(ExprOp::kTanh, c(f.beta) * x);
  if (f.name == "hardsigmoid") return Maximum(c(0), Minimum(c(1), c(f.alpha) * x + c(f.beta)));
  if (f.name == "elu") {
    return Expr::Select(Less(x, c(0)), c(f.alpha) * (call(ExprOp::kExp, x) - c(1)), x);
  }
  if (f.name == "softsign") return x / (c(1) + call(ExprOp::kAbs, x));
  return call(ExprOp::kLog, c(1) + call(ExprOp::kExp, x));
}

class RecurrentLowering {
 public:
  RecurrentLowering(LowerContext& context, Recurrence r) : context_(context), r_(std::move(r)) {
    const Shape x = context.InputShape(kX);
    steps_ = x[r_.batch_first ? 1 : 0];
    batch_ = x[r_.batch_first ? 0 : 1];
    dtype_ = context.input(kX).dtype;
    real_ = ComputeType(dtype_);
    state_ = {r_.directions, batch_, r_.hidden};
  }

  absl::Status Emit() {
    RETURN_IF_ERROR(EmitInputGates());
    // Packed once for all steps.
    ASSIGN_OR_RETURN(packed_, PackRight(context_, StartProduct(kR, {batch_}, r_.hidden)));
    State h = NewState(), c = r_.cell == Cell::kLstm ? NewState() : State();
    EmitInitial(kInitialH, h.first);
    if (r_.cell == Cell::kLstm) EmitInitial(kInitialC, c.first);
    const bool repeats = !steps_.IsConstant(1);
    const DimExpr step = repeats ? context_.BeginRepeat(steps_) : DimExpr(0);
    MoveTo(step, h);
    MoveTo(step, c);
    RETURN_IF_ERROR(EmitStep(step, h, c));
    if (context_.HasOutput(0)) EmitY(step, h.after);
    if (repeats) context_.EndRepeat();
    if (context_.HasOutput(1)) EmitFinal(Last(h), 1);
    if (context_.HasOutput(2)) EmitFinal(Last(c), 2);
    return absl::OkStatus();
  }

 private:
  // What a step reads and what it writes.
  struct State {
    ValueId places = kNoValue;  // both, when steps repeat
    ValueId first = kNoValue;   // where it begins
    ValueId before = kNoValue, after = kNoValue;
  };

  State NewState() {
    State state;
    if (steps_.IsConstant(1)) {
      state.first = state.before = context_.NewValue(real_, state_, "state");
      state.after = context_.NewValue(real_, state_, "state");
      return state;
    }
    Shape both = state_;
    both.insert(both.begin(), 2);
    state.places = context_.NewValue(real_, std::move(both), "states");
    state.first = Place(state, 0);
    return state;
  }
  ValueId Place(const State& state, const DimExpr& step) {
    return context_.NewSlice(state.places, state_, Mod(step, 2) * ElementCount(state_), "state");
  }
  void MoveTo(const DimExpr& step, State& state) {
    if (state.places == kNoValue) return;
    state.before = Place(state, step);
    state.after = Place(state, step + 1);
  }
  ValueId Last(const State& state) {
    return state.places == kNoValue ? state.after : Place(state, steps_);
  }

  // Coordinates of a nest over states.
  Expr D() const { return Expr::Coord(0); }
  Expr N() const { return Expr::Coord(1); }
  Expr J() const { return Expr::Coord(2); }

  Expr Real(double value) const { return Expr::Constant(real_, value); }

  Expr Clipped(const Expr& x) const {
    return r_.clip > 0 ? Maximum(Real(-r_.clip), Minimum(x, Real(r_.clip))) : x;
  }
  // Activation `i` of the direction that `d` says.
  Expr Activate(size_t i, const Expr& x, const Expr& d) const {
    const Expr first = ApplyExpr(r_.activation(0, i), x);
    if (r_.directions == 1) return first;
    const Activation &a = r_.activation(0, i), &b = r_.activation(1, i);
    if (a.name == b.name && a.alpha == b.alpha && a.beta == b.beta) return first;
    return Expr::Select(Equal(d, Int(0)), first, ApplyExpr(b, x));
  }

  // Number of steps of sequence `n`.
  Expr Length(StageOperands& operands, const Expr& n) const {
    if (!context_.HasInput(kLengths)) return Extent(steps_);
    const int32_t lengths = operands.AddInput(context_, kLengths);
    return Expr::Cast(DType::kI64, operands.Load(lengths, {n}));
  }
  // Whether sequence `n` has a step `step`; invalid: always.
  Expr Active(StageOperands& operands, const DimExpr& step, const Expr& n) const {
    if (!context_.HasInput(kLengths)) return Expr();
    return Less(Extent(step), Length(operands, n));
  }
  // Which time step `step` of direction `d` is.
  Expr Time(StageOperands& operands, const DimExpr& step, const Expr& d, const Expr& n) const {
    if (r_.directions == 1 && !r_.reverse) return Extent(step);
    const Expr backward = Maximum(Int(0), Length(operands, n) - Extent(step + 1));
    if (r_.directions == 1) return backward;
    return Expr::Select(Equal(d, Int(0)), Extent(step), backward);
  }

  Expr LoadState(StageOperands& operands, ValueId value, const Expr& j) const {
    return operands.Load(operands.Add(value, real_, state_), {D(), N(), j});
  }

  void EmitMap(StageOperands operands, const Expr& value, ValueId output) {
    Nest nest{.kept = state_};
    nest.result = value;
    nest.output = {.dtype = real_, .shape = state_};
    EmitNest(context_, std::move(operands), std::move(nest), output);
  }

  void EmitInitial(size_t input, ValueId value) {
    StageOperands operands;
    Expr start = Real(0);
    if (context_.HasInput(input)) {
      const int32_t given = operands.AddInput(context_, input);
      start = Expr::Cast(real_,
                         operands.Load(given, r_.batch_first ? std::vector<Expr>{N(), D(), J()}
                                                             : std::vector<Expr>{D(), N(), J()}));
    }
    EmitMap(std::move(operands), start, value);
  }

  // Bias of gate row `row`; of the input's half, the recurrent half, or both.
  Expr Bias(StageOperands& operands, const Expr& d, const Expr& row, bool input, bool recurrent) {
    if (!context_.HasInput(kB)) return Real(0);
    const int32_t bias = operands.AddInput(context_, kB);
    Expr sum = Real(0);
    if (input) sum = sum + Expr::Cast(real_, operands.Load(bias, {d, row}));
    if (recurrent) {
      const Expr place = row + Int(r_.gates * r_.hidden);
      sum = sum + Expr::Cast(real_, operands.Load(bias, {d, place}));
    }
    return sum;
  }

  Product StartProduct(size_t weights, Shape rows, const DimExpr& depth) const {
    Product product;
    product.batch = {r_.directions};
    product.m = std::move(rows);
    product.n = r_.gates * r_.hidden;
    product.k = {depth};
    product.accumulator = real_;
    product.a = Real(0);  // until it is known
    product.b = context_.node().inputs[weights];
    product.b_operand = {.dtype = dtype_, .shape = context_.InputShape(weights)};
    product.b_axes = {
        {ProductAxis::Role::kBatch, 0}, {ProductAxis::Role::kN, 0}, {ProductAxis::Role::kK, 0}};
    product.b_constant = context_.input(weights).constant;
    return product;
  }

  // W x + bias for all steps: [direction, step, batch, gates * hidden].
  absl::Status EmitInputGates() {
    const Shape x = context_.InputShape(kX);
    Product product = StartProduct(kW, {steps_, batch_}, x[2]);
    const int32_t input = product.operands.AddInput(context_, kX);
    const Expr t = Expr::Coord(1), n = Expr::Coord(2), last = Expr::Coord(3);
    product.a = Expr::Cast(
        real_, product.operands.Load(input, r_.batch_first ? std::vector<Expr>{n, t, last}
                                                           : std::vector<Expr>{t, n, last}));
    // GRU's candidate takes its recurrent bias where it takes the state.
    Expr bias = Bias(product.operands, D(), last, true, true);
    if (r_.cell == Cell::kGru) {
      const Expr candidate = LessEqual(Int(2 * r_.hidden), last);
      bias = Expr::Select(candidate, Bias(product.operands, D(), last, true, false), bias);
    }
    product.result = Expr::Accumulator(real_, 0) + bias;
    input_shape_ = {r_.directions, steps_, batch_, r_.gates * r_.hidden};
    product.output = {.dtype = real_, .shape = input_shape_};
    input_gates_ = context_.NewValue(real_, input_shape_, "input gates");
    return EmitProduct(context_, std::move(product), input_gates_);
  }

  // R times `state`, whose element the caller gives; plus the input's part where `with_input`.
  ValueId EmitStateGates(const DimExpr& step, StageOperands operands, const Expr& state,
                         bool with_input) {
    Product product = StartProduct(kR, {batch_}, r_.hidden);
    product.operands = std::move(operands);
    product.a = state;
    product.result = Expr::Accumulator(real_, 0);
    if (with_input) {
      product.result = product.result + LoadInputGate(product.operands, step, J());
    }
    const Shape shape = {r_.directions, batch_, r_.gates * r_.hidden};
    product.output = {.dtype = real_, .shape = shape};
    const ValueId gates = context_.NewValue(real_, shape, "gates");
    EmitPackedProduct(context_, std::move(product), packed_, gates);
    return gates;
  }

  Expr LoadInputGate(StageOperands& operands, const DimExpr& step, const Expr& row) const {
    const int32_t gates = operands.Add(input_gates_, real_, input_shape_);
    return operands.Load(gates, {D(), Time(operands, step, D(), N()), N(), row});
  }

  Expr LoadGate(StageOperands& operands, ValueId gates, int64_t gate) const {
    const Shape shape = {r_.directions, batch_, r_.gates * r_.hidden};
    return operands.Load(operands.Add(gates, real_, shape),
                         {D(), N(), J() + Int(gate * r_.hidden)});
  }

  // A state becomes `next` where the sequence has this step.
  void EmitState(StageOperands operands, const DimExpr& step, const State& state, Expr next) {
    const Expr active = Active(operands, step, N());
    if (active.valid()) next = Expr::Select(active, next, LoadState(operands, state.before, J()));
    EmitMap(std::move(operands), next, state.after);
  }

  absl::Status EmitStep(const DimExpr& step, const State& h, const State& c) {
    StageOperands operands;
    // In a contraction over states the third coordinate is k.
    const Expr state = LoadState(operands, h.before, J());
    const bool with_input = r_.cell != Cell::kGru;
    const ValueId gates = EmitStateGates(step, std::move(operands), state, with_input);
    if (r_.cell == Cell::kRnn) {
      StageOperands own;
      const Expr next = Activate(0, Clipped(LoadGate(own, gates, 0)), D());
      EmitState(std::move(own), step, h, next);
      return absl::OkStatus();
    }
    if (r_.cell == Cell::kGru) return EmitGruStep(step, gates, h);
    EmitLstmStep(step, gates, h, c);
    return absl::OkStatus();
  }

  Expr Peephole(StageOperands& operands, int64_t gate, const Expr& c) {
    if (!context_.HasInput(kPeephole)) return Real(0);
    const int32_t p = operands.AddInput(context_, kPeephole);
    return Expr::Cast(real_, operands.Load(p, {D(), J() + Int(gate * r_.hidden)})) * c;
  }

  void EmitLstmStep(const DimExpr& step, ValueId gates, const State& h, const State& c) {
    {
      StageOperands operands;
      const Expr before = LoadState(operands, c.before, J());
      const auto gate = [&](int64_t number, int64_t peephole, size_t activation) {
        Expr sum = LoadGate(operands, gates, number);
        if (peephole >= 0) sum = sum + Peephole(operands, peephole, before);
        return Activate(activation, Clipped(sum), D());
      };
      const Expr input = gate(0, 0, 0);
      const Expr forget = r_.input_forget ? Real(1) - input : gate(2, 2, 0);
      const Expr next = forget * before + input * gate(3, -1, 1);
      EmitState(std::move(operands), step, c, next);
    }
    StageOperands operands;
    const Expr cell = LoadState(operands, c.after, J());
    const Expr sum = LoadGate(operands, gates, 1) + Peephole(operands, 1, cell);
    const Expr output = Activate(0, Clipped(sum), D());
    EmitState(std::move(operands), step, h, output * Activate(2, cell, D()));
  }

  // Gate `number` of GRU: the state's part and the input's.
  Expr GruGate(StageOperands& operands, const DimExpr& step, ValueId gates, int64_t number) {
    const Expr row = J() + Int(number * r_.hidden);
    return Activate(
        0, Clipped(LoadGate(operands, gates, number) + LoadInputGate(operands, step, row)), D());
  }

  absl::Status EmitGruStep(const DimExpr& step, ValueId gates, const State& h) {
    ValueId candidate_gates = gates;
    if (!r_.linear_before_reset) {
      // The candidate's weights meet the state after the reset.
      const ValueId gated = context_.NewValue(real_, state_, "reset state");
      StageOperands operands;
      const Expr reset = GruGate(operands, step, gates, 1) * LoadState(operands, h.before, J());
      EmitMap(std::move(operands), reset, gated);
      StageOperands own;
      const Expr state = LoadState(own, gated, J());
      candidate_gates = EmitStateGates(step, std::move(own), state, false);
    }
    StageOperands operands;
    const Expr row = J() + Int(2 * r_.hidden);
    Expr recurrent = LoadGate(operands, candidate_gates, 2) + Bias(operands, D(), row, false, true);
    if (r_.linear_before_reset) recurrent = recurrent * GruGate(operands, step, gates, 1);
    const Expr candidate =
        Activate(1, Clipped(LoadInputGate(operands, step, row) + recurrent), D());
    const Expr update = GruGate(operands, step, gates, 0);
    const Expr before = LoadState(operands, h.before, J());
    const Expr next = (Real(1) - update) * candidate + update * before;
    EmitState(std::move(operands), step, h, next);
    return absl::OkStatus();
  }

  // Y at the time of this step; steps that a sequence does not have are zero.
  void EmitY(const DimExpr& step, ValueId h) {
    StageOperands operands;
    Expr value = Expr::Cast(dtype_, LoadState(operands, h, J()));
    Expr time = Time(operands, step, D(), N());
    const Expr active = Active(operands, step, N());
    if (active.valid()) {
      value = Expr::Select(active, value, Expr::Constant(dtype_, 0));
      time = Expr::Select(active, time, Extent(step));
    }
    Nest nest{.kept = state_};
    nest.result = value;
    nest.output = {.dtype = dtype_, .shape = *context_.output(0).shape};
    nest.output_coordinates = r_.batch_first ? std::vector<Expr>{N(), time, D(), J()}
                                             : std::vector<Expr>{time, D(), N(), J()};
    EmitNest(context_, std::move(operands), std::move(nest), context_.node().outputs[0]);
  }

  void EmitFinal(ValueId state, size_t output) {
    StageOperands operands;
    Nest nest{.kept = state_};
    nest.result = Expr::Cast(dtype_, LoadState(operands, state, J()));
    nest.output = {.dtype = dtype_, .shape = *context_.output(output).shape};
    if (r_.batch_first) nest.output_coordinates = {N(), D(), J()};
    EmitNest(context_, std::move(operands), std::move(nest), context_.node().outputs[output]);
  }

  LowerContext& context_;
  Recurrence r_;
  DimExpr steps_, batch_;
  DType dtype_ = DType::kF32;  // of the operator's tensors
  DType real_ = DType::kF32;   // of the states
  Shape state_;
  Shape input_shape_;
  ValueId input_gates_ = kNoValue;
  ValueId packed_ = kNoValue;
};

absl::Status LowerRecurrent(LowerContext& context) {
  ASSIGN_OR_RETURN(Recurrence r, ReadRecurrence(context.node(), context.InputShape(kR)));
  return RecurrentLowering(context, std::move(r)).Emit();
}

constexpr Variant kRecurrentVariants[] = {{"steps", AlwaysApplies, LowerRecurrent}};

constexpr OpDefinition RecurrentOp(absl::string_view name, int max_inputs, int max_outputs) {
  return {.name = name,
          .domain = "",
          .min_inputs = 3,
          .max_inputs = max_inputs,
          .min_outputs = 0,
          .max_outputs = max_outputs,
          .infer = InferRecurrent,
          .reference = RecurrentReference,
          .variants = kRecurrentVariants};
}

}  // namespace

std::span<const OpDefinition> RecurrentOps() {
  static constexpr OpDefinition kOps[] = {RecurrentOp("GRU", 6, 2), RecurrentOp("LSTM", 8, 3),
                                          RecurrentOp("RNN", 6, 2)};
  return kOps;
}

}  // namespace stampmill
