#include "gateway/metrics_page.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "gateway/model_totals.h"

namespace shoal {
namespace {

using prometheus::MetricType;

// A family whose values are read from the nodes' reports when the page is made.
prometheus::MetricFamily reported(std::string name, std::string help, prometheus::MetricType type) {
  prometheus::MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  return family;
}

void add(prometheus::MetricFamily& family, std::vector<prometheus::ClientMetric::Label> labels, double value) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  metric.counter.value = metric.gauge.value = value;
  family.metric.push_back(std::move(metric));
}

// One row per series that comes from ModelStatus; summed over the nodes that serve the model.
struct ReportedSeries {
  const char* name;
  const char* help;
  MetricType type;
  double (*value)(const ModelStatus&);
};

constexpr ReportedSeries kModelSeries[] = {
    {"vllm:num_requests_running", "Sequences in the running batch.", MetricType::Gauge,
     [](const ModelStatus& m) -> double { return m.running; }},
    {"vllm:num_requests_waiting", "Sequences waiting for their first step.", MetricType::Gauge,
     [](const ModelStatus& m) -> double { return m.waiting; }},
    {"vllm:prompt_tokens_total", "Prompt tokens processed.", MetricType::Counter,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.prompt_tokens); }},
    {"vllm:generation_tokens_total", "Tokens generated.", MetricType::Counter,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.generated_tokens); }},
    {"vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", MetricType::Counter,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.prefix_queries); }},
    {"vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", MetricType::Counter,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.prefix_hits); }},
    {"vllm:num_preemptions_total", "Sequences preempted and recomputed.", MetricType::Counter,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.preemptions); }},
    {"shoal_steps_total", "Forward passes.", MetricType::Counter,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.steps); }},
    {"shoal_model_loads_total", "Times the model was made resident.", MetricType::Counter,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.loads); }},
    {"shoal_kv_parkings_total", "Sequences whose KV went to the host tier.", MetricType::Counter,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.parkings); }},
    {"shoal_model_kv_host_bytes", "KV blocks on the host tier.", MetricType::Gauge,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.kv_bytes_host); }},
    {"shoal_model_weight_bytes", "Weights on devices.", MetricType::Gauge,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.weight_bytes); }},
    {"shoal_model_kv_bytes", "KV blocks held by sequences or the prefix cache.", MetricType::Gauge,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.kv_bytes_used); }},
    {"shoal_expert_lookups_total", "Experts that layers needed, of models that hold a part of theirs on the device.", MetricType::Counter,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.experts.lookups); }},
    {"shoal_expert_hits_total", "Of these, found on the device.", MetricType::Counter,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.experts.hits); }},
    {"shoal_expert_fetched_bytes_total", "Of the others, brought there.", MetricType::Counter,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.experts.bytes_fetched); }},
    {"shoal_expert_rows_asked_total", "Rows that expert servers were asked for.", MetricType::Counter,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.experts.rows_asked); }},
    {"shoal_expert_rows_resent_total", "Of these, asked once more of another server.", MetricType::Counter,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.experts.rows_resent); }},
    {"shoal_expert_waiting_seconds_total", "Time in which a device had nothing to do but wait for expert servers.", MetricType::Counter,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.experts.waited_us) * 1e-6; }},
    {"shoal_model_kv_active_bytes", "KV blocks held by sequences.", MetricType::Gauge,
     [](const ModelStatus& m) -> double { return static_cast<double>(m.kv_bytes_active); }},
};

