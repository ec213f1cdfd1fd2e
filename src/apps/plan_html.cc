// The page of `plan`: prices, attainment over the number of devices, and every choice that was simulated.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/simulate_report.h"
#include "loadgen/html_page.h"

namespace shoal {
namespace {

std::string dollars(double value) { return absl::StrFormat("%.2f", value); }

// Of each kind the fewest devices that meet the goal, and mixes; cheapest first.
std::vector<PlanProbe> winners(const PlanPage& plan) {
  std::vector<PlanProbe> best = plan.mixes;
  for (const PlanRow& row : plan.rows) {
    if (row.feasible()) best.push_back(row.probes[row.best]);
  }
  std::stable_sort(best.begin(), best.end(), [](const PlanProbe& a, const PlanProbe& b) { return price_per_hour(a.devices) < price_per_hour(b.devices); });
  return best;
}

Chart prices_chart(const std::vector<PlanProbe>& best) {
  const double dearest = std::max(price_per_hour(best.back().devices), 1e-9);
  Chart chart{.title = "Price of the cheapest choice of each kind that meets the goal", .x = {.label = "$ per hour", .high = 1.5 * dearest},
              .y = {.label = "devices", .high = static_cast<double>(best.size())}, .height = static_cast<uint32_t>(56 + 30 * best.size()),
              .series = {{"cheapest of all", Mark::kSpans, "good"}, {"cheapest of its kind", Mark::kSpans, "c0"}, {"", Mark::kLabels, "fg"}}};
  for (size_t i = 0; i < best.size(); ++i) {
    const double row = static_cast<double>(best.size() - 1 - i), price = price_per_hour(best[i].devices);
    chart.y.names.insert(chart.y.names.begin(), to_string(best[i]));
    chart.series[i == 0 ? 0 : 1].points.push_back(span_of(0, price, row + 0.18, row + 0.82));
    chart.series[2].points.push_back(dot_of(price, row + 0.5, absl::StrCat("$ ", dollars(price), i == 0 ? " - cheapest" : "")));
  }
  return chart;
}

// A curve per kind; other shapes are dots beside it.
Chart probes_chart(const PlanPage& plan) {
  double most = 2;
  for (const PlanRow& row : plan.rows) {
    for (const PlanProbe& p : row.probes) most = std::max<double>(most, p.devices.front().count);
  }
  Chart chart{.title = "Tokens on time over the number of devices",
              .note = "Dots beside a curve are the same devices used otherwise.",
              .x = {.label = "devices", .low = 0, .high = most * 1.04, .whole = true}, .y = {.label = "tokens on time", .high = 1.03, .share = true}, .height = 320};
  Series met{"meets the goal", Mark::kDots, "good"}, missed{"misses it", Mark::kDots, "bad"};
  met.large = missed.large = true;
  for (const PlanRow& row : plan.rows) {
    Points points;
    for (const PlanProbe& p : row.probes) {
      const double x = p.devices.front().count, y = p.outcome.attainment.of_tokens();
      if (p.shape == PlanShape{} && p.devices.front().tensor == row.one.tensor) points.emplace_back(x, y);
      (p.met ? met : missed).points.push_back(dot_of(x, y, absl::StrCat(to_string(p), ", ", percent(y), p.outcome.given_up ? " when it was given up" : "")));
    }
    std::sort(points.begin(), points.end());
    if (!points.empty()) chart.series.push_back({row.one.hardware->name, Mark::kLine, absl::StrCat("c", chart.series.size()), points_of(points)});
  }
  chart.series.push_back({"the goal, " + percent(plan.goal), Mark::kGoal, "soft", points_of({{0, plan.goal}})});
  chart.series.push_back(missed);
  chart.series.push_back(met);
  return chart;
}

PageTable::Row choice(const PlanProbe& p, const PlanProbe* winner) {
  const Outcome& o = p.outcome;
  const double price = price_per_hour(p.devices);
  const double tokens = o.virtual_seconds > 0 ? static_cast<double>(o.tokens) / o.virtual_seconds : 0;
  const bool best = winner != nullptr && to_string(p) == to_string(*winner) && p.met;
  return {{to_string(p), best ? "cheapest" : p.met ? "yes" : o.given_up ? "given up" : "no", percent(o.attainment.of_tokens()), percent(o.attainment.of_requests()),
           dollars(o.first_token.quantile(0.99)), dollars(price), tokens > 0 ? dollars(price / 3600 / tokens * 1e6) : "-"},
          best ? "best" : ""};
}

PageTable choices(const PlanPage& plan, const PlanProbe* winner) {
  PageTable out{.title = "Everything that was tried", .note = "A request is on time if every token of it is. A choice that could not meet the goal any more was given up early; its figures are of the part that ran.",
            .columns = {"devices", "meets the goal", "tokens on time", "requests on time", "p99 TTFT (s)", "$ per hour", "$ per million tokens"}};
  for (const PlanRow& row : plan.rows) {
    for (const PlanProbe& p : row.probes) out.rows.push_back(choice(p, winner));
    if (!row.feasible()) out.rows.push_back({{row.one.hardware->name, row.infeasible}, "note-row"});
  }
  for (const PlanProbe& mix : plan.mixes) out.rows.push_back(choice(mix, winner));
  return out;
}

}  // namespace

std::string planned_html(const PlanPage& plan) {
  HtmlPage page("Plan, simulated", {plan.asked + ".", "shoal plan: the fewest devices of each kind that meet the goal, found by simulation. No figure here was measured on a device.",
                                   "How to read a choice: 8xH800:tp4 are two gangs of four devices that compute as one; 3P+5D are three devices for prompts and five for "
                                   "answers; 2 rooms are two models at once on each device."});
  if (plan.stopped) page.heading("Stopped before everything had been tried", "The cheapest is of the choices below; others may be cheaper.");
  const std::vector<PlanProbe> best = winners(plan);
  if (best.empty()) {
    page.tiles({{"none", "of the kinds meets the goal", true}});
  } else {
    const PlanProbe& first = best.front();
    page.tiles({{to_string(first), "is the cheapest that meets the goal"}, {"$ " + dollars(price_per_hour(first.devices)), "per hour"},
                {percent(first.outcome.attainment.of_tokens()), "of tokens on time with it"},
                {number(first.outcome.first_token.quantile(0.99)) + " s", "p99 time to first token (TTFT)"}});
    page.charts({prices_chart(best)});
  }
  page.charts({probes_chart(plan)});
  page.table(choices(plan, best.empty() ? nullptr : &best.front()));
  add_settings(plan.settings, page);
  return page.html();
}

}  // namespace shoal
