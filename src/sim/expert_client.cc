#include "sim/expert_client.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

constexpr double kQuarantineSeconds = 50e-3;  // of a slot without its late answer

}  // namespace

SimExpertClient::SimExpertClient(ExpertWorldState& world, uint32_t id, std::vector<SimExpertLink*> links, Look look, End end)
    : world_(world), id_(id), links_(std::move(links)), look_(std::move(look)), end_(std::move(end)), lanes_(world.setup.lanes) {
  double sum = 0;
  for (uint32_t e = 0; e < world.setup.experts; ++e) popularity_.push_back(sum += std::pow(e + 1, -world.setup.skew));
}

bool SimExpertClient::done() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return lane.pass == world_.setup.passes; });
}

void SimExpertClient::start() {
  alive_ = true;
  ++life_;
  free_ = world_.now;
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    lanes_[lane].layer = 0;
    lanes_[lane].calling = false;
    if (life_ == 1) lanes_[lane].began = world_.now;
    if (lanes_[lane].pass < world_.setup.passes) compute(lane);
  }
}

void SimExpertClient::kill() {
  alive_ = false;
  ++life_;
  suspected_.clear();
  times_ = {};
  for (SimExpertLink* link : links_) link->cut_short(true);
}

void SimExpertClient::compute(uint32_t lane) {
  free_ = std::max(free_, world_.now) + from_seconds(world_.setup.attention_s);
  world_.heap.at(free_, [this, lane, life = life_] {
    if (life == life_) dispatch(lane);
  });
}

// A token goes to distinct experts, drawn by their popularity: the same for the same (client, lane, pass, layer).
void SimExpertClient::dispatch(uint32_t lane) {
  Lane& at = lanes_[lane];
  const ExpertWorldSetup& s = world_.setup;
  Rng rng(counter_bits(s.seed, (uint64_t{id_} << 32) | lane, (uint64_t{at.pass} << 32) | at.layer));
  at.rows.clear();
  at.hidden.clear();
  for (uint32_t token = 0; token < s.tokens; ++token) {
    at.hidden.push_back(static_cast<float>(rng.below(100'000)));
    std::vector<uint32_t> chosen;
    while (chosen.size() < s.experts_per_token) {
      const auto expert = static_cast<uint32_t>(std::upper_bound(popularity_.begin(), popularity_.end() - 1, rng.uniform() * popularity_.back()) - popularity_.begin());
      if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) chosen.push_back(expert);
    }
    for (const uint32_t expert : chosen) at.rows.push_back({token, expert});
  }
  at.answers.assign(at.rows.size(), 0);
  at.calling = true;
  at.was_deferred = false;
  send(lane, at.call.begin({placement_, suspected_}, at.layer, at.rows, rng.bits()));
  settle(lane);
}

void SimExpertClient::send(uint32_t lane, const std::vector<ExpertAsk>& asks) {
  for (const ExpertAsk& ask : asks) {
    if (!links_[ask.server.value]->up()) {
      give_up(ask.server.value);
      continue;
    }
    links_[ask.server.value]->lane(lane).queue.push_back(ask);
    submit(ask.server.value, lane);
  }
}

// The next request of a slot, if it is free.
void SimExpertClient::submit(uint32_t server, uint32_t lane) {
  SimExpertLink& link = *links_[server];
  SimExpertLink::Lane& slot = link.lane(lane);
  if (slot.queue.empty() || slot.client.state() != ClientSlot::State::kIdle || !link.up()) return;
  ExpertAsk ask = std::move(slot.queue.front());
  slot.queue.pop_front();
  const Lane& at = lanes_[lane];
  std::vector<uint32_t> tokens;
  std::vector<SlotRoute> routes;
  for (const uint32_t row : ask.rows) {
    if (tokens.empty() || tokens.back() != at.rows[row].token) tokens.push_back(at.rows[row].token);
    routes.push_back({static_cast<uint16_t>(tokens.size() - 1), static_cast<uint16_t>(at.rows[row].expert), 1.0f});
  }
  const auto rows = static_cast<uint32_t>(ask.rows.size());
  const ControlWord word = slot.client.submit(SlotKind::kRequest, static_cast<uint16_t>(at.layer), rows, 1);
  std::vector<std::byte> half(slot.request.size());
  const RequestHead head{.layer = static_cast<uint16_t>(at.layer), .lane = static_cast<uint16_t>(lane), .tokens = static_cast<uint32_t>(tokens.size()), .rows = rows, .width = 1, .client = number(),
                         .placement = static_cast<uint32_t>(placement_.version), .seq = word.seq, .epoch = word.epoch};
  const auto hidden = write_request(head, routes, half);
  if (!hidden.ok()) return world_.violate(std::string(hidden.status().message()));
  for (size_t i = 0; i < tokens.size(); ++i) (*hidden)[i] = at.hidden[tokens[i]];
  seal_request(half);
  slot.submitted = world_.now;
  slot.under_way = std::move(ask);
  const double bytes = world_.setup.row_bytes * static_cast<double>(tokens.size()) / world_.setup.link_bytes_per_second, now = world_.seconds();
  out_free_ = std::max(out_free_, now) + bytes;
  link.write(true, lane, std::move(half), pack(word), {out_free_ - now, world_.setup.link_s}, [this, server, lane] { look_(id_, server, lane); });
  world_.heap.at(world_.now + times_.timeout(), [this, server, lane, life = link.life(), seq = word.seq, mine = life_] {
    if (mine == life_) timed_out(server, lane, life, seq);
  });
}

void SimExpertClient::timed_out(uint32_t server, uint32_t lane, uint64_t link_life, uint32_t seq) {
  SimExpertLink& link = *links_[server];
  SimExpertLink::Lane& slot = link.lane(lane);
  if (link.life() != link_life || !slot.under_way || slot.client.seq() != seq) return;
  ++world_.outcome.given_up;
  give_up(server);
  world_.after(kQuarantineSeconds, [this, server, life = link.life(), mine = life_] {
    if (mine == life_ && links_[server]->life() == life && quarantined(server)) end_(id_, server);
  });
}

bool SimExpertClient::quarantined(uint32_t server) const {
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (links_[server]->lane(lane).client.state() == ClientSlot::State::kQuarantined) return true;
  }
  return false;
}

// Whatever it owes is asked of others. Its slots are quarantined until their late answers came, or a new connection is made.
void SimExpertClient::give_up(uint32_t server) {
  if (std::find(suspected_.begin(), suspected_.end(), NodeId(server)) == suspected_.end()) suspected_.push_back(NodeId(server));
  SimExpertLink& link = *links_[server];
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    SimExpertLink::Lane& slot = link.lane(lane);
    if (link.up() && slot.client.state() == ClientSlot::State::kSubmitted) slot.client.give_up();
    slot.under_way.reset();
    slot.queue.clear();
  }
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    Lane& at = lanes_[lane];
    if (!at.calling) continue;
    const auto asks = at.call.give_up(NodeId(server), {placement_, suspected_});
    for (const ExpertAsk& ask : asks) world_.outcome.resent_rows += ask.rows.size();
    send(lane, asks);
    settle(lane);
  }
}

