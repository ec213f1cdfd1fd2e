#include "engine/waiting_line.h"

#include <algorithm>

#include "policy/rehearsal.h"

namespace shoal {

double Prospects::left(uint64_t given, uint64_t most) const {
  const double expected = std::max(answer_tokens - static_cast<double>(given), answer_tokens / 4);
  return std::max(1.0, std::min(expected, static_cast<double>(most - std::min(most, given))));
}

double Prospects::due(const Sequence& s, TimePoint now) const {
  return to_seconds(slack(tightened(slo, s.request->ttft_max, s.request->tbt_max), s.request->arrival, s.delivered + 1, now));
}

bool Prospects::promises(const Sequence& s, TimePoint now) const {
  if (answer_tokens <= 0) return true;
  const double start = prompt_token_seconds * static_cast<double>(s.known() - s.computed - 1) + step_seconds;
  const double tbt = to_seconds(tightened(slo, s.request->ttft_max, s.request->tbt_max).tbt);
  return promising(left(s.delivered, s.request->max_tokens), start, step_seconds, due(s, now), tbt);
}

void WaitingLine::remove(const Sequence& s) {
  if (on_time_.erase(key(s)) == 0) late_.erase(key(s));
}

// Who is late is never on time again, and those behind it came later: only the first ones are looked at.
void WaitingLine::sort_out(const Prospects& prospects, TimePoint now) {
  prospects_ = prospects;
  while (!on_time_.empty() && !prospects_.promises(*on_time_.begin()->second, now)) late_.insert(on_time_.extract(on_time_.begin()));
}

std::vector<const Sequence*> WaitingLine::next(uint64_t step, TimePoint now, size_t most) const {
  std::vector<const Sequence*> next;
  const bool overdue = !late_.empty() && step % late_every_ == 0 && now - late_.begin()->second->request->arrival > late_wait_;
  if (overdue) next.push_back(late_.begin()->second);
  const Queue& queue = on_time_.empty() && !overdue && admit_late_ ? late_ : on_time_;
  for (const auto& [at, s] : queue) {
    if (next.size() >= most) break;
    next.push_back(s);
  }
  return next;
}

void WaitingLine::check() const {
  for (const Queue* queue : {&on_time_, &late_}) {
    for (const auto& [at, s] : *queue) {
      CHECK(s->stage == Sequence::Stage::kWaiting && s->blocks.empty() && s->host_blocks.empty());
      CHECK(at == key(*s));
    }
  }
}

}  // namespace shoal
