#include "policy/prefill_groups.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {

// Whether the oldest request of another model would be late for one more of this one.
bool PrefillQueue::guarded(ModelId model, const SwitchSeconds& switch_seconds, TimePoint now) const {
  return options_.age_guard && std::any_of(groups_.begin(), groups_.end(), [&](const Group& other) {
    if (other.model == model) return false;
    const PrefillJob& oldest = other.jobs.front();
    return oldest.deadline - now < from_seconds(switch_seconds(other.model) + oldest.seconds);
  });
}

// The first that takes it, or the end.
PrefillQueue::Groups::iterator PrefillQueue::group_for(const PrefillJob& job, const SwitchSeconds& switch_seconds, TimePoint now) {
  const auto model = models_.find(job.model);
  if (model == models_.end()) return groups_.end();
  const auto& own = model->second.groups;
  const auto found = std::find_if(own.begin(), own.end(), [&](Groups::iterator g) { return g->admitted < options_.group_max; });
  return found == own.end() || guarded(job.model, switch_seconds, now) ? groups_.end() : *found;
}

bool PrefillQueue::joins(const PrefillJob& job, const SwitchSeconds& switch_seconds, TimePoint now) const {
  return const_cast<PrefillQueue*>(this)->group_for(job, switch_seconds, now) != groups_.end();
}

void PrefillQueue::add(const PrefillJob& job, const SwitchSeconds& switch_seconds, TimePoint now) {
  auto group = group_for(job, switch_seconds, now);
  OfModel& model = models_[job.model];
  if (group == groups_.end()) {
    group = groups_.insert(groups_.end(), {job.model, 0, {}});
    model.groups.push_back(group);
  }
  ++group->admitted;
  group->jobs.push_back(job);
  group->seconds += job.seconds;
  model.seconds += job.seconds;
  places_[job.request] = group;
}

bool PrefillQueue::remove(RequestId request) {
  const auto place = places_.find(request);
  if (place == places_.end()) return false;
  const Groups::iterator group = place->second;
  places_.erase(place);
  const auto model = models_.find(group->model);
  const auto job = std::find_if(group->jobs.begin(), group->jobs.end(), [&](const PrefillJob& j) { return j.request == request; });
  group->seconds -= job->seconds;
  model->second.seconds -= job->seconds;
  group->jobs.erase(job);
  if (!group->jobs.empty()) return true;
  auto& own = model->second.groups;
  own.erase(std::find(own.begin(), own.end(), group));
  groups_.erase(group);
  if (own.empty()) models_.erase(model);
  return true;
}

std::optional<PrefillJob> PrefillQueue::next() const {
  return groups_.empty() ? std::nullopt : std::optional(groups_.front().jobs.front());
}

uint32_t PrefillQueue::ready(ModelId model) const {
  const auto found = models_.find(model);
  if (found == models_.end()) return 0;
  uint32_t jobs = 0;
  for (auto group = Groups::const_iterator(found->second.groups.front()); group != groups_.end() && group->model == model; ++group) {
    jobs += static_cast<uint32_t>(group->jobs.size());
  }
  return jobs;
}

double PrefillQueue::seconds_of(ModelId model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? 0 : std::max(found->second.seconds, 0.0);
}

std::optional<ModelId> PrefillQueue::prefetch() const {
  for (const Group& group : groups_) {
    if (group.model != groups_.front().model) return group.model;
  }
  return std::nullopt;
}

double PrefillQueue::load_seconds(std::optional<ModelId> active, double running_seconds_left,
                                  const SwitchSeconds& switch_seconds) const {
  double seconds = running_seconds_left;
  for (const Group& group : groups_) {
    if (active != group.model) seconds += switch_seconds(group.model);
    active = group.model;
    seconds += std::max(group.seconds, 0.0);
  }
  return seconds;
}

void PrefillQueue::check() const {
  size_t jobs = 0;
  for (const Group& group : groups_) {
    CHECK(!group.jobs.empty());
    CHECK_LE(group.jobs.size(), size_t{group.admitted});
    CHECK_LE(group.admitted, options_.group_max);
    for (const PrefillJob& job : group.jobs) CHECK(job.model == group.model && &*places_.at(job.request) == &group);
    jobs += group.jobs.size();
  }
  CHECK_EQ(jobs, places_.size());
  size_t groups = 0;
  for (const auto& [id, model] : models_) {
    CHECK(!model.groups.empty());
    groups += model.groups.size();
  }
  CHECK_EQ(groups, groups_.size());
}

}  // namespace shoal
