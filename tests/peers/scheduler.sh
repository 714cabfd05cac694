#!/bin/bash
# What scheduling a step of a language model costs with 256 texts that run: time, and instructions,
# which need valgrind and do not depend on what else the machine does.
#
#   tests/peers/scheduler.sh
#
# Bounds: 50 us and 150,000 instructions a step. Fails when one is exceeded.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
./bazelw build //runtime:sequence_scheduler_bench >&2
bench=bazel-bin/runtime/sequence_scheduler_bench

instructions() {  # of a whole run of so many steps
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$bench" \
    --benchmark_filter="^$1/256/iterations:$2\$" 2>&1 | sed -n 's/.*Collected : //p'
}

failed=0
for load in Decode WithPrompts; do
  nanos=$("$bench" --benchmark_filter="^$load/256\$" --benchmark_format=csv 2>/dev/null |
    sed -n "s/^\"$load[^,]*,[^,]*,[^,]*,\([0-9]*\).*/\1/p")
  count=$((($(instructions "$load" 600) - $(instructions "$load" 100)) / 500))
  echo "$load, 256 running: $nanos ns, $count instructions a step"
  if ((nanos > 50000 || count > 150000)); then failed=1; fi
done
exit $failed
