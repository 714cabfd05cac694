// The compile worker's process: `stampmill compile-worker`, started by WorkerProcess only. It binds
// itself to its parent, takes its request, limits itself, and only then opens
// libstampmill_compiler.so, the one file that links LLVM.
#pragma once

namespace stampmill {

inline constexpr char kCompilerLibraryName[] = "libstampmill_compiler.so";

// The one function that the library exports. It runs the job of `request` (WorkerRequest), writes
// progress, objects and the result to the socket, and returns the exit status.
inline constexpr char kCompileJobSymbol[] = "stampmill_compile_job";
using CompileJobFunction = int (*)(int socket, const char* request, unsigned long request_size);

// Runs the job and returns the exit status: 2 when there is no socket at kWorkerSocket.
int RunCompileWorker();

}  // namespace stampmill