void add_device_series(const RouterSnapshot& nodes, std::vector<prometheus::MetricFamily>& out) {
  auto bytes = reported("shoal_device_memory_bytes", "Device memory by kind.", MetricType::Gauge);
  for (const auto& [id, status] : nodes.nodes) {
    const std::string node = nodes.name_of(id);
    uint64_t weights = 0;
    uint64_t kv = 0;
    for (const ModelStatus& model : status.models) {
      weights += model.weight_bytes;
      kv += model.kv_bytes_used;
    }
    add(bytes, {{"node", node}, {"kind", "total"}}, static_cast<double>(status.device_bytes));
    add(bytes, {{"node", node}, {"kind", "free"}}, static_cast<double>(status.device_bytes_free));
    add(bytes, {{"node", node}, {"kind", "weights"}}, static_cast<double>(weights));
    add(bytes, {{"node", node}, {"kind", "kv"}}, static_cast<double>(kv));
  }
  out.push_back(std::move(bytes));
  auto swapped = reported("shoal_kv_swap_bytes_total", "KV copied between the device and the host tier.", MetricType::Counter);
  auto fragments = reported("shoal_kv_fragmentation", "Share of the device's KV slabs that lies in no block, 0 to 1.", MetricType::Gauge);
  auto waiting = reported("shoal_models_waiting", "Models with requests that wait for the device.", MetricType::Gauge);
  auto alpha = reported("shoal_round_alpha", "Share of the device that its decodes need to keep their time; above 1: too much.", MetricType::Gauge);
  auto pressure = reported("shoal_prompt_pressure", "Seconds to compute the waiting prompts over those until they are due; above 1: some will be late.",
                           MetricType::Gauge);
  for (const auto& [id, status] : nodes.nodes) {
    const std::string node = nodes.name_of(id);
    add(alpha, {{"node", node}}, status.decode_pressure);
    add(pressure, {{"node", node}}, status.prompt_pressure);
    add(swapped, {{"node", node}, {"direction", "out"}}, static_cast<double>(status.kv_bytes_out));
    add(swapped, {{"node", node}, {"direction", "in"}}, static_cast<double>(status.kv_bytes_in));
    add(fragments, {{"node", node}}, fragmentation(status));
    add(waiting, {{"node", node}}, static_cast<double>(status.next.size()));
  }
  for (auto* family : {&swapped, &fragments, &waiting, &alpha, &pressure}) out.push_back(std::move(*family));
}

using ModelPlaces = std::map<ModelId, std::vector<std::pair<const NodeStatus*, const ModelStatus*>>>;

// Steps by the tokens they computed, summed over nodes.
void add_step_histogram(const std::vector<ModelRef>& models, ModelPlaces& where, std::vector<prometheus::MetricFamily>& out) {
  auto family = reported("vllm:iteration_tokens_total", "Tokens computed per forward pass.", MetricType::Histogram);
  for (const ModelRef& entry : models) {
    prometheus::ClientMetric metric;
    metric.label = {{"model_name", entry->name}};
    std::vector<uint64_t> counts(kStepTokenBuckets.size() + 1);
    for (const auto& [node, model] : where[entry->id]) {
      for (size_t i = 0; i < counts.size(); ++i) counts[i] += model->steps_by_tokens[i];
      metric.histogram.sample_sum += static_cast<double>(model->step_tokens);
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      metric.histogram.sample_count += counts[i];
      const double bound = i < kStepTokenBuckets.size() ? kStepTokenBuckets[i] : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back({metric.histogram.sample_count, bound});
    }
    family.metric.push_back(std::move(metric));
  }
  out.push_back(std::move(family));
}

// Share of the memory that KV blocks could take (all but weights) which sequences of the model hold, 0..1.
double kv_usage(const NodeStatus& node, const ModelStatus& model) {
  uint64_t weights = 0;
  for (const ModelStatus& other : node.models) weights += other.weight_bytes;
  if (node.device_bytes <= weights) return 0;
  return static_cast<double>(model.kv_bytes_active) / static_cast<double>(node.device_bytes - weights);
}

void add_expert_skew(const std::vector<ModelRef>& models, ModelPlaces& where, std::vector<prometheus::MetricFamily>& out) {
  auto family = reported("shoal_expert_skew", "Rows of a layer's busiest expert over the mean of all, lately; the largest of all nodes.", MetricType::Gauge);
  for (const ModelRef& entry : models) {
    std::vector<float> most;
    for (const auto& [node, model] : where[entry->id]) {
      const std::vector<float>& skew = model->experts.skew;
      most.resize(std::max(most.size(), skew.size()));
      for (size_t i = 0; i < skew.size(); ++i) most[i] = std::max(most[i], skew[i]);
    }
    for (size_t i = 0; i < most.size(); ++i) add(family, {{"model_name", entry->name}, {"layer", std::to_string(i)}}, most[i]);
  }
  if (!family.metric.empty()) out.push_back(std::move(family));
}

