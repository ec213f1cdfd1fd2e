// How the nodes share the work while it runs: which of them compute prompts and which decode, and who takes a model's requests off a
// node that has too many. In one process the router asks it; of several gateways none may, or they would undo each other's changes:
// there the controller does.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "policy/balance.h"
#include "roles/effect.h"
#include "wire/message.h"

namespace shoal {

class Balancer {
 public:
  // `interval`: between two changes of role, or two batches taken from a node; max(): never any.
  Balancer(const RoleOptions& roles, Duration interval) : roles_(roles), interval_(interval) {}

  void learn(NodeId node, const NodeStatus& status);
  void forget(NodeId node) { nodes_.erase(node); }  // its life ended
  void lose(NodeId node);                           // until it is heard of again; it lives
  // One change of role and one batch at most. Compares now and then, not with every report of each node.
  void balance(TimePoint now, std::vector<Effect>& effects);

 private:
  struct Known {
    InstanceRole home = InstanceRole::kBoth;  // its role when it was first heard of
    bool heard = false;                       // since it was lost; what follows is of its last report
    InstanceRole instance_role = InstanceRole::kBoth;
    double prompt_pressure = 0, decode_pressure = 0;
    std::vector<BatchView> batches;
  };
  std::optional<RoleChange> role_change() const;
  std::optional<Steal> steal() const;

  const RoleOptions roles_;
  const Duration interval_;
  std::map<NodeId, Known> nodes_;
  TimePoint next_{};
};

}  // namespace shoal
