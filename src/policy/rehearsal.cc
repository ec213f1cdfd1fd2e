#include "policy/rehearsal.h"

#include <algorithm>
#include <cmath>

namespace shoal {
namespace {

constexpr double kTiny = 1e-9;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();
constexpr size_t kSlotsMax = 224;
constexpr double kSlots = 24;  // of a horizon, at least: arrivals are looked at as often,
constexpr double kTurnsMax = 64;  // of one model within the horizon
constexpr double kSlotsOfTtft = 3;  // and so often within the time of a first token
constexpr uint64_t kFewModels = 2;    // for each that the device has room for

// As the engine does it: a step that takes prompts along is as long as readers allow.
double mixed_step(const RehearsedModel& m, double decode) { return std::max(m.tbt, 2 * decode); }

// One model in a rehearsal.
class Actor {
 public:
  Actor(const RehearsedModel& facts, double horizon) : facts_(&facts), horizon_(horizon), cohorts_(facts.cohorts), spent_(facts.spent_seconds), here_(facts.resident) { count(); }

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
  double ahead() const { return ahead_ * facts_->weight; }
  void come() { here_ = true, closed_ = false, spent_ = 0; }
  bool closed() const { return closed_; }
  // Begins no answers but those that wait now.
  void close(bool closed, double now) {
    if (closed && !closed_) {
      to_begin_ = waiting(now);
      // Of n answers of one mean length, whose lengths are spread as exponentials are, the last ends after about ln n times that mean;
      // cohorts end as one.
      tail_ = facts_->answer_tokens * std::log(std::max(1.0, decoding_ + to_begin_)) * step(1);
    }
    closed_ = closed;
  }
  // If they are rare, its requests come one by one and not as a fluid.
  void come_one_by_one() { one_by_one_ = facts_->arrivals * facts_->ttft < kSlotsOfTtft; }
  // It is closed, and all that it was to begin has ended.
  bool done(double now) const { return tail_ <= kTiny && decoding_ <= kTiny && std::min(to_begin_, waiting(now)) <= kTiny; }
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
      if (one_by_one_) cohorts_.add(between(from + seconds * i / parts, from + seconds * (i + 1) / parts));
      else cohorts_.add({facts_->arrivals * seconds / parts, at + facts_->ttft, facts_->answer_tokens, std::max(facts_->prompt_seconds, kTiny)});
    }
    count();
    arrived_ = now;
  }

  double decoding() const { return decoding_; }

  bool worth(const Cohort& c, double now) const { return promising(c.left, now + c.prompt_seconds + next_step_, next_step_, c.due, facts_->tbt); }

  // When the first token is due that is promising at `now`; `due` if that is earlier, or nothing here is promising.
  double due(double now, double due = kNoLimit) const {
    for (const Cohort& c : cohorts_) {
      if (c.due < due && worth(c, now)) due = c.due;
    }
    return due;
  }

  // Seconds of the device that would finish everything promising; of one that is closed, all that began and is to begin.
  double work(double now) const {
    double n = 0, longest = 0, prompts = 0, to_begin = closed_ ? to_begin_ : kNoLimit;
    for (const Cohort& c : cohorts_) {
      const bool waits = c.prompt_seconds > 0;
      if ((waits || !closed_) && !worth(c, now)) continue;
      const double requests = waits ? std::min(c.requests, to_begin) : c.requests;
      if (waits) to_begin -= requests;
      if (requests <= kTiny) continue;
      n += requests;
      prompts += requests * c.prompt_seconds;
      longest = std::max(longest, c.left);
    }
    return n == 0 ? (closed_ ? tail_ : 0) : prompts + longest * facts_->step_seconds(std::min(n, facts_->sequences_max));
  }

  double kv_pages() const { return facts_->kv_pages * decoding(); }

  // When the last of the next tokens of those that decode is due; -infinity: none does.
  double last_due() const {
    double due = -std::numeric_limits<double>::infinity();
    for (const Cohort& c : cohorts_) {
      if (c.prompt_seconds <= 0) due = std::max(due, c.due);
    }
    return due;
  }

  // Of those that decode, the ones that are due last begin anew, for so many pages of KV: what came free.
  double give_up(double pages) {
    const auto last = std::max_element(cohorts_.begin(), cohorts_.end(), [](const Cohort& a, const Cohort& b) {
      return std::pair(a.prompt_seconds <= 0, a.due) < std::pair(b.prompt_seconds <= 0, b.due);
    });
    Cohort again = *last;
    again.requests = std::min(again.requests, pages / facts_->kv_pages);
    again.prompt_seconds = std::max(facts_->again_seconds, kTiny);
    last->requests -= again.requests;
    cohorts_.remove_empty();
    cohorts_.add(again);
    count();
    return again.requests * facts_->kv_pages;
  }

