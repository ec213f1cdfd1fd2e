#include "roles/node.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal {
namespace {

// Until a model is tried again whose step could not go on.
constexpr Duration kDeferralMin = std::chrono::milliseconds(2), kDeferralMax = std::chrono::milliseconds(200);

Status too_long(const NodeModel& model, Duration wait) {
  return unavailable("model '", model.name, "' would begin this request after ", to_seconds(wait), " s or more; its limit (max_wait) is ",
                     to_seconds(model.pooling.max_wait), " s");
}

}  // namespace

Node::Node(const NodeConfig& config)
    : config_(config), pages_(config.pages), host_(config.host_pages), residency_(pages_), duty_(config.duty), round_(config.turns), prompts_(config.prompts) {
  for (const NodeModel& facts : config_.models) host_model(facts);
  choose_static();
  for (auto& [id, hosted] : models_) {
    if (hosted.pinned) wake(hosted);
  }
}

Node::~Node() = default;

// What was sent in a life that ended is of nobody.
void Node::on_message(const MessageFrom& event, TimePoint now, std::vector<Effect>& effects) {
  const auto life = lives_.find(event.from);
  if (life != lives_.end() && event.of_life_before(life->second)) return;
  if (const auto* submit = std::get_if<Submit>(&event.message)) on_submit(event.from, *submit, now, effects);
  if (const auto* cancel = std::get_if<Cancel>(&event.message)) on_cancel(*cancel, effects);
  if (const auto* resident = std::get_if<SetResident>(&event.message)) on_set_resident(*resident, now);
  if (const auto* settings = std::get_if<Configure>(&event.message)) on_configure(*settings);
  if (const auto* wanted = std::get_if<KvWanted>(&event.message)) on_kv_wanted(event.from, *wanted, effects);
  if (const auto* granted = std::get_if<KvGranted>(&event.message)) on_kv_granted(event.from, *granted, now, effects);
  if (const auto* taken = std::get_if<KvTaken>(&event.message)) on_kv_taken(event.from, *taken, now);
  if (const auto* shed = std::get_if<Shed>(&event.message)) on_shed(*shed);
  if (const auto* duty = std::get_if<SetDuty>(&event.message)) duty_ = duty->duty;
}

std::vector<Effect> Node::handle(const Event& event, TimePoint now) {
  std::vector<Effect> effects;
  log_.at(now);
  switches_.advance(now, !stepping_, [this](ModelId m) { return models_.at(m).engine->has_work(); });
  if (const auto* e = std::get_if<MessageFrom>(&event)) {
    on_message(*e, now, effects);
  } else if (const auto* e = std::get_if<StepDone>(&event)) {
    on_step_done(*e, now, effects);
  } else if (const auto* e = std::get_if<WeightsReady>(&event)) {
    on_weights_ready(*e, now, effects);
  } else if (const auto* e = std::get_if<WeightsPacked>(&event)) {
    on_weights_packed(*e, now, effects);
  } else if (const auto* e = std::get_if<KvCopied>(&event)) {
    on_kv_copied(*e, now, effects);
  } else if (const auto* e = std::get_if<LoadProgress>(&event)) {
    if (const auto found = models_.find(e->model); found != models_.end()) found->second.progress = e->progress;
    changed_ = true;
  } else if (const auto* e = std::get_if<DigestKnown>(&event)) {
    const auto found = models_.find(e->model);
    if (found != models_.end() && found->second.weights.stamp == e->weights.stamp) found->second.weights = e->weights;
  } else if (const auto* e = std::get_if<ModelAdded>(&event)) {
    host_model(e->model);
    choose_static();
  } else if (const auto* e = std::get_if<ModelRetired>(&event)) {
    on_model_retired(*e);
  } else if (std::holds_alternative<DrainRequested>(event)) {
    draining_ = true;
  } else if (const auto* e = std::get_if<ClusterChanged>(&event)) {
    on_cluster(e->state, now, effects);
  }
  take_withheld(now, effects);
  end_waits(now, effects);
  end_offers(now, effects);
  hand_over_leaving(now, effects);
  switch_models(now, effects);
  start_step(now, effects);
  flush_slab_changes(effects);
  let_sleep(now, effects);
  report(now, effects);
  return effects;
}

void Node::refuse(NodeId to, const Request& request, const Status& why, std::vector<Effect>& effects, Duration retry_after) {
  Tokens end;
  end.id = request.id;
  end.epoch = request.epoch;
  end.first_index = static_cast<uint32_t>(request.output.size());
  end.finish = FinishReason::kError;
  end.error = std::string(why.message());
  end.error_code = why.code();
  end.retry_after = retry_after;
  effects.push_back(Send{to, std::move(end)});
}

