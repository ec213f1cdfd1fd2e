#include "apps/local_cluster.h"

#include <algorithm>
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
StatusOr<std::vector<FoundModel>> admitted(const NodePlan& plan, const std::vector<FoundModel>& models) {
  std::vector<FoundModel> out;
  Status first_refusal;
  for (const FoundModel& model : models) {
    if (const auto refused = plan.refused.find(model.entry.id); refused != plan.refused.end()) {
      const Status why = annotate(refused->second, absl::StrCat("'", model.entry.name, "' is not served"));
      log_error(why.message());
      if (first_refusal.ok()) first_refusal = why;
      continue;
    }
    out.push_back(model);
    for (const NodeModel& facts : plan.node.models) {
      if (facts.model == model.entry.id) out.back().entry.max_model_len = facts.max_model_len;
    }
  }
  if (out.empty() && !first_refusal.ok()) return first_refusal;
  return out;
}

std::vector<ModelEntry> entries_of(const std::vector<FoundModel>& models) {
  std::vector<ModelEntry> entries;
  for (const FoundModel& model : models) entries.push_back(model.entry);
  return entries;
}

std::vector<ModelId> ids_of(const std::vector<FoundModel>& models) {
  std::vector<ModelId> ids;
  for (const FoundModel& model : models) ids.push_back(model.entry.id);
  return ids;
}

// Whether what the node knows of the one holds for the other: the same files, read the same way.
bool same_model(const FoundModel& a, const FoundModel& b) {
  return a.path == b.path && a.disk_bytes == b.disk_bytes && a.entry.created_unix_seconds == b.entry.created_unix_seconds &&
         a.entry.weight_bytes == b.entry.weight_bytes && a.entry.trained_len == b.entry.trained_len && a.context == b.context &&
         a.entry.tool_call_parser == b.entry.tool_call_parser && a.entry.reasoning_parser == b.entry.reasoning_parser;
}

Configure settings_of(const FoundModel& model) {
  const PoolingSettings& p = model.pooling;
  return {model.entry.id, p.slo.ttft, p.slo.tbt, p.priority, p.pinned, p.idle_ttl, p.max_wait};
}

}  // namespace

StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::start(const EngineFlags& flags, std::vector<FoundModel> models) {
  ASSIGN_OR_RETURN(const LoadOptions load, load_options(flags));
  ASSIGN_OR_RETURN(const uint64_t memory_bytes, device_memory_bytes(flags));
  NodeHostConfig node_config{.self = kNodeId, .gateways = {kGatewayId}, .device_memory_bytes = memory_bytes,
                             .threads = flags.threads, .sequences_max = flags.max_num_seqs,
                             .waiting_max = flags.max_num_queued_reqs, .tokens_per_step = flags.max_num_batched_tokens,
                             .prefix_cache = !flags.no_prefix_cache, .estimates_file = flags.estimates_file};
  ASSIGN_OR_RETURN(node_config.host_memory_bytes, host_memory_bytes(flags));
  ASSIGN_OR_RETURN(node_config.weight_cache_bytes, weight_cache_bytes(flags));
  ASSIGN_OR_RETURN(node_config.scheduling, scheduling_of(flags));
  std::unique_ptr<LocalCluster> cluster(new LocalCluster());
  LocalCluster* self = cluster.get();
  std::vector<ServedModel> wanted;
  for (const FoundModel& model : models) wanted.push_back(self->served(flags, load, model));
  ASSIGN_OR_RETURN(NodePlan plan, plan_node(node_config, wanted));
  ASSIGN_OR_RETURN(self->models_, admitted(plan, models));
  self->next_id_ = static_cast<uint32_t>(models.size());
  Member member{.id = kNodeId, .role = Role::kNode, .models = ids_of(self->models_)};

  cluster->catalog_ = std::make_unique<Catalog>(
      entries_of(self->models_), [](const ModelEntry& model) {
        return load_model_text(model.path, model.tool_call_parser, model.reasoning_parser);
      }, kTextsMax);
  // The router's endpoint exists before the node reports to it.
  cluster->router_ = std::make_unique<RouterLoop>(
      RouterConfig{.self = kGatewayId}, kRouterQueueMax,
      [self](Transport::OnMessage on_message) { return self->network_.connect(kGatewayId, std::move(on_message)); });
  ASSIGN_OR_RETURN(cluster->node_, NodeHost::start(std::move(plan), cluster->network_));
  ASSIGN_OR_RETURN(self->epoch_, cluster->membership_.join(std::move(member)));
  cluster->membership_.watch([self](const ClusterState& state) { self->router_->set_cluster(state); });
  return cluster;
}

