// What operators do with expert servers: every change is a hold before a drop, and each server says itself what it holds.
#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "apps/expert_routing.h"
#include "base/log.h"
#include "experts/expert_set.h"
#include "experts/handshake.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr Duration kStatusTime = std::chrono::seconds(2), kLoadTime = std::chrono::minutes(10);

// A model of a server, as its status says.
struct HeldModel {
  std::string name, stamp;
  ExpertShape shape;
  ExpertSet holds;
};
struct LiveServer {
  ExpertAddress address;
  std::string name;
  double free_bytes = 0;
  Json status;
  std::vector<HeldModel> models;

  const HeldModel* find(const std::string& stamp) const {
    for (const HeldModel& model : models) {
      if (model.stamp == stamp) return &model;
    }
    return nullptr;
  }
};

StatusOr<LiveServer> read_server(const ExpertAddress& address, Json status) {
  LiveServer server{.address = address};
  ASSIGN_OR_RETURN(server.name, json_string(status, "name", ""));
  const Json memory = status.value("memory", Json::object());
  ASSIGN_OR_RETURN(const double limit, json_double(memory, "limit", 0));
  ASSIGN_OR_RETURN(const double used, json_double(memory, "used", 0));
  server.free_bytes = limit - used;
  for (const Json& item : status.value("models", Json::array())) {
    HeldModel model;
    ASSIGN_OR_RETURN(model.name, json_string(item, "name", ""));
    ASSIGN_OR_RETURN(model.stamp, json_string(item, "stamp", ""));
    ASSIGN_OR_RETURN(model.shape, read_shape(item.value("shape", Json::object())));
    ASSIGN_OR_RETURN(model.holds, read_set(model.shape, item.value("holds", Json::object())));
    server.models.push_back(std::move(model));
  }
  server.status = std::move(status);
  return server;
}

StatusOr<LiveServer> ask_status(const ExpertRouting& routing, const ExpertAddress& address) {
  auto status = ask_expert_server(address.address, routing.tls(), {{"verb", "status"}}, kStatusTime);
  if (!status.ok() && !address.other.empty()) status = ask_expert_server(address.other, routing.tls(), {{"verb", "status"}}, kStatusTime);
  RETURN_IF_ERROR(status.status());
  return read_server(address, *std::move(status));
}

std::vector<LiveServer> live_servers(const ExpertRouting& routing) {
  std::vector<LiveServer> result;
  for (const ExpertAddress& address : routing.addresses()) {
    auto server = ask_status(routing, address);
    if (server.ok()) result.push_back(*std::move(server));
  }
  return result;
}

StatusOr<LiveServer*> find_server(std::vector<LiveServer>& servers, const std::string& name, const char* field) {
  std::string known;
  for (LiveServer& server : servers) {
    if (server.name == name || server.address.address == name) return &server;
    absl::StrAppend(&known, known.empty() ? "" : ", ", server.name);
  }
  return not_found("'", field, "': no expert server '", name, "' answers; those that do are ", known.empty() ? "none" : known);
}

Status tell(const ExpertRouting& routing, const LiveServer& server, const char* verb, const HeldModel& model, const ExpertSet& set) {
  const Json request{{"verb", verb}, {"model", model.stamp}, {"experts", write_set(model.shape, set)}};
  return ask_expert_server(server.address.address, routing.tls(), request, kLoadTime).status();
}

// What of the model's experts that `server` holds nobody else does.
ExpertSet held_alone(const std::vector<LiveServer>& servers, const LiveServer& server, const HeldModel& model) {
  ExpertSet alone = model.holds;
  for (const LiveServer& other : servers) {
    const HeldModel* const same = &other == &server ? nullptr : other.find(model.stamp);
    if (same == nullptr) continue;
    for (const uint32_t index : same->holds.list()) alone.remove(index);
  }
  return alone;
}

StatusOr<const HeldModel*> model_named(const LiveServer& server, const std::string& name) {
  for (const HeldModel& model : server.models) {
    if (model.name == name || (name.empty() && server.models.size() == 1)) return &model;
  }
  return not_found("'model': expert server '", server.name, "' has no experts of '", name, "'");
}

StatusOr<ExpertSet> experts_named(const HeldModel& model, const Json& request) {
  const Json experts = request.value("experts", Json());
  if (experts.is_string()) return parse_experts(model.shape, experts.get<std::string>());
  return read_set(model.shape, experts);
}

Json done(const std::string& what) {
  log_info("experts: ", what);
  return {{"success", true}, {"done", what}};
}

StatusOr<Json> add_server(ExpertRouting& routing, const Json& request) {
  ASSIGN_OR_RETURN(const std::string address, json_string(request, "address", ""));
  ASSIGN_OR_RETURN(std::vector<ExpertAddress> named, expert_addresses(address.empty() ? "?" : address));
  if (named.size() != 1) return invalid_argument("'address': name one server");
  ASSIGN_OR_RETURN(const LiveServer server, ask_status(routing, named.front()));
  std::vector<ExpertAddress> all = routing.addresses();
  const bool known = std::any_of(all.begin(), all.end(), [&](const ExpertAddress& a) { return a.address == address; });
  if (!known) all.push_back({.name = server.name, .address = address});
  routing.set_servers(std::move(all));
  return done(absl::StrCat("'", server.name, "' at ", address, " is asked from now on"));
}