void Node::on_submit(NodeId from, const Submit& message, TimePoint now, std::vector<Effect>& effects) {
  const Request& request = message.request;
  if (const auto owned = owners_.find(request.id); owned != owners_.end()) {
    if (owned->second.epoch >= request.epoch) return;  // a repetition, or an owner of before
    withdraw(owned, effects);
  }
  const auto before = withheld_.find(request.id);
  if (before != withheld_.end() && before->second.submit.request.epoch >= request.epoch) return;
  if (before != withheld_.end()) forget(withheld_, before, effects);
  const auto model = models_.find(request.model);
  if (model != models_.end() && model->second.engine->has(request.id)) {
    withheld_[request.id] = {from, message, now};
  } else if (!await_kv(from, message, now, effects)) {
    accept(from, message, std::nullopt, now, effects);
  }
}

void Node::take_withheld(TimePoint now, std::vector<Effect>& effects) {
  for (auto it = withheld_.begin(); it != withheld_.end();) {
    if (models_.at(it->second.submit.request.model).engine->has(it->first)) {
      ++it;
      continue;
    }
    const Awaiting withheld = std::move(it->second);
    it = withheld_.erase(it);
    on_submit(withheld.gateway, withheld.at(now), now, effects);
  }
}

// It is not taken any more.
void Node::forget(AwaitingList& list, AwaitingList::iterator entry, std::vector<Effect>& effects) {
  if (entry->second.submit.kv) release(entry->first, *entry->second.submit.kv, effects);
  list.erase(entry);
}

// `kv` is the caller's if the request is refused: false.
bool Node::accept(NodeId from, const Submit& message, const std::optional<HostKv>& kv, TimePoint now, std::vector<Effect>& effects) {
  const Request& request = message.request;
  const auto no = [&](const Status& why, Duration retry_after = Duration(0)) {
    refuse(from, request, why, effects, retry_after);
    return false;
  };
  const auto found = models_.find(request.model);
  if (found == models_.end()) return no(unavailable("this node does not serve model ", request.model.value, " any more"));
  Hosted& hosted = found->second;
  const ModelDigest begun_with = !request.output.empty() ? request.weights : kv ? message.kv->weights : ModelDigest();
  if (begun_with.given() && resident(hosted) && !same_weights(begun_with, hosted.weights)) return no(replaced(hosted.facts, !request.output.empty()));
  const bool begun = !request.output.empty() || kv;  // elsewhere: it has been admitted
  const Duration wait = begun ? Duration(0) : predicted_wait(hosted, turns_ahead());
  const Duration waited = begun ? Duration(0) : message.waited;
  if (const Status status = may_take(hosted, waited, wait); !status.ok()) return no(status, std::max(Duration(0), wait - hosted.facts.pooling.max_wait));
  Request accepted = request;
  accepted.arrival = now - message.waited;  // on this node's clock
  if (const Status status = hosted.engine->submit(accepted, kv); !status.ok()) return no(status);
  wake(hosted);
  if (hosted.wanted_since == kForever) hosted.wanted_since = now;
  Owner& owner = owners_[request.id] = {from, request.epoch, request.model, next_order_++};
  owner.stays = message.kv && message.kv->node == config_.self;
  owner.weights = begun_with;
  if (!kv) queue_prompt(accepted, owner, hosted, now);
  changed_ = true;
  return true;
}

// `waited`: since it came to the endpoint. `wait`: from now on, as predicted.
Status Node::may_take(const Hosted& hosted, Duration waited, Duration wait) const {
  if (draining_) return unavailable("this node is draining");
  if (!hosted.excluded.ok()) return hosted.excluded;
  if (!resident(hosted) && !fits_beside_pinned(hosted)) {
    return resource_exhausted("model '", hosted.facts.name, "' does not fit the device beside the models pinned to it; "
                              "unload one of them, or raise --device-memory");
  }
  return wait > hosted.facts.pooling.max_wait - waited ? too_long(hosted.facts, waited + wait) : OkStatus();
}

void Node::queue_prompt(const Request& request, Owner& owner, Hosted& hosted, TimePoint now) {
  if (hosted.facts.pooling.max_wait < kForever - now && request.output.empty()) {
    owner.begin_by = request.arrival + hosted.facts.pooling.max_wait;
    bounds_.emplace(owner.begin_by, request.id);
  }
  if (!token_level()) return;
  const SloTarget slo = tightened(hosted.facts.pooling.slo, request.ttft_max, request.tbt_max);
  PrefillJob job{request.id, request.model, 0, deadline(slo, request.arrival, request.output.size() + 1)};
  job.seconds = hosted.costs.prefill_seconds(0, request.prompt.size() + request.output.size(), config_.limits.tokens_per_step);
  prompts_.add(job, [this](ModelId m) { return resident(models_.at(m)) ? 0 : switch_seconds(models_.at(m)); }, now);
  owner.prompt_queued = true;
  ++hosted.prompts_queued;
}

