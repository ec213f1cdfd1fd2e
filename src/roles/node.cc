#include "roles/node.h"

#include <algorithm>
#include <utility>

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
    : config_(config), catalogue_(config_), handovers_(config_.self, config_.offer_time, catalogue_.host_tier()),
      requests_(catalogue_, handovers_, config_.prompts), loads_(config_.load_bytes_per_second), quotas_(config_, catalogue_, requests_, loads_),
      scheduler_({config_, catalogue_, handovers_, requests_, loads_, quotas_, journal_}), reporter_(config_, catalogue_, scheduler_, quotas_, journal_),
      instance_role_(config_.instance_role) {
  choose_served();
}

Node::~Node() = default;

std::vector<Effect> Node::handle(const Event& event, TimePoint now) {
  std::vector<Effect> effects;
  journal_.device.at(now);
  journal_.switches.advance(now, !step_in_flight(), [this](ModelId m) { return catalogue_.at(m).engine->has_work(); });
  dispatch(event, now, effects);
  const auto gone = [this](ModelId model, RequestId id) { return !catalogue_.at(model).engine->has(id); };
  for (const Handovers::Arrival& a : handovers_.take_withheld(gone, now)) on_submit(a.gateway, a.submit, now, effects);
  end_waits(now, effects);
  handovers_.end_due(now, effects);
  hand_over_leaving(now, effects);
  scheduler_.schedule(now, effects);
  for (const auto& [id, hosted] : catalogue_.active()) {
    const WaitingLine& line = hosted.engine->line();
    while (const std::optional<RequestId> last = line.surplus()) requests_.fail(*last, line.full(), effects, quotas_.wait(hosted));
  }
  catalogue_.take_slab_changes(effects);
  forget_idle_models(now, effects);
  reporter_.report(instance_role_, now, effects);
  return effects;
}

void Node::dispatch(const Event& event, TimePoint now, std::vector<Effect>& effects) {
  if (const auto* e = std::get_if<MessageFrom>(&event)) return dispatch(*e, now, effects);
  if (const auto* e = std::get_if<StepDone>(&event)) return on_step_done(*e, now, effects);
  if (const auto* e = std::get_if<WeightsReady>(&event)) return on_weights_ready(*e, now, effects);
  if (const auto* e = std::get_if<WeightsPacked>(&event)) return on_weights_packed(*e, now, effects);
  if (const auto* e = std::get_if<KvCopied>(&event)) return scheduler_.end_move(*e, now, effects);
  if (const auto* e = std::get_if<ModelAdded>(&event)) return on_model_added(*e);
  if (const auto* e = std::get_if<ModelRetired>(&event)) return on_model_retired(*e);
  if (const auto* e = std::get_if<PeerLost>(&event)) return end_lives({.before = {{e->peer, 0}}}, now, effects);
  if (std::holds_alternative<PeerConnected>(event)) journal_.residency();  // it has heard nothing yet
  if (const auto* e = std::get_if<ClusterChanged>(&event)) {
    reporter_.learn(e->state);
    if (const auto change = handovers_.learn(e->state)) end_lives(*change, now, effects);
  }
  if (std::holds_alternative<DrainRequested>(event)) draining_ = true;
  if (const auto* e = std::get_if<DigestKnown>(&event)) {
    HostedModel* hosted = catalogue_.find(e->model);
    if (hosted != nullptr && hosted->weights.stamp == e->weights.stamp) hosted->weights = e->weights;
  }
  if (const auto* e = std::get_if<LoadProgress>(&event)) {
    if (HostedModel* hosted = catalogue_.find(e->model)) hosted->progress = e->progress;
    journal_.changed = true;
  }
}

// What was sent in a life that ended is of nobody.
void Node::dispatch(const MessageFrom& event, TimePoint now, std::vector<Effect>& effects) {
  if (event.of_life_before(handovers_.epoch_of(event.from).value_or(0))) return;
  if (const auto change = handovers_.hear(event.from, event.life)) end_lives(*change, now, effects);
  if (const auto* m = std::get_if<Submit>(&event.message)) on_submit(event.from, *m, now, effects, event.unknown_model);
  if (!event.unknown_model.empty()) return;
  if (const auto* m = std::get_if<Cancel>(&event.message)) on_cancel(*m, effects);
  if (const auto* m = std::get_if<SetResident>(&event.message)) on_set_resident(*m, now);
  if (const auto* m = std::get_if<Configure>(&event.message)) on_configure(*m);
  if (const auto* m = std::get_if<KvWanted>(&event.message)) handovers_.on_wanted(event.from, *m, effects);
  if (const auto* m = std::get_if<KvGranted>(&event.message)) on_kv_granted(event.from, *m, now, effects);
  if (const auto* m = std::get_if<KvTaken>(&event.message)) handovers_.on_taken(event.from, *m, now);
  if (const auto* m = std::get_if<MigrateRequests>(&event.message)) {
    for (const RequestId id : requests_.of_model(m->model)) {
      if (!requests_.find(id)->stays) handovers_.leave(id);
    }
  }
  if (const auto* m = std::get_if<SetInstanceRole>(&event.message)) instance_role_ = m->instance_role;
}

