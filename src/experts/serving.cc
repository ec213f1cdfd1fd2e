#include "experts/serving.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "experts/request_rows.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr Duration kNap = std::chrono::milliseconds(50);  // at most, so that a client that ended is noticed

constexpr Duration kSaidLately = std::chrono::seconds(10);

uint32_t micros(Duration time) { return static_cast<uint32_t>(std::clamp<int64_t>(time.count() / 1000, 0, UINT32_MAX)); }

}  // namespace

void LastOverlap::said(const ExpertOverlap& overlap, TimePoint now) {
  std::lock_guard lock(mutex_);
  overlap_ = overlap;
  at_ = now;
}

ExpertOverlap LastOverlap::lately(TimePoint now) const {
  std::lock_guard lock(mutex_);
  return now - at_ < kSaidLately ? overlap_ : ExpertOverlap{};
}

SlotChannel::OnNote ExpertClientSide::hears() {
  return [this](const Json& note) {
    const auto said = read_overlap(note);
    if (said.ok()) overlap.said(*said, steady_now());
  };
}

Serving::Serving(const ExpertServerConfig& config, const Holdings& holdings, std::shared_ptr<Bell> bell)
    : config_(config), holdings_(holdings), bell_(std::move(bell)),
      threads_(ThreadPoolOptions{.threads = config.threads, .cpus = config.cpus}), compute_(threads_), former_(config.batch) {
  for (size_t model = 0; model < holdings.models().size(); ++model) rows_by_expert_.emplace_back(holdings.shape(model).count());
  thread_ = std::thread([this] { run(); });
}

Serving::~Serving() {
  stop_ = true;
  bell_->ring();
  thread_.join();
}

void Serving::add(std::shared_ptr<ExpertClientSide> client) {
  {
    std::lock_guard lock(mutex_);
    clients_.push_back(std::move(client));
  }
  changed_ = true;
  bell_->ring();
}

std::vector<std::shared_ptr<ExpertClientSide>> Serving::clients() const {
  std::lock_guard lock(mutex_);
  return clients_;
}

std::vector<std::shared_ptr<ExpertClientSide>> Serving::take_ended() {
  std::lock_guard lock(mutex_);
  return std::exchange(ended_, {});
}

ServingCounts Serving::counts() const {
  std::lock_guard lock(mutex_);
  ServingCounts counts = counts_;
  counts.busy = busy_.share(steady_now());
  return counts;
}
std::vector<std::vector<uint64_t>> Serving::rows_by_expert() const {
  std::lock_guard lock(mutex_);
  return rows_by_expert_;
}
std::vector<Serving::Timed> Serving::table() const {
  std::lock_guard lock(mutex_);
  std::vector<Timed> result;
  for (const auto& [key, timed] : table_) result.push_back(timed);
  return result;
}

// New clients in, ended ones out: with them go their requests, and nobody waits for them any more.
void Serving::refresh() {
  const bool changed = changed_.exchange(false);
  const auto over = [](const std::shared_ptr<ExpertClientSide>& client) { return client->channel->broken() || client->left; };
  if (!changed && std::none_of(serving_.begin(), serving_.end(), over)) return;
  std::lock_guard lock(mutex_);
  for (const auto& client : clients_) {
    if (!over(client)) continue;
    std::erase_if(ready_, [&](const Request& request) { return request.client == client.get(); });
    former_.detach(static_cast<uint32_t>(client->id));
    ended_.push_back(client);
  }
  std::erase_if(clients_, over);
  serving_ = clients_;
  for (const auto& client : serving_) former_.attach(static_cast<uint32_t>(client->id));
}

void Serving::run() {
  bind_this_thread(config_.cpus);
  while (!stop_) {
    refresh();
    const TimePoint now = steady_now();
    const bool found = look(now);
    if (ready_.empty()) {
      rest(found, kForever);
      continue;
    }
    std::vector<ReadySlot> view;
    for (const Request& request : ready_) {
      const TimePoint due = request.view.head.slack_us == 0 ? kForever : request.since + std::chrono::microseconds(request.view.head.slack_us);
      view.push_back({static_cast<uint32_t>(request.client->id), request.view.head.rows, request.since, due});
    }
    const BatchDecision decision = former_.decide(view, now, expected_service());
    if (!decision.fire) {
      rest(found, decision.look_again);
      continue;
    }
    former_.fired(view, now);
    serve(std::exchange(ready_, {}));
    last_work_ = steady_now();
  }
}

bool Serving::look(TimePoint now) {
  const size_t before = ready_.size();
  bool found = false;
  for (const auto& client : serving_) {
    for (uint32_t lane = 0; lane < client->slots.size(); ++lane) look_at(*client, lane, now);
    if (client->relay != nullptr) found |= hear_relay(*client);
  }
  return found || ready_.size() > before;
}

