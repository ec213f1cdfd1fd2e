// What a node will serve, and in how much memory: decided from headers, before a thread is started or a byte is loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bell.h"
#include "base/ids.h"
#include "base/pooling_settings.h"
#include "base/status.h"
#include "host/digest_store.h"
#include "host/kv_link.h"
#include "models/exchange_partner.h"
#include "models/model.h"
#include "roles/node.h"
#include "runner/token_constraints.h"
#include "wire/model_names.h"

namespace shoal {

struct ServedModel {
  ModelId id;                  // its index in the list
  std::string name;            // for logs and errors
  std::string path;            // HF folder or GGUF file
  LoadOptions load;
  uint32_t max_model_len = 0;  // 0: what the model allows; capped to what the device can hold
  TokenConstraints::VocabularySource vocabulary;  // empty: requests with a grammar end in an error
  PoolingSettings pooling;
};

// The part of this machine's processor that a node computes on.
struct CpuShare {
  int threads = 1;
  std::vector<int> cpus;  // to run on; empty: wherever the system likes
};

struct NodeHostConfig {
  NodeId self;
  InstanceRole instance_role = InstanceRole::kBoth;
  std::vector<int> cpus;               // of its device; empty: all
  bool guarded = false;                // see DeviceGuard
  std::vector<NodeId> gateways;        // get NodeStatus reports
  uint64_t device_memory_bytes = 0;    // weights, KV and workspace together; 0: most of what is free
  // Beside it, for KV of requests whose turn is not now; default: a quarter of it, and not more than half of what is left.
  std::optional<uint64_t> host_memory_bytes;
  uint64_t weight_cache_bytes = 0;     // for raw weights of models that are read directly
  uint32_t lanes = 1;                  // see NodePlan
  Scheduling scheduling = Scheduling::kToken;
  uint32_t threads = 0;                // 0: one for each of its cores
  uint32_t sequences_max = 256;        // running at once, per model
  uint32_t waiting_max = 1024;         // queued, per model
  uint32_t tokens_per_step = 512;      // budget of one step: prefill chunks and decodes together
  bool prefix_cache = true;
  std::string estimates_file;          // of host/estimate_store.h; empty: none
  std::shared_ptr<DigestStore> digests;  // of all nodes of this process; none: files are not read for their names
};

struct NodePlan {
  NodeConfig node;                        // its models' max_model_len is what fits the device, not what was wished for
  std::map<ModelId, ServedModel> served;
  std::map<ModelId, Status> refused;      // and why
  uint64_t weight_cache_bytes = 0;
  uint64_t workspace_bytes = 0;           // of the largest step; the rest of the budget is pages
  CpuShare cpus;
  std::string estimates_file;
  std::shared_ptr<DigestStore> digests;   // as configured
  std::shared_ptr<ModelNames> names;      // of this process; none: the node's own
  std::optional<KvLinkConfig> kv_link;    // none: its KV is for nodes of this process
  bool guarded = false;
  bool fill_ahead = true;                 // memory for the next load, KV and states is touched before it is wanted
  uint32_t lanes = 1;                     // passes under way at once, of models whose experts are elsewhere
  std::function<ExchangePartner*(ModelId)> experts;  // who computes them, of each model, or null; asked by the node's loop thread. It outlives the node
  std::shared_ptr<Bell> experts_bell;     // that all of these ring; null: there are none
  std::function<void(std::string_view record)> record;  // gets those of replay/event_log.h, on the node's loop thread; or none
};

// One more model for a node that was planned before. ResourceExhausted if it does not fit, or its steps do not fit the
// workspace.
StatusOr<NodeModel> plan_another(const NodeConfig& node, const ServedModel& served);

// ResourceExhausted if not even the workspace fits the budget. Models that cannot be read or do not fit are refused one
// by one, in the plan.
StatusOr<NodePlan> plan_node(const NodeHostConfig& config, const std::vector<ServedModel>& models);

}  // namespace shoal
