// Which node serves a request. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace shoal {

// One node as a router sees it.
struct NodeView {
  NodeId node;
  bool serves_model = false;    // registered there
  bool resident = false;        // its weights are on the device
  bool draining = false;
  uint32_t requests_live = 0;   // placed by this router and not ended
  uint32_t requests_queued = 0; // reported by the node, over all models
};

struct ClusterView {
  std::span<const NodeView> nodes;
  uint32_t requests_live = 0;  // of this router
  uint32_t requests_max = 0;
};

struct PlaceOn {
  NodeId node;
  friend bool operator==(const PlaceOn&, const PlaceOn&) = default;
};
struct Reject {
  enum class Why : uint8_t { kNoNode, kFull } why;
  Duration retry_after{0};
  friend bool operator==(const Reject&, const Reject&) = default;
};
using Placement = std::variant<PlaceOn, Reject>;

// A node that has the model resident before one that has not, then the fewest live requests, then the lowest id.
// Rejected when the router is full, or when no node that is not draining serves the model.
Placement place(const ClusterView& view);

}  // namespace shoal
