#include "device/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal {
namespace {

constexpr int kSpins = 2000;  // some 40-100 us: longer than the gaps inside a step, shorter than those between steps

constexpr uint32_t kOpen = 1u << 31;

// A stretch of tasks in one number.
constexpr uint64_t stretch(uint64_t begin, uint64_t end) { return begin << 32 | end; }
constexpr uint64_t begin_of(uint64_t tasks) { return tasks >> 32; }
constexpr uint64_t end_of(uint64_t tasks) { return tasks & 0xffffffff; }
constexpr bool none_of(uint64_t tasks) { return begin_of(tasks) >= end_of(tasks); }

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void bind_thread(pthread_t thread, std::span<const int> cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  pthread_setaffinity_np(thread, sizeof(set), &set);
}

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void bind_this_thread(const std::vector<int>& cpus) {
  if (!cpus.empty()) bind_thread(pthread_self(), cpus);
}

ThreadPool::ThreadPool(const ThreadPoolOptions& options) : stretches_(static_cast<size_t>(std::max(options.threads, 1))) {
  CHECK_GE(options.threads, 1);
  const std::vector<int> allowed = allowed_cpus();
  const size_t threads = static_cast<size_t>(options.threads);
  scratch_.reset(static_cast<std::byte*>(std::aligned_alloc(size_t{2} << 20, round_up(threads * kScratchBytes, size_t{2} << 20))));
  CHECK(scratch_ != nullptr);
  const std::vector<int>& cpus = options.cpus.empty() ? allowed : options.cpus;
  if (threads <= cpus.size()) spins_ = kSpins;
  const bool pin = options.pin && threads <= cpus.size();
  workers_.reserve(threads - 1);
  for (size_t worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { work(static_cast<int>(worker)); });
    if (pin) bind_thread(workers_.back().native_handle(), {&cpus[worker], 1});
    if (!pin && !options.cpus.empty()) bind_thread(workers_.back().native_handle(), cpus);
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(size_t tasks, Task task, void* callable) {
  task_ = task;
  callable_ = callable;
  CHECK_LE(tasks, UINT32_MAX);
  const size_t workers = stretches_.size();
  for (size_t w = 0; w < workers; ++w) stretches_[w].tasks.store(stretch(tasks * w / workers, tasks * (w + 1) / workers), std::memory_order_relaxed);
  left_.store(0, std::memory_order_relaxed);
  gate_.store(kOpen, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  drain(0);
  const uint32_t joined = gate_.exchange(0, std::memory_order_acq_rel) & ~kOpen;
  for (int spin = 0;; ++spin) {
    const uint32_t left = left_.load(std::memory_order_acquire);
    if (left == joined) return;
    if (spin < spins_) {
      cpu_relax();
    } else {
      left_.wait(left, std::memory_order_acquire);
    }
  }
}

bool ThreadPool::enter() {
  uint32_t gate = gate_.load(std::memory_order_acquire);
  while ((gate & kOpen) != 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel, std::memory_order_acquire)) return true;
  }
  return false;
}

void ThreadPool::drain(int worker) {
  std::atomic<uint64_t>& own = stretches_[static_cast<size_t>(worker)].tasks;
  do {
    for (uint64_t tasks = own.load(std::memory_order_relaxed); !none_of(tasks);) {
      const uint64_t task = begin_of(tasks);
      if (!own.compare_exchange_weak(tasks, stretch(task + 1, end_of(tasks)), std::memory_order_relaxed)) continue;
      task_(callable_, task, worker);
      tasks = own.load(std::memory_order_relaxed);
    }
  } while (steal(worker));
}

bool ThreadPool::steal(int worker) {
  for (size_t i = 1; i < stretches_.size(); ++i) {
    std::atomic<uint64_t>& other = stretches_[(static_cast<size_t>(worker) + i) % stretches_.size()].tasks;
    uint64_t tasks = other.load(std::memory_order_relaxed);
    while (!none_of(tasks)) {
      const uint64_t begin = begin_of(tasks), end = end_of(tasks), middle = begin + (end - begin) / 2;
      if (!other.compare_exchange_weak(tasks, stretch(begin, middle), std::memory_order_relaxed)) continue;
      stretches_[static_cast<size_t>(worker)].tasks.store(stretch(middle, end), std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

uint32_t ThreadPool::await_next(uint32_t seen) {
  for (int spin = 0; spin < spins_; ++spin) {
    const uint32_t now = generation_.load(std::memory_order_acquire);
    if (now != seen) return now;
    cpu_relax();
  }
  generation_.wait(seen, std::memory_order_acquire);
  return generation_.load(std::memory_order_acquire);
}

void ThreadPool::work(int worker) {
  uint32_t seen = 0;
  while (true) {
    seen = await_next(seen);
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (!enter()) continue;
    drain(worker);
    left_.fetch_add(1, std::memory_order_release);
    left_.notify_one();
  }
}

}  // namespace shoal
