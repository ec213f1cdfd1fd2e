#include "device/copy_queue.h"

#include <cstring>
#include <utility>

namespace shoal {

CopyQueue::CopyQueue(Locate locate) : locate_(locate), thread_([this] { work(); }) {}

void CopyQueue::end() {
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (auto& jobs : waiting_) jobs.clear();
  for (auto& left : left_) {  // nobody waits for those that are not done
    left = 0;
    left.notify_all();
  }
}

void CopyQueue::start(CopyJob job) {
  const auto lane = static_cast<size_t>(job.lane);
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    left_[lane].fetch_add(1);
    waiting_[lane].push_back(std::move(job));
  }
  changed_.notify_one();
}

void CopyQueue::give_way() const {
  const std::atomic<int>& urgent = left_[static_cast<size_t>(CopyLane::kKvIn)];
  for (int left = urgent.load(); left > 0; left = urgent.load()) urgent.wait(left);
}

bool CopyQueue::overtaken(CopyLane lane) const {
  for (size_t i = 0; i < static_cast<size_t>(lane); ++i) {
    if (left_[i].load(std::memory_order_relaxed) > 0) return true;
  }
  return false;
}

// Of lanes up to `last_lane`.
std::optional<CopyJob> CopyQueue::next(CopyLane last_lane, bool wait) {
  std::unique_lock lock(mutex_);
  const auto first = [&]() -> std::deque<CopyJob>* {
    for (size_t i = 0; i <= static_cast<size_t>(last_lane); ++i) {
      if (!waiting_[i].empty()) return &waiting_[i];
    }
    return nullptr;
  };
  if (wait) changed_.wait(lock, [&] { return ended_ || first() != nullptr; });
  std::deque<CopyJob>* const jobs = first();
  if (ended_ || jobs == nullptr) return std::nullopt;
  CopyJob job = std::move(jobs->front());
  jobs->pop_front();
  return job;
}

void CopyQueue::run(const CopyJob& job) {
  const auto lane = static_cast<size_t>(job.lane);
  for (const CopyJob::Piece& piece : job.pieces) {
    while (overtaken(job.lane)) {
      const std::optional<CopyJob> urgent = next(static_cast<CopyLane>(lane - 1), /*wait=*/false);
      if (!urgent) break;
      run(*urgent);
    }
    if (ended_) return;
    std::memcpy(locate_(piece.to), locate_(piece.from), piece.bytes);
  }
  if (left_[lane].fetch_sub(1) == 1) left_[lane].notify_all();
  if (job.done) job.done();
}

void CopyQueue::work() {
  while (const std::optional<CopyJob> job = next(CopyLane::kKvOut, /*wait=*/true)) run(*job);
}

}  // namespace shoal
