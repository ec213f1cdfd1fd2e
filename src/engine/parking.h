// The sequences of an engine that are off the device for a while: parked on the host tier, or on their way there or back.
// The rules of Aegaeon (SOSP'25): a sequence steps only when its blocks are back; they come back only when they have
// arrived; and what is being copied is on the move list, held on both sides and free on neither.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "engine/device_kv.h"
#include "engine/sequence.h"
#include "memory/host_tier.h"

namespace shoal {

class Parking {
 public:
  // `device` outlives this; so does `host`, which is null if there is no host tier.
  Parking(DeviceKv& device, BlockPool* host);
  ~Parking();  // releases the blocks of both tiers; REQUIRES: its sequences are alive

  // Its blocks are to be copied to the host tier, and come free when they are there. nullopt, and it runs on: nothing of
  // it is computed, or the tier has no room. REQUIRES: it is running.
  std::optional<KvMove> park(Sequence& s);
  // It comes with its KV: parked from the beginning.
  void take(Sequence& s, const HostKv& kv);
  // The one that came first is to be copied back. nullopt if there is none, or no room for it and its next token.
  std::optional<KvMove> unpark_oldest();
  // The copies of a move are done: its sequence is parked, or running again; or, when a remote one failed, of no use.
  // REQUIRES: it was handed out here and not finished.
  Sequence& finish(uint64_t move, bool ok);
  // Takes it from here, and its blocks from the host tier. REQUIRES: it is not on its way.
  void forget(Sequence& s);

  bool any_parked() const { return !parked_.empty(); }
  size_t parked() const { return parked_.size(); }
  size_t moves() const { return moves_.size(); }  // under way
  uint32_t blocks_leaving() const;                // of the device: free when the moves under way are done
  uint32_t host_blocks_held() const;              // of this node's tier
  // Those that are parked, the oldest first, then those on their way.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& [order, s] : parked_) visit(*s);
    for (const auto& [id, s] : moves_) visit(*s);
  }

  void check() const;

 private:
  void release_host(Sequence& s);
  KvMove move_of(Sequence& s, Tier to);  // from here on it is on the move list

  DeviceKv& device_;
  BlockPool* const host_;
  std::map<uint64_t, Sequence*> parked_;  // by order
  std::map<uint64_t, Sequence*> moves_;   // the move list, by id
  uint64_t next_move_ = 1;
};

}  // namespace shoal
