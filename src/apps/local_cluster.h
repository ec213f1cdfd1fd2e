// All roles in one process: a node for each device of this machine, a router loop, and the in-memory network and membership
// between them. `serve` puts HTTP in front of it, `run` and `chat` talk to it directly.
#pragma once

#include <memory>
#include <vector>

#include "apps/local_nodes.h"
#include "gateway/router_loop.h"
#include "membership/membership.h"
#include "transport/loopback.h"

namespace shoal {

class LocalCluster {
 public:
  // No model is loaded yet. REQUIRES: models[i].entry.id == i.
  static StatusOr<std::unique_ptr<LocalCluster>> start(const EngineFlags& flags, std::vector<FoundModel> models);

  Catalog& catalog() { return nodes_->catalog(); }
  RouterLoop& router() { return *router_; }
  ExpertRouting* experts() { return nodes_->experts(); }
  double stalled_seconds() const { return nodes_->stalled_seconds(); }

  // As LocalNodes::update().
  ModelChanges update(const EngineFlags& flags, std::vector<FoundModel> models);

  // Until every node has reported for the first time; false after `timeout`.
  bool wait_ready(Duration timeout);

 private:
  LocalCluster() = default;
  Status join();

  // In the order in which they are made; each refers to those above it.
  LoopbackNetwork network_;
  InMemoryMembership membership_;
  std::unique_ptr<RouterLoop> router_;
  std::unique_ptr<LocalNodes> nodes_;
  std::vector<uint32_t> epochs_;  // of the nodes' membership
};

}  // namespace shoal
