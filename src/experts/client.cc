#include "experts/client.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "device/cpu_device.h"
#include "experts/links.h"
#include "models/expert_plan.h"

namespace shoal {
namespace {

constexpr size_t kLanesMax = 4;
constexpr Duration kNap = std::chrono::milliseconds(5);  // at most: time-outs are looked at then
constexpr uint32_t kExpertCost = 4;  // rows that an expert more costs a server about as much as

class Client : public RemoteExperts {
 public:
  Client(RemoteExpertsConfig config, std::shared_ptr<Bell> bell) : config_(std::move(config)), bell_(bell), links_(config_, std::move(bell)) {}

  void ask(uint32_t lane, const Exchange& exchange) override;
  StatusOr<uint32_t> await() override;
  void set_servers(std::vector<ExpertAddress> servers) override { links_.set_servers(std::move(servers)); }
  Status wait_complete(Duration most) override { return links_.wait_complete(most); }
  std::vector<RemoteExpertServer> servers() const override { return links_.servers(); }
  RemoteExpertsCounts counts() const override {
    std::lock_guard lock(mutex_);
    RemoteExpertsCounts counts = told_;
    counts.wishes = links_.wishes();
    return counts;
  }

 private:
  using Link = std::shared_ptr<ExpertLink>;
  // Rows for one server, in one request.
  struct Part {
    Link link;
    std::vector<uint32_t> rows;  // routed ones
    bool sent = false;
    TimePoint sent_at{}, late_at{};
  };
  struct Asked {
    bool active = false;
    Exchange exchange;
    std::vector<uint32_t> expert_of;   // of each routed row
    std::vector<Part> parts;           // that are not answered
    std::vector<uint32_t> homeless;    // rows that nobody can be asked for now, but maybe soon
    TimePoint homeless_since{};
  };

  void look_at_list();
  void hear_late(const ExpertLinks::List& list, uint32_t lane);
  Status route(uint32_t lane, std::vector<uint32_t> rows, TimePoint now);
  Link choose(const ExpertLinks::List& list, uint32_t lane, uint32_t index, const std::map<ExpertLink*, uint64_t>& given) const;
  bool held_by_another(const ExpertLinks::List& list, const Part& part, uint32_t lane) const;
  uint32_t index_of(const Asked& asked, uint32_t row) const { return asked.exchange.layer * config_.plan->experts() + asked.expert_of[row]; }
  void send(uint32_t lane, TimePoint now);
  void send_part(uint32_t lane, Part& part, TimePoint now);
  Status progress(uint32_t lane, TimePoint now);
  StatusOr<bool> hear(uint32_t lane, Part& part, std::vector<uint32_t>& again, TimePoint now);
  void take(uint32_t lane, const Part& part, const ResponseView& view, TimePoint now);
  void refused(uint32_t lane, const Part& part, SlotStatus status);
  void disown(uint32_t lane, Part& part);
  void forget_all();
  void rest();
  TimePoint next_look() const;

