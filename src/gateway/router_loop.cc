#include "gateway/router_loop.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"

namespace shoal {
namespace {

constexpr Duration kIdleWait = std::chrono::seconds(1);
constexpr Duration kAliveWithin = std::chrono::seconds(10);

}  // namespace

std::string RouterSnapshot::name_of(NodeId node) const {
  const auto found = names.find(node);
  return found == names.end() ? std::to_string(node.value) : found->second;
}

RouterLoop::RouterLoop(const RouterConfig& config, size_t queue_max, const Connect& connect, std::shared_ptr<const ModelNames> names)
    : names_(std::move(names)), timeline_(steady_now()), queue_(queue_max), gateway_(config.self), life_(config.life), sends_in_(config.life), snapshot_(std::make_shared<RouterSnapshot>()), router_(config) {
  transport_ = connect([this](NodeId from, std::string bytes) { return receive(from, std::move(bytes)); });
  thread_ = std::thread([this] { run(); });
}

RouterLoop::~RouterLoop() {
  queue_.close();
  thread_.join();
  transport_.reset();  // no handler runs after this
}

Status RouterLoop::submit(Request request, TimePoint deadline, std::shared_ptr<TokenSink> sink) {
  const ModelId model = request.model;
  const auto count = [&](size_t change) {
    live_.fetch_add(change);
    std::lock_guard lock(mutex_);
    live_of_[model] += change;
  };
  count(1);
  if (queue_.try_push(Accept{NewRequest{std::move(request), deadline}, std::move(sink)})) return OkStatus();
  count(static_cast<size_t>(-1));
  return resource_exhausted("too many requests are waiting to be routed; try again in a moment");
}

void RouterLoop::cancel(RequestId id) { queue_.push(Event(ClientGone{id})); }
void RouterLoop::set_cluster(ClusterState state) {
  if (const auto self = state.members.find(gateway_); self != state.members.end()) sends_in_ = self->second.epoch;
  queue_.push(Event(ClusterChanged{std::move(state)}));
}
void RouterLoop::want_resident(ModelId model, bool resident) { queue_.push(Event(ResidencyWanted{model, resident})); }
void RouterLoop::configure(Configure settings) { queue_.push(Event(SettingsWanted{std::move(settings)})); }
void RouterLoop::name_nodes(std::map<NodeId, std::string> names) {
  timeline_.name_nodes(names);
  std::lock_guard lock(mutex_);
  node_names_ = std::move(names);
}

void RouterLoop::peer_link(NodeId peer, bool up) { queue_.push(up ? Event(PeerConnected{peer}) : Event(PeerLost{peer})); }
void RouterLoop::drain() { queue_.push(Event(DrainRequested{})); }
void RouterLoop::abort_all(const Status& why) { queue_.push(AbortAll{why}); }

bool RouterLoop::alive() const { return steady_now() - TimePoint(Duration(turned_ns_.load())) < kAliveWithin; }

bool RouterLoop::wait_idle(Duration timeout) const {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, timeout, [&] { return live_.load() == 0; });
}

size_t RouterLoop::live_requests(ModelId model) const {
  std::lock_guard lock(mutex_);
  const auto found = live_of_.find(model);
  return found == live_of_.end() ? 0 : found->second;
}

std::shared_ptr<const RouterSnapshot> RouterLoop::snapshot() const {
  std::lock_guard lock(mutex_);
  return snapshot_;
}

// On the sender's thread.
bool RouterLoop::receive(NodeId from, std::string bytes) {
  const PeerBudget::Answer answer = peers_.take(from, bytes.size());
  if (answer == PeerBudget::Answer::kTaken) queue_.push(Incoming{from, std::move(bytes)});
  if (answer == PeerBudget::Answer::kLost) lose(from);
  return answer == PeerBudget::Answer::kTaken;
}

void RouterLoop::lose(NodeId peer) {
  log_warning("messages between the router and node ", peer.value, " are lost: more wait than there is room for");
  queue_.push(Event(PeerLost{peer}));
}

void RouterLoop::unreachable(NodeId peer, const Status& why) {
  log_debug("node ", peer.value, " cannot be reached: ", why.message());
  queue_.push(Event(PeerLost{peer}));
}

void RouterLoop::run() {
  while (true) {
    turned_ns_ = steady_now().time_since_epoch().count();
    const Duration wait = std::clamp<Duration>(wake_at_ - steady_now(), Duration(0), kIdleWait);
    if (auto command = queue_.pop(wait)) {
      handle(std::move(*command));
    } else if (queue_.closed()) {
      break;
    }
    if (steady_now() >= wake_at_) {
      wake_at_ = kForever;
      handle_event(Tick{});
    }
  }
  abort_live(absl::AbortedError("the server is shutting down"));
}

