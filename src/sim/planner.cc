#include "sim/planner.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shoal {
namespace {

// Simulates so many devices in this shape, unless that was done; the index of the probe.
StatusOr<size_t> probe(PlanRow& row, uint32_t count, const PlanGoal& goal, const SimulateDevices& simulate, const PlanShape& shape = {}) {
  for (size_t i = 0; i < row.probes.size(); ++i) {
    if (row.probes[i].devices.front().count == count && row.probes[i].shape == shape) return i;
  }
  PlanProbe p{{{row.hardware, count}}, shape};
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
std::vector<PlanShape> other_shapes(uint32_t devices) {
  std::vector<PlanShape> shapes;
  for (const uint32_t eighths : {2, 3, 4}) {
    const PlanShape shape{(devices * eighths + 4) / 8, 0};
    const bool known = std::find(shapes.begin(), shapes.end(), shape) != shapes.end();
    if (shape.prefill > 0 && shape.prefill < devices && !known) shapes.push_back(shape);
  }
  shapes.push_back({0, 2});
  return shapes;
}

}  // namespace

double price_per_hour(const std::vector<DeviceGroup>& devices) {
  double price = 0;
  for (const DeviceGroup& group : devices) price += group.hardware->price_per_hour * group.count;
  return price;
}

std::string to_string(const std::vector<DeviceGroup>& devices) {
  std::string out;
  for (const DeviceGroup& group : devices) absl::StrAppend(&out, out.empty() ? "" : " + ", group.count, "x", group.hardware->name);
  return out;
}

std::string to_string(const PlanShape& shape, uint32_t devices) {
  std::string out;
  if (shape.prefill > 0) out = absl::StrCat(shape.prefill, "P+", devices - shape.prefill, "D");
  if (shape.rooms > 0) absl::StrAppend(&out, out.empty() ? "" : ", ", shape.rooms, shape.rooms == 1 ? " room" : " rooms");
  return out;
}

std::string to_string(const PlanProbe& probe) {
  const std::string shape = to_string(probe.shape, probe.devices.front().count);
  return shape.empty() ? to_string(probe.devices) : absl::StrCat(to_string(probe.devices), " as ", shape);
}

double PlanRow::price_per_hour() const { return shoal::price_per_hour(probes.at(best).devices); }

StatusOr<PlanRow> plan_kind(const Hardware& hardware, const PlanGoal& goal, const SimulateDevices& simulate) {
  PlanRow row{&hardware};
  uint32_t low = 0, high = 1;  // low fails, high is to be seen
  while (true) {
    const auto at = probe(row, high, goal, simulate);
    if (!at.ok() && at.status().code() == StatusCode::kInvalidArgument) {
      row.infeasible = std::string(at.status().message());
      return row;
    }
    if (!at.ok()) return at.status();
    if (row.probes[*at].met) break;
    if (high >= goal.devices_max) {
      settle(row);
      row.infeasible = absl::StrFormat("%d devices keep %.1f %% of the deadlines, not %.1f %%; raise --devices-max, relax --ttft or --tbt, or lower the load",
                                       high, 100 * row.probes.back().outcome.attainment.of_tokens(), 100 * goal.attainment);
      return row;
    }
    low = high;
    high = std::min(2 * high, goal.devices_max);
  }
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    ASSIGN_OR_RETURN(const size_t at, probe(row, middle, goal, simulate));
    (row.probes[at].met ? high : low) = middle;
  }
  settle(row);
  return row;
}

Status plan_shapes(PlanRow& row, const PlanGoal& goal, const SimulateDevices& simulate) {
  uint32_t fewest = row.probes.at(row.best).devices.front().count;
  for (uint32_t count = fewest; count > 0 && count + 1 >= fewest; --count) {
    for (const PlanShape& shape : other_shapes(count)) {
      const auto at = probe(row, count, goal, simulate, shape);
      if (!at.ok() && at.status().code() == StatusCode::kInvalidArgument) continue;  // a model that does not fit so
      if (!at.ok()) return at.status();
      if (row.probes[*at].met) fewest = std::min(fewest, count);
    }
  }
  settle(row);
  return OkStatus();
}

StatusOr<PlanProbe> plan_mix(const PlanRow& dear, const PlanRow& cheap, const PlanGoal& goal, const SimulateDevices& simulate) {
  const uint32_t most = dear.probes.at(dear.best).devices.front().count;
  double bound = std::min(dear.price_per_hour(), cheap.feasible() ? cheap.price_per_hour() : 1e18);
  StatusOr<PlanProbe> best = not_found("no mix is cheaper");
  for (uint32_t keep = most - 1; keep > 0 && most > 1; keep = keep > 3 ? keep * 2 / 3 : keep - 1) {
    const double left = bound - keep * dear.hardware->price_per_hour;
    const auto count = static_cast<uint32_t>(std::min<double>(left / std::max(cheap.hardware->price_per_hour, 1e-9) - 1e-9, goal.devices_max));
    if (count == 0) continue;
    PlanProbe p{{{dear.hardware, keep}, {cheap.hardware, count}}, {}};
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

std::string out_of_reach(const ModelShape& model, const StepCost& cost, const Hardware& hardware, const SloTarget& slo, uint32_t prompt_tokens,
                         double load_seconds) {
  const double n = prompt_tokens;
  const double prompt = cost.prefill_seconds + cost.prefill_token_seconds * n + cost.prefill_square_seconds * n * n;
  if (prompt > to_seconds(slo.ttft)) {
    return absl::StrFormat("a prompt of %d tokens for %s takes %.2f s on %s alone, more than the %.2f s to the first token; relax --ttft or choose a faster device",
                           prompt_tokens, model.name, prompt, hardware.name, to_seconds(slo.ttft));
  }
  const double step = cost.decode_seconds + cost.decode_context_seconds * n + cost.decode_sequence_seconds;
  if (step > to_seconds(slo.tbt)) {
    return absl::StrFormat("a step of %s takes %.1f ms on %s even with one sequence, more than the %.1f ms between tokens; relax --tbt or choose a faster device",
                           model.name, 1000 * step, hardware.name, 1000 * to_seconds(slo.tbt));
  }
  if (load_seconds + prompt > to_seconds(slo.ttft)) {
    return absl::StrFormat("loading %s onto %s takes %.2f s, so that a model that is away misses its first token (%.2f s); only resident models keep it",
                           model.name, hardware.name, load_seconds, to_seconds(slo.ttft));
  }
  return "";
}

}  // namespace shoal
