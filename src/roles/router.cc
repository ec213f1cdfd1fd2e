#include "roles/router.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace shoal {

Router::Router(const RouterConfig& config) : config_(config) {}

std::vector<Effect> Router::handle(const Event& event, TimePoint now) {
  std::vector<Effect> effects;
  if (const auto* e = std::get_if<NewRequest>(&event)) {
    on_new(*e, now, effects);
  } else if (const auto* e = std::get_if<ClientGone>(&event)) {
    on_gone(e->id, effects);
  } else if (const auto* e = std::get_if<MessageFrom>(&event)) {
    on_message(*e, now, effects);
  } else if (const auto* e = std::get_if<ClusterChanged>(&event)) {
    on_cluster(e->state, now, effects);
  } else if (const auto* e = std::get_if<ResidencyWanted>(&event)) {
    send_to_hosts(e->model, SetResident{e->model, e->resident}, effects);
  } else if (const auto* e = std::get_if<SettingsWanted>(&event)) {
    send_to_hosts(e->settings.model, e->settings, effects);
  } else if (std::holds_alternative<DrainRequested>(event)) {
    draining_ = true;
  }
  expire(now, effects);
  if (!deadlines_.empty() && deadlines_.begin()->first != kForever) effects.push_back(WakeAt{deadlines_.begin()->first});
  return effects;
}

Placement Router::choose(ModelId model) const {
  std::vector<NodeView> nodes;
  for (const auto& [id, member] : cluster_.members) {
    if (member.role != Role::kNode) continue;
    NodeView view{id};
    view.serves_model = std::find(member.models.begin(), member.models.end(), model) != member.models.end();
    view.draining = member.draining;
    if (const auto live = live_on_node_.find(id); live != live_on_node_.end()) view.requests_live = live->second;
    if (const auto status = status_.find(id); status != status_.end()) {
      for (const ModelStatus& m : status->second.models) {
        view.requests_queued += m.waiting;
        view.resident |= m.model == model && m.state == ModelState::kLoaded;
      }
    }
    nodes.push_back(view);
  }
  return place({nodes, static_cast<uint32_t>(journal_.size()), config_.requests_max});
}

void Router::on_new(const NewRequest& event, TimePoint now, std::vector<Effect>& effects) {
  const RequestId id = event.request.id;
  CHECK(!journal_.contains(id));  // the gateway mints ids
  if (draining_) {
    effects.push_back(Refuse{id, unavailable("this server is shutting down"), std::chrono::seconds(5)});
    return;
  }
  Entry entry{event.request, NodeId(), event.deadline};
  entry.request.arrival = now;
  submit(std::move(entry), effects);
}

// Places and sends a request that is in no journal at this moment, or refuses it.
void Router::submit(Entry entry, std::vector<Effect>& effects) {
  const RequestId id = entry.request.id;
  const Placement placement = choose(entry.request.model);
  if (const auto* reject = std::get_if<Reject>(&placement)) {
    const bool full = reject->why == Reject::Why::kFull;
    effects.push_back(Refuse{id, full ? resource_exhausted("the server is at its limit of ", config_.requests_max, " requests")
                                      : unavailable("no running node serves this model"),
                             reject->retry_after});
    return;
  }
  entry.node = std::get<PlaceOn>(placement).node;
  ++live_on_node_[entry.node];
  deadlines_.emplace(entry.deadline, id);
  effects.push_back(Send{entry.node, Submit{entry.request}});
  journal_.emplace(id, std::move(entry));
}

Router::Entry Router::take(RequestId id) {
  const auto found = journal_.find(id);
  CHECK(found != journal_.end());
  Entry entry = std::move(found->second);
  journal_.erase(found);
  if (--live_on_node_[entry.node] == 0) live_on_node_.erase(entry.node);
  deadlines_.erase({entry.deadline, id});
  return entry;
}

void Router::on_gone(RequestId id, std::vector<Effect>& effects) {
  if (!journal_.contains(id)) return;
  const Entry entry = take(id);
  effects.push_back(Send{entry.node, Cancel{id, entry.request.epoch}});
}

