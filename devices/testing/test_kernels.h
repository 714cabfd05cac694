// Small kernels for tests of devices and of what stands on them, as an artifact that every CPU
// runs.
//
// Entries (buffers; dims). Where the first buffer is int32 counters, task t adds one to counters[t]
// when it has done the rest.
//   count    (counters;)
//   add      (int32 in[size], int32 out[size]; size, addend, block)  task t: its block of elements
//   append   (int64 log;  value)             log[1 + log[0]++] = value, atomically
//   fail     (counters; task, code)          returns `code` at that task
//   scratch  (counters; bytes)               fills its scratch and reads it back; 2: another's
//   spin     (counters, int32 stop; rounds)  busy until *stop or so many pauses of some 30 ns
//   gate     (counters, int32 open;)         busy until *open
//   language (inputs, the state int64 keys, outputs of a step of a language model; tokens, columns
//            of tables, ranks, vocabulary, outputs)  one task; toy_language.h says what it speaks
// spin and gate need memory that host and device share while a kernel runs.
#pragma once

#include "absl/status/statusor.h"
#include "devices/artifact.h"

namespace stampmill {

// For "cpu:x86-64". Reads the library that the test has among its data (runfiles).
absl::StatusOr<Artifact> TestKernels();

// The same library, claiming another target, source digest or ABI version: for tests of Load.
struct TestKernelsOptions {
  Target target;
  bool wrong_source_digest = false;
  bool next_abi_version = false;
};
absl::StatusOr<Artifact> TestKernels(const TestKernelsOptions& options);

}  // namespace stampmill
