// Small worlds under pressure, drawn from a seed: a few nodes with little memory, many kinds of requests, faults.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/outcome.h"
#include "sim/setup.h"

namespace shoal {

// Seconds of every model alike.
struct FlatCost {
  double step_seconds = 0.004;             // of an empty step: weights are read once
  double row_seconds = 0.0002;             // per token computed
  double load_bytes_per_second = 2e9;
  double copy_bytes_per_second = 10e9;     // between the tiers
};

struct Scenario {
  uint64_t seed = 1;
  uint32_t nodes = 1;
  uint32_t gateways = 1;
  uint32_t prefill_nodes = 0;          // of these, the first ones; then the others decode. 0: every node does both
  uint32_t models = 2;
  uint32_t pages = 24;                 // of each node's device
  uint32_t host_pages = 0;             // of the tier below it
  bool adopt_weights = true, one_memory = false;  // NodeConfig
  uint32_t requests = 40;
  double requests_per_second = 50;
  uint32_t prompt_max = 120;
  uint32_t output_max = 60;
  uint32_t max_model_len = 256;
  uint32_t weight_pages = 0;           // of every model; 0: drawn
  uint64_t kv_block_bytes = 0;         // of every model; 0: drawn
  uint32_t state_blocks = 0;           // of every model; 0: none where kv_block_bytes is given, else drawn, of some none
  uint32_t payers = 0;                 // whose the requests are; 0: of nobody in particular
  uint32_t first_weight = 1;           // of the first payer; the others have 1
  double flood = 0;                    // share of the requests that are of the first payer; the rest is of the others alike
  double cancel_probability = 0.2;
  double deadline_probability = 0.05;  // of a deadline that is probably missed
  double shared_prefix_probability = 0.5;
  BatchLimits limits{64, 8, 8, true};
  bool prefix_cache = true;
  Scheduling scheduling = Scheduling::kToken;
  TurnOptions turns;
  RoleOptions roles;
  Duration balance_interval = std::chrono::seconds(2);
  PoolingSettings pooling;             // of every model
  bool through_codec = false;          // messages are encoded and decoded on the way
  FlatCost cost;
  double faults_per_second = 0;        // of the kinds below, each on a node
  std::vector<Fault::Kind> fault_kinds = {Fault::Kind::kCrash};
  double load_failure_probability = 0;
  std::vector<Fault> faults;           // beside those
  uint32_t admin_changes = 0;          // by the operator, while requests come; the last model may come late, the one before may go

  // A scenario of everything at once: sizes, rates, memory pressure and faults.
  static Scenario random(uint64_t seed);
};

WorldSetup make_setup(const Scenario& scenario);

// Runs the scenario to its end: every request ended, every device idle.
Outcome run_scenario(const Scenario& scenario);

}  // namespace shoal
