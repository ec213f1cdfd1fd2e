// What the reports of a fleet's servers mean to who plans it (policy/expert_keeping.h), and plans as servers are told them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "experts/fleet.h"
#include "policy/expert_keeping.h"

namespace shoal {

// A server of a plan.
struct FleetServer {
  NodeId id;
  const ServerReport* report = nullptr;  // outlives it
};

// For the planner. A server is as fast as its batches were measured to be, if those of all were.
std::vector<ExpertServerSpec> server_specs(std::span<const FleetServer> servers);
// By stamp, which is their key; without rows. A server whose model has another shape than the first one's is left out.
std::vector<FleetModel> fleet_models(std::span<const FleetServer> servers);
// From the batches of all; errors as of fit_expert_cost().
StatusOr<ExpertCost> fleet_cost(std::span<const FleetServer> servers);

// All servers at once; the first error, with the server's name. `verb`: "hold" or "drop".
Status tell_fleet(std::span<const FleetServer> servers, const std::shared_ptr<BulkNetwork>& network, const FleetModel& model, const char* verb, std::span<const ExpertMove> moves);

// " (server 0 is 'a', server 1 is 'b')": for errors of the planner, which knows numbers only.
std::string server_names(std::span<const FleetServer> servers);

// Before the server of this name leaves: there are to be as many copies without it as with it, and options.copies_min at least. What that
// takes is copied to the others as the planner places it, so with failure domains and memory as always. `ask` gives the reports of the fleet as they are now. How many were copied;
// FailedPrecondition or ResourceExhausted where something would be lost with it, NotFound if it does not answer.
StatusOr<uint64_t> copy_for_leaving(const std::function<std::vector<ServerReport>()>& ask, const std::string& leaving, const std::shared_ptr<BulkNetwork>& network, const PlacementOptions& options = {});

}  // namespace shoal
