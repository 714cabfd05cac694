// The compile worker as a program of its own, for tests: what `stampmill compile-worker` is.
#include "compiler/worker/worker_main.h"

int main() { return stampmill::RunCompileWorker(); }
