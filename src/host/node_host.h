// A node for real: performs the effects of roles/node.h on one device, with its own loop thread, one compute thread
// (that drives the device's pool) and one loader thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "models/model.h"
#include "transport/loopback.h"

namespace shoal {

struct ServedModel {
  ModelId id;                  // its index in the list
  std::string name;            // for logs and errors
  std::string path;            // HF folder or GGUF file
  LoadOptions load;
  uint32_t max_model_len = 0;  // 0: what the model allows; capped to what the device can hold
};

struct NodeHostConfig {
  NodeId self;
  std::vector<NodeId> gateways;        // get NodeStatus reports
  uint64_t device_memory_bytes = 0;    // weights, KV and workspace together; 0: most of what is free
  uint32_t threads = 0;                // 0: all cores
  uint32_t sequences_max = 256;        // running at once, per model
  uint32_t waiting_max = 1024;         // queued, per model
  uint32_t tokens_per_step = 512;      // budget of one step: prefill chunks and decodes together
  bool prefix_cache = true;
};

class NodeHost {
 public:
  // Reserves the device memory and starts the threads; no model is loaded yet.
  static StatusOr<std::unique_ptr<NodeHost>> start(const NodeHostConfig& config, std::vector<ServedModel> models,
                                                   LoopbackNetwork& network);
  virtual ~NodeHost() = default;  // stops the threads; work in flight is abandoned

  // Seconds since the last step ended while work is queued; 0 when idle. Health means progress.
  virtual double stalled_seconds() const = 0;
};

}  // namespace shoal