StatusOr<std::shared_ptr<const TokenVocabulary>> LocalCluster::vocabulary(ModelId id) {
  const ModelRef entry = catalog_->find(id);
  if (entry == nullptr) return not_found("the model is not served any more");
  ASSIGN_OR_RETURN(const std::shared_ptr<const ModelText> text, catalog_->text(*entry));
  return text->vocabulary.get(*text->tokenizer);
}

ServedModel LocalCluster::served(const EngineFlags& flags, const LoadOptions& load, const FoundModel& model) {
  return {.id = model.entry.id, .name = model.entry.name, .path = model.path, .load = load,
          .max_model_len = model.context > 0 ? model.context : flags.max_model_len,
          .vocabulary = [this, id = model.entry.id] { return vocabulary(id); }, .pooling = model.pooling};
}

// Gives the model the id of the one that is served already, or brings a new one to the node. False: refused.
bool LocalCluster::settle(const EngineFlags& flags, const LoadOptions& load, FoundModel& model, ModelChanges& changes) {
  for (const FoundModel& known : models_) {
    if (known.entry.name != model.entry.name || !same_model(known, model)) continue;
    model.entry.id = known.entry.id;
    model.entry.max_model_len = known.entry.max_model_len;
    if (!(settings_of(known) == settings_of(model)) || known.entry.aliases != model.entry.aliases) changes.changed.push_back(model.entry.name);
    if (!(settings_of(known) == settings_of(model))) router_->configure(settings_of(model));
    return true;
  }
  model.entry.id = ModelId(next_id_++);
  const auto facts = node_->add_model(served(flags, load, model));
  if (!facts.ok()) {
    changes.refused.push_back(absl::StrCat(model.entry.name, ": ", facts.status().message()));
    return false;
  }
  model.entry.max_model_len = facts->max_model_len;
  changes.added.push_back(model.entry.name);
  return true;
}

ModelChanges LocalCluster::update(const EngineFlags& flags, std::vector<FoundModel> models) {
  ModelChanges changes;
  const auto load = load_options(flags);
  if (!load.ok()) return {.refused = {std::string(load.status().message())}};
  std::erase_if(models, [&](FoundModel& model) { return !settle(flags, *load, model, changes); });
  std::vector<ModelId> gone = ids_of(models_);
  const std::vector<ModelId> kept = ids_of(models);
  for (const FoundModel& before : models_) {
    if (std::find(kept.begin(), kept.end(), before.entry.id) == kept.end()) changes.removed.push_back(before.entry.name);
  }
  std::erase_if(gone, [&](ModelId id) { return std::find(kept.begin(), kept.end(), id) != kept.end(); });
  std::vector<ModelId> both = kept;
  both.insert(both.end(), gone.begin(), gone.end());
  membership_.serve(kNodeId, epoch_, both).IgnoreError();  // it joined above; whoever finds a new model finds its node
  models_ = std::move(models);
  catalog_->replace(entries_of(models_));
  router_->timeline().name_models(catalog_->models());
  membership_.serve(kNodeId, epoch_, kept).IgnoreError();
  for (const ModelId id : gone) node_->retire_model(id);
  return changes;
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