void Node::begun(RequestId request, Owner& owner) {
  bounds_.erase({std::exchange(owner.begin_by, kForever), request});
  if (!owner.prompt_queued) return;
  CHECK(prompts_.remove(request));
  owner.prompt_queued = false;
  --models_.at(owner.model).prompts_queued;
}

void Node::erase(Owners::iterator owner) {
  begun(owner->first, owner->second);
  leaving_.erase(owner->first);
  owners_.erase(owner);
}

void Node::withdraw(Owners::iterator owner, std::vector<Effect>& effects) {
  const RequestId id = owner->first;
  models_.at(owner->second.model).engine->cancel(id);
  erase(owner);
  settle_fetch(id, effects);
  changed_ = true;
}

// max_wait is a bound, not a wish, and runs from the arrival: who was admitted and could not begin in time hears so.
void Node::end_waits(TimePoint now, std::vector<Effect>& effects) {
  while (!bounds_.empty() && bounds_.begin()->first <= now) {
    const auto owner = owners_.find(bounds_.begin()->second);
    const Hosted& hosted = models_.at(owner->second.model);
    fail(owner, too_long(hosted.facts, hosted.facts.pooling.max_wait), effects, predicted_wait(hosted, turns_ahead()));
  }
  if (!bounds_.empty()) effects.push_back(WakeAt{bounds_.begin()->first});
}

void Node::on_cancel(const Cancel& message, std::vector<Effect>& effects) {
  for (auto* list : {&awaiting_, &withheld_}) {
    const auto waiting = list->find(message.id);
    if (waiting != list->end() && waiting->second.submit.request.epoch == message.epoch) forget(*list, waiting, effects);
  }
  const auto found = owners_.find(message.id);
  if (found != owners_.end() && found->second.epoch == message.epoch) withdraw(found, effects);
}

void Node::on_step_done(const StepDone& event, TimePoint now, std::vector<Effect>& effects) {
  CHECK(stepping_ == event.model);
  stepping_.reset();
  idle_since_ = now;
  Hosted& hosted = models_.at(event.model);
  residency_.touch(event.model, now);
  const double seconds = to_seconds(now - step_began_);
  log_.step_ended();
  if (!event.result.deferred.ok()) return on_step_deferred(hosted, event.result, now, effects);
  hosted.deferrals = 0;
  if (!step_beside_packing_) count_step(hosted, seconds);
  if (hosted.turn_steps++ > 0 && !step_beside_packing_) hosted.spent_seconds += seconds;  // the quota's clock starts after the first step
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
    if (delta.error.code() == StatusCode::kDataLoss) delta.error = could_not_load(hosted.facts, delta.error);
    tokens.error = std::string(delta.error.message());
    tokens.error_code = delta.error.code();
    tokens.cached_prompt_tokens = delta.cached_prompt_tokens;
    tokens.queued = delta.queued;
    tokens.weights = owner->second.weights;
    hosted.fresh = false;
    const NodeId gateway = owner->second.gateway;
    if (delta.finish) {
      erase(owner);
    } else if (duty_ == Duty::kPrefill && !owner->second.stays) {
      leaving_.insert(delta.request);
    }
    effects.push_back(Send{gateway, std::move(tokens)});
  }
  end_failed_packing(effects);
  changed_ = true;
}

// Nothing of the step counts. The model is tried again soon, then less often; until then the device is for others, and what
// coming back to try takes of their time is bounded.
void Node::on_step_deferred(Hosted& hosted, const StepResult& result, TimePoint now, std::vector<Effect>& effects) {
  CHECK(hosted.engine->finish_step(result).empty());
  if (const auto ended = std::exchange(ended_load_, std::nullopt)) observe_switch(*ended, 0);
  const Duration most = std::max(kDeferralMax, from_seconds(4 * switch_seconds(hosted)));
  hosted.deferred_until = now + std::min(most, kDeferralMin * (1 << std::min(hosted.deferrals++, 16u)));
  hosted.fresh = false;  // it may go without a token
  effects.push_back(WakeAt{hosted.deferred_until});
  end_failed_packing(effects);
  changed_ = true;
}

