#include "roles/router.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policy/slo.h"

namespace shoal {
namespace {

constexpr Duration kTryAgain = std::chrono::seconds(1);  // a node that was lost and has said nothing since

bool lower(const ModelStatus& a, const ModelStatus& b) { return a.model < b.model; }

// REQUIRES: its models are ascending. Null: it does not say.
const ModelStatus* status_of(const NodeStatus& status, ModelId model) {
  const auto found = std::lower_bound(status.models.begin(), status.models.end(), model, [](const ModelStatus& m, ModelId id) { return m.model < id; });
  return found == status.models.end() || found->model != model ? nullptr : &*found;
}

double prompt_seconds(const ModelStatus& model, const Request& request) {
  return model.prompt_token_seconds * static_cast<double>(request.prompt.size() + request.output.size());
}

}  // namespace

Router::Router(const RouterConfig& config) : config_(config), balancer_(config.roles, config.balance_interval) {}

std::vector<Effect> Router::handle(const Event& event, TimePoint now) {
  std::vector<Effect> effects;
  if (const auto* e = std::get_if<NewRequest>(&event)) {
    on_new(*e, now, effects);
  } else if (const auto* e = std::get_if<ClientGone>(&event)) {
    on_gone(e->id, effects);
  } else if (const auto* e = std::get_if<MessageFrom>(&event)) {
    const auto member = cluster_.members.find(e->from);
    if (member == cluster_.members.end() || !e->of_life_before(member->second.epoch)) on_message(*e, now, effects);
  } else if (const auto* e = std::get_if<ClusterChanged>(&event)) {
    on_cluster(e->state, now, effects);
  } else if (const auto* e = std::get_if<PeerLost>(&event)) {
    on_peer_lost(e->peer, now, effects);
  } else if (const auto* e = std::get_if<ResidencyWanted>(&event)) {
    send_to_hosts(e->model, SetResident{e->model, e->resident}, effects);
  } else if (const auto* e = std::get_if<SettingsWanted>(&event)) {
    settings_[e->settings.model] = e->settings;
    send_to_hosts(e->settings.model, e->settings, effects);
  } else if (std::holds_alternative<DrainRequested>(event)) {
    draining_ = true;
  }
  try_lost_again(now, effects);
  expire(now, effects);
  if (!deadlines_.empty() && deadlines_.begin()->first != kForever) effects.push_back(WakeAt{deadlines_.begin()->first});
  return effects;
}

NodeView Router::view_of(const Member& member, const Entry& entry, TimePoint now) const {
  const ModelId model = entry.request.model;
  NodeView view;
  view.node = member.id;
  view.serves_model = !lost_.contains(member.id);
  view.draining = member.draining;
  if (const auto placed = placed_.find(member.id); placed != placed_.end()) {
    view.requests_live = placed->second.live;
    view.wait_seconds = placed->second.seconds;
    view.requests_queued = placed->second.waiting;
  }
  const auto status = status_.find(member.id);
  if (status == status_.end()) return view;
  view.instance_role = status->second.instance_role;
  view.decode_pressure = status->second.decode_pressure;
  const ModelStatus* const m = status_of(status->second, model);
  if (m == nullptr) return view;
  view.wait_seconds += m->wait_seconds;
  view.switch_seconds = m->switch_seconds;
  view.room = m->room;
  view.decodes_model = m->running > 0;
  view.answer_pressure = m->answer_pressure;
  view.answer_tokens = m->answer_tokens;
  view.answer_tokens_seen = static_cast<double>(m->generated_tokens);
  view.prompt_seconds = entry.kv ? 0 : prompt_seconds(*m, entry.request);
  const SloTarget slo = tightened(m->slo, entry.request.ttft_max, entry.request.tbt_max);
  view.slack_seconds = to_seconds(slack(slo, entry.request.arrival, entry.request.output.size() + 1, now));
  view.tbt_seconds = std::max(to_seconds(slo.tbt), 1e-3);
  const auto placed = placed_.find(member.id);
  if (placed == placed_.end() || config_.place_by_load) return view;
  view.decode_pressure += placed->second.pressure;
  if (placed->second.coming.contains(model)) {
    view.switch_seconds = 0;
  } else if (m->switch_seconds > 0) {  // one load after the other, and what was free is for those
    view.wait_seconds += placed->second.switch_seconds;
    view.room &= placed->second.coming.empty();
  }
  return view;
}

void Router::list_hosts() {
  hosts_.clear();
  for (const auto& [id, member] : cluster_.members) {
    if (member.role != Role::kNode) continue;
    for (const ModelId model : member.models) {
      std::vector<NodeId>& hosts = hosts_[model];
      if (hosts.empty() || hosts.back() != id) hosts.push_back(id);
    }
  }
}

std::vector<NodeId> Router::hosts(ModelId model) const {
  const auto found = hosts_.find(model);
  return found == hosts_.end() ? std::vector<NodeId>() : found->second;
}

Placement Router::choose(const Entry& entry, Phase phase, TimePoint now) const {
  std::vector<NodeId> able = hosts(entry.request.model);
  // Who has the request serves its model to the end, also if it is on no list any more.
  if (std::find(able.begin(), able.end(), entry.node) == able.end()) able.push_back(entry.node);
  std::vector<NodeView> nodes;
  nodes.reserve(able.size());
  for (const NodeId id : able) {
    if (const auto member = cluster_.members.find(id); member != cluster_.members.end()) nodes.push_back(view_of(member->second, entry, now));
  }
  agree_on_answers(nodes);
  return place({nodes, static_cast<uint32_t>(journal_.size()), config_.requests_max, config_.place_by_load}, phase);
}

void Router::on_new(const NewRequest& event, TimePoint now, std::vector<Effect>& effects) {
  const RequestId id = event.request.id;
  CHECK(!journal_.contains(id));  // the gateway mints ids
  if (draining_) {
    effects.push_back(Refuse{id, unavailable("this server is shutting down"), std::chrono::seconds(5)});
    return;
  }
  Entry entry{event.request, kNobody, event.deadline};
  entry.request.arrival = now;
  submit(std::move(entry), now, effects);
}

// Places and sends a request that is in no journal at this moment, or refuses it.
void Router::submit(Entry entry, TimePoint now, std::vector<Effect>& effects, Phase phase) {
  const RequestId id = entry.request.id;
  const Placement placement = choose(entry, phase, now);
  if (const auto* reject = std::get_if<Reject>(&placement)) {
    give_up_ticket(entry, effects);
    entry.kv.reset();
    const bool full = reject->why == Reject::Why::kFull;
    if (!full && hold(entry, now)) return;
    effects.push_back(Refuse{id, full ? resource_exhausted("the server is at its limit of ", config_.requests_max, " requests")
                                      : unavailable("no running node serves this model"),
                             reject->retry_after});
    return;
  }
  entry.held_until = kForever;
  entry.node = std::get<PlaceOn>(placement).node;
  note_placed(entry, phase);
  deadlines_.emplace(entry.deadline, id);
  effects.push_back(Send{entry.node, Submit{entry.request, now - entry.request.arrival, entry.kv}});
  journal_.emplace(id, std::move(entry));
}

void Router::note_placed(const Entry& entry, Phase phase) {
  Placed& placed = placed_[entry.node];
  ++placed.live;
  const auto status = status_.find(entry.node);
  const ModelStatus* const m = status == status_.end() ? nullptr : status_of(status->second, entry.request.model);
  if (m == nullptr) return;
  if (phase == Phase::kPrompt) placed.seconds += prompt_seconds(*m, entry.request);
  placed.pressure += m->answer_pressure;
  if (m->switch_seconds > 0 && placed.coming.insert(entry.request.model).second) placed.switch_seconds += m->switch_seconds;
}

Router::Entry Router::take(RequestId id) {
  const auto found = journal_.find(id);
  CHECK(found != journal_.end());
  Entry entry = std::move(found->second);
  journal_.erase(found);
  --placed_[entry.node].live;
  deadlines_.erase({entry.deadline, id});
  return entry;
}

bool Router::served_by_lost(ModelId model) const {
  const std::vector<NodeId> able = hosts(model);
  return std::any_of(able.begin(), able.end(), [&](NodeId id) { return lost_.contains(id); });
}

void Router::try_lost_again(TimePoint now, std::vector<Effect>& effects) {
  if (std::erase_if(lost_, [&](const auto& lost) { return lost.second <= now; }) > 0) place_held(now, effects);
  for (const auto& [node, again] : lost_) effects.push_back(WakeAt{again});
}

// A request that was accepted, or whose node is only out of reach for now, waits for a node to come (back), within its deadline.
bool Router::hold(Entry& entry, TimePoint now) {
  if (entry.request.epoch == 0 && !served_by_lost(entry.request.model)) return false;
  if (entry.held_until == kForever) entry.held_until = std::min(entry.deadline, now + config_.hold_max);
  if (now >= entry.held_until) return false;
  const RequestId id = entry.request.id;
  entry.node = kNobody;
  deadlines_.emplace(entry.held_until, id);
  held_.emplace(id, std::move(entry));
  return true;
}

void Router::place_held(TimePoint now, std::vector<Effect>& effects) {
  for (auto& [id, entry] : std::exchange(held_, {})) {
    deadlines_.erase({entry.held_until, id});
    const Phase phase = entry.request.output.empty() ? Phase::kPrompt : Phase::kDecode;
    submit(std::move(entry), now, effects, phase);
  }
}

void Router::on_gone(RequestId id, std::vector<Effect>& effects) {
  if (const auto held = held_.find(id); held != held_.end()) {
    deadlines_.erase({held->second.held_until, id});
    held_.erase(held);
  }
  if (!journal_.contains(id)) return;
  const Entry entry = take(id);
  effects.push_back(Send{entry.node, Cancel{id, entry.request.epoch}});
  give_up_ticket(entry, effects);
}

// If no node was granted the KV yet, nobody will be; else this is not listened to.
void Router::give_up_ticket(const Entry& entry, std::vector<Effect>& effects) const {
  if (entry.kv) effects.push_back(Send{entry.kv->node, KvTaken{entry.request.id, entry.kv->epoch}});
}

void Router::on_message(const MessageFrom& event, TimePoint now, std::vector<Effect>& effects) {
  if (const auto* tokens = std::get_if<Tokens>(&event.message)) {
    on_tokens(event.from, *tokens, now, effects);
  } else if (const auto* status = std::get_if<NodeStatus>(&event.message)) {
    on_status(event.from, *status, now, effects);
  } else if (const auto* handover = std::get_if<Handover>(&event.message)) {
    on_handover(event.from, *handover, now, effects);
  }
}

void Router::on_status(NodeId from, const NodeStatus& status, TimePoint now, std::vector<Effect>& effects) {
  NodeStatus& known = status_[from];
  if (status.version < known.version) return;
  known = status;
  if (!std::is_sorted(known.models.begin(), known.models.end(), lower)) std::sort(known.models.begin(), known.models.end(), lower);
  const auto member = cluster_.members.find(from);
  Placed& placed = placed_[from];
  placed = {.live = placed.live};
  for (const ModelStatus& m : status.models) placed.waiting += m.waiting;
  if (lost_.erase(from) > 0) {
    if (member != cluster_.members.end()) send_settings(member->second, effects);
    place_held(now, effects);
  }
  if (config_.balance_interval == Duration::max()) return;
  balancer_.learn(from, status);
  if (!draining_) balancer_.balance(now, effects);
}

// The next node continues where this one stopped, with its KV if it can be fetched.
void Router::on_handover(NodeId from, const Handover& message, TimePoint now, std::vector<Effect>& effects) {
  const auto found = journal_.find(message.id);
  if (found == journal_.end() || found->second.node != from || found->second.request.epoch != message.epoch) {
    if (message.kv) effects.push_back(Send{message.kv->node, KvTaken{message.id, message.kv->epoch}});
    return;  // cancelled or expired meanwhile
  }
  Entry entry = take(message.id);
  ++entry.request.epoch;
  entry.kv = message.kv;
  const Phase phase = entry.request.output.empty() ? Phase::kPrompt : Phase::kDecode;
  submit(std::move(entry), now, effects, phase);
}

void Router::on_tokens(NodeId from, const Tokens& tokens, TimePoint now, std::vector<Effect>& effects) {
  const auto found = journal_.find(tokens.id);
  if (found == journal_.end()) return;  // cancelled or expired meanwhile
  Entry& entry = found->second;
  if (entry.node != from || entry.request.epoch != tokens.epoch) return;  // an owner of before (I3)
  const auto expected = static_cast<uint32_t>(entry.request.output.size());
  if (tokens.first_index != expected) {  // a gap or a repetition: never shown; start over where the client is (I1)
    Entry lost = take(tokens.id);
    effects.push_back(Send{from, Cancel{tokens.id, tokens.epoch}});
    give_up_or_place(std::move(lost), unavailable("node ", from.value, " lost the place in this answer"), now, effects);
    return;
  }
  for (const SampledToken& token : tokens.tokens) entry.request.output.push_back(token.token);
  if (!tokens.tokens.empty()) {
    entry.request.weights = tokens.weights;
    entry.request.mirostat_mu = tokens.tokens.back().mirostat_mu;
  }
  entry.kv.reset();  // that node has it, or has said so
  const bool node_gave_up = tokens.finish == FinishReason::kError && tokens.error_code == StatusCode::kUnavailable;
  if (node_gave_up) {
    give_up_or_place(take(tokens.id), Status(tokens.error_code, tokens.error), now, effects, std::max<Duration>(tokens.retry_after, std::chrono::seconds(1)));
    return;
  }
  Tokens delivered = tokens;
  if (entry.prompt_scores_delivered) delivered.prompt.clear();
  entry.prompt_scores_delivered |= !tokens.prompt.empty();
  if (tokens.finish) take(tokens.id);
  effects.push_back(Deliver{std::move(delivered)});
}

// The node gave it up: another one may not, but not for ever.
void Router::give_up_or_place(Entry entry, const Status& why, TimePoint now, std::vector<Effect>& effects, Duration retry_after) {
  if (entry.replays < config_.replays_max) {
    ++entry.replays;
    return place_again(std::move(entry), now, effects);
  }
  give_up_ticket(entry, effects);
  effects.push_back(Refuse{entry.request.id, why, retry_after});
}

// The next node continues after the tokens delivered so far. However often nodes are lost: only the deadline, or that none is left
// (hold_max), ends a request for that.
void Router::place_again(Entry entry, TimePoint now, std::vector<Effect>& effects) {
  give_up_ticket(entry, effects);
  entry.kv.reset();
  ++entry.request.epoch;
  submit(std::move(entry), now, effects);
}

void Router::on_cluster(const ClusterState& state, TimePoint now, std::vector<Effect>& effects) {
  if (state.version < cluster_.version) return;
  std::vector<RequestId> orphans;
  // This gateway's own life ended and another began: the nodes have dropped what it asked.
  const auto self_before = std::as_const(cluster_).members.find(config_.self), self_after = state.members.find(config_.self);
  const bool anew_here = self_before != cluster_.members.end() && self_after != state.members.end() && self_before->second.epoch != self_after->second.epoch;
  for (const auto& [id, entry] : journal_) {
    const auto before = cluster_.members.find(entry.node);
    const auto after = state.members.find(entry.node);
    const bool same_life = after != state.members.end() &&
                           (before == cluster_.members.end() || after->second.epoch == before->second.epoch);
    if (!same_life || anew_here) orphans.push_back(id);
  }
  std::sort(orphans.begin(), orphans.end());
  for (const auto& [id, member] : cluster_.members) {
    const auto after = state.members.find(id);
    if (after != state.members.end() && after->second.epoch == member.epoch) continue;
    status_.erase(id);
    balancer_.forget(id);
    lost_.erase(id);
    placed_[id] = {placed_[id].live};
  }
  std::vector<NodeId> anew;
  for (const auto& [id, member] : state.members) {
    const auto before = cluster_.members.find(id);
    if (before == cluster_.members.end() || before->second.epoch != member.epoch) anew.push_back(id);
  }
  cluster_ = state;
  list_hosts();
  for (const NodeId id : anew) send_settings(cluster_.members.at(id), effects);
  for (const RequestId id : orphans) {
    Entry entry = take(id);
    entry.node = kNobody;
    place_again(std::move(entry), now, effects);
  }
  place_held(now, effects);
}

// What it was asked, or what it answered, is lost: its requests are placed anew. It gets requests, and hears the settings, when it is
// heard of again, and not before: a node that takes no messages would be asked for ever.
void Router::on_peer_lost(NodeId node, TimePoint now, std::vector<Effect>& effects) {
  std::vector<RequestId> orphans;
  for (const auto& [id, entry] : journal_) {
    if (entry.node == node) orphans.push_back(id);
  }
  std::sort(orphans.begin(), orphans.end());
  status_.erase(node);
  Placed& placed = placed_[node];
  placed = {.live = placed.live};
  balancer_.lose(node);
  if (cluster_.members.contains(node)) lost_[node] = now + kTryAgain;
  for (const RequestId id : orphans) {
    Entry entry = take(id);
    entry.node = kNobody;
    place_again(std::move(entry), now, effects);
  }
}

// A node that comes (back) may have missed them: what was acknowledged holds.
void Router::send_settings(const Member& member, std::vector<Effect>& effects) const {
  for (const auto& [model, settings] : settings_) {
    if (std::find(member.models.begin(), member.models.end(), model) != member.models.end()) effects.push_back(Send{member.id, settings});
  }
}

void Router::send_to_hosts(ModelId model, const Message& message, std::vector<Effect>& effects) {
  for (const NodeId id : hosts(model)) effects.push_back(Send{id, message});
}

// Time was over: whoever asked did so in time if the model could not go on, and may try again.
Status Router::overdue(const Entry& entry) const {
  constexpr char kLate[] = "the request was not finished before its deadline";
  const auto node = status_.find(entry.node);
  if (node == status_.end()) return absl::DeadlineExceededError(kLate);
  for (const ModelStatus& model : node->second.models) {
    if (model.model == entry.request.model && !model.held_up.empty()) return unavailable(kLate, ": ", model.held_up);
  }
  return absl::DeadlineExceededError(kLate);
}

void Router::expire(TimePoint now, std::vector<Effect>& effects) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const RequestId id = deadlines_.begin()->second;
    if (const auto held = held_.find(id); held != held_.end()) {
      const bool late = held->second.deadline <= now;
      deadlines_.erase(deadlines_.begin());
      held_.erase(held);
      effects.push_back(Refuse{id, late ? absl::DeadlineExceededError("the request was not finished before its deadline")
                                        : unavailable("no running node serves this model; none came within ", to_seconds(config_.hold_max), " s"),
                               late ? Duration(0) : std::chrono::seconds(5)});
      continue;
    }
    const Entry entry = take(id);
    effects.push_back(Send{entry.node, Cancel{id, entry.request.epoch}});
    give_up_ticket(entry, effects);
    effects.push_back(Refuse{id, overdue(entry)});
  }
}

void Router::check() const {
  CHECK_EQ(deadlines_.size(), journal_.size() + held_.size());
  std::map<NodeId, uint32_t> live;
  for (const auto& [id, entry] : journal_) {
    CHECK_EQ(entry.request.id, id);
    ++live[entry.node];
  }
  for (const auto& [id, placed] : placed_) CHECK_EQ(placed.live, live[id]);
}

}  // namespace shoal
