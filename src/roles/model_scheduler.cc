#include "roles/model_scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shoal {

ModelScheduler::ModelScheduler(const Rooms& rooms)
    : config_(rooms.config), catalogue_(rooms.catalogue), handovers_(rooms.handovers), requests_(rooms.requests), loads_(rooms.loads), quotas_(rooms.quotas),
      journal_(rooms.journal), home_(config_, catalogue_, quotas_) {}

void ModelScheduler::schedule(TimePoint now, std::vector<Effect>& effects) {
  switch_models(now, effects);
  start_step(now, effects);
}

// ---- who is on the device -----------------------------------------------------------------------------------------------------

void ModelScheduler::switch_models(TimePoint now, std::vector<Effect>& effects) {
  home_.update(now, effects);
  update_wants(now, effects);
  if (token_level()) quotas_.update(now);
  if (token_level() && quotas_.next_look() > now) effects.push_back(WakeAt{quotas_.next_look()});
  cancel_unwanted_load(effects);
  const SwitchPlan plan = plan_of_switch(now);
  hold_admissions(plan, now, effects);
  apply(plan, now, effects);
}

bool ModelScheduler::anybody_waits() const {
  return catalogue_.any_active([](const HostedModel& m) { return m.wanted_since != kForever; });
}

// wanted: has requests (or was asked for) and is not there. The instant it began to wait decides its turn.
void ModelScheduler::update_wants(TimePoint now, std::vector<Effect>& effects) {
  const uint64_t pinned = catalogue_.pages_pinned();
  for (auto& [id, hosted] : catalogue_.active()) {
    let_expire(hosted, now, effects);
    if (catalogue_.state(hosted) != WeightsState::kLoading) hosted.unload_asked &= catalogue_.resident(hosted);
    bool wanted = catalogue_.away(hosted) && (hosted.engine->has_work() || for_later(hosted)) && now >= hosted.deferred_until;
    if (wanted && !catalogue_.fits_beside_pinned(hosted, pinned)) {
      const Status why = does_not_fit_beside_pinned(hosted.facts);
      hosted.load_error = std::string(why.message());
      requests_.fail_all_of(id, why, effects);
      wanted = hosted.asked = hosted.returning = false;
    }
    // Whoever performs effects keeps the earliest of these: what lies further on is said again each time.
    if (now < hosted.deferred_until && hosted.engine->has_work()) effects.push_back(WakeAt{hosted.deferred_until});
    hosted.read_ahead &= wanted;
    if (!wanted && loads_.making_room() == id) {
      loads_.stop_making_room();
      journal_.switches.abandoned(id);
    }
    if (catalogue_.away(hosted)) catalogue_.residency().set_awaited(id, hosted.engine->has_work() || for_later(hosted));
    hosted.wanted_since = wanted ? std::min(hosted.wanted_since, now) : kForever;
  }
}

// Whoever has no work leaves when he is asked to, or was not used for so long.
void ModelScheduler::let_expire(HostedModel& hosted, TimePoint now, std::vector<Effect>& effects) {
  const ModelId id = hosted.facts.model;
  const bool may_go = catalogue_.resident(hosted) && !hosted.engine->has_work() && !in_flight_.has(id) && !loads_.packing(id);
  const bool expires = may_go && !hosted.pinned && hosted.facts.pooling.idle_ttl != Duration::max();
  const TimePoint expiry = expires ? catalogue_.residency().last_used(id) + hosted.facts.pooling.idle_ttl : kForever;
  if (may_go && (hosted.unload_asked || hosted.retired || now >= expiry)) {
    drop_weights(hosted, /*keep_cached=*/false, effects);
  } else if (expires) {
    effects.push_back(WakeAt{expiry});
  }
}

void ModelScheduler::drop_weights(HostedModel& hosted, bool keep_cached, std::vector<Effect>& effects) {
  const ModelId id = hosted.facts.model;
  CHECK(!in_flight_.has(id));
  if (!keep_cached) hosted.engine->drop_cached();
  catalogue_.take_slab_changes(effects);
  effects.push_back(DropWeights{id});
  catalogue_.drop(hosted);
  journal_.switches.abandoned(id);
  journal_.device.dropped(id);
  journal_.residency();
  hosted.progress = 0.0f;
  hosted.fresh = false;
  hosted.stalled_since = kForever;
}