void Node::on_submit(NodeId from, const Submit& message, TimePoint now, std::vector<Effect>& effects, std::string_view unknown_model) {
  const Request& request = message.request;
  if (const AcceptedRequest* owned = requests_.find(request.id)) {
    if (owned->epoch >= request.epoch) return;  // a repetition, or an owner of before
    requests_.withdraw(request.id, effects);
    journal_.changed = true;
  }
  if (handovers_.withholds(request.id, request.epoch, effects)) return;
  if (!unknown_model.empty()) {  // another node may have it
    if (message.kv) handovers_.release(request.id, *message.kv, effects);
    return refuse(from, request, unavailable(std::string(unknown_model)), effects);
  }
  const HostedModel* model = catalogue_.find(request.model);
  if (model != nullptr && model->engine->has(request.id)) return handovers_.withhold(from, message, now);
  receive(from, message, now, effects);
}

// `kv` is the caller's if the request is refused: false.
bool Node::accept(NodeId from, const Submit& message, const std::optional<HostKv>& kv, TimePoint now, std::vector<Effect>& effects) {
  const Request& request = message.request;
  const auto no = [&](const Status& why, Duration retry_after = Duration(0)) {
    refuse(from, request, why, effects, retry_after);
    return false;
  };
  HostedModel* const hosted = catalogue_.find(request.model);
  if (hosted == nullptr) return no(unavailable("this node does not serve model ", request.model.value, " any more"));
  const ModelDigest begun_with = !request.output.empty() ? request.weights : kv ? message.kv->weights : ModelDigest();
  if (begun_with.given() && catalogue_.resident(*hosted) && !same_weights(begun_with, hosted->weights)) return no(weights_replaced(hosted->facts, !request.output.empty()));
  const bool begun = !request.output.empty() || kv;  // elsewhere: it has been admitted
  const Duration wait = begun ? Duration(0) : quotas_.wait(*hosted, request.payer);
  const Duration waited = begun ? Duration(0) : message.waited;
  if (const Status status = may_take(*hosted, waited, wait); !status.ok()) return no(status, std::max(Duration(0), wait - hosted->facts.pooling.max_wait));
  Request accepted = request;
  accepted.arrival = now - message.waited;  // on this node's clock
  if (!begun) {
    hosted->arrivals.add(now);
    scheduler_.home().came(*hosted);
    quotas_.came(*hosted, now);
    hosted->prompt_tokens.add(static_cast<double>(request.prompt.size()), MovingMean::kOfRequests);
  }
  const bool had_work = hosted->engine->has_work();
  if (const Status status = hosted->engine->submit(accepted, kv); !status.ok()) return no(status);
  if (!had_work && catalogue_.away(*hosted)) quotas_.look_anew();
  catalogue_.activate(*hosted);
  catalogue_.likeness().believe_costs(*hosted);
  if (hosted->wanted_since == kForever) hosted->wanted_since = now;
  const bool stays = message.kv && message.kv->node == config_.self;
  requests_.add(request.id, {.gateway = from, .epoch = request.epoch, .model = request.model, .stays = stays, .weights = begun_with});
  if (!kv) queue_prompt(accepted, *hosted, now);
  journal_.changed = true;
  return true;
}

// `waited`: since it came to the endpoint. `wait`: from now on, as predicted.
Status Node::may_take(const HostedModel& hosted, Duration waited, Duration wait) const {
  if (draining_) return unavailable("this node is draining");
  if (!hosted.excluded.ok()) return hosted.excluded;
  if (!catalogue_.resident(hosted) && !catalogue_.fits_beside_pinned(hosted)) return does_not_fit_beside_pinned(hosted.facts);
  return wait > hosted.facts.pooling.max_wait - waited ? too_long(hosted.facts, waited + wait) : OkStatus();
}

void Node::queue_prompt(const Request& request, HostedModel& hosted, TimePoint now) {
  const NodeModel& facts = hosted.facts;
  if (facts.pooling.max_wait < kForever - now && request.output.empty()) requests_.begin_by(request.id, request.arrival + facts.pooling.max_wait);
  if (config_.scheduling != Scheduling::kToken) return;
  const SloTarget slo = tightened(quotas_.slo(hosted), request.ttft_max, request.tbt_max);
  const double seconds = quotas_.prompt(hosted, 0, request.prompt.size() + request.output.size());
  requests_.queue_prompt({request.id, request.model, seconds, deadline(slo, request.arrival, request.output.size() + 1)}, quotas_.switch_if_away(), now);
}

// max_wait is a bound, not a wish, and runs from the arrival: who was admitted and could not begin in time hears so.
void Node::end_waits(TimePoint now, std::vector<Effect>& effects) {
  while (const std::optional<RequestId> id = requests_.overdue(now)) {
    const HostedModel& hosted = catalogue_.at(requests_.find(*id)->model);
    requests_.fail(*id, too_long(hosted.facts, hosted.facts.pooling.max_wait), effects, quotas_.wait(hosted));
  }
  if (requests_.next_bound() != kForever) effects.push_back(WakeAt{requests_.next_bound()});
}