// What is not all here, of a client that comes over the network, is given to the servers of this machine.
void Serving::take(ExpertClientSide& client, uint32_t lane, RequestView view, TimePoint now) {
  ++client.requests;
  if (client.relay != nullptr && !is_held(view, holdings_.now()->models[client.model], holdings_.models()[client.model].plan->experts())) {
    client.relay->ask(view);
    std::lock_guard lock(mutex_);
    ++counts_.relayed;
    return;
  }
  former_.arrived(static_cast<uint32_t>(client.id), now);
  ready_.push_back({&client, lane, std::move(view), now});
}

bool Serving::hear_relay(ExpertClientSide& client) {
  const auto answered = client.relay->answered();
  if (!answered) return false;
  if (answered->outputs.empty()) refuse(client, answered->of.lane, answered->of, SlotStatus::kNotHosted);
  else answer(client, answered->of.lane, answered->of, {}, answered->outputs);  // sums, if it asks for them
  return true;
}

void Serving::look_at(ExpertClientSide& client, uint32_t lane, TimePoint now) {
  SlotChannel& channel = *client.channel;
  const ExpertPlan& plan = *holdings_.models()[client.model].plan;
  const RequestLimits limits{.width = plan.hidden(), .layers = plan.layers(), .experts = plan.experts()};
  RequestView view;
  Status why;
  switch (client.slots[lane].look(channel.control(lane), channel.inbox(lane), limits, channel.streamed() && channel.arrived(lane), view, why)) {
    case ServerSlot::Found::kNothing: return;
    case ServerSlot::Found::kRequest: return take(client, lane, std::move(view), now);
    case ServerSlot::Found::kEmpty: return answer(client, lane, view.head, {}, {});
    case ServerSlot::Found::kRepublish: return channel.publish(lane, client.slots[lane].answered(), client.answer_bytes[lane]);
    case ServerSlot::Found::kDetach: client.left = true; return;
    case ServerSlot::Found::kTorn: {
      std::lock_guard lock(mutex_);
      ++counts_.damaged;
      return;
    }
    case ServerSlot::Found::kBad:
      log_warning("'", client.hello.client, "' asks for what cannot be computed: ", why.message());
      return refuse(client, lane, view.head, SlotStatus::kBadRequest);
  }
}

// Looks again at once for a while, then sleeps until a bell rings.
void Serving::rest(bool found, TimePoint until) {
  const TimePoint now = steady_now();
  if (found || now - last_work_ < config_.spin || until <= now + config_.spin) return;
  for (const auto& client : serving_) client->channel->sleeping(true);
  const Duration most = std::min(doze(), until == kForever ? kNap : until - now);
  if (!look(now) && !changed_ && !stop_ && most > Duration(0)) bell_->wait(most);
  for (const auto& client : serving_) {
    client->channel->sleeping(false);
    if (client->relay != nullptr) client->relay->woken();
  }
}

// For how long nothing has to be looked at before the bell rings.
Duration Serving::doze() {
  Duration most = kNap;
  for (const auto& client : serving_) {
    if (client->relay != nullptr) most = std::min(most, client->relay->doze());
  }
  return most;
}

void Serving::serve(std::vector<Request> batch) {
  const auto held = holdings_.now();
  const TimePoint begun = steady_now();
  std::stable_sort(batch.begin(), batch.end(), [](const Request& a, const Request& b) { return a.client->model < b.client->model; });
  for (size_t begin = 0; begin < batch.size();) {
    size_t end = begin + 1;
    const size_t model = batch[begin].client->model;
    while (config_.regroup && end < batch.size() && batch[end].client->model == model) ++end;
    compute(model, std::span(batch).subspan(begin, end - begin), *held, begun);
    begin = end;
  }
}

bool Serving::is_held(const RequestView& view, std::span<const std::shared_ptr<const HeldExpert>> experts, uint32_t per_layer) const {
  const uint32_t first = view.head.layer * per_layer;
  return std::all_of(view.routes.begin(), view.routes.end(), [&](const SlotRoute& route) { return experts[first + route.expert] != nullptr; });
}

// Who asks for what is not here is told so, as a whole.
std::vector<Serving::Request*> Serving::held_here(std::span<Request> requests, std::span<const std::shared_ptr<const HeldExpert>> experts, uint32_t per_layer) {
  std::vector<Request*> served;
  for (Request& request : requests) {
    if (is_held(request.view, experts, per_layer)) served.push_back(&request);
    else refuse(*request.client, request.lane, request.view.head, SlotStatus::kNotHosted);
  }
  return served;
}

