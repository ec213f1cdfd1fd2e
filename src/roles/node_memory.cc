// A node's memory when it is short: KV between the tiers, and who gives up what.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "roles/node.h"

namespace shoal {

// ---- between the tiers ------------------------------------------------------------------------------------------------------

// What a model has on the host tier comes back, oldest first, as far as there is room: of one that is loading already while
// its weights come, but only into pages that nobody on the device is about to write to.
void Node::unpark(TimePoint now, std::vector<Effect>& effects) {
  for (auto& [id, hosted] : awake_) {
    const bool loading = loading_ == id && !cancelling_ && token_level();
    if (!resident(hosted) && !loading) continue;
    while (resident(hosted) || pages_.free() >= reserve() + slab_pages_for(hosted.facts.kv_block_bytes)) {
      std::optional<KvMove> move = hosted.engine->unpark_oldest();
      if (!move) break;
      move_kv(hosted, *std::move(move), now, effects);
    }
  }
}

// Pages that the resident models are about to write: a slab each, and one for every so many answers.
uint64_t Node::reserve() const {
  uint64_t pages = 0;
  for (const auto& [id, hosted] : awake_) {
    if (!resident(hosted) || !hosted.engine->has_work()) continue;
    pages += slab_pages_for(hosted.facts.kv_block_bytes) * (1 + div_up(hosted.engine->running(), hosted.blocks->blocks_per_slab()));
  }
  return pages;
}

// Of these, what they lack for their very next tokens, unless their turn is over.
uint32_t Node::pages_spoken_for() const {
  if (!token_level()) return 0;
  uint64_t pages = 0;
  for (const auto& [id, hosted] : awake_) {
    if (!resident(hosted) || hosted.spent_seconds >= hosted.quota_seconds) continue;
    const uint64_t wanted = hosted.engine->blocks_wanted(), there = uint64_t{hosted.engine->blocks_cached()} + hosted.blocks->free_in_slabs();
    if (wanted > there) pages += div_up(wanted - there, hosted.blocks->blocks_per_slab()) * slab_pages_for(hosted.facts.kv_block_bytes);
  }
  return static_cast<uint32_t>(pages);
}

// Keeps pages free for what the resident models are about to write: prefixes of models that are away are forgotten, and
// KV of their requests goes to the host tier, before a model that computes would have to preempt its own.
void Node::park_ahead(TimePoint now, std::vector<Effect>& effects) {
  if (host_.pages() == 0 || !token_level() || pages_coming() > 0) return;
  const uint64_t wanted = reserve();
  for (auto& [id, hosted] : awake_) {
    if (pages_.free() >= wanted) return;
    if (residency_.state(id) == WeightsState::kOnDisk) hosted.engine->drop_cached();
  }
  if (pages_.free() >= wanted) return;
  if (Hosted* victim = absent_with_kv(now)) {
    if (std::optional<KvMove> move = victim->engine->park_youngest()) move_kv(*victim, *std::move(move), now, effects);
  }
}

void Node::move_kv(const Hosted& hosted, KvMove move, TimePoint now, std::vector<Effect>& effects) {
  flush_slab_changes(effects);
  log_.copy_begun(hosted.facts.model, move.id, move.to == Tier::kHost, move.copies.size() * move.block_bytes);
  if (move.to == Tier::kDevice) switches_.swap_in_begun(hosted.facts.model, move.id, now);
  const NodeId from = move.remote ? fetches_.at(move.request).ticket.node : config_.self;
  effects.push_back(CopyKv{hosted.facts.model, std::move(move), from});
  ++moves_;
}

// About: blocks on their way share slabs with others.
uint32_t Node::pages_coming() const {
  uint64_t pages = 0;
  for (const auto& [id, hosted] : awake_) {
    pages += div_up(hosted.engine->parking().blocks_leaving(), hosted.blocks->blocks_per_slab()) * slab_pages_for(hosted.facts.kv_block_bytes);
  }
  return static_cast<uint32_t>(pages);
}

// ---- when memory runs out -----------------------------------------------------------------------------------------------------

// What the prefixes of another model hold, of the one used longest ago. False if nobody's hold anything.
bool Node::drop_cached_of_another(const Hosted& hosted) {
  Hosted* victim = nullptr;
  for (auto& [id, other] : awake_) {
    if (&other == &hosted || other.engine->blocks_cached() == 0) continue;
    if (victim == nullptr || residency_.last_used(id) < residency_.last_used(victim->facts.model)) victim = &other;
  }
  if (victim != nullptr) victim->engine->drop_cached();
  return victim != nullptr;
}

// A model that came to the device gives at least one token before it goes, or turns would bring nobody further. So it
// takes what it lacks: idle weights, KV of requests whose model is away, then the place of a model whose turn is over.
bool Node::take_memory_for(const Hosted& hosted, TimePoint now, std::vector<Effect>& effects) {
  if (pages_coming() > 0) return false;
  if (drop_least_recent(/*with_waiting=*/false, now, effects)) return true;
  if (take_kv_of_absent(now, effects)) return true;
  if (pages_coming() > 0) return false;
  for (auto& [id, other] : awake_) {
    const bool may_go = resident(other) && !other.pinned && !other.fresh && stepping_ != id && &other != &hosted;
    if (!may_go || (other.spent_seconds < other.quota_seconds && other.stalled_since == kForever)) continue;
    drop_weights(other, /*keep_cached=*/false, effects);
    effects.push_back(WakeAt{now});
    return true;
  }
  return false;
}

// The one with the most slack of those that are away and have KV here; null if there is none.
Node::Hosted* Node::absent_with_kv(TimePoint now) {
  Hosted* victim = nullptr;
  Duration most{};
  for (auto& [id, hosted] : awake_) {
    if (residency_.state(id) != WeightsState::kOnDisk || hosted.engine->running() == 0) continue;
    const Duration slack = hosted.engine->demand(hosted.facts.pooling.slo, now).slack;
    if (victim != nullptr && slack <= most) continue;
    victim = &hosted;
    most = slack;
  }
  return victim;
}

// The youngest request of such a model gives its blocks back: to the host tier, which takes a
// moment, or else for nothing, to be computed anew at its turn. True if something came free at once.
bool Node::take_kv_of_absent(TimePoint now, std::vector<Effect>& effects) {
  Hosted* victim = absent_with_kv(now);
  if (victim == nullptr) return false;
  if (std::optional<KvMove> move = victim->engine->park_youngest()) {
    move_kv(*victim, *std::move(move), now, effects);
    return false;
  }
  CHECK(victim->engine->preempt_youngest());
  victim->engine->drop_cached();
  return true;
}

// Every model with work is out of blocks. In this order: KV that only the index holds, weights of idle models, KV of
// requests whose model is away, the youngest sequence of a model other than that of the oldest request, weights of models
// whose requests are all still waiting. False if nobody holds anything that could be given up.
bool Node::free_stuck_memory(TimePoint now, std::vector<Effect>& effects) {
  const auto freed = [&] {
    for (auto& [id, hosted] : awake_) hosted.stalled = false;
    return true;
  };
  bool cached = false;
  for (auto& [id, hosted] : awake_) {
    cached |= hosted.engine->blocks_cached() > 0;
    hosted.engine->drop_cached();
  }
  if (cached) return freed();
  if (pages_coming() > 0) return false;  // what leaves the device is free in a moment
  if (drop_least_recent(/*with_waiting=*/false, now, effects)) return freed();
  if (take_kv_of_absent(now, effects)) return freed();
  if (pages_coming() > 0) return false;
  if (preempt_for_oldest()) return freed();
  return drop_least_recent(/*with_waiting=*/true, now, effects) && freed();
}

// The oldest request under way gets what it needs, and keeps it: without that, two models could take turns in throwing
// each other out for ever.
bool Node::preempt_for_oldest() {
  Hosted* protected_model = nullptr;
  uint64_t oldest = UINT64_MAX;
  for (auto& [id, hosted] : awake_) {
    const std::optional<RequestId> front = hosted.engine->oldest_running();
    const auto owner = front ? owners_.find(*front) : owners_.end();
    if (owner == owners_.end() || owner->second.order >= oldest) continue;
    oldest = owner->second.order;
    protected_model = &hosted;
  }
  if (protected_model == nullptr) return false;
  Hosted* victim = nullptr;
  for (auto& [id, hosted] : awake_) {
    if (&hosted == protected_model || hosted.engine->running() == 0) continue;
    if (victim == nullptr || hosted.last_turn > victim->last_turn) victim = &hosted;
  }
  if (victim == nullptr) return false;
  pressure_ = {protected_model->facts.model, *protected_model->engine->oldest_running()};
  for (auto& [id, hosted] : awake_) hosted.engine->set_admitting(&hosted == protected_model);
  return victim->engine->preempt_youngest();
}

// Drops the weights of the resident model used longest ago among those with nothing under way, one that has not had its
// turn yet last. `with_waiting`, the last resort: also one with requests that wait, or that is pinned.
bool Node::drop_least_recent(bool with_waiting, TimePoint now, std::vector<Effect>& effects) {
  Hosted* victim = nullptr;
  uint32_t residents = 0;
  for (auto& [id, hosted] : awake_) {
    if (!resident(hosted)) continue;
    ++residents;
    if (hosted.engine->running() + hosted.engine->parking().moves() > 0) continue;
    if (!with_waiting && (hosted.engine->waiting() > 0 || hosted.pinned)) continue;
    const auto rank = [this](const Hosted& h) { return std::tuple(h.pinned, h.fresh, residency_.last_used(h.facts.model)); };
    if (victim == nullptr || rank(hosted) < rank(*victim)) victim = &hosted;
  }
  if (victim == nullptr || residents < 2) return false;
  drop_weights(*victim, /*keep_cached=*/false, effects);
  effects.push_back(WakeAt{now});  // who comes next on the device is to be decided anew
  return true;
}

}  // namespace shoal
