// Which computed KV blocks hold which prefix. A chain: the key of a block is (its predecessor's entry, its 16 tokens),
// compared in full, so that a collision of hashes can never give one user another's context.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/ids.h"
#include "memory/block_pool.h"

namespace shoal {

// A place in the chain. Entry ids are never reused, so a chain whose predecessor was evicted just stops matching.
using PrefixEntry = uint64_t;

class PrefixIndex {
 public:
  // `blocks` outlives the index; every indexed block is held by one count of its own. Of a model whose sequences have a state of
  // `state_blocks` blocks besides, a chain is of use up to a place where its state is kept: at the end of a block, or within one. At most
  // `states_max` are.
  explicit PrefixIndex(BlockPool& blocks, uint32_t state_blocks = 0, uint32_t states_max = 0)
      : blocks_(blocks), state_blocks_(state_blocks), states_max_(states_max) {}

  // The chain's beginning. Sequences with different salts never share blocks (their K depends on more than the tokens).
  static PrefixEntry root(uint64_t salt) { return salt | kRootBit; }

  struct Match {
    std::vector<BlockId> blocks;  // one count of each now belongs to the caller
    PrefixEntry entry;            // of the last one
    uint32_t tail = 0;            // so many tokens more, fewer than a block has, are the first ones of `tail_block`
    std::optional<BlockId> tail_block;  // to be copied, not written to; likewise
    std::vector<BlockId> state;   // after all of them, likewise
  };
  // The longest indexed chain of blocks of `tokens` that is of use, at most blocks_max whole ones. Counts as a use of each.
  Match acquire(PrefixEntry root, std::span<const TokenId> tokens, uint32_t blocks_max);
  struct Probe {
    uint32_t blocks = 0;     // length of that chain
    uint32_t tail = 0;       // tokens of the block after it
    uint32_t evictable = 0;  // how many of these blocks, and of those of the state, nobody else holds now
  };
  // What acquire() would find, without taking or touching anything.
  Probe probe(PrefixEntry root, std::span<const TokenId> tokens, uint32_t blocks_max) const;

  // Indexes a computed block that follows `parent`; returns its entry. If the same content is indexed already, the
  // older block stays and its entry is returned.
  PrefixEntry publish(PrefixEntry parent, std::span<const TokenId> tokens, BlockId block);
  // Likewise of a block with fewer tokens that nobody writes to any more: of use up to the states that are kept in it.
  PrefixEntry publish_part(PrefixEntry parent, std::span<const TokenId> tokens, BlockId block);

  // Keeps the state after the first `tokens` tokens of the block of `entry`: counts of its blocks are the index's own from here on.
  // `saved`: tokens that need not be computed again because of it. If there is one already, or the entry is no more, these blocks come free.
  void keep_state(PrefixEntry entry, uint32_t tokens, std::vector<BlockId> state, uint32_t saved);
  // What was kept after that block is of no use any more. No error if there is none.
  void drop_state(PrefixEntry entry) { drop_state({entry, kTokensPerBlock}); }
  uint32_t states() const { return static_cast<uint32_t>(states_.size()); }

  // Frees the least recently used block that nobody but the index holds, with the state after it; then states. False if there is
  // none.
  bool evict_one();
  void evict_all();  // all such blocks

  uint32_t evictable() const { return static_cast<uint32_t>(lru_.size()) + states_alone_ * state_blocks_; }
  size_t size() const { return entries_.size(); }

  // Gives up one count of a block that a sequence holds; the index learns here that nobody else needs it.
  void release(BlockId block);
  // Likewise of the blocks of a state.
  void release_state(std::span<const BlockId> state);

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
  // A state is worth the tokens that it saves, and more the later it was used (GreedyDual, Young 1994): all states take as much.
  struct State {
    std::vector<BlockId> blocks;
    uint32_t saved;
    uint64_t worth;
  };
  using StateKey = std::pair<PrefixEntry, uint32_t>;  // after so many tokens of its block
  using Lru = std::list<Node>;
  struct Useful {
    uint32_t blocks = 0;  // of a chain; then
    uint32_t tail = 0;    // tokens of
    Lru::iterator of{};   // this one
  };

  // Where not so many tokens are left, none of a sequence: they are no ids.
  static Key make_key(PrefixEntry parent, std::span<const TokenId> tokens);
  PrefixEntry add(const Key& key, BlockId block);
  void hold(Lru::iterator node);
  Useful useful(PrefixEntry root, std::span<const TokenId> tokens, uint32_t blocks_max) const;
  void drop_state(StateKey key);
  bool alone(const State& state) const { return blocks_.count(state.blocks.front()) == 1; }
  bool evict_state();

  BlockPool& blocks_;
  const uint32_t state_blocks_, states_max_;
  Lru held_;  // blocks that some sequence holds too
  Lru lru_;   // blocks that only the index holds, least recently used first
  absl::flat_hash_map<Key, Lru::iterator> entries_;
  absl::flat_hash_map<BlockId, Lru::iterator> by_block_;
  // Only of a model with states:
  absl::flat_hash_map<PrefixEntry, Lru::iterator> by_entry_;
  absl::flat_hash_map<StateKey, State> states_;
  absl::flat_hash_map<PrefixEntry, std::vector<StateKey>> tails_;  // those of states_ within a block, by the entry before it
  std::set<std::pair<uint64_t, StateKey>> by_worth_;     // of these states; of equal ones the one whose block was indexed first goes first
  absl::flat_hash_set<BlockId> state_fronts_;            // their first blocks
  uint32_t states_alone_ = 0;                            // those of them that only the index holds
  uint64_t clock_ = 0;                              // worth of the state that was evicted last
  PrefixEntry next_entry_ = 1;
};

}  // namespace shoal
