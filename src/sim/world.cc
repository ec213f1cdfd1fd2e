#include "sim/world.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace shoal {

World::World(WorldSetup setup)
    : setup_(std::move(setup)), state_(setup_), network_(setup_.link, setup_.seed), checkers_(state_),
      clients_(setup_.nodes.at(0).config.models, setup_.strict, state_.outcome, [this](std::string what) { state_.violate(std::move(what)); }) {
  gateways_.resize(setup_.gateways);
  if (setup_.gateways > 1) controller_ = std::make_unique<Controller>(ControllerConfig{kControllerId, setup_.roles, setup_.balance_interval});
  for (uint32_t g = 0; g < setup_.gateways; ++g) start_gateway(g);
  links_.resize(setup_.nodes.size());
  for (uint32_t i = 0; i < setup_.nodes.size(); ++i) {
    state_.outcome.nodes.push_back({setup_.nodes[i].kind});
    state_.outcome.nodes.back().price_per_hour = setup_.nodes[i].price_per_hour;
    nodes_.push_back(std::make_unique<SimNode>(state_, i, checkers_,
                                               [this](NodeId from, NodeId to, Message m) { send(from, to, std::move(m)); },
                                               [this](NodeId from, NodeId to) { return connection(from.value, to.value); }));
    start_node(i);
  }
  clients_.on_end([this](const RequestOutcome& request, const Status& why) {
    checkers_.ended(request.id, why);
    if (on_request_end_) on_request_end_(request, why);
  });
  if (controller_ != nullptr) {
    publish(MemberJoined{{.id = kControllerId, .role = Role::kController, .epoch = 1}});
    controller_->handle(LeadershipChanged{true}, state_.now);
  }
  for (const Fault& fault : setup_.faults) {
    if (fault.kind == Fault::Kind::kGatewayCrash) CHECK_LT(fault.node, gateways_.size());
    else CHECK_LT(fault.node, setup_.nodes.size());
    state_.heap.at(fault.at, [this, &fault] { begin_fault(fault); }, /*work=*/false);
  }
  for (const AdminChange& change : setup_.admin) {
    state_.heap.at(change.at, [this, &change] { begin_change(change); }, /*work=*/false);
  }
  next_arrival();
}

World::~World() = default;

// ---- workload -----------------------------------------------------------------------------------------------------------

void World::next_arrival() {
  std::optional<Arrival> arrival = setup_.workload->next();
  workload_done_ = !arrival.has_value();
  if (!arrival) return;
  last_arrival_ = std::max(arrival->at, state_.now);
  state_.heap.at(last_arrival_, [this, arrival = *std::move(arrival)]() mutable { arrive(std::move(arrival)); });
}

void World::arrive(Arrival arrival) {
  if (setup_.gateways > 1) {  // its clients find one that lives
    uint64_t g = arrival.request.id.sequence % setup_.gateways;
    for (uint32_t tried = 0; tried < setup_.gateways && gateways_[g].router == nullptr; ++tried) g = (g + 1) % setup_.gateways;
    if (gateways_[g].router == nullptr) return next_arrival();
    arrival.request.id = RequestId(NodeId(kRouterId.value + static_cast<uint32_t>(g)), gateways_[g].life, arrival.request.id.sequence);
  }
  clients_.start(arrival, state_.now);
  checkers_.arrived(arrival);
  const RequestId id = arrival.request.id;
  if (arrival.cancel_at != kForever) {
    state_.heap.at(std::max(arrival.cancel_at, state_.now), [this, id] {
      if (clients_.cancel(id, state_.now)) to_gateway(gateway_of(id), ClientGone{id});
    });
  }
  to_gateway(gateway_of(id), NewRequest{std::move(arrival.request), arrival.deadline});
  next_arrival();
}

// ---- router and links ---------------------------------------------------------------------------------------------------

void World::to_gateway(uint32_t gateway, const Event& event) {
  Gateway& of = gateways_[gateway];
  if (of.router == nullptr) return;
  const NodeId id(kRouterId.value + gateway);
  checkers_.event(id, event);
  const Interceptor* interceptor = setup_.interceptor.get();
  std::vector<Effect> effects;
  if (interceptor != nullptr && interceptor->event) {
    Event spoilt = event;
    if (!interceptor->event(id, spoilt)) return;
    effects = of.router->handle(spoilt, state_.now);
  } else {
    effects = of.router->handle(event, state_.now);
  }
  if (interceptor != nullptr && interceptor->effects) interceptor->effects(id, effects);
  checkers_.effects(id, effects);
  for (Effect& effect : effects) perform_router(gateway, std::move(effect));
}