ModelView ModelScheduler::view_of(const HostedModel& hosted, TimePoint now) const {
  const Engine& engine = *hosted.engine;
  ModelView view;
  view.model = hosted.facts.model;
  view.resident = catalogue_.resident(hosted);
  view.loading = catalogue_.state(hosted) == WeightsState::kLoading;
  view.wanted = hosted.wanted_since != kForever;
  view.wanted_since = hosted.wanted_since;
  const bool runs = engine.running() > 0 || (!token_level() && engine.parking().moves() > 0);  // or is about to
  view.busy = (runs && hosted.deferrals == 0) || engine.step_in_flight() || (hosted.fresh && engine.has_work());
  view.queued = engine.waiting() > 0;
  view.pinned = hosted.pinned;
  view.weight_pages = catalogue_.weight_pages(hosted);
  view.kv_pages_min = hosted.kv_pages;
  view.kv_pages_idle = catalogue_.idle_kv_pages(hosted);
  view.last_used = catalogue_.residency().last_used(view.model);
  view.fresh = hosted.fresh && engine.has_work();
  view.priority = hosted.facts.pooling.priority;
  view.next_group = requests_.prompts().prefetch() == view.model;
  view.served = hosted.served || (!engine.has_work() && for_later(hosted));
  if (!token_level()) view.queued_since = hosted.engine->line().first_arrival();
  if (!token_level()) return view;
  TurnView& turn = view.turn;
  turn.stepping = engine.step_in_flight();
  turn.switch_seconds = quotas_.switch_to(hosted);
  if (!engine.has_work()) {  // to be loaded for later: as urgent as a request that came when it was asked for
    turn.due = true;
    if (view.wanted) turn.slack = slack(quotas_.slo(hosted), hosted.wanted_since, 1, now);
    return view;
  }
  const Engine::Demand demand = engine.demand(quotas_.slo(hosted), now);
  turn.first = quotas_.favoured() == view.model, turn.due = quotas_.is_due(view.model);
  turn.over = hosted.turn.over() || hosted.stalled_since != kForever || hosted.deferrals > 0 || (!engine.runnable() && engine.parking().moves() == 0);
  turn.spent_seconds = hosted.turn.spent_seconds, turn.slack = demand.slack, turn.answers_first = hosted.turn.ends;
  turn.step_seconds = quotas_.next_token(hosted, demand), turn.promise = quotas_.keeps_promise(hosted, demand.slack);
  const uint64_t slabs = std::min<uint64_t>(demand.blocks, hosted.blocks->slabs_bound());
  turn.kv_pages_held = static_cast<uint32_t>(slabs * slab_pages_for(hosted.facts.kv_block_bytes));
  return view;
}

SwitchPlan ModelScheduler::plan_of_switch(TimePoint now) const {
  if (loads_.packing() != nullptr) return {};
  // Most events find nobody waiting, or a load under way: one at a time.
  if (token_level() && (loads_.loading() != nullptr || !anybody_waits())) return {};
  std::vector<ModelView> views;
  for (const auto& [id, hosted] : catalogue_.active()) views.push_back(view_of(hosted, now));
  const PagePool& pages = catalogue_.pages();
  const PoolView pool{pages.capacity(), pages.free(), catalogue_.pages_coming(), token_level() ? catalogue_.pages_spoken_for() : 0};
  return token_level() ? plan_token_switch(views, pool, config_.turns) : plan_switch(views, pool, config_.switching, now);
}

std::vector<ModelId> ModelScheduler::next_models(TimePoint now) const {
  std::vector<ModelView> views;
  for (const auto& [id, hosted] : catalogue_.active()) {
    if (hosted.wanted_since != kForever) views.push_back(view_of(hosted, now));
  }
  return waiting_order(views, token_level() ? config_.turns : TurnOptions{.least_slack_first = false});
}

