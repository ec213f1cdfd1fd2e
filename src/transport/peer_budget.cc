#include "transport/peer_budget.h"

#include "base/check.h"

namespace shoal {

PeerBudget::Answer PeerBudget::take(NodeId peer, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  Waiting& waiting = peers_[peer];
  if (waiting.lost) return Answer::kRefused;
  // One message always fits: a bound below its size would never let it pass.
  waiting.lost = waiting.messages > 0 && (waiting.messages >= messages_max_ || waiting.bytes + bytes > bytes_max_);
  if (waiting.lost) return Answer::kLost;
  ++waiting.messages;
  waiting.bytes += bytes;
  return Answer::kTaken;
}

void PeerBudget::give(NodeId peer, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  Waiting& waiting = peers_[peer];
  CHECK(waiting.messages > 0 && waiting.bytes >= bytes);
  --waiting.messages;
  waiting.bytes -= bytes;
  if (waiting.messages == 0 && !waiting.lost) peers_.erase(peer);
}

void PeerBudget::heard(NodeId peer) {
  std::lock_guard lock(mutex_);
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  found->second.lost = false;
  if (found->second.messages == 0) peers_.erase(found);
}

}  // namespace shoal
