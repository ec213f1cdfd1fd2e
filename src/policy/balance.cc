#include "policy/balance.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace shoal {
namespace {

// One side of the partition: the nodes that have its role, alone or beside the other.
struct Side {
  InstanceRole instance_role;
  double load = 0;  // of all nodes, in nodes
  uint32_t nodes = 0;
  double pressure() const { return nodes == 0 ? 0 : load / nodes; }
};

double pressure_of(const RoleView& node, InstanceRole instance_role) {
  return instance_role == InstanceRole::kPrefill ? node.prompt_pressure : node.decode_pressure;
}

Side side_of(std::span<const RoleView> nodes, InstanceRole instance_role) {
  Side side{instance_role};
  for (const RoleView& node : nodes) {
    side.nodes += node.instance_role == instance_role || node.instance_role == InstanceRole::kBoth;
    side.load += pressure_of(node, instance_role);
  }
  return side;
}

std::optional<RoleChange> send_home(std::span<const RoleView> nodes, const Side& home, const Side& away, const RoleOptions& options) {
  if (home.pressure() <= options.high && away.pressure() >= options.low) return std::nullopt;
  for (const RoleView& node : nodes) {
    if (node.home == home.instance_role && node.instance_role != node.home) return RoleChange{node.node, node.home};
  }
  return std::nullopt;
}

std::optional<RoleChange> call_for_help(std::span<const RoleView> nodes, const Side& needy, const Side& other, const RoleOptions& options) {
  if (needy.pressure() <= options.high || other.pressure() >= options.low) return std::nullopt;
  const RoleView* helper = nullptr;
  for (const RoleView& node : nodes) {
    if (node.instance_role != other.instance_role || node.home == InstanceRole::kBoth) continue;
    if (helper == nullptr || pressure_of(node, other.instance_role) < pressure_of(*helper, other.instance_role)) helper = &node;
  }
  if (helper == nullptr) return std::nullopt;
  if (other.nodes == 1) return RoleChange{helper->node, InstanceRole::kBoth};
  if (other.load / (other.nodes - 1) >= needy.pressure()) return std::nullopt;
  return RoleChange{helper->node, needy.instance_role};
}

constexpr double kNearlyFull = 0.8, kGainMin = 0.05;

size_t with_requests(const StealView& node) {
  return static_cast<size_t>(std::count_if(node.batches.begin(), node.batches.end(), [](const BatchView& b) { return b.requests > 0; }));
}

// What of the pressure the node can take on beside what it has; 0 for a model that it would send others away for, or begin late.
double spare_for(const StealView& node, ModelId model, bool idle) {
  if (node.instance_role == InstanceRole::kPrefill) return 0;
  const auto found = std::lower_bound(node.batches.begin(), node.batches.end(), model, [](const BatchView& b, ModelId m) { return b.model < m; });
  if (found == node.batches.end() || found->model != model || found->late || (!found->room && !idle)) return 0;
  return std::max(0.0, kNearlyFull - (idle ? 0 : node.decode_pressure));
}

}  // namespace

std::optional<RoleChange> plan_roles(std::span<const RoleView> nodes, const RoleOptions& options) {
  const Side prompts = side_of(nodes, InstanceRole::kPrefill), decodes = side_of(nodes, InstanceRole::kDecode);
  if (auto change = send_home(nodes, prompts, decodes, options)) return change;
  if (auto change = send_home(nodes, decodes, prompts, options)) return change;
  if (auto change = call_for_help(nodes, prompts, decodes, options)) return change;
  return call_for_help(nodes, decodes, prompts, options);
}

std::optional<Steal> plan_steal(std::span<const StealView> nodes) {
  std::vector<size_t> counts;
  for (const StealView& node : nodes) counts.push_back(with_requests(node));
  std::optional<Steal> best;
  std::tuple<double, int64_t> most(kGainMin, INT64_MIN);  // gain, and few requests
  for (size_t from = 0; from < nodes.size(); ++from) {
    if (counts[from] < 2) continue;
    for (const BatchView& batch : nodes[from].batches) {
      if (batch.running || batch.requests == 0) continue;
      double spare = 0;
      for (size_t to = 0; to < nodes.size(); ++to) {
        if (to != from) spare = std::max(spare, spare_for(nodes[to], batch.model, counts[to] == 0));
      }
      const double served_here = batch.late ? 0 : std::max(0.0, batch.pressure - std::max(0.0, nodes[from].decode_pressure - kNearlyFull));
      const std::tuple gain(std::min(batch.pressure, spare) - served_here, -int64_t{batch.requests});
      if (gain <= most) continue;
      most = gain;
      best = Steal{nodes[from].node, batch.model};
    }
  }
  return best;
}

}  // namespace shoal
