#include "apps/local_cluster.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/model_text.h"
#include "base/clock.h"
#include "base/log.h"
#include "device/memory_limits.h"
#include "gateway/run_recorder.h"
#include "replay/record_reader.h"

namespace shoal {
namespace {

constexpr NodeId kGatewayId{1};
constexpr uint32_t kFirstNode = 2;  // the ids of the nodes rise from here
constexpr size_t kRouterQueueMax = 8192;
constexpr auto kOnTheWay = std::chrono::milliseconds(100);  // from finding a model by its name to the router, of a request
constexpr size_t kTextsMax = 32;  // tokenizers kept; a large one takes some 50 MB

// The models that fit every device, with the context that fits it; the others are reported. An error if none is left.
StatusOr<std::vector<FoundModel>> admitted(const std::vector<NodePlan>& plans, const std::vector<FoundModel>& models) {
  const NodePlan& plan = plans.front();  // devices have the same memory
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

// One node for each device.
StatusOr<std::vector<NodeHostConfig>> node_configs(const EngineFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<DeviceSpec> devices, device_specs(flags));
  NodeHostConfig config{.gateways = {kGatewayId}, .threads = flags.threads, .sequences_max = flags.max_num_seqs,
                        .waiting_max = flags.max_num_queued_reqs, .tokens_per_step = flags.max_num_batched_tokens,
                        .prefix_cache = !flags.no_prefix_cache};
  ASSIGN_OR_RETURN(config.device_memory_bytes, device_memory_bytes(flags));
  if (config.device_memory_bytes == 0 && devices.size() > 1) config.device_memory_bytes = available_memory_bytes() / 10 * 8 / devices.size();
  ASSIGN_OR_RETURN(config.host_memory_bytes, host_memory_bytes(flags));
  ASSIGN_OR_RETURN(config.weight_cache_bytes, weight_cache_bytes(flags));
  ASSIGN_OR_RETURN(config.scheduling, scheduling_of(flags));
  if (!flags.digests_file.empty()) config.digests = std::make_shared<DigestStore>(flags.digests_file);
  std::vector<NodeHostConfig> configs;
  for (const DeviceSpec& device : devices) {
    config.self = NodeId(static_cast<uint32_t>(kFirstNode + configs.size()));
    config.instance_role = device.instance_role;
    config.cpus = device.cpus;
    config.guarded = device.guarded;
    config.estimates_file = flags.estimates_file;
    if (!configs.empty() && !flags.estimates_file.empty()) absl::StrAppend(&config.estimates_file, ".", configs.size());
    configs.push_back(config);
  }
  return configs;
}

}  // namespace

StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::start(const EngineFlags& flags, std::vector<FoundModel> models) {
  ASSIGN_OR_RETURN(const LoadOptions load, load_options(flags));
  ASSIGN_OR_RETURN(const std::vector<NodeHostConfig> configs, node_configs(flags));
  std::unique_ptr<LocalCluster> cluster(new LocalCluster());
  LocalCluster* self = cluster.get();
  std::vector<ServedModel> wanted;
  for (const FoundModel& model : models) wanted.push_back(self->served(flags, load, model));
  std::vector<NodePlan> plans;
  for (const NodeHostConfig& config : configs) {
    ASSIGN_OR_RETURN(plans.emplace_back(), plan_node(config, wanted));
  }
  ASSIGN_OR_RETURN(self->models_, admitted(plans, models));
  self->next_id_ = static_cast<uint32_t>(models.size());

  cluster->catalog_ = std::make_unique<Catalog>(
      entries_of(self->models_), [](const ModelEntry& model) {
        return load_model_text(model.path, model.tool_call_parser, model.reasoning_parser);
      }, kTextsMax);
  const auto names = std::make_shared<ModelNames>();
  for (NodePlan& plan : plans) plan.names = names;
  // The router's endpoint exists before the nodes report to it.
  cluster->router_ = std::make_unique<RouterLoop>(
      RouterConfig{.self = kGatewayId, .life = 1}, kRouterQueueMax,
      [self](Transport::OnMessage on_message) { return self->network_.connect(kGatewayId, std::move(on_message)); }, names);
  if (!flags.record_events.empty()) {
    ASSIGN_OR_RETURN(const auto recorder, RunRecorder::open(flags.record_events, steady_now()));
    recorder->write_bytes(kEventLogHead);
    for (NodePlan& plan : plans) plan.record = [recorder](std::string_view record) { recorder->write_bytes(framed(record)); };
  }
  RETURN_IF_ERROR(cluster->start_nodes(std::move(plans)));
  return cluster;
}

Status LocalCluster::start_nodes(std::vector<NodePlan> plans) {
  const auto peers = std::make_shared<KvPeers>();
  for (NodePlan& plan : plans) {
    const NodeId id = plan.node.self;
    if (plans.size() > 1) {
      log_info("device ", id.value - kFirstNode, ": cores ", absl::StrJoin(plan.cpus.cpus, ","), ", role ", std::string(instance_role_name(plan.node.instance_role)));
    }
    ASSIGN_OR_RETURN(auto host, NodeHost::start(std::move(plan), network_, peers));
    nodes_.push_back({id, 0, std::move(host)});
  }
  for (LocalNode& node : nodes_) {
    ASSIGN_OR_RETURN(node.epoch, membership_.join({.id = node.id, .role = Role::kNode, .models = ids_of(models_)}));
  }
  membership_.watch([this](const ClusterState& state) {
    router_->set_cluster(state);
    for (const LocalNode& node : nodes_) node.host->set_cluster(state);
  });
  return OkStatus();
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

// To every node, or to none. The longest sequence that all of them take.
StatusOr<uint32_t> LocalCluster::add_to_all(const ServedModel& model) {
  uint32_t length = UINT32_MAX;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto facts = nodes_[i].host->add_model(model);
    if (!facts.ok()) {
      for (size_t added = 0; added < i; ++added) nodes_[added].host->retire_model(model.id);
      return facts.status();
    }
    length = std::min(length, facts->max_model_len);
  }
  return length;
}

// Gives the model the id of the one that is served already, or brings a new one to the node. False: refused.
bool LocalCluster::settle(const EngineFlags& flags, const LoadOptions& load, FoundModel& model, ModelChanges& changes) {
  for (const FoundModel& known : models_) {
    if (known.entry.name != model.entry.name || !same_model(known, model)) continue;
    model.entry.id = known.entry.id;
    model.entry.max_model_len = known.entry.max_model_len;
    const bool same = known.pooling == model.pooling;
    if (!same || known.entry.aliases != model.entry.aliases) changes.changed.push_back(model.entry.name);
    if (!same) router_->configure({model.entry.id, model.pooling});
    return true;
  }
  model.entry.id = ModelId(next_id_++);
  const auto length = add_to_all(served(flags, load, model));
  if (!length.ok()) {
    changes.refused.push_back(absl::StrCat(model.entry.name, ": ", length.status().message()));
    return false;
  }
  model.entry.max_model_len = *length;
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
  for (const LocalNode& node : nodes_) {
    membership_.serve(node.id, node.epoch, both).IgnoreError();  // it joined above; whoever finds a new model finds its nodes
  }
  models_ = std::move(models);
  catalog_->replace(entries_of(models_));
  router_->timeline().name_models(catalog_->models());
  if (!gone.empty()) std::this_thread::sleep_for(kOnTheWay);
  for (const LocalNode& node : nodes_) {
    membership_.serve(node.id, node.epoch, kept).IgnoreError();
    for (const ModelId id : gone) node.host->retire_model(id);
  }
  return changes;
}

double LocalCluster::stalled_seconds() const {
  double longest = 0;
  for (const LocalNode& node : nodes_) longest = std::max(longest, node.host->stalled_seconds());
  return longest;
}

bool LocalCluster::wait_ready(Duration timeout) {
  const TimePoint until = steady_now() + timeout;
  while (router_->snapshot()->nodes.size() < nodes_.size()) {
    if (steady_now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace shoal
