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
#include "experts/part.h"
#include "experts/step_times.h"
#include "models/expert_plan.h"
#include "policy/expert_calls.h"
#include "policy/expert_relays.h"

namespace shoal {
namespace {

constexpr Duration kNoRelay = std::chrono::milliseconds(200);  // after one failed: its servers are asked directly
constexpr Duration kNap = std::chrono::milliseconds(5);  // at most: time-outs are looked at then

class Client : public RemoteExperts {
 public:
  Client(RemoteExpertsConfig config, std::shared_ptr<Bell> bell) : config_(std::move(config)), links_(config_, std::move(bell)), rank_(std::hash<std::string>()(config_.client)), times_(config_.lanes, config_.choose_lanes) {}

  uint32_t begin(uint32_t rows, uint32_t sequences, uint32_t lanes_max) override;
  void end(bool alone) override {
    if (alone) times_.end(steady_now());
  }
  void ask(uint32_t lane, const Exchange& exchange) override;
  StatusOr<std::optional<uint32_t>> answered() override;
  Duration doze() override;
  void woken() override;
  void set_servers(std::vector<ExpertAddress> servers) override { links_.set_servers(std::move(servers)); }
  Status wait_complete(Duration most) override { return links_.wait_complete(most); }
  std::vector<RemoteExpertServer> servers() const override { return links_.servers(); }
  ExpertCounts counts() const override {
    return {.rows_asked = counts_.rows_asked, .rows_resent = counts_.rows_resent};
  }
  RemoteExpertsCounts all_counts() const override {
    std::lock_guard lock(mutex_);
    RemoteExpertsCounts counts = told_;
    counts.wishes = links_.wishes();
    counts.bytes_sent = links_.bytes().sent, counts.bytes_received = links_.bytes().received;
    return counts;
  }

 private:
  using Link = std::shared_ptr<ExpertLink>;
  using Picture = ExpertLinks::Picture;
  using Part = ExpertPart;
  struct Asked {
    bool active = false;
    Exchange exchange;
    ExpertCall call;
    std::vector<uint32_t> routed;      // of each row of the call: which of the exchange's
    std::vector<Part> parts;           // that are not answered
    TimePoint asked_at{};
    TimePoint missing_since = kForever;         // rows that nobody can be asked for now, but maybe soon
  };
  enum class Heard : uint8_t { kWaits, kAnswered, kAgain };  // kAgain: its rows are to be asked of others

  void look_at_picture();
  void hear_late(uint32_t lane);
  void add_parts(uint32_t lane, const std::vector<ExpertAsk>& asks, TimePoint now, bool relays = true);
  void hedge(uint32_t lane, TimePoint now);
  bool drop_twin(uint32_t lane, const Part& part, bool answered, TimePoint now);
  void ask_again(uint32_t lane, const Part& part, TimePoint now);
  Status check_missing(uint32_t lane, TimePoint now);
  bool held_by_another(const Part& part, uint32_t lane) const;
  uint32_t index_of(const Asked& asked, uint32_t row) const { return asked.exchange.layer * config_.plan->experts() + asked.call.rows()[row].expert; }
  void send(uint32_t lane, TimePoint now);
  void send_part(uint32_t lane, Part& part, TimePoint now);
  Status progress(uint32_t lane, TimePoint now);
  StatusOr<Heard> hear(uint32_t lane, Part& part, TimePoint now);
  void take(uint32_t lane, const Part& part, const ResponseView& view, TimePoint now);
  void refused(uint32_t lane, const Part& part, const ResponseHead& head);
  void forget_all();
  void tell();
  void tell_slots(bool sleeps);
  bool anything_came() const;
  TimePoint next_look() const;

