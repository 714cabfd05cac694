// The table and the handler. A place is taken by exchanging `begin` from 0 last and given up by
// storing 0 first, so that the handler, which may run on any thread at any time, sees whole
// entries.
#include "runtime/region_fault.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/check.h"
#include "runtime/limits.h"

namespace stampmill {
namespace {

struct WatchedRegion {
  std::atomic<bool> taken;
  std::atomic<uintptr_t> begin;  // 0: nothing watched
  std::atomic<uintptr_t> end;
  std::atomic<bool> faulted;
};

// Zero-initialised, so that no static constructor runs.
WatchedRegion watched_regions[kClientRegionsMax];
struct sigaction previous_action;
std::atomic<uintptr_t> page_bytes;
std::once_flag handler_installed;
std::atomic<bool> lost_file_told;  // several threads may meet it at once

static_assert(std::atomic<uintptr_t>::is_always_lock_free &&
              std::atomic<bool>::is_always_lock_free);

bool RepairRegion(uintptr_t address) {
  for (WatchedRegion& region : watched_regions) {
    const uintptr_t begin = region.begin.load(std::memory_order_acquire);
    const uintptr_t end = region.end.load(std::memory_order_relaxed);
    if (begin == 0 || address < begin || address >= end) continue;
    region.faulted.store(true, std::memory_order_release);
    const uintptr_t page = address & ~(page_bytes.load(std::memory_order_relaxed) - 1);
    void* const fixed = mmap(reinterpret_cast<void*>(page), end - page, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return fixed != MAP_FAILED;
  }
  return false;
}

// A line of /proc/self/maps: "begin-end mode offset device inode path", all but the path short.
struct MapsLine {
  char text[512];
  size_t size = 0;
};

// The path of the mapping that `line` is of, if `address` is in it and it is of a file.
const char* PathOfAddress(MapsLine& line, uintptr_t address) {
  line.text[line.size] = '\0';
  uintptr_t bounds[2] = {0, 0};
  const char* at = line.text;
  for (uintptr_t& bound : bounds) {
    for (; *at != '\0' && *at != '-' && *at != ' '; ++at) {
      const int digit = *at <= '9' ? *at - '0' : *at - 'a' + 10;
      bound = bound << 4 | static_cast<uintptr_t>(digit);
    }
    if (*at != '\0') ++at;
  }
  if (address < bounds[0] || address >= bounds[1]) return nullptr;
  return strchr(at, '/');
}

// Nothing but system calls: it runs in the handler.
void TellLostFile(uintptr_t address) {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  char buffer[1024];
  MapsLine line;
  const char* path = nullptr;
  ssize_t n = 0;
  while (path == nullptr && (n = read(maps, buffer, sizeof(buffer))) > 0) {
    for (ssize_t i = 0; i < n && path == nullptr; ++i) {
      if (buffer[i] != '\n') {
        // What is longer is told as far as it goes.
        if (line.size + 1 < sizeof(line.text)) line.text[line.size++] = buffer[i];
        continue;
      }
      path = PathOfAddress(line, address);
      line.size = 0;
    }
  }
  close(maps);
  if (path == nullptr) return;
  constexpr char kBefore[] = "stampmill: ends by SIGBUS: a file was cut off while it was in use: ";
  // Whoever does not read it learns no less from the signal.
  bool told = write(STDERR_FILENO, kBefore, sizeof(kBefore) - 1) > 0;
  told = told && write(STDERR_FILENO, path, strlen(path)) > 0;
  told = told && write(STDERR_FILENO, "\n", 1) > 0;
  static_cast<void>(told);
}

void HandleBusError(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const bool repaired = RepairRegion(address);
  if (!repaired && !lost_file_told.exchange(true)) TellLostFile(address);
  errno = saved_errno;
  if (repaired) return;
  // Not ours: as if this handler did not exist. A default action takes effect when the faulting
  // instruction runs again on return.
  if ((previous_action.sa_flags & SA_SIGINFO) != 0 && previous_action.sa_sigaction != nullptr) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(signal);
  } else {
    sigaction(signal, &previous_action, nullptr);
  }
}

void InstallHandler() {
  page_bytes.store(static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)));
  struct sigaction action = {};
  action.sa_sigaction = HandleBusError;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  CHECK_EQ(sigaction(SIGBUS, &action, &previous_action), 0);
}

}  // namespace

void HandleBusErrors() { std::call_once(handler_installed, InstallHandler); }

int32_t WatchRegion(std::span<std::byte> mapping) {
  HandleBusErrors();
  const auto begin = reinterpret_cast<uintptr_t>(mapping.data());
  CHECK_EQ(begin & (page_bytes.load() - 1), 0u);
  for (int32_t place = 0; place < kClientRegionsMax; ++place) {
    WatchedRegion& region = watched_regions[place];
    if (region.taken.exchange(true, std::memory_order_acquire)) continue;
    region.faulted.store(false, std::memory_order_relaxed);
    region.end.store(begin + mapping.size(), std::memory_order_relaxed);
    region.begin.store(begin, std::memory_order_release);
    return place;
  }
  return -1;
}

void UnwatchRegion(int32_t place) {
  WatchedRegion& region = watched_regions[place];
  region.begin.store(0, std::memory_order_release);
  region.taken.store(false, std::memory_order_release);
}

bool RegionFaulted(int32_t place) {
  return watched_regions[place].faulted.load(std::memory_order_acquire);
}

}  // namespace stampmill
