#include "policy/balance.h"

#include <algorithm>
#include <limits>
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

}  // namespace

std::optional<RoleChange> plan_roles(std::span<const RoleView> nodes, const RoleOptions& options) {
  const Side prompts = side_of(nodes, InstanceRole::kPrefill), decodes = side_of(nodes, InstanceRole::kDecode);
  if (auto change = send_home(nodes, prompts, decodes, options)) return change;
  if (auto change = send_home(nodes, decodes, prompts, options)) return change;
  if (auto change = call_for_help(nodes, prompts, decodes, options)) return change;
  return call_for_help(nodes, decodes, prompts, options);
}

std::optional<Steal> plan_steal(std::span<const StealView> nodes) {
  constexpr double kNearlyFull = 0.8, kMuchMore = 1.5;
  double least = std::numeric_limits<double>::infinity();
  for (const StealView& node : nodes) {
    if (node.instance_role != InstanceRole::kPrefill) least = std::min(least, node.batches.empty() ? 0 : node.decode_pressure);
  }
  const StealView* donor = nullptr;
  for (const StealView& node : nodes) {
    if (node.decode_pressure <= kNearlyFull || node.decode_pressure < kMuchMore * least || node.batches.size() < 2) continue;
    if (donor == nullptr || node.decode_pressure > donor->decode_pressure) donor = &node;
  }
  if (donor == nullptr) return std::nullopt;
  const BatchView* batch = nullptr;
  for (const BatchView& b : donor->batches) {
    if (b.running || b.requests == 0) continue;
    if (batch == nullptr || std::tuple(b.requests, b.model) < std::tuple(batch->requests, batch->model)) batch = &b;
  }
  if (batch == nullptr) return std::nullopt;
  return Steal{donor->node, batch->model};
}

}  // namespace shoal
