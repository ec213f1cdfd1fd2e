#include "policy/rehearsal.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "policy/rehearsal_actor.h"

namespace shoal {
namespace {

using Actor = RehearsalActor;

constexpr double kTiny = Actor::kTiny, kNoLimit = Actor::kNoLimit;
constexpr size_t kSlotsMax = 224;
constexpr double kSlots = 24;  // of a horizon, at least: arrivals are looked at as often
constexpr double kTurnsMax = 64;  // of one model within the horizon
constexpr uint64_t kFewModels = 2;  // for each that the device has room for
constexpr uint32_t kPhases = 4;  // times at which rare requests come, of which it is the mean

class Rehearsal {
 public:
  // With a `phase`, rare requests come one by one.
  Rehearsal(std::span<const RehearsedModel> models, const RehearsedDevice& device, const Course& course, double horizon, std::optional<uint32_t> phase)
      : device_(device), course_(course), horizon_(horizon), slot_(horizon / kSlots) {
    actors_.reserve(models.size());
    const bool all_here = std::all_of(models.begin(), models.end(), [](const RehearsedModel& m) { return m.resident; });
    for (const RehearsedModel& m : models) {
      actors_.emplace_back(m, horizon, all_here);
      actors_.back().dilate(horizon / kTurnsMax, course.stretch);
      slot_ = std::max(std::min(slot_, m.ttft / Actor::kSlotsOfTtft), horizon_ / kSlotsMax);
    }
    if (phase) {
      for (Actor& a : actors_) a.come_one_by_one(*phase);
    }
  }

  Rehearsed run() {
    for (size_t i = 0; i < kSlotsMax && now_ < horizon_ - kTiny; ++i) {
      // The end is always reached: who is behind takes longer slots.
      const bool behind = now_ * kSlotsMax < horizon_ * static_cast<double>(i);
      const double least = std::min(slot_, behind ? (horizon_ - now_) / static_cast<double>(kSlotsMax - i) : 0.02);
      for (Actor& a : actors_) {
        if (a.here() || served(a)) a.arrive_until(now_);  // of the others everything is lost, at the end
      }
      Actor* const next = next_to_come();
      for (Actor& a : actors_) a.close(course_.ends && next != nullptr && a.here() && spent(a), now_);
      if (next == nullptr || !choose_leaving(*next)) {
        pass(next == nullptr ? slot_ : std::clamp(until_a_turn_ends(), least, slot_));
        continue;
      }
      ++switches_;
      for (Actor* a : leaving_) a->go();
      for (Actor& a : actors_) a.close(false, now_);  // nobody could take another place meanwhile
      const double idle = idle_, began = now_;
      pass(next->switch_seconds());
      idle_ = idle, switching_ += now_ - began;
      next->come();
      pass(std::min(slot_, std::max(least, next->facts().step_seconds(1))));
    }
    double lost = 0, ahead = 0;
    for (Actor& a : actors_) {
      a.arrive_until(now_);
      a.end();
      lost += a.lost();
      ahead += a.ahead();
    }
    return {on_time_, lost, ahead, idle_ / std::max(now_ - switching_, kTiny), switches_};
  }

 private:
  bool served(const Actor& a) const { return &a - actors_.data() < static_cast<std::ptrdiff_t>(course_.served); }
  uint32_t here() const {
    return static_cast<uint32_t>(std::count_if(actors_.begin(), actors_.end(), [](const Actor& a) { return a.here(); }));
  }
  double quota(const Actor& a) const { return a.quota(course_.stretch); }
  bool spent(const Actor& a) const { return a.spent() >= quota(a); }

  // Of the served ones that are away, the one whose token is due first.
  Actor* next_to_come() {
    Actor* next = nullptr;
    double first = std::numeric_limits<double>::infinity();
    for (uint32_t i = 0; i < course_.served; ++i) {
      Actor& a = actors_[i];
      if (a.here()) continue;
      const double due = a.due(now_ + a.switch_seconds());
      if (due < first) first = due, next = &a;
    }
    return next;
  }

  bool remains(const Actor& a) const { return a.here() && std::find(leaving_.begin(), leaving_.end(), &a) == leaving_.end(); }

  // Whether it has a place, with the least KV, beside those that stay.
  bool has_place(const Actor& next) const {
    uint32_t count = 0;
    double pages = next.facts().weight_pages + std::max(next.facts().kv_pages, next.facts().kv_pages_min);
    for (const Actor& a : actors_) {
      if (!remains(a)) continue;
      ++count;
      pages += a.facts().weight_pages + active_ * a.kv_pages();
    }
    return count == 0 || (device_.pages == kNoLimit ? count < device_.rooms : pages <= device_.pages);
  }

