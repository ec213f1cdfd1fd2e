#include "experts/keeper.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr int kClaimRounds = 10;  // for so many rounds after its last, nobody else decides
constexpr int kQuickRounds = 20;  // after something changed: servers that are just being started are not kept waiting
constexpr Duration kQuick = std::chrono::milliseconds(100);

}  // namespace

ExpertKeeper::ExpertKeeper(Options options) : options_(std::move(options)), keeping_(options_.placement), thread_([this] { run(); }) {}

ExpertKeeper::~ExpertKeeper() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void ExpertKeeper::lead(bool leads) {
  std::lock_guard lock(mutex_);
  leads_ = leads;
  look_ = true;
  wake_.notify_all();
}

void ExpertKeeper::look() {
  std::lock_guard lock(mutex_);
  look_ = true;
  wake_.notify_all();
}

Json ExpertKeeper::status() const {
  std::lock_guard lock(mutex_);
  return {{"name", options_.name}, {"keeps", keeps_}, {"copied", copied_}, {"dropped", dropped_}, {"why", why_}};
}

void ExpertKeeper::say(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (why_ == why) return;
  why_ = why;
  if (!why.empty()) log_warning("experts: ", why);
}

void ExpertKeeper::run() {
  std::unique_lock lock(mutex_);
  for (int quick = kQuickRounds; !stop_;) {
    if (leads_) {
      lock.unlock();
      round(steady_now());
      lock.lock();
    } else {
      keeps_ = false;
    }
    wake_.wait_for(lock, quick > 0 ? std::min(kQuick, options_.look) : options_.look, [&] { return stop_ || look_; });
    quick = std::exchange(look_, false) ? kQuickRounds : std::max(quick - 1, 0);
  }
}

// Every server is asked, and told that this one decides. False if another one does.
bool ExpertKeeper::claim(TimePoint now, bool window_over) {
  const std::vector<ExpertAddress> addresses = options_.servers();
  const Json request{{"verb", "keep"}, {"keeper", options_.name}, {"for_ms", std::chrono::duration_cast<std::chrono::milliseconds>(options_.look * kClaimRounds).count()}, {"rows", window_over}};
  auto reports = ask_reports(addresses, options_.network, request);
  std::set<std::string> asked;
  for (size_t i = 0; i < reports.size(); ++i) {
    asked.insert(addresses[i].address);
    if (reports[i].status().code() == StatusCode::kFailedPrecondition) {
      say(std::string(reports[i].status().message()));
      return false;
    }
    if (!reports[i].ok()) continue;
    const std::string name = reports[i]->name;
    const NodeId id = ids_.try_emplace(name, NodeId(static_cast<uint32_t>(ids_.size()))).first->second;
    seen_[name] = {*std::move(reports[i]), now, id};
  }
  std::erase_if(seen_, [&](const auto& entry) { return !asked.contains(entry.second.report.address.address) || now - entry.second.at > options_.grace; });
  return true;
}

std::vector<FleetServer> ExpertKeeper::servers() const {
  std::vector<FleetServer> servers;
  for (const auto& [name, seen] : seen_) servers.push_back({seen.id, &seen.report});
  return servers;
}

void ExpertKeeper::add_rows(const Seen& seen, const ReportedModel& model, FleetModel& out) {
  if (model.rows.empty()) return;
  Counted& counted = counted_[{seen.report.name, model.stamp}];
  const bool same = counted.pid == seen.report.pid && counted.rows.size() == model.rows.size();
  if (same && out.rows.empty()) out.rows.assign(model.shape.layers(), std::vector<double>(model.shape.experts));
  for (size_t i = 0; same && i < model.rows.size(); ++i) {
    out.rows[i / model.shape.experts][i % model.shape.experts] += static_cast<double>(model.rows[i] - std::min(model.rows[i], counted.rows[i]));
  }
  counted = {seen.report.pid, model.rows};
}

std::vector<FleetModel> ExpertKeeper::models(std::span<const FleetServer> servers, bool window_over) {
  std::vector<FleetModel> models = fleet_models(servers);
  for (FleetModel& model : models) {
    for (const auto& [name, seen] : seen_) {
      const bool has = std::find(model.servers.begin(), model.servers.end(), seen.id) != model.servers.end();
      if (has && window_over) add_rows(seen, *seen.report.find(model.key), model);
    }
    // A window without rows says nothing about which are warm.
    const bool any = std::any_of(model.rows.begin(), model.rows.end(), [](const auto& layer) { return std::any_of(layer.begin(), layer.end(), [](double rows) { return rows > 0; }); });
    if (!any) model.rows.clear();
  }
  return models;
}

// Copies, and only then drops: what is copied is published by then.
Status ExpertKeeper::carry_out(std::span<const FleetServer> servers, const FleetModel& model, const PlacementPlan& plan) {
  if (plan.empty()) return OkStatus();
  RETURN_IF_ERROR(tell_fleet(servers, options_.network, model, "hold", plan.copies));
  RETURN_IF_ERROR(tell_fleet(servers, options_.network, model, "drop", plan.drops));
  log_info("experts: ", plan.copies.size(), " copied and ", plan.drops.size(), " dropped");
  std::lock_guard lock(mutex_);
  copied_ += plan.copies.size();
  dropped_ += plan.drops.size();
  look_ = plan.more;
  return OkStatus();
}

void ExpertKeeper::round(TimePoint now) {
  const bool window_over = now - window_began_ >= options_.window;
  if (window_over) window_began_ = now;
  const bool keeps = claim(now, window_over);
  {
    std::lock_guard lock(mutex_);
    keeps_ = keeps && !seen_.empty();
  }
  if (!keeps || seen_.empty()) return;
  const std::vector<FleetServer> fleet = servers();
  const std::vector<FleetModel> all = models(fleet, window_over);
  const auto cost = fleet_cost(fleet);
  const auto plans = keeping_.plan(server_specs(fleet), all, cost.ok() ? &*cost : nullptr);
  std::string why;
  for (size_t i = 0; i < plans.size(); ++i) {
    const Status done = plans[i].ok() ? carry_out(fleet, all[i], *plans[i]) : plans[i].status();
    if (!done.ok()) why = absl::StrCat(std::string(done.message()), plans[i].ok() ? "" : server_names(fleet));
  }
  say(why);
}

}  // namespace shoal
