#include "sim/device.h"

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"

namespace shoal {
namespace {

bool is_in(std::span<const PageSpan> spans, uint32_t page) {
  return std::any_of(spans.begin(), spans.end(), [page](const PageSpan& s) { return page >= s.first && page - s.first < s.count; });
}

}  // namespace

uint64_t extend_context(uint64_t hash, TokenId token) { return mix64(hash ^ mix64(static_cast<uint32_t>(token))); }

TokenId simulated_token(ModelId model, uint64_t context_hash, uint64_t seed, uint32_t output_index, uint32_t vocab_size) {
  return static_cast<TokenId>(counter_bits(seed ^ context_hash, model.value, output_index) % vocab_size);
}

const NodeModel& StrictDevice::facts(ModelId model) const {
  for (const NodeModel& facts : node_.models) {
    if (facts.model == model) return facts;
  }
  CHECK(false);
}

StepResult LightDevice::run(ModelId, const StepInput& input) {
  StepResult result{input.step, {}};
  result.slices.reserve(input.slices.size());
  for (const StepSlice& slice : input.slices) {
    SliceResult& out = result.slices.emplace_back();
    out.request = slice.request;
    const bool ends = slice.sample && !slice.ban_stop_ids && !slice.params->stop_ids.empty();
    if (slice.sample) out.sampled.push_back({ends ? slice.params->stop_ids.front() : static_cast<TokenId>(slice.output_index & 0xff), 0, {}});
    out.scored.resize(slice.score_end - slice.score_begin);
  }
  return result;
}

void StrictDevice::own(Tier tier, std::span<const PageRun> pages, PageOwner from, PageOwner to) {
  for (const PageRun& run : pages) {
    for (uint32_t i = 0; i < run.count; ++i) {
      PageOwner& owner = owner_[static_cast<size_t>(tier)].at(run.first.value + i);
      CHECK(owner == from);
      owner = to;
      if (tier == Tier::kDevice && to.kind == PageOwner::Kind::kSlab) contents_[run.first.value + i] = {};
    }
  }
}

void StrictDevice::remap(const RemapSlabs& effect) {
  for (const SlabChange& change : effect.changes) {
    const SlabKey key{effect.tier, change.block_bytes, change.slab};
    const PageOwner owner{PageOwner::Kind::kSlab, change.block_bytes * 1'000'003 + change.slab};
    if (change.bound) {
      own(effect.tier, change.pages, {}, owner);
      Slab& slab = slabs_[key];
      CHECK(slab.pages.empty());
      slab.pages = change.pages;
      slab.blocks.resize(page_count(change.pages) * kPageBytes / change.block_bytes);
    } else {
      own(effect.tier, change.pages, owner, {});
      CHECK(slabs_.at(key).pages == change.pages);
      slabs_.erase(key);
    }
  }
}

// What is said to be there is, and the rest is spoilt: it is something only when the load has ended.
void StrictDevice::begin_load(const LoadWeights& effect) {
  CHECK(!weights_.contains(effect.model));
  own(Tier::kDevice, effect.pages, {}, {PageOwner::Kind::kWeights, effect.model.value});
  uint32_t at = 0;
  for (const PageRun& run : effect.pages) {
    for (uint32_t i = 0; i < run.count; ++i, ++at) {
      Content& content = contents_.at(run.first.value + i);
      if (is_in(effect.whole, at)) CHECK(content == (Content{effect.model, at}));
      else content = {};
    }
  }
  weights_[effect.model] = {effect.pages, false};
}

void StrictDevice::end_load(ModelId model, bool ok, std::span<const PageSpan> whole) {
  Weights& weights = weights_.at(model);
  weights.loaded = ok;
  uint32_t at = 0;
  for (const PageRun& run : weights.pages) {
    for (uint32_t i = 0; i < run.count; ++i, ++at) {
      if (ok || is_in(whole, at)) contents_[run.first.value + i] = {model, at};
    }
  }
}

void StrictDevice::drop(const DropWeights& effect) {
  own(Tier::kDevice, weights_.at(effect.model).pages, {PageOwner::Kind::kWeights, effect.model.value}, {});
  weights_.erase(effect.model);
}

void StrictDevice::return_pages(const ReturnPages& effect) {
  own(effect.tier, effect.pages, {}, {});
  if (effect.tier == Tier::kHost) return;
  for (const PageRun& run : effect.pages) std::fill_n(contents_.begin() + run.first.value, run.count, Content{});
}

const std::vector<TokenId>& StrictDevice::block(Tier tier, uint64_t block_bytes, BlockId id) const {
  const auto per_slab = static_cast<uint32_t>(slab_pages_for(block_bytes) * kPageBytes / block_bytes);
  const auto slab = slabs_.find({tier, block_bytes, id.value / per_slab});
  CHECK(slab != slabs_.end());
  return slab->second.blocks.at(id.value % per_slab);
}

void StrictDevice::begin_copy(const CopyKv& effect) {
  for (const KvCopy& copy : effect.move.copies) block(effect.move.to, effect.move.block_bytes, copy.to).clear();
}

void StrictDevice::end_copy(const CopyKv& effect, const SimDevice* source) {
  const Tier from = effect.move.to == Tier::kHost ? Tier::kDevice : Tier::kHost;
  for (const KvCopy& copy : effect.move.copies) {
    std::vector<TokenId>& target = block(effect.move.to, effect.move.block_bytes, copy.to);
    CHECK(target.empty());  // nobody wrote there meanwhile
    target = source != nullptr ? source->host_block(effect.move.block_bytes, copy.from) : block(from, effect.move.block_bytes, copy.from);
  }
}

// A state is of the context that was computed, and every block that holds it says so.
void StrictDevice::write_state(const NodeModel& m, const std::vector<BlockId>& state, uint64_t context) {
  for (const BlockId id : state) block(Tier::kDevice, m.kv_block_bytes, id) = {static_cast<TokenId>(context & INT32_MAX), static_cast<TokenId>(context >> 33)};
}

void StrictDevice::check_state(const NodeModel& m, const std::vector<BlockId>& state, uint64_t context) {
  const std::vector<TokenId> want = {static_cast<TokenId>(context & INT32_MAX), static_cast<TokenId>(context >> 33)};
  for (const BlockId id : state) CHECK(block(Tier::kDevice, m.kv_block_bytes, id) == want);
}

void StrictDevice::write_tokens(const NodeModel& m, const StepSlice& slice) {
  for (const BlockId from : slice.tail_from) {
    const uint32_t tail = slice.begin % kTokensPerBlock;
    const std::vector<TokenId>& source = block(Tier::kDevice, m.kv_block_bytes, from);
    CHECK(tail > 0 && source.size() >= tail);
    block(Tier::kDevice, m.kv_block_bytes, slice.blocks.at(slice.begin / kTokensPerBlock)).assign(source.begin(), source.begin() + tail);
  }
  for (uint32_t i = 0; i < slice.tokens.size(); ++i) {
    const uint32_t position = slice.begin + i;
    std::vector<TokenId>& content = block(Tier::kDevice, m.kv_block_bytes, slice.blocks.at(position / kTokensPerBlock));
    if (content.size() > position % kTokensPerBlock) content.resize(position % kTokensPerBlock);  // a block used before
    CHECK_EQ(content.size(), position % kTokensPerBlock);
    content.push_back(slice.tokens[i]);
  }
}

StepResult StrictDevice::run(ModelId model, const StepInput& input) {
  CHECK(weights_.at(model).loaded);
  const NodeModel& m = facts(model);
  StepResult result{input.step, {}};
  // Writes first: a step's rows may attend to what other rows of the same step wrote (shared blocks are only read).
  for (const StepSlice& slice : input.slices) write_tokens(m, slice);
  for (const StepSlice& slice : input.slices) {
    SliceResult out;
    out.request = slice.request;
    const uint32_t end = slice.begin + static_cast<uint32_t>(slice.tokens.size());
    uint64_t hash = kEmptyContext;
    for (const auto* state : {&slice.state_before, &slice.state_after, &slice.state_kept}) CHECK(state->empty() || state->size() == m.state_blocks);
    CHECK_EQ(slice.state_before.empty(), m.state_blocks == 0 || slice.begin == 0);
    CHECK_EQ(slice.state_after.empty(), m.state_blocks == 0);
    CHECK(slice.state_kept.empty() || (slice.kept_tokens > 0 && slice.kept_tokens < slice.tokens.size()));
    for (uint32_t position = 0; position < end; ++position) {
      if (position == slice.begin) check_state(m, slice.state_before, hash);
      if (position == slice.begin + slice.kept_tokens) write_state(m, slice.state_kept, hash);
      const std::vector<TokenId>& content = block(Tier::kDevice, m.kv_block_bytes, slice.blocks.at(position / kTokensPerBlock));
      CHECK_LT(position % kTokensPerBlock, content.size());
      hash = extend_context(hash, content[position % kTokensPerBlock]);
    }
    write_state(m, slice.state_after, hash);
    if (slice.sample) {
      SampledToken token;
      token.token = simulated_token(model, hash, slice.params->sampling.seed, slice.output_index, m.vocab_size);
      const auto& stops = slice.params->stop_ids;
      while (slice.ban_stop_ids && std::find(stops.begin(), stops.end(), token.token) != stops.end()) {
        token.token = (token.token + 1) % static_cast<TokenId>(m.vocab_size);
      }
      out.sampled.push_back(token);
    }
    out.scored.resize(slice.score_end - slice.score_begin);
    result.slices.push_back(std::move(out));
  }
  return result;
}

}  // namespace shoal
