#include "policy/decode_turns.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace shoal {
namespace {

constexpr double kAlphaMin = 0.5;  // never buffer more than twice the round
constexpr double kStepSecondsMin = 1e-6;
constexpr double kQuotaSecondsMin = 0.05;

double playback_rate(const TurnBatch& b) { return b.tbt_seconds / std::max(b.step_seconds, kStepSecondsMin); }

// Of each model once, its largest.
double sum_over_models(std::span<const TurnBatch> batches, double TurnBatch::*seconds) {
  std::map<ModelId, double> of_model;
  for (const TurnBatch& b : batches) of_model[b.model] = std::max(of_model[b.model], b.*seconds);
  double sum = 0;
  for (const auto& [model, value] : of_model) sum += value;
  return sum;
}

std::vector<const TurnBatch*> in_order(std::span<const TurnBatch> batches, const TurnOptions& options) {
  struct Lead {  // of a model: what its batches are sorted by
    Duration slack;
    size_t first;
  };
  std::map<ModelId, Lead> leads;
  std::vector<const TurnBatch*> order;
  for (size_t i = 0; i < batches.size(); ++i) {
    order.push_back(&batches[i]);
    const auto [lead, first] = leads.try_emplace(batches[i].model, Lead{batches[i].slack, i});
    if (!first) lead->second.slack = std::min(lead->second.slack, batches[i].slack);
  }
  std::stable_sort(order.begin(), order.end(), [&](const TurnBatch* a, const TurnBatch* b) {
    const Lead &x = leads.at(a->model), &y = leads.at(b->model);
    if (options.least_slack_first && x.slack != y.slack) return x.slack < y.slack;
    if (a->model != b->model) return x.first < y.first;
    return options.least_slack_first && a->slack < b->slack;
  });
  return order;
}

// What a round is made of, in the paper's terms.
struct Shares {
  double n_min = std::numeric_limits<double>::infinity();
  double S = 0;
  double c = 0;
};

Shares shares_of(std::span<const TurnBatch> batches) {
  Shares shares;
  bool several = false;
  for (const TurnBatch& b : batches) {
    shares.n_min = std::min(shares.n_min, playback_rate(b));
    shares.S += 1 / playback_rate(b);
    several |= b.model != batches.front().model;
  }
  if (several) shares.c = sum_over_models(batches, &TurnBatch::waited_seconds);
  return shares;
}

constexpr double kQuotaMaxSeconds = 4.0;  // the paper's
constexpr double kEarned = 2;             // switches, that a turn computes for before it ends early for answers under way

// With it the round keeps everybody's pace, alpha = 1, if any up to the paper's does, and is over before one that comes at its start is
// late with its first token.
double sustaining_quota_max(std::span<const TurnBatch> batches, const Shares& shares) {
  if (shares.c <= 0) return 0;
  double ttft = std::numeric_limits<double>::infinity();
  for (const TurnBatch& b : batches) ttft = std::min(ttft, b.ttft_seconds);
  const double needed = shares.S < 1 ? shares.c / (shares.n_min * (1 - shares.S)) : kQuotaMaxSeconds;
  return std::min({needed, kQuotaMaxSeconds, std::max((ttft - shares.c) / static_cast<double>(batches.size()), 0.0)});
}

}  // namespace

double quota_max_seconds(std::span<const TurnBatch> batches, const TurnOptions& options) {
  if (options.quota_max_seconds > 0) return options.quota_max_seconds;
  std::set<ModelId> models;
  for (const TurnBatch& b : batches) models.insert(b.model);
  const double count = static_cast<double>(std::max<size_t>(models.size(), 1));
  const double length = sum_over_models(batches, &TurnBatch::switch_seconds) / count;
  const double cost = sum_over_models(batches, &TurnBatch::waited_seconds) / count;
  const double covering = std::clamp(std::max(2.5 * length, std::min(12 * cost, 1.0)), 0.25, kQuotaMaxSeconds);
  return std::max(covering, sustaining_quota_max(batches, shares_of(batches)));
}

RoundPlan plan_round(std::span<const TurnBatch> batches, const TurnOptions& options) {
  RoundPlan plan;
  const auto [n_min, S, c] = shares_of(batches);
  const double q_max = quota_max_seconds(batches, options);
  plan.alpha = std::max((batches.empty() ? 0 : c / (n_min * q_max)) + S, kAlphaMin);
  plan.round_seconds = c;
  for (const TurnBatch* b : in_order(batches, options)) {
    Turn turn{b->model};
    if (c > 0) {
      turn.quota_seconds = c / (playback_rate(*b) * (plan.alpha - S));
      const double least = std::min(std::max(2 * b->switch_seconds, kQuotaSecondsMin), q_max);
      if (options.cover_switch) turn.quota_seconds = std::max(turn.quota_seconds, least);
      plan.round_seconds += turn.quota_seconds;
    }
    plan.turns.push_back(turn);
  }
  return plan;
}

bool ends_early(const EarlyEndView& view, const TurnOptions& options) {
  const bool earned = view.running_spent_seconds >= kEarned * view.running_switch_seconds;
  if (!options.end_early || !(earned || view.waiting_queued)) return false;
  const Duration start = from_seconds(view.waiting_switch_seconds + view.waiting_step_seconds);
  if (view.waiting_slack >= start || view.waiting_slack < Duration(0)) return false;
  // Away: the other's switch and first step, then its own switch back.
  return view.running_slack > start + from_seconds(view.running_switch_seconds);
}

bool RoundMembers::update(std::span<const ModelId> models) {
  CHECK(std::is_sorted(models.begin(), models.end()));
  const size_t left = std::erase_if(members_, [&](const auto& m) {
    const bool leaves = !std::binary_search(models.begin(), models.end(), m.first);
    if (leaves && m.second == round_ && options_.enter_running_round) left_.insert(m.first);
    return leaves;
  });
  bool changed = left > 0;
  const bool running = !members_.empty();  // whoever comes to nobody begins a round
  for (const ModelId model : models) {
    const auto [member, enters] = members_.try_emplace(model, running && !options_.enter_running_round ? round_ : 0);
    if (enters && left_.erase(model) > 0) member->second = round_;
    changed |= enters;
  }
  if (!members_.empty() && std::none_of(members_.begin(), members_.end(), [&](const auto& m) { return m.second < round_; })) ++round_, left_.clear();
  return changed;
}

void RoundMembers::had_turn(ModelId model) {
  const auto member = members_.find(model);
  CHECK(member != members_.end());
  member->second = round_;
}

bool RoundMembers::is_due(ModelId model) const {
  const auto member = members_.find(model);
  return member != members_.end() && member->second < round_;
}

std::string to_string(const RoundPlan& plan) {
  std::string out;
  for (const Turn& turn : plan.turns) absl::StrAppend(&out, turn.model.value, " for ", turn.quota_seconds, " s; ");
  absl::StrAppend(&out, "alpha ", plan.alpha);
  return out;
}

}  // namespace shoal
