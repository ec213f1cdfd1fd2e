#include "roles/turn_quotas.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace shoal {
namespace {

// The share of time that keeping the pace of those who read from this model takes, each with so many tokens before his own.
double readers_share(const HostedModel& hosted, uint64_t context_tokens) {
  const uint64_t readers = hosted.engine->running();
  return readers == 0 ? 0 : hosted.costs.decode_seconds(readers, readers * context_tokens) / std::max(to_seconds(hosted.facts.pooling.slo.tbt), 1e-3);
}

}  // namespace

void TurnQuotas::update(TimePoint now) {
  bool contended = false, late = false;
  size_t with_work = 0;
  served_.note_said(now);
  for (const auto& [id, hosted] : catalogue_.active()) {
    if (!hosted.engine->has_work()) continue;
    ++with_work;
    contended |= !catalogue_.resident(hosted);
    const WaitingLine& line = hosted.engine->line();
    if (config_.turns.triage) hosted.engine->line().sort_out(served_.prospects(hosted), now);
    hosted.turn.closed = hosted.turn.closing() && !loads_.under_way() ? std::min(hosted.turn.closed, now) : kForever;
    hosted.turn.answering = hosted.engine->running() > 0 || (hosted.turn.closed != kForever && line.came_by(hosted.turn.closed) > 0);
    late |= line.late() > 0;
  }
  const bool pressed = readers_pressure() > 1;
  for (const auto& [id, hosted] : catalogue_.active()) hosted.engine->line().passing_over().set(config_.turns.triage && pressed && !contended);
  served_.update(contended || (with_work > 1 && (late || pressed)), now);
  std::vector<ModelId> working;
  for (const auto& [id, hosted] : catalogue_.active()) {
    if (hosted.engine->has_work() && (hosted.served || catalogue_.resident(hosted))) working.push_back(id);
  }
  bool changed = round_.update(working);
  changed |= std::exchange(contended_, contended) != contended;
  for (const ModelId id : working) {
    HostedModel& hosted = catalogue_.at(id);
    if (!catalogue_.resident(hosted)) continue;
    if (round_.is_due(id)) round_.had_turn(id);
    if (!contended) hosted.turn.quota_seconds = Turn::kUnlimited;
    changed |= contended && hosted.turn.quota_seconds == Turn::kUnlimited;
  }
  if (contended && changed) plan_turns(working, now);
}

void TurnQuotas::plan_turns(const std::vector<ModelId>& working, TimePoint now) {
  std::vector<TurnBatch> batches;
  for (const ModelId id : working) {
    const HostedModel& hosted = catalogue_.at(id);
    const Engine::Demand demand = hosted.engine->demand(slo(hosted), now);
    TurnBatch batch{id};
    batch.step_seconds = decode(hosted, demand);
    batch.tbt_seconds = to_seconds(hosted.facts.pooling.slo.tbt);
    batch.switch_seconds = switch_to(hosted);
    // Never believed to be free: what is hidden now is hidden by quotas of this length.
    batch.waited_seconds = std::max(hosted.costs.waited_seconds(batch.switch_seconds, catalogue_.copied_share(hosted)), 0.1 * batch.switch_seconds);
    batch.slack = demand.slack;
    batch.ttft_seconds = to_seconds(slo(hosted).ttft);
    batches.push_back(batch);
  }
  plan_ = plan_round(batches, config_.turns);
  for (const Turn& turn : plan_.turns) {
    HostedModel& hosted = catalogue_.at(turn.model);
    if (turn.quota_seconds != Turn::kUnlimited) hosted.turn.planned_seconds = turn.quota_seconds;  // of one alone: as long as when it was not
    const bool has_quota = hosted.turn.quota_seconds != Turn::kUnlimited;
    if (catalogue_.resident(hosted) && (config_.turns.recompute || !has_quota)) hosted.turn.quota_seconds = turn.quota_seconds;
  }
}

