// The invariants of the whole, watched from outside the roles: what the world gave them, and what they gave back.
// I1, I2 and I4 are the clients' (clients.h), I5 is Node::check(); here are those that need both sides of a role.
//   I3  one owner epoch per sequence; nothing of a lower one is shown
//   I6  nobody is overtaken by a later request of his model, priority and payer for longer than a bound, or answered after his
//       deadline
//   I7  no request fails without a cause of its own, or a fault
//   I10 a node's counters are what it sent
// I9 is the operator's (admin.cc), I8 that of answers of experts (expert_world.h).
// and: a cancelled request is not computed any further.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "roles/effect.h"
#include "roles/event.h"
#include "roles/node.h"
#include "sim/world_state.h"

namespace shoal {

class Checkers {
 public:
  explicit Checkers(WorldState& world) : world_(world) {}

  void event(NodeId role, const Event& event);
  void effects(NodeId role, const std::vector<Effect>& effects);
  void arrived(const Arrival& arrival);
  void ended(RequestId id, const Status& why);
  void node_fault() { node_faults_ = true; }
  void life_ended(NodeId id, const Node& node);

 private:
  struct Known {  // of a request that runs
    TimePoint deadline = kForever;
    ModelId model;
    uint32_t epoch = 0;  // the highest that the router submitted
    bool served = true;  // its model, when it came
  };
  struct Waiting {
    TimePoint since;
    RequestId request;
    TimePoint begin_by = kForever;
  };
  using Class = std::tuple<ModelId, int32_t, uint32_t>;  // model, priority, payer
  struct Held {
    uint32_t epoch = 0;                       // of its last Submit
    ModelId model;
  };
  struct Watched {                            // a node's life
    std::map<RequestId, Held> held;
    std::set<RequestId> withdrawn;            // by a Cancel of that epoch
    std::map<Class, std::vector<Waiting>> waiting;  // in order of submission
    std::map<ModelId, uint64_t> tokens_sent;
  };

  bool on() const { return world_.setup.strict; }
  void submitted(Watched& node, const Submit& message);
  TimePoint begin_by(const Submit& message) const;
  void left(Watched& node, RequestId request);
  void began(Watched& node, NodeId id, RequestId request);
  void node_effect(NodeId id, const Effect& effect);
  bool explained(const Known& known, const Status& why) const;

  WorldState& world_;
  std::unordered_map<RequestId, Known> known_;
  std::map<NodeId, Watched> nodes_;
  std::optional<std::pair<RequestId, uint32_t>> shown_;  // request and epoch of the Tokens that the router has now
  bool node_faults_ = false;
};

}  // namespace shoal
