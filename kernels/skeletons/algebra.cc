// Recurrences over matrices, and eliminations.
#include "kernels/skeletons/skeleton.h"

namespace stampmill {

// The state of a head, a matrix [keys, values] that every step decays, corrects and adds to, and
// what queries read from it. Configuration: heads of queries and of keys, 0 no decay, 1 one a head
// or 2 one a key, 1 for a delta rule, 1 when all heads share its rates. Dims: steps, keys, values
// of a head. Buffers, all f32: queries [batch, steps, q heads, keys], keys and values [batch,
// steps, heads, ...], factors of the decay, rates (each one place where there are none), state
// before; results [batch, steps, q heads, values], state after [batch, heads, keys, values]. A task
// is one head of keys. Scratch: 4 bytes a value.
STAMPMILL_SKELETON(linear_attention) {
  const int64_t q_heads = configuration[0], heads = configuration[1];
  const int64_t decay_kind = configuration[2];
  const bool has_delta = configuration[3] != 0, shared_rate = configuration[4] != 0;
  const int64_t steps = dims[0], keys = dims[1], values = dims[2];
  const int64_t batch = task / heads, head = task % heads, group = q_heads / heads;
  const float* q = static_cast<const float*>(buffers[0]);
  const float* k = static_cast<const float*>(buffers[1]);
  const float* v = static_cast<const float*>(buffers[2]);
  const float* decay = static_cast<const float*>(buffers[3]);
  const float* rate = static_cast<const float*>(buffers[4]);
  const float* before = static_cast<const float*>(buffers[5]) + task * keys * values;
  float* y = static_cast<float*>(buffers[6]);
  float* state = static_cast<float*>(buffers[7]) + task * keys * values;
  float* added = static_cast<float*>(scratch);
  for (int64_t i = 0; i < keys * values; ++i) state[i] = before[i];
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t place = (batch * steps + step) * heads + head;
    const float* key = k + place * keys;
    for (int64_t d = 0; d < keys && decay_kind != 0; ++d) {
      const float factor = decay[decay_kind == 1 ? place : place * keys + d];
      for (int64_t m = 0; m < values; ++m) state[d * values + m] *= factor;
    }
    for (int64_t m = 0; m < values; ++m) added[m] = 0;
    for (int64_t d = 0; d < keys && has_delta; ++d) {
      for (int64_t m = 0; m < values; ++m) added[m] += state[d * values + m] * key[d];
    }
    const float factor = has_delta ? rate[shared_rate ? batch * steps + step : place] : 1;
    for (int64_t m = 0; m < values; ++m) added[m] = factor * (v[place * values + m] - added[m]);
    for (int64_t d = 0; d < keys; ++d) {
      for (int64_t m = 0; m < values; ++m) state[d * values + m] += key[d] * added[m];
    }
    for (int64_t g = 0; g < group; ++g) {
      const int64_t row = (batch * steps + step) * q_heads + head * group + g;
      float* out = y + row * values;
      for (int64_t m = 0; m < values; ++m) out[m] = 0;
      for (int64_t d = 0; d < keys; ++d) {
        for (int64_t m = 0; m < values; ++m) out[m] += q[row * keys + d] * state[d * values + m];
      }
    }
  }
}

// Determinants by elimination with the greatest pivot, in f64. Configuration: dtype. Dims: rows of
// the matrices. Buffers: x [matrices, rows, rows], y [matrices]. A task is one matrix. Scratch: 8
// bytes an element.
STAMPMILL_SKELETON(determinant) {
  const int64_t rows = dims[0];
  double* a = static_cast<double*>(scratch);
  WithFloatType(configuration[0], [&]<typename T>(T) {
    const T* x = static_cast<const T*>(buffers[0]) + task * rows * rows;
    for (int64_t i = 0; i < rows * rows; ++i) a[i] = static_cast<double>(x[i]);
    double product = 1;
    for (int64_t column = 0; column < rows; ++column) {
      int64_t pivot = column;
      const auto size = [&](int64_t row) { return __builtin_fabs(a[row * rows + column]); };
      for (int64_t row = column + 1; row < rows; ++row) {
        if (size(row) > size(pivot)) pivot = row;
      }
      if (a[pivot * rows + column] == 0) product = 0;
      if (product == 0) break;
      for (int64_t i = 0; i < rows && pivot != column; ++i) {
        const double other = a[pivot * rows + i];
        a[pivot * rows + i] = a[column * rows + i];
        a[column * rows + i] = other;
      }
      if (pivot != column) product = -product;
      product *= a[column * rows + column];
      for (int64_t row = column + 1; row < rows; ++row) {
        const double factor = a[row * rows + column] / a[column * rows + column];
        for (int64_t i = column; i < rows; ++i) {
          a[row * rows + i] -= factor * a[column * rows + i];
        }
      }
    }
    using Arithmetic = typename ArithmeticOf<T>::Type;
    static_cast<T*>(buffers[1])[task] = Narrow<T>(static_cast<Arithmetic>(product));
  });
}

}  // namespace stampmill
