#include "policy/rehearsal.h"

#include <algorithm>
#include <cmath>

namespace shoal {
namespace {

constexpr double kTiny = 1e-9;
constexpr size_t kSlotsMax = 224;
constexpr double kSlots = 24;  // of a horizon, at least: arrivals are looked at as often,
constexpr double kTurnsMax = 64;  // of one model within the horizon
constexpr double kAhead = 0.1;    // of a token that is given within the horizon and due after it: what the time is worth that it saves then
constexpr double kSlotsOfTtft = 3;  // and so often within the time of a first token

// As the engine does it: a step that takes prompts along is as long as readers allow.
double mixed_step(const RehearsedModel& m, double decode) { return std::max(m.tbt, 2 * decode); }

}  // namespace

double tokens_in_time(double left, double start, double step, double slack, double tbt) {
  const double late = start - slack;
  if (late <= 0) return step <= tbt ? left : std::min(left, 1 - late / (step - tbt));
  return step >= tbt ? 0 : std::max(0.0, left - late / (tbt - step));
}

bool promising(double left, double start, double step, double slack, double tbt) {
  return tokens_in_time(left, start, step, slack, tbt) >= 0.5 * left;
}

void Cohorts::add(const Cohort& cohort) {
  if (count_ < kMax) {
    all_[count_++] = cohort;
    return;
  }
  Cohort* nearest = nullptr;
  for (Cohort& c : *this) {
    const bool same_kind = (c.prompt_seconds > 0) == (cohort.prompt_seconds > 0);
    if (same_kind && (nearest == nullptr || std::abs(c.due - cohort.due) < std::abs(nearest->due - cohort.due))) nearest = &c;
  }
  if (nearest == nullptr) nearest = begin();
  const double sum = nearest->requests + cohort.requests, share = sum > 0 ? cohort.requests / sum : 0;
  const auto mix = [share](double a, double b) { return a + share * (b - a); };
  *nearest = {sum, mix(nearest->due, cohort.due), mix(nearest->left, cohort.left), mix(nearest->prompt_seconds, cohort.prompt_seconds)};
}

void Cohorts::remove_empty() {
  count_ = static_cast<size_t>(std::remove_if(begin(), end(), [](const Cohort& c) { return c.requests < kTiny || c.left < kTiny; }) - begin());
}

namespace {

// One model in a rehearsal.
class Actor {
 public:
  Actor(const RehearsedModel& facts, double horizon) : facts_(&facts), horizon_(horizon), cohorts_(facts.cohorts), spent_(facts.spent_seconds), here_(facts.resident) {}

  const RehearsedModel& facts() const { return *facts_; }
  bool here() const { return here_; }
  double switch_seconds() const { return facts_->switch_seconds * dilation_; }
  double quota(double stretch) const { return facts_->quota_seconds * stretch * dilation_; }
  // Turns are no shorter than that: of shorter ones several are one, switches included.
  void dilate(double turn_min, double stretch) {
    dilation_ = std::max(1.0, turn_min / std::max(facts_->switch_seconds + facts_->quota_seconds * stretch, kTiny));
  }
  double spent() const { return spent_; }
  double lost() const { return lost_ * facts_->weight; }
  void come() { here_ = true, closed_ = false, spent_ = 0; }
  bool closed() const { return closed_; }
  void close(bool closed) { closed_ = closed; }  // begins no answers
  void go() { here_ = false; }

  // What came until then and can be on time; of a long while in parts. What cannot be any more is forgotten.
  void arrive_until(double now) {
    if (facts_->arrivals <= 0 || now <= arrived_) return;
    for (Cohort& c : cohorts_) {
      if (c.prompt_seconds <= 0 || worth(c, now)) continue;
      lost_ += c.requests * within(c.left, c.due);
      c.requests = 0;
    }
    cohorts_.remove_empty();
    const double window = facts_->ttft + 0.5 * facts_->answer_tokens * facts_->tbt, from = std::max(arrived_, now - window), seconds = now - from;
    lost_ += facts_->arrivals * (from - arrived_) * within(facts_->answer_tokens, 0.5 * (arrived_ + from) + facts_->ttft);
    const int parts = static_cast<int>(std::clamp(std::ceil(kSlotsOfTtft * seconds / facts_->ttft), 1.0, 4.0));
    for (int i = 0; i < parts; ++i) {
      const double at = from + seconds * (i + 0.5) / parts;
      cohorts_.add({facts_->arrivals * seconds / parts, at + facts_->ttft, facts_->answer_tokens, std::max(facts_->prompt_seconds, kTiny)});
    }
    arrived_ = now;
  }

