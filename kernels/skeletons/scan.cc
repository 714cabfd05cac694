// Running sums and products along an axis.
#include "kernels/skeletons/skeleton.h"

namespace stampmill {
namespace {

// Lines that lie beside each other and are walked together.
constexpr int64_t kLines = 64;

template <typename T, bool is_product>
void Scan(const T* x, T* y, int64_t length, int64_t inner, int64_t lines, bool exclusive,
          bool reverse) {
  using Arithmetic = typename ArithmeticOf<T>::Type;
  Arithmetic totals[kLines];
  for (int64_t line = 0; line < lines; ++line) totals[line] = is_product ? 1 : 0;
  for (int64_t step = 0; step < length; ++step) {
    const int64_t row = (reverse ? length - 1 - step : step) * inner;
    for (int64_t line = 0; line < lines; ++line) {
      const Arithmetic before = totals[line];
      const Arithmetic value = static_cast<Arithmetic>(x[row + line]);
      const Arithmetic after = is_product ? before * value : before + value;
      totals[line] = after;
      y[row + line] = Narrow<T>(exclusive ? before : after);
    }
  }
}

}  // namespace

// Configuration: dtype, 1 for products, exclusive, reverse. Dims: length of the axis, elements
// after it. Buffers: x, y. A task is up to 64 neighbouring lines of one row of the axes before.
STAMPMILL_SKELETON(scan) {
  const int64_t length = dims[0], inner = dims[1];
  const int64_t blocks = (inner + kLines - 1) / kLines;
  const int64_t first = task % blocks * kLines;
  const int64_t place = task / blocks * length * inner + first;
  const int64_t lines = inner - first < kLines ? inner - first : kLines;
  WithType(configuration[0], [&]<typename T>(T) {
    const T* x = static_cast<const T*>(buffers[0]) + place;
    T* y = static_cast<T*>(buffers[1]) + place;
    if (configuration[1] != 0) {
      Scan<T, true>(x, y, length, inner, lines, configuration[2] != 0, configuration[3] != 0);
    } else {
      Scan<T, false>(x, y, length, inner, lines, configuration[2] != 0, configuration[3] != 0);
    }
  });
}

}  // namespace stampmill
