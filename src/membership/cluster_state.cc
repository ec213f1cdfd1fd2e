#include "membership/cluster_state.h"

#include <utility>

namespace shoal {
namespace {

bool apply(ClusterState& state, const MemberJoined& event) {
  const auto found = state.members.find(event.member.id);
  if (found != state.members.end()) {
    if (event.member.epoch < found->second.epoch || event.member == found->second) return false;
    if (event.member.epoch == found->second.epoch && found->second.draining) return false;  // a drain is final
  }
  state.members[event.member.id] = event.member;
  return true;
}

bool apply(ClusterState& state, const MemberLeft& event) {
  const auto found = state.members.find(event.id);
  if (found == state.members.end() || event.epoch < found->second.epoch) return false;
  state.members.erase(found);
  return true;
}

bool apply(ClusterState& state, const MemberDraining& event) {
  const auto found = state.members.find(event.id);
  if (found == state.members.end() || event.epoch != found->second.epoch || found->second.draining) return false;
  found->second.draining = true;
  return true;
}

}  // namespace

ClusterState reduce(ClusterState state, const MemberEvent& event) {
  const bool changed = std::visit([&](const auto& e) { return apply(state, e); }, event);
  if (changed) ++state.version;
  return state;
}

}  // namespace shoal
