#include "host/node_plan.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "device/memory_limits.h"
#include "formats/checkpoint.h"
#include "host/weights_identity.h"
#include "runner/step_runner.h"

namespace shoal {
namespace {

struct Opened {
  std::unique_ptr<ModelPlan> plan;
  uint64_t stamp = 0;
  bool experts_elsewhere = false;
};

constexpr uint32_t kStepsBesideExperts = 2;  // one that waits for experts, and one of another model meanwhile

StatusOr<Opened> open_plan(const ServedModel& served, DigestStore* digests) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Checkpoint> checkpoint, open_checkpoint(served.path));
  Opened opened;
  ASSIGN_OR_RETURN(opened.plan, plan_model(checkpoint, served.load));
  ASSIGN_OR_RETURN(const ModelDigest::Content sketch, digests == nullptr ? sketch_of(*checkpoint) : digests->sketch(*checkpoint));
  opened.stamp = weights_stamp(sketch, served.load);
  opened.experts_elsewhere = served.load.experts_elsewhere && opened.plan->expert_plan() != nullptr;
  return opened;
}

using ModelPlans = std::map<ModelId, Opened>;

uint64_t workspace_bytes(const ModelPlan& plan, uint32_t tokens_per_step, uint32_t sequences_max, uint32_t lanes) {
  return StepRunner::workspace_bytes(plan, tokens_per_step, sequences_max, lanes) + uint64_t{sequences_max} * plan.vocab_size() * sizeof(float);
}

// The workspace is made once, for the largest step of any model; the rest of the budget is pages.
Status split_budget(const NodeHostConfig& config, const ModelPlans& plans, NodePlan& result) {
  uint64_t budget = config.device_memory_bytes;
  if (budget == 0) budget = available_memory_bytes() / 10 * 8;
  for (const auto& [id, opened] : plans) {
    result.workspace_bytes = std::max(result.workspace_bytes, workspace_bytes(*opened.plan, config.tokens_per_step, config.sequences_max, config.lanes));
    if (opened.experts_elsewhere && plans.size() > 1) result.node.steps_max = kStepsBesideExperts;
  }
  const uint64_t others = budget + config.weight_cache_bytes;
  const uint64_t left = available_memory_bytes() > others ? available_memory_bytes() - others : 0;
  const uint64_t host_bytes = config.host_memory_bytes.value_or(std::min(budget / 4, left / 2));
  result.node.host_pages = static_cast<uint32_t>(std::min<uint64_t>(host_bytes / kPageBytes, UINT32_MAX / 2));
  result.node.workspace_bytes = result.workspace_bytes * result.node.steps_max;
  if (budget < result.node.workspace_bytes + kPageBytes) {
    return resource_exhausted("device memory of ", format_bytes(budget), " is less than the workspace of the steps that are computed at once (",
                              format_bytes(result.node.workspace_bytes), "); raise --device-memory or lower --max-num-batched-tokens");
  }
  result.node.one_memory = true;
  result.node.pages = static_cast<uint32_t>(std::min<uint64_t>((budget - result.node.workspace_bytes) / kPageBytes, UINT32_MAX / 2));
  return OkStatus();
}

// What it can do with, to be said beside the whole.
std::string less_experts(const ModelPlan& plan) {
  if (plan.least_weight_bytes() == plan.weight_bytes()) return "";
  return absl::StrCat(" (", format_bytes(plan.least_weight_bytes()), " with the experts of one layer)");
}

constexpr uint32_t kContextBesideExperts = 8192;  // tokens of KV that experts leave room for, if that takes no more than a quarter

// A model with experts can do with less than all of its weights: with what KV leaves.
void leave_experts_out(const ModelPlan& plan, uint32_t pages, uint32_t wanted, NodeModel& model) {
  const uint64_t least = div_up(plan.least_weight_bytes(), kPageBytes);
  const auto kv_pages = [&](uint32_t tokens) {
    NodeModel of = model;
    of.max_model_len = std::min(tokens, wanted);
    return kv_pages_min(of);
  };
  if (least >= pages) return;
  const auto spare = static_cast<uint32_t>(pages - least);
  const uint32_t kv = std::max(std::min(kv_pages(kContextBesideExperts), spare / 4), kv_pages(256));
  if (kv > spare) return;
  model.weight_bytes = std::min(plan.weight_bytes(), uint64_t{pages - kv} * kPageBytes);
  log_warning("'", model.name, "': its weights of ", format_bytes(plan.weight_bytes()), " do not fit the device memory; ", format_bytes(model.weight_bytes),
           " of them stay there, and experts that are not among them are read from its files when they are needed");
}