// Who may take new requests: nobody but the model under protection; those that the plan holds only what came before; nobody but the model that
// has found no memory for a while; and while others wait for the device, only the first groups of a model's prompts: in rehearsed turns all.
void ModelScheduler::hold_admissions(const SwitchPlan& plan, TimePoint now, std::vector<Effect>& effects) {
  if (protected_) {
    const HostedModel& hosted = catalogue_.at(protected_->model);
    if (hosted.engine->oldest_running() != protected_->request || !catalogue_.resident(hosted)) protected_.reset();
  }
  const HostedModel* starved = nullptr;
  for (const auto& [id, hosted] : catalogue_.active()) {
    if (hosted.stalled_since == kForever) continue;
    const TimePoint overdue = hosted.stalled_since + config_.switching.hold_after;
    if (now < overdue) effects.push_back(WakeAt{overdue});
    if (now >= overdue && (starved == nullptr || hosted.stalled_since < starved->stalled_since)) starved = &hosted;
  }
  for (auto& [id, hosted] : catalogue_.active()) {
    const bool held = !hosted.fresh && std::find(plan.hold.begin(), plan.hold.end(), id) != plan.hold.end();
    uint32_t most = UINT32_MAX;
    if (held) most = hosted.engine->line().came_by(catalogue_.at(*plan.next).wanted_since);
    if (hosted.turn.closed != kForever && anybody_waits()) most = std::min(most, hosted.engine->line().came_by(hosted.turn.closed));
    const bool may = most > 0 && (!protected_ || protected_->model == id) && (starved == nullptr || starved == &hosted);
    if (quotas_.contended() && !config_.turns.narrow) most = requests_.prompts().ready(id) + static_cast<uint32_t>(hosted.engine->waiting()) - requests_.prompts_queued(id);
    hosted.engine->set_admitting(may, most);
  }
  if (token_level()) quotas_.admit_late(now);
}

void ModelScheduler::apply(const SwitchPlan& plan, TimePoint now, std::vector<Effect>& effects) {
  for (const ModelId id : plan.trim) catalogue_.at(id).engine->drop_cached();
  if (!plan.load) return wait_for_room(plan, now, effects);
  HostedModel& wanted = catalogue_.at(*plan.load);
  if (const auto other = loads_.making_room(); other && other != plan.load) journal_.switches.abandoned(*other);
  loads_.make_room(*plan.load);
  journal_.switches.planned(*plan.load, wanted.wanted_since, now);
  for (const ModelId id : plan.drop) {
    journal_.switches.dropped(*plan.load, id);
    drop_weights(catalogue_.at(id), /*keep_cached=*/token_level(), effects);
    home_.left(id);
  }
  const PagePool& pages = catalogue_.pages();
  for (const ModelId id : plan.take_kv) {
    HostedModel& hosted = catalogue_.at(id);
    while (pages.free() + catalogue_.pages_coming() < catalogue_.pages_needed(wanted)) {
      if (std::optional<KvMove> move = hosted.engine->park()) {
        begin_move(hosted, *std::move(move), now, effects);
      } else if (!hosted.engine->preempt_youngest()) {  // no room there either: to be computed anew
        break;
      }
    }
    hosted.engine->drop_cached();
  }
  catalogue_.take_slab_changes(effects);
  if (catalogue_.pages_coming() > 0 && pages.free() < catalogue_.weight_pages(wanted)) return;  // when the copies are done
  begin_load(wanted, now, effects);
}

void ModelScheduler::wait_for_room(const SwitchPlan& plan, TimePoint now, std::vector<Effect>& effects) {
  if (plan.next && !std::exchange(catalogue_.at(*plan.next).read_ahead, true)) effects.push_back(ReadAhead{*plan.next});
  if (token_level()) return;
  for (const auto& [id, hosted] : catalogue_.active()) {
    if (hosted.wanted_since == kForever) continue;
    const TimePoint overdue = hosted.wanted_since + config_.switching.hold_after;
    if (now < overdue) effects.push_back(WakeAt{overdue});
  }
}

