// K and V of one engine's sequences on the device: the blocks that they hold, and the prefixes that they share. Ids only.
#pragma once

#include <cstdint>

#include "engine/sequence.h"
#include "memory/block_pool.h"
#include "memory/prefix_index.h"

namespace shoal {

class DeviceKv {
 public:
  // Prompts longer than `salt_above` share blocks with prompts of equal length only. `blocks` outlives this.
  DeviceKv(BlockPool& blocks, bool share_prefixes, uint32_t salt_above);
  ~DeviceKv();  // gives up the prefixes; REQUIRES: every sequence was released

  // What take_prefix() would find.
  PrefixIndex::Probe find_prefix(const Sequence& s) const;
  // Gives it the blocks of its longest computed prefix; false if it can share none, and nothing was looked up.
  // REQUIRES: it holds no block.
  bool take_prefix(Sequence& s);
  // Until its blocks cover so many tokens. REQUIRES: as many are available.
  void grow(Sequence& s, uint32_t tokens);
  // Lets others share the blocks that are full of computed tokens.
  void publish(Sequence& s);
  // Gives its blocks back: free at once, but for those that the index or others hold.
  void release(Sequence& s);

  uint32_t available() const { return index_.evictable() + blocks_.obtainable(); }  // for growth
  uint32_t cached() const { return index_.evictable(); }                           // only the index holds them
  uint32_t freed_by(const Sequence& s) const;                                       // if it were released
  uint64_t block_bytes() const { return blocks_.block_bytes(); }
  void drop_cached() { index_.evict_all(); }
  // What is computed so far is of other weights than what will be: sequences that begin from now on find none of it.
  void forget_prefixes();

  void check(const Sequence& s) const;  // every block is held
  void check() const { index_.check(); }

 private:
  PrefixEntry root_for(const Sequence& s) const;
  uint32_t matchable_blocks(const Sequence& s) const;

  BlockPool& blocks_;
  const bool share_prefixes_;
  const uint32_t salt_above_;
  PrefixIndex index_;
  uint64_t weights_ = 0;  // how often prefixes were forgotten
};

}  // namespace shoal
