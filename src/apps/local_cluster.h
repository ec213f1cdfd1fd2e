// All roles in one process: a node for each device of this machine, a router loop, and the in-memory network and membership
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

// What came of new settings, by names of models.
struct ModelChanges {
  std::vector<std::string> added, removed, changed;
  std::vector<std::string> refused;  // with the reason
};

class LocalCluster {
 public:
  // No model is loaded yet. REQUIRES: models[i].entry.id == i.
  static StatusOr<std::unique_ptr<LocalCluster>> start(const EngineFlags& flags, std::vector<FoundModel> models);

  Catalog& catalog() { return *catalog_; }
  RouterLoop& router() { return *router_; }
  double stalled_seconds() const;  // of the node that has made no progress for longest

  // Serves these models from now on, as their settings say: new ones come, those that are not among them end with their
  // requests, and a file that was replaced is a new model. Ids are given here. One caller at a time.
  ModelChanges update(const EngineFlags& flags, std::vector<FoundModel> models);

  // Until every node has reported for the first time; false after `timeout`.
  bool wait_ready(Duration timeout);

 private:
  LocalCluster() = default;
  StatusOr<std::shared_ptr<const TokenVocabulary>> vocabulary(ModelId id);
  ServedModel served(const EngineFlags& flags, const LoadOptions& load, const FoundModel& model);
  struct LocalNode {
    NodeId id;
    uint32_t epoch = 0;  // of its membership
    std::unique_ptr<NodeHost> host;
  };
  Status start_nodes(std::vector<NodePlan> plans);
  StatusOr<uint32_t> add_to_all(const ServedModel& model);
  bool settle(const EngineFlags& flags, const LoadOptions& load, FoundModel& model, ModelChanges& changes);

  // In the order in which they are made; each refers to those above it.
  LoopbackNetwork network_;
  InMemoryMembership membership_;
  std::unique_ptr<Catalog> catalog_;
  std::unique_ptr<RouterLoop> router_;
  std::vector<LocalNode> nodes_;
  std::vector<FoundModel> models_;  // offered; their lengths are those that fit the device
  uint32_t next_id_ = 0;
};

}  // namespace shoal
