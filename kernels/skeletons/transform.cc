// Discrete Fourier transforms of any length, and elements put where indices say.
#include "kernels/skeletons/skeleton.h"

namespace stampmill {
namespace {

struct Complex {
  double real, imaginary;
};

inline Complex Times(Complex a, Complex b) {
  return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}

int64_t LeastFactor(int64_t number) {
  for (int64_t factor = 2; factor * factor <= number; ++factor) {
    if (number % factor == 0) return factor;
  }
  return number;
}

// Transforms x in place of one of the two lists and returns it. roots[k] is exp(-2 pi i k /
// length); inverse: with the conjugate roots. Each pass splits off one prime factor and leaves its
// results in order, so nothing is permuted.
Complex* Transform(Complex* x, Complex* y, const Complex* roots, int64_t length, bool inverse) {
  const auto root = [&](int64_t k) {
    const Complex r = roots[k];
    return Complex{r.real, inverse ? -r.imaginary : r.imaginary};
  };
  int64_t beside = 1;
  for (int64_t left = length; left > 1;) {
    const int64_t factor = LeastFactor(left);
    const int64_t rest = left / factor;
    for (int64_t q = 0; q < rest; ++q) {
      for (int64_t r = 0; r < beside; ++r) {
        for (int64_t k = 0; k < factor; ++k) {
          Complex sum = {0, 0};
          for (int64_t j = 0; j < factor; ++j) {
            const Complex term =
                Times(x[r + beside * (q + rest * j)], root(length / factor * (j * k % factor)));
            sum = {sum.real + term.real, sum.imaginary + term.imaginary};
          }
          y[r + beside * (factor * q + k)] = Times(sum, root(length / left * (q * k)));
        }
      }
    }
    Complex* const done = y;
    y = x;
    x = done;
    left = rest;
    beside *= factor;
  }
  return x;
}

}  // namespace

// Configuration: dtype, numbers of an element of x (1: real), numbers of an element of y, 1 for the
// inverse, 1 when x is the first half of a spectrum whose other half mirrors it. Dims: length of
// the transform, length of x's axis, of y's axis, elements between the axis and the last one.
// Buffers: x, roots (f64 [length, 2]), y. A task is one line. Scratch: 32 bytes for each of the
// length.
STAMPMILL_SKELETON(dft) {
  const int64_t length = dims[0], from = dims[1], to = dims[2], inner = dims[3];
  const int64_t parts = configuration[1], results = configuration[2];
  const bool inverse = configuration[3] != 0, mirrored = configuration[4] != 0;
  if (length < 1 || to < 1) return;
  const int64_t outer = task / inner, line = task % inner;
  Complex* list = static_cast<Complex*>(scratch);
  WithFloatType(configuration[0], [&]<typename T>(T) {
    using Arithmetic = typename ArithmeticOf<T>::Type;
    const T* x = static_cast<const T*>(buffers[0]) + (outer * from * inner + line) * parts;
    for (int64_t i = 0; i < length; ++i) {
      list[i] = {0, 0};
      const bool is_mirror = mirrored && i > length / 2;
      const int64_t place = is_mirror ? length - i : i;
      if (place >= from) continue;
      const T* element = x + place * inner * parts;
      list[i].real = static_cast<double>(element[0]);
      if (parts == 2) list[i].imaginary = static_cast<double>(element[1]);
      if (is_mirror) list[i].imaginary = -list[i].imaginary;
      // What is its own mirror image is real.
      if (mirrored && 2 * place % length == 0) list[i].imaginary = 0;
    }
    const Complex* done =
        Transform(list, list + length, static_cast<const Complex*>(buffers[1]), length, inverse);
    const double scale = inverse ? 1.0 / static_cast<double>(length) : 1;
    T* y = static_cast<T*>(buffers[2]) + (outer * to * inner + line) * results;
    for (int64_t i = 0; i < to; ++i) {
      T* element = y + i * inner * results;
      element[0] = Narrow<T>(static_cast<Arithmetic>(done[i].real * scale));
      if (results == 2) element[1] = Narrow<T>(static_cast<Arithmetic>(done[i].imaginary * scale));
    }
  });
}

// Elements of x go to their places in y, the rest of y is 0; of several for one place the last
// stays, and one without a place in y is left out. Configuration: dtype. Dims: elements of x, of y.
// Buffers: x, places (i64), y. One task.
STAMPMILL_SKELETON(place) {
  const int64_t* places = static_cast<const int64_t*>(buffers[1]);
  WithType(configuration[0], [&]<typename T>(T) {
    const T* x = static_cast<const T*>(buffers[0]);
    T* y = static_cast<T*>(buffers[2]);
    for (int64_t i = 0; i < dims[1]; ++i) y[i] = T{};
    for (int64_t i = 0; i < dims[0]; ++i) {
      if (places[i] >= 0 && places[i] < dims[1]) y[places[i]] = x[i];
    }
  });
}

}  // namespace stampmill
