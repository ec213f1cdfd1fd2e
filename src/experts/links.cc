#include "experts/links.h"

#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "experts/fleet.h"
#include "models/expert_plan.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr Duration kPauseMin = std::chrono::milliseconds(50), kPauseMax = std::chrono::seconds(2);
constexpr Duration kProbe = std::chrono::seconds(1);
constexpr Duration kSuspectedMax = std::chrono::milliseconds(500);  // then the connection is ended, and made anew
constexpr Duration kLook = std::chrono::milliseconds(20);
constexpr Duration kWishTime = std::chrono::minutes(5);  // to read experts from the files
constexpr Duration kWishPause = std::chrono::milliseconds(50);

}  // namespace

ExpertLinks::ExpertLinks(const RemoteExpertsConfig& config, std::shared_ptr<Bell> bell) : config_(config), shape_(shape_of(*config.plan)), bell_(std::move(bell)) {
  thread_ = std::thread([this] { run(); });
}

ExpertLinks::~ExpertLinks() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void ExpertLinks::set_servers(std::vector<ExpertAddress> servers) {
  std::lock_guard lock(mutex_);
  std::map<std::string, Known> next;
  for (ExpertAddress& server : servers) {
    const std::string key = server.address;
    auto before = known_.find(key);
    next[key] = before == known_.end() ? Known{} : std::move(before->second);
    next[key].server = std::move(server);
  }
  known_ = std::move(next);
  publish();
  look_ = true;
  changed_.notify_all();
}

ExpertLinks::Choice ExpertLinks::Picture::choice(uint32_t lane) const {
  Choice result;
  for (const auto& link : links) {
    if (link->usable(lane)) result.work.push_back({link->id, link->work});
    else result.suspected.push_back(link->id);
  }
  return result;
}

std::vector<ExpertRelayView> ExpertLinks::Picture::relays_of(uint32_t lane, TimePoint now) const {
  std::vector<ExpertRelayView> result;
  for (const ExpertRelayView& relay : relays) {
    if (now >= link(relay.server)->relays_from && link(relay.server)->usable(lane)) result.push_back(relay);
  }
  return result;
}

bool ExpertLinks::Picture::has(NodeId id) const {
  return std::any_of(links.begin(), links.end(), [&](const auto& link) { return link->id == id; });
}

const std::shared_ptr<ExpertLink>& ExpertLinks::Picture::link(NodeId id) const {
  const auto at = std::find_if(links.begin(), links.end(), [&](const auto& link) { return link->id == id; });
  CHECK(at != links.end());
  return *at;
}

std::shared_ptr<const ExpertLinks::Picture> ExpertLinks::now() const {
  std::lock_guard lock(mutex_);
  const uint64_t version = version_;
  if (std::exchange(drawn_, version) != version) picture_ = draw();
  return picture_;
}

// Who holds an expert answers for as much of it as the others who do.
std::shared_ptr<const ExpertLinks::Picture> ExpertLinks::draw() const {
  auto picture = std::make_shared<Picture>();
  picture->placement.version = drawn_;
  std::vector<std::shared_ptr<const ExpertSet>> held;
  for (const auto& [address, known] : known_) {
    if (known.link == nullptr) continue;
    picture->links.push_back(known.link);
    held.push_back(known.link->holds());
  }
  for (const auto& link : picture->links) {
    ExpertRelayView relay{link->id, {}};
    const std::vector<std::string> names = link->held->relays();
    for (const auto& other : picture->links) {
      if (std::find(names.begin(), names.end(), other->name) != names.end()) relay.reaches.push_back(other->id);
    }
    if (std::find(relay.reaches.begin(), relay.reaches.end(), link->id) != relay.reaches.end()) picture->relays.push_back(std::move(relay));
  }
  for (uint32_t layer = 0; layer < shape_.layers(); ++layer) {
    LayerPlacement& placed = picture->placement.layers.emplace_back(layer, std::vector<std::vector<ExpertShare>>(shape_.experts));
    for (uint32_t expert = 0; expert < shape_.experts; ++expert) {
      std::vector<ExpertShare>& copies = placed.experts[expert];
      for (size_t i = 0; i < held.size(); ++i) {
        if (held[i]->has(layer * shape_.experts + expert)) copies.push_back({picture->links[i]->id, 0});
      }
      const auto count = static_cast<uint32_t>(copies.size());
      for (uint32_t i = 0; i < count; ++i) copies[i].share = kWholeShare / count + (i < kWholeShare % count ? 1 : 0);
    }
  }
  return picture;
}

void ExpertLinks::publish() {
  ++version_;
  changed_.notify_all();
  bell_->ring();
}

