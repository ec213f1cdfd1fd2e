#include "sim/expert_monitor.h"

#include <algorithm>
#include <cmath>

namespace shoal {

SimExpertMonitor::SimExpertMonitor(ExpertWorldState& world, std::vector<std::unique_ptr<SimExpertServer>>& servers, std::vector<std::unique_ptr<SimExpertClient>>& clients)
    : world_(world), servers_(servers), clients_(clients), seen_(servers.size()) {
  for (uint32_t layer = 0; layer < world.setup.layers; ++layer) layers_.push_back({layer, world.setup.experts, world.setup.expert_bytes});
}

std::vector<ExpertServerSpec> SimExpertMonitor::members() const {
  const ExpertWorldSetup& s = world_.setup;
  const double slots = std::ceil(s.copies_room * s.layers * s.experts / s.servers) + 1;
  std::vector<ExpertServerSpec> out;
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    if (seen_[i].there) out.push_back({NodeId(i), static_cast<uint64_t>(slots) * s.expert_bytes, 1, i});
  }
  return out;
}

Status SimExpertMonitor::begin() {
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i]->alive()) seen_[i] = {servers_[i]->life(), true, world_.now};
  }
  const auto servers = members();
  ASSIGN_OR_RETURN(const PlacementPlan plan, plan_placement({layers_, servers, {}, nullptr, {}}, world_.setup.placement));
  published_ = plan.target;
  for (const ExpertMove& move : plan.copies) servers_[move.server.value]->hold(move.layer, move.expert);
  for (auto& client : clients_) client->placed(published_);
  return OkStatus();
}

void SimExpertMonitor::tell(uint32_t client) { clients_[client]->placed(published_); }

// A server whose lease ran out is lost; one that is there in another life holds nothing.
void SimExpertMonitor::watch() {
  if (world_.now < paused_until_) return;
  bool changed = false;
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    Seen& seen = seen_[i];
    const bool answers = servers_[i]->alive() && !servers_[i]->stopped();
    if (answers) seen.heard = world_.now;
    const bool there = answers || (seen.there && world_.now - seen.heard < world_.setup.lease);
    changed |= there != seen.there || (answers && seen.life != servers_[i]->life());
    seen.there = there;
    if (answers && seen.life != servers_[i]->life()) seen.life = servers_[i]->life();
  }
  if (changed) ++attempt_;  // what is being copied is for another world
  if (changed || again_) plan();
}

// Of what is published, the copies that are really there.
ExpertPlacement SimExpertMonitor::held_now() const {
  ExpertPlacement now = published_;
  for (LayerPlacement& layer : now.layers) {
    for (uint32_t e = 0; e < layer.experts.size(); ++e) {
      std::erase_if(layer.experts[e], [&](const ExpertShare& c) { return !seen_[c.server.value].there || !servers_[c.server.value]->holds(layer.layer, e); });
    }
  }
  return now;
}

// What an abandoned plan had copied is given back, so that a server holds what is published and no more.
void SimExpertMonitor::forget_extras() {
  for (uint32_t s = 0; s < servers_.size(); ++s) {
    for (const ExpertLayerSpec& layer : layers_) {
      for (uint32_t e = 0; e < layer.experts; ++e) {
        const auto copies = published_.of(layer.layer, e);
        if (std::none_of(copies.begin(), copies.end(), [&](const ExpertShare& c) { return c.server.value == s; })) servers_[s]->drop(layer.layer, e);
      }
    }
  }
}

void SimExpertMonitor::plan() {
  again_ = false;
  forget_extras();
  const auto servers = members();
  const ExpertPlacement now = held_now();
  auto plan = plan_placement({layers_, servers, {}, &now, {}}, world_.setup.placement);
  if (!plan.ok()) return;  // beyond the memory that is left: until somebody joins
  if (plan->target.version <= published_.version) plan->target.version = published_.version + 1;
  if (plan->empty() && plan->target.layers == published_.layers) return;
  copy(std::make_shared<const PlacementPlan>(*std::move(plan)));
}

// Each server loads one expert after the other; then the plan is published.
void SimExpertMonitor::copy(const std::shared_ptr<const PlacementPlan>& plan) {
  std::map<uint32_t, double> busy;
  const double seconds = static_cast<double>(world_.setup.expert_bytes) / world_.setup.load_bytes_per_second;
  double last = 0;
  for (const ExpertMove& move : plan->copies) {
    const uint32_t server = move.server.value;
    const double at = busy[server] += seconds;
    last = std::max(last, at);
    world_.after(at, [this, move, server, life = servers_[server]->life(), attempt = attempt_] {
      if (attempt != attempt_ || !servers_[server]->alive() || servers_[server]->life() != life) return;
      servers_[server]->hold(move.layer, move.expert);
      ++world_.outcome.copies;
    });
  }
  world_.after(last + 1e-6, [this, plan, attempt = attempt_] {
    if (attempt != attempt_) return;
    const bool held = std::all_of(plan->copies.begin(), plan->copies.end(), [&](const ExpertMove& m) { return servers_[m.server.value]->holds(m.layer, m.expert); });
    if (held) publish(*plan);
    again_ = !held || plan->more;
  });
}

void SimExpertMonitor::publish(const PlacementPlan& plan) {
  published_ = plan.target;
  ++world_.outcome.versions;
  world_.note(3, published_.version, plan.copies.size());
  for (uint32_t c = 0; c < clients_.size(); ++c) {
    world_.after(world_.setup.link_s, [this, c, target = plan.target] {
      if (clients_[c]->version() < target.version) clients_[c]->placed(target);
    });
  }
  drop_when_known(plan);
}

void SimExpertMonitor::drop_when_known(const PlacementPlan& plan) {
  world_.after(5e-3, [this, plan] {
    const bool known = std::all_of(clients_.begin(), clients_.end(), [&](const auto& c) { return !c->alive() || c->version() >= plan.target.version; });
    if (!known) return drop_when_known(plan);
    for (const ExpertMove& move : plan.drops) {
      const auto copies = published_.of(move.layer, move.expert);
      if (std::none_of(copies.begin(), copies.end(), [&](const ExpertShare& c) { return c.server == move.server; })) servers_[move.server.value]->drop(move.layer, move.expert);
    }
  });
}

}  // namespace shoal
