#include "apps/simulate_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

double busy_share(const Outcome& o) {
  double busy = 0;
  for (const NodeOutcome& node : o.nodes) busy += node.busy_seconds;
  return o.virtual_seconds > 0 ? busy / (o.virtual_seconds * static_cast<double>(o.nodes.size())) : 0;
}

OrderedJson times_json(const Histogram& h) {
  return {{"mean", h.mean()}, {"p50", h.quantile(0.5)}, {"p90", h.quantile(0.9)}, {"p99", h.quantile(0.99)}, {"max", h.max()}};
}

OrderedJson attainment_json(const Attainment& a) {
  return {{"tokens", a.of_tokens()}, {"tokens_per_request", a.of_tokens_per_request()}, {"requests", a.of_requests()}, {"artifact", a.of_artifact()}};
}

OrderedJson nodes_json(const Outcome& o) {
  OrderedJson nodes = OrderedJson::array();
  for (const NodeOutcome& n : o.nodes) {
    nodes.push_back({{"device", n.kind}, {"busy_s", n.busy_seconds}, {"load_s", n.load_seconds}, {"visible_load_s", n.visible_load_seconds},
                     {"steps", n.steps}, {"tokens", n.tokens}, {"loads", n.loads}, {"kv_moves", n.copies}, {"price_per_hour", n.price_per_hour}});
  }
  return nodes;
}

OrderedJson models_json(const Outcome& o) {
  OrderedJson models = OrderedJson::array();
  for (const ModelOutcome& m : o.models) {
    models.push_back({{"requests", m.attainment.requests}, {"attainment", attainment_json(m.attainment)}, {"ttft_s", times_json(m.first_token)}});
  }
  return models;
}

OrderedJson samples_json(const Outcome& o) {
  OrderedJson samples = OrderedJson::array();
  for (const TimeSample& s : o.samples) {
    samples.push_back({{"at_s", s.at}, {"unfinished", s.unfinished}, {"unstarted", s.unstarted}, {"computing", s.computing}, {"loading", s.loading},
                       {"tokens", s.tokens}});
  }
  return samples;
}

}  // namespace

Table costs_table(const CostTable& costs) {
  Table table({{"fitted: model"}, {"device"}, {"p0 ms", 3, true, 8, true}, {"p1 us", 2, true}, {"p2 ns", 4, true}, {"d0 ms", 1, true, 8, true}, {"d1 us", 5, true}, {"d2 us", 6, true},
               {"R2 p", 8, true, 6, true}, {"R2 d", 9, true}, {"err p", 7, true}, {"err d", 7, true}, {"points", 10, true, 6, true}, {"left out", 11, true}});
  const auto figure = [](double value, int digits) { return absl::StrFormat("%.*f", digits, value); };
  for (const auto& [key, fitted] : costs.entries()) {
    const StepCost& c = fitted.cost;
    const FitQuality& q = fitted.quality;
    table.row({key.first, key.second, figure(c.prefill_seconds * 1e3, 2), figure(c.prefill_token_seconds * 1e6, 2), figure(c.prefill_square_seconds * 1e9, 3),
               figure(c.decode_seconds * 1e3, 2), figure(c.decode_context_seconds * 1e6, 3), figure(c.decode_sequence_seconds * 1e6, 1), figure(q.r2_prefill, 3),
               figure(q.r2_decode, 3), figure(100 * q.error_prefill, 1) + "%", figure(100 * q.error_decode, 1) + "%", absl::StrCat(q.points), absl::StrCat(q.points_left_out)});
  }
  return table;
}

Table simulated_table(const std::vector<SimulatedRun>& runs) {
  Table table({{"SIMULATED  workload", 0, false, 30}, {"policy", 0, false, 7}, {"models", 10, true, 6}, {"reqs", 9, true, 7}, {"tokens", 0, true, 6, true}, {"/req", 8, true, 6},
               {"reqs", 4, true, 6}, {"artif.", 11, true, 6}, {"TTFT50", 5, true, 7, true}, {"TTFT90", 7, true, 7}, {"TTFT99", 1, true, 7}, {"TBT99", 3, true, 7},
               {"busy", 2, true, 5, true}, {"loads", 6, true, 6}, {"tok/s", 6, true, 7}, {"cost $", 6, true, 6}, {"x real", 12, true, 7}});
  const auto figure = [](double value, int digits) { return absl::StrFormat("%.*f", digits, value); };
  for (const SimulatedRun& run : runs) {
    const Outcome& o = run.outcome;
    const Attainment& a = o.attainment;
    table.row({run.workload, run.policy, absl::StrCat(run.models), absl::StrCat(o.requests), figure(a.of_tokens(), 3), figure(a.of_tokens_per_request(), 3),
               figure(a.of_requests(), 3), figure(a.of_artifact(), 3), figure(o.first_token.quantile(0.5), 2), figure(o.first_token.quantile(0.9), 2),
               figure(o.first_token.quantile(0.99), 2), figure(o.gap.quantile(0.99), 2), figure(100 * busy_share(o), 0) + "%", absl::StrCat(o.loads),
               figure(o.virtual_seconds > 0 ? static_cast<double>(o.tokens) / o.virtual_seconds : 0.0, 0), figure(o.cost(), 2),
               figure(run.wall_seconds > 0 ? o.virtual_seconds / run.wall_seconds : 0.0, 0)});
  }
  return table;
}

OrderedJson simulated_json(const std::vector<SimulatedRun>& runs) {
  OrderedJson all = OrderedJson::array();
  for (const SimulatedRun& run : runs) {
    const Outcome& o = run.outcome;
    OrderedJson one = {{"simulated", true}, {"workload", run.workload}, {"policy", run.policy}, {"devices", run.devices}, {"models", run.models},
                       {"interrupted", o.interrupted}, {"requests", o.requests}, {"finished", o.finished}, {"refused", o.refused}, {"virtual_s", o.virtual_seconds},
                       {"wall_s", run.wall_seconds}, {"trace_hash", absl::StrFormat("%016x", o.trace_hash)}, {"events", o.events}, {"steps", o.steps},
                       {"tokens", o.tokens}, {"loads", o.loads}, {"kv_moves", o.copies}, {"preemptions", o.preemptions}, {"prefix_hits", o.prefix_hits},
                       {"device_hours", o.device_hours()}, {"cost", o.cost()}, {"busy_share", busy_share(o)}};
    one["attainment"] = attainment_json(o.attainment);
    one["ttft_s"] = times_json(o.first_token);
    one["tbt_s"] = times_json(o.gap);
    one["nodes"] = nodes_json(o);
    one["per_model"] = models_json(o);
    one["samples"] = samples_json(o);
    one["violations"] = o.violations;
    all.push_back(std::move(one));
  }
  return all;
}

std::string csv_header() { return "workload,policy,request,model,arrival_s,prompt_tokens,tokens,tokens_on_time,ttft_s,end_s,how\n"; }

std::string csv_line(const SimulatedRun& run, const RequestOutcome& r) {
  const std::string ttft = r.first_token < 0 ? "" : absl::StrFormat("%.6f", r.first_token - r.arrival);
  return absl::StrFormat("%s,%s,%d,%d,%.6f,%d,%d,%d,%s,%.6f,%s\n", run.workload, run.policy, r.id.sequence, r.model.value, r.arrival, r.prompt_tokens,
                         r.tokens, r.tokens_on_time, ttft, r.end, r.how);
}

}  // namespace shoal