StatusOr<NodeModel> node_model(const ServedModel& served, const Opened& opened, uint32_t pages) {
  const ModelPlan& plan = *opened.plan;
  NodeModel model;
  model.model = served.id;
  model.name = served.name;
  model.stamp = opened.stamp;
  model.weight_bytes = plan.weight_bytes();
  model.kv_block_bytes = plan.kv_block_bytes();
  model.state_blocks = plan.state_blocks();
  model.vocab_size = plan.vocab_size();
  model.kv_salt_above = plan.kv_salt_above();
  model.experts_elsewhere = opened.experts_elsewhere;
  model.pooling = served.pooling;
  const uint32_t wanted = served.max_model_len == 0 ? plan.context_length() : std::min(served.max_model_len, plan.context_length());
  model.max_model_len = fitting_model_len(model, pages, wanted);
  if (model.max_model_len < std::min<uint32_t>(wanted, 256) && plan.least_weight_bytes() < plan.weight_bytes()) {
    leave_experts_out(plan, pages, wanted, model);
    model.max_model_len = fitting_model_len(model, pages, wanted);
  }
  if (model.max_model_len < std::min<uint32_t>(wanted, 256)) {
    return resource_exhausted("its weights of ", format_bytes(plan.weight_bytes()), less_experts(plan), " and KV for ", std::min<uint32_t>(wanted, 256),
                              " tokens do not fit the device memory of ", format_bytes(pages * kPageBytes), "; raise --device-memory");
  }
  if (model.max_model_len < wanted) {
    log_warning("'", served.name, "': the context is limited to ", model.max_model_len, " of ", wanted,
                " tokens, because KV for more does not fit the device memory");
  }
  return model;
}

}  // namespace

StatusOr<NodeModel> plan_another(const NodeConfig& node, const ServedModel& served) {
  ASSIGN_OR_RETURN(const Opened opened, open_plan(served, nullptr));
  const uint64_t workspace = workspace_bytes(*opened.plan, node.limits.tokens_per_step, node.limits.sequences_max, served.load.experts_elsewhere ? kPassesMax : 1);
  if (workspace > node.workspace_bytes / node.steps_max) {
    return resource_exhausted("its steps need a workspace of ", format_bytes(workspace), ", and the server was started with ",
                              format_bytes(node.workspace_bytes / node.steps_max), "; restart it to serve this model");
  }
  return node_model(served, opened, node.pages);
}

StatusOr<NodePlan> plan_node(const NodeHostConfig& config, const std::vector<ServedModel>& models) {
  NodePlan result;
  ModelPlans plans;
  for (const ServedModel& served : models) {
    StatusOr<Opened> opened = open_plan(served, config.digests.get());
    if (opened.ok()) {
      plans[served.id] = *std::move(opened);
    } else {
      result.refused[served.id] = opened.status();
    }
  }
  result.node.self = config.self;
  result.node.gateways = config.gateways;
  result.node.instance_role = config.instance_role;
  result.node.limits.tokens_per_step = config.tokens_per_step;
  result.node.limits.sequences_max = config.sequences_max;
  result.node.limits.logit_rows_max = config.sequences_max;
  result.node.waiting_max = config.waiting_max;
  result.node.prefix_cache = config.prefix_cache;
  result.node.scheduling = config.scheduling;
  result.weight_cache_bytes = config.weight_cache_bytes;
  result.estimates_file = config.estimates_file;
  result.digests = config.digests;
  result.guarded = config.guarded;
  result.lanes = config.lanes;
  RETURN_IF_ERROR(split_budget(config, plans, result));
  for (const ServedModel& served : models) {
    if (!plans.contains(served.id)) continue;
    StatusOr<NodeModel> facts = node_model(served, plans[served.id], result.node.pages);
    if (facts.ok()) {
      result.node.models.push_back(*std::move(facts));
      result.served.emplace(served.id, served);
    } else {
      result.refused[served.id] = facts.status();
    }
  }
  const size_t cores = config.cpus.empty() ? std::max(1u, std::thread::hardware_concurrency()) : config.cpus.size();
  result.cpus = {static_cast<int>(config.threads == 0 ? cores : config.threads), config.cpus};
  return result;
}

}  // namespace shoal
