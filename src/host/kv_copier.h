// Copies KV blocks between the tiers, on a thread of its own, in the order they were asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "base/queue.h"
#include "base/time.h"

namespace shoal {

class KvCopier {
 public:
  struct Job {
    ModelId model;
    uint64_t move = 0;
    uint64_t block_bytes = 0;
    struct Copy {
      std::byte* to;
      const std::byte* from;
    };
    std::vector<Copy> copies;
  };
  // Runs on the copier's thread, after the job's last byte.
  using OnCopied = std::function<void(const Job& job)>;

  explicit KvCopier(OnCopied on_copied);
  ~KvCopier();  // jobs not begun are not done

  // The memory on both sides stays mapped until OnCopied.
  void start(Job job) { jobs_.push(std::move(job)); }

 private:
  void work();

  const OnCopied on_copied_;
  BoundedQueue<Job> jobs_{4096};
  std::thread thread_;
};

}  // namespace shoal
