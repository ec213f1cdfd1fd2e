#include <algorithm>
#include <limits>
#include <tuple>

#include "policy/model_switch.h"

namespace shoal {
namespace {

class TokenSwitch {
 public:
  TokenSwitch(std::span<const ModelView> models, const PoolView& pool, const TurnOptions& options)
      : models_(models), options_(options), free_(pool.pages_free - std::min(pool.pages_free, pool.pages_spoken_for)), coming_(pool.pages_coming) {
    for (const ModelView& m : models_) {
      if (m.wanted && !m.resident) priority_min_ = std::min(priority_min_, int64_t{m.priority});
      working_ |= m.resident && has_work(m);
    }
  }

  std::vector<const ModelView*> waiting() const {
    std::vector<const ModelView*> queue;
    for (const ModelView& m : models_) {
      if (m.wanted && !m.resident) queue.push_back(&m);
    }
    std::stable_sort(queue.begin(), queue.end(), [&](const ModelView* a, const ModelView* b) { return key(*a) < key(*b); });
    return queue;
  }

  SwitchPlan run() {
    for (const ModelView& m : models_) {
      if (m.loading) return {};
    }
    std::vector<const ModelView*> queue = waiting();
    if (queue.empty()) return {};
    const ModelView* const first = queue.front();
    std::stable_partition(queue.begin() + 1, queue.end(), [](const ModelView* m) { return m->next_group && m->served; });
    for (const ModelView* wanted : queue) {
      if (wanted == first ? make_room(*wanted) : free_now_ >= need(*wanted)) {
        plan_.load = wanted->model;
        return std::move(plan_);
      }
      plan_ = {};
    }
    // Nobody computes, and the first cannot have its room: whoever can comes before it, or nobody ever would.
    for (auto wanted = queue.begin() + 1; coming_ == 0 && !working_ && wanted != queue.end(); ++wanted) {
      free_ = free_now_;
      if (make_room(**wanted)) {
        plan_.load = (*wanted)->model;
        return std::move(plan_);
      }
      plan_ = {};
    }
    plan_.next = first->model;
    return std::move(plan_);
  }

 private:
  using Key = std::tuple<bool, bool, bool, int64_t, Duration, TimePoint>;
  Key key(const ModelView& m) const {
    if (options_.least_slack_first) return {!m.served, !m.turn.first, !m.turn.promise, -(m.turn.due ? int64_t{m.priority} : priority_min_), m.turn.slack, m.wanted_since};
    return {!m.served, !m.turn.first, !m.turn.due, -int64_t{m.priority}, Duration(0), m.wanted_since};
  }
  static bool has_work(const ModelView& m) { return m.busy || m.queued; }
  // The blocks that its own requests hold already are not needed twice.
  static uint64_t need(const ModelView& m) {
    return uint64_t{m.weight_pages} + (m.kv_pages_min > m.turn.kv_pages_held ? m.kv_pages_min - m.turn.kv_pages_held : 0);
  }

  std::vector<const ModelView*> least_recent() const {
    std::vector<const ModelView*> out;
    for (const ModelView& m : models_) out.push_back(&m);
    std::stable_sort(out.begin(), out.end(), [](const ModelView* a, const ModelView* b) { return a->last_used < b->last_used; });
    return out;
  }

  std::vector<const ModelView*> residents(const ModelView& wanted, bool working) const {
    std::vector<const ModelView*> out;
    for (const ModelView& m : models_) {
      if (m.resident && m.model != wanted.model && has_work(m) == working) out.push_back(&m);
    }
    std::stable_sort(out.begin(), out.end(), [&](const ModelView* a, const ModelView* b) {
      if (!working) return a->last_used < b->last_used;
      return std::tuple(a->served, a->priority, -a->turn.slack) < std::tuple(b->served, b->priority, -b->turn.slack);
    });
    return out;
  }

