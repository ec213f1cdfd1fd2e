// What a node says of itself to the gateways: at once when a model comes or goes, else at intervals.
#pragma once

#include <cstdint>
#include <vector>

#include "roles/model_scheduler.h"

namespace shoal {

class NodeReporter {
 public:
  // All outlive this.
  NodeReporter(const NodeConfig& config, const Catalogue& catalogue, const ModelScheduler& scheduler, const TurnQuotas& quotas, NodeJournal& journal)
      : config_(config), catalogue_(catalogue), scheduler_(scheduler), quotas_(quotas), journal_(journal), listeners_(config.gateways), interval_(config.status_interval) {}

  // Reports go to the gateways and the controllers of the cluster, beside those of the configuration.
  void learn(const ClusterState& state);
  // Between two reports of one of `nodes` nodes: `least`, or longer in a large cluster, where all of them together send a gateway a thousand
  // reports a second. What the gateway placed meanwhile it knows itself.
  static Duration interval(size_t nodes, Duration least);

  NodeStatus status(InstanceRole instance_role) const;
  void report(InstanceRole instance_role, TimePoint now, std::vector<Effect>& effects);

 private:
  void tell(const HostedModel& hosted, const TurnsAhead& turns, ModelStatus& status) const;

  const NodeConfig& config_;
  const Catalogue& catalogue_;
  const ModelScheduler& scheduler_;
  const TurnQuotas& quotas_;
  NodeJournal& journal_;
  std::vector<NodeId> listeners_;
  Duration interval_;
  uint64_t version_ = 0;
  TimePoint next_{};
};

}  // namespace shoal
