#include "sim/planner.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shoal {
namespace {

// Simulates these devices in this shape, unless that was done; the index of the probe.
StatusOr<size_t> probe(PlanRow& row, const DeviceGroup& devices, const PlanGoal& goal, const SimulateDevices& simulate, const PlanShape& shape = {}) {
  for (size_t i = 0; i < row.probes.size(); ++i) {
    const DeviceGroup& known = row.probes[i].devices.front();
    if (known.count == devices.count && known.tensor == devices.tensor && row.probes[i].shape == shape) return i;
  }
  PlanProbe p{{devices}, shape, false, {}};
  ASSIGN_OR_RETURN(p.outcome, simulate(p.devices, shape));
  p.met = !p.outcome.given_up && p.outcome.attainment.of_tokens() >= goal.attainment;
  row.probes.push_back(std::move(p));
  return row.probes.size() - 1;
}

void settle(PlanRow& row) {
  const auto better = [](const PlanProbe& a, const PlanProbe& b) {
    const uint32_t x = a.devices.front().count, y = b.devices.front().count;
    return x != y ? x < y : a.outcome.attainment.of_tokens() > b.outcome.attainment.of_tokens();
  };
  std::stable_sort(row.probes.begin(), row.probes.end(), better);
  const auto best = std::find_if(row.probes.begin(), row.probes.end(), [](const PlanProbe& p) { return p.met; });
  row.best = best == row.probes.end() ? SIZE_MAX : static_cast<size_t>(best - row.probes.begin());
}

// The shapes that are tried with so many devices.
std::vector<std::pair<DeviceGroup, PlanShape>> other_shapes(const DeviceGroup& devices, uint32_t tensor_max) {
  std::vector<std::pair<DeviceGroup, PlanShape>> shapes;
  const uint32_t nodes = devices.nodes();
  uint32_t last = 0;
  for (const uint32_t eighths : {2, 3, 4}) {
    const uint32_t prefill = (nodes * eighths + 4) / 8;
    if (prefill > last && prefill < nodes) shapes.push_back({devices, {prefill, 0}});
    last = prefill;
  }
  shapes.push_back({devices, {0, 2}});
  DeviceGroup wider = devices;
  wider.tensor *= 2;
  if (wider.tensor <= tensor_max && wider.count % wider.tensor == 0) shapes.push_back({wider, {}});
  return shapes;
}

}  // namespace

double price_per_hour(const std::vector<DeviceGroup>& devices) {
  double price = 0;
  for (const DeviceGroup& group : devices) price += group.hardware->price_per_hour * group.count;
  return price;
}

std::string to_string(const PlanShape& shape, uint32_t nodes) {
  std::string out;
  if (shape.prefill > 0) out = absl::StrCat(shape.prefill, "P+", nodes - shape.prefill, "D");
  if (shape.rooms > 0) absl::StrAppend(&out, out.empty() ? "" : ", ", shape.rooms, shape.rooms == 1 ? " room" : " rooms");
  return out;
}

std::string to_string(const PlanProbe& probe) {
  const std::string shape = to_string(probe.shape, probe.devices.front().nodes());
  return shape.empty() ? to_string(probe.devices) : absl::StrCat(to_string(probe.devices), " as ", shape);
}

double PlanRow::price_per_hour() const { return shoal::price_per_hour(probes.at(best).devices); }

StatusOr<PlanRow> plan_kind(const Hardware& hardware, const PlanGoal& goal, const SimulateDevices& simulate, uint32_t tensor) {
  PlanRow row{{&hardware, tensor, tensor}, {}, SIZE_MAX, ""};
  const auto gangs = [&](uint32_t count) { return DeviceGroup{&hardware, count * tensor, tensor}; };
  const uint32_t most = std::max(goal.devices_max / tensor, 1u);
  uint32_t low = 0, high = 1;  // low fails, high is to be seen
  while (true) {
    const auto at = probe(row, gangs(high), goal, simulate);
    if (!at.ok() && at.status().code() == StatusCode::kInvalidArgument) {
      row.infeasible = std::string(at.status().message());
      return row;
    }
    if (!at.ok()) return at.status();
    if (row.probes[*at].met) break;
    if (high >= most) {
      settle(row);
      row.infeasible = absl::StrFormat("%s keep %.1f %% of the deadlines, not %.1f %%; raise --devices-max, relax --ttft or --tbt, or lower the load",
                                       to_string(gangs(high)), 100 * row.probes.back().outcome.attainment.of_tokens(), 100 * goal.attainment);
      return row;
    }
    low = high;
    high = std::min(2 * high, most);
  }
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    ASSIGN_OR_RETURN(const size_t at, probe(row, gangs(middle), goal, simulate));
    (row.probes[at].met ? high : low) = middle;
  }
  settle(row);
  return row;
}