// What only it holds is copied to whoever has room, then nobody asks it any more. It goes on answering those who do not know yet.
StatusOr<Json> drain_server(ExpertRouting& routing, const Json& request) {
  ASSIGN_OR_RETURN(const std::string name, json_string(request, "server", ""));
  std::vector<LiveServer> servers = live_servers(routing);
  ASSIGN_OR_RETURN(const LiveServer* const leaving, find_server(servers, name, "server"));
  uint32_t copied = 0;
  for (const HeldModel& model : leaving->models) {
    const ExpertSet alone = held_alone(servers, *leaving, model);
    if (alone.count() == 0) continue;
    std::vector<LiveServer*> others;
    for (LiveServer& server : servers) {
      if (&server != leaving && server.find(model.stamp) != nullptr) others.push_back(&server);
    }
    std::sort(others.begin(), others.end(), [](const LiveServer* a, const LiveServer* b) { return a->free_bytes > b->free_bytes; });
    Status why = not_found("no other expert server of this model answers");
    for (const LiveServer* other : others) {
      why = tell(routing, *other, "hold", *other->find(model.stamp), alone);
      if (why.ok()) break;
    }
    if (!why.ok()) {
      return absl::FailedPreconditionError(absl::StrCat("'", leaving->name, "' is the last that holds ", alone.count(), " experts of '", model.name, "' (", expert_text(model.shape, alone.list().front()),
                                                        " is one), and they cannot be copied elsewhere: ", why.message(), ". Add a server first (shoal experts add), or replicate them to one with room"));
    }
    copied += alone.count();
  }
  std::vector<ExpertAddress> rest = routing.addresses();
  std::erase_if(rest, [&](const ExpertAddress& address) { return address == leaving->address; });
  routing.set_servers(std::move(rest));
  return done(absl::StrCat("'", leaving->name, "' is asked no more", copied > 0 ? absl::StrCat("; ", copied, " experts that it alone held were copied first") : ""));
}

StatusOr<Json> copy_experts(ExpertRouting& routing, const Json& request, bool move) {
  ASSIGN_OR_RETURN(const std::string from_name, json_string(request, "from", ""));
  ASSIGN_OR_RETURN(const std::string to_name, json_string(request, "to", ""));
  ASSIGN_OR_RETURN(const std::string model_name, json_string(request, "model", ""));
  std::vector<LiveServer> servers = live_servers(routing);
  ASSIGN_OR_RETURN(const LiveServer* const to, find_server(servers, to_name, "to"));
  ASSIGN_OR_RETURN(const HeldModel* const model, model_named(*to, model_name));
  ASSIGN_OR_RETURN(const ExpertSet set, experts_named(*model, request));
  if (set.count() == 0) return invalid_argument("'experts': name some, as in \"0-3:0-7,12\"");
  const LiveServer* from = nullptr;
  if (move) {
    ASSIGN_OR_RETURN(from, find_server(servers, from_name, "from"));
    if (from == to) return invalid_argument("'from' and 'to' are the same server");
    const HeldModel* const source = from->find(model->stamp);
    for (const uint32_t index : set.list()) {
      if (source == nullptr || !source->holds.has(index)) return not_found("'from': '", from->name, "' does not hold ", expert_text(model->shape, index));
    }
  }
  RETURN_IF_ERROR(tell(routing, *to, "hold", *model, set));
  if (from != nullptr) RETURN_IF_ERROR(tell(routing, *from, "drop", *model, set));
  return done(absl::StrCat(set.count(), " experts of '", model->name, "' are held by '", to->name, "'", from != nullptr ? absl::StrCat(" and no more by '", from->name, "'") : ""));
}

}  // namespace

Json list_experts(const ExpertRouting& routing) {
  Json list = Json::array();
  for (const ExpertAddress& address : routing.addresses()) {
    auto server = ask_status(routing, address);
    std::string name = address.name.empty() ? address.address : address.name;
    Json seen = Json::array();
    for (const RemoteExpertServer& view : routing.seen()) {
      if (view.address != address.address) continue;
      name = view.name;
      seen.push_back({{"connected", view.connected}, {"suspected", view.suspected}, {"requests", view.requests}, {"over", view.streamed ? "tcp" : "shared memory"},
                      {"round_trip_p50_us", view.round_trip_p50 * 1e6}, {"round_trip_p99_us", view.round_trip_p99 * 1e6}, {"error", view.error}});
    }
    Json item = server.ok() ? std::move(server->status) : Json{{"name", name}, {"error", std::string(server.status().message())}};
    item["address"] = address.address;
    item["seen"] = std::move(seen);
    list.push_back(std::move(item));
  }
  const RemoteExpertsCounts counts = routing.counts();
  return {{"object", "list"}, {"data", std::move(list)},
          {"counts", {{"exchanges", counts.exchanges}, {"requests", counts.requests}, {"rows", counts.rows}, {"resent_rows", counts.resent_rows}, {"timeouts", counts.timeouts},
                      {"losses", counts.losses}, {"late", counts.late}, {"refused", counts.refused}, {"deferred", counts.deferred}, {"wishes", counts.wishes},
                      {"waiting_seconds", counts.waiting_seconds}}}};
}

StatusOr<Json> change_experts(ExpertRouting& routing, const std::string& verb, const Json& request) {
  if (verb == "add") return add_server(routing, request);
  if (verb == "drain") return drain_server(routing, request);
  if (verb == "move") return copy_experts(routing, request, true);
  if (verb == "replicate") return copy_experts(routing, request, false);
  return not_found("there is no '", verb, "' of experts; there are list, add, drain, move and replicate");
}

}  // namespace shoal
