#include "policy/placement.h"

#include <tuple>

namespace shoal {
namespace {

using Key = std::tuple<bool, bool, bool, double, uint32_t, uint32_t>;  // the least is chosen

Key key(const NodeView& n, Phase phase) {
  const uint32_t load = n.requests_live + n.requests_queued;
  if (phase == Phase::kPrompt) return {n.instance_role == InstanceRole::kDecode, false, false, n.wait_seconds + n.switch_seconds, load, n.node.value};
  return {n.instance_role == InstanceRole::kPrefill, !n.decodes_model, n.decode_pressure > 1, n.decode_pressure, load, n.node.value};
}

}  // namespace

Placement place(const ClusterView& view, Phase phase) {
  if (view.requests_live >= view.requests_max) return Reject{Reject::Why::kFull, std::chrono::seconds(1)};
  const NodeView* best = nullptr;
  for (const NodeView& node : view.nodes) {
    if (!node.serves_model || node.draining) continue;
    if (best == nullptr || key(node, phase) < key(*best, phase)) best = &node;
  }
  if (best == nullptr) return Reject{Reject::Why::kNoNode, std::chrono::seconds(5)};
  return PlaceOn{best->node};
}

}  // namespace shoal
