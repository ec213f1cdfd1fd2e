#include "device/thread_pool.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace shoal {
namespace {

TEST(ThreadPoolTest, EveryTaskRunsExactlyOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (size_t tasks : {size_t{0}, size_t{1}, size_t{2}, size_t{7}, size_t{1000}}) {
      std::vector<std::atomic<int>> runs(tasks);
      pool.parallel_for(tasks, [&](size_t task, int worker) {
        ASSERT_LT(worker, threads);
        runs[task].fetch_add(1);
      });
      for (const auto& count : runs) ASSERT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPoolTest, ManyShortListsFollowEachOtherWithoutLoss) {
  ThreadPool pool(2);
  size_t sum = 0;
  std::vector<size_t> parts(4);
  for (int round = 0; round < 20000; ++round) {
    pool.parallel_for(parts.size(), [&](size_t task, int) { parts[task] = task + 1; });
    for (size_t& part : parts) {
      sum += part;
      part = 0;
    }
  }
  EXPECT_EQ(sum, 20000u * 10);
}

TEST(ThreadPoolTest, EachWorkerGoesThroughItsTasksInTheirOrder) {
  ThreadPool pool(2);
  std::vector<size_t> last(2, 0);
  for (int round = 0; round < 2000; ++round) {
    last = {0, 50};  // the second worker's stretch begins there, unless the first one has taken a part of it
    std::atomic<int> backwards{0};
    pool.parallel_for(100, [&](size_t task, int worker) {
      size_t& before = last[static_cast<size_t>(worker)];
      if (task < before) backwards.fetch_add(1);
      before = task;
    });
    EXPECT_LE(backwards.load(), 16);  // once for each time that it takes half of what the other has left
  }
}

TEST(ThreadPoolTest, OthersDoTheTasksOfAWorkerThatIsHeldUp) {
  for (const int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    for (const size_t held : {size_t{0}, size_t{30}, size_t{59}}) {
      std::atomic<size_t> done{0};
      pool.parallel_for(60, [&](size_t task, int) {
        while (task == held && done.load() < 59) std::this_thread::yield();
        done.fetch_add(1);
      });
      EXPECT_EQ(done.load(), 60u);
    }
  }
}

TEST(ThreadPoolTest, APoolOfOneRunsInTheCallersThread) {
  ThreadPool pool(1);
  const auto caller = std::this_thread::get_id();
  pool.parallel_for(5, [&](size_t, int worker) {
    EXPECT_EQ(worker, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
}

TEST(ThreadPoolTest, SleepingWorkersWakeForTheNextList) {
  ThreadPool pool(2);
  std::atomic<int> runs{0};
  pool.parallel_for(2, [&](size_t, int) { runs.fetch_add(1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // longer than any spin
  pool.parallel_for(2, [&](size_t, int) { runs.fetch_add(1); });
  EXPECT_EQ(runs.load(), 4);
}

TEST(ThreadPoolTest, MoreThreadsThanProcessorsStillFinish) {
  ThreadPool pool(static_cast<int>(std::thread::hardware_concurrency()) + 3);
  std::atomic<size_t> sum{0};
  for (int round = 0; round < 100; ++round) pool.parallel_for(64, [&](size_t task, int) { sum.fetch_add(task); });
  EXPECT_EQ(sum.load(), 100u * 63 * 64 / 2);
}

}  // namespace
}  // namespace shoal
