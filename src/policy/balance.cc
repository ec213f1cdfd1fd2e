#include "policy/balance.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace shoal {
namespace {

// One side of the partition: the nodes that have its duty, alone or beside the other.
struct Side {
  Duty duty;
  double load = 0;  // of all nodes, in nodes
  uint32_t nodes = 0;
  double pressure() const { return nodes == 0 ? 0 : load / nodes; }
};

double pressure_of(const DutyView& node, Duty duty) {
  return duty == Duty::kPrefill ? node.prompt_pressure : node.decode_pressure;
}

Side side_of(std::span<const DutyView> nodes, Duty duty) {
  Side side{duty};
  for (const DutyView& node : nodes) {
    side.nodes += node.duty == duty || node.duty == Duty::kBoth;
    side.load += pressure_of(node, duty);
  }
  return side;
}

std::optional<DutyChange> send_home(std::span<const DutyView> nodes, const Side& home, const Side& away, const DutyOptions& options) {
  if (home.pressure() <= options.high && away.pressure() >= options.low) return std::nullopt;
  for (const DutyView& node : nodes) {
    if (node.home == home.duty && node.duty != node.home) return DutyChange{node.node, node.home};
  }
  return std::nullopt;
}

std::optional<DutyChange> call_for_help(std::span<const DutyView> nodes, const Side& needy, const Side& other, const DutyOptions& options) {
  if (needy.pressure() <= options.high || other.pressure() >= options.low) return std::nullopt;
  const DutyView* helper = nullptr;
  for (const DutyView& node : nodes) {
    if (node.duty != other.duty || node.home == Duty::kBoth) continue;
    if (helper == nullptr || pressure_of(node, other.duty) < pressure_of(*helper, other.duty)) helper = &node;
  }
  if (helper == nullptr) return std::nullopt;
  if (other.nodes == 1) return DutyChange{helper->node, Duty::kBoth};
  if (other.load / (other.nodes - 1) >= needy.pressure()) return std::nullopt;
  return DutyChange{helper->node, needy.duty};
}

}  // namespace

std::optional<DutyChange> plan_duties(std::span<const DutyView> nodes, const DutyOptions& options) {
  const Side prompts = side_of(nodes, Duty::kPrefill), decodes = side_of(nodes, Duty::kDecode);
  if (auto change = send_home(nodes, prompts, decodes, options)) return change;
  if (auto change = send_home(nodes, decodes, prompts, options)) return change;
  if (auto change = call_for_help(nodes, prompts, decodes, options)) return change;
  return call_for_help(nodes, decodes, prompts, options);
}

std::optional<Steal> plan_steal(std::span<const StealView> nodes) {
  constexpr double kNearlyFull = 0.8, kMuchMore = 1.5;
  double least = std::numeric_limits<double>::infinity();
  for (const StealView& node : nodes) {
    if (node.duty != Duty::kPrefill) least = std::min(least, node.batches.empty() ? 0 : node.decode_pressure);
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
