#include "engine/device_kv.h"

#include <optional>
#include <span>
#include <utility>

#include "base/check.h"

namespace shoal {

DeviceKv::DeviceKv(BlockPool& blocks, bool share_prefixes, uint32_t salt_above)
    : blocks_(blocks), share_prefixes_(share_prefixes), salt_above_(salt_above), index_(blocks) {}

DeviceKv::~DeviceKv() { index_.evict_all(); }

PrefixEntry DeviceKv::root_for(const Sequence& s) const {
  const uint64_t length = s.prompt_length() > salt_above_ ? s.prompt_length() : 0;
  return PrefixIndex::root(weights_ << 32 | length);
}

// At least one token is left to compute, or there would be no logits; scoring needs the logits of every token.
uint32_t DeviceKv::matchable_blocks(const Sequence& s) const {
  return share_prefixes_ && !s.scores_prompt() ? (s.known() - 1) / kTokensPerBlock : 0;
}

PrefixIndex::Probe DeviceKv::find_prefix(const Sequence& s) const { return index_.probe(root_for(s), s.tokens, matchable_blocks(s)); }

bool DeviceKv::take_prefix(Sequence& s) {
  CHECK(s.blocks.empty());
  const uint32_t matchable = matchable_blocks(s);
  PrefixIndex::Match match = index_.acquire(root_for(s), s.tokens, matchable);
  s.blocks = std::move(match.blocks);
  s.published = static_cast<uint32_t>(s.blocks.size());
  s.entry = match.entry;
  s.computed = s.published * kTokensPerBlock;
  return matchable > 0;
}

void DeviceKv::grow(Sequence& s, uint32_t tokens) {
  while (s.blocks.size() < blocks_for(tokens)) {
    std::optional<BlockId> block = blocks_.allocate();
    if (!block) {
      CHECK(index_.evict_one());  // the plan counted evictable blocks
      block = blocks_.allocate();
      CHECK(block.has_value());
    }
    s.blocks.push_back(*block);
  }
}

void DeviceKv::publish(Sequence& s) {
  if (!share_prefixes_) return;
  if (s.published == 0) s.entry = root_for(s);
  for (; (s.published + 1) * kTokensPerBlock <= s.computed; ++s.published) {
    const std::span<const TokenId> tokens(s.tokens.data() + s.published * kTokensPerBlock, kTokensPerBlock);
    s.entry = index_.publish(s.entry, tokens, s.blocks[s.published]);
  }
}

void DeviceKv::release(Sequence& s) {
  while (!s.blocks.empty()) {  // the tail first: the beginning of a prefix is worth most
    index_.release(s.blocks.back());
    s.blocks.pop_back();
  }
  s.published = 0;
  s.entry = 0;
}

uint32_t DeviceKv::freed_by(const Sequence& s) const {
  uint32_t freed = 0;
  for (size_t i = 0; i < s.blocks.size(); ++i) freed += blocks_.count(s.blocks[i]) <= (i < s.published ? 2u : 1u);
  return freed;
}

void DeviceKv::forget_prefixes() {
  ++weights_;
  drop_cached();
}

void DeviceKv::check(const Sequence& s) const {
  for (const BlockId block : s.blocks) CHECK_GE(blocks_.count(block), 1u);
}

}  // namespace shoal
