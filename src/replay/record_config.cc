// The life of a node as a record: what it was told of itself and of its models. Structs are taken apart by all of their
// fields, so that one that is added does not compile until it is recorded.
#include "replay/record_codec.h"
#include "wire/codec_parts.h"

namespace shoal {

void to_pb(const NodeModel& from, pb::NodeModel* to) {
  const auto& [model, name, stamp, weight_bytes, kv_block_bytes, state_blocks, max_model_len, vocab_size, kv_salt_above, experts_elsewhere, pooling, costs] = from;
  to->set_model(model.value);
  to->set_name(name);
  to->set_stamp(stamp);
  to->set_weight_bytes(weight_bytes);
  to->set_kv_block_bytes(kv_block_bytes);
  to->set_state_blocks(state_blocks);
  to->set_max_model_len(max_model_len);
  to->set_vocab_size(vocab_size);
  to->set_kv_salt_above(kv_salt_above);
  to->set_experts_elsewhere(experts_elsewhere);
  to_pb(pooling, to->mutable_settings());
  to->set_costs(costs.to_json());
}

StatusOr<NodeModel> model_from(const pb::NodeModel& from) {
  NodeModel to;
  to.model = ModelId(from.model());
  to.name = from.name();
  to.stamp = from.stamp();
  to.weight_bytes = from.weight_bytes();
  to.kv_block_bytes = from.kv_block_bytes();
  to.state_blocks = from.state_blocks();
  to.max_model_len = from.max_model_len();
  to.vocab_size = from.vocab_size();
  to.kv_salt_above = from.kv_salt_above();
  to.experts_elsewhere = from.experts_elsewhere();
  ASSIGN_OR_RETURN(to.pooling, settings_from(from.settings()));
  if (from.costs().empty()) return to;
  ASSIGN_OR_RETURN(to.costs, ModelEstimator::from_json(from.costs()));
  return to;
}

void to_pb(const NodeConfig& from, pb::NodeConfig* to) {
  const auto& [self, instance_role, pages, workspace_bytes, host_pages, adopt_weights, one_memory, models, gateways, limits, prompt_tokens_min, gap_stretch, waiting_max, prefix_cache, scheduling,
               turns, prompts, switching, load_bytes_per_second, steps_max, status_interval, offer_time] = from;
  to->set_self(self.value);
  to->set_instance_role(static_cast<uint32_t>(instance_role));
  to->set_pages(pages);
  to->set_workspace_bytes(workspace_bytes);
  to->set_host_pages(host_pages);
  to->set_adopt_weights(adopt_weights);
  to->set_one_memory(one_memory);
  for (const NodeModel& model : models) to_pb(model, to->add_models());
  for (const NodeId gateway : gateways) to->add_gateways(gateway.value);
  const auto& [tokens_per_step, sequences_max, logit_rows_max, admit, admissions_max] = limits;
  to->set_tokens_per_step(tokens_per_step), to->set_sequences_max(sequences_max), to->set_logit_rows_max(logit_rows_max);
  to->set_admit(admit), to->set_admissions_max(admissions_max);
  to->set_prompt_tokens_min(prompt_tokens_min);
  to->set_gap_stretch(gap_stretch);
  to->set_waiting_max(waiting_max);
  to->set_prefix_cache(prefix_cache);
  to->set_scheduling(static_cast<uint32_t>(scheduling));
  const auto& [quota_max_seconds, least_slack_first, enter_running_round, end_early, recompute, cover_switch, triage, narrow, dark_max] = turns;
  to->set_quota_max_seconds(quota_max_seconds), to->set_least_slack_first(least_slack_first), to->set_enter_running_round(enter_running_round);
  to->set_end_early(end_early), to->set_recompute(recompute), to->set_cover_switch(cover_switch);
  to->set_triage(triage), to->set_narrow(narrow), to->set_dark_max_ns(dark_max.count());
  const auto& [group_max, age_guard] = prompts;
  to->set_group_max(group_max), to->set_age_guard(age_guard);
  const auto& [hold_after] = switching;
  to->set_hold_after_ns(hold_after.count());
  to->set_load_bytes_per_second(load_bytes_per_second);
  to->set_status_interval_ns(status_interval.count());
  to->set_offer_time_ns(offer_time.count());
  to->set_steps_max(steps_max);
}

StatusOr<NodeConfig> config_from(const pb::NodeConfig& from) {
  for (const double x : {from.gap_stretch(), from.quota_max_seconds(), from.load_bytes_per_second()}) RETURN_IF_ERROR(finite(x, "a number of the config"));
  if (from.scheduling() > static_cast<uint32_t>(Scheduling::kStatic)) return invalid_argument("config: unknown scheduling");
  NodeConfig to;
  to.self = NodeId(from.self());
  ASSIGN_OR_RETURN(to.instance_role, instance_role_from(from.instance_role()));
  to.pages = from.pages();
  to.workspace_bytes = from.workspace_bytes();
  to.host_pages = from.host_pages();
  to.adopt_weights = from.adopt_weights();
  to.one_memory = from.one_memory();
  for (const pb::NodeModel& model : from.models()) {
    ASSIGN_OR_RETURN(to.models.emplace_back(), model_from(model));
  }
  for (const uint32_t gateway : from.gateways()) to.gateways.push_back(NodeId(gateway));
  to.limits = {from.tokens_per_step(), from.sequences_max(), from.logit_rows_max(), from.admit(), from.admissions_max()};
  to.prompt_tokens_min = from.prompt_tokens_min();
  to.gap_stretch = from.gap_stretch();
  to.waiting_max = from.waiting_max();
  to.prefix_cache = from.prefix_cache();
  to.scheduling = static_cast<Scheduling>(from.scheduling());
  to.turns = {from.quota_max_seconds(), from.least_slack_first(), from.enter_running_round(), from.end_early(), from.recompute(), from.cover_switch(),
              from.triage(), from.narrow(), Duration(from.dark_max_ns())};
  to.prompts = {from.group_max(), from.age_guard()};
  to.switching = {Duration(from.hold_after_ns())};
  to.load_bytes_per_second = from.load_bytes_per_second();
  to.status_interval = Duration(from.status_interval_ns());
  to.offer_time = Duration(from.offer_time_ns());
  to.steps_max = std::max(from.steps_max(), 1u);
  return to;
}

}  // namespace shoal
