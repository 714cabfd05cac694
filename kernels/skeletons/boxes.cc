// Boxes of detectors: which of them to keep, and what lies in them.
#include "kernels/skeletons/skeleton.h"

namespace stampmill {
namespace {

struct Scored {
  float score;
  int64_t index;
};

struct Box {
  float y0, x0, y1, x1;
};

inline float Least(float a, float b) { return a < b ? a : b; }
inline float Greatest(float a, float b) { return a > b ? a : b; }

// Any two opposite corners, or centre and size.
Box BoxOf(const float* p, bool centered) {
  if (centered) {
    return {p[1] - p[3] / 2, p[0] - p[2] / 2, p[1] + p[3] / 2, p[0] + p[2] / 2};
  }
  return {Least(p[0], p[2]), Least(p[1], p[3]), Greatest(p[0], p[2]), Greatest(p[1], p[3])};
}

float AreaOf(const Box& box) { return (box.y1 - box.y0) * (box.x1 - box.x0); }

// The share of the boxes' union that is common to both.
float Overlap(const Box& a, const Box& b) {
  const float height = Least(a.y1, b.y1) - Greatest(a.y0, b.y0);
  const float width = Least(a.x1, b.x1) - Greatest(a.x0, b.x0);
  if (!(height > 0) || !(width > 0)) return 0;
  const float common = height * width;
  const float all = AreaOf(a) + AreaOf(b) - common;
  return all > 0 ? common / all : 0;
}

}  // namespace

// Configuration: 1 for boxes of centre and size, 1 for a least score. Dims: boxes, classes, places.
// Buffers: boxes f32 [batch, boxes, 4], scores f32 [batch, classes, boxes], the most that a class
// may keep (i64), the overlap above which and the score at or below which a box goes (f32); kept
// boxes, best first, [batch, classes, places] (i64), and their number [batch, classes] (i64): what
// is behind them is not written. A score that is no number is no score. A task is one class.
// Scratch: 32 bytes a box.
STAMPMILL_SKELETON(suppress) {
  const int64_t count = dims[0], places = dims[2];
  const float* boxes = static_cast<const float*>(buffers[0]) + task / dims[1] * count * 4;
  const float* scores = static_cast<const float*>(buffers[1]) + task * count;
  const int64_t most = *static_cast<const int64_t*>(buffers[2]);
  const float overlap = *static_cast<const float*>(buffers[3]);
  const float least = *static_cast<const float*>(buffers[4]);
  int64_t* kept = static_cast<int64_t*>(buffers[5]) + task * places;
  Scored* list = static_cast<Scored*>(scratch);
  int64_t candidates = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (configuration[1] != 0 ? scores[i] > least : scores[i] == scores[i])
      list[candidates++] = {scores[i], i};
  }
  MergeSort(list, list + count, candidates,
            [](const Scored& a, const Scored& b) { return a.score > b.score; });
  int64_t found = 0;
  for (int64_t i = 0; i < candidates && found < most && found < places; ++i) {
    const Box box = BoxOf(boxes + list[i].index * 4, configuration[0] != 0);
    bool keep = true;
    for (int64_t j = 0; j < found && keep; ++j) {
      keep = !(Overlap(box, BoxOf(boxes + kept[j] * 4, configuration[0] != 0)) > overlap);
    }
    if (keep) kept[found++] = list[i].index;
  }
  static_cast<int64_t*>(buffers[6])[task] = found;
}

// Lists beside each other become one. Dims: lists in a batch, places in a list, lists. Buffers: the
// lists [lists, places] and their lengths [lists]; rows of batch, list in the batch and element,
// [lists * places, 3], no more than there are; how many that is. All i64. One task.
STAMPMILL_SKELETON(join_lists) {
  const int64_t* from = static_cast<const int64_t*>(buffers[0]);
  const int64_t* lengths = static_cast<const int64_t*>(buffers[1]);
  int64_t* to = static_cast<int64_t*>(buffers[2]);
  int64_t found = 0;
  for (int64_t list = 0; list < dims[2]; ++list) {
    for (int64_t i = 0; i < lengths[list]; ++i) {
      to[3 * found] = list / dims[0];
      to[3 * found + 1] = list % dims[0];
      to[3 * found + 2] = from[list * dims[1] + i];
      ++found;
    }
  }
  static_cast<int64_t*>(buffers[3])[0] = found;
}

namespace {

// Sample points of one bin along one axis: `count` of them, of which first .. last - 1 lie where
// the feature map reaches.
struct Samples {
  float start, step;
  float count;
  int64_t first, last;

