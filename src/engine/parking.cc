#include "engine/parking.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shoal {

Parking::Parking(DeviceKv& device, BlockPool* host) : device_(device), host_(host) {
  CHECK(host == nullptr || host->block_bytes() == device.block_bytes());
}

Parking::~Parking() {
  for (auto& [id, s] : moves_) device_.release(*s);
  for (auto* list : {&moves_, &parked_}) {
    for (auto& [key, s] : *list) release_host(*s);
  }
}

KvMove Parking::move_of(Sequence& s, Tier to) {
  KvMove move{next_move_++, s.request->id, s.remote, to, device_.block_bytes(), {}};
  const size_t kv = s.host_blocks.size() - s.state.now.size();  // the state comes last
  for (size_t i = 0; i < s.host_blocks.size(); ++i) {
    const BlockId here = i < kv ? s.blocks[i] : s.state.now[i - kv];
    move.copies.push_back(to == Tier::kHost ? KvCopy{here, s.host_blocks[i]} : KvCopy{s.host_blocks[i], here});
  }
  s.stage = to == Tier::kHost ? Sequence::Stage::kParking : Sequence::Stage::kUnparking;
  moves_[move.id] = &s;
  return move;
}

std::optional<KvMove> Parking::park(Sequence& s) {
  CHECK(s.stage == Sequence::Stage::kRunning);
  if (s.state.tail) return std::nullopt;  // not all that is computed is in its blocks yet
  const uint32_t count = s.computed == 0 ? 0 : blocks_for(s.computed) + device_.state_blocks();
  if (host_ == nullptr || count == 0 || host_->obtainable() < count) return std::nullopt;
  for (uint32_t i = 0; i < count; ++i) s.host_blocks.push_back(host_->allocate().value());
  return move_of(s, Tier::kHost);
}

void Parking::take(Sequence& s, const HostKv& kv) {
  CHECK(kv.tokens > 0 && kv.tokens < s.known());
  CHECK_EQ(kv.blocks.size(), size_t{blocks_for(kv.tokens) + device_.state_blocks()});
  s.computed = kv.tokens;
  s.host_blocks = kv.blocks;
  s.remote = kv.remote;
  s.stage = Sequence::Stage::kParked;
  parked_[s.order] = &s;
}

std::optional<KvMove> Parking::unpark_oldest() {
  if (parked_.empty()) return std::nullopt;
  Sequence& s = *parked_.begin()->second;
  const uint32_t states = device_.state_blocks(), count = static_cast<uint32_t>(s.host_blocks.size()) - states;
  const uint32_t wanted = std::max(count, s.known() / kTokensPerBlock + 1);  // as an admission counts, or it would go again at once
  if (device_.available() < wanted + states + device_.blocks_for_states()) return std::nullopt;
  parked_.erase(parked_.begin());
  device_.grow(s, count * kTokensPerBlock);
  device_.take_state(s);
  device_.grow_states(s);
  return move_of(s, Tier::kDevice);
}

Sequence& Parking::finish(uint64_t id, bool ok) {
  const auto found = moves_.find(id);
  CHECK(found != moves_.end());
  Sequence& s = *found->second;
  moves_.erase(found);
  if (s.stage == Sequence::Stage::kParking) {
    device_.release(s);
    s.stage = Sequence::Stage::kParked;
    parked_[s.order] = &s;
  } else {
    CHECK(ok || s.remote);
    release_host(s);
    s.stage = Sequence::Stage::kRunning;
  }
  return s;
}

void Parking::forget(Sequence& s) {
  CHECK(!s.moving());
  release_host(s);
  parked_.erase(s.order);
}

void Parking::release_host(Sequence& s) {
  if (!s.remote) {
    for (const BlockId block : s.host_blocks) host_->release(block);
  }
  s.host_blocks.clear();
  s.remote = false;
}

uint32_t Parking::blocks_leaving() const {
  size_t blocks = 0;
  for (const auto& [id, s] : moves_) blocks += s->stage == Sequence::Stage::kParking ? s->blocks.size() + s->state.now.size() + s->state.next.size() + s->state.spare.size() + s->state.kept.size() : 0;
  return static_cast<uint32_t>(blocks);
}

uint32_t Parking::host_blocks_held() const {
  size_t blocks = 0;
  for_each([&](const Sequence& s) { blocks += s.remote ? 0 : s.host_blocks.size(); });
  return static_cast<uint32_t>(blocks);
}

void Parking::check() const {
  for (const auto& [order, s] : parked_) {
    CHECK(s->stage == Sequence::Stage::kParked);
    CHECK_EQ(order, s->order);
    CHECK(s->blocks.empty());
    CHECK_EQ(size_t{blocks_for(s->computed) + device_.state_blocks()}, s->host_blocks.size());
  }
  for (const auto& [id, s] : moves_) {
    CHECK(s->moving());
    device_.check(*s);
  }
}

}  // namespace shoal
