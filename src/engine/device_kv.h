// K and V of one engine's sequences on the device: the blocks that they hold, and the prefixes that they share. Ids only.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sequence.h"
#include "memory/block_pool.h"
#include "memory/prefix_index.h"

namespace shoal {

class DeviceKv {
 public:
  // Prompts longer than `salt_above` share blocks with prompts of equal length only. `blocks` outlives this.
  // A sequence has a state of `state_blocks` blocks besides its K and V (0: none), of which the index keeps at most `states_max`.
  DeviceKv(BlockPool& blocks, bool share_prefixes, uint32_t salt_above, uint32_t state_blocks = 0, uint32_t states_max = 0);
  ~DeviceKv();  // gives up the prefixes; REQUIRES: every sequence was released

  // What take_prefix() would find.
  PrefixIndex::Probe find_prefix(const Sequence& s) const;
  // Gives it the blocks of its longest computed prefix, which may end within one more, state.tail; false if it can share none, and
  // nothing was looked up. REQUIRES: it holds no block.
  bool take_prefix(Sequence& s);
  // Until its blocks cover so many tokens. REQUIRES: as many are available.
  void grow(Sequence& s, uint32_t tokens);
  // The states that a sequence needs beside the one it has: blocks_for_states() more. REQUIRES: as many are available.
  void grow_states(Sequence& s);
  uint32_t blocks_for_states() const { return 2 * state_blocks_; }
  uint32_t state_blocks() const { return state_blocks_; }
  // One for itself, to be copied to. REQUIRES: as many blocks are available.
  void take_state(Sequence& s) { s.state.now = allocate_state(); }
  // Whether the state is to be kept while tokens [begin, end) are computed, as it is worth keeping and there is room: state.kept_at.
  bool plan_kept_state(Sequence& s, uint32_t begin, uint32_t end);
  // The step counted for nothing: what was to be kept of it is room for the next.
  void forget_kept_state(Sequence& s) { release_state(s.state.kept); }
  // The step is done: the state that it wrote is the sequence's.
  void advance_state(Sequence& s);
  // Lets others share the blocks that are full of computed tokens.
  void publish(Sequence& s);
  // It ends as it should: its last state is kept, with the block that is not full.
  void publish_end(Sequence& s);
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
  BlockId allocate_block();
  std::vector<BlockId> allocate_state();
  void release_state(std::vector<BlockId>& state);
  void drop_tail(Sequence& s);
  void keep_planned(Sequence& s, PrefixEntry entry, uint32_t begin);
  void keep(Sequence& s, PrefixEntry entry, uint32_t tokens);
  PrefixEntry root_for(const Sequence& s) const;
  uint32_t matchable_blocks(const Sequence& s) const;

  BlockPool& blocks_;
  const bool share_prefixes_;
  const uint32_t salt_above_, state_blocks_;
  PrefixIndex index_;
  uint64_t weights_ = 0;  // how often prefixes were forgotten
};

}  // namespace shoal
