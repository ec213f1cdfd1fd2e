#include "gateway/admin_status.h"

#include <algorithm>

#include "gateway/model_totals.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr Duration kMinute = std::chrono::minutes(1);

Json attainment_json(const Attainment& a) {
  return {{"tokens", a.of_tokens()}, {"tokens_per_request", a.of_tokens_per_request()}, {"requests", a.of_requests()},
          {"artifact", a.of_artifact()}, {"tokens_counted", a.tokens}, {"tokens_on_time", a.tokens_on_time}, {"requests_counted", a.requests}};
}

Json model_status(const ModelEntry& model, const RouterSnapshot& nodes, const Metrics& metrics, const SwitchTotals& switches) {
  const ModelTotals totals = totals_of(model.id, nodes);
  uint64_t prompt_tokens = 0, generated_tokens = 0, parkings = 0, host_bytes = 0;
  ExpertCounts experts;
  for (const auto& [id, node] : nodes.nodes) {
    for (const ModelStatus& status : node.models) {
      if (status.model != model.id) continue;
      prompt_tokens += status.prompt_tokens;
      generated_tokens += status.generated_tokens;
      parkings += status.parkings;
      host_bytes += status.kv_bytes_host;
      experts.add(status.experts);
    }
  }
  Json result = {{"id", model.name}, {"state", std::string(model_state_name(totals.state))}, {"progress", totals.progress}, {"error", totals.error}, {"held_up", totals.held_up},
          {"running", totals.running}, {"waiting", totals.waiting}, {"next", place_in_line(model.id, nodes)},
          {"weight_bytes", totals.weight_bytes}, {"size", model.weight_bytes}, {"kv_bytes", totals.kv_bytes}, {"kv_host_bytes", host_bytes},
          {"prompt_tokens", prompt_tokens}, {"generated_tokens", generated_tokens}, {"parkings", parkings}, {"loads", totals.loads},
          {"switches_hidden", switches.hidden}, {"switches_served", switches.of(SwitchEnd::kServed)}, {"visible_seconds", switches.visible_seconds},
          {"switches_copied_nothing", switches.copied_nothing}, {"bytes_adopted", switches.bytes_adopted}, {"bytes_written", switches.bytes_written},
          {"slo", {{"ttft", to_seconds(model.slo.ttft)}, {"tbt", to_seconds(model.slo.tbt)}}}, {"attainment", attainment_json(metrics.attainment(model))}};
  if (experts != ExpertCounts{}) {
    result["experts"] = {{"lookups", experts.lookups}, {"hits", experts.hits}, {"bytes_fetched", experts.bytes_fetched}, {"rows_asked", experts.rows_asked},
                         {"rows_resent", experts.rows_resent}, {"waited_seconds", static_cast<double>(experts.waited_us) * 1e-6}, {"skew", experts.skew}};
  }
  return result;
}

Json node_status(NodeId id, const std::string& name, const NodeStatus& node) {
  uint64_t weights = 0, kv = 0, host = 0;
  for (const ModelStatus& model : node.models) {
    weights += model.weight_bytes;
    kv += model.kv_bytes_used;
    host += model.kv_bytes_host;
  }
  return {{"id", id.value}, {"name", name}, {"memory", node.device_bytes}, {"free", node.device_bytes_free}, {"weights", weights}, {"kv", kv},
          {"kv_bound", node.kv_bytes_bound}, {"kv_fragmentation", fragmentation(node)}, {"workspace", node.workspace_bytes},
          {"host_memory", node.host_bytes}, {"host_kv", host}, {"kv_bytes_out", node.kv_bytes_out}, {"kv_bytes_in", node.kv_bytes_in},
          {"alpha", node.decode_pressure}, {"prompt_pressure", node.prompt_pressure}, {"duty", std::string(instance_role_name(node.instance_role))}};
}

}  // namespace

size_t place_in_line(ModelId model, const RouterSnapshot& nodes) {
  size_t best = 0;
  for (const auto& [id, node] : nodes.nodes) {
    const auto found = std::find(node.next.begin(), node.next.end(), model);
    const size_t place = found == node.next.end() ? 0 : static_cast<size_t>(found - node.next.begin()) + 1;
    if (place > 0 && (best == 0 || place < best)) best = place;
  }
  return best;
}

Json status_json(const Catalog& catalog, RouterLoop& loop, const Metrics& metrics, TimePoint now) {
  const auto nodes = loop.snapshot();
  const auto totals = loop.timeline().switch_totals();
  Json models = Json::array(), devices = Json::array();
  for (const ModelRef& model : catalog.models()) {
    const auto found = totals.find(model->id);
    models.push_back(model_status(*model, *nodes, metrics, found == totals.end() ? SwitchTotals() : found->second));
  }
  for (const auto& [id, node] : nodes->nodes) devices.push_back(node_status(id, nodes->name_of(id), node));
  return {{"time", to_seconds(now.time_since_epoch())}, {"models", std::move(models)}, {"nodes", std::move(devices)},
          {"requests", loop.live_requests()}, {"switches_last_minute", loop.timeline().switches_within(kMinute, now)}, {"draining", nodes->draining}};
}

}  // namespace shoal
