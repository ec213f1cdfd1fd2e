// The experts that a server holds, by model: loaded by one thread at a time, seen by the one that computes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "device/thread_pool.h"
#include "experts/server.h"

namespace shoal {

class Holdings {
 public:
  // What is held at a moment: by model, by index of the expert; null: not held.
  struct Snapshot {
    uint32_t version = 0;
    std::vector<std::vector<std::shared_ptr<const HeldExpert>>> models;
  };

  Holdings(std::vector<ExpertModel> models, uint64_t memory_bytes, int threads);

  // All of these, or none of them.
  Status hold(size_t model, const ExpertSet& wanted);
  void drop(size_t model, const ExpertSet& unwanted);
  // One expert of each model, computed twice on different numbers of rows: what comes out is finite and does not depend on the others.
  // DataLoss if it is not finite.
  Status self_test() const;

  std::shared_ptr<const Snapshot> now() const;
  uint32_t version() const { return version_.load(std::memory_order_acquire); }
  ExpertSet set(size_t model) const;
  uint64_t bytes() const;
  uint64_t memory_bytes() const { return memory_bytes_; }

  const std::vector<ExpertModel>& models() const { return models_; }
  const ExpertShape& shape(size_t model) const { return shapes_[model]; }
  std::optional<size_t> find(uint64_t stamp) const;

 private:
  const std::vector<ExpertModel> models_;
  const uint64_t memory_bytes_;
  std::vector<ExpertShape> shapes_;
  ThreadPool load_threads_;
  std::mutex changing_;        // held while something is loaded
  mutable std::mutex mutex_;   // of the next
  std::shared_ptr<const Snapshot> now_;
  std::atomic<uint32_t> version_{1};
};

}  // namespace shoal
