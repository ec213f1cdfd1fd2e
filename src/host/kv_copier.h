// Copies KV blocks between the tiers, on a thread of its own: what comes back to the device before what leaves it, even in
// the middle of a job, each kind in the order it was asked for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "host/kv_peers.h"

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
    // Instead of Copy::from: blocks of another node's host tier, in the order of the copies.
    std::optional<NodeId> source;
    std::vector<BlockId> blocks;
    bool urgent = false;  // back to the device: somebody waits to compute with it
  };
  // Runs on the copier's thread, after the job's last byte; not ok if the source node has ended.
  using OnCopied = std::function<void(const Job& job, bool ok)>;

  // `peers` outlives the copier.
  KvCopier(const KvPeers& peers, OnCopied on_copied);
  ~KvCopier();  // jobs not begun are not done

  // The memory on both sides stays mapped until OnCopied.
  void start(Job job);

  // Waits while urgent jobs are under way: for those who use the machine's memory for what can wait. Any thread.
  void give_way() const;

 private:
  void work();
  std::optional<Job> next(bool urgent_only);
  void run(const Job& job);

  const KvPeers& peers_;
  const OnCopied on_copied_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> urgent_, others_;
  bool closed_ = false;
  std::atomic<int> urgent_left_{0};  // jobs, begun or not
  std::thread thread_;
};

}  // namespace shoal
