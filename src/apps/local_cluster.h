// All roles in one process: a node on this machine's device, a router loop, and the in-memory network and membership
// between them. `serve` puts HTTP in front of it, `run` and `chat` talk to it directly.
#pragma once

#include <memory>
#include <vector>

#include "apps/model_scan.h"
#include "apps/settings.h"
#include "gateway/catalog.h"
#include "gateway/router_loop.h"
#include "host/node_host.h"
#include "membership/membership.h"
#include "transport/loopback.h"

namespace shoal {

class LocalCluster {
 public:
  // No model is loaded yet. REQUIRES: models[i].entry.id == i.
  static StatusOr<std::unique_ptr<LocalCluster>> start(const EngineFlags& flags, std::vector<FoundModel> models);

  Catalog& catalog() { return *catalog_; }
  RouterLoop& router() { return *router_; }
  const NodeHost& node() const { return *node_; }

  // Until the node has reported for the first time; false after `timeout`.
  bool wait_ready(Duration timeout);

 private:
  LocalCluster() = default;
  StatusOr<std::shared_ptr<const TokenVocabulary>> vocabulary(const std::string& name);

  // In the order in which they are made; each refers to those above it.
  LoopbackNetwork network_;
  InMemoryMembership membership_;
  std::unique_ptr<Catalog> catalog_;
  std::unique_ptr<NodeHost> node_;
  std::unique_ptr<RouterLoop> router_;
};

}  // namespace shoal
