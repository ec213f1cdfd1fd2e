#include "policy/placement.h"

#include <tuple>

namespace shoal {

Placement place(const ClusterView& view) {
  if (view.requests_live >= view.requests_max) return Reject{Reject::Why::kFull, std::chrono::seconds(1)};
  const NodeView* best = nullptr;
  const auto key = [](const NodeView& n) {
    return std::tuple(!n.resident, n.requests_live + n.requests_queued, n.node.value);
  };
  for (const NodeView& node : view.nodes) {
    if (!node.serves_model || node.draining) continue;
    if (best == nullptr || key(node) < key(*best)) best = &node;
  }
  if (best == nullptr) return Reject{Reject::Why::kNoNode, std::chrono::seconds(5)};
  return PlaceOn{best->node};
}

}  // namespace shoal
