// A cluster of devices that are known by their data sheets and profiles, serving any number of models, as the setup of a
// world.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/costs.h"
#include "sim/setup.h"

namespace shoal {

// Each device by itself, or in gangs of `tensor` that serve as one.
struct DeviceGroup {
  const Hardware* hardware = nullptr;
  uint32_t count = 1;                      // of devices, a multiple of `tensor`
  uint32_t tensor = 1;
  uint32_t nodes() const { return count / tensor; }
};
// "16xH800", "16xH800:tp4"; "8xH800 + 2xA10".
std::string to_string(const DeviceGroup& group);
std::string to_string(const std::vector<DeviceGroup>& groups);

struct ClusterSpec {
  std::vector<DeviceGroup> devices;
  std::vector<const ModelShape*> models;   // one each, by id; the same shape may serve many times
  const CostTable* costs = nullptr;        // measured pairs; the roofline stands in for the others
  SloTarget slo;
  double memory_share = 0.75;              // of the device, for weights and KV
  double host_bytes = 32.0 * 1073741824;   // per device, for KV of requests whose turn is not now
  double load_seconds = 0.05;              // of every load beside its bytes
  double load_bytes_per_second = 0;        // 0: the device's link
  Scheduling scheduling = Scheduling::kToken;
  TurnOptions turns;
  BatchLimits limits{2048, 256, 256, true};
  // 0: as many as fit. Else each model takes so much room that a device holds only so many, as designs do that keep the
  // model that computes and the one that comes next; loads still move the model's own bytes.
  uint32_t rooms = 0;
  uint32_t prefill = 0;                    // devices or gangs of each group that compute prompts; the others decode. 0: each does both
  uint32_t max_model_len = 16'384;         // and no longer than the model's own
  Duration status_interval = std::chrono::milliseconds(100);
};

// The nodes of the cluster. InvalidArgument if a model does not fit a device, with both sizes.
StatusOr<std::vector<NodeSpec>> make_nodes(const ClusterSpec& spec);

// The longest sequence of each model on the nodes made.
std::vector<uint32_t> model_lengths(const std::vector<NodeSpec>& nodes);

// "16xH800:tp4,4xA10". InvalidArgument names the item and what is known.
StatusOr<std::vector<DeviceGroup>> parse_devices(const std::string& text);
// `count` models made of "qwen2_5_7b:6,yi1_5_9b_chat:2": shares, in turn, spread evenly. `own` shapes, which outlive the
// result, before the known ones. InvalidArgument names the item.
StatusOr<std::vector<const ModelShape*>> parse_model_mix(const std::string& text, uint32_t count, std::span<const ModelShape> own = {});

}  // namespace shoal
