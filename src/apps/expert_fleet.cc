// What operators do with expert servers: every change is a hold before a drop, and each server says itself what it holds.
#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "apps/expert_fleet.h"
#include "apps/expert_routing.h"
#include "base/clock.h"
#include "base/log.h"
#include "experts/expert_set.h"
#include "experts/fleet_plan.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr Duration kDrainTime = std::chrono::seconds(10);
constexpr Duration kHeard = std::chrono::seconds(30);  // then it is gone

std::vector<ServerReport> live_servers(const ExpertFleet& fleet) {
  std::vector<ServerReport> result;
  for (auto& report : ask_reports(fleet.servers(), fleet.network)) {
    if (report.ok()) result.push_back(*std::move(report));
  }
  return result;
}

StatusOr<ServerReport*> find_server(std::vector<ServerReport>& servers, const std::string& name, const char* field) {
  std::string known;
  for (ServerReport& server : servers) {
    if (server.name == name || server.address.address == name) return &server;
    absl::StrAppend(&known, known.empty() ? "" : ", ", server.name);
  }
  return not_found("'", field, "': no expert server '", name, "' answers; those that do are ", known.empty() ? "none" : known);
}

StatusOr<const ReportedModel*> model_named(const ServerReport& server, const std::string& name) {
  for (const ReportedModel& model : server.models) {
    if (model.name == name || (name.empty() && server.models.size() == 1)) return &model;
  }
  return not_found("'model': expert server '", server.name, "' has no experts of '", name, "'");
}

StatusOr<ExpertSet> experts_named(const ReportedModel& model, const Json& request) {
  const Json experts = request.value("experts", Json());
  if (experts.is_string()) return parse_experts(model.shape, experts.get<std::string>());
  return read_set(model.shape, experts);
}

Json done(const std::string& what) {
  log_info("experts: ", what);
  return {{"success", true}, {"done", what}};
}

StatusOr<Json> add_server(const ExpertFleet& fleet, const Json& request) {
  if (fleet.set_servers == nullptr) return absl::FailedPreconditionError("the expert servers of a cluster come by themselves: start one with `shoal expert --join`");
  ASSIGN_OR_RETURN(const std::string address, json_string(request, "address", ""));
  ASSIGN_OR_RETURN(std::vector<ExpertAddress> named, expert_addresses(address.empty() ? "?" : address));
  if (named.size() != 1) return invalid_argument("'address': name one server");
  ASSIGN_OR_RETURN(const ServerReport server, ask_report(named.front(), fleet.network));
  if (server.draining) RETURN_IF_ERROR(ask_expert_server(named.front(), fleet.network, {{"verb", "resume"}}, kDrainTime).status());
  std::vector<ExpertAddress> all = fleet.servers();
  const bool known = std::any_of(all.begin(), all.end(), [&](const ExpertAddress& a) { return a.address == address; });
  if (!known) all.push_back({server.name, address, ""});
  fleet.set_servers(std::move(all));
  return done(absl::StrCat("'", server.name, "' is asked ", known ? "as before" : "from now on"));
}

// Whoever keeps the fleet goes on meanwhile, so the last look is at one that takes nothing any more.
StatusOr<uint64_t> empty_server(const ExpertFleet& fleet, const ServerReport& leaving) {
  const auto tell = [&](const char* verb) { return ask_expert_server(leaving.address, fleet.network, {{"verb", verb}}, kDrainTime).status(); };
  const auto copy = [&] { return copy_for_leaving([&] { return live_servers(fleet); }, leaving.name, fleet.network); };
  ASSIGN_OR_RETURN(const uint64_t first, copy());
  RETURN_IF_ERROR(tell("close"));
  const StatusOr<uint64_t> rest = copy();
  if (!rest.ok()) {
    tell("resume").IgnoreError();  // what it holds, it holds on
    return rest.status();
  }
  RETURN_IF_ERROR(tell("drain"));
  return first + *rest;
}

StatusOr<Json> drain_server(const ExpertFleet& fleet, const Json& request) {
  ASSIGN_OR_RETURN(const std::string name, json_string(request, "server", ""));
  std::vector<ServerReport> servers = live_servers(fleet);
  ASSIGN_OR_RETURN(const ServerReport* const leaving, find_server(servers, name, "server"));
  const StatusOr<uint64_t> copied = empty_server(fleet, *leaving);
  if (!copied.ok()) return absl::FailedPreconditionError(absl::StrCat("'", leaving->name, "' cannot go: ", copied.status().message(), ". Add a server first (shoal experts add), or replicate what it holds to one with room"));
  if (fleet.set_servers != nullptr) {
    std::vector<ExpertAddress> rest = fleet.servers();
    std::erase_if(rest, [&](const ExpertAddress& address) { return address == leaving->address; });
    fleet.set_servers(std::move(rest));
  }
  return done(absl::StrCat("'", leaving->name, "' is asked no more", *copied > 0 ? absl::StrCat("; ", *copied, " experts were copied first") : ""));
}

