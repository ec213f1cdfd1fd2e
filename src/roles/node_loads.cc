// What becomes of a load of weights, well or badly.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "roles/node.h"

namespace shoal {

Status Node::could_not_load(const NodeModel& model, const Status& why) {
  return Status(StatusCode::kFailedPrecondition, absl::StrCat("model '", model.name, "' could not be loaded: ", why.message()));
}

void Node::observe_switch(const EndedLoad& load, double extra_seconds) {
  const auto hosted = models_.find(load.model);
  if (hosted != models_.end()) hosted->second.costs.observe_switch(load.seconds, std::max(load.waited_seconds + extra_seconds, 0.0));
}

void Node::on_weights_ready(const WeightsReady& event, TimePoint now, std::vector<Effect>& effects) {
  CHECK(loading_ == event.model);
  loading_.reset();
  if (std::exchange(cancelling_, false) && event.status.code() == StatusCode::kCancelled) return on_load_cancelled(event, now, effects);
  Hosted& hosted = models_.at(event.model);
  residency_.finish_load(event.model, event.status.ok(), now);
  hosted.progress = event.status.ok() ? 1.0f : 0.0f;
  hosted.load_error = event.status.ok() ? "" : std::string(event.status.message());
  hosted.loads += event.status.ok();
  hosted.fresh = event.status.ok();
  hosted.wanted_since = kForever;
  hosted.asked = false;
  hosted.spent_seconds = 0;
  hosted.turn_steps = 0;
  hosted.quota_seconds = Turn::kUnlimited;
  changed_ = residency_changed_ = true;
  const bool used = event.status.ok() && hosted.engine->has_work();
  switches_.ready(event.model, event.stages, used ? SwitchEnd::kServed : event.status.ok() ? SwitchEnd::kUnused : SwitchEnd::kFailed, event.packing, now);
  if (event.status.ok()) {
    const bool others = hosted.weights.given() && !same_weights(hosted.weights, event.weights);
    hosted.weights = event.weights;
    end_begun_with_others(hosted, effects);
    if (others) forget_computed(hosted);
    if (event.packing) {
      packing_ = Packing{event.model};
      return;  // what it cost is known when it is packed
    }
    const double seconds = to_seconds(now - load_began_);
    if (!stepping_) load_waited_ += now - std::max(load_began_, idle_since_);
    const EndedLoad ended{event.model, seconds, to_seconds(load_waited_)};
    if (ended_load_ || !stepping_) observe_switch(ended, 0);
    else ended_load_ = ended;  // the step beside it will tell
    load_seconds_per_byte_.add(seconds / static_cast<double>(std::max<uint64_t>(hosted.facts.weight_bytes, 1)));
    return;
  }
  hosted.pinned = false;
  effects.push_back(DropWeights{event.model});
  fail_requests_of(hosted, could_not_load(hosted.facts, event.status), effects);
}

void Node::on_weights_packed(const WeightsPacked& event, TimePoint now, std::vector<Effect>& effects) {
  CHECK(packing_ && packing_->model == event.model);
  switches_.packed(event.model, event.stages);
  changed_ = residency_changed_ = true;
  if (!event.status.ok()) {
    packing_->failed = event.status;
    return end_failed_packing(effects);
  }
  packing_.reset();
  const double seconds = to_seconds(now - load_began_);
  observe_switch({event.model, seconds, seconds}, 0);
  load_seconds_per_byte_.add(seconds / static_cast<double>(std::max<uint64_t>(models_.at(event.model).facts.weight_bytes, 1)));
}

// As soon as no step of the model is under way.
void Node::end_failed_packing(std::vector<Effect>& effects) {
  if (!packing_ || packing_->failed.ok() || stepping_ == packing_->model) return;
  Hosted& hosted = models_.at(packing_->model);
  const Status why = std::exchange(packing_, std::nullopt)->failed;
  if (why.code() != StatusCode::kCancelled) {
    hosted.load_error = std::string(why.message());
    hosted.pinned = false;
    fail_requests_of(hosted, could_not_load(hosted.facts, why), effects);
    forget_computed(hosted);
  }
  drop_weights(hosted, /*keep_cached=*/true, effects);
}

// Whoever still wants it waits on, since when it did.
void Node::on_load_cancelled(const WeightsReady& event, TimePoint now, std::vector<Effect>& effects) {
  Hosted& hosted = models_.at(event.model);
  residency_.finish_load(event.model, false, now);
  effects.push_back(DropWeights{event.model});
  switches_.ready(event.model, event.stages, SwitchEnd::kCancelled, /*packing=*/false, now);
  hosted.progress = 0.0f;
  hosted.wanted_since = load_wanted_since_;
  changed_ = residency_changed_ = true;
}

// An answer that has begun cannot go on with other weights; one that has not is computed anew, here or elsewhere.
Status Node::replaced(const NodeModel& model, bool begun) {
  if (!begun) return unavailable("the files of model '", model.name, "' were replaced while the prompt was being computed");
  return Status(StatusCode::kFailedPrecondition, absl::StrCat("the files of model '", model.name, "' were replaced while this answer was being written; ask again"));
}

// The files were replaced while the model was away, or a request was begun by a node that has others. Who has seen nothing
// of it yet is computed anew.
void Node::end_begun_with_others(Hosted& hosted, std::vector<Effect>& effects) {
  std::vector<RequestId> others;
  for (const auto& [id, owner] : owners_) {
    if (owner.model == hosted.facts.model && owner.weights.given() && !same_weights(owner.weights, hosted.weights)) others.push_back(id);
  }
  std::sort(others.begin(), others.end());
  for (const RequestId id : others) {
    const auto owner = owners_.find(id);
    if (!hosted.engine->request(id).output.empty()) {
      fail(owner, replaced(hosted.facts, /*begun=*/true), effects);
      continue;
    }
    hosted.engine->restart(id);
    owner->second.weights = {};
    settle_fetch(id, effects);
  }
}

// What was computed with weights that are no more: nothing that begins from now on goes on from it.
void Node::forget_computed(Hosted& hosted) {
  hosted.engine->forget_prefixes();
  std::erase_if(offers_, [&](const auto& entry) {
    const bool over = entry.second.model == hosted.facts.model && !entry.second.taker;
    if (over) withdraw(entry.second);
    return over;
  });
}

}  // namespace shoal
