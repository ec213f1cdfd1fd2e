#include "apps/expert_scaling.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "apps/admin_client.h"
#include "apps/expert_routing.h"
#include "apps/json_values.h"
#include "base/clock.h"
#include "base/log.h"
#include "experts/handshake.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr Duration kWindow = std::chrono::seconds(2);
constexpr Duration kStart = std::chrono::seconds(60);      // for a server to be there; its experts come after
constexpr Duration kMissed = std::chrono::seconds(30);     // not listed any more, for so long: an operator drained it
constexpr Duration kDrain = std::chrono::minutes(11);      // experts are read from files
constexpr Duration kAnswer = std::chrono::seconds(10);

uint64_t bytes_at(const Json& json, const char* key) { return static_cast<uint64_t>(std::max(0.0, number_at(json, key))); }

bool serves(const Json& server) { return text_at(server, "error").empty() && server.value("draining", Json()) != true; }

// Of the client that waits most for what could be hidden.
void look_at_overlap(const Json& server, ExpertScaleView& view) {
  for (const Json& client : list_at(server, "clients")) {
    const auto overlap = read_overlap(client);
    if (!overlap.ok() || overlap->hidden_s() == 0 || overlap->response_s * view.hidden_s < view.response_s * overlap->hidden_s()) continue;
    view.response_s = overlap->response_s;
    view.hidden_s = overlap->hidden_s();
  }
}

// One copy of every expert of every model.
uint64_t expert_bytes(const std::map<uint32_t, const Json*>& listed) {
  std::map<std::string, uint64_t> by_stamp;
  for (const auto& [number, server] : listed) {
    for (const Json& model : list_at(*server, "models")) {
      uint64_t layers = 0;
      for (const Json& bytes : list_at(model, "layer_expert_bytes")) layers += bytes.is_number_unsigned() ? bytes.get<uint64_t>() : 0;
      by_stamp[text_at(model, "stamp")] = layers * bytes_at(member(model, "shape"), "experts");
    }
  }
  uint64_t sum = 0;
  for (const auto& [stamp, bytes] : by_stamp) sum += bytes;
  return sum;
}

ExpertScaleView view_of(const std::map<uint32_t, const Json*>& listed, uint32_t servers) {
  ExpertScaleView view{.servers = servers, .bytes = expert_bytes(listed), .server_bytes = UINT64_MAX};
  uint32_t count = 0;
  for (const auto& [number, server] : listed) {
    if (!serves(*server)) continue;
    ++count;
    look_at_overlap(*server, view);
    view.busy += number_at(member(*server, "load"), "busy");
    view.server_bytes = std::min(view.server_bytes, bytes_at(member(*server, "memory"), "limit"));
  }
  view.busy /= std::max(count, 1u);
  return view;
}

}  // namespace

std::string expert_name(uint32_t number) { return absl::StrCat("expert-", number); }

StatusOr<ExpertScaleOptions> expert_scale_options(const ServeFlags& flags) {
  ASSIGN_OR_RETURN(const ExpertProcesses range, expert_processes(flags.engine.experts));
  ExpertScaleOptions options{.servers_min = range.min, .servers_max = range.max, .cool_down = from_seconds(flags.expert_cooldown_s)};
  const std::vector<std::string> ends = absl::StrSplit(flags.expert_busy, absl::MaxSplits('-', 1));
  const bool numbers = ends.size() == 2 && absl::SimpleAtod(ends.front(), &options.busy_low) && absl::SimpleAtod(ends.back(), &options.busy_high);
  if (!numbers || !(options.busy_low >= 0) || !(options.busy_low < options.busy_high) || !(options.busy_high <= 1)) {
    return invalid_argument("--expert-busy ", flags.expert_busy, ": write LOW-HIGH, two shares of 1 with the smaller one first, as in 0.70-0.85");
  }
  if (range.min == range.max) return options;
  if (flags.admin_socket == "none") return invalid_argument("--experts ", flags.engine.experts, ": servers come and go by the operator's socket; leave out --admin-socket none, or write auto:", range.min);
  const bool anywhere = flags.port == 0 && flags.uds.empty() && flags.admin_socket.empty();
  if (anywhere) return invalid_argument("--experts ", flags.engine.experts, ": with --port 0 nobody knows the operator's socket before; name one with --admin-socket");
  return options;
}

ExpertScaling::ExpertScaling(Options options, Supervisor& supervisor) : options_(std::move(options)), supervisor_(supervisor), scale_(options_.scale) {
  for (uint32_t number = 0; number < options_.scale.servers_min; ++number) servers_[number] = {steady_now()};
  thread_ = std::thread([this] { run(); });
}

ExpertScaling::~ExpertScaling() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    if (client_ != nullptr) client_->cancel();
  }
  wake_.notify_all();
  thread_.join();
}

void ExpertScaling::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kWindow, [&] { return stop_; })) {
    lock.unlock();
    look(steady_now());
    lock.lock();
  }
}

// Those of this supervisor, by their number.
std::map<uint32_t, const Json*> ExpertScaling::listed_servers(const Json& list) const {
  std::map<uint32_t, const Json*> found;
  for (const Json& server : list) {
    for (uint32_t number = 0; number < options_.scale.servers_max; ++number) {
      const bool same = options_.addresses.empty() ? text_at(server, "name") == expert_name(number) : text_at(server, "address") == options_.addresses[number];
      if (same) found[number] = &server;
    }
  }
  return found;
}

