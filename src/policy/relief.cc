#include "policy/relief.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

const ReliefView* least_recent_with_cache(ModelId but, std::span<const ReliefView> models) {
  const ReliefView* found = nullptr;
  for (const ReliefView& m : models) {
    if (m.model == but || m.blocks_cached == 0) continue;
    if (found == nullptr || m.last_used < found->last_used) found = &m;
  }
  return found;
}

// The resident model used longest ago among those with nothing under way, one that has not had its turn yet last.
// `with_waiting`, the last resort: also one with requests that wait, or that is pinned. The only model stays.
std::optional<ModelId> idle_weights(bool with_waiting, std::span<const ReliefView> models) {
  const ReliefView* found = nullptr;
  const auto rank = [](const ReliefView& m) { return std::tuple(m.pinned, m.fresh, m.last_used); };
  for (const ReliefView& m : models) {
    if (!m.resident || m.running + m.moving > 0) continue;
    if (!with_waiting && (m.waiting > 0 || m.pinned)) continue;
    if (found == nullptr || rank(m) < rank(*found)) found = &m;
  }
  const auto residents = std::count_if(models.begin(), models.end(), [](const ReliefView& m) { return m.resident; });
  return found == nullptr || residents < 2 ? std::nullopt : std::optional(found->model);
}

ReliefPlan preempt_for_oldest(std::span<const ReliefView> models) {
  const ReliefView* oldest = nullptr;
  for (const ReliefView& m : models) {
    if (m.oldest && (oldest == nullptr || *m.oldest < *oldest->oldest)) oldest = &m;
  }
  const ReliefView* victim = nullptr;
  for (const ReliefView& m : models) {
    if (&m == oldest || m.running == 0) continue;
    if (victim == nullptr || m.last_turn > victim->last_turn) victim = &m;
  }
  if (oldest == nullptr || victim == nullptr) return {};
  return {.preempt = victim->model, .protect = oldest->model};
}

}  // namespace

std::optional<ModelId> first_to_park(std::span<const ReliefView> models) {
  const ReliefView* found = nullptr;
  for (const ReliefView& m : models) {
    if (!m.away || m.running == 0) continue;
    if (found == nullptr || m.slack > found->slack) found = &m;
  }
  return found == nullptr ? std::nullopt : std::optional(found->model);
}

ReliefPlan relieve(ModelId model, bool must, std::span<const ReliefView> models, bool coming) {
  if (const ReliefView* m = least_recent_with_cache(model, models)) return {.trim = {m->model}};
  if (!must || coming) return {};
  if (const auto drop = idle_weights(/*with_waiting=*/false, models)) return {.drop = drop};
  if (const auto absent = first_to_park(models)) return {.take_kv = absent};
  for (const ReliefView& m : models) {
    if (m.resident && !m.pinned && !m.fresh && m.turn_over && m.model != model) return {.drop = m.model};
  }
  return {};
}

ReliefPlan relieve_all(std::span<const ReliefView> models, bool coming) {
  ReliefPlan plan;
  for (const ReliefView& m : models) {
    if (m.blocks_cached > 0) plan.trim.push_back(m.model);
  }
  if (!plan.trim.empty() || coming) return plan;
  if (const auto drop = idle_weights(/*with_waiting=*/false, models)) return {.drop = drop};
  if (const auto absent = first_to_park(models)) return {.take_kv = absent};
  plan = preempt_for_oldest(models);
  if (!plan.preempt) plan.drop = idle_weights(/*with_waiting=*/true, models);
  return plan;
}

std::string to_string(const ReliefPlan& plan) {
  std::string out;
  for (const ModelId m : plan.trim) absl::StrAppend(&out, "trim ", m.value, "; ");
  if (plan.drop) absl::StrAppend(&out, "drop ", plan.drop->value, "; ");
  if (plan.take_kv) absl::StrAppend(&out, "take KV of ", plan.take_kv->value, "; ");
  if (plan.preempt) absl::StrAppend(&out, "preempt ", plan.preempt->value, " for ", plan.protect->value, "; ");
  return out.empty() ? "nothing" : out;
}

}  // namespace shoal
