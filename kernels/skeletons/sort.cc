// The first elements of a row in order, and the places of elements by their values.
#include "kernels/skeletons/skeleton.h"

namespace stampmill {
namespace {

struct Ranked {
  uint64_t key;  // the greatest goes first
  int64_t index;
};

inline bool GoesBefore(const Ranked& a, const Ranked& b) {
  return a.key > b.key || (a.key == b.key && a.index < b.index);
}

// Restores "no entry goes before the one above it" below `at`: a heap with the last one on top.
void SiftDown(Ranked* heap, int64_t count, int64_t at) {
  const Ranked moved = heap[at];
  for (int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && GoesBefore(heap[child], heap[child + 1])) ++child;
    if (!GoesBefore(moved, heap[child])) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moved;
}

template <typename T>
void TopK(const T* x, T* values, int64_t* indices, int64_t length, int64_t stride, int64_t k,
          bool smallest, Ranked* best) {
  const auto entry = [&](int64_t i) {
    const uint64_t key = OrderKey(x[i * stride]);
    return Ranked{smallest ? ~key : key, i};
  };
  for (int64_t i = 0; i < k; ++i) best[i] = entry(i);
  if (k < length) {
    for (int64_t i = k / 2 - 1; i >= 0; --i) SiftDown(best, k, i);
    for (int64_t i = k; i < length; ++i) {
      const Ranked next = entry(i);
      if (!GoesBefore(next, best[0])) continue;
      best[0] = next;
      SiftDown(best, k, 0);
    }
  }
  MergeSort(best, best + k, k, GoesBefore);
  for (int64_t i = 0; i < k; ++i) {
    values[i * stride] = x[best[i].index * stride];
    indices[i * stride] = best[i].index;
  }
}

template <typename T>
bool IsNonZero(T value) {
  return OrderKey(value) != OrderKey(T{});
}

}  // namespace

// Configuration: dtype, 1 for the smallest. Dims: length of the axis, elements after it, k.
// Buffers: x, values, indices (i64). A task is one line. Scratch: 32 bytes for each of k.
STAMPMILL_SKELETON(top_k) {
  const int64_t length = dims[0], inner = dims[1], k = dims[2];
  if (k == 0) return;
  const int64_t outer = task / inner, line = task % inner;
  WithType(configuration[0], [&]<typename T>(T) {
    TopK(static_cast<const T*>(buffers[0]) + outer * length * inner + line,
         static_cast<T*>(buffers[1]) + outer * k * inner + line,
         static_cast<int64_t*>(buffers[2]) + outer * k * inner + line, length, inner, k,
         configuration[1] != 0, static_cast<Ranked*>(scratch));
  });
}

// Configuration: dtype. Dims: number of elements. Buffers: x; the places of what is not zero (i64,
// room for as many as elements, no more than there are is written), how many there are (i64). One
// task.
STAMPMILL_SKELETON(nonzero) {
  int64_t* places = static_cast<int64_t*>(buffers[1]);
  int64_t found = 0;
  WithType(configuration[0], [&]<typename T>(T) {
    const T* x = static_cast<const T*>(buffers[0]);
    for (int64_t i = 0; i < dims[0]; ++i) {
      if (IsNonZero(x[i])) places[found++] = i;
    }
  });
  static_cast<int64_t*>(buffers[2])[0] = found;
}

namespace {

// Groups of equal slices of x, [outer, length, inner], along the middle axis.
template <typename T>
struct Slices {
  const T* x;
  int64_t outer, length, inner;

  // Less than 0, 0 or greater: the order of slices a and b, element by element.
  int Compare(int64_t a, int64_t b) const {
    for (int64_t o = 0; o < outer; ++o) {
      const T* row_a = x + (o * length + a) * inner;
      const T* row_b = x + (o * length + b) * inner;
      for (int64_t i = 0; i < inner; ++i) {
        const uint64_t key_a = OrderKey(row_a[i]), key_b = OrderKey(row_b[i]);
        if (key_a != key_b) return key_a < key_b ? -1 : 1;
      }
    }
    return 0;
  }
};

struct UniqueResults {
  int64_t* firsts;   // the slice that a group begins with
  int64_t* inverse;  // of each slice, its group
  int64_t* counts;   // slices in a group
};

// Numbers the groups by value, then, unless sorted, by their first slice. Returns how many.
template <typename T>
int64_t Unique(const Slices<T>& slices, bool sorted, const UniqueResults& results, int64_t* order,
               int64_t* spare) {
  const int64_t length = slices.length;
  for (int64_t i = 0; i < length; ++i) order[i] = i;
  MergeSort(order, spare, length, [&](int64_t a, int64_t b) { return slices.Compare(a, b) < 0; });
  int64_t groups = 0;
  for (int64_t i = 0; i < length; ++i) {
    if (i == 0 || slices.Compare(order[i - 1], order[i]) != 0) {
      results.firsts[groups] = order[i];
      results.counts[groups] = 0;
      ++groups;
    }
    results.inverse[order[i]] = groups - 1;
    ++results.counts[groups - 1];
  }
  if (sorted) return groups;
  // The sort is stable, so a group's first slice is its least.
  int64_t next = 0;
  for (int64_t i = 0; i < groups; ++i) order[i] = results.counts[i];
  for (int64_t i = 0; i < length; ++i) {
    const int64_t group = results.inverse[i];
    if (results.firsts[group] == i) spare[group] = next++;
  }
  for (int64_t i = 0; i < groups; ++i) results.counts[spare[i]] = order[i];
  for (int64_t i = 0; i < groups; ++i) order[spare[i]] = results.firsts[i];
  for (int64_t i = 0; i < groups; ++i) results.firsts[i] = order[i];
  for (int64_t i = 0; i < length; ++i) results.inverse[i] = spare[results.inverse[i]];
  return groups;
}

}  // namespace

// Configuration: dtype, 1 for groups in order. Dims: elements before the axis, its length, elements
// after it. Buffers: x; firsts, inverse, counts, the number of groups, all i64. One task. Scratch:
// 16 bytes for each slice.
STAMPMILL_SKELETON(unique) {
  const int64_t length = dims[1];
  int64_t* order = static_cast<int64_t*>(scratch);
  const UniqueResults results = {static_cast<int64_t*>(buffers[1]),
                                 static_cast<int64_t*>(buffers[2]),
                                 static_cast<int64_t*>(buffers[3])};
  int64_t groups = 0;
  WithType(configuration[0], [&]<typename T>(T) {
    const Slices<T> slices = {static_cast<const T*>(buffers[0]), dims[0], length, dims[2]};
    groups = Unique(slices, configuration[1] != 0, results, order, order + length);
  });
  for (int64_t i = groups; i < length; ++i) results.firsts[i] = results.counts[i] = 0;
  static_cast<int64_t*>(buffers[4])[0] = groups;
}

}  // namespace stampmill
