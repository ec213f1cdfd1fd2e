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
  bool room = true;             // for its weights, without those of others
  double prompt_seconds = 0;    // predicted, of what is to be computed before its next token
  double decode_pressure = 0;   // policy/decode_turns.h; > 1: over-committed
  double answer_pressure = 0;   // that it adds to that
  double answer_tokens = 0;     // expected of it; 0: nothing is known
  double answer_tokens_seen = 0;  // of the model's answers there: what that is expected by
  double slack_seconds = 0, tbt_seconds = 0.1;  // until its next token is due, and between those that follow
  uint32_t requests_live = 0;   // placed by this router and not ended
  uint32_t requests_queued = 0; // reported by the node, over all models
};

struct ClusterView {
  std::span<const NodeView> nodes;
  uint32_t requests_live = 0;  // of this router
  uint32_t requests_max = 0;
  bool by_load = false;        // as published, without a look at what would be on time: for comparison
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

// Nodes with the phase's role, or with both, before the others. Among them those where the most of its tokens would be on time; of
// these, where its model is, or else where it has room, so that nobody is sent away who may have to come back; then where it would
// end first, then the fewest live requests, then the lowest id. So a model has a home that its requests come to while they
// are in time there, and another one when they are not.
//
// By load: a prompt goes where it is begun first, seconds of a switch counted for those that would wait for it as well (Aegaeon,
// SOSP'25, algorithm 1); a decode joins its model's, on a node that is not over-committed if there is one.
//
// Rejected when the router is full, or when no node that is not draining serves the model.
Placement place(const ClusterView& view, Phase phase);

// Where a request goes makes its answer no longer: from now on all expect what they do in the mean, each as much as it has seen.
void agree_on_answers(std::span<NodeView> nodes);

// Of its tokens, how many would be on time there, 0..1: as tokens_in_time(), of a wait that may be longer than predicted.
double share_on_time(const NodeView& node);

}  // namespace shoal
