#include "policy/model_switch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

// Makes room for `wanted` by trimming and dropping idle models; false if that is not enough.
bool make_room(const ModelView& wanted, std::span<const ModelView> models, const PoolView& pool, bool overdue,
               SwitchPlan& plan) {
  const uint64_t need = uint64_t{wanted.weight_pages} + wanted.kv_pages_min;
  uint64_t free = pool.pages_free;
  std::vector<const ModelView*> least_recent;
  for (const ModelView& m : models) least_recent.push_back(&m);
  std::stable_sort(least_recent.begin(), least_recent.end(),
                   [](const ModelView* a, const ModelView* b) { return a->last_used < b->last_used; });
  for (const ModelView* m : least_recent) {
    if (free >= need) return true;
    if (m->kv_pages_idle == 0) continue;
    plan.trim.push_back(m->model);
    free += m->kv_pages_idle;
  }
  for (const ModelView* m : least_recent) {
    if (free >= need) return true;
    if (!m->resident || m->model == wanted.model || m->busy || m->pinned || (m->queued && !(overdue && wanted.wanted_since <= m->queued_since))) continue;
    plan.drop.push_back(m->model);
    free += m->weight_pages;
  }
  return free >= need;
}

}  // namespace

SwitchPlan plan_switch(std::span<const ModelView> models, const PoolView& pool, const SwitchLimits& limits,
                       TimePoint now) {
  std::vector<const ModelView*> queue;
  for (const ModelView& m : models) {
    if (m.loading) return {};
    if (m.wanted && !m.resident) queue.push_back(&m);
  }
  std::stable_sort(queue.begin(), queue.end(),
                   [](const ModelView* a, const ModelView* b) { return a->wanted_since < b->wanted_since; });
  SwitchPlan result;
  if (!queue.empty()) result.next = queue.front()->model;
  bool first = true;
  for (const ModelView* wanted : queue) {
    SwitchPlan plan;
    // Only the head of the queue may push others out: a later one would take the room the head is waiting for.
    const bool fits_free = pool.pages_free >= uint64_t{wanted->weight_pages} + wanted->kv_pages_min;
    const bool overdue = now - wanted->wanted_since >= limits.hold_after;
    if (first ? make_room(*wanted, models, pool, overdue, plan) : fits_free && result.hold.empty()) {
      plan.load = wanted->model;
      return plan;
    }
    if (first && overdue) {
      for (const ModelView& m : models) {
        if (m.resident && (m.busy || m.queued)) result.hold.push_back(m.model);
      }
    }
    first = false;
  }
  return result;
}

std::string to_string(const SwitchPlan& plan) {
  std::string out;
  for (const ModelId m : plan.trim) absl::StrAppend(&out, "trim ", m.value, "; ");
  for (const ModelId m : plan.drop) absl::StrAppend(&out, "drop ", m.value, "; ");
  for (const ModelId m : plan.take_kv) absl::StrAppend(&out, "take KV of ", m.value, "; ");
  for (const ModelId m : plan.hold) absl::StrAppend(&out, "hold ", m.value, "; ");
  if (plan.load) absl::StrAppend(&out, "load ", plan.load->value);
  if (plan.next) absl::StrAppend(&out, "next ", plan.next->value);
  return out;
}

}  // namespace shoal