void RouterLoop::handle(Command command) {
  if (auto* incoming = std::get_if<Incoming>(&command)) {
    receive(*incoming);
  } else if (auto* accept = std::get_if<Accept>(&command)) {
    const Request& request = accept->request.request;
    sinks_.emplace(request.id, Live{std::move(accept->sink), request.model});
    handle_event(std::move(accept->request));
  } else if (auto* abort = std::get_if<AbortAll>(&command)) {
    abort_live(abort->why);
  } else {
    const Event& event = std::get<Event>(command);
    if (const auto* lost = std::get_if<PeerLost>(&event)) peers_.heard(lost->peer);
    handle_event(event);
    if (const auto* gone = std::get_if<ClientGone>(&event)) sink_ended(gone->id);
    if (std::holds_alternative<DrainRequested>(event) || std::holds_alternative<ClusterChanged>(event) || std::holds_alternative<PeerLost>(event)) {
      publish_snapshot();
    }
  }
}

void RouterLoop::receive(const Incoming& incoming) {
  peers_.give(incoming.from, incoming.bytes.size());
  auto arrival = decode(incoming.bytes, *names_);
  if (!arrival.ok()) {  // a peer's fault, not ours: say so and go on
    log_warning("message from node ", incoming.from.value, " dropped: ", arrival.status().message());
    return;
  }
  const auto* status = std::get_if<NodeStatus>(&arrival->message);
  const bool is_status = status != nullptr;
  if (is_status) timeline_.add(incoming.from, *status, steady_now());
  if (is_status && !arrival->unknown_model.empty() && std::exchange(unknown_models_[incoming.from], arrival->unknown_model) != arrival->unknown_model) {
    log_warning("report of node ", incoming.from.value, ": ", arrival->unknown_model);
  }
  handle_event(MessageFrom{incoming.from, std::move(arrival->message), arrival->life});
  if (is_status) publish_snapshot();
}

void RouterLoop::handle_event(const Event& event) {
  std::vector<Effect> effects = router_.handle(event, steady_now());
  for (Effect& effect : effects) perform(std::move(effect));
}

void RouterLoop::perform(Effect effect) {
  if (auto* send = std::get_if<Send>(&effect)) {
    const Status sent = transport_->send(send->to, encode(send->message, sends_in_, *names_));
    if (sent.code() == StatusCode::kResourceExhausted) lose(send->to);
    else if (!sent.ok()) unreachable(send->to, sent);
  } else if (auto* deliver_effect = std::get_if<Deliver>(&effect)) {
    deliver(std::move(deliver_effect->tokens));
  } else if (auto* refusal = std::get_if<Refuse>(&effect)) {
    refuse(refusal->id, refusal->status, refusal->retry_after);
  } else if (auto* wake = std::get_if<WakeAt>(&effect)) {
    wake_at_ = std::min(wake_at_, wake->at);
  }
}

void RouterLoop::deliver(Tokens tokens) {
  const auto it = sinks_.find(tokens.id);
  if (it == sinks_.end()) return;
  const RequestId id = tokens.id;
  const bool last = tokens.finish.has_value();
  if (last) last_words(it->second);
  it->second.sink->on_tokens(std::move(tokens));
  if (last) sink_ended(id);
}

void RouterLoop::refuse(RequestId id, const Status& status, Duration retry_after) {
  const auto it = sinks_.find(id);
  if (it == sinks_.end()) return;
  last_words(it->second);
  it->second.sink->on_refused(id, status, retry_after);
  sink_ended(id);
}

void RouterLoop::abort_live(const Status& why) {
  std::vector<RequestId> ids;
  ids.reserve(sinks_.size());
  for (const auto& [id, live] : sinks_) ids.push_back(id);
  for (const RequestId id : ids) {
    handle_event(ClientGone{id});  // frees the node
    refuse(id, why, Duration(0));
  }
}

void RouterLoop::publish_snapshot() {
  auto next = std::make_shared<RouterSnapshot>(RouterSnapshot{router_.node_status(), router_.draining(), {}});
  std::lock_guard lock(mutex_);
  next->names = node_names_;
  snapshot_ = std::move(next);
}

void RouterLoop::last_words(Live& live) {
  if (!std::exchange(live.counted, false)) return;
  std::lock_guard lock(mutex_);
  --live_of_[live.model];
}

void RouterLoop::sink_ended(RequestId id) {
  const auto it = sinks_.find(id);
  if (it == sinks_.end()) return;
  last_words(it->second);
  sinks_.erase(it);
  std::lock_guard lock(mutex_);  // or wait_idle() could miss the notification
  if (live_.fetch_sub(1) == 1) idle_.notify_all();
}

}  // namespace shoal
