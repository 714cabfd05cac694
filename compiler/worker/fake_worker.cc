// A program that stands in for the compile worker in tests. It stores one small program as the
// compiled form of any model, or misbehaves as the options say.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/check.h"
#include "compiler/cache/kernel_cache.h"
#include "compiler/compiler_abi.h"
#include "compiler/program/program.h"
#include "compiler/worker/protocol.h"

namespace stampmill {
namespace {

void SendResult(const FileDescriptor& socket, const WorkerResult& result) {
  CHECK_OK(SendFrame(socket, FrameKind::kResult, result.Serialize(), -1));
}

void SendProgress(const FileDescriptor& socket, absl::string_view line) {
  CHECK_OK(SendFrame(socket, FrameKind::kProgress, LinePayload(line), -1));
}

void CompileForReal(const FileDescriptor& socket, const WorkerRequest& request) {
  auto cache = *KernelCache::Open({.directory = request.cache_directory,
                                   .is_default = request.cache_is_default,
                                   .writable = request.cache_writable});
  ModelRecord record = {.name = "m",
                        .target = request.target,
                        .options = request.options,
                        .compiler_abi = CompilerAbi()};
  record.sources.push_back({"m.onnx", *cache->FileDigest(request.model_path)});
  record.program = *cache->Put(AsBytes(Program().Serialize()));
  CHECK_OK(cache->PutModel(record));
  SendProgress(socket, "compiled 3 of 3 kernels");
  const KernelCache::InMemory all = cache->in_memory();
  for (const CacheObjectPtr& object : all.objects) {
    CHECK_OK(SendFrame(socket, FrameKind::kObject, ObjectPayload(object->digest()),
                       object->file().get()));
  }
  for (const ModelRecord& model : all.models) {
    FileDescriptor file = *CreateMemfd("record", 0);
    CHECK_OK(WriteAll(file, AsBytes(model.Serialize()), "memfd"));
    CHECK_OK(SendFrame(socket, FrameKind::kModel, "", file.get()));
  }
  SendResult(socket, {.kernels_compiled = 3, .kernels_reused = 4, .milliseconds = 1500});
}

[[noreturn]] void Misbehave(const FileDescriptor& socket, const std::string& how) {
  if (how == "abort") {
    fputs("first words\nLLVM ERROR: Cannot select: intrinsic %llvm.x\n", stderr);
    abort();
  }
  if (how == "exit") exit(7);
  if (how == "killed") kill(getpid(), SIGKILL);
  if (how == "loop") {
    SendProgress(socket, "looping");
    for (;;) pause();
  }
  if (how == "stderr without end") {
    for (;;) {
      if (write(STDERR_FILENO, "blah blah\n", 10) < 0) exit(1);
    }
  }
  if (how == "garbage") {
    CHECK_OK(SendFrame(socket, static_cast<FrameKind>(99), "", -1));
  }
  if (how == "altered object") {
    const FileDescriptor file = *CreateMemfd("x", 4);
    CHECK_OK(SendFrame(socket, FrameKind::kObject, ObjectPayload(Digest{}), file.get()));
  }
  if (how == "claims too much") SendResult(socket, {});
  if (how == "refuses") {
    SendResult(socket, {.status = absl::UnimplementedError("node 'n' (Foo): not supported")});
  }
  exit(0);
}

int Main() {
  const FileDescriptor socket(kWorkerSocket);
  const auto frame = ReceiveFrame(socket, /*wait=*/true);
  CHECK_OK(frame.status());
  const auto request = WorkerRequest::Parse(AsBytes((*frame)->payload));
  CHECK_OK(request.status());
  if (!request->options.empty()) Misbehave(socket, request->options);
  CompileForReal(socket, *request);
  return 0;
}

}  // namespace
}  // namespace stampmill

int main() { return stampmill::Main(); }