void SimExpertClient::lost(uint32_t server) {
  if (alive_) give_up(server);
}

void SimExpertClient::connected(uint32_t server) {
  std::erase(suspected_, NodeId(server));
  if (alive_) retry();
}

void SimExpertClient::placed(const ExpertPlacement& placement) {
  if (placement.version < placement_.version) return world_.violate("a client was given an older placement");
  placement_ = placement;
  if (alive_) retry();
}

void SimExpertClient::retry() {
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (!lanes_[lane].calling) continue;
    send(lane, lanes_[lane].call.retry({placement_, suspected_}));
    settle(lane);
  }
}

void SimExpertClient::hear(uint32_t server, uint32_t lane) {
  SimExpertLink& link = *links_[server];
  if (!alive_ || !link.up()) return;
  SimExpertLink::Lane& slot = link.lane(lane);
  ResponseView view;
  Status why;
  const auto heard = slot.client.hear(SimExpertLink::word_of(slot.response), slot.response, view, why);
  if (heard == ClientSlot::Heard::kTorn) ++world_.outcome.torn;
  if (heard == ClientSlot::Heard::kBad) world_.violate(absl::StrCat("a senseless answer of server ", server, ": ", std::string(why.message())));
  if (heard == ClientSlot::Heard::kLate) {  // it is alive after all
    ++world_.outcome.late_answers;
    if (!quarantined(server)) connected(server);
  }
  if (heard != ClientSlot::Heard::kAnswer) return;
  const ExpertAsk ask = *std::exchange(slot.under_way, std::nullopt);
  times_.add(world_.now - slot.submitted);
  take(lane, ask, view);
  submit(server, lane);
  settle(lane);
}

void SimExpertClient::take(uint32_t lane, const ExpertAsk& ask, const ResponseView& view) {
  Lane& at = lanes_[lane];
  if (view.head.status != SlotStatus::kOk) {  // it has not got one of them: somebody else is asked
    const auto asks = at.call.give_up(ask.server, ask.rows, {placement_, suspected_});
    for (const ExpertAsk& again : asks) world_.outcome.resent_rows += again.rows.size();
    return send(lane, asks);
  }
  if (!at.calling || !at.call.answered(ask.server, ask.rows)) return world_.violate(absl::StrCat("client ", id_, " took an answer that it did not wait for"));
  for (size_t i = 0; i < ask.rows.size(); ++i) {
    const ExpertRow& row = at.rows[ask.rows[i]];
    if (++at.answers[ask.rows[i]] != 1) world_.violate("a row was answered twice");
    if (view.outputs[i] != expert_value(at.layer, row.expert, at.hidden[row.token])) world_.violate(absl::StrCat("client ", id_, ": a row of layer ", at.layer, " has the answer of another"));
  }
}

void SimExpertClient::settle(uint32_t lane) {
  Lane& at = lanes_[lane];
  if (at.calling && at.call.done()) return end_layer(lane);
  if (at.calling && at.call.deferred() && !std::exchange(at.was_deferred, true)) ++world_.outcome.deferred;
}

void SimExpertClient::end_layer(uint32_t lane) {
  Lane& at = lanes_[lane];
  at.calling = false;
  world_.outcome.rows += at.rows.size();
  if (std::any_of(at.answers.begin(), at.answers.end(), [](uint8_t n) { return n != 1; })) world_.violate("a layer ended without an answer to every row");
  world_.note(1, (uint64_t{id_} << 32) | lane, (uint64_t{at.pass} << 32) | at.layer);
  if (++at.layer == world_.setup.layers) {
    at.layer = 0;
    ++at.pass;
    ++world_.outcome.passes;
    world_.outcome.done.push_back({world_.seconds(), to_seconds(world_.now - at.began)});
    at.began = world_.now;
  }
  if (at.pass < world_.setup.passes) compute(lane);
}

}  // namespace shoal
