// What a fleet of expert servers should hold, decided anew from what its servers say of themselves: nothing has to be remembered but how
// warm experts are. Pure; experts/keeper.h asks servers, calls this, and tells them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "policy/expert_heat.h"
#include "policy/expert_placement.h"

namespace shoal {

// A model as the servers of a fleet have it.
struct FleetModel {
  std::string key;                           // the same in every round
  std::vector<ExpertLayerSpec> layers;
  ExpertPlacement held;                      // of all its servers, by ExpertServerSpec::server; shares do not matter
  std::vector<std::vector<double>> rows;     // [layers][experts] in the window that ended; empty: none did
  bool by_hand = false;                      // an operator placed some of it: only what nobody holds is copied
  std::vector<NodeId> servers;               // that can hold it: they have its files
};

class ExpertKeeping {
 public:
  explicit ExpertKeeping(const PlacementOptions& placement = {}, const HeatOptions& heat = {}) : placement_(placement), heat_(heat) {}

  // A plan for each model, in their order, or why there is none. `servers`: memory_bytes is for all models together; each gets a part by
  // its size, and keeps what it has. `cost`: as measured, if it was.
  std::vector<StatusOr<PlacementPlan>> plan(std::span<const ExpertServerSpec> servers, std::span<const FleetModel> models, const ExpertCost* cost = nullptr);

 private:
  PlacementOptions placement_;
  const HeatOptions heat_;
  std::map<std::string, ExpertHeat> warmth_;  // by model
};

// Bytes of one model's experts that a server holds.
uint64_t held_bytes(const FleetModel& model, NodeId server);

}  // namespace shoal
