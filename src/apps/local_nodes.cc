#include "apps/local_nodes.h"

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
#include "policy/overlap.h"
#include "replay/record_reader.h"

namespace shoal {
namespace {

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

uint32_t lanes_max(const EngineFlags& flags) { return flags.expert_lanes == 0 ? kLanesMax : flags.expert_lanes; }

// One node for each device.
StatusOr<std::vector<NodeHostConfig>> node_configs(const EngineFlags& flags, const LocalNodes::Where& where) {
  ASSIGN_OR_RETURN(const std::vector<DeviceSpec> devices, device_specs(flags));
  NodeHostConfig config{.gateways = where.gateways, .threads = flags.threads, .sequences_max = flags.max_num_seqs,
                        .waiting_max = flags.max_num_queued_reqs, .tokens_per_step = flags.max_num_batched_tokens,
                        .prefix_cache = !flags.no_prefix_cache};
  if (flags.experts != "here") config.lanes = lanes_max(flags);
  ASSIGN_OR_RETURN(config.device_memory_bytes, device_memory_bytes(flags));
  if (config.device_memory_bytes == 0 && devices.size() > 1) config.device_memory_bytes = available_memory_bytes() / 10 * 8 / devices.size();
  ASSIGN_OR_RETURN(config.host_memory_bytes, host_memory_bytes(flags));
  ASSIGN_OR_RETURN(config.weight_cache_bytes, weight_cache_bytes(flags));
  ASSIGN_OR_RETURN(config.scheduling, scheduling_of(flags));
  if (!flags.digests_file.empty()) config.digests = std::make_shared<DigestStore>(flags.digests_file);
  std::vector<NodeHostConfig> configs;
  for (const DeviceSpec& device : devices) {
    config.self = where.id(configs.size());
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

StatusOr<std::unique_ptr<LocalNodes>> LocalNodes::plan(const EngineFlags& flags, std::vector<FoundModel> models, const Where& where) {
  ASSIGN_OR_RETURN(const LoadOptions load, load_options(flags));
  ASSIGN_OR_RETURN(const std::vector<NodeHostConfig> configs, node_configs(flags, where));
  std::unique_ptr<LocalNodes> nodes(new LocalNodes());
  LocalNodes* self = nodes.get();
  std::vector<ServedModel> wanted;
  for (const FoundModel& model : models) wanted.push_back(self->served(flags, load, model));
  if (flags.experts != "here") {
    ASSIGN_OR_RETURN(self->experts_, ExpertRouting::start({.client = where.name, .nodes = configs.size(), .lanes = lanes_max(flags), .choose_lanes = flags.expert_lanes == 0, .network = where.network, .keeps = flags.experts != "cluster"}));
    ASSIGN_OR_RETURN(std::vector<ExpertAddress> servers, expert_addresses(flags.experts));
    self->experts_->set_servers(std::move(servers));
  }
  for (const NodeHostConfig& config : configs) {
    ASSIGN_OR_RETURN(self->plans_.emplace_back(), plan_node(config, wanted));
    if (ExpertRouting* const routing = self->experts_.get()) {
      const size_t node = self->plans_.size() - 1;
      self->plans_.back().experts = [routing, node](ModelId id) { return routing->partner(node, id); };
      self->plans_.back().experts_bell = routing->bell(node);
    }
    self->plans_.back().names = self->names_;
    self->plans_.back().kv_link = where.kv_link;
    self->ids_.push_back(config.self);
  }
  ASSIGN_OR_RETURN(self->models_, admitted(self->plans_, models));
  for (const FoundModel& model : self->models_) {
    if (self->experts_ != nullptr) RETURN_IF_ERROR(self->experts_->add(self->served(flags, load, model)));
  }
  self->next_id_ = static_cast<uint32_t>(models.size());
  self->catalog_ = std::make_unique<Catalog>(
      entries_of(self->models_), [](const ModelEntry& model) { return load_model_text(model.path, model.tool_call_parser, model.reasoning_parser); }, kTextsMax);
  if (!flags.record_events.empty()) {
    ASSIGN_OR_RETURN(const auto recorder, RunRecorder::open(flags.record_events, steady_now()));
    recorder->write_bytes(kEventLogHead);
    for (NodePlan& plan : self->plans_) plan.record = [recorder](std::string_view record) { recorder->write_bytes(framed(record)); };
  }
  return nodes;
}

Status LocalNodes::start(Network& network) {
  const auto peers = std::make_shared<KvPeers>();
  for (size_t i = 0; i < plans_.size(); ++i) {
    if (plans_.size() > 1) {
      log_info("device ", i, ": cores ", absl::StrJoin(plans_[i].cpus.cpus, ","), ", role ", std::string(instance_role_name(plans_[i].node.instance_role)));
    }
    ASSIGN_OR_RETURN(auto host, NodeHost::start(std::move(plans_[i]), network, peers));
    hosts_.push_back(std::move(host));
  }
  plans_.clear();
  return OkStatus();
}

std::vector<ModelId> LocalNodes::models() const { return ids_of(models_); }

StatusOr<std::shared_ptr<const TokenVocabulary>> LocalNodes::vocabulary(ModelId id) {
  const ModelRef entry = catalog_->find(id);
  if (entry == nullptr) return not_found("the model is not served any more");
  ASSIGN_OR_RETURN(const std::shared_ptr<const ModelText> text, catalog_->text(*entry));
  return text->vocabulary.get(*text->tokenizer);
}

ServedModel LocalNodes::served(const EngineFlags& flags, const LoadOptions& load, const FoundModel& model) {
  return {.id = model.entry.id, .name = model.entry.name, .path = model.path, .load = load,
          .max_model_len = model.context > 0 ? model.context : flags.max_model_len,
          .vocabulary = [this, id = model.entry.id] { return vocabulary(id); }, .pooling = model.pooling};
}

// To every node, or to none. The longest sequence that all of them take.
StatusOr<uint32_t> LocalNodes::add_to_all(const ServedModel& model) {
  uint32_t length = UINT32_MAX;
  if (experts_ != nullptr) RETURN_IF_ERROR(experts_->add(model));
  for (size_t i = 0; i < hosts_.size(); ++i) {
    const auto facts = hosts_[i]->add_model(model);
    if (!facts.ok()) {
      for (size_t added = 0; added < i; ++added) hosts_[added]->retire_model(model.id);
      return facts.status();
    }
    length = std::min(length, facts->max_model_len);
  }
  return length;
}

// Gives the model the id of the one that is served already, or brings a new one to the nodes. False: refused.
bool LocalNodes::settle(const EngineFlags& flags, const LoadOptions& load, FoundModel& model, const Hooks& hooks, ModelChanges& changes) {
  for (const FoundModel& known : models_) {
    if (known.entry.name != model.entry.name || !same_model(known, model)) continue;
    model.entry.id = known.entry.id;
    model.entry.max_model_len = known.entry.max_model_len;
    const bool same = known.pooling == model.pooling;
    if (!same || known.entry.aliases != model.entry.aliases) changes.changed.push_back(model.entry.name);
    if (!same) hooks.configure({model.entry.id, model.pooling});
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

ModelChanges LocalNodes::update(const EngineFlags& flags, std::vector<FoundModel> models, const Hooks& hooks) {
  ModelChanges changes;
  const auto load = load_options(flags);
  if (!load.ok()) return {.refused = {std::string(load.status().message())}};
  std::erase_if(models, [&](FoundModel& model) { return !settle(flags, *load, model, hooks, changes); });
  std::vector<ModelId> gone = ids_of(models_);
  const std::vector<ModelId> kept = ids_of(models);
  for (const FoundModel& before : models_) {
    if (std::find(kept.begin(), kept.end(), before.entry.id) == kept.end()) changes.removed.push_back(before.entry.name);
  }
  std::erase_if(gone, [&](ModelId id) { return std::find(kept.begin(), kept.end(), id) != kept.end(); });
  std::vector<ModelId> both = kept;
  both.insert(both.end(), gone.begin(), gone.end());
  hooks.serve(both);  // whoever finds a new model finds its nodes
  models_ = std::move(models);
  catalog_->replace(entries_of(models_));
  hooks.replaced();
  if (!gone.empty()) std::this_thread::sleep_for(kOnTheWay);
  hooks.serve(kept);
  for (const auto& host : hosts_) {
    for (const ModelId id : gone) host->retire_model(id);
  }
  return changes;
}

double LocalNodes::stalled_seconds() const {
  double longest = 0;
  for (const auto& host : hosts_) longest = std::max(longest, host->stalled_seconds());
  return longest;
}

}  // namespace shoal
