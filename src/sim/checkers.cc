#include "sim/checkers.h"

#include <algorithm>

namespace shoal {

void Checkers::arrived(const Arrival& arrival) {
  if (on()) known_[arrival.request.id] = {arrival.deadline, arrival.request.model, 0, world_.served.at(arrival.request.model.value)};
}

void Checkers::event(NodeId role, const Event& event) {
  if (!on()) return;
  const auto* message = std::get_if<MessageFrom>(&event);
  if (is_router(role)) {
    shown_.reset();
    if (message == nullptr) return;
    if (const auto* tokens = std::get_if<Tokens>(&message->message)) shown_ = {tokens->id, tokens->epoch};
    return;
  }
  if (message == nullptr) return;
  Watched& node = nodes_[role];
  if (const auto* submit = std::get_if<Submit>(&message->message)) submitted(node, *submit);
  if (const auto* cancel = std::get_if<Cancel>(&message->message)) {
    const auto held = node.held.find(cancel->id);
    if (held == node.held.end() || held->second.epoch != cancel->epoch) return;  // overtaken, or of an owner of before
    node.withdrawn.insert(cancel->id);
    left(node, cancel->id);
  }
}

void Checkers::submitted(Watched& node, const Submit& message) {
  const Request& request = message.request;
  Held& held = node.held[request.id];
  if (request.epoch < held.epoch) return;  // came late
  held = {request.epoch, request.model};
  node.withdrawn.erase(request.id);
  left(node, request.id);
  node.waiting[{request.model, request.priority, request.payer.number}].push_back({world_.now, request.id, begin_by(message)});
}

// What its model's max_wait promises, unless an operator may have changed it since.
TimePoint Checkers::begin_by(const Submit& message) const {
  const Duration most = world_.setup.nodes.front().config.models.at(message.request.model.value).pooling.max_wait;
  const bool bounded = most != Duration::max() && message.request.output.empty() && world_.setup.admin.empty();
  return bounded ? world_.now - message.waited + most : kForever;
}

void Checkers::left(Watched& node, RequestId request) {
  for (auto& [key, waiting] : node.waiting) {
    std::erase_if(waiting, [&](const Waiting& w) { return w.request == request; });
  }
}

void Checkers::began(Watched& node, NodeId id, RequestId request) {
  for (auto& [key, waiting] : node.waiting) {
    const auto found = std::find_if(waiting.begin(), waiting.end(), [&](const Waiting& w) { return w.request == request; });
    if (found == waiting.end()) continue;
    if (world_.now > found->begin_by) {
      world_.violate(absl::StrCat("I6: node ", id.value, " began request ", request.text(), " ", to_seconds(world_.now - found->begin_by), " s after its max_wait"));
    }
    if (found != waiting.begin() && world_.now - waiting.front().since > world_.setup.overtaken_max) {
      world_.violate(absl::StrCat("I6: node ", id.value, " let request ", request.text(), " overtake request ", waiting.front().request.text(),
                                  ", which has waited for ", to_seconds(world_.now - waiting.front().since), " s"));
    }
    waiting.erase(found);
    return;
  }
}

void Checkers::node_effect(NodeId id, const Effect& effect) {
  Watched& node = nodes_[id];
  if (const auto* step = std::get_if<StartStep>(&effect)) {
    for (const StepSlice& slice : step->input.slices) {
      began(node, id, slice.request);
      if (node.withdrawn.contains(slice.request)) {
        world_.violate(absl::StrCat("node ", id.value, " computes request ", slice.request.text(), ", which was cancelled"));
      }
    }
  }
  if (const auto* send = std::get_if<Send>(&effect)) {
    if (const auto* handover = std::get_if<Handover>(&send->message)) left(node, handover->id);
    const auto* tokens = std::get_if<Tokens>(&send->message);
    if (tokens == nullptr) return;
    node.tokens_sent[node.held[tokens->id].model] += tokens->tokens.size();
    if (tokens->finish) left(node, tokens->id);
  }
}

void Checkers::effects(NodeId role, const std::vector<Effect>& effects) {
  if (!on()) return;
  for (const Effect& effect : effects) {
    if (!is_router(role)) {
      node_effect(role, effect);
      continue;
    }
    if (const auto* send = std::get_if<Send>(&effect)) {
      const auto* submit = std::get_if<Submit>(&send->message);
      if (submit == nullptr) continue;
      const auto known = known_.find(submit->request.id);
      if (known != known_.end()) known->second.epoch = std::max(known->second.epoch, submit->request.epoch);
    }
    const auto* deliver = std::get_if<Deliver>(&effect);
    if (deliver == nullptr) continue;
    const auto known = known_.find(deliver->tokens.id);
    const bool of_owner = known != known_.end() && shown_ && shown_->first == deliver->tokens.id && shown_->second == known->second.epoch;
    if (!of_owner) world_.violate(absl::StrCat("I3: request ", deliver->tokens.id.text(), " was shown tokens of an owner of before"));
  }
}

// What may end a request without its answer: its own deadline or bound, its model's load, the loss of nodes, the limits.
bool Checkers::explained(const Known& known, const Status& why) const {
  const NodeModel& model = world_.setup.nodes.front().config.models.at(known.model.value);
  const auto is = [&](Fault::Kind kind) {
    return std::any_of(world_.setup.faults.begin(), world_.setup.faults.end(), [&](const Fault& f) { return f.kind == kind; });
  };
  if (is(Fault::Kind::kLoadFailure) && why.message().find("could not be loaded") != absl::string_view::npos) return true;
  const bool served = known.served && world_.served[known.model.value];
  if (!served && (why.code() == StatusCode::kNotFound || why.code() == StatusCode::kUnavailable)) return true;
  switch (why.code()) {
    case StatusCode::kDeadlineExceeded: return world_.now >= known.deadline;
    case StatusCode::kUnavailable: return node_faults_ || model.pooling.max_wait != Duration::max();
    case StatusCode::kResourceExhausted: return world_.setup.nodes.front().config.scheduling == Scheduling::kStatic;
    default: return false;
  }
}

void Checkers::ended(RequestId id, const Status& why) {
  if (!on()) return;
  const auto known = known_.find(id);
  if (known == known_.end()) return;  // the clients have said so
  if (why.ok() && world_.now > known->second.deadline) world_.violate(absl::StrCat("I6: request ", id.text(), " ended after its deadline"));
  if (!why.ok() && !explained(known->second, why)) {
    world_.violate(absl::StrCat("I7: request ", id.text(), " failed without a cause of its own: ", std::string(why.message())));
  }
  known_.erase(known);
}

void Checkers::life_ended(NodeId id, const Node& node) {
  if (!on()) return;
  for (const ModelStatus& model : node.status().models) {  // those that were retired have taken their counters with them
    const uint64_t sent = nodes_[id].tokens_sent[model.model];
    if (model.generated_tokens == sent) continue;
    world_.violate(absl::StrCat("I10: node ", id.value, " counted ", model.generated_tokens, " tokens of model ", model.model.value, " and sent ", sent));
  }
  nodes_.erase(id);
}

}  // namespace shoal
