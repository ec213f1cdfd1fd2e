// How many devices of which kind a workload needs: a search over simulations, and reasons where none can do.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "policy/slo.h"
#include "sim/cluster.h"
#include "sim/outcome.h"

namespace shoal {

struct PlanGoal {
  double attainment = 0.9;      // share of tokens on time, pooled
  uint32_t devices_max = 128;
  uint32_t tensor_max = 8;  // of a gang
};

// How devices are used: which compute prompts only, and how many models each holds at once.
struct PlanShape {
  uint32_t prefill = 0;  // devices or gangs of each kind; the others decode. 0: every one does both
  uint32_t rooms = 0;    // 0: as many as fit
  friend bool operator==(const PlanShape&, const PlanShape&) = default;
};
// "3P+5D, 2 rooms", of so many devices or gangs; "" for every one doing both with as many models as fit.
std::string to_string(const PlanShape& shape, uint32_t nodes);

// What simulating one choice of devices gave.
struct PlanProbe {
  std::vector<DeviceGroup> devices;
  PlanShape shape;
  bool met = false;
  Outcome outcome;  // of a run that was given up, up to there
};

struct PlanRow {
  DeviceGroup one;                 // of what the search counted: a device, or a gang of `one.tensor`
  std::vector<PlanProbe> probes;   // by number of devices
  size_t best = SIZE_MAX;          // of probes: the fewest that meet the goal
  std::string infeasible;          // why none does
  bool feasible() const { return best < probes.size(); }
  double price_per_hour() const;   // of the best
};

using SimulateDevices = std::function<StatusOr<Outcome>(const std::vector<DeviceGroup>&, const PlanShape&)>;

// The fewest devices of one kind, in gangs of `tensor`: doubling until the goal is met, then halving the gap. Adding a
// device is taken never to harm. The runs' own errors (a model that does not fit) become the reason.
StatusOr<PlanRow> plan_kind(const Hardware& hardware, const PlanGoal& goal, const SimulateDevices& simulate, uint32_t tensor = 1);

// Other shapes for a row that is feasible: a quarter, three eighths and half of the devices for prompts only, two models at
// once on each, and gangs twice as wide, at the fewest devices found; then fewer devices, as long as a shape meets the goal
// with them. The best is the fewest devices, then the most tokens on time.
Status plan_shapes(PlanRow& row, const PlanGoal& goal, const SimulateDevices& simulate);

// Of a row that is feasible: fewer dear devices and some of `cheap` instead, if that costs less. Appends what it tried.
// NotFound if nothing cheaper does.
StatusOr<PlanProbe> plan_mix(const PlanRow& dear, const PlanRow& cheap, const PlanGoal& goal, const SimulateDevices& simulate);

double price_per_hour(const std::vector<DeviceGroup>& devices);
std::string to_string(const PlanProbe& probe);  // "8xH800 as 3P+5D"

// What no number of devices changes: "" or why a model's single step or prompt alone misses the objective on this kind.
std::string out_of_reach(const ModelShape& model, const StepCost& cost, const std::string& device, const SloTarget& slo, uint32_t prompt_tokens,
                         double load_seconds);

}  // namespace shoal
