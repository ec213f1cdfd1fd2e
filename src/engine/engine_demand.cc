// What a node decides by: what an engine's requests want next.
#include <algorithm>

#include "engine/engine.h"

namespace shoal {

Engine::Demand Engine::demand(const SloTarget& target, TimePoint now) const {
  Demand demand;
  struct Next {
    Duration slack = Duration::max();
    uint32_t computed = 0, known = 0;
  };
  Next next, in_part;  // of who can be on time in part it counts only where nobody comes before
  bool whole = false;
  const auto consider = [&](const Sequence& s) {
    const Chance chance = line_.chance(s, now);
    if (chance == Chance::kNone) return;
    ++demand.promising;
    whole |= !s.admitted_before && chance == Chance::kWhole;
    const SloTarget own = tightened(target, s.request->ttft_max, s.request->tbt_max);
    const Duration until = slack(own, s.request->arrival, s.delivered + 1, now);
    Next& of = chance == Chance::kPart ? in_part : next;
    if (until < of.slack) of = {until, s.computed, s.known()};
  };
  for (const Sequence* s : running_) {
    consider(*s);
    ++demand.sequences;
    if (s->known() == s->computed + 1) {
      ++demand.decoding;
      demand.tbt = std::min(demand.tbt, tightened(target, s->request->ttft_max, s->request->tbt_max).tbt);
    }
    demand.context_tokens += s->known();
    demand.blocks += s->blocks.size() + s->state.now.size() + s->state.next.size() + s->state.spare.size();
  }
  parking_.for_each(consider);
  line_.for_each_next(consider);
  if (!whole && in_part.slack < next.slack) next = in_part;
  demand.slack = next.slack, demand.computed = next.computed, demand.known = next.known;
  return demand;
}

Cohorts Engine::cohorts(TimePoint now) const {
  Cohorts out;
  const Prospects& prospects = line_.prospects();
  const auto add = [&](const Sequence& s, size_t requests) {
    out.add({static_cast<double>(requests), prospects.due(s, now), prospects.left_in_all(s.delivered, s.request->max_tokens), prospects.prompt_seconds(s)});
  };
  for (const Sequence* s : running_) add(*s, 1);
  parking_.for_each([&](const Sequence& s) { add(s, 1); });
  line_.for_each_kind(add);
  return out;
}

LongAnswers LongAnswers::of(const Engine& engine, double beyond) {
  LongAnswers out;
  const auto add = [&](const Sequence& s) {
    if (s.delivered <= beyond) return;
    ++out.count;
    out.tokens += s.delivered + engine.line_.prospects().left(s.delivered, s.request->max_tokens);
  };
  for (const Sequence* s : engine.running_) add(*s);
  engine.parking_.for_each(add);
  return out;
}

uint32_t Engine::blocks_wanted() const {
  return static_cast<uint32_t>(std::count_if(running_.begin(), running_.end(),
                                             [](const Sequence* s) { return blocks_for(s->computed + 1) > s->blocks.size(); }));
}

uint32_t Engine::blocks_active() const {
  if (running_.empty() && parking_.moves() == 0) return 0;
  std::vector<BlockId> held;
  const auto add = [&held](const Sequence& s) {
    for (const auto* blocks : {&s.blocks, &s.state.now, &s.state.next, &s.state.spare, &s.state.kept}) held.insert(held.end(), blocks->begin(), blocks->end());
    if (s.state.tail) held.push_back(*s.state.tail);
  };
  for (const Sequence* s : running_) add(*s);
  parking_.for_each(add);
  std::sort(held.begin(), held.end());
  return static_cast<uint32_t>(std::unique(held.begin(), held.end()) - held.begin());
}

std::optional<RequestId> Engine::oldest_running() const {
  return running_.empty() ? std::nullopt : std::optional(running_.front()->request->id);
}

}  // namespace shoal