Status plan_shapes(PlanRow& row, const PlanGoal& goal, const SimulateDevices& simulate) {
  const uint32_t gang = row.one.tensor;
  uint32_t fewest = row.probes.at(row.best).devices.front().count;
  for (uint32_t count = fewest; count > 0 && count + gang >= fewest; count -= gang) {
    for (const auto& [devices, shape] : other_shapes({row.one.hardware, count, gang}, goal.tensor_max)) {
      const auto at = probe(row, devices, goal, simulate, shape);
      if (!at.ok() && at.status().code() == StatusCode::kInvalidArgument) continue;  // a model that does not fit so
      if (!at.ok()) return at.status();
      if (row.probes[*at].met) fewest = std::min(fewest, count);
    }
  }
  settle(row);
  return OkStatus();
}

StatusOr<PlanProbe> plan_mix(const PlanRow& dear, const PlanRow& cheap, const PlanGoal& goal, const SimulateDevices& simulate) {
  const DeviceGroup most = dear.probes.at(dear.best).devices.front();
  const double dear_price = most.hardware->price_per_hour * most.tensor, cheap_price = cheap.one.hardware->price_per_hour * cheap.one.tensor;
  double bound = std::min(dear.price_per_hour(), cheap.feasible() ? cheap.price_per_hour() : 1e18);
  StatusOr<PlanProbe> best = not_found("no mix is cheaper");
  for (uint32_t keep = most.nodes() - 1; keep > 0; keep = keep > 3 ? keep * 2 / 3 : keep - 1) {
    const double left = bound - keep * dear_price;
    const auto count = static_cast<uint32_t>(std::min<double>(left / std::max(cheap_price, 1e-9) - 1e-9, goal.devices_max / cheap.one.tensor));
    if (count == 0) continue;
    PlanProbe p{{{most.hardware, keep * most.tensor, most.tensor}, {cheap.one.hardware, count * cheap.one.tensor, cheap.one.tensor}}, {}, false, {}};
    auto outcome = simulate(p.devices, p.shape);
    if (!outcome.ok()) return best;  // a model that does not fit the cheaper one
    p.outcome = *std::move(outcome);
    p.met = !p.outcome.given_up && p.outcome.attainment.of_tokens() >= goal.attainment;
    if (!p.met) continue;
    bound = price_per_hour(p.devices);
    best = std::move(p);
  }
  return best;
}

std::string out_of_reach(const ModelShape& model, const StepCost& cost, const std::string& device, const SloTarget& slo, uint32_t prompt_tokens,
                         double load_seconds) {
  const double n = prompt_tokens;
  const double prompt = cost.prefill_seconds + cost.prefill_token_seconds * n + cost.prefill_square_seconds * n * n;
  if (prompt > to_seconds(slo.ttft)) {
    return absl::StrFormat("a prompt of %d tokens for %s takes %.2f s on %s alone, more than the %.2f s to the first token; relax --ttft or choose a faster device",
                           prompt_tokens, model.name, prompt, device, to_seconds(slo.ttft));
  }
  const double step = cost.decode_seconds + cost.decode_context_seconds * n + cost.decode_sequence_seconds;
  if (step > to_seconds(slo.tbt)) {
    return absl::StrFormat("a step of %s takes %.1f ms on %s even with one sequence, more than the %.1f ms between tokens; relax --tbt or choose a faster device",
                           model.name, 1000 * step, device, 1000 * to_seconds(slo.tbt));
  }
  if (load_seconds + prompt > to_seconds(slo.ttft)) {
    return absl::StrFormat("loading %s onto %s takes %.2f s, so that a model that is away misses its first token (%.2f s); only resident models keep it",
                           model.name, device, load_seconds, to_seconds(slo.ttft));
  }
  return "";
}

}  // namespace shoal
