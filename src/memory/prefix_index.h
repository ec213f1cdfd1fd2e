// Which computed KV blocks hold which prefix. A chain: the key of a block is (its predecessor's entry, its 16 tokens),
// compared in full, so that a collision of hashes can never give one user another's context.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "memory/block_pool.h"

namespace shoal {

// A place in the chain. Entry ids are never reused, so a chain whose predecessor was evicted just stops matching.
using PrefixEntry = uint64_t;

class PrefixIndex {
 public:
  // `blocks` outlives the index; every indexed block is held by one count of its own.
  explicit PrefixIndex(BlockPool& blocks) : blocks_(blocks) {}

  // The chain's beginning. Sequences with different salts never share blocks (their K depends on more than the tokens).
  static PrefixEntry root(uint64_t salt) { return salt | kRootBit; }

  struct Match {
    std::vector<BlockId> blocks;  // one count of each now belongs to the caller
    PrefixEntry entry;            // of the last one
  };
  // The longest indexed chain of whole blocks of `tokens`, at most blocks_max. Counts as a use of each.
  Match acquire(PrefixEntry root, std::span<const TokenId> tokens, uint32_t blocks_max);
  struct Probe {
    uint32_t blocks = 0;     // length of that chain
    uint32_t evictable = 0;  // how many of them nobody else holds now
  };
  // What acquire() would find, without taking or touching anything.
  Probe probe(PrefixEntry root, std::span<const TokenId> tokens, uint32_t blocks_max) const;

  // Indexes a computed block that follows `parent`; returns its entry. If the same content is indexed already, the
  // older block stays and its entry is returned.
  PrefixEntry publish(PrefixEntry parent, std::span<const TokenId> tokens, BlockId block);

  // Frees the least recently used block that nobody but the index holds. False if there is none.
  bool evict_one();
  void evict_all();  // all such blocks

  uint32_t evictable() const { return static_cast<uint32_t>(lru_.size()); }
  size_t size() const { return entries_.size(); }

  // Gives up one count of a block that a sequence holds; the index learns here that nobody else needs it.
  void release(BlockId block);

  void check() const;

 private:
  static constexpr PrefixEntry kRootBit = 1ull << 63;

  struct Key {
    PrefixEntry parent;
    std::array<TokenId, kTokensPerBlock> tokens;
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) { return H::combine(std::move(h), key.parent, key.tokens); }
  };
  struct Node {
    Key key;
    PrefixEntry entry;
    BlockId block;
  };
  using Lru = std::list<Node>;

  static Key make_key(PrefixEntry parent, std::span<const TokenId> tokens, uint32_t block);
  void erase(Lru::iterator node);

  BlockPool& blocks_;
  Lru held_;  // blocks that some sequence holds too
  Lru lru_;   // blocks that only the index holds, least recently used first
  absl::flat_hash_map<Key, Lru::iterator> entries_;
  absl::flat_hash_map<BlockId, Lru::iterator> by_block_;
  PrefixEntry next_entry_ = 1;
};

}  // namespace shoal