// What a step takes longer beside a load is a cost of that switch (both may want the same cores), not of the step.
void Node::count_step(Hosted& hosted, double seconds) {
  constexpr uint64_t kKnown = 16;
  const double extra = seconds - hosted.costs.step_seconds(step_work_);
  if (!step_beside_load_ || hosted.costs.steps_observed() < kKnown) hosted.costs.observe_step(step_work_, seconds);
  if (!step_beside_load_) return;
  if (ended_load_) {
    observe_switch(*ended_load_, extra);
    ended_load_.reset();
  } else if (loading_) {
    load_waited_ += from_seconds(extra);  // either sign: a prediction that is off is off both ways
  }
}

// Only its own requests, and with the reason. REQUIRES: none is in a step.
void Node::fail_requests_of(Hosted& hosted, const Status& why, std::vector<Effect>& effects) {
  std::vector<RequestId> failed;
  for (const auto& [id, owner] : owners_) {
    if (owner.model == hosted.facts.model) failed.push_back(id);
  }
  std::sort(failed.begin(), failed.end());
  for (const RequestId id : failed) fail(owners_.find(id), why, effects);
}

void Node::fail(Owners::iterator owner, const Status& why, std::vector<Effect>& effects, Duration retry_after) {
  Engine& engine = *models_.at(owner->second.model).engine;
  Request state = engine.request(owner->first);
  state.epoch = owner->second.epoch;
  CHECK(engine.cancel(owner->first));
  refuse(owner->second.gateway, state, why, effects, retry_after);
  erase(owner);
  settle_fetch(state.id, effects);
}

void Node::flush_slab_changes(std::vector<Effect>& effects) {
  if (RemapSlabs host{host_.take_changes(), Tier::kHost}; !host.changes.empty()) effects.push_back(std::move(host));
  RemapSlabs remap;
  for (auto& [bytes, blocks] : shape_classes_) {
    for (SlabChange& change : blocks->take_changes()) remap.changes.push_back(std::move(change));
  }
  if (remap.changes.empty()) return;
  // Pages given back by one class may have gone to another: releases first, they never depend on what is bound here.
  std::stable_partition(remap.changes.begin(), remap.changes.end(), [](const SlabChange& c) { return !c.bound; });
  effects.push_back(std::move(remap));
}

bool Node::idle() const { return owners_.empty() && !stepping_ && !loading_ && !packing_ && moves_ == 0 && offers_.empty() && awaiting_.empty() && withheld_.empty(); }

void Node::check() const {
  pages_.check();
  residency_.check();
  uint64_t kv_pages = 0;
  for (const auto& [bytes, blocks] : shape_classes_) {
    blocks->check();
    kv_pages += blocks->pages_bound();
  }
  CHECK_EQ(kv_pages + residency_.pages_held() + pages_.free(), uint64_t{pages_.capacity()});
  host_.check();
  std::map<uint64_t, uint64_t> held, parked;  // blocks by shape class, as the engines count them
  uint64_t moves = 0;
  for (const auto& [id, hosted] : models_) {
    hosted.engine->check();
    CHECK_EQ(hosted.engine->step_in_flight(), stepping_ == id);
    held[hosted.facts.kv_block_bytes] += hosted.engine->blocks_active() + hosted.engine->blocks_cached();
    parked[hosted.facts.kv_block_bytes] += hosted.engine->parking().host_blocks_held();
    moves += hosted.engine->parking().moves();
  }
  CHECK_EQ(moves, moves_);
  for (const auto& [id, hosted] : models_) CHECK(awake_.contains(id) || (!hosted.engine->has_work() && hosted.engine->blocks_active() + hosted.engine->blocks_cached() == 0));
  for (const auto& [key, offer] : offers_) {
    parked[offer.block_bytes] += offer.blocks.size();
    CHECK(offers_due_ <= offer.due);
  }
  for (const auto& [bytes, blocks] : parked) CHECK_EQ(blocks, uint64_t{host_.blocks_used(bytes)});
  for (const RequestId id : leaving_) CHECK(owners_.contains(id));
  for (const auto& [id, waiting] : awaiting_) CHECK(waiting.submit.kv.has_value());
  for (const auto& [id, waiting] : withheld_) CHECK(!owners_.contains(id) && models_.at(waiting.submit.request.model).engine->has(id));
  for (const auto& [id, fetch] : fetches_) CHECK(models_.at(fetch.model).engine->kv_is_remote(id));
  for (const auto& [bytes, blocks] : shape_classes_) CHECK_EQ(held[bytes], uint64_t{blocks->used()});
  size_t queued = 0, bounded = 0;
  for (const auto& [id, owner] : owners_) {
    bounded += owner.begin_by != kForever;
    CHECK(models_.at(owner.model).engine->has(id));
    queued += owner.prompt_queued;
  }
  CHECK_EQ(bounds_.size(), bounded);
  prompts_.check();
  CHECK_EQ(prompts_.size(), queued);
}

}  // namespace shoal
