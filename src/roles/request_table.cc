#include "roles/request_table.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {

void refuse(NodeId to, const Request& request, const Status& why, std::vector<Effect>& effects, Duration retry_after) {
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

AcceptedRequest& RequestTable::add(RequestId id, const AcceptedRequest& request) {
  AcceptedRequest& added = requests_[id] = request;
  added.order = next_order_++;
  return added;
}

AcceptedRequest* RequestTable::find(RequestId id) {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : &found->second;
}

std::vector<RequestId> RequestTable::of_model(ModelId model) const {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) {
    if (request.model == model) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<RequestId> RequestTable::of_gateway(NodeId gateway) const {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) {
    if (request.gateway == gateway) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::optional<uint64_t> RequestTable::order_of(RequestId id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? std::nullopt : std::optional(found->second.order);
}

void RequestTable::begin_by(RequestId id, TimePoint bound) {
  requests_.at(id).begin_by = bound;
  bounds_.emplace(bound, id);
}

void RequestTable::queue_prompt(const PrefillJob& job, const SwitchSeconds& switch_seconds, TimePoint now) {
  prompts_.add(job, switch_seconds, now);
  requests_.at(job.request).prompt_queued = true;
  ++prompts_queued_[job.model];
}

void RequestTable::begun(RequestId id, AcceptedRequest& request) {
  bounds_.erase({std::exchange(request.begin_by, kForever), id});
  if (!std::exchange(request.prompt_queued, false)) return;
  CHECK(prompts_.remove(id));
  const auto queued = prompts_queued_.find(request.model);
  if (--queued->second == 0) prompts_queued_.erase(queued);
}

std::optional<RequestId> RequestTable::overdue(TimePoint now) const {
  return next_bound() > now || bounds_.empty() ? std::nullopt : std::optional(bounds_.begin()->second);
}

uint32_t RequestTable::prompts_queued(ModelId model) const {
  const auto found = prompts_queued_.find(model);
  return found == prompts_queued_.end() ? 0 : found->second;
}

void RequestTable::erase(RequestId id) {
  const auto found = requests_.find(id);
  begun(id, found->second);
  handovers_.stay(id);
  requests_.erase(found);
}

void RequestTable::withdraw(RequestId id, std::vector<Effect>& effects) {
  catalogue_.at(requests_.at(id).model).engine->cancel(id);
  erase(id);
  settle_fetch(id, effects);
}

void RequestTable::fail(RequestId id, const Status& why, std::vector<Effect>& effects, Duration retry_after) {
  const AcceptedRequest& request = requests_.at(id);
  Engine& engine = *catalogue_.at(request.model).engine;
  Request state = engine.request(id);
  state.epoch = request.epoch;
  CHECK(engine.cancel(id));
  refuse(request.gateway, state, why, effects, retry_after);
  erase(id);
  settle_fetch(id, effects);
}

void RequestTable::fail_all_of(ModelId model, const Status& why, std::vector<Effect>& effects) {
  for (const RequestId id : of_model(model)) fail(id, why, effects);
}

void RequestTable::settle_fetch(RequestId id, std::vector<Effect>& effects) {
  const std::optional<ModelId> model = handovers_.fetching(id);
  if (model && !catalogue_.at(*model).engine->kv_is_remote(id)) handovers_.end_fetch(id, effects);
}

void RequestTable::check() const {
  size_t queued = 0, bounded = 0;
  for (const auto& [id, request] : requests_) {
    CHECK(catalogue_.at(request.model).engine->has(id));
    bounded += request.begin_by != kForever;
    queued += request.prompt_queued;
  }
  CHECK_EQ(bounds_.size(), bounded);
  prompts_.check();
  CHECK_EQ(prompts_.size(), queued);
}

}  // namespace shoal
