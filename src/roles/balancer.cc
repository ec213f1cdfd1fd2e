#include "roles/balancer.h"

#include <algorithm>

namespace shoal {
namespace {

constexpr Duration kCompareInterval = std::chrono::milliseconds(100);
constexpr Duration kStealInterval = std::chrono::milliseconds(250);  // until the reports show what the last one did

}  // namespace

void Balancer::learn(NodeId node, const NodeStatus& status) {
  const auto [found, first] = nodes_.try_emplace(node);
  Known& known = found->second;
  if (first) known.home = status.instance_role;
  known.heard = true;
  known.instance_role = status.instance_role;
  known.prompt_pressure = status.prompt_pressure;
  known.decode_pressure = status.decode_pressure;
  known.batches.clear();
  known.batches.reserve(status.models.size());
  for (const ModelStatus& m : status.models) {
    const uint32_t requests = m.waiting + m.running;
    known.batches.push_back({m.model, m.state == ModelState::kLoaded, requests, requests * m.answer_pressure, m.wait_seconds > to_seconds(m.slo.ttft), m.room});
  }
  const auto lower = [](const BatchView& a, const BatchView& b) { return a.model < b.model; };
  if (!std::is_sorted(known.batches.begin(), known.batches.end(), lower)) std::sort(known.batches.begin(), known.batches.end(), lower);
}

void Balancer::lose(NodeId node) {
  if (const auto found = nodes_.find(node); found != nodes_.end()) found->second.heard = false;
}

std::optional<RoleChange> Balancer::role_change() const {
  std::vector<RoleView> views;
  for (const auto& [id, node] : nodes_) {
    if (node.heard) views.push_back({id, node.instance_role, node.home, node.prompt_pressure, node.decode_pressure});
  }
  return plan_roles(views, roles_);
}

std::optional<Steal> Balancer::steal() const {
  std::vector<StealView> views;
  views.reserve(nodes_.size());
  for (const auto& [id, node] : nodes_) {
    if (node.heard) views.push_back({id, node.instance_role, node.decode_pressure, node.batches});
  }
  return plan_steal(views);
}

void Balancer::balance(TimePoint now, std::vector<Effect>& effects) {
  if (nodes_.size() < 2 || now < next_ || interval_ == Duration::max()) return;
  next_ = now + std::min(interval_, kCompareInterval);
  if (const auto change = role_change()) {
    effects.push_back(Send{change->node, SetInstanceRole{change->instance_role}});
    next_ = now + interval_;
  }
  if (const auto batch = steal()) {
    effects.push_back(Send{batch->from, MigrateRequests{batch->model}});
    next_ = std::max(next_, now + std::min(interval_, kStealInterval));
  }
}

}  // namespace shoal
