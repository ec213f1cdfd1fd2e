#include "sim/expert_server.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace shoal {

SimExpertServer::SimExpertServer(ExpertWorldState& world, uint32_t id, std::vector<SimExpertLink*> links, Hear hear)
    : world_(world), id_(id), links_(std::move(links)), hear_(std::move(hear)) {}

void SimExpertServer::start() {
  alive_ = true;
  serving_ = false;
  ++life_;
  held_.clear();
  ready_.clear();
  former_.emplace(world_.setup.batch);
  attached_.clear();
  stopped_until_ = TimePoint{};
}

void SimExpertServer::kill() {
  alive_ = false;
  ++life_;
  ready_.clear();
  held_.clear();
}

void SimExpertServer::attach(uint32_t client) {
  former_->attach(client);
  attached_.insert(client);
}

void SimExpertServer::detach(uint32_t client) {
  former_->detach(client);
  attached_.erase(client);
  std::erase_if(ready_, [&](const Item& item) { return item.client == client; });
  consider();
}

// A server that is stopped does everything when it goes on.
bool SimExpertServer::later(std::function<void()> act) {
  if (!stopped()) return false;
  world_.heap.at(stopped_until_, [this, life = life_, act = std::move(act)] {
    if (alive_ && life == life_) act();
  });
  return true;
}

void SimExpertServer::look(uint32_t client, uint32_t lane) {
  if (!alive_ || later([this, client, lane] { look(client, lane); })) return;
  SimExpertLink& link = *links_[client];
  if (!link.up() || !attached_.contains(client)) return;
  SimExpertLink::Lane& at = link.lane(lane);
  const ExpertWorldSetup& s = world_.setup;
  RequestView view;
  Status why;
  const auto found = at.server.look(SimExpertLink::word_of(at.request), at.request, {.width = 1, .layers = s.layers, .experts = s.experts}, false, view, why);
  if (found == ServerSlot::Found::kTorn) ++world_.outcome.torn;
  if (found == ServerSlot::Found::kBad) world_.violate(absl::StrCat("server ", id_, " was asked something senseless: ", std::string(why.message())));
  if (found != ServerSlot::Found::kRequest) return;
  Item item{client, lane, link.life(), view.head, view.routes, {view.hidden.begin(), view.hidden.end()}, world_.now};
  former_->arrived(client, world_.now);
  if (refused(item)) return;
  ready_.push_back(std::move(item));
  consider();
}

bool SimExpertServer::refused(const Item& item) {
  if (std::all_of(item.routes.begin(), item.routes.end(), [&](const SlotRoute& r) { return holds(item.head.layer, r.expert); })) return false;
  ++world_.outcome.not_hosted;
  answer(item, SlotStatus::kNotHosted, 1);
  return true;
}

std::vector<ReadySlot> SimExpertServer::ready() const {
  std::vector<ReadySlot> out;
  for (const Item& item : ready_) out.push_back({item.client, item.head.rows, item.since, kForever});
  return out;
}

double SimExpertServer::service(const std::vector<Item>& batch) const {
  std::set<std::pair<uint32_t, uint32_t>> active;
  double rows = 0;
  for (const Item& item : batch) {
    rows += item.head.rows;
    for (const SlotRoute& route : item.routes) active.insert({item.head.layer, route.expert});
  }
  return world_.setup.service.seconds(static_cast<double>(active.size()), rows);
}

void SimExpertServer::consider() {
  if (!alive_ || serving_ || ready_.empty() || later([this] { consider(); })) return;
  const auto slots = ready();
  const BatchDecision decision = former_->decide(slots, world_.now, from_seconds(service(ready_)));
  if (decision.fire) {
    former_->fired(slots, world_.now);
    return begin(std::exchange(ready_, {}));
  }
  if (decision.look_again == kForever) return;
  world_.heap.at(std::max(decision.look_again, world_.now), [this, life = life_] {
    if (life == life_) consider();
  });
}

void SimExpertServer::begin(std::vector<Item> batch) {
  std::erase_if(batch, [&](const Item& item) { return refused(item); });  // dropped since it came
  if (batch.empty()) return;
  serving_ = true;
  ++world_.outcome.batches;
  std::set<uint32_t> clients;
  for (const Item& item : batch) clients.insert(item.client);
  world_.outcome.batch_clients += clients.size();
  world_.note(2, id_, batch.size());
  const double seconds = service(batch);
  world_.after(seconds, [this, life = life_, batch = std::move(batch)]() mutable {
    if (life == life_) finish(batch);
  });
}

void SimExpertServer::finish(const std::vector<Item>& batch) {
  if (later([this, batch] { finish(batch); })) return;
  serving_ = false;
  for (const Item& item : batch) answer(item, SlotStatus::kOk, static_cast<uint32_t>(batch.size()));
  consider();
}

void SimExpertServer::answer(const Item& item, SlotStatus status, uint32_t clients) {
  SimExpertLink& link = *links_[item.client];
  if (!link.up() || link.life() != item.link_life) return;
  SimExpertLink::Lane& at = link.lane(item.lane);
  const bool ok = status == SlotStatus::kOk;
  std::vector<std::byte> half(at.response.size());
  const uint32_t rows = ok ? item.head.rows : 0;
  const ResponseHead head{.layer = item.head.layer, .lane = item.head.lane, .rows = rows, .width = 1, .status = status, .seq = item.head.seq, .client = item.head.client, .epoch = item.head.epoch,
                          .batch_clients = static_cast<uint16_t>(clients)};
  const auto outputs = write_response(head, half);
  if (!outputs.ok()) return world_.violate(std::string(outputs.status().message()));
  for (uint32_t row = 0; row < rows; ++row) (*outputs)[row] = expert_value(item.head.layer, item.routes[row].expert, item.hidden[item.routes[row].token]);
  if (ok) rows_answered_ += rows;
  if (ok && rows_answered_ - rows < world_.setup.wrong_answer && rows_answered_ >= world_.setup.wrong_answer) (*outputs)[0] += 1;
  seal_response(half);
  const double bytes = world_.setup.answer_row_bytes * rows / world_.setup.link_bytes_per_second, now = world_.seconds();
  out_free_ = std::max(out_free_, now) + bytes;
  link.write(false, item.lane, std::move(half), pack(at.server.answer()), {out_free_ - now, world_.setup.link_s},
             [this, client = item.client, lane = item.lane] { hear_(client, id_, lane); });
}

}  // namespace shoal
