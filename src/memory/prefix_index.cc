#include "memory/prefix_index.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {

PrefixIndex::Key PrefixIndex::make_key(PrefixEntry parent, std::span<const TokenId> tokens, uint32_t block) {
  Key key{parent, {}};
  std::copy_n(tokens.begin() + block * kTokensPerBlock, kTokensPerBlock, key.tokens.begin());
  return key;
}

PrefixIndex::Match PrefixIndex::acquire(PrefixEntry root, std::span<const TokenId> tokens, uint32_t blocks_max) {
  Match match{{}, root};
  const auto whole = static_cast<uint32_t>(tokens.size() / kTokensPerBlock);
  for (uint32_t i = 0; i < std::min(whole, blocks_max); ++i) {
    const auto found = entries_.find(make_key(match.entry, tokens, i));
    if (found == entries_.end()) break;
    const Lru::iterator node = found->second;
    if (blocks_.count(node->block) == 1) held_.splice(held_.end(), lru_, node);
    blocks_.share(node->block);
    match.blocks.push_back(node->block);
    match.entry = node->entry;
  }
  return match;
}

PrefixIndex::Probe PrefixIndex::probe(PrefixEntry root, std::span<const TokenId> tokens, uint32_t blocks_max) const {
  const auto whole = static_cast<uint32_t>(tokens.size() / kTokensPerBlock);
  PrefixEntry entry = root;
  Probe probe;
  for (; probe.blocks < std::min(whole, blocks_max); ++probe.blocks) {
    const auto found = entries_.find(make_key(entry, tokens, probe.blocks));
    if (found == entries_.end()) break;
    entry = found->second->entry;
    probe.evictable += blocks_.count(found->second->block) == 1;
  }
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

bool PrefixIndex::evict_one() {
  if (lru_.empty()) return false;
  const Node node = lru_.front();
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
  CHECK_EQ(entries_.size(), lru_.size() + held_.size());
  CHECK_EQ(by_block_.size(), entries_.size());
  for (const Node& node : lru_) CHECK_EQ(blocks_.count(node.block), 1u);
  for (const Node& node : held_) CHECK_GE(blocks_.count(node.block), 2u);
}

}  // namespace shoal
