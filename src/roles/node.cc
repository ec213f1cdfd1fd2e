#include "roles/node.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "policy/turns.h"

namespace shoal {
namespace {

uint32_t weight_pages(const NodeModel& model) { return static_cast<uint32_t>(div_up(model.weight_bytes, kPageBytes)); }

uint32_t blocks_per_slab(uint64_t block_bytes) {
  return static_cast<uint32_t>(slab_pages_for(block_bytes) * kPageBytes / block_bytes);
}

}  // namespace

uint32_t kv_pages_min(const NodeModel& model) {
  const uint64_t blocks = div_up(model.max_model_len, kTokensPerBlock);
  return static_cast<uint32_t>(div_up(blocks, blocks_per_slab(model.kv_block_bytes)) * slab_pages_for(model.kv_block_bytes));
}

uint32_t fitting_model_len(const NodeModel& model, uint32_t pages, uint32_t wanted) {
  if (weight_pages(model) >= pages) return 0;
  const uint64_t slabs = (pages - weight_pages(model)) / slab_pages_for(model.kv_block_bytes);
  const uint64_t tokens = slabs * blocks_per_slab(model.kv_block_bytes) * kTokensPerBlock;
  return static_cast<uint32_t>(std::min<uint64_t>(tokens, wanted));
}

Node::Node(const NodeConfig& config) : config_(config), pages_(config.pages), residency_(pages_) {
  for (const NodeModel& facts : config_.models) {
    CHECK_LE(uint64_t{weight_pages(facts)} + kv_pages_min(facts), uint64_t{config_.pages});
    std::unique_ptr<BlockPool>& blocks = shape_classes_[facts.kv_block_bytes];
    if (blocks == nullptr) blocks = std::make_unique<BlockPool>(pages_, facts.kv_block_bytes);
    EngineConfig engine;
    engine.limits = config_.limits;
    engine.waiting_max = config_.waiting_max;
    engine.max_model_len = facts.max_model_len;
    engine.vocab_size = facts.vocab_size;
    engine.prefix_cache = config_.prefix_cache;
    engine.kv_salt_above = facts.kv_salt_above;
    Hosted& hosted = models_[facts.model];
    hosted.facts = facts;
    hosted.blocks = blocks.get();
    hosted.engine = std::make_unique<Engine>(*blocks, engine);
    residency_.add_model(facts.model, weight_pages(facts));
  }
}

Node::~Node() = default;

std::vector<Effect> Node::handle(const Event& event, TimePoint now) {
  std::vector<Effect> effects;
  if (const auto* e = std::get_if<MessageFrom>(&event)) {
    if (const auto* submit = std::get_if<Submit>(&e->message)) on_submit(e->from, *submit, now, effects);
    if (const auto* cancel = std::get_if<Cancel>(&e->message)) on_cancel(*cancel);
    if (const auto* resident = std::get_if<SetResident>(&e->message)) on_set_resident(*resident, now);
  } else if (const auto* e = std::get_if<StepDone>(&event)) {
    on_step_done(*e, now, effects);
  } else if (const auto* e = std::get_if<WeightsReady>(&event)) {
    on_weights_ready(*e, now, effects);
  } else if (const auto* e = std::get_if<LoadProgress>(&event)) {
    if (const auto found = models_.find(e->model); found != models_.end()) found->second.progress = e->progress;
    changed_ = true;
  } else if (std::holds_alternative<DrainRequested>(event)) {
    draining_ = true;
  }
  switch_models(now, effects);
  start_step(now, effects);
  flush_slab_changes(effects);
  report(now, effects);
  return effects;
}

void Node::refuse(NodeId to, const Request& request, const Status& why, std::vector<Effect>& effects) {
  Tokens end;
  end.id = request.id;
  end.epoch = request.epoch;
  end.first_index = static_cast<uint32_t>(request.output.size());
  end.finish = FinishReason::kError;
  end.error = std::string(why.message());
  end.error_code = why.code();
  effects.push_back(Send{to, std::move(end)});
}

void Node::on_submit(NodeId from, const Submit& message, TimePoint now, std::vector<Effect>& effects) {
  const Request& request = message.request;
  const auto owned = owners_.find(request.id);
  if (owned != owners_.end()) {
    if (owned->second.epoch >= request.epoch) return;  // a repetition, or an owner of before
    Engine& engine = *models_.at(owned->second.model).engine;
    engine.cancel(request.id);
    owners_.erase(owned);
    if (engine.has(request.id)) {  // the step in flight still writes for the owner of before
      refuse(from, request, unavailable("the request is still being withdrawn here"), effects);
      return;
    }
  }
  const auto found = models_.find(request.model);
  if (found == models_.end()) {
    refuse(from, request, not_found("this node does not serve model ", request.model.value), effects);
    return;
  }
  if (draining_) {
    refuse(from, request, unavailable("this node is draining"), effects);
    return;
  }
  Hosted& hosted = found->second;
  Request accepted = request;
  accepted.arrival = now;  // on this node's clock
  if (const Status status = hosted.engine->submit(std::move(accepted)); !status.ok()) {
    refuse(from, request, status, effects);
    return;
  }
  if (hosted.wanted_since == kForever) hosted.wanted_since = now;
  owners_[request.id] = {from, request.epoch, request.model, next_order_++};
  changed_ = true;
}

void Node::on_cancel(const Cancel& message) {
  const auto found = owners_.find(message.id);
  if (found == owners_.end() || found->second.epoch != message.epoch) return;
  models_.at(found->second.model).engine->cancel(message.id);
  owners_.erase(found);
  changed_ = true;
}

void Node::on_set_resident(const SetResident& message, TimePoint now) {
  const auto found = models_.find(message.model);
  if (found == models_.end()) return;
  found->second.pinned = message.resident;
  if (message.resident && found->second.wanted_since == kForever) found->second.wanted_since = now;
  if (!message.resident) found->second.unload_asked = true;
  changed_ = true;
}

void Node::on_step_done(const StepDone& event, TimePoint now, std::vector<Effect>& effects) {
  CHECK(stepping_ == event.model);
  stepping_.reset();
  Hosted& hosted = models_.at(event.model);
  residency_.touch(event.model, now);
  for (TokenDelta& delta : hosted.engine->finish_step(event.result)) {
    const auto owner = owners_.find(delta.request);
    CHECK(owner != owners_.end());
    Tokens tokens;
    tokens.id = delta.request;
    tokens.epoch = owner->second.epoch;
    tokens.first_index = delta.first_index;
    tokens.tokens = std::move(delta.tokens);
    tokens.prompt = std::move(delta.prompt);
    tokens.finish = delta.finish;
    tokens.error = std::string(delta.error.message());
    tokens.error_code = delta.error.code();
    tokens.cached_prompt_tokens = delta.cached_prompt_tokens;
    tokens.queued = delta.queued;
    const NodeId gateway = owner->second.gateway;
    if (delta.finish) owners_.erase(owner);
    effects.push_back(Send{gateway, std::move(tokens)});
  }
  changed_ = true;
}

void Node::on_weights_ready(const WeightsReady& event, TimePoint now, std::vector<Effect>& effects) {
  CHECK(loading_ == event.model);
  loading_.reset();
  Hosted& hosted = models_.at(event.model);
  residency_.finish_load(event.model, event.status.ok(), now);
  hosted.progress = event.status.ok() ? 1.0f : 0.0f;
  hosted.load_error = event.status.ok() ? "" : std::string(event.status.message());
  hosted.loads += event.status.ok();
  hosted.fresh = event.status.ok();
  hosted.wanted_since = kForever;
  changed_ = residency_changed_ = true;
  if (event.status.ok()) return;
  hosted.pinned = false;
  effects.push_back(DropWeights{event.model});
  std::vector<RequestId> failed;
  for (const auto& [id, owner] : owners_) {
    if (owner.model == event.model) failed.push_back(id);
  }
  std::sort(failed.begin(), failed.end());
  for (const RequestId id : failed) {  // only its own requests, and with the reason
    const Owner owner = owners_.at(id);
    const Request request = hosted.engine->request(id);
    CHECK(hosted.engine->cancel(id));
    owners_.erase(id);
    Request state = request;
    state.epoch = owner.epoch;
    refuse(owner.gateway, state,
           Status(StatusCode::kInternal, absl::StrCat("model '", hosted.facts.name, "' could not be loaded: ", event.status.message())),
           effects);
  }
}

uint32_t Node::idle_kv_pages(const Hosted& hosted) const {
  if (hosted.engine->step_in_flight()) return 0;
  // From above: each cached block may have a slab to itself, or share one with a busy block. What is missing shows when
  // the load cannot begin.
  const uint32_t slabs = std::min(hosted.engine->blocks_cached(), hosted.blocks->slabs_bound());
  return slabs * slab_pages_for(hosted.facts.kv_block_bytes);
}

ModelView Node::view_of(const Hosted& hosted) const {
  ModelView view;
  view.model = hosted.facts.model;
  view.resident = residency_.state(view.model) == WeightsState::kOnDevice;
  view.loading = residency_.state(view.model) == WeightsState::kLoading;
  view.wanted = hosted.wanted_since != kForever;
  view.wanted_since = hosted.wanted_since;
  view.busy = hosted.engine->running() > 0 || hosted.engine->step_in_flight() || (hosted.fresh && hosted.engine->has_work());
  view.queued = hosted.engine->waiting() > 0;
  view.pinned = hosted.pinned;
  view.weight_pages = residency_.weight_pages(view.model);
  view.kv_pages_min = kv_pages_min(hosted.facts);
  view.kv_pages_idle = idle_kv_pages(hosted);
  view.last_used = residency_.last_used(view.model);
  return view;
}

void Node::drop_weights(Hosted& hosted, std::vector<Effect>& effects) {
  CHECK(stepping_ != hosted.facts.model);
  hosted.engine->drop_cached();
  flush_slab_changes(effects);
  effects.push_back(DropWeights{hosted.facts.model});
  residency_.drop(hosted.facts.model);
  hosted.progress = 0.0f;
  changed_ = residency_changed_ = true;
}

void Node::switch_models(TimePoint now, std::vector<Effect>& effects) {
  std::vector<ModelView> views;
  for (auto& [id, hosted] : models_) {
    const bool resident = residency_.state(id) == WeightsState::kOnDevice;
    if (hosted.unload_asked && resident && !hosted.engine->has_work() && stepping_ != id) drop_weights(hosted, effects);
    if (residency_.state(id) != WeightsState::kLoading) hosted.unload_asked &= residency_.state(id) == WeightsState::kOnDevice;
    // wanted: has requests (or was asked for) and is not there. The instant it began to wait decides its turn.
    const bool wanted = residency_.state(id) == WeightsState::kOnDisk && (hosted.engine->has_work() || hosted.pinned);
    if (!wanted) hosted.wanted_since = kForever;
    if (wanted && hosted.wanted_since == kForever) hosted.wanted_since = now;
    views.push_back(view_of(hosted));
  }
  const SwitchPlan plan = plan_switch(views, {pages_.capacity(), pages_.free()}, config_.switching, now);
  if (pressure_ && models_.at(pressure_->model).engine->oldest_running() != pressure_->request) pressure_.reset();
  for (auto& [id, hosted] : models_) {
    const bool held = !hosted.fresh && std::find(plan.hold.begin(), plan.hold.end(), id) != plan.hold.end();
    hosted.engine->set_admitting(!held && (!pressure_ || pressure_->model == id));
  }
  for (const ModelId id : plan.trim) models_.at(id).engine->drop_cached();
  if (!plan.load) {
    for (const ModelView& view : views) {
      if (!view.wanted) continue;
      const TimePoint overdue = view.wanted_since + config_.switching.hold_after;
      if (now < overdue) effects.push_back(WakeAt{overdue});
    }
    return;
  }
  for (const ModelId id : plan.drop) drop_weights(models_.at(id), effects);
  flush_slab_changes(effects);
  auto runs = residency_.begin_load(*plan.load);
  if (!runs) {  // idle KV was counted from blocks that share slabs with busy ones; now the pool says what came free
    effects.push_back(WakeAt{now});
    return;
  }
  loading_ = *plan.load;
  models_.at(*plan.load).progress = 0.0f;
  models_.at(*plan.load).load_error.clear();
  changed_ = residency_changed_ = true;
  effects.push_back(LoadWeights{*plan.load, *std::move(runs)});
}

void Node::start_step(TimePoint now, std::vector<Effect>& effects) {
  while (!stepping_) {
    std::vector<TurnView> turns;
    for (const auto& [id, hosted] : models_) {
      const bool resident = residency_.state(id) == WeightsState::kOnDevice;
      turns.push_back({id, resident && hosted.engine->runnable() && !hosted.stalled, hosted.last_turn});
    }
    const std::optional<ModelId> model = next_turn(turns);
    if (!model) {
      const bool any_stalled = std::any_of(models_.begin(), models_.end(), [](const auto& m) { return m.second.stalled; });
      if (any_stalled && free_stuck_memory(now, effects)) continue;
      break;
    }
    Hosted& hosted = models_.at(*model);
    hosted.last_turn = ++turn_;
    std::optional<StepInput> input = hosted.engine->begin_step(now);
    if (!input) {
      hosted.stalled = true;  // until memory comes free or something changes
      continue;
    }
    flush_slab_changes(effects);
    hosted.fresh = false;
    stepping_ = *model;
    effects.push_back(StartStep{*model, *std::move(input)});
  }
  for (auto& [id, hosted] : models_) hosted.stalled = false;
}

// Every model with work is out of blocks. In this order: KV that only the index holds, weights of idle models, the
// youngest sequence of a model other than that of the oldest request, weights of models whose requests are all still
// waiting. False if nobody holds anything that could be given up.
bool Node::free_stuck_memory(TimePoint now, std::vector<Effect>& effects) {
  const auto freed = [&] {
    for (auto& [id, hosted] : models_) hosted.stalled = false;
    return true;
  };
  bool cached = false;
  for (auto& [id, hosted] : models_) {
    cached |= hosted.engine->blocks_cached() > 0;
    hosted.engine->drop_cached();
  }
  if (cached) return freed();
  if (drop_least_recent(/*with_waiting=*/false, now, effects)) return freed();
  if (preempt_for_oldest()) return freed();
  return drop_least_recent(/*with_waiting=*/true, now, effects) && freed();
}

// The oldest request under way gets what it needs, and keeps it: without that, two models could take turns in throwing
// each other out for ever.
bool Node::preempt_for_oldest() {
  Hosted* protected_model = nullptr;
  uint64_t oldest = UINT64_MAX;
  for (auto& [id, hosted] : models_) {
    const std::optional<RequestId> front = hosted.engine->oldest_running();
    const auto owner = front ? owners_.find(*front) : owners_.end();
    if (owner == owners_.end() || owner->second.order >= oldest) continue;
    oldest = owner->second.order;
    protected_model = &hosted;
  }
  if (protected_model == nullptr) return false;
  Hosted* victim = nullptr;
  for (auto& [id, hosted] : models_) {
    if (&hosted == protected_model || hosted.engine->running() == 0) continue;
    if (victim == nullptr || hosted.last_turn > victim->last_turn) victim = &hosted;
  }
  if (victim == nullptr) return false;
  pressure_ = {protected_model->facts.model, *protected_model->engine->oldest_running()};
  for (auto& [id, hosted] : models_) hosted.engine->set_admitting(&hosted == protected_model);
  return victim->engine->preempt_youngest();
}

// Drops the weights of the resident model used longest ago among those with nothing under way, one that has not had its
// turn yet last.
bool Node::drop_least_recent(bool with_waiting, TimePoint now, std::vector<Effect>& effects) {
  Hosted* victim = nullptr;
  uint32_t resident = 0;
  for (auto& [id, hosted] : models_) {
    if (residency_.state(id) != WeightsState::kOnDevice) continue;
    ++resident;
    if (hosted.engine->running() > 0 || (hosted.engine->waiting() > 0 && !with_waiting)) continue;
    const auto rank = [this](const Hosted& h) { return std::pair(h.fresh, residency_.last_used(h.facts.model)); };
    if (victim == nullptr || rank(hosted) < rank(*victim)) victim = &hosted;
  }
  if (victim == nullptr || resident < 2) return false;
  drop_weights(*victim, effects);
  effects.push_back(WakeAt{now});  // who comes next on the device is to be decided anew
  return true;
}

void Node::flush_slab_changes(std::vector<Effect>& effects) {
  RemapSlabs remap;
  for (auto& [bytes, blocks] : shape_classes_) {
    for (SlabChange& change : blocks->take_changes()) remap.changes.push_back(std::move(change));
  }
  if (remap.changes.empty()) return;
  // Pages given back by one class may have gone to another: releases first, they never depend on what is bound here.
  std::stable_partition(remap.changes.begin(), remap.changes.end(), [](const SlabChange& c) { return !c.bound; });
  effects.push_back(std::move(remap));
}

NodeStatus Node::status() const {
  NodeStatus status;
  status.version = status_version_;
  status.device_bytes = pages_.capacity() * kPageBytes;
  status.device_bytes_free = pages_.free() * kPageBytes;
  for (const auto& [id, hosted] : models_) {
    const Engine& engine = *hosted.engine;
    const EngineCounters& counters = engine.counters();
    ModelStatus m;
    m.model = id;
    switch (residency_.state(id)) {
      case WeightsState::kOnDisk: m.state = hosted.load_error.empty() ? ModelState::kUnloaded : ModelState::kFailed; break;
      case WeightsState::kLoading: m.state = ModelState::kLoading; break;
      case WeightsState::kOnDevice: m.state = ModelState::kLoaded; break;
    }
    m.progress = hosted.progress;
    m.error = hosted.load_error;
    m.waiting = static_cast<uint32_t>(engine.waiting());
    m.running = static_cast<uint32_t>(engine.running());
    m.weight_bytes = m.state == ModelState::kLoaded ? hosted.facts.weight_bytes : 0;
    m.kv_bytes_active = engine.blocks_active() * hosted.facts.kv_block_bytes;
    m.kv_bytes_used = m.kv_bytes_active + engine.blocks_cached() * hosted.facts.kv_block_bytes;
    m.max_model_len = hosted.facts.max_model_len;
    m.prompt_tokens = counters.prompt_tokens;
    m.generated_tokens = counters.generated_tokens;
    m.prefix_queries = counters.prefix_queries;
    m.prefix_hits = counters.prefix_hits;
    m.preemptions = counters.preemptions;
    m.steps = counters.steps;
    m.steps_by_tokens.assign(counters.steps_by_tokens.begin(), counters.steps_by_tokens.end());
    m.step_tokens = counters.step_tokens;
    m.loads = hosted.loads;
    status.models.push_back(std::move(m));
  }
  return status;
}

void Node::report(TimePoint now, std::vector<Effect>& effects) {
  if (!changed_) return;
  const bool now_due = residency_changed_ || now >= next_report_;
  if (!now_due) {
    effects.push_back(WakeAt{next_report_});
    return;
  }
  ++status_version_;
  const NodeStatus snapshot = status();
  for (const NodeId gateway : config_.gateways) effects.push_back(Send{gateway, snapshot});
  changed_ = residency_changed_ = false;
  next_report_ = now + config_.status_interval;
}

bool Node::idle() const { return owners_.empty() && !stepping_ && !loading_; }

void Node::check() const {
  pages_.check();
  residency_.check();
  uint64_t kv_pages = 0;
  for (const auto& [bytes, blocks] : shape_classes_) {
    blocks->check();
    kv_pages += blocks->pages_bound();
  }
  CHECK_EQ(kv_pages + residency_.pages_held() + pages_.free(), uint64_t{pages_.capacity()});
  std::map<uint64_t, uint64_t> held;  // blocks by shape class, as the engines count them
  for (const auto& [id, hosted] : models_) {
    hosted.engine->check();
    CHECK_EQ(hosted.engine->step_in_flight(), stepping_ == id);
    held[hosted.facts.kv_block_bytes] += hosted.engine->blocks_held();
  }
  for (const auto& [bytes, blocks] : shape_classes_) CHECK_EQ(held[bytes], uint64_t{blocks->used()});
  for (const auto& [id, owner] : owners_) CHECK(models_.at(owner.model).engine->has(id));
}

}  // namespace shoal