  double decoding() const {
    double n = 0;
    for (const Cohort& c : cohorts_) n += c.prompt_seconds > 0 ? 0 : c.requests;
    return n;
  }

  bool worth(const Cohort& c, double now) const {
    const double step = facts_->step_seconds(std::min(decoding() + 1, facts_->sequences_max));
    return promising(c.left, now + c.prompt_seconds + step, step, c.due, facts_->tbt);
  }

  // When the first promising token is due; infinity: nothing here is promising at `now`.
  double due(double now) const {
    double due = std::numeric_limits<double>::infinity();
    for (const Cohort& c : cohorts_) {
      if (c.due < due && worth(c, now)) due = c.due;
    }
    return due;
  }

  // Seconds of the device that would finish everything promising; of one that begins no answers, all that began.
  double work(double now) const {
    double n = 0, longest = 0, prompts = 0;
    for (const Cohort& c : cohorts_) {
      if (closed_ ? c.prompt_seconds > 0 : !worth(c, now)) continue;
      n += c.requests;
      prompts += c.requests * c.prompt_seconds;
      longest = std::max(longest, c.left);
    }
    return n == 0 ? 0 : prompts + longest * facts_->step_seconds(std::min(n, facts_->sequences_max));
  }

  // Computes for `seconds` of the device's time within [from, from + wall): weighted tokens on time.
  double compute(double from, double wall, double seconds) {
    if (seconds <= kTiny) return 0;
    spent_ += seconds;
    const double n = decoding(), decode = step(n), mixed = mixed_step(*facts_, decode), share = n > 0 ? 1 - decode / mixed : 1;
    double on_time = 0;
    begun_ = Cohorts();
    const double beside = prompts(from, wall, seconds * share, on_time) / share;
    double begun = 0;
    for (const Cohort& c : begun_) begun += c.requests;
    const double mixed_steps = n > 0 ? beside / mixed : 0, steps = (seconds - beside) / step(n + begun), whole = wall / seconds;
    on_time += decodes(cohorts_, from, wall, mixed_steps + steps);
    on_time += decodes(begun_, from + 0.5 * beside * whole, wall - 0.5 * beside * whole, 0.5 * mixed_steps + steps);
    for (const Cohort& c : begun_) cohorts_.add(c);
    cohorts_.remove_empty();
    return on_time * facts_->weight;
  }

  // The horizon is there: what was due until then and was not given.
  void end() {
    for (const Cohort& c : cohorts_) lost_ += c.requests * within(c.left, c.due);
  }

 private:
  // Of so many tokens, how many are due within the horizon.
  double within(double tokens, double due) const { return std::clamp((horizon_ - due) / facts_->tbt + 1, 0.0, tokens); }

  double prompts(double from, double wall, double budget, double& on_time) {
    double spent = 0, room = std::max(0.0, facts_->sequences_max - decoding());
    std::sort(cohorts_.begin(), cohorts_.end(), [](const Cohort& a, const Cohort& b) { return a.due < b.due; });
    for (Cohort& c : cohorts_) {
      if (closed_ || c.prompt_seconds <= 0 || !worth(c, from) || room <= 0 || spent >= budget) continue;
      const double began = std::min({c.requests, room, (budget - spent) / c.prompt_seconds});
      const double first = from + wall * std::min(1.0, (spent + 0.5 * began * c.prompt_seconds) / budget);
      spent += began * c.prompt_seconds;
      room -= began;
      c.requests -= began;
      const double counts = began * within(1, c.due);
      on_time += first <= c.due ? counts + kAhead * (began - counts) : 0;
      lost_ += first <= c.due ? 0 : counts;
      begun_.add({began, c.due + facts_->tbt, c.left - 1, 0});
    }
    return spent;
  }

  double step(double sequences) const { return facts_->step_seconds(std::min(sequences, facts_->sequences_max)); }

