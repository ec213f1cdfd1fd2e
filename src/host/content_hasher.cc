#include "host/content_hasher.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "host/sha256.h"
#include "host/weights_identity.h"

namespace shoal {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
constexpr int kNice = 19;
constexpr auto kBusyWait = std::chrono::milliseconds(20);

}  // namespace

StatusOr<ModelDigest::Content> content_of(const Checkpoint& checkpoint, const std::function<bool()>& go_on) {
  Sha256 hash;
  for (const auto& file : checkpoint.files) {
    const std::span<const std::byte> bytes = file->bytes();
    hash.add_number(bytes.size());
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      if (!go_on()) return absl::CancelledError("not wanted any more");
      hash.add(bytes.data() + at, std::min(kPieceBytes, bytes.size() - at));
    }
  }
  RETURN_IF_ERROR(add_descriptions(hash, checkpoint));
  RETURN_IF_ERROR(checkpoint.check());
  if (!checkpoint.current()) return data_loss(checkpoint.path, ": was replaced while it was being read");
  return hash.result();
}

ContentHasher::ContentHasher(std::shared_ptr<DigestStore> store, std::function<bool()> busy) : store_(std::move(store)), busy_(std::move(busy)) {
  if (store_ != nullptr) thread_ = std::thread([this] { work(); });
}

ContentHasher::~ContentHasher() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::optional<ModelDigest::Content> ContentHasher::find(const Checkpoint& checkpoint) const {
  return store_ == nullptr ? std::nullopt : store_->find(checkpoint);
}

void ContentHasher::want(std::shared_ptr<const Checkpoint> checkpoint, OnKnown on_known) {
  if (store_ == nullptr) return;
  std::lock_guard lock(mutex_);
  std::erase_if(jobs_, [&](const Job& job) { return job.checkpoint->path == checkpoint->path; });  // loaded again meanwhile
  jobs_.push_back({std::move(checkpoint), std::move(on_known)});
  changed_.notify_one();
}

void ContentHasher::work() {
  (void)::setpriority(PRIO_PROCESS, 0, kNice);  // of this thread, on Linux
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    learn(job);
    lock.lock();
  }
}

// False at the end; waits while the node has work.
bool ContentHasher::may_go_on() {
  std::unique_lock lock(mutex_);
  while (!stopping_ && busy_()) changed_.wait_for(lock, kBusyWait, [this] { return stopping_; });
  return !stopping_;
}

void ContentHasher::learn(const Job& job) {
  if (const auto known = store_->find(*job.checkpoint)) return job.on_known(*known);  // another node of this process has read it
  const auto content = content_of(*job.checkpoint, [this] { return may_go_on(); });
  if (!content.ok()) {
    if (content.status().code() != StatusCode::kCancelled) log_debug("digest: ", content.status().message());  // its next load will say it
    return;
  }
  if (const Status kept = store_->put(*job.checkpoint, *content); !kept.ok()) log_warning(kept.message());
  job.on_known(*content);
}

}  // namespace shoal
