// The nodes of this process, one for each device, with the models that they serve. `serve` puts a router beside them (local_cluster.h),
// `shoal node` joins them to a cluster.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "apps/cluster_flags.h"
#include "apps/expert_routing.h"
#include "apps/model_scan.h"
#include "apps/settings.h"
#include "gateway/catalog.h"
#include "host/node_host.h"
#include "wire/model_names.h"

namespace shoal {

// What came of new settings, by names of models.
struct ModelChanges {
  std::vector<std::string> added, removed, changed;
  std::vector<std::string> refused;  // with the reason
};

class LocalNodes {
 public:
  struct Where {
    std::function<NodeId(size_t)> id;       // of each device's node
    std::vector<NodeId> gateways;           // that get reports; others are found in the cluster
    std::optional<KvLinkConfig> kv_link;    // for nodes of other processes
    std::string name = "serve";             // of this process
    std::shared_ptr<BulkNetwork> network = clear_bulk_network();  // to other machines
  };
  // What follows from a change of models, in this order: `configure` for settings of models that stay; `serve` with the models of
  // before and after, then, once requests that were on their way have come, with those of after.
  struct Hooks {
    std::function<void(Configure)> configure;
    std::function<void(const std::vector<ModelId>&)> serve;
    std::function<void()> replaced;  // the catalogue has other models now
  };

  // No model is loaded yet. REQUIRES: models[i].entry.id == i.
  static StatusOr<std::unique_ptr<LocalNodes>> plan(const EngineFlags& flags, std::vector<FoundModel> models, const Where& where);
  // Starts them; the network outlives them.
  Status start(Network& network);

  Catalog& catalog() { return *catalog_; }
  const std::shared_ptr<ModelNames>& names() const { return names_; }
  size_t size() const { return ids_.size(); }
  NodeHost& host(size_t i) { return *hosts_[i]; }
  NodeId id(size_t i) const { return ids_[i]; }
  std::vector<ModelId> models() const;       // that are served
  const std::vector<FoundModel>& found() const { return models_; }
  ExpertRouting* experts() { return experts_.get(); }  // null: every expert is computed here
  double stalled_seconds() const;            // of the node that has made no progress for longest

  // Serves these models from now on, as their settings say: new ones come, those that are not among them end with their
  // requests, and a file that was replaced is a new model. Ids are given here. One caller at a time.
  ModelChanges update(const EngineFlags& flags, std::vector<FoundModel> models, const Hooks& hooks);

 private:
  LocalNodes() = default;
  StatusOr<std::shared_ptr<const TokenVocabulary>> vocabulary(ModelId id);
  ServedModel served(const EngineFlags& flags, const LoadOptions& load, const FoundModel& model);
  StatusOr<uint32_t> add_to_all(const ServedModel& model);
  bool settle(const EngineFlags& flags, const LoadOptions& load, FoundModel& model, const Hooks& hooks, ModelChanges& changes);

  std::shared_ptr<ModelNames> names_ = std::make_shared<ModelNames>();
  std::unique_ptr<Catalog> catalog_;
  std::vector<NodePlan> plans_;      // until they are started
  std::vector<NodeId> ids_;
  std::unique_ptr<ExpertRouting> experts_;  // outlives the hosts
  std::vector<std::unique_ptr<NodeHost>> hosts_;
  std::vector<FoundModel> models_;   // offered; their lengths are those that fit the device
  uint32_t next_id_ = 0;
};

}  // namespace shoal
