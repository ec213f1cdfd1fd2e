#include "memory/prefix_index.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shoal {
namespace {

// Within blocks that follow the same prefix: all of them are compared with what comes next.
constexpr size_t kTailsMax = 32;

}  // namespace

PrefixIndex::Key PrefixIndex::make_key(PrefixEntry parent, std::span<const TokenId> tokens) {
  Key key{parent, {}};
  key.tokens.fill(-1);
  std::copy_n(tokens.begin(), std::min<size_t>(tokens.size(), kTokensPerBlock), key.tokens.begin());
  return key;
}

// The longest chain, or its part up to the last place with a state.
PrefixIndex::Useful PrefixIndex::useful(PrefixEntry root, std::span<const TokenId> tokens, uint32_t blocks_max) const {
  Useful useful;
  if (blocks_max == 0) return useful;
  PrefixEntry entry = root;
  for (uint32_t i = 0;; ++i) {
    const auto left = tokens.subspan(std::min<size_t>(tokens.size(), size_t{i} * kTokensPerBlock));
    if (const auto tails = tails_.find(entry); tails != tails_.end()) {
      for (const auto& [of, count] : tails->second) {
        const Lru::iterator node = by_entry_.at(of);
        const bool matches = count <= left.size() && std::equal(left.begin(), left.begin() + count, node->key.tokens.begin());
        if (matches && (useful.blocks < i || useful.tail < count)) useful = {i, count, node};
      }
    }
    if (i == blocks_max || left.size() < kTokensPerBlock) return useful;
    const auto found = entries_.find(make_key(entry, left));
    if (found == entries_.end()) return useful;
    entry = found->second->entry;
    if (state_blocks_ == 0 || states_.contains({entry, kTokensPerBlock})) useful = {i + 1, 0, {}};
  }
}

void PrefixIndex::hold(Lru::iterator node) {
  if (blocks_.count(node->block) == 1) held_.splice(held_.end(), lru_, node);
  blocks_.share(node->block);
}

PrefixIndex::Match PrefixIndex::acquire(PrefixEntry root, std::span<const TokenId> tokens, uint32_t blocks_max) {
  Match match;
  match.entry = root;
  const Useful found = useful(root, tokens, blocks_max);
  for (uint32_t i = 0; i < found.blocks; ++i) {
    const Lru::iterator node = entries_.at(make_key(match.entry, tokens.subspan(size_t{i} * kTokensPerBlock)));
    hold(node);
    match.blocks.push_back(node->block);
    match.entry = node->entry;
  }
  if (state_blocks_ == 0 || found.blocks + found.tail == 0) return match;
  StateKey key{match.entry, kTokensPerBlock};
  if (found.tail > 0) {
    hold(found.of);
    match.tail = found.tail;
    match.tail_block = found.of->block;
    key = {found.of->entry, found.tail};
  }
  State& state = states_.at(key);
  by_worth_.erase({state.worth, key});
  state.worth = clock_ + state.saved;
  by_worth_.emplace(state.worth, key);
  states_alone_ -= alone(state) ? 1 : 0;
  match.state = state.blocks;
  for (const BlockId block : match.state) blocks_.share(block);
  return match;
}

PrefixIndex::Probe PrefixIndex::probe(PrefixEntry root, std::span<const TokenId> tokens, uint32_t blocks_max) const {
  const Useful found = useful(root, tokens, blocks_max);
  Probe probe{found.blocks, found.tail, 0};
  PrefixEntry entry = root;
  for (uint32_t i = 0; i < probe.blocks; ++i) {
    const Lru::iterator node = entries_.at(make_key(entry, tokens.subspan(size_t{i} * kTokensPerBlock)));
    entry = node->entry;
    probe.evictable += blocks_.count(node->block) == 1;
  }
  if (state_blocks_ == 0 || found.blocks + found.tail == 0) return probe;
  if (found.tail > 0) probe.evictable += blocks_.count(found.of->block) == 1;
  if (alone(states_.at(found.tail > 0 ? StateKey{found.of->entry, found.tail} : StateKey{entry, kTokensPerBlock}))) probe.evictable += state_blocks_;
  return probe;
}

