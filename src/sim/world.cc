#include "sim/world.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace shoal {
namespace {

constexpr NodeId kRouterId{1000};
constexpr Duration kLinkLatency = std::chrono::microseconds(20);
constexpr Duration kRestart = std::chrono::milliseconds(500);

Duration exponential(Rng& rng, double per_second) { return from_seconds(-std::log(1.0 - rng.uniform()) / per_second); }

}  // namespace

Scenario Scenario::random(uint64_t seed) {
  Rng rng(mix64(seed));
  Scenario s;
  s.seed = seed;
  s.nodes = 1 + static_cast<uint32_t>(rng.below(3));
  s.models = 1 + static_cast<uint32_t>(rng.below(4));
  s.pages = 14 + static_cast<uint32_t>(rng.below(30));
  s.requests = 10 + static_cast<uint32_t>(rng.below(50));
  s.requests_per_second = 5.0 + 300.0 * rng.uniform();
  s.prompt_max = 8 + static_cast<uint32_t>(rng.below(150));
  s.output_max = 1 + static_cast<uint32_t>(rng.below(80));
  s.cancel_probability = rng.chance(0.5) ? 0.4 * rng.uniform() : 0;
  s.deadline_probability = rng.chance(0.3) ? 0.3 : 0;
  s.load_failure_probability = rng.chance(0.2) ? 0.3 : 0;
  s.crashes_per_second = rng.chance(0.3) ? 2.0 * rng.uniform() : 0;
  s.shared_prefix_probability = rng.uniform();
  s.limits.tokens_per_step = 4 + static_cast<uint32_t>(rng.below(100));
  s.limits.sequences_max = 1 + static_cast<uint32_t>(rng.below(12));
  s.limits.logit_rows_max = 1 + static_cast<uint32_t>(rng.below(12));
  s.prefix_cache = rng.chance(0.8);
  s.through_codec = seed % 16 == 0;
  s.scheduling = rng.chance(0.7) ? Scheduling::kToken : Scheduling::kRequest;
  if (rng.chance(0.2)) s.turns = TurnOptions::paper();
  if (rng.chance(0.15)) s.max_wait = from_seconds(2 * rng.uniform());
  if (rng.chance(0.6)) s.host_pages = static_cast<uint32_t>(rng.below(30));
  s.cost.copy_bytes_per_second = 1e8 + 1e10 * rng.uniform();
  s.cost.load_bytes_per_second = 1e7 + 1e9 * rng.uniform();
  return s;
}

Outcome run_scenario(const Scenario& scenario) { return World(scenario).run(); }