void Router::on_message(const MessageFrom& event, TimePoint now, std::vector<Effect>& effects) {
  if (const auto* tokens = std::get_if<Tokens>(&event.message)) {
    on_tokens(event.from, *tokens, now, effects);
  } else if (const auto* status = std::get_if<NodeStatus>(&event.message)) {
    NodeStatus& known = status_[event.from];
    if (status->version >= known.version) known = *status;
  }
}

void Router::on_tokens(NodeId from, const Tokens& tokens, TimePoint now, std::vector<Effect>& effects) {
  const auto found = journal_.find(tokens.id);
  if (found == journal_.end()) return;  // cancelled or expired meanwhile
  Entry& entry = found->second;
  if (entry.node != from || entry.request.epoch != tokens.epoch) return;  // an owner of before (I3)
  const auto expected = static_cast<uint32_t>(entry.request.output.size());
  if (tokens.first_index != expected) {  // a gap or a repetition: never shown; start over where the client is (I1)
    const Entry lost = take(tokens.id);
    effects.push_back(Send{from, Cancel{tokens.id, tokens.epoch}});
    place_again(lost, unavailable("node ", from.value, " lost the place in this answer"), effects);
    return;
  }
  for (const SampledToken& token : tokens.tokens) entry.request.output.push_back(token.token);
  const bool node_gave_up = tokens.finish == FinishReason::kError && tokens.error_code == StatusCode::kUnavailable;
  if (node_gave_up) {
    const Entry lost = take(tokens.id);
    place_again(lost, Status(tokens.error_code, tokens.error), effects, std::max<Duration>(tokens.retry_after, std::chrono::seconds(1)));
    return;
  }
  Tokens delivered = tokens;
  if (entry.prompt_scores_delivered) delivered.prompt.clear();
  entry.prompt_scores_delivered |= !tokens.prompt.empty();
  if (tokens.finish) take(tokens.id);
  effects.push_back(Deliver{std::move(delivered)});
}

// The node is gone or gave up: the next one continues after the tokens delivered so far.
void Router::place_again(Entry entry, const Status& why, std::vector<Effect>& effects, Duration retry_after) {
  if (entry.replays >= config_.replays_max) {
    effects.push_back(Refuse{entry.request.id, why, retry_after});
    return;
  }
  ++entry.replays;
  ++entry.request.epoch;
  submit(std::move(entry), effects);
}

void Router::on_cluster(const ClusterState& state, TimePoint now, std::vector<Effect>& effects) {
  if (state.version < cluster_.version) return;
  std::vector<RequestId> orphans;
  for (const auto& [id, entry] : journal_) {
    const auto before = cluster_.members.find(entry.node);
    const auto after = state.members.find(entry.node);
    const bool same_life = after != state.members.end() &&
                           (before == cluster_.members.end() || after->second.epoch == before->second.epoch);
    if (!same_life) orphans.push_back(id);
  }
  std::sort(orphans.begin(), orphans.end());
  for (const auto& [id, member] : cluster_.members) {
    const auto after = state.members.find(id);
    if (after == state.members.end() || after->second.epoch != member.epoch) status_.erase(id);
  }
  cluster_ = state;
  for (const RequestId id : orphans) {
    const Entry entry = take(id);
    place_again(entry, unavailable("node ", entry.node.value, " was lost"), effects);
  }
}

void Router::send_to_hosts(ModelId model, const Message& message, std::vector<Effect>& effects) {
  for (const auto& [id, member] : cluster_.members) {
    if (member.role != Role::kNode) continue;
    if (std::find(member.models.begin(), member.models.end(), model) == member.models.end()) continue;
    effects.push_back(Send{id, message});
  }
}

void Router::expire(TimePoint now, std::vector<Effect>& effects) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const RequestId id = deadlines_.begin()->second;
    const Entry entry = take(id);
    effects.push_back(Send{entry.node, Cancel{id, entry.request.epoch}});
    effects.push_back(Refuse{id, absl::DeadlineExceededError("the request was not finished before its deadline")});
  }
}

void Router::check() const {
  CHECK_EQ(deadlines_.size(), journal_.size());
  std::map<NodeId, uint32_t> live;
  for (const auto& [id, entry] : journal_) {
    CHECK_EQ(entry.request.id, id);
    ++live[entry.node];
  }
  CHECK(live == live_on_node_);
}

}  // namespace shoal