  const RemoteExpertsConfig config_;
  const std::shared_ptr<Bell> bell_;
  ExpertLinks links_;
  std::array<Asked, kLanesMax> asked_;
  std::shared_ptr<const ExpertLinks::List> list_ = std::make_shared<const ExpertLinks::List>();
  uint64_t list_version_ = UINT64_MAX;
  TimePoint last_progress_{};
  RemoteExpertsCounts counts_;  // of the thread
  mutable std::mutex mutex_;
  RemoteExpertsCounts told_;    // guarded by mutex_
};

void Client::look_at_list() {
  if (list_version_ == links_.version()) return;
  list_version_ = links_.version();
  list_ = links_.now();
}

// Answers to what was given up free their slots, and say that their server is there again.
void Client::hear_late(const ExpertLinks::List& list, uint32_t lane) {
  for (const Link& link : list) {
    ClientSlot& slot = link->slots[lane];
    if (slot.state() != ClientSlot::State::kQuarantined) continue;
    ResponseView view;
    Status why;
    const auto heard = slot.hear(link->channel->control(lane), link->channel->inbox(lane), view, why);
    if (heard == ClientSlot::Heard::kBad) link->channel->end();
    if (heard != ClientSlot::Heard::kLate) continue;
    ++counts_.late;
    link->suspected = false;
  }
}

Client::Link Client::choose(const ExpertLinks::List& list, uint32_t lane, uint32_t index, const std::map<ExpertLink*, uint64_t>& given) const {
  Link best;
  uint64_t least = UINT64_MAX;
  for (size_t i = 0; i < list.size(); ++i) {
    const Link& link = list[(i + index) % list.size()];  // equal ones take turns
    if (!link->usable() || link->slots[lane].state() == ClientSlot::State::kQuarantined || !link->holds()->has(index)) continue;
    uint64_t load = 0;
    for (const uint32_t rows : link->busy) load += rows;
    if (const auto found = given.find(link.get()); found != given.end()) load += found->second;
    if (load >= least) continue;
    least = load;
    best = link;
  }
  return best;
}

// Whole experts to servers, those with most rows first, each to the server with least to do.
Status Client::route(uint32_t lane, std::vector<uint32_t> rows, TimePoint now) {
  Asked& asked = asked_[lane];
  std::map<uint32_t, std::vector<uint32_t>> by_expert;
  for (const uint32_t row : rows) by_expert[index_of(asked, row)].push_back(row);
  std::vector<std::pair<size_t, uint32_t>> order;
  for (const auto& [index, of] : by_expert) order.emplace_back(of.size(), index);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::map<ExpertLink*, uint64_t> given;
  std::map<ExpertLink*, std::pair<Link, std::vector<uint32_t>>> mine;
  Status missing;
  for (const auto& [count, index] : order) {
    const Link link = choose(*list_, lane, index, given);
    if (link != nullptr) {
      given[link.get()] += count + kExpertCost;
      auto& [owner, of] = mine[link.get()];
      owner = link;
      of.insert(of.end(), by_expert[index].begin(), by_expert[index].end());
      continue;
    }
    const bool maybe = std::any_of(list_->begin(), list_->end(), [&, i = index](const Link& l) { return !l->channel->broken() && l->holds()->has(i); });
    if (!maybe) {
      links_.wish(index);
      missing = unavailable("'", config_.model, "': ", expert_text(links_.shape(), index), " is held by no server that is connected; one with room for it is asked to load it");
    }
    if (asked.homeless.empty()) asked.homeless_since = now;
    asked.homeless.insert(asked.homeless.end(), by_expert[index].begin(), by_expert[index].end());
  }
  if (!missing.ok()) {  // nothing is sent for a pass that cannot end; the rows stay known
    asked.homeless = std::move(rows);
    return missing;
  }
  for (auto& [key, entry] : mine) {
    auto& [link, of] = entry;
    for (size_t begin = 0; begin < of.size(); begin += link->welcome.rows_max) {
      const size_t end = std::min(of.size(), begin + link->welcome.rows_max);
      asked.parts.push_back({.link = link, .rows = {of.begin() + static_cast<ptrdiff_t>(begin), of.begin() + static_cast<ptrdiff_t>(end)}});
    }
  }
  send(lane, now);
  return OkStatus();
}

// One request of a lane is on its way to a server at a time.
void Client::send(uint32_t lane, TimePoint now) {
  for (Part& part : asked_[lane].parts) {
    if (!part.sent && part.link->idle(lane) && part.link->usable()) send_part(lane, part, now);
  }
}

void Client::send_part(uint32_t lane, Part& part, TimePoint now) {
  const Asked& asked = asked_[lane];
  const Exchange& exchange = asked.exchange;
  ExpertLink& link = *part.link;
  const uint64_t width = exchange.width;
  std::vector<uint32_t> token_of(exchange.rows, UINT32_MAX), tokens;
  std::vector<SlotRoute> routes;
  routes.reserve(part.rows.size());
  for (const uint32_t row : part.rows) {
    const ExpertRoutes::Routed& routed = exchange.routes->routed[row];
    uint32_t& token = token_of[routed.row];
    if (token == UINT32_MAX) {
      token = static_cast<uint32_t>(tokens.size());
      tokens.push_back(routed.row);
    }
    routes.push_back({static_cast<uint16_t>(token), static_cast<uint16_t>(asked.expert_of[row]), routed.weight});
  }
  const auto count = static_cast<uint32_t>(part.rows.size());
  const ControlWord word = link.slots[lane].submit(SlotKind::kRequest, static_cast<uint16_t>(exchange.layer), count, exchange.width);
  const RequestHead head{.layer = static_cast<uint16_t>(exchange.layer), .lane = static_cast<uint16_t>(lane), .tokens = static_cast<uint32_t>(tokens.size()),
                         .rows = count, .width = exchange.width, .client = link.welcome.client, .placement = link.welcome.version, .seq = word.seq,
                         .epoch = word.epoch, .submitted_ns = static_cast<uint64_t>(now.time_since_epoch().count())};
  const std::span<std::byte> half = link.channel->outbox(lane);
  const auto hidden = write_request(head, routes, half);
  CHECK(hidden.ok());
  const float* const input = CpuDevice::at(exchange.input);
  for (size_t i = 0; i < tokens.size(); ++i) std::memcpy(hidden->data() + i * width, input + tokens[i] * width, width * sizeof(float));
  seal_request(half);
  part.sent = true;
  part.sent_at = now;
  part.late_at = now + link.trips.timeout(count, config_.timeout_min, config_.timeout_first);
  link.busy[lane] += count;
  ++link.requests;
  ++counts_.requests;
  counts_.rows += count;
  link.channel->publish(lane, word, request_bytes(head.tokens, head.rows, head.width));
}

void Client::ask(uint32_t lane, const Exchange& exchange) {
  CHECK(lane < kLanesMax && exchange.routes != nullptr);
  Asked& asked = asked_[lane];
  if (asked.active) {
    for (Part& part : asked.parts) disown(lane, part);
  }
  asked = {.active = true, .exchange = exchange};
  look_at_list();
  hear_late(*list_, lane);
  asked.expert_of.resize(exchange.routes->routed.size());
  std::vector<uint32_t> rows;
  for (const auto& active : exchange.routes->active) {
    for (uint32_t row = active.begin; row < active.begin + active.rows; ++row) {
      asked.expert_of[row] = active.expert;
      if (active.expert < exchange.experts) rows.push_back(row);
    }
  }
  ++counts_.exchanges;
  const TimePoint now = steady_now();
  last_progress_ = now;
  route(lane, std::move(rows), now).IgnoreError();  // await() says what is missing, if it still is
}

// It is not waited for any more: its slot is used again once the late answer came.
void Client::disown(uint32_t lane, Part& part) {
  if (!std::exchange(part.sent, false)) return;
  part.link->busy[lane] -= static_cast<uint32_t>(part.rows.size());
  if (part.link->slots[lane].state() == ClientSlot::State::kSubmitted) part.link->slots[lane].give_up();
}

void Client::forget_all() {
  for (uint32_t lane = 0; lane < kLanesMax; ++lane) {
    Asked& asked = asked_[lane];
    for (Part& part : asked.parts) disown(lane, part);
    asked = {};
  }
}

void Client::take(uint32_t lane, const Part& part, const ResponseView& view, TimePoint now) {
  const Exchange& exchange = asked_[lane].exchange;
  const uint64_t width = exchange.width;
  float* const out = CpuDevice::at(exchange.output);
  for (size_t i = 0; i < part.rows.size(); ++i) std::memcpy(out + part.rows[i] * width, view.outputs.data() + i * width, width * sizeof(float));
  part.link->trips.add(static_cast<uint32_t>(part.rows.size()), now - part.sent_at);
  part.link->suspected = false;
}

bool Client::held_by_another(const ExpertLinks::List& list, const Part& part, uint32_t lane) const {
  return std::all_of(part.rows.begin(), part.rows.end(), [&](uint32_t row) {
    const uint32_t index = index_of(asked_[lane], row);
    return std::any_of(list.begin(), list.end(), [&](const Link& link) {
      return link != part.link && link->usable() && link->slots[lane].state() != ClientSlot::State::kQuarantined && link->holds()->has(index);
    });
  });
}

// Whether a part is over: answered, or its rows are among those to be asked for again.
StatusOr<bool> Client::hear(uint32_t lane, Part& part, std::vector<uint32_t>& again, TimePoint now) {
  ExpertLink& link = *part.link;
  const auto once_more = [&] {
    disown(lane, part);
    again.insert(again.end(), part.rows.begin(), part.rows.end());
    return true;
  };
  if (!part.sent) return link.usable() ? false : once_more();
  ResponseView view;
  Status why;
  switch (link.slots[lane].hear(link.channel->control(lane), link.channel->inbox(lane), view, why)) {
    case ClientSlot::Heard::kAnswer:
      part.sent = false;
      link.busy[lane] -= static_cast<uint32_t>(part.rows.size());
      if (view.head.status == SlotStatus::kOk) return take(lane, part, view, now), true;
      refused(lane, part, view.head.status);
      return once_more();
    case ClientSlot::Heard::kBad:
      log_warning("expert server '", link.name, "': ", why.message());
      link.channel->end();
      break;
    default: break;
  }
  if (link.channel->broken()) {
    ++counts_.losses;
    links_.look();
    return once_more();
  }
  if (now < part.late_at) return false;
  const bool elsewhere = held_by_another(*list_, part, lane);
  if (!elsewhere && now - part.sent_at <= config_.defer_after) return false;
  link.suspected_ns = (elsewhere ? now : part.sent_at).time_since_epoch().count();
  link.suspected = true;
  if (!elsewhere) {
    return unavailable("expert server '", link.name, "' of '", config_.model, "' does not answer, and nobody else who is connected holds its experts");
  }
  ++counts_.timeouts;
  return once_more();
}

// It says what is the matter, and maybe later what it holds; until then, not these.
void Client::refused(uint32_t lane, const Part& part, SlotStatus status) {
  ExpertLink& link = *part.link;
  ++counts_.refused;
  if (status == SlotStatus::kNotHosted) {
    ExpertSet holds = *link.holds();
    for (const uint32_t row : part.rows) holds.remove(index_of(asked_[lane], row));
    return link.held->set(std::move(holds));
  }
  log_warning("expert server '", link.name, "' refuses a request (", static_cast<int>(status), "); the connection is made anew");
  link.channel->end();
}

Status Client::progress(uint32_t lane, TimePoint now) {
  Asked& asked = asked_[lane];
  look_at_list();
  std::vector<uint32_t> again;
  bool over = false;
  for (size_t i = 0; i < asked.parts.size();) {
    ASSIGN_OR_RETURN(const bool done, hear(lane, asked.parts[i], again, now));
    over |= done;
    if (done) asked.parts.erase(asked.parts.begin() + static_cast<ptrdiff_t>(i));
    else ++i;
  }
  if (over) last_progress_ = now;
  counts_.resent_rows += again.size();
  if (!asked.homeless.empty()) {
    hear_late(*list_, lane);
    const TimePoint since = asked.homeless_since;
    again.insert(again.end(), asked.homeless.begin(), asked.homeless.end());
    asked.homeless.clear();
    RETURN_IF_ERROR(route(lane, std::move(again), now));
    if (asked.homeless.empty()) return OkStatus();
    asked.homeless_since = since;
    if (now - since > config_.defer_after) return unavailable("experts of '", config_.model, "' are held by servers alone that do not answer");
    return OkStatus();
  }
  if (!again.empty()) return route(lane, std::move(again), now);
  send(lane, now);
  return OkStatus();
}

TimePoint Client::next_look() const {
  TimePoint next = kForever;
  for (const Asked& asked : asked_) {
    for (const Part& part : asked.parts) {
      if (part.sent) next = std::min(next, part.late_at);
    }
  }
  return next;
}

// Looks again at once for a while, then sleeps until a bell rings.
void Client::rest() {
  const TimePoint now = steady_now();
  if (now - last_progress_ < config_.spin) return;
  bool something = false;
  const auto each_channel = [&](bool sleeps) {
    for (uint32_t lane = 0; lane < kLanesMax; ++lane) {
      for (const Part& part : asked_[lane].parts) {
        part.link->channel->sleeping(sleeps);
        if (!sleeps || !part.sent) continue;
        const auto word = unpack(part.link->channel->control(lane));
        something |= word && word->seq == part.link->slots[lane].seq() && word->epoch == part.link->slots[lane].epoch();
      }
    }
  };
  each_channel(true);
  const TimePoint next = next_look();
  const Duration most = next > now && next - now < kNap ? next - now : next <= now ? std::chrono::microseconds(500) : kNap;
  if (!something) bell_->wait(most);
  each_channel(false);
}

StatusOr<uint32_t> Client::await() {
  const TimePoint begun = steady_now();
  const auto tell = [&](TimePoint now) {
    counts_.waiting_seconds += to_seconds(now - begun);
    std::lock_guard lock(mutex_);
    told_ = counts_;
  };
  while (true) {
    const TimePoint now = steady_now();
    for (uint32_t lane = 0; lane < kLanesMax; ++lane) {
      Asked& asked = asked_[lane];
      if (!asked.active) continue;
      if (const Status status = progress(lane, now); !status.ok()) {
        ++counts_.deferred;
        forget_all();
        tell(now);
        return status;
      }
      if (!asked.parts.empty() || !asked.homeless.empty()) continue;
      asked.active = false;
      tell(now);
      return lane;
    }
    rest();
  }
}

}  // namespace

StatusOr<std::unique_ptr<RemoteExperts>> RemoteExperts::start(RemoteExpertsConfig config) {
  if (config.lanes < 1 || config.lanes > kLanesMax) return invalid_argument("there are 1 to ", kLanesMax, " lanes, not ", config.lanes);
  ASSIGN_OR_RETURN(std::shared_ptr<Bell> bell, Bell::make());
  return std::unique_ptr<RemoteExperts>(std::make_unique<Client>(std::move(config), std::move(bell)));
}

}  // namespace shoal
