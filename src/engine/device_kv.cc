#include "engine/device_kv.h"

#include <optional>
#include <span>
#include <utility>

#include "base/check.h"

namespace shoal {
namespace {

// Of the tokens, those whose K and V may be shared: the last one is computed in any case.
std::span<const TokenId> shareable(const Sequence& s) { return std::span(s.tokens).first(s.known() - 1); }

// A state is kept so often within a long prompt, and once more a little before its end: what follows a prompt in the next turn may
// differ from it in the few tokens that ask for an answer (four at most in the templates of 32 published models).
constexpr uint32_t kStateInterval = 1024;
constexpr uint32_t kBeforeEnd = 6;

}  // namespace

DeviceKv::DeviceKv(BlockPool& blocks, bool share_prefixes, uint32_t salt_above, uint32_t state_blocks, uint32_t states_max)
    : blocks_(blocks), share_prefixes_(share_prefixes), salt_above_(salt_above), state_blocks_(state_blocks), index_(blocks, state_blocks, states_max) {}

DeviceKv::~DeviceKv() { index_.evict_all(); }

PrefixEntry DeviceKv::root_for(const Sequence& s) const {
  const uint64_t length = s.prompt_length() > salt_above_ ? s.prompt_length() : 0;
  return PrefixIndex::root(weights_ << 32 | length);
}

// At least one token is left to compute, or there would be no logits; scoring needs the logits of every token.
uint32_t DeviceKv::matchable_blocks(const Sequence& s) const {
  return share_prefixes_ && !s.scores_prompt() ? (s.known() - 1) / kTokensPerBlock : 0;
}

PrefixIndex::Probe DeviceKv::find_prefix(const Sequence& s) const { return index_.probe(root_for(s), shareable(s), matchable_blocks(s)); }

bool DeviceKv::take_prefix(Sequence& s) {
  CHECK(s.blocks.empty());
  const uint32_t matchable = matchable_blocks(s);
  PrefixIndex::Match match = index_.acquire(root_for(s), shareable(s), matchable);
  s.blocks = std::move(match.blocks);
  s.published = static_cast<uint32_t>(s.blocks.size());
  s.entry = match.entry;
  s.computed = s.published * kTokensPerBlock + match.tail;
  s.state.tail = match.tail_block;
  s.state.now = std::move(match.state);
  s.state.last_kept = s.computed;
  return matchable > 0;
}

BlockId DeviceKv::allocate_block() {
  std::optional<BlockId> block = blocks_.allocate();
  while (!block) {
    CHECK(index_.evict_one());  // the plan counted evictable blocks
    block = blocks_.allocate();
  }
  return *block;
}

void DeviceKv::grow(Sequence& s, uint32_t tokens) {
  while (s.blocks.size() < blocks_for(tokens)) s.blocks.push_back(allocate_block());
}

// ---- states ------------------------------------------------------------------------------------------------------------------

std::vector<BlockId> DeviceKv::allocate_state() {
  std::vector<BlockId> state;
  for (uint32_t i = 0; i < state_blocks_; ++i) state.push_back(allocate_block());
  return state;
}

void DeviceKv::release_state(std::vector<BlockId>& state) {
  index_.release_state(state);
  state.clear();
}

void DeviceKv::grow_states(Sequence& s) {
  if (state_blocks_ == 0) return;
  CHECK(s.state.next.empty() && s.state.spare.empty());
  grow(s, s.computed);  // the block that the tail is copied to
  s.state.next = allocate_state();
  s.state.spare = allocate_state();
}

bool DeviceKv::plan_kept_state(Sequence& s, uint32_t begin, uint32_t end) {
  if (state_blocks_ == 0 || !share_prefixes_ || begin >= s.prompt_length()) return false;
  SequenceState& state = s.state;
  const bool last = end >= s.prompt_length();
  const uint32_t at = last ? s.prompt_length() - std::min(s.prompt_length(), kBeforeEnd) : end / kTokensPerBlock * kTokensPerBlock;
  const bool worth = at > begin && at < end && at > state.last_kept && (last || at - state.last_kept >= kStateInterval);
  if (!worth || blocks_.obtainable() < 2 * state_blocks_) return false;
  CHECK(state.kept.empty());
  state.kept = allocate_state();
  state.kept_at = at;
  return true;
}

void DeviceKv::advance_state(Sequence& s) {
  if (state_blocks_ == 0) return;
  SequenceState& state = s.state;
  drop_tail(s);
  std::swap(state.now, state.next);  // next: the one before
  if (!state.next.empty() && blocks_.count(state.next.front()) == 1) return;
  release_state(state.next);
  state.next = std::exchange(state.spare, {});
  CHECK(!state.next.empty());
}

void DeviceKv::drop_tail(Sequence& s) {
  if (s.state.tail) index_.release(*std::exchange(s.state.tail, {}));
}

// Gives the index the state that was kept, if it is within the block of the entry, which begins after `begin` tokens, or after it.
void DeviceKv::keep_planned(Sequence& s, PrefixEntry entry, uint32_t begin) {
  SequenceState& state = s.state;
  if (state.kept.empty() || state.kept_at <= begin || state.kept_at > begin + kTokensPerBlock) return;
  index_.keep_state(entry, state.kept_at - begin, std::exchange(state.kept, {}), state.kept_at - std::min(state.kept_at, state.last_kept));
  state.last_kept = state.kept_at;
}

// Gives the index the state now, which is after the entry, where there is another to write to.
void DeviceKv::keep(Sequence& s, PrefixEntry entry, uint32_t tokens) {
  SequenceState& state = s.state;
  const bool answer = tokens > s.prompt_length();
  if (tokens != s.computed || !(answer || tokens - state.last_kept >= kStateInterval)) return;
  if (state.spare.empty() && blocks_.obtainable() < 2 * state_blocks_) return;
  if (state.spare.empty()) state.spare = allocate_state();
  if (answer) index_.drop_state(std::exchange(state.rolling, entry));
  for (const BlockId block : state.now) blocks_.share(block);
  index_.keep_state(entry, kTokensPerBlock, state.now, tokens - std::min(tokens, state.last_kept));
  if (!answer) state.last_kept = tokens;
}

void DeviceKv::publish(Sequence& s) {
  if (!share_prefixes_) return;
  if (s.published == 0) s.entry = root_for(s);
  for (; (s.published + 1) * kTokensPerBlock <= s.computed; ++s.published) {
    const std::span<const TokenId> tokens(s.tokens.data() + s.published * kTokensPerBlock, kTokensPerBlock);
    s.entry = index_.publish(s.entry, tokens, s.blocks[s.published]);
    if (state_blocks_ == 0) continue;
    keep_planned(s, s.entry, s.published * kTokensPerBlock);
    keep(s, s.entry, (s.published + 1) * kTokensPerBlock);
  }
}

void DeviceKv::publish_end(Sequence& s) {
  const uint32_t begin = s.published * kTokensPerBlock;
  const bool part = s.computed > begin && s.computed < begin + kTokensPerBlock;  // or there is none, or it just came back to the device
  if (!share_prefixes_ || state_blocks_ == 0 || s.state.tail || !part || s.computed < s.prompt_length()) return;
  const PrefixEntry entry = index_.publish_part(s.entry, std::span(s.tokens).subspan(begin, s.computed - begin), s.blocks[s.published]);
  keep_planned(s, entry, begin);
  index_.drop_state(std::exchange(s.state.rolling, 0));  // this one says more
  index_.keep_state(entry, s.computed - begin, std::exchange(s.state.now, {}), s.computed - std::min(s.computed, s.state.last_kept));
}

void DeviceKv::release(Sequence& s) {
  while (!s.blocks.empty()) {  // the tail first: the beginning of a prefix is worth most
    index_.release(s.blocks.back());
    s.blocks.pop_back();
  }
  s.published = 0;
  s.entry = 0;
  drop_tail(s);
  for (auto* state : {&s.state.now, &s.state.next, &s.state.spare, &s.state.kept}) release_state(*state);
  s.state = {};
}

uint32_t DeviceKv::freed_by(const Sequence& s) const {
  uint32_t freed = 0;
  for (size_t i = 0; i < s.blocks.size(); ++i) freed += blocks_.count(s.blocks[i]) <= (i < s.published ? 2u : 1u);
  for (const auto* state : {&s.state.now, &s.state.next, &s.state.spare, &s.state.kept}) {
    if (!state->empty() && blocks_.count(state->front()) <= 2) freed += state_blocks_;
  }
  return freed;
}

void DeviceKv::forget_prefixes() {
  ++weights_;
  drop_cached();
}

void DeviceKv::check(const Sequence& s) const {
  for (const BlockId block : s.blocks) CHECK_GE(blocks_.count(block), 1u);
  if (state_blocks_ == 0) return;
  CHECK_EQ(s.state.now.size(), s.computed > 0 ? size_t{state_blocks_} : 0u);
  CHECK_EQ(s.state.next.size(), size_t{state_blocks_});
  CHECK_EQ(blocks_.count(s.state.next.front()), 1u);
}

}  // namespace shoal