void World::perform_router(uint32_t gateway, Effect effect) {
  if (auto* e = std::get_if<Send>(&effect)) {
    send(NodeId(kRouterId.value + gateway), e->to, std::move(e->message));
  } else if (const auto* e = std::get_if<Deliver>(&effect)) {
    state_.note(5, e->tokens.id.sequence, e->tokens.first_index);
    clients_.deliver(e->tokens, state_.now);
  } else if (const auto* e = std::get_if<Refuse>(&effect)) {
    state_.note(6, e->id.sequence);
    clients_.refuse(*e, state_.now);
  } else if (const auto* e = std::get_if<WakeAt>(&effect)) {
    if (e->at >= gateways_[gateway].wake) return;
    gateways_[gateway].wake = e->at;
    state_.heap.at(std::max(e->at, state_.now), [this, gateway, when = e->at] {
      if (gateways_[gateway].wake != when) return;
      gateways_[gateway].wake = kForever;
      to_gateway(gateway, Tick{});
    }, /*work=*/false);
  } else {
    state_.violate("the router gave an effect that is not its own");
  }
}

void World::to_controller(const Event& event) {
  if (controller_ == nullptr) return;
  for (Effect& effect : controller_->handle(event, state_.now)) {
    if (auto* e = std::get_if<Send>(&effect)) send(kControllerId, e->to, std::move(e->message));
  }
}

bool World::survives_codec(Message& message) {
  StatusOr<Message> decoded = decode(encode(message));
  if (!decoded.ok()) {
    state_.violate(absl::StrCat("codec: ", std::string(decoded.status().message())));
    return false;
  }
  if (auto* submit = std::get_if<Submit>(&*decoded)) submit->request.arrival = std::get<Submit>(message).request.arrival;
  if (!(*decoded == message)) state_.violate("codec: a message changed on the way");
  message = *std::move(decoded);
  return true;
}

// Between a gateway and a node there is a stream, which may be broken.
bool World::passes(NodeId from, NodeId to, uint32_t node) const {
  const NodeId other = is_router(to) ? to : from;
  if (!is_router(other) || setup_.gateways == 1) return true;
  const uint32_t gateway = other.value - kRouterId.value;
  if (gateways_[gateway].router == nullptr) return false;
  const auto broken = broken_until_.find({node, gateway});
  return broken == broken_until_.end() || state_.now >= broken->second;
}

void World::deliver(NodeId from, NodeId to, uint32_t node, const std::shared_ptr<const Event>& event) {
  if (is_router(to)) to_gateway(to.value - kRouterId.value, *event);
  else if (to == kControllerId) to_controller(*event);
  else if (nodes_[node]->alive()) nodes_[node]->handle(*event);
}

void World::send(NodeId from, NodeId to, Message message) {
  const uint32_t node = to >= kRouterId ? from.value : to.value;
  if (node >= nodes_.size()) return state_.violate(absl::StrCat("a message to node ", to.value, ", which is none"));
  if (!nodes_[node]->alive() || links_[node].breaking) return;
  if (!passes(from, to, node)) {  // the sender hears that it was not sent
    state_.heap.at(state_.now, [this, from, to, node] { deliver(to, from, node, std::make_shared<const Event>(PeerLost{to})); });
    return;
  }
  state_.outcome.handovers += std::holds_alternative<Handover>(message);
  state_.outcome.balanced += std::holds_alternative<SetInstanceRole>(message) || std::holds_alternative<MigrateRequests>(message);
  if (setup_.through_codec && !survives_codec(message)) return;
  const Network::Fate fate = network_.send(from, to, Network::size_of(message), state_.now);
  if (fate.lost) return lose_connection(node);
  const uint32_t life = is_router(from) ? (setup_.gateways == 1 ? 0 : gateways_[from.value - kRouterId.value].life) : from == kControllerId ? 1 : links_[from.value].member_epoch;
  const auto event = std::make_shared<const Event>(MessageFrom{from, std::move(message), life});
  const NodeId other = is_router(to) ? to : from;
  const auto broken = [this, node, other] { return is_router(other) ? streams_[{node, other.value - kRouterId.value}] : 0; };
  for (const TimePoint arrival : fate.arrivals) {
    state_.heap.at(arrival, [this, from, to, node, connection = links_[node].connection, breaks = broken(), broken, event] {
      if (!nodes_[node]->alive() || links_[node].connection != connection || broken() != breaks) return;  // a connection ends with either life
      deliver(from, to, node, event);
    });
  }
}