  double decodes(Cohorts& cohorts, double from, double wall, double steps) {
    if (steps <= kTiny) return 0;
    const double gap = wall / steps;
    double on_time = 0;
    for (Cohort& c : cohorts) {
      if (c.prompt_seconds > 0) continue;
      const double given = std::min(steps, c.left);
      const double kept = tokens_in_time(given, from + gap, gap, c.due, facts_->tbt);
      const double counts = within(given, c.due), good = from + gap > c.due ? std::max(0.0, counts - (given - kept)) : std::min(kept, counts);
      on_time += c.requests * (good + kAhead * (kept - good));
      lost_ += c.requests * (counts - good);
      c.due += given * facts_->tbt;
      c.left -= given;
    }
    return on_time;
  }

  const RehearsedModel* facts_;
  double horizon_, dilation_ = 1;
  Cohorts cohorts_;
  double arrived_ = 0, spent_ = 0, lost_ = 0;
  bool here_ = false, closed_ = false;
  Cohorts begun_;
};

class Rehearsal {
 public:
  Rehearsal(std::span<const RehearsedModel> models, uint32_t rooms, const Course& course, double horizon)
      : rooms_(rooms), course_(course), horizon_(horizon), slot_(horizon / kSlots) {
    actors_.reserve(models.size());
    for (const RehearsedModel& m : models) {
      actors_.emplace_back(m, horizon);
      actors_.back().dilate(horizon / kTurnsMax, course.stretch);
      slot_ = std::max(std::min(slot_, m.ttft / kSlotsOfTtft), horizon_ / kSlotsMax);
    }
  }

