#include "engine/waiting_line.h"

#include <algorithm>
#include <utility>

#include "policy/rehearsal.h"

namespace shoal {
namespace {

// Of an answer that has `mean` tokens in the mean, and still has `most` at most.
double left_of(double mean, uint64_t given, double most) { return std::min(std::max(mean - static_cast<double>(given), mean / 4), most); }

double left_at_most(uint64_t given, uint64_t most) { return static_cast<double>(most - std::min(most, given)); }

}  // namespace

double Prospects::left(uint64_t given, uint64_t most) const { return std::max(1.0, left_of(answer_tokens, given, left_at_most(given, most))); }

double Prospects::left_in_all(uint64_t given, uint64_t most) const {
  constexpr double kBeyond = 4;  // of limits so far above those that answers reached it is not known whether they would
  const double mean = filled < 1 ? std::max(1.0, (answer_tokens - filled * filled_tokens) / (1 - filled)) : answer_tokens;  // of the others
  const double at_most = left_at_most(given, most), fills = std::min(at_most, kBeyond * filled_tokens);
  return std::max(1.0, filled * fills + (1 - filled) * left_of(mean, given, at_most));
}

double Prospects::due(const Sequence& s, TimePoint now) const {
  return to_seconds(slack(tightened(slo, s.request->ttft_max, s.request->tbt_max), s.request->arrival, s.delivered + 1, now));
}

double Prospects::prompt_seconds(const Sequence& s) const { return prompts.seconds(s.computed, s.known() - 1); }

bool Prospects::hopeless(const Sequence& s, TimePoint now) const {
  const double tbt = to_seconds(tightened(slo, s.request->ttft_max, s.request->tbt_max).tbt);
  return !fair && answer_tokens > 0 && shoal::hopeless(left(s.delivered, s.request->max_tokens), prompt_seconds(s) + step_seconds, step_seconds, due(s, now), tbt);
}

Chance Prospects::chance(const Sequence& s, TimePoint now, size_t waiting) const {
  if (fair || answer_tokens <= 0) return Chance::kWhole;
  const double prompt = prompt_seconds(s);
  const double waiting_seconds = s.admitted_before ? 0 : static_cast<double>(waiting) * (prompt + answer_tokens * token_seconds);
  const SloTarget own = tightened(slo, s.request->ttft_max, s.request->tbt_max);
  const double tbt = to_seconds(own.tbt), tokens = left(s.delivered, s.request->max_tokens);
  const double behind = falls_behind(tokens, pace_seconds, tbt, to_seconds(own.ttft));
  return shoal::chance(tokens, prompt + step_seconds, step_seconds, behind, due(s, now), tbt, waiting_seconds);
}

Status WaitingLine::full() const { return resource_exhausted("the queue of this model is full (", most_, " requests)"); }

Status WaitingLine::may_join(const Payer& payer) const {
  const size_t of_payer = of(payer), left = most_ - std::min<size_t>(on_time_.size(), most_);
  if (left == 0) return full();
  // Whoever pays has as much of the queue as is left to others, times his weight, at most (Choudhury and Hahne, 1998): one alone cannot fill it.
  if (payer.number == 0 || of_payer < left * payer.weight) return OkStatus();
  return resource_exhausted("the share of this key in the queue of this model is full (", of_payer, " requests)");
}

std::optional<RequestId> WaitingLine::surplus() const {
  if (size() <= most_) return std::nullopt;
  const auto last = std::find_if(late_.rbegin(), late_.rend(), [](const auto& at) { return !at.second->admitted_before && at.second->delivered == 0; });
  return last == late_.rend() ? std::nullopt : std::optional(last->second->request->id);
}

void WaitingLine::remove(const Sequence& s) {
  if (!on_time_.remove(s)) late_.erase(key(s));
}

void WaitingLine::sort_out(const Prospects& prospects, TimePoint now) {
  const bool closely = now >= next_close_look_;
  if (closely) next_close_look_ = now + kLookClosely;
  if (prospects.fair && !prospects_.fair) {
    on_time_.restore_order();
    for (const auto& [at, s] : std::exchange(late_, {})) on_time_.add(*s);
  }
  prospects_ = prospects;
  for (Sequence* s : on_time_.sort_out(closely ? kSeenMax : 1, [&](const Sequence& s) { return chance(s, now); })) late_[key(*s)] = s;
}

std::vector<const Sequence*> WaitingLine::next(uint64_t step, TimePoint now, size_t most) const {
  std::vector<const Sequence*> next;
  const bool overdue = !late_.empty() && step % late_every_ == 0 && now - late_.begin()->second->request->arrival > late_wait_;
  const bool all_late = late_first_ || (on_time_.size() == 0 && !overdue && admit_late_);
  size_t late = all_late ? late_.size() : overdue ? 1 : 0;
  for (auto at = late_.begin(); late > 0 && next.size() < most; ++at, --late) next.push_back(at->second);
  for (const Sequence* s : on_time_.first(most - next.size(), answer_tokens())) next.push_back(s);
  return next;
}

TimePoint WaitingLine::first_arrival() const {
  const std::vector<Sequence*> first = on_time_.first(1, answer_tokens());
  return first.empty() ? kForever : first.front()->request->arrival;
}

uint32_t WaitingLine::came_by(TimePoint then) const {
  const std::vector<Sequence*> first = on_time_.first(kSeenMax, answer_tokens());
  const auto later = std::find_if(first.begin(), first.end(), [then](const Sequence* s) { return s->request->arrival > then; });
  return static_cast<uint32_t>(later - first.begin());
}

void WaitingLine::check() const {
  on_time_.check();
  std::vector<const Sequence*> all;
  for (const auto& [at, s] : late_) {
    CHECK(at == key(*s));
    all.push_back(s);
  }
  for (const Sequence* s : on_time_.first(on_time_.size(), 0)) all.push_back(s);
  for (const Sequence* s : all) CHECK(s->stage == Sequence::Stage::kWaiting && s->blocks.empty() && s->host_blocks.empty());
}

}  // namespace shoal
