#include "memory/prefix_index.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shoal {

PrefixIndex::Key PrefixIndex::make_key(PrefixEntry parent, std::span<const TokenId> tokens, uint32_t block) {
  Key key{parent, {}};
  std::copy_n(tokens.begin() + block * kTokensPerBlock, kTokensPerBlock, key.tokens.begin());
  return key;
}

// Of the longest chain, or of its part up to the last entry with a state.
uint32_t PrefixIndex::useful_blocks(PrefixEntry root, std::span<const TokenId> tokens, uint32_t blocks_max) const {
  const uint32_t most = std::min(static_cast<uint32_t>(tokens.size() / kTokensPerBlock), blocks_max);
  PrefixEntry entry = root;
  uint32_t useful = 0;
  for (uint32_t i = 0; i < most; ++i) {
    const auto found = entries_.find(make_key(entry, tokens, i));
    if (found == entries_.end()) break;
    entry = found->second->entry;
    if (state_blocks_ == 0 || states_.contains(entry)) useful = i + 1;
  }
  return useful;
}

PrefixIndex::Match PrefixIndex::acquire(PrefixEntry root, std::span<const TokenId> tokens, uint32_t blocks_max) {
  Match match{{}, root, {}};
  const uint32_t useful = useful_blocks(root, tokens, blocks_max);
  for (uint32_t i = 0; i < useful; ++i) {
    const Lru::iterator node = entries_.at(make_key(match.entry, tokens, i));
    if (blocks_.count(node->block) == 1) held_.splice(held_.end(), lru_, node);
    blocks_.share(node->block);
    match.blocks.push_back(node->block);
    match.entry = node->entry;
  }
  if (state_blocks_ == 0 || useful == 0) return match;
  State& state = states_.at(match.entry);
  by_worth_.erase({state.worth, match.entry});
  state.worth = clock_ + state.saved;
  by_worth_.emplace(state.worth, match.entry);
  states_alone_ -= alone(state) ? 1 : 0;
  match.state = state.blocks;
  for (const BlockId block : match.state) blocks_.share(block);
  return match;
}

PrefixIndex::Probe PrefixIndex::probe(PrefixEntry root, std::span<const TokenId> tokens, uint32_t blocks_max) const {
  Probe probe{useful_blocks(root, tokens, blocks_max), 0};
  PrefixEntry entry = root;
  for (uint32_t i = 0; i < probe.blocks; ++i) {
    const Lru::iterator node = entries_.at(make_key(entry, tokens, i));
    entry = node->entry;
    probe.evictable += blocks_.count(node->block) == 1;
  }
  if (state_blocks_ > 0 && probe.blocks > 0 && alone(states_.at(entry))) probe.evictable += state_blocks_;
  return probe;
}

PrefixEntry PrefixIndex::publish(PrefixEntry parent, std::span<const TokenId> tokens, BlockId block) {
  CHECK_EQ(tokens.size(), size_t{kTokensPerBlock});
  const Key key = make_key(parent, tokens, 0);
  if (const auto found = entries_.find(key); found != entries_.end()) {
    if (blocks_.count(found->second->block) == 1) lru_.splice(lru_.end(), lru_, found->second);
    return found->second->entry;
  }
  CHECK(!by_block_.contains(block));
  blocks_.share(block);
  CHECK_GE(blocks_.count(block), 2u);  // the publisher still holds it, so it is not evictable yet
  held_.push_back({key, next_entry_++, block});
  const auto node = std::prev(held_.end());
  entries_[key] = node;
  by_block_[block] = node;
  return node->entry;
}

void PrefixIndex::release(BlockId block) {
  if (blocks_.count(block) == 2) {
    if (const auto found = by_block_.find(block); found != by_block_.end()) {
      lru_.splice(lru_.end(), held_, found->second);
    }
  }
  blocks_.release(block);
}

void PrefixIndex::release_state(std::span<const BlockId> state) {
  if (state.empty()) return;
  if (blocks_.count(state.front()) == 2 && state_fronts_.contains(state.front())) ++states_alone_;
  for (const BlockId block : state) blocks_.release(block);
}

void PrefixIndex::keep_state(PrefixEntry entry, std::vector<BlockId> state, uint32_t saved) {
  CHECK_EQ(state.size(), size_t{state_blocks_});
  if (states_max_ == 0 || states_.contains(entry)) return release_state(state);
  if (states_.size() >= states_max_) evict_state();
  CHECK(state_fronts_.insert(state.front()).second);
  const uint64_t worth = clock_ + saved;
  by_worth_.emplace(worth, entry);
  State& kept = states_[entry] = {std::move(state), saved, worth};
  states_alone_ += alone(kept) ? 1 : 0;
}

void PrefixIndex::drop_state(PrefixEntry entry) {
  const auto found = states_.find(entry);
  if (found == states_.end()) return;
  const State& state = found->second;
  states_alone_ -= alone(state) ? 1 : 0;
  by_worth_.erase({state.worth, entry});
  state_fronts_.erase(state.blocks.front());
  for (const BlockId block : state.blocks) blocks_.release(block);
  states_.erase(found);
}

// That of the least worth.
bool PrefixIndex::evict_state() {
  if (by_worth_.empty()) return false;
  const auto [worth, entry] = *by_worth_.begin();
  clock_ = worth;
  drop_state(entry);
  return true;
}

bool PrefixIndex::evict_one() {
  if (lru_.empty()) return evict_state();
  const Node node = lru_.front();
  drop_state(node.entry);
  lru_.pop_front();
  entries_.erase(node.key);
  by_block_.erase(node.block);
  blocks_.release(node.block);
  return true;
}

void PrefixIndex::evict_all() {
  while (evict_one()) {
  }
}

void PrefixIndex::check() const {
  CHECK_LE(states_.size(), size_t{states_max_});
  CHECK_EQ(by_worth_.size(), states_.size());
  CHECK_EQ(state_fronts_.size(), states_.size());
  uint32_t states_alone = 0;
  for (const auto& [entry, state] : states_) {
    CHECK_EQ(state.blocks.size(), size_t{state_blocks_});
    CHECK(by_worth_.contains({state.worth, entry}) && state_fronts_.contains(state.blocks.front()));
    for (const BlockId block : state.blocks) CHECK_GE(blocks_.count(block), 1u);
    states_alone += alone(state) ? 1 : 0;
  }
  CHECK_EQ(states_alone, states_alone_);
  CHECK_EQ(entries_.size(), lru_.size() + held_.size());
  CHECK_EQ(by_block_.size(), entries_.size());
  for (const Node& node : lru_) CHECK_EQ(blocks_.count(node.block), 1u);
  for (const Node& node : held_) CHECK_GE(blocks_.count(node.block), 2u);
}

}  // namespace shoal