void TurnQuotas::admit_late(TimePoint now) {
  constexpr double kSpare = 0.5;
  const auto& active = catalogue_.active();
  if (std::none_of(active.begin(), active.end(), [](const auto& m) { return m.second.engine->line().late() > 0; })) return;
  double pressure = 0;
  bool promising = false;
  for (const auto& [id, hosted] : active) {
    if (!catalogue_.resident(hosted) || !hosted.engine->has_work()) continue;
    const Engine::Demand demand = hosted.engine->demand(slo(hosted), now);
    promising |= demand.promising > 0;
    if (demand.sequences > 0) pressure += decode(hosted, demand) / std::max(to_seconds(hosted.facts.pooling.slo.tbt), 1e-3);
  }
  for (auto& [id, hosted] : catalogue_.active()) hosted.engine->line().admit_late(hosted.fresh || !promising || pressure < kSpare);
}

void TurnQuotas::begin_turn(HostedModel& hosted) {
  const TurnState& last = hosted.turn;
  hosted.turn = {.planned_seconds = last.planned_seconds, .stretch = last.stretch, .ends = last.ends, .ends_by = last.ends_by};
}

void TurnQuotas::observe(const LoadDesk::Cost& cost) {
  HostedModel* const hosted = catalogue_.find(cost.model);
  if (hosted == nullptr) return;
  hosted->costs.observe_switch(cost.seconds, std::max(cost.waited_seconds, 0.0), cost.copied);
  hosted->copied.add(cost.copied);
}

double TurnQuotas::switch_to(const HostedModel& hosted) const { return loads_.switch_seconds(hosted.costs, hosted.facts.weight_bytes, catalogue_.copied_share(hosted)); }

SwitchSeconds TurnQuotas::switch_if_away() const {
  return [this](ModelId id) {
    const HostedModel& hosted = catalogue_.at(id);
    return catalogue_.resident(hosted) ? 0 : switch_to(hosted);
  };
}

double TurnQuotas::decode(const HostedModel& hosted, const Engine::Demand& demand) const {
  return hosted.costs.decode_seconds(std::max<uint64_t>(demand.sequences, 1), demand.context_tokens);
}

double TurnQuotas::next_token(const HostedModel& hosted, const Engine::Demand& demand) const {
  const double step = decode(hosted, demand);
  if (demand.known <= demand.computed + 1) return elapsed(hosted, step);
  return elapsed(hosted, step + prompt(hosted, demand.computed, demand.known - demand.computed));
}

double TurnQuotas::elapsed(const HostedModel& hosted, double computed) {
  const MovingMean& mean = hosted.elapsed_per_computed;
  return hosted.facts.experts_elsewhere && mean.count > 0 ? computed * mean.value : computed;
}

double TurnQuotas::prompt(const HostedModel& hosted, uint64_t begin, uint64_t tokens) const {
  return hosted.costs.prefill_seconds(begin, tokens, config_.limits.tokens_per_step);
}

double TurnQuotas::time_of_others(const HostedModel& hosted) const {
  constexpr double kLateMost = 2;  // tokens
  double decodes = 0, until = Turn::kUnlimited;
  const auto each_reader = [&](const auto& f) {
    for (const auto& [id, other] : catalogue_.active()) {
      const Engine::Demand& demand = other.demand;
      if (&other == &hosted || !catalogue_.resident(other) || !other.engine->runnable() || !other.served || demand.promising == 0 || demand.decoding == 0) continue;
      f(demand, other.costs.decode_seconds(demand.decoding, demand.context_tokens));
    }
  };
  each_reader([&](const Engine::Demand&, double decode) { decodes += decode; });
  each_reader([&](const Engine::Demand& demand, double decode) {
    const double slack = to_seconds(demand.slack), tbt = to_seconds(demand.tbt);
    if (slack > -kLateMost * tbt) until = std::min(until, std::max(slack - decode, tbt - decodes));
  });
  return until;
}

uint32_t TurnQuotas::step_tokens(const HostedModel& hosted) const {
  const Engine::Demand& demand = hosted.demand;
  const double others = time_of_others(hosted);
  if (demand.decoding == 0 && others == Turn::kUnlimited) return config_.limits.tokens_per_step;
  const double decode = demand.decoding > 0 ? hosted.costs.decode_seconds(demand.decoding, demand.context_tokens) : 0;
  const double own = demand.decoding > 0 ? to_seconds(demand.tbt) / elapsed(hosted, 1) : Turn::kUnlimited;
  const double seconds = std::max(std::min(own, others), config_.gap_stretch * decode);
  const uint64_t rows = hosted.costs.rows_within(seconds, demand.decoding, demand.context_tokens);
  return static_cast<uint32_t>(std::min<uint64_t>(std::max(rows, demand.decoding + config_.prompt_tokens_min), config_.limits.tokens_per_step));
}

