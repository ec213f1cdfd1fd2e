#include "host/kv_copier.h"

#include <cstring>
#include <optional>
#include <utility>

namespace shoal {

KvCopier::KvCopier(OnCopied on_copied) : on_copied_(std::move(on_copied)), thread_([this] { work(); }) {}

KvCopier::~KvCopier() {
  jobs_.close();
  thread_.join();
}

void KvCopier::work() {
  while (true) {
    const std::optional<Job> job = jobs_.pop(std::chrono::seconds(1));
    if (jobs_.closed()) return;
    if (!job) continue;
    for (const Job::Copy& copy : job->copies) std::memcpy(copy.to, copy.from, job->block_bytes);
    on_copied_(*job);
  }
}

}  // namespace shoal