PrefixEntry PrefixIndex::publish(PrefixEntry parent, std::span<const TokenId> tokens, BlockId block) {
  CHECK_EQ(tokens.size(), size_t{kTokensPerBlock});
  return add(make_key(parent, tokens), block);
}

PrefixEntry PrefixIndex::publish_part(PrefixEntry parent, std::span<const TokenId> tokens, BlockId block) {
  CHECK(!tokens.empty() && tokens.size() < kTokensPerBlock);
  return add(make_key(parent, tokens), block);
}

PrefixEntry PrefixIndex::add(const Key& key, BlockId block) {
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
  if (state_blocks_ > 0) by_entry_[node->entry] = node;
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

void PrefixIndex::keep_state(PrefixEntry entry, uint32_t tokens, std::vector<BlockId> state, uint32_t saved) {
  CHECK_EQ(state.size(), size_t{state_blocks_});
  CHECK(tokens > 0 && tokens <= kTokensPerBlock);
  const StateKey key{entry, tokens};
  if (states_max_ == 0 || states_.contains(key) || !by_entry_.contains(entry)) return release_state(state);
  if (states_.size() >= states_max_) evict_state();
  CHECK(state_fronts_.insert(state.front()).second);
  const uint64_t worth = clock_ + saved;
  by_worth_.emplace(worth, key);
  State& kept = states_[key] = {std::move(state), saved, worth};
  states_alone_ += alone(kept) ? 1 : 0;
  if (tokens == kTokensPerBlock) return;
  std::vector<StateKey>& tails = tails_[by_entry_.at(entry)->key.parent];
  if (tails.size() >= kTailsMax) drop_state(StateKey(tails.front()));
  tails.push_back(key);
}

void PrefixIndex::drop_state(StateKey key) {
  const auto found = states_.find(key);
  if (found == states_.end()) return;
  const State& state = found->second;
  states_alone_ -= alone(state) ? 1 : 0;
  by_worth_.erase({state.worth, key});
  state_fronts_.erase(state.blocks.front());
  for (const BlockId block : state.blocks) blocks_.release(block);
  states_.erase(found);
  if (key.second == kTokensPerBlock) return;
  const auto tails = tails_.find(by_entry_.at(key.first)->key.parent);
  std::erase(tails->second, key);
  if (tails->second.empty()) tails_.erase(tails);
}

// That of the least worth.
bool PrefixIndex::evict_state() {
  if (by_worth_.empty()) return false;
  const auto [worth, key] = *by_worth_.begin();
  clock_ = worth;
  drop_state(key);
  return true;
}

bool PrefixIndex::evict_one() {
  if (lru_.empty()) return evict_state();
  const Node node = lru_.front();
  if (by_entry_.contains(node.entry)) {
    for (uint32_t tokens = 1; tokens <= kTokensPerBlock; ++tokens) drop_state({node.entry, tokens});
    by_entry_.erase(node.entry);
  }
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
  size_t tails = 0;
  for (const auto& [before, of] : tails_) {
    CHECK(!of.empty() && of.size() <= kTailsMax);
    for (const StateKey& key : of) CHECK(states_.contains(key) && by_entry_.at(key.first)->key.parent == before);
    tails += of.size();
  }
  for (const auto& [key, state] : states_) {
    CHECK_EQ(state.blocks.size(), size_t{state_blocks_});
    CHECK(by_entry_.contains(key.first));
    tails -= key.second < kTokensPerBlock ? 1 : 0;
    CHECK(by_worth_.contains({state.worth, key}) && state_fronts_.contains(state.blocks.front()));
    for (const BlockId block : state.blocks) CHECK_GE(blocks_.count(block), 1u);
    states_alone += alone(state) ? 1 : 0;
  }
  CHECK_EQ(states_alone, states_alone_);
  CHECK_EQ(tails, 0u);
  CHECK_EQ(by_entry_.size(), state_blocks_ > 0 ? entries_.size() : 0u);
  CHECK_EQ(entries_.size(), lru_.size() + held_.size());
  CHECK_EQ(by_block_.size(), entries_.size());
  for (const Node& node : lru_) CHECK_EQ(blocks_.count(node.block), 1u);
  for (const Node& node : held_) CHECK_GE(blocks_.count(node.block), 2u);
}

}  // namespace shoal