StatusOr<Json> copy_experts(const ExpertFleet& fleet, const Json& request, bool move) {
  ASSIGN_OR_RETURN(const std::string from_name, json_string(request, "from", ""));
  ASSIGN_OR_RETURN(const std::string to_name, json_string(request, "to", ""));
  ASSIGN_OR_RETURN(const std::string model_name, json_string(request, "model", ""));
  std::vector<ServerReport> servers = live_servers(fleet);
  ASSIGN_OR_RETURN(const ServerReport* const to, find_server(servers, to_name, "to"));
  ASSIGN_OR_RETURN(const ReportedModel* const model, model_named(*to, model_name));
  ASSIGN_OR_RETURN(const ExpertSet set, experts_named(*model, request));
  if (set.count() == 0) return invalid_argument("'experts': name some, as in \"0-3:0-7,12\"");
  const ServerReport* from = nullptr;
  if (move) {
    ASSIGN_OR_RETURN(from, find_server(servers, from_name, "from"));
    if (from == to) return invalid_argument("'from' and 'to' are the same server");
    const ReportedModel* const source = from->find(model->stamp);
    for (const uint32_t index : set.list()) {
      if (source == nullptr || !source->holds.has(index)) return not_found("'from': '", from->name, "' does not hold ", expert_text(model->shape, index));
    }
  }
  RETURN_IF_ERROR(tell_experts(*to, fleet.network, "hold", *model, set, true));
  if (from != nullptr) RETURN_IF_ERROR(tell_experts(*from, fleet.network, "drop", *model, set));
  return done(absl::StrCat(set.count(), " experts of '", model->name, "' are held by '", to->name, "'", from != nullptr ? absl::StrCat(" and no more by '", from->name, "'") : ""));
}

StatusOr<Json> balance(const ExpertFleet& fleet) {
  size_t count = 0;
  for (const ServerReport& server : live_servers(fleet)) {
    RETURN_IF_ERROR(ask_expert_server(server.address, fleet.network, {{"verb", "unpin"}}, kDrainTime).status());
    ++count;
  }
  return done(absl::StrCat("what ", count, " servers hold is decided by their load again"));
}

Json seen_json(const ExpertFleet& fleet, const ExpertAddress& address, std::string& name) {
  Json seen = Json::array();
  if (fleet.seen == nullptr) return seen;
  for (const RemoteExpertServer& view : fleet.seen()) {
    if (view.address != address.address) continue;
    name = view.name;
    seen.push_back({{"connected", view.connected}, {"suspected", view.suspected}, {"requests", view.requests}, {"over", view.over},
                    {"round_trip_p50_us", view.round_trip_p50 * 1e6}, {"round_trip_p99_us", view.round_trip_p99 * 1e6}, {"error", view.error}});
  }
  return seen;
}

}  // namespace

void LastWord::say(Json what, TimePoint now) {
  std::lock_guard lock(mutex_);
  what_ = std::make_shared<const Json>(std::move(what));
  at_ = now;
}

Json LastWord::heard(TimePoint now) const {
  std::lock_guard lock(mutex_);
  return what_ != nullptr && now - at_ < kHeard ? *what_ : Json();
}

Json list_experts(const ExpertFleet& fleet) {
  Json list = Json::array();
  const std::vector<ExpertAddress> addresses = fleet.servers();
  auto reports = ask_reports(addresses, fleet.network);
  for (size_t i = 0; i < addresses.size(); ++i) {
    std::string name = addresses[i].name.empty() ? addresses[i].address : addresses[i].name;
    Json seen = seen_json(fleet, addresses[i], name);
    Json item = reports[i].ok() ? std::move(reports[i]->status) : Json{{"name", name}, {"error", std::string(reports[i].status().message())}};
    item["address"] = addresses[i].address;
    item["seen"] = std::move(seen);
    list.push_back(std::move(item));
  }
  Json answer{{"object", "list"}, {"data", std::move(list)}};
  if (fleet.keeper != nullptr) answer["keeper"] = fleet.keeper();
  if (Json scaling = fleet.scaling->heard(steady_now()); !scaling.is_null()) answer["scaling"] = std::move(scaling);
  if (fleet.counts == nullptr) return answer;
  const RemoteExpertsCounts counts = fleet.counts();
  for (const auto& [what, field] : kRemoteExpertsCounts) answer["counts"][what] = counts.*field;
  return answer;
}

StatusOr<Json> change_experts(const ExpertFleet& fleet, const std::string& verb, const Json& request) {
  if (verb == "add") return add_server(fleet, request);
  if (verb == "drain") return drain_server(fleet, request);
  if (verb == "move") return copy_experts(fleet, request, true);
  if (verb == "replicate") return copy_experts(fleet, request, false);
  if (verb == "balance") return balance(fleet);
  if (verb == "scaling") {
    fleet.scaling->say(request, steady_now());
    return Json{{"success", true}};
  }
  return not_found("there is no '", verb, "' of experts; there are list, add, drain, move, replicate and balance");
}

}  // namespace shoal