void ModelScheduler::begin_load(HostedModel& wanted, TimePoint now, std::vector<Effect>& effects) {
  const ModelId id = wanted.facts.model;
  auto memory = catalogue_.residency().begin_load(id);
  if (!memory) {  // KV was counted from blocks that share slabs with others; now the pool says what came free
    effects.push_back(WakeAt{now});
    return;
  }
  loads_.begin(id, wanted.wanted_since, 1 - static_cast<double>(page_count(memory->whole)) / std::max(page_count(memory->pages), 1u), now);
  const bool ahead = catalogue_.any_active([&](const HostedModel& m) { return catalogue_.resident(m) && m.engine->has_work(); });
  journal_.switches.begun(id, ahead, now);
  journal_.residency();
  wanted.progress = 0.0f;
  wanted.load_error.clear();
  effects.push_back(LoadWeights{id, std::move(memory->pages), std::move(memory->whole), !ahead});
}

// A load that nobody wants any more ends when somebody else waits for the device, or when it was to go anyhow.
void ModelScheduler::cancel_unwanted_load(std::vector<Effect>& effects) {
  const std::optional<ModelId> id = loads_.under_way();
  if (!id || loads_.cancelled()) return;
  const HostedModel& hosted = catalogue_.at(*id);
  if (!hosted.engine->has_work() && !for_later(hosted) && (hosted.unload_asked || anybody_waits())) cancel_load(effects);
}

void ModelScheduler::cancel_load(std::vector<Effect>& effects) {
  loads_.cancel();
  effects.push_back(CancelLoad{*loads_.under_way()});
}

// ---- whose step is next -------------------------------------------------------------------------------------------------------

void ModelScheduler::start_step(TimePoint now, std::vector<Effect>& effects) {
  park_ahead(now, effects);
  // KV in use comes before a load into pages that were free when it began.
  const LoadDesk::Loading* load = loads_.loading();
  if (load != nullptr && !load->cancelled && !catalogue_.at(load->model).pinned && token_level() &&
      catalogue_.pages_spoken_for() > catalogue_.pages().free() + catalogue_.pages_coming()) {
    cancel_load(effects);
  }
  while (may_begin()) {
    const bool beside = in_flight_.any();
    unpark(now, effects);
    const std::optional<ModelId> model = next_turn(step_views(now));
    if (!model && beside) break;
    if (!model) {
      const auto& active = catalogue_.active();
      const bool any_stalled = std::any_of(active.begin(), active.end(), [](const auto& m) { return m.second.stalled; });
      if (!any_stalled || !apply(relieve_all(relief_views(now), catalogue_.pages_coming() > 0), now, effects)) break;
      for (auto& [id, hosted] : active) hosted.stalled = false;
      continue;
    }
    HostedModel& hosted = catalogue_.at(*model);
    if (begin_step(hosted, now, effects)) continue;
    if (beside) break;  // nobody gives up memory for it: it comes first when the step in flight has ended
    const bool must = token_level() && hosted.fresh;
    if (apply(relieve(*model, must, relief_views(now), catalogue_.pages_coming() > 0), now, effects)) continue;
    hosted.stalled = true;  // until memory comes free or something changes
  }
  note_stalls(now);
}

// A step in flight that waits for experts leaves the device to another one meanwhile.
bool ModelScheduler::may_begin() const {
  const auto waits = [&](const StepsInFlight::Step& step) { return catalogue_.at(step.model).facts.experts_elsewhere; };
  const auto& steps = in_flight_.all();
  return steps.empty() || (steps.size() < config_.steps_max && std::all_of(steps.begin(), steps.end(), waits));
}

bool ModelScheduler::may_step(const HostedModel& hosted, TimePoint now) const {
  const ModelId id = hosted.facts.model;
  if (!catalogue_.resident(hosted) || in_flight_.has(id) || !hosted.engine->runnable() || hosted.stalled || now < hosted.deferred_until) return false;
  // Whose turn is over does not go on beside others: models that take turns would never leave the device both at once.
  if (in_flight_.any() && hosted.turn.over() && anybody_waits()) return false;
  const LoadDesk::Packing* packing = loads_.packing();
  if (loads_.packing(id) && (packing->stepped || packing->cancelled || !packing->failed.ok())) return false;
  // Pages come back in a moment: no reason to take those of its youngest request.
  const LoadDesk::Loading* load = loads_.loading();
  const bool pages_return = load != nullptr && load->cancelled && token_level();
  return !pages_return || hosted.engine->blocks_wanted() <= hosted.engine->blocks_cached() + hosted.blocks->obtainable();
}