  bool may_go(const ModelView& m, const ModelView& wanted) const {
    if (m.pinned || m.turn.stepping || (m.turn.first && has_work(m))) return false;
    // Of two without a turn the one that is there loses nothing by staying while it has work, and may be served again in a moment. And whether
    // somebody comes to an idle device is decided with more in mind.
    if (!wanted.served) return !m.served && !m.fresh && !has_work(m) && working_;
    if (!m.served) return !may_stay(m, wanted);
    if (m.fresh) return false;
    if (!has_work(m)) return true;
    if (m.turn.over || wanted.turn.first) return true;
    if (m.turn.answers_first) return breaks_off(m.turn, wanted.turn);
    const TurnView &running = m.turn, &waiting = wanted.turn;
    return ends_early({running.slack, running.switch_seconds, running.spent_seconds, waiting.slack, waiting.switch_seconds,
                       waiting.step_seconds, wanted.queued},
                      options_);
  }

  // A turn that lets answers end, for one that keeps its promise only now.
  static bool breaks_off(const TurnView& running, const TurnView& waiting) {
    constexpr double kTurnLeast = 4;  // switches
    return waiting.promise && running.spent_seconds >= kTurnLeast * running.switch_seconds && to_seconds(waiting.slack) < 2 * (waiting.switch_seconds + waiting.step_seconds);
  }

  // Of one that has come but has no turn, for others came meanwhile: the load is paid for, and a token is had for little. It stays until it has
  // given one, if the other can wait for as long as a switch to it takes.
  static bool may_stay(const ModelView& m, const ModelView& wanted) {
    return m.fresh && has_work(m) && !m.turn.over && !wanted.turn.first && to_seconds(wanted.turn.slack) > 2 * wanted.turn.switch_seconds;
  }

  void drop(const ModelView& m) {
    plan_.drop.push_back(m.model);
    free_ += m.weight_pages;
  }
  bool dropped(const ModelView& m) const {
    return std::find(plan_.drop.begin(), plan_.drop.end(), m.model) != plan_.drop.end();
  }

  bool make_room(const ModelView& wanted) {
    const uint64_t needed = need(wanted);
    const auto enough = [&] { return free_ >= needed; };
    if (!enough() && free_ + coming_ >= needed) return false;  // in a moment, without taking more
    for (const ModelView* m : least_recent()) {
      if (enough()) return true;
      if (m->kv_pages_idle == 0) continue;
      plan_.trim.push_back(m->model);
      free_ += m->kv_pages_idle;
    }
    const auto idle = residents(wanted, false), working = residents(wanted, true);
    for (const auto* group : {&idle, &working}) {
      for (const ModelView* m : *group) {
        if (enough()) return true;
        if (may_go(*m, wanted)) {
          drop(*m);
        } else if (!m->served && may_stay(*m, wanted)) {
          return false;  // nor does whoever has a turn go in its stead
        }
      }
    }
    if (enough()) return true;
    // Somebody computes on, or can go in a moment: no reason to take KV that is in use.
    for (const ModelView* m : working) {
      if (!dropped(*m) && (!m->turn.over || m->turn.stepping || m->turn.first)) return false;
    }
    return take_kv(wanted, needed);
  }

  bool take_kv(const ModelView& wanted, uint64_t needed) {
    std::vector<const ModelView*> holders;
    for (const ModelView& m : models_) {
      if (m.model != wanted.model && m.turn.kv_pages_held > 0 && (!m.resident || dropped(m))) holders.push_back(&m);
    }
    std::stable_sort(holders.begin(), holders.end(),
                     [](const ModelView* a, const ModelView* b) { return a->turn.slack > b->turn.slack; });
    for (const ModelView* m : holders) {
      plan_.take_kv.push_back(m->model);
      free_ += m->turn.kv_pages_held;
      if (free_ >= needed) return true;
    }
    return false;
  }

  const std::span<const ModelView> models_;
  const TurnOptions& options_;
  uint64_t free_;                    // with what the plan so far gives
  const uint64_t coming_;
  const uint64_t free_now_ = free_;
  SwitchPlan plan_;
  bool working_ = false;             // somebody who is there has work
  int64_t priority_min_ = std::numeric_limits<int64_t>::max();  // of those that wait
};

}  // namespace

std::vector<ModelId> waiting_order(std::span<const ModelView> models, const TurnOptions& options) {
  std::vector<ModelId> out;
  for (const ModelView* model : TokenSwitch(models, {}, options).waiting()) out.push_back(model->model);
  return out;
}

SwitchPlan plan_token_switch(std::span<const ModelView> models, const PoolView& pool, const TurnOptions& options) {
  return TokenSwitch(models, pool, options).run();
}

}  // namespace shoal
