// What `simulate` prints and writes. Every figure is labelled as simulated.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "sim/clients.h"
#include "sim/outcome.h"
#include "sim/planner.h"

namespace shoal {

struct SimulatedRun {
  std::string workload;
  std::string policy;
  std::string devices;
  uint32_t models = 0;
  double wall_seconds = 0;
  Outcome outcome;
};

// What the fits of measured steps came to, one row per model and device.
std::string costs_table(const CostTable& costs);

// One row per run.
std::string simulated_table(const std::vector<SimulatedRun>& runs);
OrderedJson simulated_json(const std::vector<SimulatedRun>& runs);
// One self-contained page: attainment, queue, devices over time, cost.
std::string simulated_html(const std::vector<SimulatedRun>& runs, const std::vector<std::pair<std::string, std::string>>& settings);

// The page of `plan`: prices, attainment over the number of devices, and every choice that was simulated.
std::string planned_html(const std::vector<PlanRow>& rows, const std::vector<PlanProbe>& mixes, double goal);

std::string csv_header();
std::string csv_line(const SimulatedRun& run, const RequestOutcome& request);

}  // namespace shoal