World::World(const Scenario& scenario) : scenario_(scenario), rng_(scenario.seed) {
  for (uint32_t i = 0; i < scenario_.models; ++i) models_.push_back(make_model(i));
  router_ = std::make_unique<Router>(RouterConfig{kRouterId, 10'000, 8});
  for (uint32_t i = 0; i < 4; ++i) {
    std::vector<TokenId> prefix(rng_.below(scenario_.prompt_max) + 1);
    for (TokenId& token : prefix) token = static_cast<TokenId>(rng_.below(50));
    prefixes_.push_back(std::move(prefix));
  }
  nodes_.resize(scenario_.nodes);
  for (uint32_t i = 0; i < scenario_.nodes; ++i) start_node(i);
  schedule_workload();
}

World::~World() = default;

NodeModel World::make_model(uint32_t index) {
  NodeModel model;
  model.model = ModelId(index);
  model.name = absl::StrCat("model-", index);
  model.weight_bytes = (1 + rng_.below(4)) * kPageBytes - rng_.below(1000);
  const uint64_t sizes[] = {kPageBytes / 2, kPageBytes / 3, kPageBytes, kPageBytes * 3 / 2, kPageBytes / 7 - 64};
  model.kv_block_bytes = sizes[rng_.below(5)];
  if (scenario_.weight_pages > 0) model.weight_bytes = scenario_.weight_pages * kPageBytes;
  if (scenario_.kv_block_bytes > 0) model.kv_block_bytes = scenario_.kv_block_bytes;
  model.vocab_size = 50;
  model.slo = scenario_.slo;
  model.max_wait = scenario_.max_wait;
  model.kv_salt_above = rng_.chance(0.3) ? 40 : UINT32_MAX;
  model.max_model_len = scenario_.max_model_len;
  model.max_model_len = fitting_model_len(model, scenario_.pages, model.max_model_len);
  CHECK_GT(model.max_model_len, 16u);
  return model;
}

void World::at(TimePoint when, std::function<void()> act) { heap_.push({when, next_order_++, std::move(act)}); }

void World::note(uint64_t a, uint64_t b, uint64_t c) {
  outcome_.trace_hash = mix64(outcome_.trace_hash ^ mix64(a ^ mix64(b ^ mix64(c ^ static_cast<uint64_t>(now_.time_since_epoch().count())))));
}

void World::violate(std::string what) {
  outcome_.violations.push_back(absl::StrCat("at ", to_seconds(now_.time_since_epoch()), " s: ", what));
}

// ---- nodes ------------------------------------------------------------------------------------------------------------

void World::start_node(uint32_t index) {
  NodeBody& body = nodes_[index];
  body.config.self = NodeId(index);
  body.config.pages = scenario_.pages;
  body.config.host_pages = scenario_.host_pages;
  body.config.models = models_;
  body.config.gateways = {kRouterId};
  body.config.limits = scenario_.limits;
  body.config.prefix_cache = scenario_.prefix_cache;
  body.config.scheduling = scenario_.scheduling;
  body.config.turns = scenario_.turns;
  body.config.load_bytes_per_second = scenario_.cost.load_bytes_per_second;
  body.node = std::make_unique<Node>(body.config);
  body.device = std::make_unique<SimDevice>(body.config, scenario_.cost);
  body.wake = kForever;
  body.copies_end = now_;
  ++body.epoch;
  Member member{NodeId(index), Role::kNode, body.epoch, {}, false};
  for (const NodeModel& model : models_) member.models.push_back(model.model);
  publish_cluster(MemberJoined{member});
}

void World::crash_node(uint32_t index) {
  NodeBody& body = nodes_[index];
  if (body.node == nullptr || unfinished_ == 0) return;
  note(8, index);
  ++outcome_.crashes;
  outcome_.steps += body.device->steps();
  body.node.reset();
  body.device.reset();
  publish_cluster(MemberLeft{NodeId(index), body.epoch});
  after(kRestart, [this, index] { start_node(index); });
}

void World::publish_cluster(const MemberEvent& event) {
  cluster_ = reduce(std::move(cluster_), event);
  at(now_, [this, state = cluster_] { to_router(ClusterChanged{state}); });
}

void World::to_node(uint32_t index, const Event& event) {
  NodeBody& body = nodes_[index];
  for (const Effect& effect : body.node->handle(event, now_)) perform_node(index, effect);
}

// One after the other, as a node's copier does it.
void World::copy_kv(uint32_t index, const CopyKv& effect) {
  NodeBody& body = nodes_[index];
  note(9, index, effect.move.copies.size());
  ++outcome_.copies;
  body.device->begin_copy(effect);
  body.copies_end = std::max(body.copies_end, now_) + body.device->copy_time(effect);
  at(body.copies_end, [this, index, epoch = body.epoch, effect] {
    if (nodes_[index].node == nullptr || nodes_[index].epoch != epoch) return;
    nodes_[index].device->end_copy(effect);
    to_node(index, KvCopied{effect.model, effect.move.id});
  });
}

void World::perform_node(uint32_t index, const Effect& effect) {
  NodeBody& body = nodes_[index];
  const uint32_t epoch = body.epoch;
  const auto alive = [this, index, epoch] { return nodes_[index].node != nullptr && nodes_[index].epoch == epoch; };
  if (const auto* e = std::get_if<Send>(&effect)) {
    send(NodeId(index), e->to, e->message);
  } else if (const auto* e = std::get_if<StartStep>(&effect)) {
    note(1, index, e->input.rows());
    StepResult result = body.device->run(e->model, e->input);
    after(body.device->step_time(e->input), [this, index, alive, model = e->model, result = std::move(result)] {
      if (alive()) to_node(index, StepDone{model, result});
    });
  } else if (const auto* e = std::get_if<LoadWeights>(&effect)) {
    note(2, index, e->model.value);
    ++outcome_.loads;
    body.device->load(*e);
    const bool fails = rng_.chance(scenario_.load_failure_probability);
    after(body.device->load_time(e->model), [this, index, alive, model = e->model, fails] {
      if (alive()) to_node(index, WeightsReady{model, fails ? data_loss("the file vanished") : OkStatus(), {}});
    });
  } else if (const auto* e = std::get_if<DropWeights>(&effect)) {
    note(3, index, e->model.value);
    body.device->drop(*e);
  } else if (const auto* e = std::get_if<RemapSlabs>(&effect)) {
    note(4, index, e->changes.size());
    body.device->remap(*e);
  } else if (const auto* e = std::get_if<CopyKv>(&effect)) {
    copy_kv(index, *e);
  } else if (const auto* e = std::get_if<WakeAt>(&effect)) {
    if (e->at >= body.wake) return;
    body.wake = e->at;
    at(std::max(e->at, now_), [this, index, alive, when = e->at] {
      if (!alive() || nodes_[index].wake != when) return;
      nodes_[index].wake = kForever;
      to_node(index, Tick{});
    });
  } else {
    violate("a node gave an effect that is not its own");
  }
}

// ---- router and links ---------------------------------------------------------------------------------------------------

void World::send(NodeId from, NodeId to, const Message& message) {
  Message delivered = message;
  if (scenario_.through_codec) {
    StatusOr<Message> decoded = decode(encode(message));
    if (!decoded.ok()) return violate(absl::StrCat("codec: ", std::string(decoded.status().message())));
    delivered = *std::move(decoded);
    if (auto* submit = std::get_if<Submit>(&delivered)) submit->request.arrival = std::get<Submit>(message).request.arrival;
    if (!(delivered == message)) return violate("codec: a message changed on the way");
  }
  TimePoint& free = link_free_[{from.value, to.value}];
  free = std::max(free, now_ + kLinkLatency + std::chrono::microseconds(rng_.below(200)));
  const uint32_t epoch = to == kRouterId ? nodes_[from.value].epoch : nodes_[to.value].epoch;
  at(free, [this, from, to, epoch, message = std::move(delivered)] {
    const NodeBody& peer = nodes_[to == kRouterId ? from.value : to.value];
    if (peer.node == nullptr || peer.epoch != epoch) return;  // a connection ends with either life
    if (to == kRouterId) {
      to_router(MessageFrom{from, message});
    } else {
      to_node(to.value, MessageFrom{from, message});
    }
  });
}

void World::to_router(const Event& event) {
  for (const Effect& effect : router_->handle(event, now_)) perform_router(effect);
}

void World::perform_router(const Effect& effect) {
  if (const auto* e = std::get_if<Send>(&effect)) {
    if (nodes_[e->to.value].node != nullptr) send(kRouterId, e->to, e->message);
  } else if (const auto* e = std::get_if<Deliver>(&effect)) {
    on_deliver(e->tokens);
  } else if (const auto* e = std::get_if<Refuse>(&effect)) {
    on_refuse(*e);
  } else if (const auto* e = std::get_if<WakeAt>(&effect)) {
    if (e->at >= router_wake_) return;
    router_wake_ = e->at;
    at(std::max(e->at, now_), [this, when = e->at] {
      if (router_wake_ != when) return;
      router_wake_ = kForever;
      to_router(Tick{});
    });
  } else {
    violate("the router gave an effect that is not its own");
  }
}

// ---- clients --------------------------------------------------------------------------------------------------------------

Request World::make_request(uint64_t id) {
  Request r;
  r.id = RequestId(id);
  r.model = models_[rng_.below(models_.size())].model;
  if (rng_.chance(scenario_.shared_prefix_probability)) r.prompt = prefixes_[rng_.below(prefixes_.size())];
  const uint64_t more = 1 + rng_.below(scenario_.prompt_max);
  for (uint64_t i = 0; i < more; ++i) r.prompt.push_back(static_cast<TokenId>(rng_.below(50)));
  const uint32_t longest = models_[r.model.value].max_model_len - 1;
  if (r.prompt.size() > longest) r.prompt.resize(longest);
  r.max_tokens = 1 + static_cast<uint32_t>(rng_.below(scenario_.output_max));
  r.min_tokens = rng_.chance(0.2) ? r.max_tokens / 2 : 0;
  if (rng_.chance(0.5)) r.stop_ids = {7};
  if (rng_.chance(0.1)) r.prompt_logprobs = 1;
  r.sampling.seed = rng_.bits();
  if (rng_.chance(0.2)) r.sampling.presence_penalty = 1.0f;
  r.priority = rng_.chance(0.1) ? 1 : 0;
  return r;
}

void World::schedule_workload() {
  TimePoint when{};
  for (uint32_t i = 0; i < scenario_.requests; ++i) {
    when += exponential(rng_, scenario_.requests_per_second);
    Request request = make_request(i + 1);
    ++unfinished_;
    Client client;
    client.request = request;
    for (const TokenId token : request.prompt) client.context = extend_context(client.context, token);
    const RequestId id = request.id;
    clients_[id] = std::move(client);
    const TimePoint deadline =
        rng_.chance(scenario_.deadline_probability) ? when + from_seconds(0.5 * rng_.uniform()) : when + std::chrono::hours(24);
    at(when, [this, request, deadline] {
      clients_.at(request.id).score.emplace(scenario_.slo, now_);
      clients_.at(request.id).last_token = now_;
      to_router(NewRequest{request, deadline});
    });
    if (!rng_.chance(scenario_.cancel_probability)) continue;
    at(when + from_seconds(rng_.uniform()), [this, id] {
      Client& gone = clients_.at(id);
      if (!gone.end.empty()) return;
      end_client(gone, "cancelled");
      ++outcome_.cancelled;
      to_router(ClientGone{id});
    });
  }
  if (scenario_.crashes_per_second <= 0) return;
  TimePoint crash{};
  while ((crash += exponential(rng_, scenario_.crashes_per_second)) < when) {
    at(crash, [this, index = static_cast<uint32_t>(rng_.below(scenario_.nodes))] { crash_node(index); });
  }
}

void World::end_client(Client& client, const std::string& how) {
  if (!client.end.empty()) violate(absl::StrCat("request ", client.request.id.value, " ended twice: ", client.end, ", ", how));
  client.end = how;
  --unfinished_;
  const bool wanted = how != "cancelled";
  if (wanted && client.score) outcome_.attainment.add(*client.score, how == "stop" || how == "length");
}

void World::on_deliver(const Tokens& tokens) {
  note(5, tokens.id.value, tokens.first_index);
  Client& client = clients_.at(tokens.id);
  const std::string name = absl::StrCat("request ", tokens.id.value);
  if (!client.end.empty()) return violate(absl::StrCat(name, " got tokens after its end (", client.end, ")"));
  if (tokens.first_index != client.received) return violate(absl::StrCat(name, " got index ", tokens.first_index, " for ", client.received));
  const Request& r = client.request;
  const uint32_t vocab = models_[r.model.value].vocab_size;
  for (const SampledToken& token : tokens.tokens) {
    TokenId expected = simulated_token(r.model, client.context, r.sampling.seed, client.received, vocab);
    const auto is_stop = [&](TokenId t) { return std::find(r.stop_ids.begin(), r.stop_ids.end(), t) != r.stop_ids.end(); };
    while (client.received < r.min_tokens && is_stop(expected)) expected = (expected + 1) % static_cast<TokenId>(vocab);
    if (token.token != expected) violate(absl::StrCat(name, " got another token at ", client.received));
    client.context = extend_context(client.context, token.token);
    client.output.push_back(token.token);
    client.score->add_token(now_);
    double& longest = client.received == 0 ? outcome_.first_token_seconds_max : outcome_.gap_seconds_max;
    longest = std::max(longest, to_seconds(now_ - client.last_token));
    client.last_token = now_;
    ++client.received;
  }
  if (!tokens.finish) return;
  if (*tokens.finish == FinishReason::kError) {
    ++outcome_.refused;
    return end_client(client, "error");
  }
  const bool stopped = !r.stop_ids.empty() && client.output.back() == r.stop_ids[0] && client.received > r.min_tokens;
  const bool full = client.received == r.max_tokens || r.prompt.size() + client.received == models_[r.model.value].max_model_len;
  if (!stopped && !full) violate(absl::StrCat(name, " finished early at ", client.received));
  ++outcome_.finished;
  end_client(client, std::string(finish_reason_name(*tokens.finish)));
}

void World::on_refuse(const Refuse& refuse) {
  note(6, refuse.id.value);
  ++outcome_.refused;
  end_client(clients_.at(refuse.id), "refused");
}

// ---- the run ----------------------------------------------------------------------------------------------------------------

void World::check_all() {
  router_->check();
  for (const NodeBody& body : nodes_) {
    if (body.node != nullptr) body.node->check();
  }
}

void World::check_end() {
  for (const auto& [id, client] : clients_) {
    if (client.end.empty()) violate(absl::StrCat("request ", id.value, " never ended"));
  }
  if (router_->live_requests() != 0) violate("the router still has requests");
  for (const NodeBody& body : nodes_) {
    if (body.node == nullptr) continue;
    if (!body.node->idle()) violate(absl::StrCat("node ", body.config.self.value, " is not idle at the end"));
    outcome_.steps += body.device->steps();
    for (const ModelStatus& model : body.node->status().models) {
      outcome_.preemptions += model.preemptions;
      outcome_.prefix_hits += model.prefix_hits;
      if (model.kv_bytes_active != 0) violate(absl::StrCat("model ", model.model.value, " holds KV of no request"));
    }
  }
}

Outcome World::run() {
  const TimePoint limit = TimePoint(std::chrono::hours(1));
  while (!heap_.empty() && outcome_.violations.empty()) {
    const HeapItem item = heap_.top();
    heap_.pop();
    if (item.at > limit && unfinished_ == 0) break;  // only far deadlines are left
    if (item.at > limit) {
      violate("no end in an hour");
      break;
    }
    now_ = item.at;
    ++outcome_.events;
    item.act();
    check_all();
  }
  check_end();
  outcome_.virtual_seconds = to_seconds(now_.time_since_epoch());
  return outcome_;
}

}  // namespace shoal