  Rehearsed run() {
    for (size_t i = 0; i < kSlotsMax && now_ < horizon_ - kTiny; ++i) {
      for (Actor& a : actors_) {
        if (a.here() || served(a)) a.arrive_until(now_);  // of the others everything is lost, at the end
      }
      Actor* const next = next_to_come();
      for (Actor& a : actors_) a.close(course_.ends && next != nullptr && a.here() && spent(a));
      Actor* const leaves = next == nullptr || here() < rooms_ ? nullptr : next_to_go();
      if (next == nullptr || (leaves == nullptr && here() >= rooms_)) {
        pass(next == nullptr ? slot_ : std::clamp(until_a_turn_ends(), 0.02, slot_));
        continue;
      }
      if (leaves != nullptr) leaves->go();
      pass(next->switch_seconds());
      next->come();
      pass(std::min(slot_, std::max(0.02, next->facts().step_seconds(1))));
    }
    Rehearsed result{on_time_, 0};
    for (Actor& a : actors_) {
      a.arrive_until(now_);
      a.end();
      result.lost += a.lost();
    }
    const double scale = horizon_ / std::max(now_, kTiny);
    return {result.on_time * scale, result.lost * scale};
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

  // Who is not served, has nothing promising to do, or had his turn; of those the one with the latest token.
  Actor* next_to_go() {
    Actor* gone = nullptr;
    std::pair<int, double> best;
    for (Actor& a : actors_) {
      if (!a.here() || a.facts().stays) continue;
      const double due = a.due(now_);
      const int rank = !served(a) ? 2 : due == std::numeric_limits<double>::infinity() ? 1 : spent(a) && !(a.closed() && a.decoding() > kTiny) ? 0 : -1;
      if (rank < 0 || (gone != nullptr && std::pair(rank, due) <= best)) continue;
      best = {rank, due};
      gone = &a;
    }
    return gone;
  }

  // Of those that are here: until one's quota is spent, or what it has to do is done.
  double until_a_turn_ends() const {
    double until = slot_;
    for (const Actor& a : actors_) {
      if (!a.here() || a.facts().stays) continue;
      if (!a.closed()) until = std::min(until, std::max(0.0, quota(a) - a.spent()));
      if (const double work = a.work(now_); work > 0) until = std::min(until, here() * work);
    }
    return until;
  }

  // Time goes by; those that are here share it by steps in turn, and what one does not need is for the others.
  void pass(double seconds) {
    seconds = std::min(seconds, horizon_ - now_);
    if (seconds <= 0) return;
    double steps = 0, left = seconds;
    bool any = false;
    busy_.clear();
    for (Actor& a : actors_) {
      if (!a.here()) continue;
      const double work = a.work(now_);
      if (work <= kTiny && a.decoding() <= 0) continue;
      const double step = a.facts().step_seconds(a.decoding() + 1);
      busy_.push_back({&a, work, step, served(a)});
      any |= served(a);
    }
    if (any) std::erase_if(busy_, [](const Busy& b) { return !b.served; });  // they have what nobody else wants
    for (const Busy& b : busy_) steps += b.step;
    std::sort(busy_.begin(), busy_.end(), [](const Busy& a, const Busy& b) { return a.work / a.step < b.work / b.step; });
    for (const Busy& b : busy_) {
      const double takes = std::min(std::max(b.work, b.step), left * b.step / steps);
      on_time_ += b.actor->compute(now_, seconds, takes);
      left -= takes;
      steps -= b.step;
    }
    now_ += seconds;
  }

  struct Busy {
    Actor* actor;
    double work, step;
    bool served;
  };
  const uint32_t rooms_;
  const Course course_;
  const double horizon_;
  double slot_;
  std::vector<Actor> actors_;
  std::vector<Busy> busy_;
  double now_ = 0, on_time_ = 0;
};

}  // namespace

Rehearsed rehearse(std::span<const RehearsedModel> models, uint32_t rooms, const Course& course, double horizon) {
  return Rehearsal(models, rooms, course, horizon).run();
}

Course best_course(std::span<const RehearsedModel> models, uint32_t rooms, double horizon, const Course& kept, const CourseOptions& options) {
  const auto count = static_cast<uint32_t>(models.size());
  constexpr double kStretches[] = {1, 2, 4, 8, Course::kUntilDone};
  std::vector<Course> courses;
  for (uint32_t served = std::min(rooms, count); served > 0; served -= 1 + served / 4) courses.push_back({served, 1});
  for (uint32_t served = rooms + 1, more = 1; served <= count; served = std::min(count, rooms + (more *= 4))) {
    for (const double stretch : kStretches) courses.push_back({served, stretch});
    for (const double stretch : {1.0, 4.0}) courses.push_back({served, stretch, true});
    if (served == count) break;
  }
  const auto clamped = [&](Course c) { return Course{std::min(c.served, count), c.served <= rooms ? 1 : c.stretch, c.served > rooms && c.ends}; };
  const Course everybody{count, 1}, before = kept.served == 0 ? everybody : clamped(kept);
  const Rehearsed wide = rehearse(models, rooms, everybody, horizon);
  if (wide.lost <= options.loss_max * wide.on_time) return everybody;
  Course best = before;
  const double widest = wide.on_time;
  double most = before == everybody ? widest : rehearse(models, rooms, before, horizon).on_time;
  const double bar = most * (1 + options.gain_min);
  for (const Course& course : courses) {
    if (course == everybody || course == before) continue;
    const double on_time = rehearse(models, rooms, course, horizon).on_time;
    if (on_time > bar && on_time > most) best = course, most = on_time;
  }
  return widest >= most * (1 - options.loss_max) ? everybody : best;
}

bool worth_a_switch(const RehearsedModel& model) {
  return Actor(model, 0).due(model.switch_seconds) < std::numeric_limits<double>::infinity();
}

double yield(const RehearsedModel& m, double horizon) {
  double waiting = 0, prompts = 0;
  for (const Cohort& c : m.cohorts) {
    const double step = m.step_seconds(1);
    if (!promising(c.left, c.prompt_seconds + step + (m.resident ? 0 : m.switch_seconds), step, c.due, m.tbt)) continue;
    waiting += c.requests * c.left;
    prompts += c.requests * c.prompt_seconds;
  }
  const double rate = m.arrivals * m.answer_tokens + waiting / horizon;
  const double sequences = std::min(m.sequences_max, rate * m.tbt);  // at reading pace
  const double share = m.arrivals * m.prompt_seconds + prompts / horizon + std::min(1.0, sequences) * m.step_base / m.tbt + m.step_each * sequences / m.tbt;
  const double cost = share + (m.resident ? 0 : m.switch_seconds / horizon);
  return m.weight * rate / std::max(cost, 1e-3);
}

}  // namespace shoal
