// RunToken: work that one thread at a time does, and that nobody waits to do.
//
// Whoever has work asks. The first one gets the token and runs; those who come while it runs go
// their way at once, and the one that runs goes round again for them. (Serialised execution without
// a queue of waiters, as in flat combining: Hendler, Incze, Shavit, Tzafrir, 2010.)
//
//   if (token.Ask()) {
//     do {
//       token.BeginRound();
//       DoEverythingThereIs();
//     } while (!token.EndRound());
//   }
//
// Who has done enough for others leaves the rest, with the token, to a thread that is there for it.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace stampmill {

class RunToken {
 public:
  RunToken() = default;
  RunToken(const RunToken&) = delete;
  RunToken& operator=(const RunToken&) = delete;

  // True: the caller has the token, and sees all that its former holders wrote. False: the holder
  // will begin another round, which sees all that the caller wrote before.
  bool Ask() { return asked_.fetch_add(1, std::memory_order_acq_rel) == 0; }

  // The holder's. What was asked for up to here is this round's.
  void BeginRound() { answered_ = asked_.load(std::memory_order_acquire); }
  // The holder's. True: the token is given back. False: somebody asked meanwhile, begin another.
  bool EndRound() {
    const uint64_t answered = answered_;  // no longer ours below, if this was the last round
    return asked_.fetch_sub(answered, std::memory_order_acq_rel) == answered;
  }

  // The holder's, instead of beginning or ending a round: the token is the next one's who calls
  // TakeOver. The caller wakes that thread.
  void HandOver() { left_.store(true, std::memory_order_release); }
  // True: a token that was left is the caller's now.
  bool TakeOver() { return left_.exchange(false, std::memory_order_acquire); }

 private:
  std::atomic<uint64_t> asked_{0};
  std::atomic<bool> left_{false};
  uint64_t answered_ = 0;  // the holder's
};

}  // namespace stampmill