  // Who leaves for it; false: it has no place even if all leave that may.
  bool choose_leaving(const Actor& next) {
    leaving_.clear();
    while (!has_place(next)) {
      Actor* const gone = next_to_go();
      if (gone == nullptr) return false;
      leaving_.push_back(gone);
    }
    return true;
  }

  // Who is not served, has nothing promising to do, or had his turn; of those the one with the latest token.
  Actor* next_to_go() {
    Actor* gone = nullptr;
    std::pair<int, double> best;
    for (Actor& a : actors_) {
      if (!remains(a) || a.facts().stays) continue;
      const double due = a.due(now_);
      const int rank = !served(a) ? 2 : due == std::numeric_limits<double>::infinity() ? 1 : spent(a) && !(a.closed() && !a.done(now_)) ? 0 : -1;
      if (rank < 0 || (gone != nullptr && std::pair(rank, due) <= best)) continue;
      best = {rank, due};
      gone = &a;
    }
    return gone;
  }

  // Of those that are here: until one's quota is spent, or what it has to do is done.
  double until_a_turn_ends() const {
    double until = slot_;
    const double sharing = here();
    for (const Actor& a : actors_) {
      if (!a.here() || a.facts().stays) continue;
      if (!a.closed()) until = std::min(until, std::max(0.0, quota(a) - a.spent()));
      if (const double work = a.work(now_); work > 0) until = std::min(until, sharing * work);
    }
    return until;
  }

  // Of those that have KV, those that are away first, the one with the latest token.
  Actor* last_to_need_kv() {
    Actor* last = nullptr;
    const auto key = [](const Actor& a) { return std::pair(!a.here(), a.last_due()); };
    for (Actor& a : actors_) {
      if (a.kv_pages() > kTiny && (last == nullptr || key(a) > key(*last))) last = &a;
    }
    return last;
  }

  // KV that has no place any more is given up, of those that are away first. Of those that are here the host tier has what the device has no
  // room for. Pages that are left for more of it.
  double make_room() {
    active_ = 1;
    if (device_.pages == kNoLimit) return kNoLimit;
    for (;;) {
      double room = device_.pages, kv = 0, away = 0;
      for (const Actor& a : actors_) {
        if (a.here()) room -= a.facts().weight_pages, kv += a.kv_pages();
        if (!a.here()) away += a.kv_pages();
      }
      room = std::max(room, 0.0);
      const double left = room + device_.host_pages - kv - away;
      Actor* const last = left < -kTiny ? last_to_need_kv() : nullptr;
      if (last == nullptr) {
        active_ = kv > room ? room / kv : 1;
        return std::max(0.0, std::min(room - kv, left));
      }
      last->give_up(-left);
    }
  }

  // Time goes by; those that are here share it by steps in turn, and what one does not need is for the others.
  void pass(double seconds) {
    seconds = std::min(seconds, horizon_ - now_);
    if (seconds <= 0) return;
    double steps = 0, left = seconds, pages = make_room();
    bool any = false;
    busy_.clear();
    for (Actor& a : actors_) {
      if (!a.here()) continue;
      const double work = a.work(now_);
      if (work <= kTiny && a.decoding() <= 0) continue;
      const double step = a.facts().step_seconds(active_ * a.in_step() + 1);
      busy_.push_back({&a, work, step, served(a)});
      any |= served(a);
    }
    if (any) std::erase_if(busy_, [](const Busy& b) { return !b.served; });  // they have what nobody else wants
    for (const Busy& b : busy_) steps += b.step;
    std::sort(busy_.begin(), busy_.end(), [](const Busy& a, const Busy& b) { return a.work / a.step < b.work / b.step; });
    for (const Busy& b : busy_) {
      const double takes = std::min(std::max(b.work, b.step), left * b.step / steps);
      pages += b.actor->kv_pages();
      on_time_ += b.actor->compute(now_, seconds, takes, pages - b.actor->kv_pages(), active_);
      pages -= b.actor->kv_pages();
      left -= takes;
      steps -= b.step;
    }
    idle_ += left;
    now_ += seconds;
  }

