// Who is on the device, and whose step is next.
#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "roles/node.h"

namespace shoal {

// ---- views ------------------------------------------------------------------------------------------------------------------

uint32_t Node::idle_kv_pages(const Hosted& hosted) const {
  if (hosted.engine->step_in_flight()) return 0;
  // From above: each cached block may have a slab to itself, or share one with a busy block. What is missing shows when
  // the load cannot begin.
  const uint32_t slabs = std::min(hosted.engine->blocks_cached(), hosted.blocks->slabs_bound());
  return slabs * slab_pages_for(hosted.facts.kv_block_bytes);
}

double Node::switch_seconds(const Hosted& hosted) const {
  const double per_byte = load_seconds_per_byte_.count == 0 ? 1 / config_.load_bytes_per_second : load_seconds_per_byte_.value;
  return hosted.costs.switch_seconds(static_cast<double>(hosted.facts.weight_bytes) * per_byte);
}

double Node::decode_seconds(const Hosted& hosted, const Engine::Demand& demand) const {
  return hosted.costs.decode_seconds(std::max<uint64_t>(demand.sequences, 1), demand.context_tokens);
}

// Until the token of its requests that is due first: a step, and what is missing of its prompt.
double Node::token_seconds(const Hosted& hosted, const Engine::Demand& demand) const {
  const double step = decode_seconds(hosted, demand);
  if (demand.known <= demand.computed + 1) return step;
  return step + hosted.costs.prefill_seconds(demand.computed, demand.known - demand.computed, config_.limits.tokens_per_step);
}

ModelView Node::view_of(const Hosted& hosted, TimePoint now) const {
  const Engine& engine = *hosted.engine;
  ModelView view;
  view.model = hosted.facts.model;
  view.resident = resident(hosted);
  view.loading = residency_.state(view.model) == WeightsState::kLoading;
  view.wanted = hosted.wanted_since != kForever;
  view.wanted_since = hosted.wanted_since;
  view.busy = (engine.running() > 0 && hosted.deferrals == 0) || engine.step_in_flight() || (hosted.fresh && engine.has_work());
  view.queued = engine.waiting() > 0;
  view.pinned = hosted.pinned;
  view.weight_pages = residency_.weight_pages(view.model);
  view.kv_pages_min = hosted.kv_pages;
  view.kv_pages_idle = idle_kv_pages(hosted);
  view.last_used = residency_.last_used(view.model);
  view.fresh = hosted.fresh && engine.has_work();
  view.priority = hosted.facts.pooling.priority;
  view.next_group = prompts_.prefetch() == view.model;
  if (!token_level()) return view;
  TurnView& turn = view.turn;
  turn.stepping = engine.step_in_flight();
  turn.switch_seconds = switch_seconds(hosted);
  if (!engine.has_work()) {  // to be loaded for later: as urgent as a request that came when it was asked for
    turn.due = true;
    if (view.wanted) turn.slack = slack(hosted.facts.pooling.slo, hosted.wanted_since, 1, now);
    return view;
  }
  const Engine::Demand demand = engine.demand(hosted.facts.pooling.slo, now);
  turn.due = round_.is_due(view.model);
  turn.over = hosted.spent_seconds >= hosted.quota_seconds || hosted.stalled_since != kForever || hosted.deferrals > 0 ||
              (!engine.runnable() && engine.parking().moves() == 0);
  turn.slack = demand.slack;
  turn.step_seconds = token_seconds(hosted, demand);
  const uint64_t slabs = std::min<uint64_t>(demand.blocks, hosted.blocks->slabs_bound());
  turn.kv_pages_held = static_cast<uint32_t>(slabs * slab_pages_for(hosted.facts.kv_block_bytes));
  return view;
}

// Until a request of this model that comes now has its first step: the prompts before it, and for a model that is away
// the shortest turn under way, the turns of others that wait too, and its own switch. Those of the resident models share
// the work.
Duration Node::predicted_wait(const Hosted& hosted, const TurnsAhead& turns) const {
  const double prompts = hosted.prompts_queued > 0 ? prompts_.seconds_of(hosted.facts.model) : 0;
  if (resident(hosted)) return from_seconds(prompts);
  const double own = hosted.engine->has_work() ? switch_seconds(hosted) + planned_quota(hosted) : 0;
  const bool room = pages_.free() >= residency_.weight_pages(hosted.facts.model) + hosted.kv_pages;
  const double soonest = room || turns.places == 0 ? 0 : turns.soonest_end;
  return from_seconds(prompts + switch_seconds(hosted) + soonest + (turns.waiting_seconds - own) / std::max(turns.places, 1u));
}

Node::TurnsAhead Node::turns_ahead() const {
  TurnsAhead turns;
  for (const auto& [id, hosted] : awake_) {
    if (!hosted.engine->has_work()) continue;
    if (resident(hosted)) {
      ++turns.places;
      turns.soonest_end = std::min(turns.soonest_end, std::max(0.0, planned_quota(hosted) - hosted.spent_seconds));
    } else {
      turns.waiting_seconds += switch_seconds(hosted) + planned_quota(hosted);
    }
  }
  return turns;
}

double Node::planned_quota(const Hosted& hosted) const {
  const bool planned = contended_ && hosted.planned_quota > 0 && hosted.planned_quota < Turn::kUnlimited;
  return planned ? hosted.planned_quota : 2 * switch_seconds(hosted);
}

bool Node::fits_beside_pinned(const Hosted& hosted) const {
  uint64_t pages = uint64_t{residency_.weight_pages(hosted.facts.model)} + hosted.kv_pages;
  for (const auto& [id, other] : awake_) {
    const bool there = residency_.state(id) != WeightsState::kOnDisk;
    if (&other != &hosted && other.pinned && there) pages += residency_.weight_pages(id);
  }
  return pages <= pages_.capacity();
}

// ---- who is on the device -----------------------------------------------------------------------------------------------------

// `keep_cached`: what its prefixes hold stays until somebody needs the memory.
void Node::drop_weights(Hosted& hosted, bool keep_cached, std::vector<Effect>& effects) {
  CHECK(stepping_ != hosted.facts.model);
  if (!keep_cached) hosted.engine->drop_cached();
  flush_slab_changes(effects);
  effects.push_back(DropWeights{hosted.facts.model});
  residency_.drop(hosted.facts.model);
  switches_.abandoned(hosted.facts.model);
  log_.dropped(hosted.facts.model);
  hosted.progress = 0.0f;
  hosted.fresh = false;
  hosted.stalled_since = kForever;
  changed_ = residency_changed_ = true;
}

void Node::switch_models(TimePoint now, std::vector<Effect>& effects) {
  update_wants(now, effects);
  if (token_level()) update_quotas(now);
  cancel_unwanted_load(effects);
  const SwitchPlan plan = plan_of_switch(now);
  hold_admissions(plan, now, effects);
  apply(plan, now, effects);
}

SwitchPlan Node::plan_of_switch(TimePoint now) const {
  if (packing_) return {};
  // Most events find nobody waiting, or a load under way: one at a time.
  const bool waits = std::any_of(awake_.begin(), awake_.end(), [](const auto& m) { return m.second.wanted_since != kForever; });
  if (token_level() && (loading_ || !waits)) return {};
  std::vector<ModelView> views;
  for (const auto& [id, hosted] : awake_) views.push_back(view_of(hosted, now));
  const PoolView pool{pages_.capacity(), pages_.free(), pages_coming(), pages_spoken_for()};
  return token_level() ? plan_token_switch(views, pool, config_.turns) : plan_switch(views, pool, config_.switching, now);
}

// wanted: has requests (or was asked for) and is not there. The instant it began to wait decides its turn.
void Node::update_wants(TimePoint now, std::vector<Effect>& effects) {
  for (auto& [id, hosted] : awake_) {
    const bool has_work = hosted.engine->has_work();
    const bool packing = packing_ && packing_->model == id;
    const bool may_go = resident(hosted) && !has_work && stepping_ != id && !packing;
    const bool expires = may_go && !hosted.pinned && hosted.facts.pooling.idle_ttl != Duration::max();
    const TimePoint expiry = expires ? residency_.last_used(id) + hosted.facts.pooling.idle_ttl : kForever;
    if (may_go && (hosted.unload_asked || hosted.retired || now >= expiry)) {
      drop_weights(hosted, /*keep_cached=*/false, effects);
    } else if (expires) {
      effects.push_back(WakeAt{expiry});
    }
    if (residency_.state(id) != WeightsState::kLoading) hosted.unload_asked &= resident(hosted);
    bool wanted = residency_.state(id) == WeightsState::kOnDisk && (has_work || hosted.pinned || hosted.asked) && now >= hosted.deferred_until;
    if (wanted && !fits_beside_pinned(hosted)) {
      const Status why = resource_exhausted("model '", hosted.facts.name, "' does not fit the device beside the models pinned to it; "
                                            "unload one of them, or raise --device-memory");
      hosted.load_error = std::string(why.message());
      fail_requests_of(hosted, why, effects);
      wanted = hosted.asked = false;
    }
    hosted.read_ahead &= wanted;
    if (!wanted && planned_ == id) {
      planned_.reset();
      switches_.abandoned(id);
    }
    if (!wanted) hosted.wanted_since = kForever;
    if (wanted && hosted.wanted_since == kForever) hosted.wanted_since = now;
  }
}

// Turns have quotas only while somebody waits for the device.
void Node::update_quotas(TimePoint now) {
  std::vector<ModelId> working;
  bool contended = false;
  for (const auto& [id, hosted] : awake_) {
    if (!hosted.engine->has_work()) continue;
    working.push_back(id);
    contended |= !resident(hosted);
  }
  bool changed = round_.update(working);
  changed |= std::exchange(contended_, contended) != contended;
  for (const ModelId id : working) {
    Hosted& hosted = models_.at(id);
    if (!resident(hosted)) continue;
    if (round_.is_due(id)) round_.had_turn(id);
    if (!contended) hosted.quota_seconds = Turn::kUnlimited;
    changed |= contended && hosted.quota_seconds == Turn::kUnlimited;
  }
  if (!contended || !changed) return;
  std::vector<TurnBatch> batches;
  for (const ModelId id : working) {
    const Hosted& hosted = models_.at(id);
    const Engine::Demand demand = hosted.engine->demand(hosted.facts.pooling.slo, now);
    TurnBatch batch{id};
    batch.step_seconds = decode_seconds(hosted, demand);
    batch.tbt_seconds = to_seconds(hosted.facts.pooling.slo.tbt);
    batch.switch_seconds = switch_seconds(hosted);
    // Never believed to be free: what is hidden now is hidden by quotas of this length.
    batch.waited_seconds = std::max(hosted.costs.waited_seconds(batch.switch_seconds), 0.1 * batch.switch_seconds);
    batch.slack = demand.slack;
    batches.push_back(batch);
  }
  round_plan_ = plan_round(batches, config_.turns);
  for (const Turn& turn : round_plan_.turns) {
    Hosted& hosted = models_.at(turn.model);
    hosted.planned_quota = turn.quota_seconds;
    const bool has_quota = hosted.quota_seconds != Turn::kUnlimited;
    if (resident(hosted) && (config_.turns.recompute || !has_quota)) hosted.quota_seconds = turn.quota_seconds;
  }
}

// Who may take new requests: nobody but the model under pressure; nobody that the plan holds; nobody but the model that
// has found no memory for a while; and while others wait for the device, only the first groups of a model's prompts.
void Node::hold_admissions(const SwitchPlan& plan, TimePoint now, std::vector<Effect>& effects) {
  if (pressure_ && (models_.at(pressure_->model).engine->oldest_running() != pressure_->request ||
                    !resident(models_.at(pressure_->model)))) {
    pressure_.reset();
  }
  const Hosted* starved = nullptr;
  for (const auto& [id, hosted] : awake_) {
    if (hosted.stalled_since == kForever) continue;
    const TimePoint overdue = hosted.stalled_since + config_.switching.hold_after;
    if (now < overdue) effects.push_back(WakeAt{overdue});
    if (now >= overdue && (starved == nullptr || hosted.stalled_since < starved->stalled_since)) starved = &hosted;
  }
  for (auto& [id, hosted] : awake_) {
    bool may = hosted.fresh || std::find(plan.hold.begin(), plan.hold.end(), id) == plan.hold.end();
    may &= !pressure_ || pressure_->model == id;
    may &= starved == nullptr || starved == &hosted;
    uint32_t most = UINT32_MAX;
    if (contended_) most = prompts_.ready(id) + static_cast<uint32_t>(hosted.engine->waiting()) - hosted.prompts_queued;
    hosted.engine->set_admitting(may, most);
  }
}

void Node::apply(const SwitchPlan& plan, TimePoint now, std::vector<Effect>& effects) {
  for (const ModelId id : plan.trim) models_.at(id).engine->drop_cached();
  if (!plan.load) {
    if (plan.next && !std::exchange(models_.at(*plan.next).read_ahead, true)) effects.push_back(ReadAhead{*plan.next});
    for (const auto& [id, hosted] : awake_) {
      if (token_level() || hosted.wanted_since == kForever) continue;
      const TimePoint overdue = hosted.wanted_since + config_.switching.hold_after;
      if (now < overdue) effects.push_back(WakeAt{overdue});
    }
    return;
  }
  Hosted& wanted = models_.at(*plan.load);
  if (planned_ && planned_ != plan.load) switches_.abandoned(*planned_);
  planned_ = plan.load;
  switches_.planned(*plan.load, wanted.wanted_since, now);
  for (const ModelId id : plan.drop) {
    switches_.dropped(*plan.load, id);
    drop_weights(models_.at(id), /*keep_cached=*/token_level(), effects);
  }
  const uint64_t needed = uint64_t{residency_.weight_pages(*plan.load)} + wanted.kv_pages;
  for (const ModelId id : plan.take_kv) {
    Hosted& hosted = models_.at(id);
    while (pages_.free() + pages_coming() < needed) {
      if (std::optional<KvMove> move = hosted.engine->park_youngest()) {
        move_kv(hosted, *std::move(move), now, effects);
      } else if (!hosted.engine->preempt_youngest()) {  // no room there either: to be computed anew
        break;
      }
    }
    hosted.engine->drop_cached();
  }
  flush_slab_changes(effects);
  if (pages_coming() > 0 && pages_.free() < residency_.weight_pages(*plan.load)) return;  // when the copies are done
  begin_load(wanted, now, effects);
}

void Node::begin_load(Hosted& wanted, TimePoint now, std::vector<Effect>& effects) {
  const ModelId model = wanted.facts.model;
  auto runs = residency_.begin_load(model);
  if (!runs) {  // KV was counted from blocks that share slabs with others; now the pool says what came free
    effects.push_back(WakeAt{now});
    return;
  }
  loading_ = model;
  load_wanted_since_ = wanted.wanted_since;
  planned_.reset();
  const bool ahead = std::any_of(awake_.begin(), awake_.end(), [&](const auto& m) { return resident(m.second) && m.second.engine->has_work(); });
  switches_.begun(*loading_, ahead, now);
  load_began_ = now;
  load_waited_ = Duration(0);
  step_beside_load_ = true;
  wanted.progress = 0.0f;
  wanted.load_error.clear();
  changed_ = residency_changed_ = true;
  effects.push_back(LoadWeights{model, *std::move(runs), !ahead});
}

// A load that nobody wants any more ends when somebody else waits for the device, or when it was to go anyhow.
void Node::cancel_unwanted_load(std::vector<Effect>& effects) {
  if ((!loading_ || cancelling_) && (!packing_ || packing_->cancelling)) return;
  const Hosted& hosted = models_.at(loading_ ? *loading_ : packing_->model);
  if (hosted.engine->has_work() || hosted.pinned || hosted.asked) return;
  const bool others_wait = std::any_of(awake_.begin(), awake_.end(), [](const auto& m) { return m.second.wanted_since != kForever; });
  if (hosted.unload_asked || others_wait) cancel_load(effects);
}

void Node::cancel_load(std::vector<Effect>& effects) {
  (loading_ ? cancelling_ : packing_->cancelling) = true;
  effects.push_back(CancelLoad{loading_ ? *loading_ : packing_->model});
}

// ---- whose step is next -------------------------------------------------------------------------------------------------------

void Node::start_step(TimePoint now, std::vector<Effect>& effects) {
  park_ahead(now, effects);
  // KV in use comes before a load into pages that were free when it began.
  const bool may_cancel = loading_ && !cancelling_ && !models_.at(*loading_).pinned;
  if (may_cancel && pages_spoken_for() > pages_.free() + pages_coming()) cancel_load(effects);
  while (!stepping_) {
    unpark(now, effects);
    const std::optional<ModelId> model = next_turn(step_views(now));
    if (!model) {
      const bool any_stalled = std::any_of(awake_.begin(), awake_.end(), [](const auto& m) { return m.second.stalled; });
      if (any_stalled && free_stuck_memory(now, effects)) continue;
      break;
    }
    Hosted& hosted = models_.at(*model);
    if (begin_step(hosted, now, effects)) break;
    if (drop_cached_of_another(hosted)) continue;
    if (token_level() && hosted.fresh && take_memory_for(hosted, now, effects)) continue;
    hosted.stalled = true;  // until memory comes free or something changes
  }
  note_stalls(now);
}

std::vector<StepView> Node::step_views(TimePoint now) {
  std::vector<StepView> steps;
  for (auto& [id, hosted] : awake_) {
    StepView step{id, resident(hosted) && hosted.engine->runnable() && !hosted.stalled && now >= hosted.deferred_until, hosted.last_turn};
    if (packing_ && packing_->model == id && (packing_->stepped || packing_->cancelling || !packing_->failed.ok())) step.runnable = false;
    // Pages come back in a moment: no reason to take those of its youngest request.
    if (cancelling_ && token_level() && hosted.engine->blocks_wanted() > hosted.engine->blocks_cached() + hosted.blocks->obtainable()) {
      step.runnable = false;
    }
    if (step.runnable) {
      hosted.demand = hosted.engine->demand(hosted.facts.pooling.slo, now);
      if (token_level()) {
        step.slack = hosted.demand.slack;
        step.step_seconds = token_seconds(hosted, hosted.demand);
      }
    }
    steps.push_back(step);
  }
  return steps;
}

void Node::note_stalls(TimePoint now) {
  for (auto& [id, hosted] : awake_) {
    const bool stuck = std::exchange(hosted.stalled, false);
    if (!resident(hosted) || !hosted.engine->runnable() || stepping_ == id || now < hosted.deferred_until) {
      hosted.stalled_since = kForever;
    } else if (stuck && hosted.stalled_since == kForever) {
      hosted.stalled_since = now;
    }
  }
}

uint32_t Node::step_tokens(const Hosted& hosted) const {
  const Engine::Demand& demand = hosted.demand;
  if (demand.decoding == 0) return config_.limits.tokens_per_step;
  const double decode = hosted.costs.decode_seconds(demand.decoding, demand.context_tokens);
  const double seconds = std::max(to_seconds(demand.tbt), config_.gap_stretch * decode);
  const uint64_t rows = hosted.costs.rows_within(seconds, demand.decoding, demand.context_tokens);
  return static_cast<uint32_t>(std::min<uint64_t>(std::max(rows, demand.decoding + config_.prompt_tokens_min), config_.limits.tokens_per_step));
}

bool Node::begin_step(Hosted& hosted, TimePoint now, std::vector<Effect>& effects) {
  std::optional<StepInput> input = hosted.engine->begin_step(now, step_tokens(hosted));
  if (!input) return false;
  flush_slab_changes(effects);
  hosted.last_turn = ++turn_;
  if (!token_level()) hosted.fresh = false;
  if (loading_) load_waited_ += now - std::max(load_began_, idle_since_);
  step_began_ = now;
  step_beside_load_ = loading_.has_value();
  step_beside_packing_ = packing_.has_value();
  if (packing_ && packing_->model == hosted.facts.model) packing_->stepped = true;
  step_work_ = {0, 0, true};
  for (const StepSlice& slice : input->slices) {
    const StepWork work = work_of(slice.begin, slice.begin + slice.tokens.size());
    step_work_.rows += work.rows;
    step_work_.attended += work.attended;
    step_work_.decode &= work.decode;
    if (const auto owner = owners_.find(slice.request); owner != owners_.end()) {
      begun(owner->first, owner->second);
      owner->second.weights = hosted.weights;
    }
  }
  stepping_ = hosted.facts.model;
  switches_.stepped(hosted.facts.model, now);
  const bool decodes = std::any_of(input->slices.begin(), input->slices.end(), [](const StepSlice& s) { return s.tokens.size() == 1; });
  log_.step_begun(hosted.facts.model, step_work_.decode ? DeviceAct::kDecode : decodes ? DeviceAct::kMixed : DeviceAct::kPrefill, step_work_.rows);
  effects.push_back(StartStep{hosted.facts.model, *std::move(input)});
  return true;
}

}  // namespace shoal
