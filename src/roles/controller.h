// The controller: decides what no gateway may decide alone, which nodes compute prompts and who gives a model's requests to another.
// Of several one leads (a lease of the membership says which); the others listen, so that the next one knows what the last one did.
// Without any, what was decided goes on. Pure state machine.
#pragma once

#include <vector>

#include "roles/balancer.h"
#include "roles/effect.h"
#include "roles/event.h"

namespace shoal {

struct ControllerConfig {
  NodeId self;
  RoleOptions roles;
  Duration balance_interval = std::chrono::seconds(2);
};

class Controller {
 public:
  explicit Controller(const ControllerConfig& config) : balancer_(config.roles, config.balance_interval) {}

  // Handles MessageFrom{NodeStatus}, ClusterChanged, PeerLost and LeadershipChanged. Effects are Send.
  std::vector<Effect> handle(const Event& event, TimePoint now);

  bool leads() const { return leads_; }

 private:
  void on_cluster(const ClusterState& state);

  Balancer balancer_;
  ClusterState cluster_;
  bool leads_ = false;
};

}  // namespace shoal
