// What a node is told of itself and of its models before it does anything.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/pooling_settings.h"
#include "base/time.h"
#include "policy/batch.h"
#include "policy/decode_turns.h"
#include "policy/estimator.h"
#include "policy/model_switch.h"
#include "policy/prefill_groups.h"
#include "wire/message.h"

namespace shoal {

// What a node knows of a model before a byte of it is loaded.
struct NodeModel {
  ModelId model;
  std::string name;               // for errors, and with `stamp` for other processes
  uint64_t stamp = 0;             // of the ModelDigest of its files as they are; 0: not looked at
  uint64_t weight_bytes = 0;
  uint64_t kv_block_bytes = 0;
  uint32_t state_blocks = 0;      // KV blocks that hold the state of a sequence in layers that keep one; 0: there are none
  uint32_t max_model_len = 0;
  uint32_t vocab_size = 0;
  uint32_t kv_salt_above = UINT32_MAX;  // EngineConfig
  bool experts_elsewhere = false;       // its steps wait for others now and then, and leave the device to another model's meanwhile
  PoolingSettings pooling;
  ModelEstimator costs;                 // what an earlier run measured, or nothing
};

struct NodeConfig {
  NodeId self;
  InstanceRole instance_role = InstanceRole::kBoth;  // at first; SetInstanceRole changes it
  uint32_t pages = 0;                   // of the device's pool, for weights and KV
  uint64_t workspace_bytes = 0;         // beside them; only reported
  uint32_t host_pages = 0;              // of the tier below it, for KV of requests whose turn is not now
  // Weights of models that were dropped are adopted again by their next load, as far as nobody took their pages.
  bool adopt_weights = true;
  // The device's memory is the machine's, as on a CPU: pages that KV leaves to the host tier may hold weights to be adopted, too.
  bool one_memory = false;
  std::vector<NodeModel> models;
  std::vector<NodeId> gateways;         // get NodeStatus
  BatchLimits limits;
  // A step that decodes takes so many tokens of prompts as it has time for, this many at least: its time is the gap that
  // readers see. As long as gap_stretch decodes alone, or the shortest tbt of the batch, whichever is longer; but no longer than those
  // who read from other models on the device can wait, or as leaves them a step within their tbt.
  uint32_t prompt_tokens_min = 16;
  double gap_stretch = 2;
  uint32_t waiting_max = 1024;          // per model
  bool prefix_cache = true;
  Scheduling scheduling = Scheduling::kToken;
  TurnOptions turns;
  PrefillOptions prompts;
  SwitchLimits switching;
  double load_bytes_per_second = 1e9;   // believed until a load was measured
  uint32_t steps_max = 1;               // in flight at once, of different models: more than 1 beside those of models whose experts are elsewhere
  Duration status_interval = std::chrono::milliseconds(100);
  Duration offer_time = std::chrono::seconds(30);  // KV that was handed over stays so long for whoever comes with its ticket
};

uint32_t weight_pages(const NodeModel& model);
// Pages of KV and states that one sequence of the longest length needs.
uint32_t kv_pages_min(const NodeModel& model);
// The longest sequence for which weights and KV fit `pages` pages, at most wanted; 0 if the weights alone do not fit.
uint32_t fitting_model_len(const NodeModel& model, uint32_t pages, uint32_t wanted);

}  // namespace shoal
