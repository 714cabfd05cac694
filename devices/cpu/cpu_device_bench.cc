// What a launch costs on the CPU device, without the work in it: chains of launches of 1, 6 and 32
// tasks on one and two workers, short lists on the caller, and the way to sleeping workers and
// back. Run on a quiet machine; figures are per launch.
#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "base/check.h"
#include "devices/cpu/cpu_device.h"
#include "devices/testing/test_kernels.h"

namespace stampmill {
namespace {

constexpr int kLaunches = 1000;

struct Setup {
  explicit Setup(int32_t threads) {
    device = *CreateCpuDevice({.threads = threads});
    kernels = *device->Load(*TestKernels());
    queue = *device->CreateQueue(&waker);
    buffer = {reinterpret_cast<uint64_t>(counters.data()), counters.size() * sizeof(int32_t)};
  }

  LaunchCommand Count(int64_t tasks, int64_t nanos_estimate) {
    return {.executable = kernels.get(),
            .entry = *kernels->FindEntry("count"),
            .buffers = std::span(&buffer, 1),
            .tasks = tasks,
            .nanos_estimate = nanos_estimate};
  }

  // Submits and sleeps on the waker, as the engine does.
  void Run(std::vector<Command>& commands) {
    commands.back() = SignalCommand{++signal};
    CHECK_OK(queue->Submit(commands));
    for (;;) {
      const uint32_t seen = waker.epoch();
      if (queue->completed() >= signal) return;
      waker.WaitUntil(seen, kNoDeadline);
    }
  }

  Waker waker;
  std::unique_ptr<Device> device;
  std::shared_ptr<const Executable> kernels;
  std::unique_ptr<Queue> queue;
  std::vector<int32_t> counters = std::vector<int32_t>(64);
  BufferRef buffer;
  uint64_t signal = 0;
};

// Launches that are spread over the workers (no estimate), back to back.
void BM_LaunchOnWorkers(benchmark::State& state) {
  Setup setup(static_cast<int32_t>(state.range(0)));
  std::vector<Command> commands(kLaunches, Command(setup.Count(state.range(1), 0)));
  commands.push_back(SignalCommand{});
  for (auto _ : state) setup.Run(commands);
  state.SetItemsProcessed(state.iterations() * kLaunches);
}
BENCHMARK(BM_LaunchOnWorkers)->ArgsProduct({{1, 2}, {1, 6, 32}})->UseRealTime();

// Launches inside Submit.
void BM_LaunchOnCaller(benchmark::State& state) {
  Setup setup(2);
  std::vector<Command> commands(100, Command(setup.Count(state.range(0), 1)));
  commands.push_back(SignalCommand{});
  for (auto _ : state) setup.Run(commands);
  state.SetItemsProcessed(state.iterations() * 100);
}
BENCHMARK(BM_LaunchOnCaller)->Arg(1)->Arg(6)->Arg(32)->UseRealTime();

// One launch from the engine's thread to a worker and its signal back; both sleep in between where
// the pause is longer than the workers spin.
void BM_RoundTrip(benchmark::State& state) {
  Setup setup(2);
  std::vector<Command> commands(1, Command(setup.Count(1, 0)));
  commands.push_back(SignalCommand{});
  for (auto _ : state) {
    setup.Run(commands);
    state.PauseTiming();
    for (int64_t i = 0; i < state.range(0); ++i) __builtin_ia32_pause();
    state.ResumeTiming();
  }
}
BENCHMARK(BM_RoundTrip)->Arg(0)->Arg(10'000)->UseRealTime();

// 150 launches of 16 tasks, some 60 us together on one thread, beside so many processes that want a
// core each all the time. The fair share on two cores beside two of them is a half.
void BM_StepBesideBusyProcesses(benchmark::State& state) {
  std::vector<pid_t> busy;
  for (int64_t i = 0; i < state.range(1); ++i) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) __builtin_ia32_pause();
    }
    busy.push_back(child);
  }
  Setup setup(static_cast<int32_t>(state.range(0)));
  const int32_t never = 0;
  const BufferRef buffers[] = {setup.buffer, {reinterpret_cast<uint64_t>(&never), 4}};
  const int64_t rounds[] = {100};
  LaunchCommand spin = setup.Count(16, 60'000);
  spin.entry = *setup.kernels->FindEntry("spin");
  spin.buffers = buffers;
  spin.dims = rounds;
  std::vector<Command> commands(150, Command(spin));
  commands.push_back(SignalCommand{});
  for (auto _ : state) setup.Run(commands);
  state.SetItemsProcessed(state.iterations() * 150);
  for (const pid_t child : busy) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}
BENCHMARK(BM_StepBesideBusyProcesses)->ArgsProduct({{1, 2}, {0, 1, 2}})->UseRealTime();

}  // namespace
}  // namespace stampmill
