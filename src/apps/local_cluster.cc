#include "apps/local_cluster.h"

#include <thread>

#include "apps/model_text.h"
#include "base/clock.h"
#include "base/log.h"

namespace shoal {
namespace {

constexpr NodeId kGatewayId{1};
constexpr NodeId kNodeId{2};
constexpr size_t kRouterQueueMax = 8192;
constexpr size_t kTextsMax = 32;  // tokenizers kept; a large one takes some 50 MB

// The models that fit the device, with the context that fits it; the others are reported. An error if none is left.
StatusOr<std::vector<ModelEntry>> admitted(const NodePlan& plan, const std::vector<FoundModel>& models) {
  std::vector<ModelEntry> entries;
  Status first_refusal;
  for (const FoundModel& model : models) {
    if (const auto refused = plan.refused.find(model.entry.id); refused != plan.refused.end()) {
      const Status why = annotate(refused->second, absl::StrCat("'", model.entry.name, "' is not served"));
      log_error(why.message());
      if (first_refusal.ok()) first_refusal = why;
      continue;
    }
    entries.push_back(model.entry);
    for (const NodeModel& facts : plan.node.models) {
      if (facts.model == model.entry.id) entries.back().max_model_len = facts.max_model_len;
    }
  }
  if (entries.empty() && !first_refusal.ok()) return first_refusal;
  return entries;
}

}  // namespace

StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::start(const EngineFlags& flags, std::vector<FoundModel> models) {
  ASSIGN_OR_RETURN(const LoadOptions load, load_options(flags));
  ASSIGN_OR_RETURN(const uint64_t memory_bytes, device_memory_bytes(flags));
  NodeHostConfig node_config{.self = kNodeId, .gateways = {kGatewayId}, .device_memory_bytes = memory_bytes,
                             .threads = flags.threads, .sequences_max = flags.max_num_seqs,
                             .waiting_max = flags.max_num_queued_reqs, .tokens_per_step = flags.max_num_batched_tokens,
                             .prefix_cache = !flags.no_prefix_cache};
  ASSIGN_OR_RETURN(node_config.host_memory_bytes, host_memory_bytes(flags));
  ASSIGN_OR_RETURN(node_config.weight_cache_bytes, weight_cache_bytes(flags));
  ASSIGN_OR_RETURN(node_config.scheduling, scheduling_of(flags));
  std::unique_ptr<LocalCluster> cluster(new LocalCluster());
  LocalCluster* self = cluster.get();
  std::vector<ServedModel> wanted;
  for (const FoundModel& model : models) {
    wanted.push_back({.id = model.entry.id, .name = model.entry.name, .path = model.path, .load = load,
                      .max_model_len = flags.max_model_len,
                      .vocabulary = [self, name = model.entry.name] { return self->vocabulary(name); },
                      .pooling = model.pooling});
  }
  ASSIGN_OR_RETURN(NodePlan plan, plan_node(node_config, wanted));
  ASSIGN_OR_RETURN(std::vector<ModelEntry> entries, admitted(plan, models));
  Member member{.id = kNodeId, .role = Role::kNode};
  for (const ModelEntry& entry : entries) member.models.push_back(entry.id);

  cluster->catalog_ = std::make_unique<Catalog>(
      std::move(entries), [](const ModelEntry& model) {
        return load_model_text(model.path, model.tool_call_parser, model.reasoning_parser);
      }, kTextsMax);
  // The router's endpoint exists before the node reports to it.
  cluster->router_ = std::make_unique<RouterLoop>(
      RouterConfig{.self = kGatewayId}, kRouterQueueMax,
      [self](Transport::OnMessage on_message) { return self->network_.connect(kGatewayId, std::move(on_message)); });
  ASSIGN_OR_RETURN(cluster->node_, NodeHost::start(std::move(plan), cluster->network_));
  RETURN_IF_ERROR(cluster->membership_.join(std::move(member)).status());
  cluster->membership_.watch([self](const ClusterState& state) { self->router_->set_cluster(state); });
  return cluster;
}

StatusOr<std::shared_ptr<const TokenVocabulary>> LocalCluster::vocabulary(const std::string& name) {
  const ModelRef entry = catalog_->find(name);
  if (entry == nullptr) return not_found("the model '", name, "' is not served");
  ASSIGN_OR_RETURN(const std::shared_ptr<const ModelText> text, catalog_->text(*entry));
  return text->vocabulary.get(*text->tokenizer);
}

bool LocalCluster::wait_ready(Duration timeout) {
  const TimePoint until = steady_now() + timeout;
  while (router_->snapshot()->nodes.empty()) {
    if (steady_now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace shoal
