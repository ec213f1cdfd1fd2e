// The flags that `simulate` and `plan` share: a workload, devices, models and an objective, made into what the simulator
// takes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/cluster.h"
#include "sim/planner.h"
#include "sim/workloads.h"
#include "workload/trace.h"

namespace CLI {
class App;
}

namespace shoal {

struct SimulateFlags {
  std::string devices = "8xH800";
  uint32_t models = 0;                      // 0: those of the trace, else 16
  std::string mix = "qwen2_5_7b:6,yi1_5_9b_chat:2,llama2_13b_chat:2";
  std::vector<std::string> traces;          // files
  TraceCut cut;
  std::string lengths;                      // a trace whose lengths are drawn from
  SyntheticSpec synthetic;
  std::string profiles, shapes;             // CSV
  double ttft = 10, tbt = 0.1;
  std::vector<std::string> policies = {"token"};
  double qmax = 0;
  uint32_t rooms = 0;
  int32_t prefill = -1;                     // -1: the policy's
  double memory_share = 0.75, host_gib = 32, load_overhead = 0.05, load_gbps = 0;
  uint32_t step_tokens = 2048, sequences = 256, max_model_len = 16'384;
  uint64_t seed = 1;
};

void add_workload_flags(CLI::App& verb, SimulateFlags& flags);
void add_cluster_flags(CLI::App& verb, SimulateFlags& flags);

// One run: a trace (or the synthetic workload) under one policy.
struct RunSpec {
  std::string label;                        // the trace's file name, or "synthetic"
  std::string policy;
};
std::vector<RunSpec> runs_of(const SimulateFlags& flags);

// Files read once, for any number of runs.
class SimulateInputs {
 public:
  // InvalidArgument and NotFound name the flag or file.
  static StatusOr<SimulateInputs> read(const SimulateFlags& flags);

  // The setup of a run on these devices.
  StatusOr<WorldSetup> setup(const RunSpec& run, const std::vector<DeviceGroup>& devices, const PlanShape& shape = {}) const;
  uint32_t models(const RunSpec& run) const;
  // What --model-mix makes of so many models.
  StatusOr<std::vector<const ModelShape*>> mix(uint32_t count) const { return parse_model_mix(flags_.mix, count, *shapes_); }
  // Of --profiles; empty without.
  const CostTable& costs() const { return *costs_; }

 private:
  struct NamedTrace {
    std::string label;
    std::vector<TraceRow> rows;
  };
  Status read_tables();
  const NamedTrace* trace(const std::string& label) const;

  SimulateFlags flags_;
  std::vector<NamedTrace> traces_;
  std::shared_ptr<const std::vector<ModelShape>> shapes_ = std::make_shared<std::vector<ModelShape>>();
  std::shared_ptr<const CostTable> costs_ = std::make_shared<CostTable>();
};

}  // namespace shoal
