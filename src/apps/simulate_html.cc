// The page of `simulate`: every run as plots.
#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/simulate_report.h"
#include "loadgen/html_page.h"
#include "loadgen/svg_chart.h"

namespace shoal {
namespace {

constexpr double kWhole = 1136;
constexpr char kCurveStyle[] =
    "<style>.curve3{fill:none;stroke:#3a9a5b;stroke-width:2}.curve4{fill:none;stroke:#9a4fb5;stroke-width:2}"
    ".goal{stroke:var(--bad);stroke-dasharray:5 4;fill:none}</style>\n";
constexpr double kGoal = 0.9;  // share on time that counts as kept
constexpr size_t kDevicesDrawnMax = 64;
const char* const kCurves[] = {"curve", "curve2", "curve3", "curve4"};

std::string share(double value) { return absl::StrFormat("%.3f", value); }

// A short stretch of a curve, for a key.
std::string key_of(const char* css, const std::string& name) {
  return absl::StrCat("<svg style=\"width:26px;height:10px;display:inline-block;margin:0 5px 0 12px\"><path class=\"", css, "\" d=\"M0 5H26\"/></svg>", html_escaped(name));
}

// Of the four figures, over what was varied: the models of the runs, one curve per policy.
std::string attainment_curves(const std::vector<SimulatedRun>& runs) {
  std::map<std::string, Points> of_policy;
  double most = 0, least = 1e9;
  for (const SimulatedRun& run : runs) {
    of_policy[run.policy].emplace_back(run.models, run.outcome.attainment.of_tokens());
    most = std::max(most, static_cast<double>(run.models)), least = std::min(least, static_cast<double>(run.models));
  }
  if (most <= least) return "";
  SvgChart chart(kWhole, 280, {.low = least, .high = most, .label = "models"}, {.low = 0, .high = 1, .label = "share of tokens on time"},
                 "attainment over the number of models");
  std::string key;
  size_t next = 0;
  for (auto& [policy, points] : of_policy) {
    std::sort(points.begin(), points.end());
    const char* css = kCurves[next++ % std::size(kCurves)];
    chart.line(points, css);
    for (const auto& [x, y] : points) chart.dot(x, y, "dot", absl::StrFormat("%s, %.0f models: %.3f", policy, x, y));
    key += key_of(css, policy);
  }
  chart.line({{least, kGoal}, {most, kGoal}}, "goal");
  return card("Tokens on time, pooled (simulated)", key + chart.svg());
}

std::string queue_chart(const Outcome& o) {
  Points unfinished, unstarted;
  double most = 1;
  for (const TimeSample& s : o.samples) {
    unfinished.emplace_back(s.at, s.unfinished);
    unstarted.emplace_back(s.at, s.unstarted);
    most = std::max<double>(most, s.unfinished);
  }
  SvgChart chart(kWhole, 200, {.low = 0, .high = o.virtual_seconds, .label = "simulated time (s)"}, {.low = 0, .high = most * 1.05, .label = "requests"},
                 "requests over time");
  chart.area(unfinished, "under");
  chart.line(unfinished, "curve");
  chart.line(unstarted, "curve2");
  return card("Requests under way, and those without a token yet (second line)", chart.svg());
}

std::string attainment_over_time(const Outcome& o) {
  Points rate;
  double most = 1;
  for (size_t i = 1; i < o.samples.size(); ++i) {
    const double seconds = o.samples[i].at - o.samples[i - 1].at;
    if (seconds <= 0) continue;
    rate.emplace_back(o.samples[i].at, static_cast<double>(o.samples[i].tokens - o.samples[i - 1].tokens) / seconds);
    most = std::max(most, rate.back().second);
  }
  SvgChart chart(kWhole, 200, {.low = 0, .high = o.virtual_seconds, .label = "simulated time (s)"}, {.low = 0, .high = most * 1.05, .label = "tokens / s"},
                 "tokens per second over time");
  chart.area(rate, "under");
  chart.line(rate, "curve");
  return card("Tokens per second", chart.svg());
}

std::string device_chart(const Outcome& o) {
  const size_t devices = std::min(o.nodes.size(), kDevicesDrawnMax);
  double until = o.virtual_seconds;
  if (!o.spans.empty()) until = std::min(until, o.spans.back().to);
  SvgChart chart(kWhole, 90 + 14 * static_cast<double>(devices), {.low = 0, .high = until, .label = "simulated time (s)"},
                 {.low = 0, .high = static_cast<double>(devices), .label = "device"}, "what each device did");
  for (const DeviceSpan& span : o.spans) {
    if (span.node >= devices || span.from >= until) continue;
    const bool load = span.kind == DeviceSpan::Kind::kLoad;
    const double row = static_cast<double>(devices - 1 - span.node);
    const std::string colour = absl::StrCat("hue", span.model.value % 12);
    chart.span(span.from, span.to, row + (load ? 0.08 : 0.34), row + (load ? 0.3 : 0.92), load ? "wait" : colour.c_str());
  }
  std::string cut = o.nodes.size() > devices ? absl::StrCat(" (the first ", devices, ")") : "";
  if (until < 0.99 * o.virtual_seconds) cut += absl::StrFormat(" (of the first %.0f s)", until);
  return card("Devices: computing, a colour per model; below it loads of weights" + cut, chart.svg());
}

std::string cost_table(const Outcome& o) {
  struct Kind {
    uint32_t count = 0;
    double busy = 0, loads = 0, visible = 0, price = 0;
  };
  std::map<std::string, Kind> kinds;
  for (const NodeOutcome& n : o.nodes) {
    Kind& k = kinds[n.kind];
    ++k.count, k.busy += n.busy_seconds, k.loads += n.load_seconds, k.visible += n.visible_load_seconds, k.price = n.price_per_hour;
  }
  std::string out = "<table><tr><th>device</th><th>count</th><th>computing</th><th>loading</th><th>of it, nothing computed</th><th>$ / hour each</th>"
                    "<th>$ of this run</th></tr>\n";
  for (const auto& [name, k] : kinds) {
    const double time = std::max(o.virtual_seconds * k.count, 1e-9);
    absl::StrAppendFormat(&out, "<tr><td>%s</td><td>%d</td><td>%.1f %%</td><td>%.1f %%</td><td>%.1f %%</td><td>%.2f</td><td>%.2f</td></tr>\n", name, k.count,
                          100 * k.busy / time, 100 * k.loads / time, 100 * k.visible / time, k.price, k.price * time / 3600);
  }
  return card("Devices and cost", out + "</table>");
}

std::string run_section(const SimulatedRun& run) {
  const Outcome& o = run.outcome;
  const Attainment& a = o.attainment;
  std::string out = absl::StrCat("<h2>", html_escaped(run.workload), ", ", html_escaped(run.policy), ": ", run.models, " models on ", html_escaped(run.devices),
                                 "</h2>\n<div class=\"tiles\">");
  out += tile(share(a.of_tokens()), "tokens on time", a.of_tokens() < kGoal) + tile(share(a.of_tokens_per_request()), "the same, mean per request") +
         tile(share(a.of_requests()), "requests with every token on time") + tile(share(a.of_artifact()), "the artifact's figure");
  out += tile(absl::StrCat(o.requests), "requests") + tile(absl::StrCat(o.refused), "refused or failed", o.refused > 0);
  out += tile(number(o.first_token.quantile(0.5)) + " s", "median TTFT") + tile(number(o.first_token.quantile(0.99)) + " s", "p99 TTFT") +
         tile(number(1000 * o.gap.quantile(0.99)) + " ms", "p99 between tokens") + tile(absl::StrCat(o.loads), "loads of weights") +
         tile(absl::StrFormat("$ %.2f", o.cost()), "devices, whole run");
  return out + "</div>\n" + queue_chart(o) + attainment_over_time(o) + device_chart(o) + cost_table(o);
}

}  // namespace

namespace {

// Attainment over the number of devices, a curve per kind; other shapes are dots beside it.
std::string probes_chart(const std::vector<PlanRow>& rows, double goal) {
  double most = 2;
  for (const PlanRow& row : rows) {
    for (const PlanProbe& p : row.probes) most = std::max<double>(most, p.devices.front().count);
  }
  SvgChart chart(kWhole, 320, {.low = 1, .high = most, .label = "devices"}, {.low = 0, .high = 1, .label = "share of tokens on time"},
                 "attainment over the number of devices");
  std::string key;
  size_t next = 0;
  for (const PlanRow& row : rows) {
    Points points;
    for (const PlanProbe& p : row.probes) {
      const double x = p.devices.front().count, y = p.outcome.attainment.of_tokens();
      if (p.shape == PlanShape{} && p.devices.front().tensor == row.one.tensor) points.emplace_back(x, y);
      chart.dot(x, y, p.met ? "dot" : "dot-bad", absl::StrFormat("%s: %.3f", to_string(p), y));
    }
    const char* css = kCurves[next++ % std::size(kCurves)];
    chart.line(points, css);
    if (!points.empty()) key += key_of(css, row.one.hardware->name);
  }
  chart.line({{1, goal}, {most, goal}}, "goal");
  return card("Tokens on time over the number of devices (dots beside a curve: other partitions, rooms and gangs; red: the goal is missed)", key + chart.svg());
}

// What the best of each kind costs, cheapest first.
std::string prices_chart(std::vector<PlanProbe> best) {
  std::sort(best.begin(), best.end(), [](const PlanProbe& a, const PlanProbe& b) { return price_per_hour(a.devices) < price_per_hour(b.devices); });
  std::string bars = "<table>";
  const double dearest = best.empty() ? 1 : std::max(price_per_hour(best.back().devices), 1e-9);
  for (const PlanProbe& p : best) {
    const double price = price_per_hour(p.devices);
    absl::StrAppendFormat(&bars, "<tr><td style=\"white-space:nowrap\">%s</td><td style=\"width:70%%\"><div style=\"background:#4477aa;height:14px;width:%.1f%%\"></div></td>"
                          "<td>%.2f $ / hour</td></tr>\n", html_escaped(to_string(p)), 100 * price / dearest, price);
  }
  return best.empty() ? "" : card("Price of the cheapest that meet the goal", bars + "</table>");
}

std::string plan_row(const PlanProbe& p, bool best) {
  const double price = price_per_hour(p.devices);
  const double tokens = p.outcome.virtual_seconds > 0 ? static_cast<double>(p.outcome.tokens) / p.outcome.virtual_seconds : 0;
  return absl::StrFormat("<tr><td>%s%s%s</td><td>%s</td><td>%.3f</td><td>%.3f</td><td>%.2f</td><td>%.2f</td><td>%s</td></tr>\n", best ? "<b>" : "", html_escaped(to_string(p)),
                         best ? "</b>" : "", p.met ? "yes" : p.outcome.given_up ? "given up" : "no", p.outcome.attainment.of_tokens(), p.outcome.attainment.of_requests(),
                         p.outcome.first_token.quantile(0.99), price, tokens > 0 ? absl::StrFormat("%.2f", price / 3600 / tokens * 1e6) : "");
}

}  // namespace

std::string planned_html(const std::vector<PlanRow>& rows, const std::vector<PlanProbe>& mixes, double goal) {
  std::string table = "<table><tr><th>devices</th><th>meets the goal</th><th>tokens on time</th><th>requests with every token</th><th>p99 TTFT (s)</th><th>$ / hour</th>"
                      "<th>$ / M tokens</th></tr>\n";
  std::vector<PlanProbe> best = mixes;
  for (const PlanRow& row : rows) {
    if (!row.feasible()) absl::StrAppend(&table, "<tr><td>", row.one.hardware->name, "</td><td colspan=\"6\">", html_escaped(row.infeasible), "</td></tr>\n");
    if (row.feasible()) best.push_back(row.probes[row.best]);
    for (size_t i = 0; i < row.probes.size(); ++i) table += plan_row(row.probes[i], i == row.best);
  }
  for (const PlanProbe& mix : mixes) table += plan_row(mix, false);
  return html_page("shoal plan", absl::StrCat(kCurveStyle, "<h1>Plan, simulated</h1><p>The fewest devices of each kind that meet the goal (dashed). Runs that "
                                              "could not meet it any more were given up early; their figure is of the part that ran.</p>",
                                              prices_chart(best), probes_chart(rows, goal), card("Everything that was tried", table + "</table>")));
}

std::string simulated_html(const std::vector<SimulatedRun>& runs, const std::vector<std::pair<std::string, std::string>>& settings) {
  std::string body = absl::StrCat(kCurveStyle, "<style>");
  for (int hue = 0; hue < 12; ++hue) absl::StrAppendFormat(&body, ".hue%d{fill:hsl(%d 60%% 52%%)}", hue, hue * 30);
  body += "</style><h1>Simulated</h1><p>shoal simulate: the production roles and policies on devices by cost model. No figure here was measured on a device.</p>\n";
  body += attainment_curves(runs);
  for (const SimulatedRun& run : runs) body += run_section(run);
  std::string table = "<table class=\"words\"><tr><th>flag</th><th>value</th></tr>\n";
  for (const auto& [name, value] : settings) absl::StrAppend(&table, "<tr><td>", html_escaped(name), "</td><td>", html_escaped(value), "</td></tr>\n");
  return html_page("shoal simulate", body + card("Settings", table + "</table>"));
}

}  // namespace shoal
