// A node's report and what belongs to it.
#include <algorithm>

#include "wire/codec_parts.h"

namespace shoal {
namespace {

constexpr int kSwitchesMax = 1024;
constexpr int kExpertLayersMax = 4096;

void to_pb(const ModelStatus& from, pb::ModelStatus* to) {
  to->set_model(from.model.value);
  to->set_state(static_cast<uint32_t>(from.state));
  to->set_progress(from.progress);
  to->set_error(from.error);
  to->set_held_up(from.held_up);
  to->set_waiting(from.waiting);
  to->set_running(from.running);
  to->set_weight_bytes(from.weight_bytes);
  to->set_kv_bytes_used(from.kv_bytes_used);
  to->set_kv_bytes_active(from.kv_bytes_active);
  to->set_max_model_len(from.max_model_len);
  to->set_prompt_tokens(from.prompt_tokens);
  to->set_generated_tokens(from.generated_tokens);
  to->set_prefix_queries(from.prefix_queries);
  to->set_prefix_hits(from.prefix_hits);
  to->set_preemptions(from.preemptions);
  to->set_steps(from.steps);
  to->set_loads(from.loads);
  const auto& steps = from.steps_by_tokens;
  const auto end = std::find_if(steps.rbegin(), steps.rend(), [](uint64_t count) { return count > 0; }).base();
  to->mutable_steps_by_tokens()->Add(steps.begin(), end);  // zeros at the end go without saying
  to->set_step_tokens(from.step_tokens);
  to->set_parkings(from.parkings);
  to->set_kv_bytes_host(from.kv_bytes_host);
  to->set_wait_seconds(from.wait_seconds);
  to->set_switch_seconds(from.switch_seconds);
  to->set_prompt_token_seconds(from.prompt_token_seconds);
  to->set_no_room(!from.room);
  to->set_ttft_ns(from.slo.ttft.count());
  to->set_tbt_ns(from.slo.tbt.count());
  to->set_answer_tokens(from.answer_tokens);
  to->set_answer_pressure(from.answer_pressure);
  if (from.experts != ExpertCounts{}) shoal::to_pb(from.experts, to->mutable_experts());
}

int64_t to_ns(TimePoint at) { return at.time_since_epoch().count(); }

void to_pb(const SwitchRecord& from, pb::SwitchRecord* to) {
  to->set_model(from.model.value);
  for (const ModelId model : from.dropped) to->add_dropped(model.value);
  to->set_end(static_cast<uint32_t>(from.end));
  to->set_asked_ns(to_ns(from.asked));
  to->set_planned_ns(to_ns(from.planned));
  to->set_begun_ns(to_ns(from.begun));
  to->set_ready_ns(to_ns(from.ready));
  to->set_first_step_ns(to_ns(from.first_step));
  to->set_unmap_seconds(from.stages.unmap_seconds);
  to->set_map_seconds(from.stages.map_seconds);
  to->set_open_seconds(from.stages.open_seconds);
  to->set_read_seconds(from.stages.read_seconds);
  to->set_repack_seconds(from.stages.repack_seconds);
  to->set_bytes_read(from.stages.bytes_read);
  to->set_bytes_written(from.stages.bytes_written);
  to->set_bytes_adopted(from.stages.bytes_adopted);
  to->set_swap_in_seconds(from.swap_in_seconds);
  to->set_visible_seconds(from.visible_seconds);
  to->set_ahead(from.ahead);
}

void to_pb(const DeviceEvent& from, pb::DeviceEvent* to) {
  to->set_act(static_cast<uint32_t>(from.act));
  to->set_model(from.model.value);
  to->set_begin_ns(from.begin.time_since_epoch().count());
  to->set_end_ns(from.end.time_since_epoch().count());
  to->set_steps(from.steps);
  to->set_amount(from.amount);
}

StatusOr<ModelStatus> from_pb(const pb::ModelStatus& from) {
  if (from.state() > static_cast<uint32_t>(ModelState::kFailed)) return invalid_argument("message: unknown model state");
  RETURN_IF_ERROR(finite(from.progress(), "progress"));
  ModelStatus to;
  to.model = ModelId(from.model());
  to.state = static_cast<ModelState>(from.state());
  to.progress = from.progress();
  to.error = from.error();
  to.held_up = from.held_up();
  to.waiting = from.waiting();
  to.running = from.running();
  to.weight_bytes = from.weight_bytes();
  to.kv_bytes_used = from.kv_bytes_used();
  to.kv_bytes_active = from.kv_bytes_active();
  to.max_model_len = from.max_model_len();
  to.prompt_tokens = from.prompt_tokens();
  to.generated_tokens = from.generated_tokens();
  to.prefix_queries = from.prefix_queries();
  to.prefix_hits = from.prefix_hits();
  to.preemptions = from.preemptions();
  to.steps = from.steps();
  to.loads = from.loads();
  if (from.steps_by_tokens_size() > static_cast<int>(to.steps_by_tokens.size())) return invalid_argument("message: too many buckets");
  std::copy(from.steps_by_tokens().begin(), from.steps_by_tokens().end(), to.steps_by_tokens.begin());
  to.step_tokens = from.step_tokens();
  to.parkings = from.parkings();
  to.kv_bytes_host = from.kv_bytes_host();
  RETURN_IF_ERROR(finite(from.wait_seconds(), "wait_seconds"));
  to.wait_seconds = from.wait_seconds();
  RETURN_IF_ERROR(finite(from.switch_seconds(), "switch_seconds"));
  RETURN_IF_ERROR(finite(from.prompt_token_seconds(), "prompt_token_seconds"));
  to.switch_seconds = from.switch_seconds();
  to.prompt_token_seconds = from.prompt_token_seconds();
  to.room = !from.no_room();
  to.slo = {Duration(from.ttft_ns()), Duration(from.tbt_ns())};
  RETURN_IF_ERROR(finite(from.answer_tokens(), "answer_tokens"));
  RETURN_IF_ERROR(finite(from.answer_pressure(), "answer_pressure"));
  to.answer_tokens = from.answer_tokens();
  to.answer_pressure = from.answer_pressure();
  ASSIGN_OR_RETURN(to.experts, shoal::from_pb(from.experts()));
  return to;
}

StatusOr<SwitchRecord> from_pb(const pb::SwitchRecord& from) {
  if (from.end() > static_cast<uint32_t>(SwitchEnd::kCancelled)) return invalid_argument("message: unknown end of a switch");
  const double seconds[] = {from.unmap_seconds(),  from.map_seconds(),     from.open_seconds(),   from.read_seconds(),
                            from.repack_seconds(), from.swap_in_seconds(), from.visible_seconds()};
  for (const double value : seconds) {
    if (!std::isfinite(value) || value < 0) return invalid_argument("message: seconds of a switch are not a duration");
  }
  SwitchRecord to;
  to.model = ModelId(from.model());
  for (const uint32_t model : from.dropped()) to.dropped.push_back(ModelId(model));
  to.end = static_cast<SwitchEnd>(from.end());
  to.asked = TimePoint(Duration(from.asked_ns()));
  to.planned = TimePoint(Duration(from.planned_ns()));
  to.begun = TimePoint(Duration(from.begun_ns()));
  to.ready = TimePoint(Duration(from.ready_ns()));
  to.first_step = TimePoint(Duration(from.first_step_ns()));
  to.stages = {from.unmap_seconds(),  from.map_seconds(), from.open_seconds(),  from.read_seconds(),
               from.repack_seconds(), from.bytes_read(),  from.bytes_written(), from.bytes_adopted()};
  to.swap_in_seconds = from.swap_in_seconds();
  to.visible_seconds = from.visible_seconds();
  to.ahead = from.ahead();
  return to;
}

}  // namespace

void to_pb(const ExpertCounts& from, pb::ExpertCounts* to) {
  to->set_lookups(from.lookups);
  to->set_hits(from.hits);
  to->set_bytes_fetched(from.bytes_fetched);
  to->set_rows_asked(from.rows_asked);
  to->set_rows_resent(from.rows_resent);
  to->set_waited_us(from.waited_us);
  to->mutable_skew()->Add(from.skew.begin(), from.skew.end());
}

StatusOr<ExpertCounts> from_pb(const pb::ExpertCounts& from) {
  if (from.skew_size() > kExpertLayersMax) return invalid_argument("message: more layers with experts than a model has");
  for (const float skew : from.skew()) RETURN_IF_ERROR(finite(skew, "skew"));
  return ExpertCounts{from.lookups(), from.hits(), from.bytes_fetched(), from.rows_asked(), from.rows_resent(), from.waited_us(), {from.skew().begin(), from.skew().end()}};
}

void to_pb(const NodeStatus& m, pb::NodeStatus* to) {
  to->set_version(m.version);
  to->set_device_bytes(m.device_bytes);
  to->set_device_bytes_free(m.device_bytes_free);
  to->set_workspace_bytes(m.workspace_bytes);
  to->set_instance_role(static_cast<uint32_t>(m.instance_role));
  to->set_prompt_pressure(m.prompt_pressure);
  to->set_decode_pressure(m.decode_pressure);
  for (const ModelStatus& model : m.models) to_pb(model, to->add_models());
  for (const DeviceEvent& event : m.events) to_pb(event, to->add_events());
  for (const ModelId model : m.next) to->add_next(model.value);
  to->set_kv_bytes_bound(m.kv_bytes_bound);
  to->set_kv_bytes_free(m.kv_bytes_free);
  to->set_host_bytes(m.host_bytes);
  to->set_kv_bytes_out(m.kv_bytes_out);
  to->set_kv_bytes_in(m.kv_bytes_in);
  to->set_at_ns(to_ns(m.at));
  for (const SwitchRecord& record : m.switches) to_pb(record, to->add_switches());
}

StatusOr<NodeStatus> from_pb(const pb::NodeStatus& from) {
  NodeStatus to{from.version(), from.device_bytes(), from.device_bytes_free(), from.workspace_bytes()};
  ASSIGN_OR_RETURN(to.instance_role, instance_role_from(from.instance_role()));
  RETURN_IF_ERROR(finite(from.prompt_pressure(), "prompt_pressure"));
  RETURN_IF_ERROR(finite(from.decode_pressure(), "decode_pressure"));
  to.prompt_pressure = from.prompt_pressure();
  to.decode_pressure = from.decode_pressure();
  for (const pb::ModelStatus& model : from.models()) {
    ASSIGN_OR_RETURN(ModelStatus status, from_pb(model));
    to.models.push_back(std::move(status));
  }
  to.at = TimePoint(Duration(from.at_ns()));
  if (from.switches_size() > kSwitchesMax) return invalid_argument("message: too many switches");
  for (const pb::SwitchRecord& record : from.switches()) {
    ASSIGN_OR_RETURN(SwitchRecord one, from_pb(record));
    to.switches.push_back(std::move(one));
  }
  for (const pb::DeviceEvent& event : from.events()) {
    if (event.act() >= kDeviceActs || event.end_ns() < event.begin_ns()) return invalid_argument("message: an event of an unknown kind or time");
    to.events.push_back({static_cast<DeviceAct>(event.act()), ModelId(event.model()), TimePoint(Duration(event.begin_ns())),
                         TimePoint(Duration(event.end_ns())), event.steps(), event.amount()});
  }
  for (const uint32_t model : from.next()) to.next.push_back(ModelId(model));
  to.kv_bytes_bound = from.kv_bytes_bound();
  to.kv_bytes_free = from.kv_bytes_free();
  to.host_bytes = from.host_bytes();
  to.kv_bytes_out = from.kv_bytes_out();
  to.kv_bytes_in = from.kv_bytes_in();
  return to;
}

}  // namespace shoal