  float At(int64_t i) const { return start + (static_cast<float>(i) + 0.5f) * step; }
};

// Floats far outside of int64_t, and NaN, become a bound.
inline int64_t Whole(float value, int64_t least, int64_t most) {
  if (!(value > static_cast<float>(least))) return least;
  return value >= static_cast<float>(most) ? most : static_cast<int64_t>(value);
}

Samples SamplesOf(float start, float size, int64_t ratio, int64_t extent) {
  Samples samples = {start, 0, static_cast<float>(ratio), 0, 0};
  if (ratio == 0) {
    const float whole = static_cast<float>(Whole(size, 0, int64_t{1} << 40));
    samples.count = whole < size ? whole + 1 : whole;
  }
  if (!(samples.count >= 1) || !(size == size) || !(start == start)) {
    samples.count = 0;
    return samples;
  }
  samples.step = size / samples.count;
  const int64_t most = static_cast<int64_t>(samples.count);
  samples.last = most;
  // With no more points than twice the map has rows a plain walk will do.
  if (most > 2 * (extent + 4)) {
    const float reach = samples.step > 0 ? 1 / samples.step : 0;
    samples.first = Whole((-1 - start) * reach - 2, 0, most);
    samples.last = Whole((static_cast<float>(extent) - start) * reach + 2, samples.first, most);
  }
  return samples;
}

// The two rows around a point and their weights; false where the map does not reach.
struct Between {
  int64_t low, high;
  float low_weight, high_weight;
};
bool Around(float at, int64_t extent, Between* between) {
  if (!(at >= -1) || !(at <= static_cast<float>(extent))) return false;
  if (at < 0) at = 0;
  int64_t low = static_cast<int64_t>(at);
  if (low >= extent - 1) {
    low = extent - 1;
    at = static_cast<float>(low);
  }
  const float part = at - static_cast<float>(low);
  *between = {low, low + 1 < extent ? low + 1 : low, 1 - part, part};
  return true;
}

struct BinArguments {
  Samples y, x;
  int64_t height, width, channels;
  bool maximum;
};

// Fills totals[channel] from the points of one bin.
template <typename T>
void PoolBin(const T* map, const BinArguments& bin, float* totals) {
  const float points = bin.y.count * bin.x.count;
  float seen = 0;
  for (int64_t c = 0; c < bin.channels; ++c) totals[c] = 0;
  for (int64_t iy = bin.y.first; iy < bin.y.last; ++iy) {
    for (int64_t ix = bin.x.first; ix < bin.x.last; ++ix) {
      Between y, x;
      if (!Around(bin.y.At(iy), bin.height, &y) || !Around(bin.x.At(ix), bin.width, &x)) continue;
      for (int64_t c = 0; c < bin.channels; ++c) {
        const T* low = map + (c * bin.height + y.low) * bin.width;
        const T* high = map + (c * bin.height + y.high) * bin.width;
        const float a = y.low_weight * x.low_weight * static_cast<float>(low[x.low]);
        const float b = y.low_weight * x.high_weight * static_cast<float>(low[x.high]);
        const float d = y.high_weight * x.low_weight * static_cast<float>(high[x.low]);
        const float e = y.high_weight * x.high_weight * static_cast<float>(high[x.high]);
        if (bin.maximum) {
          const float best = Greatest(Greatest(a, b), Greatest(d, e));
          totals[c] = seen == 0 ? best : Greatest(totals[c], best);
        } else {
          totals[c] += a + b + d + e;
        }
      }
      seen += 1;
    }
  }
  for (int64_t c = 0; c < bin.channels; ++c) {
    // A point outside of the map counts as 0.
    if (bin.maximum && seen < points) totals[c] = seen == 0 ? 0 : Greatest(totals[c], 0);
    if (!bin.maximum && points > 0) totals[c] /= points;
  }
}

}  // namespace

// Configuration: dtype, 1 for the maximum of the points (0: mean), 1 for corners moved by half a
// pixel, points along an axis of a bin (0: by its size), the scale of the boxes as bits of an f32.
// Dims: images, channels, height, width, bins down, bins across. Buffers: x [images, channels,
// height, width], boxes f32 [boxes, 4] of x0, y0, x1, y1, their images (i64); y [boxes, channels,
// down, across]. A task is one box. Scratch: 4 bytes a channel.
STAMPMILL_SKELETON(roi_align) {
  const int64_t channels = dims[1], height = dims[2], width = dims[3];
  const int64_t down = dims[4], across = dims[5];
  const bool half_pixel = configuration[2] != 0;
  const float scale = FloatOfBits(static_cast<uint32_t>(configuration[4]));
  const float* box = static_cast<const float*>(buffers[1]) + 4 * task;
  const float offset = half_pixel ? 0.5f : 0.0f;
  const float x0 = box[0] * scale - offset, y0 = box[1] * scale - offset;
  float box_width = box[2] * scale - offset - x0, box_height = box[3] * scale - offset - y0;
  if (!half_pixel) {
    box_width = Greatest(box_width, 1);
    box_height = Greatest(box_height, 1);
  }
  const float bin_width = box_width / static_cast<float>(across);
  const float bin_height = box_height / static_cast<float>(down);
  int64_t image = static_cast<const int64_t*>(buffers[2])[task];
  if (image < 0) image = 0;
  if (image >= dims[0]) image = dims[0] - 1;
  float* totals = static_cast<float*>(scratch);
  WithFloatType(configuration[0], [&]<typename T>(T) {
    const T* map = static_cast<const T*>(buffers[0]) + image * channels * height * width;
    T* y = static_cast<T*>(buffers[3]) + task * channels * down * across;
    for (int64_t bin = 0; bin < down * across; ++bin) {
      const float top = y0 + static_cast<float>(bin / across) * bin_height;
      const float left = x0 + static_cast<float>(bin % across) * bin_width;
      const BinArguments arguments = {SamplesOf(top, bin_height, configuration[3], height),
                                      SamplesOf(left, bin_width, configuration[3], width),
                                      height,
                                      width,
                                      channels,
                                      configuration[1] != 0};
      PoolBin(map, arguments, totals);
      for (int64_t c = 0; c < channels; ++c) y[c * down * across + bin] = Narrow<T>(totals[c]);
    }
  });
}

}  // namespace stampmill