  struct Busy {
    Actor* actor;
    double work, step;
    bool served;
  };
  const RehearsedDevice device_;
  const Course course_;
  const double horizon_;
  double slot_;
  std::vector<Actor> actors_;
  std::vector<Busy> busy_;
  std::vector<Actor*> leaving_;
  double active_ = 1;  // share of those that are here and decode whose KV has place on the device; they take turns
  double now_ = 0, on_time_ = 0, idle_ = 0, switching_ = 0, switches_ = 0;
};

}  // namespace

Rehearsed rehearse(std::span<const RehearsedModel> models, const RehearsedDevice& device, const Course& course, double horizon) {
  // Of a fluid somebody always waits, so that the device seems to switch without end. Where many models go round, somebody does. And of requests
  // one by one nobody knows when: at one time a course looks good, at another it does not.
  if (device.models > kFewModels * device.rooms || std::none_of(models.begin(), models.end(), Actor::rare)) {
    return Rehearsal(models, device, course, horizon, std::nullopt).run();
  }
  Rehearsed mean;
  for (uint32_t phase = 0; phase < kPhases; ++phase) {
    const Rehearsed r = Rehearsal(models, device, course, horizon, phase).run();
    mean.on_time += r.on_time / kPhases, mean.lost += r.lost / kPhases, mean.ahead += r.ahead / kPhases;
    mean.idle += r.idle / kPhases, mean.switches += r.switches / kPhases;
  }
  return mean;
}

double priority_weight(int32_t priority) {
  constexpr double kFor1 = 4;
  return std::pow(kFor1, std::clamp(priority, -3, 3));
}

bool worth_a_switch(const RehearsedModel& model) {
  return Actor(model, 0).due(model.return_seconds) < std::numeric_limits<double>::infinity();
}

namespace {

struct Wanted {
  double tokens = 0;  // a second
  double share = 0;   // of the device
};

// The share of the device that the prompts that come take, and so many tokens a second, at the pace of those who read them.
double paced(const RehearsedModel& m, double tokens) {
  const double sequences = std::min(m.sequences_max, tokens * m.tbt);
  return m.arrivals * m.prompt_seconds + (std::min(1.0, sequences) * m.step_base + m.step_each * sequences) / m.tbt;
}

Wanted wanted(const RehearsedModel& m, double horizon) {
  double waiting = 0, prompts = 0;
  for (const Cohort& c : m.cohorts) {
    const double step = m.step_seconds(1);
    if (!promising(c.left, c.prompt_seconds + step + (m.resident ? 0 : m.switch_seconds), step, c.due, m.tbt)) continue;
    waiting += c.requests * c.left;
    prompts += c.requests * c.prompt_seconds;
  }
  const double rate = m.arrivals * m.answer_tokens + waiting / horizon;
  return {rate, prompts / horizon + paced(m, rate)};
}

}  // namespace

double late_when_away(const RehearsedModel& m, double seconds) {
  constexpr double kDrainMin = 0.1;
  // One that comes has its first token once what came before it is computed: the first one at `seconds` and its prompt, and the next ones the
  // sooner the more of the time those that come leave. It is late from `ttft` on, by a token more each `tbt`.
  const double drain = std::max(kDrainMin, 1 - paced(m, m.arrivals * m.answer_tokens));
  const double late = std::max(0.0, seconds + m.prompt_seconds - m.ttft), most = m.answer_tokens * m.tbt;
  const double until = std::min(late, seconds) / drain;              // so long those who come are late,
  const double all = std::clamp((late - most) / drain, 0.0, until);  // at first with all that they ask for
  const double last = std::max(0.0, late - drain * until);
  return m.weight * m.arrivals * (all * m.answer_tokens + (until - all) * 0.5 * (std::min(late, most) + last) / m.tbt);
}

bool pays_while_idle(const RehearsedModel& late, double requests, const RehearsedModel& leaves, std::span<const RehearsedModel> models) {
  constexpr double kLate = 0.02;
  // Whoever asks next for one that was never here gets it sooner.
  const double step = late.step_seconds(1);
  const auto in_time = [&](double seconds) { return tokens_in_time(late.answer_tokens, seconds + late.prompt_seconds + step, step, late.ttft, late.tbt); };
  const double sooner = late.weight * std::max(0.0, in_time(late.return_seconds) - in_time(late.switch_seconds));
  for (double served = requests; served >= 1; served = std::floor(served / 2)) {
    const double taken = late.switch_seconds + served * late.prompt_seconds + late.answer_tokens * late.step_seconds(served);
    const auto later = [&](const RehearsedModel& m) { return late_when_away(m, taken + m.switch_seconds) - late_when_away(m, m.switch_seconds); };
    double lost = late_when_away(leaves, taken + leaves.switch_seconds);
    for (const RehearsedModel& m : models) {
      if (m.model != late.model && !m.resident) lost += later(m);
    }
    if (kLate * late.weight * served * late.answer_tokens + later(late) + sooner > lost) return true;
  }
  return false;
}

double load(const RehearsedModel& model, double horizon) { return wanted(model, horizon).share; }

double yield(const RehearsedModel& m, double horizon) {
  const Wanted of = wanted(m, horizon);
  return m.weight * of.tokens / std::max(of.share + (m.resident ? 0 : m.switch_seconds / horizon), 1e-3);
}

}  // namespace shoal
