// How several nodes share the work while it runs: which of them computes prompts and which decodes, and who takes a whole
// model's requests off a node that has too many. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/instance_role.h"

namespace shoal {

// ---- roles -----------------------------------------------------------------------------------------------------------------

struct RoleView {
  NodeId node;
  InstanceRole instance_role = InstanceRole::kBoth;
  InstanceRole home = InstanceRole::kBoth;  // what it was started as; kBoth never changes
  double prompt_pressure = 0;   // NodeStatus; > 1: prompts will be late
  double decode_pressure = 0;   // NodeStatus
};

struct RoleOptions {
  double high = 1.0;  // pressure of a side that calls for help
  double low = 0.5;   // of a side that can spare a node, and below which everybody goes home
};

struct RoleChange {
  NodeId node;
  InstanceRole instance_role = InstanceRole::kBoth;
  friend bool operator==(const RoleChange&, const RoleChange&) = default;
};

// One change at most. A side whose mean pressure is over `high` gets the node with the least pressure of the other side, if
// what that side has left of nodes carries its load with less pressure than the calling one has; the last node of a side
// does both. When the pressure of the side that helps is over `high` itself, or that of the other side under `low`, a node
// that helps goes home.
std::optional<RoleChange> plan_roles(std::span<const RoleView> nodes, const RoleOptions& options);

// ---- stealing ---------------------------------------------------------------------------------------------------------------

// What a node has of a model, or would have of one that it took.
struct BatchView {
  ModelId model;
  bool running = false;   // on the device now
  uint32_t requests = 0;
  double pressure = 0;    // that its answers add to the decode pressure, once they are under way
  bool late = false;      // whoever of it waits, or would come now, will be late
  bool room = true;       // it is there, or could be without others going
};

struct StealView {
  NodeId node;
  InstanceRole instance_role = InstanceRole::kBoth;
  double decode_pressure = 0;
  std::span<const BatchView> batches;  // of all models that it serves, ascending
};

struct Steal {
  NodeId from;
  ModelId model;
  friend bool operator==(const Steal&, const Steal&) = default;
};

// The batch that is not on its device and of which the most tokens more would be on time on another node that decodes, has room for it
// and begins it in time: what that node can still give, less what its own can (late tokens are not made up for at 0.9). One that
// is late where it is gets nothing there. Of equal ones the one with the fewest requests; a gain of next to nothing is none, and a node
// keeps the only batch that it has.
std::optional<Steal> plan_steal(std::span<const StealView> nodes);

}  // namespace shoal
