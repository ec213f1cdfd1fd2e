#include "experts/fleet_plan.h"

#include <algorithm>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

constexpr int kPlansMax = 64;  // of one that leaves; each but the last copied something or made room

std::vector<ExpertLayerSpec> layers_of(const ReportedModel& model) {
  std::vector<ExpertLayerSpec> layers;
  for (uint32_t layer = 0; layer < model.shape.layers(); ++layer) layers.push_back({model.shape.numbers[layer], model.shape.experts, std::max<uint64_t>(model.expert_bytes[layer], 1)});
  return layers;
}

void add_held(const ReportedModel& model, NodeId server, ExpertPlacement& held) {
  if (held.layers.empty()) {
    for (uint32_t layer = 0; layer < model.shape.layers(); ++layer) held.layers.push_back({model.shape.numbers[layer], std::vector<std::vector<ExpertShare>>(model.shape.experts)});
  }
  for (const uint32_t index : model.holds.list()) {
    auto& copies = held.layers[index / model.shape.experts].experts[index % model.shape.experts];
    copies.push_back({server, copies.empty() ? kWholeShare : 0});
  }
}

// Numbered in their order, the one that leaves as one that drains.
struct Leaving {
  std::vector<ServerReport> reports;
  std::vector<FleetServer> servers;
  NodeId id;
};

StatusOr<Leaving> look_at(std::vector<ServerReport> reports, const std::string& name) {
  Leaving look{.reports = std::move(reports)};
  const auto at = std::find_if(look.reports.begin(), look.reports.end(), [&](const ServerReport& report) { return report.name == name; });
  if (at == look.reports.end()) return not_found("expert server '", name, "' does not answer");
  at->draining = true;
  for (const ServerReport& report : look.reports) look.servers.push_back({NodeId(static_cast<uint32_t>(look.servers.size())), &report});
  look.id = look.servers[static_cast<size_t>(at - look.reports.begin())].id;
  return look;
}

}  // namespace

std::vector<ExpertServerSpec> server_specs(std::span<const FleetServer> servers) {
  constexpr double kRows = 8;
  std::map<std::string, uint32_t> domains;
  std::vector<ExpertServerSpec> specs;
  std::vector<double> seconds;
  for (const FleetServer& server : servers) {
    const ServerReport& report = *server.report;
    const uint32_t domain = domains.try_emplace(report.domain, static_cast<uint32_t>(domains.size())).first->second;
    specs.push_back({.server = server.id, .memory_bytes = report.memory_bytes, .domain = domain, .draining = report.draining});
    const auto cost = fit_expert_cost(report.times);
    if (cost.ok() && cost->seconds(kRows) > 0) seconds.push_back(cost->seconds(kRows));
  }
  if (seconds.size() != specs.size()) return specs;
  for (size_t i = 0; i < specs.size(); ++i) specs[i].speed = seconds.front() / seconds[i];
  return specs;
}

std::vector<FleetModel> fleet_models(std::span<const FleetServer> servers) {
  std::map<std::string, FleetModel> by_stamp;
  for (const FleetServer& server : servers) {
    for (const ReportedModel& reported : server.report->models) {
      FleetModel& model = by_stamp.try_emplace(reported.stamp, FleetModel{.key = reported.stamp, .layers = layers_of(reported)}).first->second;
      if (model.layers.size() != reported.shape.layers() || model.layers.front().experts != reported.shape.experts) continue;  // it lies
      model.servers.push_back(server.id);
      model.by_hand |= reported.pinned.count() > 0;
      add_held(reported, server.id, model.held);
    }
  }
  std::vector<FleetModel> models;
  for (auto& [stamp, model] : by_stamp) models.push_back(std::move(model));
  return models;
}

StatusOr<ExpertCost> fleet_cost(std::span<const FleetServer> servers) {
  std::vector<ExpertSample> samples;
  for (const FleetServer& server : servers) samples.insert(samples.end(), server.report->times.begin(), server.report->times.end());
  return fit_expert_cost(samples);
}

Status tell_fleet(std::span<const FleetServer> servers, const std::shared_ptr<BulkNetwork>& network, const FleetModel& model, const char* verb, std::span<const ExpertMove> moves) {
  std::map<NodeId, std::vector<ExpertMove>> by_server;
  for (const ExpertMove& move : moves) by_server[move.server].push_back(move);
  std::vector<std::thread> threads;
  std::vector<Status> said(by_server.size());
  size_t next = 0;
  for (const auto& [id, mine] : by_server) {
    const auto at = std::find_if(servers.begin(), servers.end(), [&, wanted = id](const FleetServer& server) { return server.id == wanted; });
    const ServerReport& server = *at->report;
    const ReportedModel& reported = *server.find(model.key);
    ExpertSet set(reported.shape);
    for (const ExpertMove& move : mine) {
      const auto layer = std::lower_bound(reported.shape.numbers.begin(), reported.shape.numbers.end(), move.layer) - reported.shape.numbers.begin();
      set.add(static_cast<uint32_t>(layer) * reported.shape.experts + move.expert);
    }
    threads.emplace_back([&server, &reported, &network, verb, set, &status = said[next++]] { status = annotate(tell_experts(server, network, verb, reported, set), server.name); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : said) RETURN_IF_ERROR(status);
  return OkStatus();
}

std::string server_names(std::span<const FleetServer> servers) {
  std::string text;
  for (const FleetServer& server : servers) absl::StrAppend(&text, text.empty() ? " (" : ", ", "server ", server.id.value, " is '", server.report->name, "'");
  return text.empty() ? text : text + ")";
}

StatusOr<uint64_t> copy_for_leaving(const std::function<std::vector<ServerReport>()>& ask, const std::string& leaving, const std::shared_ptr<BulkNetwork>& network, const PlacementOptions& options) {
  uint64_t copied = 0;
  for (int round = 0; round < kPlansMax; ++round) {
    ASSIGN_OR_RETURN(const Leaving look, look_at(ask(), leaving));
    const std::vector<FleetModel> models = fleet_models(look.servers);
    const auto cost = fleet_cost(look.servers);
    const auto plans = ExpertKeeping(options).plan(server_specs(look.servers), models, cost.ok() ? &*cost : nullptr);
    for (size_t m = 0; m < models.size(); ++m) {  // all, before anything is changed
      const Status& why = plans[m].status();
      if (!why.ok() && held_bytes(models[m], look.id) > 0) return Status(why.code(), absl::StrCat(why.message(), server_names(look.servers)));
    }
    bool more = false;
    for (size_t m = 0; m < models.size(); ++m) {
      if (!plans[m].ok()) continue;
      RETURN_IF_ERROR(tell_fleet(look.servers, network, models[m], "hold", plans[m]->copies));
      std::vector<ExpertMove> drops = plans[m]->drops;
      std::erase_if(drops, [&](const ExpertMove& drop) { return drop.server == look.id; });  // it drops everything when it drains
      RETURN_IF_ERROR(tell_fleet(look.servers, network, models[m], "drop", drops));
      copied += plans[m]->copies.size();
      more |= plans[m]->more || !plans[m]->copies.empty();
    }
    if (!more) return copied;
  }
  return unavailable("what '", leaving, "' holds changes faster than it is copied; try again");
}

}  // namespace shoal
