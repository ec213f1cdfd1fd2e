#include "apps/simulate_flags.h"

#include <algorithm>
#include <filesystem>

#include "CLI/CLI.hpp"
#include "base/json.h"

namespace shoal {
namespace {

constexpr size_t kTraceBytesMax = 1u << 30;
constexpr size_t kProfileBytesMax = 64u << 20;
constexpr uint32_t kModelsDefault = 16;
const std::vector<std::string> kPolicies = {"token", "paper", "request", "static"};

StatusOr<Trace> read_trace(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kTraceBytesMax));
  auto trace = parse_trace(text);
  return trace.ok() ? trace : annotate(trace.status(), path);
}

Status apply_policy(const SimulateFlags& flags, const std::string& policy, ClusterSpec& spec) {
  if (policy == "paper") {
    spec.turns = TurnOptions::paper();
    spec.rooms = 2;  // the model that computes, and the one that is prefetched
  }
  if (flags.rooms > 0) spec.rooms = flags.rooms;
  if (const uint32_t nodes = spec.devices.front().nodes(); policy == "paper" && nodes > 1) spec.prefill = (3 * nodes + 4) / 8;  // its 3 of 8
  if (flags.prefill >= 0) spec.prefill = static_cast<uint32_t>(flags.prefill);
  if (policy == "request") spec.scheduling = Scheduling::kRequest;
  if (policy == "static") spec.scheduling = Scheduling::kStatic;
  if (flags.qmax > 0) spec.turns.quota_max_seconds = flags.qmax;
  return OkStatus();
}

}  // namespace

void add_workload_flags(CLI::App& verb, SimulateFlags& f) {
  SyntheticSpec& s = f.synthetic;
  verb.add_option("--trace", f.traces, "Request trace (Azure, BurstGPT, pooling, Mooncake, SpotServe, lengths, or what `shoal serve --record` wrote); may be repeated")->delimiter(',');
  verb.add_option("--trace-start", f.cut.start_s, "Second of the trace to begin at")->capture_default_str();
  verb.add_option("--trace-duration", f.cut.duration_s, "Seconds of the trace (0: to its end)")->capture_default_str();
  verb.add_option("--trace-speedup", f.cut.speedup, "2 halves the gaps of the trace")->capture_default_str();
  verb.add_option("--request-rate", s.requests_per_second, "Without a trace: requests per second over all models")
      ->capture_default_str()->check(CLI::Range(1e-6, 1e6));
  verb.add_option("--cv", s.cv, "Coefficient of variation of the gaps: 1 Poisson, above burstier")->capture_default_str()->check(CLI::Range(0.0, 100.0));
  verb.add_option("--zipf", s.zipf, "The k-th model's share of the requests goes with k^-Z; 0: all alike")->capture_default_str()->check(CLI::Range(0.0, 10.0));
  verb.add_option("--duration", s.duration_seconds, "Seconds in which requests arrive")->capture_default_str()->check(CLI::Range(0.001, 1e8));
  verb.add_option("--input-len", s.input_mean, "Mean of the prompts' tokens")->capture_default_str()->check(CLI::Range(1.0, 1e6));
  verb.add_option("--output-len", s.output_mean, "Mean of the answers' tokens")->capture_default_str()->check(CLI::Range(1.0, 1e6));
  verb.add_option("--length-spread", s.spread, "Standard deviation of the lengths' logarithm; 0: all alike")->capture_default_str()->check(CLI::Range(0.0, 5.0));
  verb.add_option("--lengths", f.lengths, "Trace file whose pairs of lengths are drawn instead");
  verb.add_option("--seed", f.seed, "The same seed gives the same run, event by event")->capture_default_str();
}

