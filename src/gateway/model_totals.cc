#include "gateway/model_totals.h"

#include <algorithm>

namespace shoal {
namespace {

int rank(ModelState state) {
  switch (state) {
    case ModelState::kLoaded: return 3;
    case ModelState::kLoading: return 2;
    case ModelState::kFailed: return 1;  // before unloaded: whoever waits for the model must hear of it
    case ModelState::kUnloaded: return 0;
  }
  return 0;
}

}  // namespace

double fragmentation(const NodeStatus& node) {
  return node.kv_bytes_bound == 0 ? 0 : static_cast<double>(node.kv_bytes_free) / static_cast<double>(node.kv_bytes_bound);
}

ModelTotals totals_of(ModelId model, const RouterSnapshot& nodes) {
  ModelTotals totals;
  for (const auto& [id, node] : nodes.nodes) {
    for (const ModelStatus& status : node.models) {
      if (status.model != model) continue;
      if (rank(status.state) > rank(totals.state)) totals.state = status.state;
      if (status.state == ModelState::kLoading) totals.progress = std::max(totals.progress, status.progress);
      if (!status.error.empty()) totals.error = status.error;
      if (!status.held_up.empty()) totals.held_up = status.held_up;
      totals.running += status.running;
      totals.waiting += status.waiting;
      totals.weight_bytes += status.weight_bytes;
      totals.kv_bytes += status.kv_bytes_used;
      totals.loads += status.loads;
    }
  }
  return totals;
}

}  // namespace shoal
