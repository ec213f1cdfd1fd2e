// Moves messages and registered memory between roles. Small: if an implementation needs supports_x(), this is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/ids.h"
#include "base/status.h"

namespace shoal {

using RegionId = StrongId<struct RegionTag, uint64_t>;

// One endpoint. Messages between two endpoints arrive in order and unchanged, or not at all.
class Transport {
 public:
  // False: the endpoint has no room for it (transport/peer_budget.h), and the message is lost.
  using OnMessage = std::function<bool(NodeId from, std::string bytes)>;
  using OnCompletion = std::function<void(Status)>;

  virtual ~Transport() = default;

  // Hands the bytes over without waiting. Unavailable if the peer is unknown or gone; ResourceExhausted if it has no room for
  // more, and then the link is lost: both sides go on as if the other had ended. OK is not a delivery receipt.
  virtual Status send(NodeId to, std::string bytes) = 0;

  // Makes memory writable by peers under the id returned. The memory outlives the registration.
  virtual RegionId register_region(std::span<std::byte> memory) = 0;
  virtual void unregister_region(RegionId region) = 0;

  // Writes `bytes` at `offset` of a peer's region; `done` runs once, on any thread, when they are visible there.
  // `bytes` stays valid until then.
  virtual void put(NodeId to, RegionId region, uint64_t offset, std::span<const std::byte> bytes, OnCompletion done) = 0;
};

}  // namespace shoal