// ---- gateways -------------------------------------------------------------------------------------------------------------

void World::start_gateway(uint32_t gateway) {
  Gateway& of = gateways_[gateway];
  if (of.router != nullptr) return;
  ++of.life;
  const NodeId id(kRouterId.value + gateway);
  RouterConfig config{id, setup_.requests_max, setup_.replays_max, setup_.roles, setup_.place_by_load, setup_.balance_interval};
  if (setup_.gateways > 1) {
    config.balance_interval = Duration::max();
    config.life = of.life;
  }
  of.router = std::make_unique<Router>(config);
  of.wake = kForever;
  if (setup_.gateways == 1) return;
  publish(MemberJoined{{.id = id, .role = Role::kGateway, .epoch = of.life}});
}

// Its streams end, and with them the answers of its clients.
void World::stop_gateway(uint32_t gateway) {
  Gateway& of = gateways_[gateway];
  if (of.router == nullptr) return;
  ++state_.outcome.crashes;
  clients_.cancel_of(NodeId(kRouterId.value + gateway), state_.now);
  of.router.reset();
  for (uint32_t node = 0; node < nodes_.size(); ++node) {
    ++streams_[{node, gateway}];
    if (nodes_[node]->alive()) nodes_[node]->handle(PeerLost{NodeId(kRouterId.value + gateway)});
  }
  state_.after(setup_.lease, [this, gateway, life = of.life] { publish(MemberLeft{NodeId(kRouterId.value + gateway), life}); });
}

// Both sides hear of the loss, each when it does, and that it is there again.
void World::lose_stream(const Fault& fault) {
  const uint32_t node = fault.node, gateway = fault.peer % setup_.gateways;
  const NodeId router(kRouterId.value + gateway);
  const uint32_t number = ++streams_[{node, gateway}];
  TimePoint& until = broken_until_[{node, gateway}];
  until = std::max(until, state_.now + fault.lasts);
  state_.after(from_seconds(fault.amount), [this, node, router] {
    if (nodes_[node]->alive()) nodes_[node]->handle(PeerLost{router});
  });
  to_gateway(gateway, PeerLost{NodeId(node)});
  state_.after(until - state_.now + std::chrono::milliseconds(1), [this, node, gateway, router, number] {
    if (streams_[{node, gateway}] != number || gateways_[gateway].router == nullptr) return;
    to_gateway(gateway, PeerConnected{NodeId(node)});
    if (nodes_[node]->alive()) nodes_[node]->handle(PeerConnected{router});
  });
}

// A message was lost, so nothing behind it arrives either: the connection breaks, both ends learn of it a moment later, and
// the node joins anew with what it is doing.
void World::lose_connection(uint32_t node) {
  links_[node].breaking = true;
  ++links_[node].connection;
  state_.after(std::chrono::milliseconds(200), [this, node] {
    links_[node].breaking = false;
    if (!nodes_[node]->alive()) return;
    leave(node);
    join(node);
  });
}

// ---- the lives of nodes -------------------------------------------------------------------------------------------------

void World::publish(const MemberEvent& event) {
  cluster_ = reduce(std::move(cluster_), event);
  state_.heap.at(state_.now, [this, changed = Event(ClusterChanged{cluster_})] {
    for (uint32_t g = 0; g < gateways_.size(); ++g) to_gateway(g, changed);
    to_controller(changed);
    for (const auto& node : nodes_) {
      if (node->alive()) node->handle(changed);
    }
  });
}

// A copy between two nodes ends with the connection of either, and with its membership: that ends all grants.
SimNode::Connection World::connection(uint32_t from, uint32_t to) const {
  if (to >= nodes_.size() || !nodes_[to]->alive() || links_[from].breaking || links_[to].breaking || !links_[from].member || !links_[to].member) return {};
  const auto number = [this](uint32_t node) { return uint64_t{links_[node].connection} + links_[node].member_epoch; };  // both only rise
  return {nodes_[to]->device(), number(from) << 32 | number(to), network_.passable(NodeId(to), NodeId(from), state_.now)};
}

