#include "policy/prefill_groups.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {

bool PrefillQueue::takes(const Group& group, const SwitchSeconds& switch_seconds, TimePoint now) const {
  if (group.admitted >= options_.group_max) return false;
  if (!options_.age_guard) return true;
  return std::none_of(groups_.begin(), groups_.end(), [&](const Group& other) {
    if (other.model == group.model) return false;
    const PrefillJob& oldest = other.jobs.front();
    return oldest.deadline - now < from_seconds(switch_seconds(other.model) + oldest.seconds);
  });
}

bool PrefillQueue::joins(const PrefillJob& job, const SwitchSeconds& switch_seconds, TimePoint now) const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const Group& g) { return g.model == job.model && takes(g, switch_seconds, now); });
}

void PrefillQueue::add(const PrefillJob& job, const SwitchSeconds& switch_seconds, TimePoint now) {
  for (Group& group : groups_) {
    if (group.model != job.model || !takes(group, switch_seconds, now)) continue;
    group.jobs.push_back(job);
    ++group.admitted;
    return;
  }
  groups_.push_back({job.model, 1, {job}});
}

bool PrefillQueue::remove(RequestId request) {
  for (auto group = groups_.begin(); group != groups_.end(); ++group) {
    const auto found = std::find_if(group->jobs.begin(), group->jobs.end(), [&](const PrefillJob& j) { return j.request == request; });
    if (found == group->jobs.end()) continue;
    group->jobs.erase(found);
    if (group->jobs.empty()) groups_.erase(group);
    return true;
  }
  return false;
}

std::optional<PrefillJob> PrefillQueue::next() const {
  return groups_.empty() ? std::nullopt : std::optional(groups_.front().jobs.front());
}

uint32_t PrefillQueue::ready(ModelId model) const {
  uint32_t jobs = 0;
  bool begun = false;
  for (const Group& group : groups_) {
    if (group.model == model) {
      jobs += static_cast<uint32_t>(group.jobs.size());
      begun = true;
    } else if (begun) {
      break;
    }
  }
  return jobs;
}

double PrefillQueue::seconds_of(ModelId model) const {
  double seconds = 0;
  for (const Group& group : groups_) {
    for (const PrefillJob& job : group.jobs) seconds += group.model == model ? job.seconds : 0;
  }
  return seconds;
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
    for (const PrefillJob& job : group.jobs) seconds += job.seconds;
  }
  return seconds;
}

size_t PrefillQueue::size() const {
  size_t jobs = 0;
  for (const Group& group : groups_) jobs += group.jobs.size();
  return jobs;
}

void PrefillQueue::check() const {
  for (const Group& group : groups_) {
    CHECK(!group.jobs.empty());
    CHECK_LE(group.jobs.size(), size_t{group.admitted});
    CHECK_LE(group.admitted, options_.group_max);
    for (const PrefillJob& job : group.jobs) CHECK_EQ(job.model, group.model);
  }
}

}  // namespace shoal
