// Which node serves a request. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/instance_role.h"
#include "base/time.h"

namespace shoal {

// What a request wants next.
enum class Phase : uint8_t {
  kPrompt,  // all of it, or its prompt
  kDecode,  // to go on after its first token
};

// One node as a router sees it.
struct NodeView {
  NodeId node;
  InstanceRole instance_role = InstanceRole::kBoth;
  bool serves_model = false;    // registered there
  bool draining = false;
  bool decodes_model = false;   // has requests of this model under way
  double wait_seconds = 0;      // predicted, until the first step of a request that comes now
  double switch_seconds = 0;    // predicted, of the switch that it would cause; 0: the model is there, or waited for already
  double decode_pressure = 0;   // policy/decode_turns.h; > 1: over-committed
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

// Nodes with the phase's role, or with both, before the others. Among them
//   a prompt  goes where it is begun first, seconds of a switch counted for those that would wait for it as well: so it
//             joins its model's group, or goes where the load is least (Aegaeon, SOSP'25, algorithm 1);
//   a decode  joins its model's, where one more costs least, on a node that is not over-committed if there is one; else it
//             goes where the least is wanted. Another node would have another model to make turns for;
// then the fewest live requests, then the lowest id. Rejected when the router is full, or when no node that is not
// draining serves the model.
Placement place(const ClusterView& view, Phase phase);

}  // namespace shoal
