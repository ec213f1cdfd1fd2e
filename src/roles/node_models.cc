// The models of a node: which it has, under which settings, and what becomes of a load of their weights, well or badly.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "policy/static_choice.h"
#include "roles/node.h"

namespace shoal {

// ---- which, and how -----------------------------------------------------------------------------------------------------------

const NodeModel* Node::model(ModelId id) const {
  const HostedModel* hosted = catalogue_.find(id);
  return hosted == nullptr ? nullptr : &hosted->facts;
}

std::map<ModelId, ModelEstimator> Node::costs() const {
  std::map<ModelId, ModelEstimator> out;
  for (const auto& [id, hosted] : catalogue_.all()) out.emplace(id, hosted.costs);
  return out;
}

void Node::on_model_added(const ModelAdded& event) {
  catalogue_.add(event.model);
  journal_.residency();
  choose_served();
}

void Node::on_model_retired(const ModelRetired& event) {
  HostedModel* const hosted = catalogue_.find(event.model);
  if (hosted == nullptr) return;
  hosted->retired = hosted->unload_asked = true;  // a load under way is called off
  hosted->pinned = hosted->asked = hosted->returning = false;
  catalogue_.activate(*hosted);
  journal_.residency();
}

void Node::on_set_resident(const SetResident& message, TimePoint now) {
  HostedModel* const hosted = catalogue_.find(message.model);
  if (hosted == nullptr || !hosted->excluded.ok()) return;
  catalogue_.activate(*hosted);
  hosted->asked = message.resident && !catalogue_.resident(*hosted);
  if (!message.resident) hosted->pinned = false;
  if (message.resident && hosted->wanted_since == kForever) hosted->wanted_since = now;
  if (!message.resident) {
    hosted->unload_asked = true;
    hosted->returning = false;
    scheduler_.home().stays_away(message.model);
  }
  journal_.changed = true;
}

void Node::on_configure(const Configure& message) {
  HostedModel* const hosted = catalogue_.find(message.model);
  if (hosted == nullptr) return;
  PoolingSettings& settings = hosted->facts.pooling;
  // What an operator unpinned by hand stays so until the settings say something new.
  if (settings.pinned != message.settings.pinned && config_.scheduling != Scheduling::kStatic) hosted->pinned = message.settings.pinned;
  settings = message.settings;
  bound_ttft(settings);
  catalogue_.activate(*hosted);
  journal_.changed = true;
}

// With static scheduling: those that fit together, for good.
void Node::choose_served() {
  if (config_.scheduling != Scheduling::kStatic) return;
  std::vector<StaticView> views;
  for (const auto& [id, hosted] : catalogue_.all()) views.push_back({id, catalogue_.pages_needed(hosted), hosted.chosen, hosted.retired, hosted.facts.pooling.pinned});
  for (const ModelId id : choose_static(views, config_.pages)) {
    HostedModel& hosted = catalogue_.at(id);
    hosted.chosen = hosted.pinned = true;
    hosted.excluded = OkStatus();
    hosted.load_error.clear();
    catalogue_.activate(hosted);
    journal_.changed = true;
  }
  for (auto& [id, hosted] : catalogue_.all()) {
    if (hosted.chosen || hosted.retired) continue;
    hosted.pinned = false;
    hosted.excluded = resource_exhausted("model '", hosted.facts.name, "' is not served: with static scheduling only models that fit the device together "
                                         "are; raise --device-memory, serve fewer models, or choose --scheduling token");
    hosted.load_error = std::string(hosted.excluded.message());
    journal_.changed = true;
  }
}

// Whoever has nothing to do, wants nothing and holds nothing is not looked at again until somebody asks for it; one that is
// retired is forgotten.
void Node::forget_idle_models(TimePoint now, std::vector<Effect>& effects) {
  const auto keep = [this](const HostedModel& hosted) {
    const ModelId id = hosted.facts.model;
    return (hosted.retired && handovers_.offers_any_of(id)) || scheduler_.protects(id);
  };
  const std::vector<ModelId> gone = catalogue_.deactivate_unless(keep);
  if (gone.empty()) return;
  for (const ModelId id : gone) journal_.switches.abandoned(id);
  journal_.residency();
  if (config_.scheduling != Scheduling::kStatic) return;
  choose_served();
  effects.push_back(WakeAt{now});  // one that was left out may have its place
}

// ---- their weights --------------------------------------------------------------------------------------------------------------

Status could_not_load(const NodeModel& model, const Status& why) {
  return Status(StatusCode::kFailedPrecondition, absl::StrCat("model '", model.name, "' could not be loaded: ", why.message()));
}

// An answer that has begun cannot go on with other weights; one that has not is computed anew, here or elsewhere.
Status weights_replaced(const NodeModel& model, bool begun) {
  if (!begun) return unavailable("the files of model '", model.name, "' were replaced while the prompt was being computed");
  return Status(StatusCode::kFailedPrecondition, absl::StrCat("the files of model '", model.name, "' were replaced while this answer was being written; ask again"));
}

// As whoever performed the load says.
static std::optional<double> copied_share(const LoadStages& stages) {
  const auto all = static_cast<double>(stages.bytes_written + stages.bytes_adopted);
  return all > 0 ? std::optional(static_cast<double>(stages.bytes_written) / all) : std::nullopt;
}

void Node::on_weights_ready(const WeightsReady& event, TimePoint now, std::vector<Effect>& effects) {
  LoadDesk::Loading load = loads_.end();
  CHECK(load.model == event.model);
  load.copied = copied_share(event.stages).value_or(load.copied);
  if (load.cancelled && event.status.code() == StatusCode::kCancelled) return on_load_cancelled(event, load.wanted_since, now, effects);
  const bool ok = event.status.ok();
  HostedModel& hosted = catalogue_.at(event.model);
  catalogue_.residency().finish_load(event.model, ok ? Residency::LoadEnd::kDone : Residency::LoadEnd::kFailed, now);
  hosted.progress = ok ? 1.0f : 0.0f;
  hosted.load_error = ok ? "" : std::string(event.status.message());
  hosted.loads += ok;
  hosted.fresh = ok;
  hosted.wanted_since = kForever;
  hosted.asked = hosted.returning = false;
  TurnQuotas::begin_turn(hosted);
  journal_.residency();
  const SwitchEnd end = !ok ? SwitchEnd::kFailed : hosted.engine->has_work() ? SwitchEnd::kServed : SwitchEnd::kUnused;
  journal_.switches.ready(event.model, event.stages, end, event.packing, now);
  if (!ok) {
    hosted.pinned = false;
    effects.push_back(DropWeights{event.model});
    return requests_.fail_all_of(event.model, could_not_load(hosted.facts, event.status), effects);
  }
  const bool others = hosted.weights.given() && !same_weights(hosted.weights, event.weights);
  hosted.weights = event.weights;
  end_begun_with_others(hosted, effects);
  if (others) forget_computed(hosted);
  if (event.packing) return loads_.pack(event.model);  // what it cost is known when it is packed
  if (const auto cost = loads_.measure(load, hosted.facts.weight_bytes, step_in_flight(), now)) quotas_.observe(*cost);
}

// Whoever still wants it waits on, since when it did. What came stands by.
void Node::on_load_cancelled(const WeightsReady& event, TimePoint wanted_since, TimePoint now, std::vector<Effect>& effects) {
  HostedModel& hosted = catalogue_.at(event.model);
  catalogue_.residency().set_whole(event.model, config_.adopt_weights ? event.whole : std::vector<PageSpan>());
  catalogue_.residency().finish_load(event.model, Residency::LoadEnd::kCalledOff, now);
  catalogue_.residency().set_awaited(event.model, hosted.engine->has_work());
  effects.push_back(DropWeights{event.model});
  journal_.switches.ready(event.model, event.stages, SwitchEnd::kCancelled, /*packing=*/false, now);
  journal_.residency();
  hosted.progress = 0.0f;
  hosted.wanted_since = wanted_since;
}

void Node::on_weights_packed(const WeightsPacked& event, TimePoint now, std::vector<Effect>& effects) {
  CHECK(loads_.packing(event.model));
  journal_.switches.packed(event.model, event.stages);
  journal_.residency();
  if (!event.status.ok()) {
    loads_.fail_packing(event.status, event.whole);
    return end_failed_packing(effects);
  }
  loads_.end_packing();
  quotas_.observe(loads_.measure_packed(event.model, catalogue_.at(event.model).facts.weight_bytes, copied_share(event.stages).value_or(1), now));
}

// As soon as no step of the model is under way.
void Node::end_failed_packing(std::vector<Effect>& effects) {
  const LoadDesk::Packing* packing = loads_.packing();
  if (packing == nullptr || packing->failed.ok() || scheduler_.in_flight().has(packing->model)) return;
  HostedModel& hosted = catalogue_.at(packing->model);
  const LoadDesk::Packing ended = loads_.end_packing();
  const Status& why = ended.failed;
  if (why.code() != StatusCode::kCancelled) {
    hosted.load_error = std::string(why.message());
    hosted.pinned = false;
    requests_.fail_all_of(hosted.facts.model, could_not_load(hosted.facts, why), effects);
    forget_computed(hosted);
  }
  catalogue_.residency().set_whole(hosted.facts.model, ended.whole);
  scheduler_.drop_weights(hosted, /*keep_cached=*/true, effects);
}

// The files were replaced while the model was away, or a request was begun by a node that has others. Who has seen nothing
// of it yet is computed anew.
void Node::end_begun_with_others(HostedModel& hosted, std::vector<Effect>& effects) {
  for (const RequestId id : requests_.of_model(hosted.facts.model)) {
    AcceptedRequest& request = *requests_.find(id);
    if (!request.weights.given() || same_weights(request.weights, hosted.weights)) continue;
    if (!hosted.engine->request(id).output.empty()) {
      requests_.fail(id, weights_replaced(hosted.facts, /*begun=*/true), effects);
      continue;
    }
    hosted.engine->restart(id);
    request.weights = {};
    requests_.settle_fetch(id, effects);
  }
}

// What was computed with weights that are no more: nothing that begins from now on goes on from it.
void Node::forget_computed(HostedModel& hosted) {
  hosted.engine->forget_prefixes();
  handovers_.withdraw_offers_of(hosted.facts.model);
}

}  // namespace shoal