StatusOr<Json> ExpertScaling::call(const char* method, const std::string& path, const std::string& body, Duration timeout) {
  {
    std::lock_guard lock(mutex_);
    if (stop_) return absl::CancelledError("it ends");
    if (client_ == nullptr) {
      ASSIGN_OR_RETURN(client_, AdminClient::open({.socket = options_.socket}));
    }
  }
  auto answer = client_->call(method, path, body, timeout);
  if (!answer.ok()) {
    std::lock_guard lock(mutex_);
    client_.reset();
  }
  return answer;
}

StatusOr<Json> ExpertScaling::post(const char* verb, const Json& body, Duration timeout) { return call("POST", absl::StrCat("/experts/", verb), dump_json(body), timeout); }

void ExpertScaling::look(TimePoint now) {
  const StatusOr<Json> answer = call("GET", "/experts", "", kAnswer);
  if (!answer.ok()) return;  // it is not up yet, or just being started again
  const Json list = list_at(*answer, "data");
  const std::map<uint32_t, const Json*> listed = listed_servers(list);
  const bool all_there = settled(listed, now);
  const ExpertScaleView view = view_of(listed, static_cast<uint32_t>(servers_.size()));
  const bool known = std::any_of(listed.begin(), listed.end(), [](const auto& server) { return serves(*server.second); });
  const int change = all_there && known ? scale_.window(view, now) : 0;
  if (change > 0) grow(now);
  if (change < 0) shrink(listed);
  publish(view, why_);
}

// Whether whoever was started is there. What was started but is not asked yet is named to the process that serves.
bool ExpertScaling::settled(const std::map<uint32_t, const Json*>& listed, TimePoint now) {
  bool all = true;
  for (const auto& [number, server] : listed) {
    if (supervisor_.has(expert_name(number))) servers_[number] = {now, true};
  }
  for (auto next = servers_.begin(); next != servers_.end();) {
    const auto [number, server] = *next++;
    const bool extra = number >= options_.scale.servers_min;
    if (listed.contains(number)) continue;
    if (server.listed) {
      if (now - server.since < kMissed) continue;
      log_info(expert_name(number), " is asked no more, and ends");
      forget(number);
    } else if (extra && (now - server.since > kStart || !supervisor_.has(expert_name(number)))) {
      why_ = absl::StrCat(expert_name(number), " did not start; see the log");
      log_warning("experts: ", why_);
      forget(number);
    } else {
      all = false;
      if (!options_.addresses.empty()) post("add", {{"address", options_.addresses[number]}}, kAnswer).status().IgnoreError();  // it may not listen yet
    }
  }
  return all;
}

void ExpertScaling::grow(TimePoint now) {
  const auto free = std::find_if(options_.more.begin(), options_.more.end(), [&](const ProcessSpec& spec) { return !supervisor_.has(spec.name); });
  if (free == options_.more.end()) return;
  const uint32_t number = options_.scale.servers_min + static_cast<uint32_t>(free - options_.more.begin());
  log_info("experts: their servers have much to do, so there is one more");
  why_.clear();
  supervisor_.add(*free);
  servers_[number] = {now};
  tell_addresses();
}

void ExpertScaling::shrink(const std::map<uint32_t, const Json*>& listed) {
  std::vector<ScaledServer> candidates;
  for (const auto& [number, server] : listed) {
    if (!servers_.contains(number) || number < options_.scale.servers_min) continue;
    const Json models = list_at(*server, "models");
    const bool by_hand = std::any_of(models.begin(), models.end(), [](const Json& model) { return !member(model, "pinned").empty(); });
    candidates.push_back({number, by_hand});  // also one whose drain was broken off
  }
  const auto chosen = which_leaves(candidates);
  if (!chosen) return;
  const uint32_t number = candidates[*chosen].number;
  const auto drained = post("drain", {{"server", expert_name(number)}}, kDrain);
  why_ = drained.ok() ? "" : std::string(drained.status().message());
  if (!drained.ok()) {
    log_warning("experts: there could be one server less, but ", why_);
    return;
  }
  log_info("experts: their servers have little to do, so ", expert_name(number), " ends");
  forget(number);
}

void ExpertScaling::forget(uint32_t number) {
  servers_.erase(number);
  tell_addresses();
  if (number >= options_.scale.servers_min) supervisor_.remove(expert_name(number));
}

// For the process that serves, when it is started again.
void ExpertScaling::tell_addresses() {
  if (options_.addresses.empty()) return;
  std::vector<std::string> addresses;
  for (const auto& [number, server] : servers_) addresses.push_back(options_.addresses[number]);
  supervisor_.set_flag("experts", absl::StrJoin(addresses, ","));
}

void ExpertScaling::publish(const ExpertScaleView& view, const std::string& why) {
  const ExpertScaleOptions& scale = options_.scale;
  post("scaling", {{"servers", servers_.size()}, {"min", scale.servers_min}, {"max", scale.servers_max}, {"busy", view.busy}, {"response_p95_us", view.response_s * 1e6}, {"hidden_us", view.hidden_s * 1e6}, {"busy_low", scale.busy_low}, {"busy_high", scale.busy_high}, {"why", why}}, kAnswer).status().IgnoreError();
}

}  // namespace shoal
