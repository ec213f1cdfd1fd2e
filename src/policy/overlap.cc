#include "policy/overlap.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace shoal {
namespace {

double wire_seconds(const LaneTimes& t, Wire wire) { return wire == Wire::kFullDuplex ? std::max(t.dispatch, t.combine) : t.dispatch + t.combine; }
double latency(const LaneTimes& t) { return t.attention + t.dispatch + t.experts + t.combine; }

LanePlan planned(const LaneTimes& t, uint32_t lanes, Wire wire) {
  LanePlan plan{lanes, layer_seconds(t, lanes, wire), attention_busy(t, lanes, wire), bubble_free(t, lanes, wire), "latency"};
  if (plan.layer_s <= lanes * t.attention) plan.limit = "attention";
  else if (plan.layer_s <= lanes * t.experts) plan.limit = "experts";
  else if (plan.layer_s <= lanes * wire_seconds(t, wire)) plan.limit = "wire";
  return plan;
}

}  // namespace

double layer_seconds(const LaneTimes& t, uint32_t lanes, Wire wire) { return std::max({lanes * t.attention, lanes * t.experts, lanes * wire_seconds(t, wire), latency(t)}); }

double attention_busy(const LaneTimes& t, uint32_t lanes, Wire wire) {
  const double period = layer_seconds(t, lanes, wire);
  return period > 0 ? lanes * t.attention / period : 1;
}

bool bubble_free(const LaneTimes& t, uint32_t lanes, Wire wire) {
  return lanes * t.attention >= latency(t) && t.attention >= t.experts && t.attention >= wire_seconds(t, wire);
}

LanePlan plan_lanes(std::span<const LaneTimes> times, Wire wire, double worth) {
  CHECK(!times.empty());
  const auto most = static_cast<uint32_t>(std::min<size_t>(times.size(), kLanesMax));
  double best = layer_seconds(times[0], 1, wire);
  for (uint32_t m = 2; m <= most; ++m) best = std::min(best, layer_seconds(times[m - 1], m, wire));
  uint32_t lanes = 1;
  while (layer_seconds(times[lanes - 1], lanes, wire) > best * (1 + worth)) ++lanes;
  return planned(times[lanes - 1], lanes, wire);
}

// m of the same lane are m times the batch: what counts is a layer's time per lane.
LanePlan plan_lanes(const LaneTimes& times, Wire wire, double worth) {
  const auto per_lane = [&](uint32_t m) { return layer_seconds(times, m, wire) / m; };
  double least = per_lane(1);
  for (uint32_t m = 2; m <= kLanesMax; ++m) least = std::min(least, per_lane(m));
  uint32_t lanes = 1;
  while (per_lane(lanes) > least * (1 + worth)) ++lanes;
  return planned(times, lanes, wire);
}

LaneBudget lane_budget(double token_s, uint32_t layers, uint32_t lanes, double accepted) {
  const double layer = token_s * accepted / layers;
  return {layer, layer / lanes};
}

double split_rate(const SplitChoice& c, const SplitGoal& goal) {
  return c.attention * c.lanes * static_cast<double>(c.batch) * goal.accepted / (goal.layers * layer_seconds(c.times, c.lanes, goal.wire));
}

bool split_in_time(const SplitChoice& c, const SplitGoal& goal) {
  return layer_seconds(c.times, c.lanes, goal.wire) <= lane_budget(goal.token_s, goal.layers, c.lanes, goal.accepted).layer_s;
}

StatusOr<size_t> plan_split(std::span<const SplitChoice> choices, const SplitGoal& goal) {
  size_t best = SIZE_MAX, quickest = SIZE_MAX;
  const auto per_cost = [&](size_t i) { return split_rate(choices[i], goal) / choices[i].cost_per_hour; };
  const auto seconds = [&](size_t i) { return layer_seconds(choices[i].times, choices[i].lanes, goal.wire) * goal.layers / goal.accepted; };
  for (size_t i = 0; i < choices.size(); ++i) {
    if (quickest == SIZE_MAX || seconds(i) < seconds(quickest)) quickest = i;
    if (!split_in_time(choices[i], goal)) continue;
    const bool better = best == SIZE_MAX || per_cost(i) > per_cost(best) || (per_cost(i) == per_cost(best) && choices[i].cost_per_hour < choices[best].cost_per_hour);
    if (better) best = i;
  }
  if (best != SIZE_MAX) return best;
  if (quickest == SIZE_MAX) return not_found("no choice of attention and expert devices was given");
  return not_found("no choice gives a token within ", goal.token_s * 1e3, " ms; the quickest takes ", seconds(quickest) * 1e3, " ms with ", choices[quickest].attention, " attention and ", choices[quickest].experts, " expert devices");
}

std::vector<SideStep> server_order(uint32_t lanes, uint32_t layers) {
  const uint32_t stages = lanes >= 3 ? 4 : 3;
  std::vector<SideStep> out;
  for (uint32_t column = 0; column < stages * layers + lanes; ++column) {
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      if (column < lane || column - lane >= stages * layers) continue;
      const uint32_t at = column - lane;
      out.push_back({column, lane, at / stages, static_cast<SideStage>(at % stages)});
    }
  }
  return out;
}

std::string wire_order(uint32_t lanes, uint32_t layers) {
  std::string out;
  for (const SideStep& step : server_order(lanes, layers)) {
    if (step.stage != SideStage::kDispatch && step.stage != SideStage::kCombine) continue;
    absl::StrAppend(&out, out.empty() ? "" : " ", step.stage == SideStage::kDispatch ? "D" : "C", step.lane + 1, std::string(step.layer, '\''));
  }
  return out;
}

std::vector<ClientStep> client_order(uint32_t lanes, uint32_t layers) {
  std::vector<ClientStep> out;
  for (uint32_t layer = 0; layer <= layers; ++layer) {
    for (uint32_t lane = 0; lane < lanes; ++lane) out.push_back({lane, layer});
  }
  return out;
}

std::vector<uint32_t> even_lanes(std::span<const double> work, uint32_t lanes) {
  CHECK_GT(lanes, 0u);
  std::vector<size_t> order(work.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return work[a] > work[b]; });
  std::vector<double> sums(lanes, 0.0);
  std::vector<uint32_t> out(work.size());
  for (const size_t i : order) {
    const auto least = std::min_element(sums.begin(), sums.end()) - sums.begin();
    out[i] = static_cast<uint32_t>(least);
    sums[static_cast<size_t>(least)] += work[i];
  }
  return out;
}

}  // namespace shoal