void Node::on_cancel(const Cancel& message, std::vector<Effect>& effects) {
  handovers_.on_cancel(message, effects);
  const AcceptedRequest* owned = requests_.find(message.id);
  if (owned == nullptr || owned->epoch != message.epoch) return;
  requests_.withdraw(message.id, effects);
  journal_.changed = true;
}

void Node::on_step_done(const StepDone& event, TimePoint now, std::vector<Effect>& effects) {
  HostedModel& hosted = catalogue_.at(event.model);
  const ModelScheduler::EndedStep step = scheduler_.end_step(event.model, event.result.away, now);
  if (!event.result.deferred.ok()) return on_step_deferred(hosted, event.result, now, effects);
  hosted.deferrals = 0;
  hosted.deferred_why.clear();
  if (!loads_.step_beside_packing()) count_step(hosted, step);
  // The quota's clock starts after the first step.
  if (hosted.turn.steps++ > 0 && !loads_.step_beside_packing()) hosted.turn.spent_seconds += step.seconds;
  for (TokenDelta& delta : hosted.engine->finish_step(event.result)) deliver(hosted, std::move(delta), effects);
  hosted.pace.step_ended(now, hosted.engine->running() > 0, to_seconds(hosted.facts.pooling.slo.tbt));
  end_failed_packing(effects);
  journal_.changed = true;
}

// Nothing of the step counts. The model is tried again soon, then less often; until then the device is for others, and what
// coming back to try takes of their time is bounded.
void Node::on_step_deferred(HostedModel& hosted, const StepResult& result, TimePoint now, std::vector<Effect>& effects) {
  CHECK(hosted.engine->finish_step(result).empty());
  if (const std::optional<LoadDesk::Cost> cost = loads_.charge(0)) quotas_.observe(*cost);
  const Duration most = std::max(kDeferralMax, from_seconds(4 * quotas_.switch_to(hosted)));
  hosted.deferred_until = now + std::min(most, kDeferralMin * (1 << std::min(hosted.deferrals++, 16u)));
  hosted.deferred_why = std::string(result.deferred.message());
  hosted.fresh = false;  // it may go without a token
  end_failed_packing(effects);
  journal_.changed = true;
}

// What a step takes longer beside a load is a cost of that switch (both may want the same cores), not of the step.
void Node::count_step(HostedModel& hosted, const ModelScheduler::EndedStep& step) {
  constexpr uint64_t kKnown = 16;
  const double extra = step.seconds - hosted.costs.step_seconds(step.work);
  if (!loads_.step_beside_load() || hosted.costs.steps_observed() < kKnown) hosted.costs.observe_step(step.work, step.seconds);
  catalogue_.likeness().note_measured(hosted);
  if (const std::optional<LoadDesk::Cost> cost = loads_.charge(extra)) quotas_.observe(*cost);
}

void Node::deliver(HostedModel& hosted, TokenDelta delta, std::vector<Effect>& effects) {
  const AcceptedRequest* owned = requests_.find(delta.request);
  CHECK(owned != nullptr);
  Tokens tokens;
  tokens.id = delta.request;
  tokens.epoch = owned->epoch;
  tokens.first_index = delta.first_index;
  tokens.tokens = std::move(delta.tokens);
  tokens.prompt = std::move(delta.prompt);
  tokens.finish = delta.finish;
  if (delta.error.code() == StatusCode::kDataLoss) delta.error = could_not_load(hosted.facts, delta.error);
  tokens.error = std::string(delta.error.message());
  tokens.error_code = delta.error.code();
  tokens.cached_prompt_tokens = delta.cached_prompt_tokens;
  tokens.queued = delta.queued;
  tokens.weights = owned->weights;
  hosted.fresh = false;
  if (tokens.finish) {
    catalogue_.likeness().observe_answer(hosted, static_cast<double>(tokens.first_index + tokens.tokens.size()), tokens.finish == FinishReason::kLength);
  }
  const NodeId gateway = owned->gateway;
  if (delta.finish) {
    requests_.erase(delta.request);
  } else if (instance_role_ == InstanceRole::kPrefill && !owned->stays) {
    handovers_.leave(delta.request);
  }
  effects.push_back(Send{gateway, std::move(tokens)});
}

bool Node::idle() const {
  return requests_.empty() && !step_in_flight() && !loads_.under_way() && scheduler_.moves() == 0 && handovers_.idle();
}

void Node::check() const {
  catalogue_.check(handovers_.blocks_offered());
  uint64_t moves = 0;
  for (const auto& [id, hosted] : catalogue_.all()) {
    CHECK_EQ(hosted.engine->step_in_flight(), scheduler_.in_flight().has(id));
    moves += hosted.engine->parking().moves();
  }
  CHECK_EQ(moves, scheduler_.moves());
  const auto engine = [this](ModelId model) -> const Engine& { return *catalogue_.at(model).engine; };
  handovers_.check([&](RequestId id) { return requests_.has(id); }, [&](ModelId model, RequestId id) { return engine(model).has(id); },
                   [&](ModelId model, RequestId id) { return engine(model).kv_is_remote(id); });
  requests_.check();
}

}  // namespace shoal
