// The operator of a world: what he changes while requests come, what he is told, and whether that was true (I9).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sim/world.h"

namespace shoal {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(50);      // of who waits for a load
constexpr Duration kBelieve = std::chrono::milliseconds(300);  // a failure reported sooner is one of before
constexpr Duration kPatience = std::chrono::seconds(30);       // then it is reported as failed
constexpr Duration kStale = std::chrono::seconds(5);           // what the router knows of a node may be so old, faults or not

Configure settings_of(const NodeModel& m, const SloTarget& slo) {
  Configure configure{m.model, m.pooling};
  configure.settings.slo = slo;
  return configure;
}

}  // namespace

void World::begin_change(const AdminChange& change) {
  if (workload_done_ && clients_.unfinished() == 0) return;
  ++state_.outcome.admin_changes;
  state_.note(12, static_cast<uint64_t>(change.kind), change.model.value);
  switch (change.kind) {
    case AdminChange::Kind::kConfigure:
      if (!state_.served[change.model.value]) return;  // a model comes with the settings that it has by then
      acknowledged_[change.model] = settings_of(setup_.nodes[0].config.models.at(change.model.value), change.slo);
      for (uint32_t g = 0; g < gateways_.size(); ++g) to_gateway(g, SettingsWanted{acknowledged_[change.model]});
      return;
    case AdminChange::Kind::kLoad:
      to_gateway(0, ResidencyWanted{change.model, true});
      return await_load(change.model, state_.now);
    case AdminChange::Kind::kUnload: return to_gateway(0, ResidencyWanted{change.model, false});
    case AdminChange::Kind::kAdd: return add_model(change.model);
    case AdminChange::Kind::kRetire: return retire_model(change.model);
  }
}

// First the nodes, then the membership: whoever finds the model finds its nodes.
void World::add_model(ModelId model) {
  state_.served[model.value] = true;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i]->alive()) nodes_[i]->handle(ModelAdded{setup_.nodes[i].config.models.at(model.value)});
  }
  announce();
}

void World::retire_model(ModelId model) {
  state_.served[model.value] = false;
  announce();
  for (const auto& node : nodes_) {
    if (node->alive()) node->handle(ModelRetired{model});
  }
}

void World::announce() {
  for (uint32_t i = 0; i < links_.size(); ++i) {
    if (links_[i].member) publish(MemberJoined{member(i)});
  }
}

// As the gateway's `load` with `wait`: success when a node reports the model as loaded.
void World::await_load(ModelId model, TimePoint asked) {
  bool loaded = false, failed = state_.now >= asked + kPatience;
  if (gateways_[0].router == nullptr) return;  // who asked is gone
  for (const auto& [id, status] : gateways_[0].router->node_status()) {
    for (const ModelStatus& m : status.models) {
      if (m.model != model) continue;
      loaded |= m.state == ModelState::kLoaded;
      failed |= m.state == ModelState::kFailed && state_.now >= asked + kBelieve;
    }
  }
  if (loaded) {
    const bool there = std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& n) { return n->held_since(model, state_.now - kStale); });
    if (!there) state_.violate(absl::StrCat("I9: the load of model ", model.value, " was acknowledged, and no node has it"));
  } else if (failed) {
    ++state_.outcome.admin_failures;
  } else {
    state_.after(kLook, [this, model, asked] { await_load(model, asked); });
  }
}

// Acknowledged settings hold on every node there is in the end, whatever became of it meanwhile; so do the models that
// came, and of those that went nothing is left.
void World::check_admin(uint32_t node) {
  if (setup_.admin.empty()) return;
  for (const NodeModel& facts : setup_.nodes[node].config.models) {
    const NodeModel* const here = nodes_[node]->node().model(facts.model);
    const std::string name = absl::StrCat("I9: model ", facts.model.value, " on node ", node);
    if ((here != nullptr) != state_.served[facts.model.value]) {
      state_.violate(absl::StrCat(name, here == nullptr ? " was added, and is not there" : " was retired, and is there"));
    }
    const auto settings = acknowledged_.find(facts.model);
    if (here == nullptr || settings == acknowledged_.end()) continue;
    PoolingSettings wanted = settings->second.settings;
    wanted.slo.ttft = std::min(wanted.slo.ttft, wanted.max_wait);
    if (!(here->pooling == wanted)) state_.violate(absl::StrCat(name, " lost its new settings"));
  }
}

}  // namespace shoal
