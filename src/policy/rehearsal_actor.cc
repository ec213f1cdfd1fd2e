#include "policy/rehearsal_actor.h"

#include <cmath>

namespace shoal {
namespace {

// As the engine does it: a step that takes prompts along is as long as readers allow.
double mixed_step(const RehearsedModel& m, double decode) { return std::max(m.tbt, 2 * decode); }

constexpr double kPaceKept = 0.5;  // of the steps before, in how far apart they are
constexpr double kSpreads = 8;  // beyond the mean next to nobody has more to give
constexpr int kHalvings = 6;  // until it is known how many begin, to a 64th

}  // namespace

void RehearsalActor::close(bool closed, double now) {
  if (closed && !closed_) {
    to_begin_ = waiting(now);
    // Of n answers of one mean length, whose lengths are spread as exponentials are, the last ends after about ln n times that mean;
    // cohorts end as one.
    tail_ = facts_->answer_tokens * std::log(std::max(1.0, decoding_ + to_begin_)) * step(1);
  }
  closed_ = closed;
}

void RehearsalActor::arrive_until(double now) {
  if (facts_->arrivals <= 0 || now <= arrived_) return;
  for (Cohort& c : cohorts_) {
    if (c.prompt_seconds <= 0 || worth(c, now)) continue;
    lost_ += c.requests * c.given(within(kNoLimit, c.due));
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

double RehearsalActor::work(double now) const {
  double n = 0, longest = 0, tokens = 0, prompts = 0, to_begin = closed_ ? to_begin_ : kNoLimit;
  for (const Cohort& c : cohorts_) {
    const bool waits = c.prompt_seconds > 0;
    if ((waits || !closed_) && !worth(c, now)) continue;
    const double requests = waits ? std::min(c.requests, to_begin) : c.requests;
    if (waits) to_begin -= requests;
    if (requests <= kTiny) continue;
    n += requests;
    prompts += requests * c.prompt_seconds;
    longest = std::max(longest, c.longest());
    tokens += requests * c.left;
  }
  const double at_once = std::min(n, facts_->sequences_max);
  return n == 0 ? (closed_ ? tail_ : 0) : prompts + std::max(longest, tokens / at_once) * facts_->step_seconds(at_once);
}

double RehearsalActor::last_due() const {
  double due = -std::numeric_limits<double>::infinity();
  for (const Cohort& c : cohorts_) {
    if (c.prompt_seconds <= 0) due = std::max(due, c.due);
  }
  return due;
}

double RehearsalActor::give_up(double pages) {
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

double RehearsalActor::compute(double from, double wall, double seconds, double pages, double active) {
  if (seconds <= kTiny) return 0;
  spent_ += seconds;
  if (closed_ && decoding() <= kTiny && to_begin_ <= kTiny) tail_ = std::max(0.0, tail_ - seconds);
  pass_over(from, wall / seconds);
  const double n = active * in_step();
  double on_time = 0;
  begun_.clear();
  const double fit = facts_->kv_pages > 0 ? std::max(pages / facts_->kv_pages, n > 0 ? 0.0 : 1.0) : kNoLimit;
  const double places = std::min(facts_->sequences_max - n, fit);
  const double room = std::min(turnover(n, places, seconds), closed_ ? to_begin_ : kNoLimit);
  const Mix mix = beside_prompts(n, std::min(room, seconds / facts_->prompt_seconds));
  const double beside = prompts(from, wall, seconds * mix.prompts, room, on_time) / mix.prompts;
  double begun = 0;
  for (const Cohort& c : begun_) begun += c.requests;
  to_begin_ = std::max(0.0, to_begin_ - begun);
  const double mixed_steps = mix.prompts < 1 ? beside / mix.step : 0, steps = (seconds - beside) / step(n + begun), whole = wall / seconds;
  if (n + begun > kTiny) paced_wall_ = kPaceKept * paced_wall_ + wall, paced_steps_ = kPaceKept * paced_steps_ + mixed_steps + steps;
  on_time += decodes(cohorts_, from, wall, active * (mixed_steps + steps));
  on_time += decodes(begun_, from + 0.5 * beside * whole, wall - 0.5 * beside * whole, 0.5 * mixed_steps + steps);
  for (const Cohort& c : begun_) cohorts_.add(c);
  tidy();
  return on_time * facts_->weight;
}

void RehearsalActor::pass_over(double now, double sharing) {
  if (!passes_over_) return;
  passed_over_ = {0, now, next_step_, facts_->tbt};
  double passed = 0;
  for (const Cohort& c : cohorts_) passed += passed_over_.would(c) ? c.requests : 0;
  const bool others = std::any_of(cohorts_.begin(), cohorts_.end(), [&](const Cohort& c) { return worth(c, now); });
  const bool pressed = step(decoding_) * sharing > facts_->tbt, dear = passed * facts_->step_each > kPassedOverFrom * next_step_;
  if (others && pressed && dear) passed_over_.requests = passed;
}

RehearsalActor::Mix RehearsalActor::beside_prompts(double decoding, double begin) const {
  const double n = decoding + 0.5 * std::max(0.0, begin - 1), decode = step(n), mixed = mixed_step(*facts_, decode);
  return {mixed, n > 0 ? 1 - decode / mixed : 1};
}

double RehearsalActor::turnover(double decoding, double places, double seconds) const {
  const auto room = [&](double begin) {  // the more begin, the fewer steps there are, and the fewer answers end
    const Mix mix = beside_prompts(decoding, begin);
    const double beside = std::min(seconds, begin * facts_->prompt_seconds / mix.prompts);
    const double steps = std::max(1.0, beside / mix.step + (seconds - beside) / step(in_step() + begin));
    double room = places;
    for (const Cohort& c : cohorts_) room += c.prompt_seconds > 0 || passed_over_.has(c) ? 0 : c.requests * (1 - c.given(steps) / steps);
    return std::max(0.0, room) * std::max(1.0, steps / facts_->answer_tokens);
  };
  double least = 0, most = std::min(waiting_, seconds / facts_->prompt_seconds);
  if (room(most) >= most) return most;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = 0.5 * (least + most);
    (room(middle) >= middle ? least : most) = middle;
  }
  return least;
}

void RehearsalActor::end() {
  for (const Cohort& c : cohorts_) lost_ += c.requests * c.given(within(kNoLimit, c.due));
}

void RehearsalActor::count() {
  decoding_ = waiting_ = 0;
  for (const Cohort& c : cohorts_) (c.prompt_seconds > 0 ? waiting_ : decoding_) += c.requests;
  next_step_ = step(in_step() + 1);
}

Cohort RehearsalActor::between(double from, double to) const {
  constexpr double kGolden = 0.6180339887498949, kPlastic = 0.7548776662466927;  // their multiples lie apart, less their whole parts
  const double turns = facts_->model.value * kGolden + phase_ * (facts_->model.value + 1) * kPlastic, phase = turns - std::floor(turns);
  const double before = std::floor(facts_->arrivals * from + phase), came = std::floor(facts_->arrivals * to + phase) - before;
  return {came, (before + 0.5 * (came + 1) - phase) / facts_->arrivals + facts_->ttft, facts_->answer_tokens, std::max(facts_->prompt_seconds, kTiny)};
}

double RehearsalActor::waiting(double now) const {
  double n = 0;
  for (const Cohort& c : cohorts_) n += c.prompt_seconds > 0 && worth(c, now) ? c.requests : 0;
  return n;
}

double RehearsalActor::prompts(double from, double wall, double budget, double room, double& on_time) {
  double spent = 0;
  const auto begin = [&](Cohort& c, double until) {
    const double began = std::clamp((until - spent) / c.prompt_seconds, 0.0, std::min(c.requests, room));
    const double first = from + wall * std::min(1.0, (spent + 0.5 * began * c.prompt_seconds) / budget);
    spent += began * c.prompt_seconds;
    room -= began;
    c.requests -= began;
    const double counts = began * within(1, c.due);
    on_time += first <= c.due ? counts : 0;
    ahead_ += first <= c.due ? began - counts : 0;
    lost_ += first <= c.due ? 0 : counts;
    begun_.add({began, c.due + facts_->tbt, c.left - 1, 0, std::min(c.spread, std::max(0.0, c.left - 1))});
  };
  for (const Chance having : {Chance::kWhole, Chance::kPart}) {
    for (Cohort& c : cohorts_) {
      if (c.prompt_seconds <= 0 || room <= 0 || spent >= budget || chance(c, from) != having) continue;
      const double whole = c.due - c.prompt_seconds - next_step_ - behind(c) - facts_->tbt - from;  // so long it is
      begin(c, having == Chance::kWhole && waiting_seconds() > facts_->tbt ? std::min(budget, budget * whole / wall) : budget);
    }
  }
  return spent;
}

double RehearsalActor::decodes(Cohorts& cohorts, double from, double wall, double steps) {
  if (steps <= kTiny) return 0;
  const double gap = wall / steps;
  double on_time = 0;
  for (Cohort& c : cohorts) {
    if (c.prompt_seconds > 0 || passed_over_.has(c)) continue;
    // Tokens of these steps: the first or the last ones of them are in time, and the first ones are due within the horizon.
    const double most = std::min(steps, c.left + kSpreads * c.beyond()), kept = tokens_in_time(most, from + gap, gap, c.due, facts_->tbt);
    const double due = within(most, c.due), counts = c.given(due), before = from + gap > c.due ? most - kept : 0, until = before > 0 ? most : kept;
    const double in_time = c.given(until) - c.given(before), good = std::max(0.0, c.given(std::min(until, due)) - c.given(before));
    on_time += c.requests * good;
    ahead_ += c.requests * (in_time - good);
    lost_ += c.requests * (counts - good);
    c.give(steps);
    c.due += most * facts_->tbt;
  }
  return on_time;
}

}  // namespace shoal
