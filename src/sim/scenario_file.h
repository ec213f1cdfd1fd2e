// Scenarios as data: workload x faults x what the run must have reached, as one JSON object.
//
//   {"about": "...", "seeds": 50,
//    "cluster": {"nodes": 3, "models": 2, "pages": 60, "host_pages": 0, "weight_pages": 0, "scheduling": "token", ...},
//    "workload": {"requests": 40, "requests_per_second": 20, "prompt_max": 120, "output_max": 60, "cancel_probability": 0, ...},
//    "faults": [{"kind": "crash", "node": 0, "at_s": 0.5, "lasts_s": 0.5, "amount": 0}],
//    "random_faults": {"per_second": 1, "kinds": ["crash", "pause"]},
//    "expect": {"finished_share_min": 1, "refused_max": 0, "crashes_min": 1, ...}}
//
// The invariants hold in every scenario; `expect` is about the sum over all seeds: that the scenario reaches what it is for.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "sim/scenario.h"

namespace shoal {

struct ScenarioFile {
  std::string about;
  uint32_t seeds = 20;
  Scenario scenario;  // its seed is the caller's
  std::map<std::string, double> expect;
};

// InvalidArgument names the key: unknown ones are mistakes.
StatusOr<ScenarioFile> parse_scenario(std::string_view json);

// "" or what the outcomes, summed up, did not reach.
std::string unmet(const ScenarioFile& file, const Outcome& sum);
// Counts of one outcome on top of those of others.
void add_counts(const Outcome& outcome, Outcome& sum);

StatusOr<Fault::Kind> fault_kind(std::string_view name);

}  // namespace shoal
