// The host tiers of the nodes in this process, readable by one another: KV that is handed over is copied once, from the one
// node's tier into the other's device. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>

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

  // Keeps a node's tier from ending.
  class Reading {
   public:
    explicit operator bool() const { return peer_ != nullptr; }  // false: there is no such node
    // REQUIRES: its slab is bound, and stays so while the block is read.
    const std::byte* block(uint64_t block_bytes, BlockId id) const;

   private:
    friend class KvPeers;
    std::shared_ptr<Peer> peer_;
    std::shared_lock<std::shared_mutex> alive_;
  };
  Reading read(NodeId node) const;

 private:
  struct Peer {
    mutable std::shared_mutex alive;  // shared by readers
    mutable std::mutex slabs;         // of look-ups and changes
    KvStore* tier = nullptr;          // null when it has ended
  };
  mutable std::mutex mutex_;
  std::map<NodeId, std::shared_ptr<Peer>> peers_;
};

}  // namespace shoal
