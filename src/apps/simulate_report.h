// What `simulate` prints and writes. Every figure is labelled as simulated.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/table.h"
#include "base/json.h"
#include "loadgen/html_page.h"
#include "sim/clients.h"
#include "sim/outcome.h"
#include "sim/planner.h"

namespace shoal {

// Stretches of the devices' time that a run keeps for its page (32 MB); the page says if there were more.
constexpr size_t kSpansKeptMax = 1'000'000;

struct SimulatedRun {
  std::string workload;
  std::string policy;
  std::string devices;
  uint32_t models = 0;
  double wall_seconds = 0;
  Outcome outcome;
};

// What the fits of measured steps came to, one row per model and device.
Table costs_table(const CostTable& costs);

// One row per run.
Table simulated_table(const std::vector<SimulatedRun>& runs);
OrderedJson simulated_json(const std::vector<SimulatedRun>& runs);
using Settings = std::vector<std::pair<std::string, std::string>>;  // flags and their values

// One self-contained page: attainment, queue, devices over time, cost.
std::string simulated_html(const std::vector<SimulatedRun>& runs, const Settings& settings);

// What `plan` found, for its page.
struct PlanPage {
  std::string asked;               // a sentence: the workload and the goal
  double goal = 0.9;
  std::vector<PlanRow> rows;
  std::vector<PlanProbe> mixes;
  Settings settings;
  bool stopped = false;            // by Ctrl-C, before everything had been tried
};
std::string planned_html(const PlanPage& plan);

// The last block of both.
void add_settings(const Settings& settings, HtmlPage& page);

std::string csv_header();
std::string csv_line(const SimulatedRun& run, const RequestOutcome& request);

}  // namespace shoal