void World::join(uint32_t node) {
  Link& link = links_[node];
  ++link.member_epoch;
  link.member = true;
  publish(MemberJoined{member(node)});
}

Member World::member(uint32_t node) const {
  Member member{NodeId(node), Role::kNode, links_[node].member_epoch, setup_.nodes[node].serves, false};
  for (const NodeModel& model : setup_.nodes[node].config.models) {
    if (setup_.nodes[node].serves.empty() && state_.served[model.model.value]) member.models.push_back(model.model);
  }
  return member;
}

void World::leave(uint32_t node) {
  if (!std::exchange(links_[node].member, false)) return;
  publish(MemberLeft{NodeId(node), links_[node].member_epoch});
}

void World::start_node(uint32_t node) {
  if (nodes_[node]->alive()) return;
  nodes_[node]->start();
  links_[node].breaking = false;
  join(node);
}

void World::stop_node(uint32_t node) {
  if (!nodes_[node]->alive()) return;
  ++state_.outcome.crashes;
  checkers_.node_fault();
  ++links_[node].connection;
  nodes_[node]->stop();
}

// ---- the run ------------------------------------------------------------------------------------------------------------

void World::sample() {
  const Outcome& o = state_.outcome;
  TimeSample s{state_.seconds(), clients_.unfinished(), clients_.unstarted()};
  for (const auto& node : nodes_) {
    s.computing += node->computing();
    s.loading += node->loading();
  }
  s.tokens = o.tokens;
  for (const ModelOutcome& model : o.models) s.tokens_on_time += model.attainment.tokens_on_time;
  state_.outcome.samples.push_back(s);
  next_sample_ = (std::floor(s.at / setup_.sample_seconds) + 1) * setup_.sample_seconds;
}

void World::check_all() {
  size_t live = 0;
  for (const Gateway& gateway : gateways_) {
    if (gateway.router == nullptr) continue;
    gateway.router->check();
    live += gateway.router->live_requests();
  }
  if (live != clients_.unfinished()) state_.violate("I10: the routers and the clients count different requests");
  for (const auto& node : nodes_) {
    if (node->alive()) node->node().check();
  }
}

void World::check_end() {
  clients_.check_end();
  for (const Gateway& gateway : gateways_) {
    if (gateway.router != nullptr && gateway.router->live_requests() != 0) state_.violate("a router still has requests");
  }
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i]->alive()) continue;
    const Node& node = nodes_[i]->node();
    if (!node.idle()) state_.violate(absl::StrCat("node ", i, " is not idle at the end"));
    for (const ModelStatus& model : node.status().models) {
      if (model.kv_bytes_active != 0) state_.violate(absl::StrCat("I5: model ", model.model.value, " holds KV of no request"));
    }
    check_admin(i);
    nodes_[i]->settle();
  }
}

void World::step() {
  state_.now = std::max(state_.now, state_.heap.next_time());
  if (setup_.sample_seconds > 0 && state_.seconds() >= next_sample_) sample();
  ++state_.outcome.events;
  state_.heap.pop()();
  if (setup_.strict) check_all();
}

Outcome World::run() {
  constexpr uint64_t kProgressEvery = 1 << 14;
  Outcome& outcome = state_.outcome;
  const auto idle = [](const auto& node) { return !node->alive() || node->node().idle(); };
  while (!state_.heap.empty() && outcome.violations.empty()) {
    const bool done = workload_done_ && clients_.unfinished() == 0;
    if (done && !state_.heap.has_work() && std::all_of(nodes_.begin(), nodes_.end(), idle)) break;  // only wake-ups are left; KV that nobody came for goes with one of them
    if (workload_done_ && state_.heap.next_time() > std::max(last_arrival_, clients_.last_heard()) + setup_.no_end_after) break;
    step();
    outcome.given_up = outcome.attainment.tokens - outcome.attainment.tokens_on_time > setup_.late_tokens_max;
    if (outcome.given_up) break;
    outcome.interrupted = on_progress_ && outcome.events % kProgressEvery == 0 && !on_progress_(outcome, state_.seconds());
    if (outcome.interrupted) break;
  }
  if (!outcome.given_up && !outcome.interrupted) check_end();
  outcome.virtual_seconds = state_.seconds();
  return std::move(outcome);
}

}  // namespace shoal