  // Computes for `seconds` of the device's time within [from, from + wall), with so many pages for more KV: weighted tokens on time.
  double compute(double from, double wall, double seconds, double pages) {
    if (seconds <= kTiny) return 0;
    spent_ += seconds;
    if (closed_ && decoding() <= kTiny && to_begin_ <= kTiny) tail_ = std::max(0.0, tail_ - seconds);
    const double n = decoding(), decode = step(n), mixed = mixed_step(*facts_, decode), share = n > 0 ? 1 - decode / mixed : 1;
    double on_time = 0;
    begun_.clear();
    const double fit = facts_->kv_pages > 0 ? std::max(pages / facts_->kv_pages, n > 0 ? 0.0 : 1.0) : kNoLimit;
    const double room = std::min({facts_->sequences_max - n, fit, closed_ ? to_begin_ : kNoLimit});
    const double beside = prompts(from, wall, seconds * share, room, on_time) / share;
    double begun = 0;
    for (const Cohort& c : begun_) begun += c.requests;
    to_begin_ = std::max(0.0, to_begin_ - begun);
    const double mixed_steps = n > 0 ? beside / mixed : 0, steps = (seconds - beside) / step(n + begun), whole = wall / seconds;
    on_time += decodes(cohorts_, from, wall, mixed_steps + steps);
    on_time += decodes(begun_, from + 0.5 * beside * whole, wall - 0.5 * beside * whole, 0.5 * mixed_steps + steps);
    for (const Cohort& c : begun_) cohorts_.add(c);
    tidy();
    return on_time * facts_->weight;
  }

  // The horizon is there: what was due until then and was not given.
  void end() {
    for (const Cohort& c : cohorts_) lost_ += c.requests * within(c.left, c.due);
  }

 private:
  void count() {
    decoding_ = 0;
    for (const Cohort& c : cohorts_) decoding_ += c.prompt_seconds > 0 ? 0 : c.requests;
    next_step_ = step(decoding_ + 1);
  }
  void tidy() {
    cohorts_.remove_empty();
    count();
  }

  // Who came within [from, to): at equal distances, and the first at a moment of its model's own.
  Cohort between(double from, double to) const {
    constexpr double kGolden = 0.6180339887498949;  // its multiples lie apart, less their whole parts
    const double turns = facts_->model.value * kGolden, phase = turns - std::floor(turns);
    const double before = std::floor(facts_->arrivals * from + phase), came = std::floor(facts_->arrivals * to + phase) - before;
    return {came, (before + 0.5 * (came + 1) - phase) / facts_->arrivals + facts_->ttft, facts_->answer_tokens, std::max(facts_->prompt_seconds, kTiny)};
  }

  // Those that have not begun and are worth it.
  double waiting(double now) const {
    double n = 0;
    for (const Cohort& c : cohorts_) n += c.prompt_seconds > 0 && worth(c, now) ? c.requests : 0;
    return n;
  }

  // Of so many tokens, how many are due within the horizon.
  double within(double tokens, double due) const { return std::clamp((horizon_ - due) / facts_->tbt + 1, 0.0, tokens); }

  double prompts(double from, double wall, double budget, double room, double& on_time) {
    double spent = 0;
    for (Cohort& c : cohorts_) {
      if (c.prompt_seconds <= 0 || !worth(c, from) || room <= 0 || spent >= budget) continue;
      const double began = std::min({c.requests, room, (budget - spent) / c.prompt_seconds});
      const double first = from + wall * std::min(1.0, (spent + 0.5 * began * c.prompt_seconds) / budget);
      spent += began * c.prompt_seconds;
      room -= began;
      c.requests -= began;
      const double counts = began * within(1, c.due);
      on_time += first <= c.due ? counts : 0;
      ahead_ += first <= c.due ? began - counts : 0;
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
      on_time += c.requests * good;
      ahead_ += c.requests * (kept - good);
      lost_ += c.requests * (counts - good);
      c.due += given * facts_->tbt;
      c.left -= given;
    }
    return on_time;
  }

  const RehearsedModel* facts_;
  double horizon_, dilation_ = 1;
  Cohorts cohorts_;
  double decoding_ = 0, next_step_ = 0;  // sequences that decode, and seconds of a step with one more
  double arrived_ = 0, spent_ = 0, lost_ = 0, ahead_ = 0;
  bool here_ = false, closed_ = false, one_by_one_ = false;
  double to_begin_ = 0;  // while it is closed: requests
  double tail_ = 0;      // seconds alone that its last answers take once the others have ended
  Cohorts begun_;
};

