// Sequences between the device and the host tier. The rules of Aegaeon (SOSP'25): a sequence steps only when its blocks
// are back; they come back only when they have arrived; and what is being copied is on the move list, not free.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/engine.h"

namespace shoal {

std::optional<KvMove> Engine::park_youngest() {
  return running_.empty() ? std::nullopt : park(*running_.back());
}

std::optional<KvMove> Engine::park(RequestId id) {
  CHECK(stage(id) == Stage::kRunning);
  return park(*sequences_.at(id));
}

std::optional<KvMove> Engine::park(Sequence& s) {
  CHECK(!step_in_flight());
  if (host_blocks_ == nullptr) return std::nullopt;
  const uint32_t count = (s.computed + kTokensPerBlock - 1) / kTokensPerBlock;
  if (count == 0 || host_blocks_->obtainable() < count) return std::nullopt;
  KvMove move{next_move_++, s.request->id, false, Tier::kHost, blocks_.block_bytes(), {}};
  for (uint32_t i = 0; i < count; ++i) {
    s.parked.push_back(host_blocks_->allocate().value());
    move.copies.push_back({s.blocks[i], s.parked.back()});
  }
  moves_[move.id] = {&s, true, std::exchange(s.blocks, {})};
  s.published = 0;
  s.entry = 0;
  s.moving = true;
  running_.erase(std::find(running_.begin(), running_.end(), &s));
  ++counters_.parkings;
  return move;
}

std::optional<KvMove> Engine::unpark_oldest() {
  if (parked_.empty() || running_.size() + moves_.size() >= config_.limits.sequences_max) return std::nullopt;
  Sequence& s = *parked_.begin()->second;
  const auto count = static_cast<uint32_t>(s.parked.size());
  const uint32_t wanted = std::max(count, s.known() / kTokensPerBlock + 1);  // as an admission counts, or it would go again at once
  if (index_.evictable() + blocks_.obtainable() < wanted) return std::nullopt;
  const uint32_t computed = s.computed;
  grow(s, count * kTokensPerBlock);
  s.computed = computed;
  KvMove move{next_move_++, s.request->id, s.remote, Tier::kDevice, blocks_.block_bytes(), {}};
  for (uint32_t i = 0; i < count; ++i) move.copies.push_back({s.parked[i], s.blocks[i]});
  moves_[move.id] = {&s, false, std::exchange(s.blocks, {})};
  s.moving = true;
  parked_.erase(parked_.begin());
  return move;
}

RequestId Engine::finish_move(uint64_t id, bool ok) {
  const auto found = moves_.find(id);
  CHECK(found != moves_.end());
  Move move = std::move(found->second);
  moves_.erase(found);
  Sequence& s = *move.sequence;
  const RequestId request = s.request->id;
  s.moving = false;
  if (move.to_host) {
    while (!move.device.empty()) {  // the tail first: the beginning of a prefix is worth most
      index_.release(move.device.back());
      move.device.pop_back();
    }
    parked_[s.order] = &s;
  } else {
    CHECK(ok || s.remote);
    s.blocks = std::move(move.device);
    release_parked(s);
    const auto younger = std::find_if(running_.begin(), running_.end(), [&](const Sequence* r) { return r->order > s.order; });
    running_.insert(younger, &s);
  }
  if (s.cancelled) {
    erase(s);
  } else if (s.outdated || !ok) {
    restart(request);
  }
  return request;
}

void Engine::release_parked(Sequence& s) {
  if (!s.remote) {
    for (const BlockId block : s.parked) host_blocks_->release(block);
  }
  s.parked.clear();
  s.remote = false;
}

Engine::Stage Engine::stage(RequestId id) const {
  const Sequence& s = *sequences_.at(id);
  if (s.moving) return Stage::kMoving;
  if (!s.parked.empty()) return Stage::kParked;
  return waiting_.contains(wait_key(s)) ? Stage::kWaiting : Stage::kRunning;
}

bool Engine::kv_is_remote(RequestId id) const {
  const auto found = sequences_.find(id);
  return found != sequences_.end() && found->second->remote;
}

void Engine::restart(RequestId id) {
  Sequence& s = *sequences_.at(id);
  CHECK(!s.in_flight);
  s.outdated = s.moving;  // then as soon as the copy is done
  if (s.moving) return;
  parked_.erase(s.order);
  std::erase(running_, &s);
  release_parked(s);
  release_blocks(s);
  if (!s.scores_sent) s.scored.clear();
  waiting_[wait_key(s)] = &s;
}

HostKv Engine::hand_over(RequestId id) {
  Sequence& s = *sequences_.at(id);
  CHECK(stage(id) == Stage::kWaiting || stage(id) == Stage::kParked);
  HostKv kv{s.computed, std::exchange(s.parked, {}), std::exchange(s.remote, false)};
  erase(s);
  return kv;
}

uint32_t Engine::blocks_leaving() const {
  size_t blocks = 0;
  for (const auto& [id, move] : moves_) blocks += move.to_host ? move.device.size() : 0;
  return static_cast<uint32_t>(blocks);
}

uint32_t Engine::host_blocks_held() const {
  size_t blocks = 0;
  for (const auto& [id, s] : sequences_) blocks += s->remote ? 0 : s->parked.size();
  return static_cast<uint32_t>(blocks);
}

void Engine::check_parked() const {
  for (const auto& [order, s] : parked_) {
    CHECK_EQ(order, s->order);
    CHECK(s->blocks.empty() && !s->in_flight && !s->moving);
    CHECK_EQ((s->computed + kTokensPerBlock - 1) / kTokensPerBlock, s->parked.size());
  }
  for (const auto& [id, move] : moves_) {
    CHECK(move.sequence->moving && !move.sequence->in_flight && move.sequence->blocks.empty());
    for (const BlockId block : move.device) CHECK_GE(blocks_.count(block), 1u);
  }
}

}  // namespace shoal