void add_model_series(const std::vector<ModelRef>& models, const RouterSnapshot& nodes,
                      std::vector<prometheus::MetricFamily>& out) {
  ModelPlaces where;
  for (const auto& [id, status] : nodes.nodes) {
    for (const ModelStatus& model : status.models) where[model.model].emplace_back(&status, &model);
  }
  for (const ReportedSeries& series : kModelSeries) {
    auto family = reported(series.name, series.help, series.type);
    for (const ModelRef& entry : models) {
      double sum = 0;
      for (const auto& [node, model] : where[entry->id]) sum += series.value(*model);
      add(family, {{"model_name", entry->name}}, sum);
    }
    out.push_back(std::move(family));
  }
  add_step_histogram(models, where, out);
  add_expert_skew(models, where, out);
  auto usage = reported("vllm:kv_cache_usage_perc", "Share of the KV memory in use by sequences, 0 to 1.", MetricType::Gauge);
  auto state = reported("shoal_model_state", "1 for the state each model is in on each node.", MetricType::Gauge);
  for (const ModelRef& entry : models) {
    double most = 0;
    for (const auto& [node, model] : where[entry->id]) most = std::max(most, kv_usage(*node, *model));
    add(usage, {{"model_name", entry->name}}, most);
    for (const auto& [id, status] : nodes.nodes) {
      for (const ModelStatus& model : status.models) {
        if (model.model != entry->id) continue;
        add(state, {{"model", entry->name}, {"node", std::to_string(id.value)}, {"state", std::string(model_state_name(model.state))}}, 1);
      }
    }
  }
  auto old_usage = usage;
  old_usage.name = "vllm:gpu_cache_usage_perc";
  out.push_back(std::move(usage));
  out.push_back(std::move(old_usage));
  out.push_back(std::move(state));
}

void add_switch_series(const std::vector<ModelRef>& models, const std::map<ModelId, SwitchTotals>& totals, std::vector<prometheus::MetricFamily>& out) {
  auto ends = reported("shoal_switches_total", "Switches to the model by how they ended: served, unused (nobody waited any more), failed, cancelled.", MetricType::Counter);
  auto hidden = reported("shoal_switches_hidden_total", "Of those served, whose requests waited less than 20 ms of idle device for it.", MetricType::Counter);
  auto nothing = reported("shoal_switches_copied_nothing_total", "Of those served, whose weights were all on the device since the model was dropped.", MetricType::Counter);
  auto ahead = reported("shoal_prefetches_total", "Loads that began while another model had work on the device, by how they ended: used, unused (nobody waited any more), failed, cancelled.", MetricType::Counter);
  auto stages = reported("shoal_switch_stage_seconds_total", "Seconds of switches by stage.", MetricType::Counter);
  auto visible = reported("shoal_switch_visible_seconds_total", "Seconds in which requests of the model waited and the device computed nothing.", MetricType::Counter);
  auto loading = reported("shoal_switch_load_seconds_total", "Seconds from the begin of loads to the weights being there.", MetricType::Counter);
  auto bytes = reported("shoal_switch_bytes_total", "Bytes of loads: read from files, written on the device, adopted (there since the model was dropped).", MetricType::Counter);
  constexpr const char* kEnds[] = {"served", "unused", "failed", "cancelled"};
  constexpr const char* kAheadEnds[] = {"used", "unused", "failed", "cancelled"};
  for (const ModelRef& model : models) {
    const auto found = totals.find(model->id);
    const SwitchTotals t = found == totals.end() ? SwitchTotals() : found->second;
    for (size_t i = 0; i < t.by_end.size(); ++i) add(ends, {{"model", model->name}, {"end", kEnds[i]}}, static_cast<double>(t.by_end[i]));
    for (size_t i = 0; i < t.by_end.size(); ++i) add(ahead, {{"model", model->name}, {"end", kAheadEnds[i]}}, static_cast<double>(t.ahead_by_end[i]));
    for (size_t i = 0; i < t.stages.size(); ++i) add(stages, {{"model", model->name}, {"stage", kSwitchStages[i]}}, t.stages[i]);
    add(hidden, {{"model", model->name}}, static_cast<double>(t.hidden));
    add(nothing, {{"model", model->name}}, static_cast<double>(t.copied_nothing));
    add(visible, {{"model", model->name}}, t.visible_seconds);
    add(loading, {{"model", model->name}}, t.load_seconds);
    add(bytes, {{"model", model->name}, {"kind", "read"}}, static_cast<double>(t.bytes_read));
    add(bytes, {{"model", model->name}, {"kind", "written"}}, static_cast<double>(t.bytes_written));
    add(bytes, {{"model", model->name}, {"kind", "adopted"}}, static_cast<double>(t.bytes_adopted));
  }
  for (auto* family : {&ends, &hidden, &nothing, &ahead, &stages, &visible, &loading, &bytes}) out.push_back(std::move(*family));
}

