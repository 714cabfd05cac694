// Each use here is ordered by a lock of absl, so the ThreadSanitizer twin must report nothing.
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace {

TEST(TsanMutex, SeesAMutex) {
  absl::Mutex mutex;
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        absl::MutexLock lock(&mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 4000);
}

TEST(TsanMutex, SeesAConditionVariable) {
  absl::Mutex mutex;
  absl::CondVar changed;
  int count = 0;
  std::thread waiter([&] {
    absl::MutexLock lock(&mutex);
    while (count < 5) changed.Wait(&mutex);
    count = 100;
  });
  for (int i = 0; i < 5; ++i) {
    absl::MutexLock lock(&mutex);
    ++count;
    changed.Signal();
  }
  waiter.join();
  EXPECT_EQ(count, 100);
}

TEST(TsanMutex, SeesACondition) {
  absl::Mutex mutex;
  int count = 0;
  const auto five = +[](int* value) { return *value >= 5; };
  std::thread waiter([&] {
    absl::MutexLock lock(&mutex, absl::Condition(five, &count));
    mutex.Await(absl::Condition(five, &count));
    count = 100;
  });
  for (int i = 0; i < 5; ++i) {
    absl::MutexLock lock(&mutex);
    ++count;
  }
  waiter.join();
  absl::MutexLock lock(&mutex);
  EXPECT_EQ(count, 100);
  count = 0;
  EXPECT_FALSE(mutex.AwaitWithTimeout(absl::Condition(five, &count), absl::Milliseconds(1)));
}

TEST(TsanMutex, SeesNotificationsAndCounters) {
  absl::Notification first, second;
  absl::BlockingCounter both(2);
  int a = 0, b = 0;
  std::thread one([&] {
    a = 1;
    first.Notify();
    both.DecrementCount();
  });
  std::thread two([&] {
    b = 1;
    second.Notify();
    both.DecrementCount();
  });
  first.WaitForNotification();
  EXPECT_EQ(a, 1);
  while (!second.HasBeenNotified()) std::this_thread::yield();
  EXPECT_EQ(b, 1);
  both.Wait();
  one.join();
  two.join();
}

}  // namespace
