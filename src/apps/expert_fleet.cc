// What operators do with expert servers: every change is a hold before a drop, and each server says itself what it holds.
#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "apps/expert_fleet.h"
#include "apps/expert_routing.h"
#include "base/log.h"
#include "experts/expert_set.h"
#include "experts/fleet.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr Duration kDrainTime = std::chrono::seconds(10);

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

// What of the model's experts that `server` holds nobody else does.
ExpertSet held_alone(const std::vector<ServerReport>& servers, const ServerReport& server, const ReportedModel& model) {
  ExpertSet alone = model.holds;
  for (const ServerReport& other : servers) {
    const ReportedModel* const same = &other == &server ? nullptr : other.find(model.stamp);
    if (same == nullptr) continue;
    for (const uint32_t index : same->holds.list()) alone.remove(index);
  }
  return alone;
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

StatusOr<Json> drain_server(const ExpertFleet& fleet, const Json& request) {
  ASSIGN_OR_RETURN(const std::string name, json_string(request, "server", ""));
  std::vector<ServerReport> servers = live_servers(fleet);
  ASSIGN_OR_RETURN(const ServerReport* const leaving, find_server(servers, name, "server"));
  uint32_t copied = 0;
  for (const ReportedModel& model : leaving->models) {
    const ExpertSet alone = held_alone(servers, *leaving, model);
    if (alone.count() == 0) continue;
    std::vector<ServerReport*> others;
    for (ServerReport& server : servers) {
      if (&server != leaving && !server.draining && server.find(model.stamp) != nullptr) others.push_back(&server);
    }
    std::sort(others.begin(), others.end(), [](const ServerReport* a, const ServerReport* b) { return a->free_bytes() > b->free_bytes(); });
    Status why = not_found("no other expert server of this model answers");
    for (const ServerReport* other : others) {
      why = tell_experts(*other, fleet.network, "hold", *other->find(model.stamp), alone);
      if (why.ok()) break;
    }
    if (!why.ok()) {
      return absl::FailedPreconditionError(absl::StrCat("'", leaving->name, "' is the last that holds ", alone.count(), " experts of '", model.name, "' (", expert_text(model.shape, alone.list().front()),
                                                        " is one), and they cannot be copied elsewhere: ", why.message(), ". Add a server first (shoal experts add), or replicate them to one with room"));
    }
    copied += alone.count();
  }
  RETURN_IF_ERROR(ask_expert_server(leaving->address, fleet.network, {{"verb", "drain"}}, kDrainTime).status());
  if (fleet.set_servers != nullptr) {
    std::vector<ExpertAddress> rest = fleet.servers();
    std::erase_if(rest, [&](const ExpertAddress& address) { return address == leaving->address; });
    fleet.set_servers(std::move(rest));
  }
  return done(absl::StrCat("'", leaving->name, "' is asked no more", copied > 0 ? absl::StrCat("; ", copied, " experts that it alone held were copied first") : ""));
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
    seen.push_back({{"connected", view.connected}, {"suspected", view.suspected}, {"requests", view.requests}, {"over", view.streamed ? "tcp" : "shared memory"},
                    {"round_trip_p50_us", view.round_trip_p50 * 1e6}, {"round_trip_p99_us", view.round_trip_p99 * 1e6}, {"error", view.error}});
  }
  return seen;
}

}  // namespace

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
  if (fleet.counts == nullptr) return answer;
  const RemoteExpertsCounts counts = fleet.counts();
  answer["counts"] = {{"exchanges", counts.exchanges}, {"requests", counts.requests}, {"rows", counts.rows}, {"relayed", counts.relayed}, {"tokens_sent", counts.tokens_sent}, {"rows_received", counts.rows_received}, {"resent_rows", counts.resent_rows}, {"timeouts", counts.timeouts}, {"hedges", counts.hedges}, {"hedges_won", counts.hedges_won},
                      {"losses", counts.losses}, {"late", counts.late}, {"refused", counts.refused}, {"deferred", counts.deferred}, {"wishes", counts.wishes}};
  return answer;
}

StatusOr<Json> change_experts(const ExpertFleet& fleet, const std::string& verb, const Json& request) {
  if (verb == "add") return add_server(fleet, request);
  if (verb == "drain") return drain_server(fleet, request);
  if (verb == "move") return copy_experts(fleet, request, true);
  if (verb == "replicate") return copy_experts(fleet, request, false);
  if (verb == "balance") return balance(fleet);
  return not_found("there is no '", verb, "' of experts; there are list, add, drain, move, replicate and balance");
}

}  // namespace shoal
