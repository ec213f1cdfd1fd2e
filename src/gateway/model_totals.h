// What all nodes together say of one model: one answer for every page that shows it.
#pragma once

#include <string>

#include "gateway/router_loop.h"
#include "wire/message.h"

namespace shoal {

struct ModelTotals {
  ModelState state = ModelState::kUnloaded;  // the best any node has it in: loaded, loading, failed, unloaded
  float progress = 0;                        // of the load that has come furthest, while the state is loading
  std::string error;                         // of a node where the last load failed
  std::string held_up;                       // of a node where who computes a part of its steps is away
  uint32_t running = 0;
  uint32_t waiting = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t loads = 0;
};

// Of the slabs of KV that a node holds, what lies in no block: 0 is perfect.
double fragmentation(const NodeStatus& node);

ModelTotals totals_of(ModelId model, const RouterSnapshot& nodes);

}  // namespace shoal