void ExpertLinks::disclaim(const ExpertLink& link, std::span<const uint32_t> indices, uint32_t version) {
  link.held->remove(indices, version);
  ++version_;
}

void ExpertLinks::wish(uint32_t index) {
  if (!config_.wishes) return;
  std::lock_guard lock(mutex_);
  if (!wished_.insert(index).second) return;
  ++wishes_;
  look_ = true;
  changed_.notify_all();
}

void ExpertLinks::look() {
  std::lock_guard lock(mutex_);
  look_ = true;
  changed_.notify_all();
}

void ExpertLinks::tell(const ExpertOverlap& overlap) {
  const Json note = write_overlap(overlap);
  std::lock_guard lock(mutex_);
  for (const auto& [address, known] : known_) {
    if (known.link != nullptr) known.link->channel->note(note);
  }
}

Status ExpertLinks::wait_complete(Duration most) const {
  const TimePoint until = steady_now() + most;
  while (true) {
    uint32_t missing = 0, example = 0;
    const auto picture = now();
    for (uint32_t index = 0; index < shape_.count(); ++index) {
      const auto copies = picture->placement.of(index / shape_.experts, index % shape_.experts);
      if (std::any_of(copies.begin(), copies.end(), [&](const ExpertShare& copy) { return !picture->link(copy.server)->channel->broken(); })) continue;
      if (missing++ == 0) example = index;
    }
    if (missing == 0) return OkStatus();
    std::unique_lock lock(mutex_);
    if (steady_now() >= until) {
      std::string errors;
      for (const auto& [address, known] : known_) {
        if (!known.error.empty()) errors += "; " + known.error;
      }
      return unavailable(missing, " of ", shape_.count(), " experts of '", config_.model, "' are held by no server that is connected (", expert_text(shape_, example), " is one)", errors);
    }
    changed_.wait_for(lock, kLook);
  }
}

std::vector<RemoteExpertServer> ExpertLinks::servers() const {
  std::lock_guard lock(mutex_);
  std::vector<RemoteExpertServer> result;
  for (const auto& [address, known] : known_) {
    RemoteExpertServer server{.name = known.server.name.empty() ? address : known.server.name, .address = address, .error = known.error};
    if (known.link != nullptr) {
      const ExpertLink& link = *known.link;
      server.name = link.welcome.server;
      server.pid = link.welcome.pid;
      server.connected = !link.channel->broken();
      server.suspected = link.suspected;
      server.over = std::string(link.channel->kind());
      server.experts = link.holds()->count();
      server.requests = link.requests;
      server.round_trip_p50 = to_seconds(link.trips.p50());
      server.round_trip_p99 = to_seconds(link.trips.p99());
    }
    result.push_back(std::move(server));
  }
  return result;
}

// REQUIRES: mutex_ held. Those that broke, and those that have let requests wait for too long.
bool ExpertLinks::end_lost(TimePoint now) {
  bool ended = false;
  for (auto& [address, known] : known_) {
    if (known.link == nullptr) continue;
    const bool stuck = known.link->suspected && now.time_since_epoch() - Duration(known.link->suspected_ns.load()) > kSuspectedMax;
    if (stuck) known.link->channel->end();
    if (!known.link->channel->broken()) continue;
    log_warning("expert server '", known.link->name, "' of '", config_.model, "' is lost", stuck ? ": it does not answer" : "");
    known.error = stuck ? "it does not answer" : "the connection broke";
    known.link.reset();
    known.try_at = now;
    known.pause = kPauseMin;
    ended = true;
  }
  return ended;
}

void ExpertLinks::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const TimePoint now = steady_now();
    if (end_lost(now)) publish();
    begin_to_connect(now);
    lock.unlock();
    grant_wishes();
    lock.lock();
    if (!look_ && !stop_) changed_.wait_for(lock, kLook);
    look_ = false;
  }
  lock.unlock();
  for (Dialing& dialing : dialing_) dialing.thread.join();
}

void ExpertLinks::begin_to_connect(TimePoint now) {
  std::erase_if(dialing_, [](Dialing& dialing) { return *dialing.over && (dialing.thread.join(), true); });
  for (auto& [address, known] : known_) {
    if (known.link != nullptr || known.try_at > now || (known.dialing != nullptr && !*known.dialing)) continue;
    known.dialing = std::make_shared<std::atomic<bool>>(false);
    dialing_.push_back({std::thread([this, server = known.server, over = known.dialing] {
                          connect(server);
                          *over = true;
                        }),
                        known.dialing});
  }
}