// The counts that the four figures are made of, so that a board can show any window, and the figures since the start.
void add_slo_series(const std::vector<ModelRef>& models, const AttainmentOf& attainment, std::vector<prometheus::MetricFamily>& out) {
  struct Row {
    const char* name;
    const char* help;
    double (*value)(const Attainment&);
  };
  constexpr Row kRows[] = {
      {"shoal_slo_tokens_total", "Tokens that had a deadline; a failed request counts at least one.", [](const Attainment& a) { return static_cast<double>(a.tokens); }},
      {"shoal_slo_tokens_on_time_total", "Of those, delivered by it.", [](const Attainment& a) { return static_cast<double>(a.tokens_on_time); }},
      {"shoal_slo_requests_total", "Choices that were scored.", [](const Attainment& a) { return static_cast<double>(a.requests); }},
      {"shoal_slo_requests_on_time_total", "Of those, with every token on time.", [](const Attainment& a) { return static_cast<double>(a.requests_on_time); }},
      {"shoal_slo_request_shares_total", "Sum over choices of their share of tokens on time.", [](const Attainment& a) { return a.request_shares; }},
      {"shoal_slo_artifact_shares_total", "Sum over choices of the time fraction of Aegaeon's artifact.", [](const Attainment& a) { return a.artifact_fractions; }},
  };
  for (const Row& row : kRows) {
    auto family = reported(row.name, row.help, MetricType::Counter);
    for (const ModelRef& model : models) add(family, {{"model", model->name}}, row.value(attainment(*model)));
    out.push_back(std::move(family));
  }
  auto share = reported("shoal_slo_attainment", "Since the start, 0 to 1, 1 when nothing was asked. tokens: of all tokens on time; tokens_per_request: "
                        "mean over requests; requests: with every token on time; artifact: time fraction, for comparison only.", MetricType::Gauge);
  auto target = reported("shoal_slo_target_seconds", "What the model aims at.", MetricType::Gauge);
  for (const ModelRef& model : models) {
    const Attainment a = attainment(*model);
    const std::pair<const char*, double> figures[] = {{"tokens", a.of_tokens()}, {"tokens_per_request", a.of_tokens_per_request()},
                                                      {"requests", a.of_requests()}, {"artifact", a.of_artifact()}};
    for (const auto& [figure, value] : figures) add(share, {{"model", model->name}, {"figure", figure}}, value);
    add(target, {{"model", model->name}, {"kind", "ttft"}}, to_seconds(model->slo.ttft));
    add(target, {{"model", model->name}, {"kind", "tbt"}}, to_seconds(model->slo.tbt));
  }
  out.push_back(std::move(share));
  out.push_back(std::move(target));
}

}  // namespace

void add_reported_families(const MetricsView& view, const AttainmentOf& attainment, std::vector<prometheus::MetricFamily>& out) {
  auto live = reported("shoal_routed_requests", "Choices accepted by the router and not ended.", MetricType::Gauge);
  add(live, {}, static_cast<double>(view.live_requests));
  out.push_back(std::move(live));
  add_model_series(view.models, view.nodes, out);
  add_slo_series(view.models, attainment, out);
  add_switch_series(view.models, view.timeline.switch_totals(), out);
  add_device_series(view.nodes, out);
}

}  // namespace shoal