class Rehearsal {
 public:
  Rehearsal(std::span<const RehearsedModel> models, const RehearsedDevice& device, const Course& course, double horizon)
      : device_(device), course_(course), horizon_(horizon), slot_(horizon / kSlots) {
    actors_.reserve(models.size());
    for (const RehearsedModel& m : models) {
      actors_.emplace_back(m, horizon);
      actors_.back().dilate(horizon / kTurnsMax, course.stretch);
      slot_ = std::max(std::min(slot_, m.ttft / kSlotsOfTtft), horizon_ / kSlotsMax);
    }
    // Of a fluid somebody always waits, so that the device seems to switch without end. Where many models go round, somebody does.
    if (device.models <= kFewModels * device.rooms) {
      for (Actor& a : actors_) a.come_one_by_one();
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
      Actor* const leaves = next == nullptr || here() < device_.rooms ? nullptr : next_to_go();
      if (next == nullptr || (leaves == nullptr && here() >= device_.rooms)) {
        pass(next == nullptr ? slot_ : std::clamp(until_a_turn_ends(), least, slot_));
        continue;
      }
      if (leaves != nullptr) leaves->go();
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
    return {on_time_, lost, ahead, idle_ / std::max(now_ - switching_, kTiny)};
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
      const double due = a.due(now_ + a.switch_seconds(), first);
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

  // KV that has no place any more is given up, of those that are away first. Pages that are left for more of those that are here.
  double make_room() {
    if (device_.pages == kNoLimit) return kNoLimit;
    for (;;) {
      double device = device_.pages, away = 0;
      for (const Actor& a : actors_) {
        if (a.here()) device -= a.facts().weight_pages + a.kv_pages();
        if (!a.here()) away += a.kv_pages();
      }
      const double left = std::max(device, 0.0) + device_.host_pages - away;
      if (device >= -kTiny && left >= -kTiny) return std::max(0.0, std::min(device, left));
      Actor *last = nullptr, *last_away = nullptr;
      for (Actor& a : actors_) {
        Actor*& found = a.here() ? last : last_away;
        if (a.kv_pages() > kTiny && (found == nullptr || a.last_due() > found->last_due())) found = &a;
      }
      if (last_away != nullptr && left < -kTiny) {
        last_away->give_up(-left);
      } else if (last != nullptr && device < -kTiny) {
        last->give_up(-device);
      } else {
        return std::max(0.0, std::min(device, left));
      }
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
      const double step = a.facts().step_seconds(a.decoding() + 1);
      busy_.push_back({&a, work, step, served(a)});
      any |= served(a);
    }
    if (any) std::erase_if(busy_, [](const Busy& b) { return !b.served; });  // they have what nobody else wants
    for (const Busy& b : busy_) steps += b.step;
    std::sort(busy_.begin(), busy_.end(), [](const Busy& a, const Busy& b) { return a.work / a.step < b.work / b.step; });
    for (const Busy& b : busy_) {
      const double takes = std::min(std::max(b.work, b.step), left * b.step / steps);
      pages += b.actor->kv_pages();
      on_time_ += b.actor->compute(now_, seconds, takes, pages - b.actor->kv_pages());
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
  double now_ = 0, on_time_ = 0, idle_ = 0, switching_ = 0;
};

}  // namespace

Rehearsed rehearse(std::span<const RehearsedModel> models, const RehearsedDevice& device, const Course& course, double horizon) {
  return Rehearsal(models, device, course, horizon).run();
}

bool worth_a_switch(const RehearsedModel& model) {
  return Actor(model, 0).due(model.return_seconds) < std::numeric_limits<double>::infinity();
}

namespace {

struct Wanted {
  double tokens = 0;  // a second
  double share = 0;   // of the device
};

Wanted wanted(const RehearsedModel& m, double horizon) {
  double waiting = 0, prompts = 0;
  for (const Cohort& c : m.cohorts) {
    const double step = m.step_seconds(1);
    if (!promising(c.left, c.prompt_seconds + step + (m.resident ? 0 : m.switch_seconds), step, c.due, m.tbt)) continue;
    waiting += c.requests * c.left;
    prompts += c.requests * c.prompt_seconds;
  }
  const double rate = m.arrivals * m.answer_tokens + waiting / horizon;
  const double sequences = std::min(m.sequences_max, rate * m.tbt);  // at reading pace
  return {rate, m.arrivals * m.prompt_seconds + prompts / horizon + std::min(1.0, sequences) * m.step_base / m.tbt + m.step_each * sequences / m.tbt};
}

}  // namespace

double load(const RehearsedModel& model, double horizon) { return wanted(model, horizon).share; }

double yield(const RehearsedModel& m, double horizon) {
  const Wanted of = wanted(m, horizon);
  return m.weight * of.tokens / std::max(of.share + (m.resident ? 0 : m.switch_seconds / horizon), 1e-3);
}

}  // namespace shoal