void add_cluster_flags(CLI::App& verb, SimulateFlags& f) {
  verb.add_option("--models", f.models, "Models that are served (default: those that the trace names, else 16)")->check(CLI::Range(1u, 100'000u));
  verb.add_option("--model-mix", f.mix, "What they are: NAME:SHARE, ...")->capture_default_str();
  verb.add_option("--profiles", f.profiles, "CSV of measured steps (model,gpu,prompt_tokens_per_request,batch_size,prefill_ms,decode_step_ms); "
                  "pairs that it lacks are estimated by a roofline");
  verb.add_option("--shapes", f.shapes, "CSV of further models for --model-mix (name,parameters,weight_bytes,kv_bytes_per_token,max_len)");
  verb.add_option("--ttft", f.ttft, "Seconds to the first token that count as on time")->capture_default_str()->check(CLI::Range(0.001, 1e5));
  verb.add_option("--tbt", f.tbt, "Seconds between tokens that count as on time")->capture_default_str()->check(CLI::Range(0.0001, 1e4));
  verb.add_option("--qmax", f.qmax, "Longest turn of a model in seconds (0: the policy's)")->capture_default_str()->check(CLI::Range(0.0, 1e4));
  verb.add_option("--prefill", f.prefill, "Devices that compute prompts only, the others decode; 0: each does both (default: 0; paper: 3 of 8)")
      ->check(CLI::Range(0, 100'000));
  verb.add_option("--rooms", f.rooms, "At most so many models on a device at once (0: as many as fit; paper: 2)")->check(CLI::Range(0u, 1000u));
  verb.add_option("--memory-share", f.memory_share, "Share of a device's memory for weights and KV")->capture_default_str()->check(CLI::Range(0.01, 1.0));
  verb.add_option("--host-memory", f.host_gib, "GiB of the machine per device, for KV that waits")->capture_default_str()->check(CLI::Range(0.0, 1e5));
  verb.add_option("--load-overhead", f.load_overhead, "Seconds of every load of weights beside its bytes")->capture_default_str()->check(CLI::Range(0.0, 1e4));
  verb.add_option("--load-bandwidth", f.load_gbps, "GB/s from the host to a device (0: the device's)")->capture_default_str()->check(CLI::Range(0.0, 1e5));
  verb.add_option("--max-num-batched-tokens", f.step_tokens, "Tokens of one step")->capture_default_str()->check(CLI::Range(1u, 1u << 20));
  verb.add_option("--max-num-seqs", f.sequences, "Sequences of one step")->capture_default_str()->check(CLI::Range(1u, 1u << 16));
  verb.add_option("--max-model-len", f.max_model_len, "Longest sequence; longer requests are cut")->capture_default_str()->check(CLI::Range(64u, 1u << 22));
}

std::vector<RunSpec> runs_of(const SimulateFlags& flags) {
  std::vector<RunSpec> runs;
  std::vector<std::string> labels;
  for (const std::string& trace : flags.traces) labels.push_back(std::filesystem::path(trace).filename().string());
  if (labels.empty()) labels.push_back("synthetic");
  for (const std::string& label : labels) {
    for (const std::string& policy : flags.policies) runs.push_back({label, policy});
  }
  return runs;
}

StatusOr<SimulateInputs> SimulateInputs::read(const SimulateFlags& flags) {
  SimulateInputs inputs;
  inputs.flags_ = flags;
  for (const std::string& policy : flags.policies) {
    if (std::find(kPolicies.begin(), kPolicies.end(), policy) == kPolicies.end()) {
      return invalid_argument("--policy ", policy, " is none of token, paper, request, static");
    }
  }
  for (const std::string& path : flags.traces) {
    ASSIGN_OR_RETURN(const Trace trace, read_trace(path));
    if (!trace.has_arrivals) return invalid_argument("--trace ", path, ": has lengths, but no arrivals; give it to --lengths");
    auto rows = cut_trace(trace, flags.cut);
    if (!rows.ok()) return annotate(rows.status(), path);
    inputs.traces_.push_back({std::filesystem::path(path).filename().string(), *std::move(rows)});
  }
  if (!flags.lengths.empty()) {
    ASSIGN_OR_RETURN(const Trace trace, read_trace(flags.lengths));
    for (const TraceRow& row : trace.rows) inputs.flags_.synthetic.lengths.push_back({row.input_tokens, row.output_tokens});
  }
  RETURN_IF_ERROR(inputs.read_tables());
  return inputs;
}

Status SimulateInputs::read_tables() {
  if (!flags_.profiles.empty()) {
    ASSIGN_OR_RETURN(const std::string csv, read_file(flags_.profiles, kProfileBytesMax));
    auto table = CostTable::fit(csv);
    if (!table.ok()) return annotate(table.status(), flags_.profiles);
    costs_ = std::make_shared<CostTable>(*std::move(table));
  }
  if (flags_.shapes.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const std::string csv, read_file(flags_.shapes, kProfileBytesMax));
  auto shapes = parse_model_shapes(csv);
  if (!shapes.ok()) return annotate(shapes.status(), flags_.shapes);
  shapes_ = std::make_shared<std::vector<ModelShape>>(*std::move(shapes));
  return OkStatus();
}

const SimulateInputs::NamedTrace* SimulateInputs::trace(const std::string& label) const {
  const auto found = std::find_if(traces_.begin(), traces_.end(), [&](const NamedTrace& t) { return t.label == label; });
  return found == traces_.end() ? nullptr : &*found;
}

uint32_t SimulateInputs::models(const RunSpec& run) const {
  if (flags_.models > 0) return flags_.models;
  const NamedTrace* trace = this->trace(run.label);
  const size_t named = trace == nullptr ? 0 : TraceWorkload::names_of(trace->rows).size();
  return named > 0 ? static_cast<uint32_t>(named) : kModelsDefault;
}

StatusOr<WorldSetup> SimulateInputs::setup(const RunSpec& run, const std::vector<DeviceGroup>& devices, const PlanShape& shape) const {
  constexpr double kGiB = 1073741824.0;
  ClusterSpec spec;
  spec.devices = devices;
  ASSIGN_OR_RETURN(spec.models, mix(models(run)));
  spec.costs = costs_.get();
  spec.slo = {from_seconds(flags_.ttft), from_seconds(flags_.tbt)};
  spec.memory_share = flags_.memory_share;
  spec.host_bytes = flags_.host_gib * kGiB;
  spec.load_seconds = flags_.load_overhead;
  spec.load_bytes_per_second = flags_.load_gbps * 1e9;
  spec.limits = {flags_.step_tokens, flags_.sequences, flags_.sequences, true};
  spec.max_model_len = flags_.max_model_len;
  RETURN_IF_ERROR(apply_policy(flags_, run.policy, spec));
  if (shape.prefill > 0) spec.prefill = shape.prefill;
  if (shape.rooms > 0) spec.rooms = shape.rooms;
  WorldSetup setup;
  setup.seed = flags_.seed;
  setup.requests_max = 1'000'000;
  setup.place_by_load = run.policy == "paper";
  if (run.policy == "paper") setup.balance_interval = Duration::max();  // its partition is fixed, and nothing is stolen
  ASSIGN_OR_RETURN(setup.nodes, make_nodes(spec));
  const std::vector<uint32_t> lengths = model_lengths(setup.nodes);
  if (const NamedTrace* trace = this->trace(run.label)) {
    setup.workload = std::make_unique<TraceWorkload>(trace->rows, lengths);
  } else {
    SyntheticSpec synthetic = flags_.synthetic;
    synthetic.seed = flags_.seed;
    setup.workload = std::make_unique<SyntheticWorkload>(std::move(synthetic), lengths);
  }
  return setup;
}

}  // namespace shoal
