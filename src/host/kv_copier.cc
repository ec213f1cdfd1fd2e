#include "host/kv_copier.h"

#include <cstring>
#include <utility>

namespace shoal {

KvCopier::KvCopier(const KvPeers& peers, OnCopied on_copied) : peers_(peers), on_copied_(std::move(on_copied)), thread_([this] { work(); }) {}

KvCopier::~KvCopier() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void KvCopier::start(Job job) {
  {
    std::lock_guard lock(mutex_);
    if (job.urgent) urgent_left_.fetch_add(1);
    (job.urgent ? urgent_ : others_).push_back(std::move(job));
  }
  changed_.notify_one();
}

void KvCopier::give_way() const {
  for (int left = urgent_left_.load(); left > 0; left = urgent_left_.load()) urgent_left_.wait(left);
}

std::optional<KvCopier::Job> KvCopier::next(bool urgent_only) {
  std::unique_lock lock(mutex_);
  if (!urgent_only) changed_.wait(lock, [&] { return closed_ || !urgent_.empty() || !others_.empty(); });
  std::deque<Job>& queue = urgent_only || !urgent_.empty() ? urgent_ : others_;
  if (closed_ || queue.empty()) return std::nullopt;
  Job job = std::move(queue.front());
  queue.pop_front();
  return job;
}

void KvCopier::run(const Job& job) {
  KvPeers::Reading source;
  if (job.source) source = peers_.read(*job.source);
  const bool ok = !job.source || source;
  for (size_t i = 0; ok && i < job.copies.size(); ++i) {
    while (!job.urgent && urgent_left_.load() > 0) {
      const std::optional<Job> first = next(/*urgent_only=*/true);
      if (!first) break;
      run(*first);
    }
    const std::byte* from = job.source ? source.block(job.block_bytes, job.blocks[i]) : job.copies[i].from;
    std::memcpy(job.copies[i].to, from, job.block_bytes);
  }
  if (job.urgent && urgent_left_.fetch_sub(1) == 1) urgent_left_.notify_all();
  on_copied_(job, ok);
}

void KvCopier::work() {
  while (const std::optional<Job> job = next(/*urgent_only=*/false)) run(*job);
  urgent_left_ = 0;  // nobody waits for those that are not done
  urgent_left_.notify_all();
}

}  // namespace shoal
