// The host tiers of the nodes in this process, readable by one another: KV that is handed over is copied once, from the one
// node's tier into the other's device. Thread-safe.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "memory/block_pool.h"
#include "runner/kv_store.h"

namespace shoal {

class KvPeers {
 private:
  struct Peer;

 public:
  // A node's tier, as long as this lives: readers find it, and its end waits for them.
  class Attachment {
   public:
    Attachment(KvPeers& peers, NodeId node, KvStore& tier);
    ~Attachment();
    Attachment(const Attachment&) = delete;
    Attachment& operator=(const Attachment&) = delete;

    // As KvStore::apply(), while others may look up blocks of other slabs.
    Status apply(std::span<const SlabChange> changes);

   private:
    KvPeers& peers_;
    const NodeId node_;
    const std::shared_ptr<Peer> peer_;
  };

  // Keeps a node's tier from ending; may end on another thread than it began.
  class Reading {
   public:
    Reading() = default;
    Reading(Reading&& other) noexcept : peer_(std::move(other.peer_)) {}
    Reading& operator=(Reading&& other) = delete;
    ~Reading();

    explicit operator bool() const { return peer_ != nullptr; }  // false: there is no such node
    // REQUIRES: its slab is bound, and stays so while the block is read.
    DeviceAddress block(uint64_t block_bytes, BlockId id) const;
    std::vector<ByteRun> runs(uint64_t block_bytes, std::span<const BlockId> blocks) const;  // as KvStore's

   private:
    friend class KvPeers;
    explicit Reading(std::shared_ptr<Peer> peer) : peer_(std::move(peer)) {}
    std::shared_ptr<Peer> peer_;
  };
  Reading read(NodeId node) const;

 private:
  struct Peer {
    mutable std::mutex mutex;       // of all that follows, and of look-ups in the tier
    std::condition_variable unread;
    KvStore* tier = nullptr;        // null when it has ended
    int readers = 0;
  };
  mutable std::mutex mutex_;
  std::map<NodeId, std::shared_ptr<Peer>> peers_;
};

}  // namespace shoal