double TurnQuotas::planned(const HostedModel& hosted) const {
  if (!token_level()) {  // until the last of its answers has ended: of n, the mean times about 1 + ln n
    const Prospects expected = prospects(hosted);
    return expected.answer_tokens * expected.step_seconds * (1 + std::log(std::max<double>(1, static_cast<double>(hosted.engine->running()))));
  }
  const bool planned = contended_ && hosted.turn.planned_seconds > 0 && hosted.turn.planned_seconds < Turn::kUnlimited;
  return planned ? hosted.turn.planned_seconds : 2 * switch_to(hosted);
}

TurnsAhead TurnQuotas::turns_ahead() const {
  TurnsAhead turns;
  for (const auto& [id, hosted] : catalogue_.active()) {
    if (!hosted.engine->has_work()) continue;
    if (catalogue_.resident(hosted)) {
      ++turns.places;
      turns.soonest_end = std::min(turns.soonest_end, std::max(0.0, planned(hosted) - hosted.turn.spent_seconds));
    } else {
      turns.waiting_seconds += switch_to(hosted) + planned(hosted);
    }
  }
  return turns;
}

// The prompts before it, and for a model that is away the shortest turn under way, the turns of others that wait too, and
// its own switch. Those of the resident models share the work.
Duration TurnQuotas::wait(const HostedModel& hosted, const TurnsAhead& turns, const Payer& payer) const {
  const ModelId id = hosted.facts.model;
  double prompts = requests_.prompts_queued(id) > 0 ? requests_.prompts().seconds_of(id) : 0;
  const WaitingLine& line = hosted.engine->line();
  if (const size_t all = line.size() - line.late(); payer.number != 0 && all > 0) prompts *= static_cast<double>(line.ahead_of(payer)) / static_cast<double>(all);
  if (catalogue_.resident(hosted)) return from_seconds(prompts);
  const double own = hosted.engine->has_work() ? switch_to(hosted) + planned(hosted) : 0;
  const bool room = catalogue_.pages().free() >= catalogue_.pages_needed(hosted);
  const double soonest = room || turns.places == 0 ? 0 : turns.soonest_end;
  return from_seconds(prompts + switch_to(hosted) + soonest + (turns.waiting_seconds - own) / std::max(turns.places, 1u));
}

// Prompts of one model at a time are one switch: about what computing all of them takes.
double TurnQuotas::prompt_pressure(std::optional<ModelId> stepping) const {
  Duration due = Duration::max();
  for (const auto& [id, hosted] : catalogue_.active()) {
    if (requests_.prompts_queued(id) > 0) due = std::min(due, slo(hosted).ttft);
  }
  if (due == Duration::max()) return 0;
  return requests_.prompts().load_seconds(stepping, 0, switch_if_away()) / std::max(to_seconds(due), 1e-3);
}

double TurnQuotas::decode_pressure() const {
  if (contended_ && token_level()) return plan_.alpha;
  double share = 0;
  for (const auto& [id, hosted] : catalogue_.active()) share += readers_share(hosted, 0);
  return share;
}

double TurnQuotas::readers_pressure() const {
  double share = 0;
  for (const auto& [id, hosted] : catalogue_.active()) {
    if (catalogue_.resident(hosted)) share += readers_share(hosted, static_cast<uint64_t>(hosted.prompt_tokens.value));
  }
  return share;
}

double TurnQuotas::answer_pressure(const HostedModel& hosted) const {
  const auto sequences = hosted.engine->running();
  const double now = sequences > 0 ? hosted.costs.decode_seconds(sequences, 0) : 0;
  return std::max(0.0, hosted.costs.decode_seconds(sequences + 1, 0) - now) / std::max(to_seconds(hosted.facts.pooling.slo.tbt), 1e-3);
}

}  // namespace shoal
