#include "roles/controller.h"

namespace shoal {

std::vector<Effect> Controller::handle(const Event& event, TimePoint now) {
  std::vector<Effect> effects;
  if (const auto* e = std::get_if<MessageFrom>(&event)) {
    const auto member = cluster_.members.find(e->from);
    if (member != cluster_.members.end() && e->of_life_before(member->second.epoch)) return effects;
    if (const auto* status = std::get_if<NodeStatus>(&e->message)) {
      balancer_.learn(e->from, *status);
      if (leads_) balancer_.balance(now, effects);
    }
  } else if (const auto* e = std::get_if<ClusterChanged>(&event)) {
    on_cluster(e->state);
  } else if (const auto* e = std::get_if<PeerLost>(&event)) {
    balancer_.lose(e->peer);
  } else if (const auto* e = std::get_if<LeadershipChanged>(&event)) {
    leads_ = e->leads;
  }
  return effects;
}

void Controller::on_cluster(const ClusterState& state) {
  if (state.version < cluster_.version) return;
  for (const auto& [id, member] : cluster_.members) {
    const auto after = state.members.find(id);
    if (after == state.members.end() || after->second.epoch != member.epoch) balancer_.forget(id);
  }
  cluster_ = state;
}

}  // namespace shoal