std::vector<StepView> ModelScheduler::step_views(TimePoint now) {
  std::vector<StepView> steps;
  for (auto& [id, hosted] : catalogue_.active()) {
    StepView step{id, may_step(hosted, now), hosted.last_turn};
    if (step.runnable) hosted.demand = hosted.engine->demand(quotas_.slo(hosted), now);
    if (step.runnable && token_level()) {
      step.slack = hosted.demand.slack;
      step.late = hosted.demand.promising == 0 || !hosted.served;
      step.step_seconds = quotas_.next_token(hosted, hosted.demand);
    }
    steps.push_back(step);
  }
  return steps;
}

void ModelScheduler::note_stalls(TimePoint now) {
  for (auto& [id, hosted] : catalogue_.active()) {
    const bool stuck = std::exchange(hosted.stalled, false);
    if (!catalogue_.resident(hosted) || !hosted.engine->runnable() || in_flight_.has(id) || now < hosted.deferred_until) {
      hosted.stalled_since = kForever;
    } else if (stuck && hosted.stalled_since == kForever) {
      hosted.stalled_since = now;
    }
  }
}

bool ModelScheduler::begin_step(HostedModel& hosted, TimePoint now, std::vector<Effect>& effects) {
  const ModelId id = hosted.facts.model;
  std::optional<StepInput> input = hosted.engine->begin_step(now, quotas_.step_tokens(hosted));
  if (!input) return false;
  catalogue_.take_slab_changes(effects);
  hosted.last_turn = ++steps_;
  if (!token_level()) hosted.fresh = false;
  loads_.step_begun(id, in_flight_.any(), now);
  const StepWork work = work_of(*input);
  in_flight_.begin(id, work, now);
  bool decodes = false;
  for (const StepSlice& slice : input->slices) {
    decodes |= slice.tokens.size() == 1;
    if (AcceptedRequest* request = requests_.find(slice.request)) {
      requests_.begun(slice.request, *request);
      request->weights = hosted.weights;
    }
  }
  journal_.switches.stepped(id, now);
  journal_.device.step_begun(id, work.decode ? DeviceAct::kDecode : decodes ? DeviceAct::kMixed : DeviceAct::kPrefill, work.rows);
  effects.push_back(StartStep{id, *std::move(input)});
  return true;
}

// What it waited is nobody's time: quotas and predictions of steps are of what the device computes.
ModelScheduler::EndedStep ModelScheduler::end_step(ModelId model, Duration away, TimePoint now) {
  const StepsInFlight::Step step = in_flight_.end(model);
  loads_.step_ended(now);
  catalogue_.residency().touch(model, now);
  journal_.device.step_ended(model);
  const Duration elapsed = now - step.began, computed = std::max(elapsed - away, Duration(0));
  if (computed > Duration(0)) catalogue_.at(model).elapsed_per_computed.add(to_seconds(elapsed) / to_seconds(computed));
  return {step.work, to_seconds(computed)};
}

// ---- memory -------------------------------------------------------------------------------------------------------------------

// What a model has on the host tier comes back, oldest first, as far as there is room: of one that is loading already while
// its weights come, but only into pages that nobody on the device is about to write to.
void ModelScheduler::unpark(TimePoint now, std::vector<Effect>& effects) {
  const LoadDesk::Loading* load = loads_.loading();
  for (auto& [id, hosted] : catalogue_.active()) {
    const bool loading = load != nullptr && load->model == id && !load->cancelled && token_level();
    const bool resident = catalogue_.resident(hosted);
    if ((!resident && !loading) || in_flight_.has(id)) continue;
    while (resident || catalogue_.pages().free() >= catalogue_.pages_reserved() + slab_pages_for(hosted.facts.kv_block_bytes)) {
      std::optional<KvMove> move = hosted.engine->unpark_oldest();
      if (!move) break;
      begin_move(hosted, *std::move(move), now, effects);
    }
  }
}

