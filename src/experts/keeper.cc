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

std::vector<ExpertServerSpec> ExpertKeeper::servers() const {
  std::map<std::string, uint32_t> domains;
  std::vector<ExpertServerSpec> specs;
  for (const auto& [name, seen] : seen_) {
    const uint32_t domain = domains.try_emplace(seen.report.domain, static_cast<uint32_t>(domains.size())).first->second;
    specs.push_back({.server = seen.id, .memory_bytes = seen.report.memory_bytes, .domain = domain, .draining = seen.report.draining});
  }
  // A server is as fast as it was measured to be, if all were.
  constexpr double kRows = 8;
  std::vector<double> seconds;
  for (const auto& [name, seen] : seen_) {
    const auto cost = fit_expert_cost(seen.report.times);
    if (cost.ok() && cost->seconds(kRows) > 0) seconds.push_back(cost->seconds(kRows));
  }
  if (seconds.size() == specs.size()) {
    for (size_t i = 0; i < specs.size(); ++i) specs[i].speed = seconds.front() / seconds[i];
  }
  return specs;
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

std::vector<FleetModel> ExpertKeeper::models(bool window_over) {
  std::map<std::string, FleetModel> by_stamp;
  for (const auto& [name, seen] : seen_) {
    for (const ReportedModel& reported : seen.report.models) {
      FleetModel& model = by_stamp.try_emplace(reported.stamp, FleetModel{.key = reported.stamp, .layers = layers_of(reported)}).first->second;
      if (model.layers.size() != reported.shape.layers() || model.layers.front().experts != reported.shape.experts) continue;  // it lies
      model.servers.push_back(seen.id);
      model.by_hand |= reported.pinned.count() > 0;
      add_held(reported, seen.id, model.held);
      if (window_over) add_rows(seen, reported, model);
    }
  }
  std::vector<FleetModel> models;
  for (auto& [stamp, model] : by_stamp) {
    // A window without rows says nothing about which are warm.
    const bool any = std::any_of(model.rows.begin(), model.rows.end(), [](const auto& layer) { return std::any_of(layer.begin(), layer.end(), [](double rows) { return rows > 0; }); });
    if (!any) model.rows.clear();
    models.push_back(std::move(model));
  }
  return models;
}

Status ExpertKeeper::tell(const FleetModel& model, const char* verb, const std::vector<ExpertMove>& moves) {
  std::map<NodeId, std::vector<ExpertMove>> by_server;
  for (const ExpertMove& move : moves) by_server[move.server].push_back(move);
  std::vector<std::thread> threads;
  std::vector<Status> said(by_server.size());
  size_t next = 0;
  for (const auto& [id, mine] : by_server) {
    const auto at = std::find_if(seen_.begin(), seen_.end(), [&, wanted = id](const auto& entry) { return entry.second.id == wanted; });
    const ServerReport& server = at->second.report;
    const ReportedModel& reported = *server.find(model.key);
    ExpertSet set(reported.shape);
    for (const ExpertMove& move : mine) {
      const auto layer = std::lower_bound(reported.shape.numbers.begin(), reported.shape.numbers.end(), move.layer) - reported.shape.numbers.begin();
      set.add(static_cast<uint32_t>(layer) * reported.shape.experts + move.expert);
    }
    threads.emplace_back([this, &server, &reported, verb, set, &status = said[next++]] { status = annotate(tell_experts(server, options_.network, verb, reported, set), server.name); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : said) RETURN_IF_ERROR(status);
  return OkStatus();
}

// Copies, and only then drops: what is copied is published by then.
Status ExpertKeeper::carry_out(const FleetModel& model, const PlacementPlan& plan) {
  if (plan.empty()) return OkStatus();
  RETURN_IF_ERROR(tell(model, "hold", plan.copies));
  RETURN_IF_ERROR(tell(model, "drop", plan.drops));
  log_info("experts: ", plan.copies.size(), " copied and ", plan.drops.size(), " dropped");
  std::lock_guard lock(mutex_);
  copied_ += plan.copies.size();
  dropped_ += plan.drops.size();
  look_ = plan.more;
  return OkStatus();
}

std::string ExpertKeeper::names() const {
  std::string text;
  for (const auto& [name, seen] : seen_) absl::StrAppend(&text, text.empty() ? " (" : ", ", "server ", seen.id.value, " is '", name, "'");
  return text.empty() ? text : text + ")";
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
  const std::vector<ExpertServerSpec> specs = servers();
  const std::vector<FleetModel> all = models(window_over);
  std::vector<ExpertSample> samples;
  for (const auto& [name, seen] : seen_) samples.insert(samples.end(), seen.report.times.begin(), seen.report.times.end());
  const auto cost = fit_expert_cost(samples);
  const auto plans = keeping_.plan(specs, all, cost.ok() ? &*cost : nullptr);
  std::string why;
  for (size_t i = 0; i < plans.size(); ++i) {
    const Status done = plans[i].ok() ? carry_out(all[i], *plans[i]) : plans[i].status();
    if (!done.ok()) why = absl::StrCat(std::string(done.message()), plans[i].ok() ? "" : names());
  }
  say(why);
}

}  // namespace shoal
