// What this machine can do at most, measured: the roofline that profiles and kernel benchmarks are
// held against. A fraction of a second each.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace stampmill {

// Multiply-adds of f32 in registers, two operations each, with the widest instructions of the CPU
// class (devices/target.h's class_name(), which this machine must run), on one thread for about
// `nanos`. The best of several rounds is little disturbed by other load.
double MeasurePeakFlops(absl::string_view cpu_class, int64_t nanos);

// Bytes per second that one thread reads from memory well beyond the caches.
double MeasureReadBandwidth(int64_t nanos);

}  // namespace stampmill