void Serving::compute(size_t model, std::span<Request> requests, const Holdings::Snapshot& held, TimePoint begun) {
  const ExpertPlan& plan = *holdings_.models()[model].plan;
  const std::vector<std::shared_ptr<const HeldExpert>>& experts = held.models[model];
  const uint64_t hidden = plan.hidden();
  const auto index_of = [&](const Request& request, const SlotRoute& route) { return request.view.head.layer * plan.experts() + route.expert; };
  const std::vector<Request*> served = held_here(requests, experts, plan.experts());
  if (served.empty()) return;
  // Rows by expert, counted, then placed: those of an expert lie together, in the order of the requests.
  std::vector<uint32_t> at(experts.size() + 1);
  for (const Request* request : served) {
    for (const SlotRoute& route : request->view.routes) ++at[index_of(*request, route) + 1];
  }
  std::vector<ExpertCompute::Group> groups;
  uint32_t active = 0;
  for (size_t i = 0; i < experts.size(); ++i) {
    const uint32_t rows = at[i + 1];
    active += rows > 0 ? 1 : 0;
    if (rows > 0 || (!config_.shrink && experts[i] != nullptr)) groups.push_back({experts[i].get(), rows});
    at[i + 1] += at[i];
  }
  const uint32_t rows = at.back();
  const std::span<float> input = compute_.input(plan, rows);
  std::vector<float> weights(rows);
  std::vector<uint32_t> places;
  places.reserve(rows);
  for (const Request* request : served) {
    for (const SlotRoute& route : request->view.routes) {
      const uint32_t place = at[index_of(*request, route)]++;
      places.push_back(place);
      weights[place] = route.weight;
      std::memcpy(input.data() + place * hidden, request->view.hidden.data() + route.token * hidden, hidden * sizeof(float));
    }
  }
  const std::span<const float> out = rows == 0 ? std::span<const float>() : compute_.run(plan, groups, weights);
  const Duration took = steady_now() - begun;
  note_batch(model, served.size(), active, at, begun, took);
  scatter(served, places, out, rows, begun, took);
}

// Each request's rows back in its own order.
void Serving::scatter(std::span<Request* const> served, std::span<const uint32_t> places, std::span<const float> out, uint32_t rows, TimePoint begun, Duration took) {
  std::vector<float> gathered;
  size_t next = 0;
  for (const Request* request : served) {
    const auto& head = request->view.head;
    const uint64_t hidden = head.width;
    gathered.resize(head.rows * hidden);
    for (uint32_t row = 0; row < head.rows; ++row) std::memcpy(gathered.data() + row * hidden, out.data() + places[next++] * hidden, hidden * sizeof(float));
    const bool weigh_input = holdings_.models()[request->client->model].plan->weigh_input();
    answer(*request->client, request->lane, head,
           {.batch_clients = static_cast<uint16_t>(std::min<size_t>(served.size(), UINT16_MAX)), .batch_rows = rows, .service_us = micros(took), .queue_us = micros(begun - request->since)},
           head.sums ? summed_rows(request->view, weigh_input, gathered) : gathered);
  }
}

void Serving::answer(ExpertClientSide& client, uint32_t lane, const RequestHead& of, ResponseHead head, std::span<const float> outputs) {
  const std::span<std::byte> half = client.channel->outbox(lane);
  head.layer = of.layer, head.lane = of.lane, head.seq = of.seq, head.client = of.client, head.epoch = of.epoch;
  head.rows = of.width == 0 ? 0 : static_cast<uint32_t>(outputs.size() / of.width);
  head.width = outputs.empty() ? 0 : of.width;
  head.placement = holdings_.version();
  head.seal = client.channel->streamed() ? SlotSeal::kWhole : SlotSeal::kHead;
  const auto to = write_response(head, half);
  if (!to.ok()) return refuse(client, lane, of, SlotStatus::kBadRequest);  // more rows than it was told to ask for
  if (!outputs.empty()) std::memcpy(to->data(), outputs.data(), outputs.size_bytes());
  seal_response(half);
  client.answer_bytes[lane] = response_bytes(head.rows, head.width);
  client.channel->publish(lane, client.slots[lane].answer(), client.answer_bytes[lane]);
}

void Serving::refuse(ExpertClientSide& client, uint32_t lane, const RequestHead& of, SlotStatus status) {
  {
    std::lock_guard lock(mutex_);
    ++counts_.refused;
  }
  answer(client, lane, of, {.status = status}, {});
}

Duration Serving::expected_service() const {
  const ServingCounts done = counts();
  return done.batches == 0 ? Duration(0) : from_seconds(done.busy_seconds / static_cast<double>(done.batches));
}

// `ends`: of each expert's rows in the batch, ascending.
void Serving::note_batch(size_t model, size_t requests, uint32_t active, std::span<const uint32_t> ends, TimePoint begun, Duration took) {
  const double seconds = to_seconds(took);
  const uint32_t rows = ends.back();
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < rows_by_expert_[model].size(); ++i) rows_by_expert_[model][i] += ends[i] - (i == 0 ? 0 : ends[i - 1]);
  ++counts_.batches;
  counts_.requests += requests;
  counts_.rows += rows;
  counts_.active += active;
  counts_.busy_seconds += seconds;
  busy_.add(begun + took, took);
  if (rows == 0) return;
  Timed& timed = table_.try_emplace({std::bit_floor(rows), std::bit_floor(active)}, Timed{std::bit_floor(rows), std::bit_floor(active), 0, 0}).first->second;
  timed.seconds += (seconds - timed.seconds) / static_cast<double>(std::min<uint64_t>(++timed.batches, 256));
}

}  // namespace shoal