StatusOr<std::shared_ptr<ExpertLink>> ExpertLinks::dial(const std::string& address, const std::string& name) {
  const ExpertHello hello{.client = config_.client, .pid = ::getpid(), .model = config_.model, .stamp = config_.stamp, .shape = shape_,
                          .hidden = config_.plan->hidden(), .used = config_.plan->used(), .lanes = config_.lanes};
  auto link = std::make_shared<ExpertLink>();
  ASSIGN_OR_RETURN(Dialed dialed, dial_experts(address, config_.network, hello, bell_, [this, held = link->held](const Json& note) {
    if (note.contains("relays")) {
      std::vector<std::string> names;
      for (const Json& name : note["relays"]) {
        if (name.is_string()) names.push_back(name.get<std::string>());
      }
      held->set_relays(std::move(names));
      return publish();
    }
    auto set = read_set(shape_, note.value("holds", Json::object()));
    const auto version = json_int(note, "version", 0, 0, UINT32_MAX);
    if (!set.ok() || !version.ok()) return;
    held->set(*std::move(set), static_cast<uint32_t>(*version));
    publish();
  }, bytes_));
  link->id = NodeId(next_id_++);
  link->name = dialed.welcome.server;
  link->address = address;
  link->hidden = hello.hidden;
  link->slots.resize(hello.lanes);
  for (uint32_t lane = 0; lane < hello.lanes; ++lane) link->slots[lane].connect(dialed.welcome.epoch, dialed.welcome.client, static_cast<uint16_t>(lane));
  link->held->set(dialed.welcome.holds, dialed.welcome.version);  // a note may have come before
  link->welcome = std::move(dialed.welcome);
  link->channel = std::move(dialed.channel);
  RETURN_IF_ERROR(annotate(probe(*link, kProbe), address));
  return link;
}

void ExpertLinks::connect(const ExpertAddress& server) {
  auto link = dial(server.address, server.name);
  if (!link.ok() && link.status().code() == StatusCode::kUnavailable && !server.other.empty()) link = dial(server.other, server.name);
  std::lock_guard lock(mutex_);
  const auto found = known_.find(server.address);
  if (found == known_.end()) return;  // it is not to be asked any more
  Known& known = found->second;
  if (!link.ok()) {
    if (known.error != link.status().message()) log_warning("experts of '", config_.model, "': ", link.status().message());
    known.error = std::string(link.status().message());
    known.pause = std::clamp(known.pause * 2, kPauseMin, kPauseMax);
    known.try_at = steady_now() + known.pause;
    return;
  }
  log_info("experts of '", config_.model, "': connected with '", (*link)->name, "', which holds ", (*link)->holds()->count(), ", over ", std::string((*link)->channel->kind()));
  known.link = *std::move(link);
  known.server.name = known.link->name;  // also while it is away
  known.error.clear();
  known.pause = kPauseMin;
  publish();
}

// What nobody holds is to be loaded by whoever has most room: all of that, as the next pass would ask for the rest, or, if there is no room
// for so much, what was asked for. Asking twice changes nothing: what is held is not read again.
void ExpertLinks::grant_wishes() {
  ExpertSet wished(shape_), missing(shape_);
  std::vector<ExpertAddress> addresses;
  {
    std::lock_guard lock(mutex_);
    if (wished_.empty() || steady_now() < wish_at_) return;
    for (uint32_t index = 0; index < shape_.count(); ++index) missing.add(index);
    for (const auto& [address, known] : known_) {
      const auto& link = known.link;
      if (link == nullptr || link->channel->broken()) continue;
      addresses.push_back({.address = link->address});
      for (const uint32_t index : link->holds()->list()) missing.remove(index);
    }
    std::erase_if(wished_, [&](uint32_t index) { return !missing.has(index); });
    for (const uint32_t index : wished_) wished.add(index);
    wish_at_ = steady_now() + kWishPause;
  }
  if (wished.count() == 0) return;
  std::vector<ServerReport> servers;
  for (auto& report : ask_reports(addresses, config_.network, {{"verb", "status"}}, kProbe)) {
    if (report.ok() && !report->draining && report->find(stamp_text(config_.stamp)) != nullptr) servers.push_back(*std::move(report));
  }
  std::stable_sort(servers.begin(), servers.end(), [](const ServerReport& a, const ServerReport& b) { return a.free_bytes() > b.free_bytes(); });
  for (const ExpertSet* set : {&missing, &wished}) {
    for (const ServerReport& server : servers) {
      const Status held = tell_experts(server, config_.network, "hold", *server.find(stamp_text(config_.stamp)), *set, false, kWishTime);
      if (held.ok()) {
        log_warning("experts of '", config_.model, "': ", set->count(), " that no server held are loaded by '", server.name, "'");
        return;
      }
      log_warning("experts of '", config_.model, "': ", held.message());
    }
  }
}

}  // namespace shoal