// Keeps pages free for what the resident models are about to write, and for what they have on the host tier: prefixes of models that
// are away are forgotten, and KV of their requests goes to that tier, all at once, before a model that computes would have to preempt its
// own, or spend its turn on the few that came back so far.
void ModelScheduler::park_ahead(TimePoint now, std::vector<Effect>& effects) {
  if (catalogue_.host_tier().pages() == 0 || !token_level() || catalogue_.pages_coming() > 0) return;
  const uint64_t wanted = catalogue_.pages_reserved() + pages_to_return(catalogue_);
  for (auto& [id, hosted] : catalogue_.active()) {
    if (catalogue_.pages().free() >= wanted) return;
    if (catalogue_.away(hosted)) hosted.engine->drop_cached();
  }
  while (catalogue_.pages().free() + catalogue_.pages_coming() < wanted) {
    const std::optional<ModelId> id = first_to_park(relief_views(now));
    if (!id) return;
    HostedModel& victim = catalogue_.at(*id);
    std::optional<KvMove> move;
    while (catalogue_.pages().free() + catalogue_.pages_coming() < wanted && (move = victim.engine->park())) begin_move(victim, *std::move(move), now, effects);
    if (victim.engine->running() > 0) return;  // the tier is full
  }
}

void ModelScheduler::begin_move(const HostedModel& hosted, KvMove move, TimePoint now, std::vector<Effect>& effects) {
  const ModelId id = hosted.facts.model;
  catalogue_.take_slab_changes(effects);
  journal_.device.copy_begun(id, move.id, move.to == Tier::kHost, move.copies.size() * move.block_bytes);
  if (move.to == Tier::kDevice) journal_.switches.swap_in_begun(id, move.id, now);
  const NodeId from = move.remote ? handovers_.fetched_from(move.request) : config_.self;
  effects.push_back(CopyKv{id, std::move(move), from});
  ++moves_;
}

void ModelScheduler::end_move(const KvCopied& event, TimePoint now, std::vector<Effect>& effects) {
  const RequestId request = catalogue_.at(event.model).engine->finish_move(event.move, event.ok);
  journal_.switches.swap_in_ended(event.model, event.move, now);
  journal_.device.copy_ended(event.model, event.move);
  journal_.changed = true;
  --moves_;
  requests_.settle_fetch(request, effects);
}

std::vector<ReliefView> ModelScheduler::relief_views(TimePoint now) const {
  std::vector<ReliefView> views;
  for (const auto& [id, hosted] : catalogue_.active()) {
    const Engine& engine = *hosted.engine;
    ReliefView view{.model = id, .resident = catalogue_.resident(hosted), .away = catalogue_.away(hosted), .pinned = hosted.pinned, .fresh = hosted.fresh,
                    .turn_over = hosted.turn.over() || hosted.stalled_since != kForever, .running = engine.running(), .moving = engine.parking().moves(),
                    .waiting = engine.waiting(), .blocks_cached = engine.blocks_cached(), .last_used = catalogue_.residency().last_used(id),
                    .last_turn = hosted.last_turn};
    if (const auto oldest = engine.oldest_running()) view.oldest = requests_.order_of(*oldest);
    if (view.away && view.running > 0) view.slack = engine.demand(quotas_.slo(hosted), now).slack;
    views.push_back(view);
  }
  return views;
}

bool ModelScheduler::apply(const ReliefPlan& plan, TimePoint now, std::vector<Effect>& effects) {
  for (const ModelId id : plan.trim) catalogue_.at(id).engine->drop_cached();
  if (plan.drop) {
    drop_weights(catalogue_.at(*plan.drop), /*keep_cached=*/false, effects);
    effects.push_back(WakeAt{now});  // who comes next on the device is to be decided anew
  }
  if (plan.take_kv) {
    HostedModel& victim = catalogue_.at(*plan.take_kv);
    if (std::optional<KvMove> move = victim.engine->park()) {
      begin_move(victim, *std::move(move), now, effects);
      return false;  // in a moment
    }
    CHECK(victim.engine->preempt_youngest());
    victim.engine->drop_cached();
  }
  if (plan.preempt) {
    protected_ = {*plan.protect, *catalogue_.at(*plan.protect).engine->oldest_running()};
    for (auto& [id, hosted] : catalogue_.active()) hosted.engine->set_admitting(id == *plan.protect);
    CHECK(catalogue_.at(*plan.preempt).engine->preempt_youngest());
  }
  return plan != ReliefPlan{};
}

}  // namespace shoal
