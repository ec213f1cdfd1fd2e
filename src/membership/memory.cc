#include <utility>

#include "membership/membership.h"

namespace shoal {

void InMemoryMembership::apply(const MemberEvent& event) {
  const uint64_t before = state_.version;
  state_ = reduce(std::move(state_), event);
  if (state_.version == before) return;
  for (const OnChange& watcher : watchers_) watcher(state_);
}

StatusOr<uint32_t> InMemoryMembership::join(Member member) {
  std::lock_guard lock(mutex_);
  member.epoch = ++last_epoch_[member.id];
  const uint32_t epoch = member.epoch;
  apply(MemberJoined{std::move(member)});
  return epoch;
}

Status InMemoryMembership::drain(NodeId id, uint32_t epoch) {
  std::lock_guard lock(mutex_);
  if (!state_.members.contains(id)) return not_found("member ", id.value, " is not in the cluster");
  apply(MemberDraining{id, epoch});
  return OkStatus();
}

Status InMemoryMembership::serve(NodeId id, uint32_t epoch, std::vector<ModelId> models) {
  std::lock_guard lock(mutex_);
  const auto found = state_.members.find(id);
  if (found == state_.members.end() || found->second.epoch != epoch) return not_found("member ", id.value, " is not in the cluster in its life ", epoch);
  Member member = found->second;
  member.models = std::move(models);
  apply(MemberJoined{std::move(member)});
  return OkStatus();
}

Status InMemoryMembership::leave(NodeId id, uint32_t epoch) {
  std::lock_guard lock(mutex_);
  apply(MemberLeft{id, epoch});
  return OkStatus();
}

void InMemoryMembership::watch(OnChange on_change) {
  std::lock_guard lock(mutex_);
  on_change(state_);
  watchers_.push_back(std::move(on_change));
}

}  // namespace shoal
