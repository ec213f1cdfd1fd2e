// The tier under a device: KV of requests whose turn is not now, in the memory of the machine. The same scheme as on the
// device (pages, slabs by shape class), within a budget of its own. Ids only, no bytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "memory/block_pool.h"
#include "memory/page_pool.h"

namespace shoal {

enum class Tier : uint8_t { kDevice, kHost };

// One block from a tier to the other; `from` and `to` are ids of the same shape class.
struct KvCopy {
  BlockId from;
  BlockId to;
};

// Blocks of one sequence on their way. Until the copies are done neither side is free or used for anything else: they are
// on the move list of their engine.
struct KvMove {
  uint64_t id = 0;  // rises by one per move of an engine
  RequestId request;
  bool remote = false;  // `from` are blocks of another node's host tier
  Tier to = Tier::kHost;
  uint64_t block_bytes = 0;
  std::vector<KvCopy> copies;
};

class HostTier {
 public:
  explicit HostTier(uint32_t pages) : pages_(pages) {}

  // Blocks of this shape class; null if the tier has no pages at all. Valid as long as the tier.
  BlockPool* blocks(uint64_t block_bytes);

  uint32_t pages() const { return pages_.capacity(); }
  uint32_t pages_free() const { return pages_.free(); }
  uint32_t pages_reached() const { return pages_.reached(); }  // those before it have been used, and may have memory
  void forget_reached() { pages_.forget_reached(); }           // REQUIRES: no page is used
  uint32_t blocks_used(uint64_t block_bytes) const;
  std::vector<SlabChange> take_changes();  // of all classes, releases first
  void check() const;                      // pages bound + free == pages

 private:
  PagePool pages_;
  std::map<uint64_t, std::unique_ptr<BlockPool>> classes_;  // by bytes per block
};

}  // namespace shoal
