// The compute threads of one device: they split the outputs of an operation and meet at its end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

namespace shoal {

struct ThreadPoolOptions {
  int threads = 1;        // the caller of parallel_for is one of them
  std::vector<int> cpus;  // threads[i] is pinned to cpus[i]; empty: to the i-th CPU this process may use, if there is
                          // one for each thread. The caller's thread is never pinned.
  bool pin = true;        // false: all threads run on any of `cpus`
};

// The CPUs that this process may use; empty if that is not known.
std::vector<int> allowed_cpus();

// The calling thread, and those it starts, run on these CPUs only; empty: as before. Best effort: a container may forbid it,
// and then it only costs time.
void bind_this_thread(const std::vector<int>& cpus);

// Persistent threads. Each begins with its own stretch of a list's tasks, in their order: what lies one after the other in memory is
// then read so. Whoever is done takes half of what another has left. After a list they spin for a bounded while, so that the
// next operation of the same step finds them awake, then sleep. They never spin if the pool has more threads than the process
// has CPUs.
// parallel_for allocates nothing. One parallel_for at a time; tasks do not call parallel_for.
class ThreadPool {
 public:
  explicit ThreadPool(const ThreadPoolOptions& options);
  explicit ThreadPool(int threads) : ThreadPool(ThreadPoolOptions{.threads = threads, .cpus = {}}) {}
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Memory for a worker to work in during a task, aligned to 64 bytes; its contents do not outlive the task.
  static constexpr size_t kScratchBytes = size_t{1} << 20;
  std::span<std::byte> scratch(int worker) const {
    return {scratch_.get() + static_cast<size_t>(worker) * kScratchBytes, kScratchBytes};
  }

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls function(task, worker) once for every task in [0, tasks), worker in [0, size()), and returns when all are done;
  // what they wrote is visible to the caller. Which worker gets a task, and which task comes before which, is not determined:
  // results must not depend on it.
  template <typename Function>
  void parallel_for(size_t tasks, Function&& function) {
    if (tasks == 0) return;
    if (workers_.empty() || tasks == 1) {
      for (size_t task = 0; task < tasks; ++task) function(task, 0);
      return;
    }
    using Callable = std::remove_reference_t<Function>;
    run(tasks, [](void* callable, size_t task, int worker) { (*static_cast<Callable*>(callable))(task, worker); },
        const_cast<std::remove_const_t<Callable>*>(&function));
  }

 private:
  using Task = void (*)(void* callable, size_t task, int worker);

  void run(size_t tasks, Task task, void* callable);
  void work(int worker);               // life of a worker thread
  void drain(int worker);              // does tasks until none is left
  bool steal(int worker);              // half of another's tasks; false: nobody has any left
  bool enter();                        // joins the current list unless it is closed
  uint32_t await_next(uint32_t seen);  // the next generation; spins, then sleeps

  int spins_ = 0;
  Task task_ = nullptr;
  void* callable_ = nullptr;
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<uint32_t> generation_{0};  // of the task list; a change wakes the workers
  // Who works on the list: kOpen while it may be joined, plus the number that joined. The caller closes it when no task
  // is left and waits for those who joined, not for workers that the system has not got round to waking.
  alignas(64) std::atomic<uint32_t> gate_{0};
  alignas(64) std::atomic<uint32_t> left_{0};        // of those who joined, how many are done
  // What nobody has taken yet of a worker's tasks, [begin, end) in one number. Its worker takes the first, others cut off the end,
  // and no task is put back: of one list, no stretch is seen twice.
  struct alignas(64) Stretch {
    std::atomic<uint64_t> tasks{0};
  };
  std::vector<Stretch> stretches_;  // [size()]
  std::vector<std::thread> workers_;
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> scratch_;  // of all workers
};

}  // namespace shoal