  const RemoteExpertsConfig config_;
  ExpertLinks links_;
  std::array<Asked, kLanesMax> asked_;
  std::shared_ptr<const Picture> picture_ = std::make_shared<const Picture>();
  uint64_t picture_version_ = UINT64_MAX;
  uint64_t salt_ = 0;
  uint32_t twins_ = 0;
  const uint64_t rank_;  // among the clients of a relay
  StepTimes times_;
  TimePoint last_progress_{};
  bool dozing_ = false;
  RemoteExpertsCounts counts_;  // of the thread
  mutable std::mutex mutex_;
  RemoteExpertsCounts told_;    // guarded by mutex_
};

void Client::look_at_picture() {
  if (picture_version_ == links_.version()) return;
  picture_version_ = links_.version();
  picture_ = links_.now();
}

// Answers to what was given up free their slots, and say that their server is there again.
void Client::hear_late(uint32_t lane) {
  for (const Link& link : picture_->links) {
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

void Client::add_parts(uint32_t lane, const std::vector<ExpertAsk>& asks, TimePoint now, bool relays) {
  std::vector<ExpertRelayView> through;
  if (relays) through = picture_->relays_of(lane, now);
  for (const RoutedAsk& routed : route_asks(asks, through, rank_ + lane)) {
    const Link& link = picture_->link(routed.to);
    for (std::vector<ExpertAsk>& piece : pieces_of(routed.asks, asked_[lane].call.rows(), link->welcome.rows_max)) {
      Part& part = asked_[lane].parts.emplace_back(Part{.link = link, .asks = std::move(piece), .relayed = routed.asks.size() > 1});
      for (const ExpertAsk& ask : part.asks) part.rows.insert(part.rows.end(), ask.rows.begin(), ask.rows.end());
    }
  }
  send(lane, now);
}

// Unavailable once it is clear that the pass cannot end for now: nobody who is connected holds an expert, or those who do are silent.
Status Client::check_missing(uint32_t lane, TimePoint now) {
  Asked& asked = asked_[lane];
  if (!asked.call.any_missing()) {
    asked.missing_since = kForever;
    return OkStatus();
  }
  asked.missing_since = std::min(asked.missing_since, now);
  for (const uint32_t row : asked.call.missing()) {
    const uint32_t index = index_of(asked, row);
    const auto copies = picture_->placement.of(asked.exchange.layer, asked.call.rows()[row].expert);
    if (std::any_of(copies.begin(), copies.end(), [&](const ExpertShare& copy) { return !picture_->link(copy.server)->channel->broken(); })) continue;
    links_.wish(index);
    return unavailable("'", config_.model, "': ", expert_text(links_.shape(), index), " is held by no server that is connected; one with room for it is asked to load it");
  }
  if (now - asked.missing_since > config_.defer_after) return unavailable("experts of '", config_.model, "' are held by servers alone that do not answer");
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
  std::vector<RoutedRow> rows;
  // Over the network, sums of groups come back where the server has all that a token has of them.
  const bool joins = part.link->channel->streamed() && asked.exchange.experts == asked.exchange.grouped && join_groups(asked.call.rows(), asked.exchange.grouped, part.rows, part.joined);
  for (size_t i = 0; i < part.rows.size(); ++i) rows.push_back({asked.routed[part.rows[i]], asked.call.rows()[part.rows[i]].expert, joins && part.joined[i]});
  const RequestRows sent = part.send(lane, asked.exchange, rows, config_, now);
  ++counts_.requests;
  counts_.rows_asked += rows.size();
  counts_.relayed += part.relayed ? 1 : 0;
  if (part.link->channel->streamed()) counts_.tokens_sent += sent.tokens.size();
}

uint32_t Client::begin(uint32_t rows, uint32_t sequences, uint32_t lanes_max) {
  forget_all();
  if (const auto news = times_.news(steady_now())) links_.tell(*news);
  return times_.begin(rows, sequences, lanes_max, steady_now());
}

void Client::ask(uint32_t lane, const Exchange& exchange) {
  CHECK(lane < kLanesMax && exchange.routes != nullptr);
  Asked& asked = asked_[lane];
  if (asked.active) {
    for (Part& part : asked.parts) part.disown(lane);
  }
  asked = {.active = true, .exchange = exchange};
  look_at_picture();
  hear_late(lane);
  std::vector<ExpertRow> rows;
  for (const auto& active : exchange.routes->active) {
    if (active.expert >= exchange.experts) continue;
    for (uint32_t row = active.begin; row < active.begin + active.rows; ++row) {
      rows.push_back({exchange.routes->routed[row].row, active.expert});
      asked.routed.push_back(row);
    }
  }
  ++counts_.exchanges;
  const TimePoint now = steady_now();
  last_progress_ = now;
  times_.works(now);
  asked.asked_at = now;
  const ExpertLinks::Choice who = picture_->choice(lane);
  add_parts(lane, asked.call.begin({picture_->placement, who.suspected, who.work}, exchange.layer, rows, ++salt_), now);
  check_missing(lane, now).IgnoreError();  // answered() says what is missing, if it still is
}

void Client::forget_all() {
  for (uint32_t lane = 0; lane < kLanesMax; ++lane) {
    Asked& asked = asked_[lane];
    for (Part& part : asked.parts) part.disown(lane);
    asked = {};
  }
}

void Client::take(uint32_t lane, const Part& part, const ResponseView& view, TimePoint now) {
  Asked& asked = asked_[lane];
  for (const ExpertAsk& ask : part.asks) CHECK(asked.call.answered(ask.server, ask.rows));
  if (part.link->channel->streamed()) counts_.rows_received += view.head.rows;
  std::vector<uint32_t> routed;
  for (const uint32_t row : part.rows) routed.push_back(asked.routed[row]);
  take_rows(asked.exchange, routed, part.joined, view.outputs);
  part.link->trips.add(static_cast<uint32_t>(part.rows.size()), now - part.sent_at);
  part.link->suspected = false;
}

bool Client::held_by_another(const Part& part, uint32_t lane) const {
  if (part.relayed) return true;  // by those whose they are
  const Asked& asked = asked_[lane];
  return std::all_of(part.rows.begin(), part.rows.end(), [&](uint32_t row) {
    const auto copies = picture_->placement.of(asked.exchange.layer, asked.call.rows()[row].expert);
    return std::any_of(copies.begin(), copies.end(), [&](const ExpertShare& copy) { return copy.server != part.link->id && picture_->link(copy.server)->usable(lane); });
  });
}

// What became of a part.
StatusOr<Client::Heard> Client::hear(uint32_t lane, Part& part, TimePoint now) {
  ExpertLink& link = *part.link;
  const auto once_more = [&] {
    part.disown(lane);
    return Heard::kAgain;
  };
  if (!part.sent) return link.usable() ? Heard::kWaits : once_more();
  ResponseView view;
  Status why;
  switch (link.slots[lane].hear(link.channel->control(lane), link.channel->inbox(lane), view, why)) {
    case ClientSlot::Heard::kAnswer:
      part.sent = false;
      link.work -= part.work;
      if (view.head.status == SlotStatus::kOk) return take(lane, part, view, now), Heard::kAnswered;
      refused(lane, part, view.head);
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
  if (now < part.late_at) return Heard::kWaits;
  hear_late(lane);  // who was given up may be there again
  const bool elsewhere = held_by_another(part, lane);
  if (!elsewhere && now - part.sent_at <= config_.defer_after) return Heard::kWaits;
  if (part.relayed) {  // maybe it waits for another one
    ++counts_.timeouts;
    return once_more();
  }
  link.suspected_ns = (elsewhere ? now : part.sent_at).time_since_epoch().count();
  link.suspected = true;
  if (!elsewhere) {
    return unavailable("expert server '", link.name, "' of '", config_.model, "' does not answer, and nobody else who is connected holds its experts");
  }
  ++counts_.timeouts;
  return once_more();
}

// It says what is the matter, and maybe later what it holds; until then, not these.
void Client::refused(uint32_t lane, const Part& part, const ResponseHead& head) {
  ExpertLink& link = *part.link;
  ++counts_.refused;
  if (part.relayed) return;
  if (head.status == SlotStatus::kNotHosted) {
    std::vector<uint32_t> not_there;
    for (const uint32_t row : part.rows) not_there.push_back(index_of(asked_[lane], row));
    return links_.disclaim(link, not_there, head.placement);
  }
  log_warning("expert server '", link.name, "' refuses a request (", static_cast<int>(head.status), "); the connection is made anew");
  link.channel->end();
}

// What is later than usual is asked of another server as well, if one holds all of it and has nothing of this lane to do.
void Client::hedge(uint32_t lane, TimePoint now) {
  Asked& asked = asked_[lane];
  for (size_t i = 0; i < asked.parts.size(); ++i) {
    Part& late = asked.parts[i];
    if (!late.sent || now < late.hedge_at) continue;
    late.hedge_at = kForever;
    const Link* least = nullptr;
    for (const Link& link : picture_->links) {
      const bool may = link != late.link && link->usable(lane) && link->idle(lane) && late.rows.size() <= link->welcome.rows_max;
      const auto holds = link->holds();
      if (!may || !std::all_of(late.rows.begin(), late.rows.end(), [&](uint32_t row) { return holds->has(index_of(asked, row)); })) continue;
      if (least == nullptr || link->work < (*least)->work) least = &link;
    }
    if (least == nullptr) continue;
    late.twin = ++twins_;
    Part twin{.link = *least, .asks = late.asks, .rows = late.rows, .twin = late.twin};
    ++counts_.hedges;
    send_part(lane, twin, now);
    asked.parts.push_back(std::move(twin));
  }
}

// The other one of two with the same rows, if there is one: not waited for any more if this one was answered, else on its own.
bool Client::drop_twin(uint32_t lane, const Part& part, bool answered, TimePoint now) {
  auto& parts = asked_[lane].parts;
  const auto twin = std::find_if(parts.begin(), parts.end(), [&](const Part& other) { return part.twin != 0 && &other != &part && other.twin == part.twin; });
  if (twin == parts.end()) return false;
  twin->twin = 0;
  if (!answered) return true;
  twin->link->trips.add(static_cast<uint32_t>(twin->rows.size()), now - twin->sent_at);  // so long at least
  counts_.hedges_won += twin->sent_at < part.sent_at ? 1 : 0;
  twin->disown(lane);
  parts.erase(twin);
  return true;
}

// Of others; of those whose rows they are, if it was a relay that failed.
void Client::ask_again(uint32_t lane, const Part& part, TimePoint now) {
  look_at_picture();  // a refusal changed it
  counts_.rows_resent += part.rows.size();
  if (part.relayed) part.link->relays_from = now + kNoRelay;
  for (const ExpertAsk& ask : part.asks) {
    const bool direct = part.relayed && picture_->has(ask.server) && picture_->link(ask.server)->usable(lane);
    const ExpertLinks::Choice who = picture_->choice(lane);
    add_parts(lane, direct ? std::vector<ExpertAsk>{ask} : asked_[lane].call.give_up(ask.server, ask.rows, {picture_->placement, who.suspected, who.work}), now, false);
  }
}

Status Client::progress(uint32_t lane, TimePoint now) {
  Asked& asked = asked_[lane];
  look_at_picture();
  std::vector<Part> again;
  for (size_t i = 0; i < asked.parts.size();) {
    ASSIGN_OR_RETURN(const Heard heard, hear(lane, asked.parts[i], now));
    if (heard == Heard::kWaits) {
      ++i;
      continue;
    }
    last_progress_ = now;
    Part part = std::move(asked.parts[i]);
    asked.parts.erase(asked.parts.begin() + static_cast<ptrdiff_t>(i));
    const bool has_twin = drop_twin(lane, part, heard == Heard::kAnswered, now);
    if (has_twin) i = 0;  // it may have been one before
    if (heard == Heard::kAgain && !has_twin) again.push_back(std::move(part));
  }
  hedge(lane, now);
  for (const Part& part : again) ask_again(lane, part, now);
  if (asked.call.any_missing()) {
    hear_late(lane);
    const ExpertLinks::Choice who = picture_->choice(lane);
    add_parts(lane, asked.call.retry({picture_->placement, who.suspected, who.work}), now);
  }
  send(lane, now);
  return check_missing(lane, now);
}

TimePoint Client::next_look() const {
  TimePoint next = kForever;
  for (const Asked& asked : asked_) {
    for (const Part& part : asked.parts) {
      if (part.sent) next = std::min({next, part.late_at, part.hedge_at});
    }
  }
  return next;
}

void Client::tell_slots(bool sleeps) {
  for (const Asked& asked : asked_) {
    for (const Part& part : asked.parts) part.link->channel->sleeping(sleeps);
  }
}

bool Client::anything_came() const {
  for (uint32_t lane = 0; lane < kLanesMax; ++lane) {
    for (const Part& part : asked_[lane].parts) {
      if (part.came(lane)) return true;
    }
  }
  return false;
}

// Looks again at once for a while, and sleeps then until the bell rings.
Duration Client::doze() {
  const TimePoint now = steady_now();
  if (now - last_progress_ < config_.spin) return Duration(0);
  tell_slots(dozing_ = true);
  if (anything_came()) return Duration(0);
  const TimePoint next = next_look();
  return next > now && next - now < kNap ? next - now : next <= now ? std::chrono::microseconds(500) : kNap;
}

void Client::woken() {
  if (std::exchange(dozing_, false)) tell_slots(false);
}

void Client::tell() {
  std::lock_guard lock(mutex_);
  told_ = counts_;
}

StatusOr<std::optional<uint32_t>> Client::answered() {
  const TimePoint now = steady_now();
  times_.waits(now);
  for (uint32_t lane = 0; lane < kLanesMax; ++lane) {
    Asked& asked = asked_[lane];
    if (!asked.active) continue;
    if (const Status status = progress(lane, now); !status.ok()) {
      ++counts_.deferred;
      forget_all();
      tell();
      return status;
    }
    if (!asked.call.done()) continue;
    asked.active = false;
    times_.answered(now - asked.asked_at);
    times_.works(now);
    tell();
    return lane;
  }
  return std::nullopt;
}

}  // namespace

StatusOr<std::unique_ptr<RemoteExperts>> RemoteExperts::start(RemoteExpertsConfig config) {
  if (config.lanes < 1 || config.lanes > kLanesMax) return invalid_argument("there are 1 to ", kLanesMax, " lanes, not ", config.lanes);
  if (config.bell == nullptr) return invalid_argument("a client of experts needs the bell of its thread");
  const std::shared_ptr<Bell> bell = config.bell;
  return std::unique_ptr<RemoteExperts>(std::make_unique<Client>(std::move(config), bell));
}

}  // namespace shoal
