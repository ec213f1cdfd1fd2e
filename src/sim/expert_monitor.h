// Who watches expert servers in the simulated world: leases, the production planner, copies, versions and drops.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "policy/expert_placement.h"
#include "sim/expert_client.h"
#include "sim/expert_server.h"

namespace shoal {

class SimExpertMonitor {
 public:
  SimExpertMonitor(ExpertWorldState& world, std::vector<std::unique_ptr<SimExpertServer>>& servers, std::vector<std::unique_ptr<SimExpertClient>>& clients);

  // The first placement, held and known from the start.
  Status begin();
  void pause_until(TimePoint until) { paused_until_ = std::max(paused_until_, until); }
  const ExpertPlacement& published() const { return published_; }
  // Called now and then.
  void watch();
  // A client that begins anew is told what holds now.
  void tell(uint32_t client);

 private:
  struct Seen {
    uint64_t life = 0;         // that holds what was placed on it; 0: nothing
    bool there = false;
    TimePoint heard{};
  };
  std::vector<ExpertServerSpec> members() const;
  ExpertPlacement held_now() const;
  void plan();
  void copy(const std::shared_ptr<const PlacementPlan>& plan);
  void publish(const PlacementPlan& plan);
  void drop_when_known(const PlacementPlan& plan);
  void forget_extras();

  ExpertWorldState& world_;
  std::vector<std::unique_ptr<SimExpertServer>>& servers_;
  std::vector<std::unique_ptr<SimExpertClient>>& clients_;
  std::vector<ExpertLayerSpec> layers_;
  std::vector<Seen> seen_;
  ExpertPlacement published_;
  TimePoint paused_until_{};
  bool planning_ = false, again_ = false;
  uint64_t attempt_ = 0;
};

}  // namespace shoal
