// The page of `simulate`: every run as plots.
#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/simulate_report.h"
#include "loadgen/html_page.h"

namespace shoal {
namespace {

constexpr double kGoal = 0.9;  // share on time that counts as kept
constexpr size_t kDevicesDrawnMax = 64, kColours = 12;

std::string colour(size_t i) { return absl::StrCat("c", i % kColours); }
std::string seconds(double value) { return number(value) + " s"; }

// What the runs of one page differ in, a row for each.
PageTable comparison(const std::vector<SimulatedRun>& runs) {
  PageTable out{.title = "The runs beside each other", .note = "Green: the most tokens on time. A request is on time if every token of it is.",
            .columns = {"workload", "policy", "models", "tokens on time", "requests on time", "median TTFT", "p99 TTFT", "loads of weights", "$ of the run"}};
  double best = 0;
  for (const SimulatedRun& run : runs) best = std::max(best, run.outcome.attainment.of_tokens());
  for (const SimulatedRun& run : runs) {
    const Outcome& o = run.outcome;
    out.rows.push_back({{run.workload, run.policy, absl::StrCat(run.models), percent(o.attainment.of_tokens()), percent(o.attainment.of_requests()),
                         seconds(o.first_token.quantile(0.5)), seconds(o.first_token.quantile(0.99)), absl::StrCat(o.loads), absl::StrFormat("%.2f", o.cost())},
                        o.attainment.of_tokens() == best ? "best" : ""});
  }
  return out;
}

// Over what was varied: the models of the runs, one curve per policy.
void attainment_curves(const std::vector<SimulatedRun>& runs, HtmlPage& page) {
  std::map<std::string, Points> of_policy;
  double most = 0, least = 1e9;
  for (const SimulatedRun& run : runs) {
    of_policy[run.policy].emplace_back(run.models, run.outcome.attainment.of_tokens());
    most = std::max(most, static_cast<double>(run.models)), least = std::min(least, static_cast<double>(run.models));
  }
  if (most <= least) return;
  Chart chart{.title = "Tokens on time over the number of models", .x = {.label = "models", .low = least, .high = most, .whole = true},
              .y = {.label = "tokens on time", .share = true}, .height = 280};
  for (auto& [policy, points] : of_policy) {
    std::sort(points.begin(), points.end());
    const std::string hue = colour(chart.series.size() / 2);
    chart.series.push_back({policy, Mark::kLine, hue, points_of(points)});
    chart.series.push_back({policy, Mark::kDots, hue, points_of(points)});
  }
  chart.series.push_back({percent(kGoal), Mark::kGoal, "bad", points_of({{least, kGoal}})});
  page.charts({chart});
}

Axis time_axis(double until) { return {.label = "simulated time (s)", .high = until}; }

Chart queue_chart(const Outcome& o, double until) {
  Points unfinished, unstarted;
  double most = 1;
  for (const TimeSample& s : o.samples) {
    unfinished.emplace_back(s.at, s.unfinished);
    unstarted.emplace_back(s.at, s.unstarted);
    most = std::max<double>(most, s.unfinished);
  }
  return {.title = "Requests that have come and not ended", .x = time_axis(until), .y = {.label = "requests", .high = most * 1.05, .whole = true},
          .series = {{"all", Mark::kArea, "c0", points_of(unfinished)}, {"of these, without a token yet", Mark::kLine, "c1", points_of(unstarted)}}};
}

Chart token_rate(const Outcome& o, double until) {
  Points rate;
  double most = 1;
  for (size_t i = 1; i < o.samples.size(); ++i) {
    const TimeSample &before = o.samples[i - 1], &now = o.samples[i];
    if (now.at <= before.at) continue;
    rate.emplace_back(now.at, static_cast<double>(now.tokens - before.tokens) / (now.at - before.at));
    most = std::max(most, rate.back().second);
  }
  return {.title = "Tokens per second", .x = time_axis(until), .y = {.label = "tokens / s", .high = most * 1.05},
          .series = {{"tokens per second", Mark::kArea, "c2", points_of(rate)}}};
}

// Stretches that no screen tells apart, shorter than `least` seconds, are drawn as one, of the model with the longest of them.
std::vector<TimelineSpan> merged(const std::vector<TimelineSpan>& spans, double least) {
  struct Pending {
    TimelineSpan span;
    double longest = 0;
  };
  std::map<std::pair<uint32_t, TimelineSpan::Kind>, Pending> pending;
  std::vector<TimelineSpan> out;
  for (const TimelineSpan& span : spans) {
    const double length = span.to - span.from;
    const auto [at, first] = pending.try_emplace({span.node, span.kind}, Pending{span, length});
    Pending& p = at->second;
    if (first) continue;
    const bool short_so_far = p.span.to - p.span.from < least;
    if (span.from - p.span.to > least || !(short_so_far || p.span.model == span.model)) {
      out.push_back(p.span);
      p = {span, length};
      continue;
    }
    p.span.to = span.to;
    if (length > p.longest) p.span.model = span.model, p.longest = length;
  }
  for (const auto& [place, p] : pending) out.push_back(p.span);
  return out;
}

std::string model_name(size_t hue, uint32_t models) {
  return models <= kColours ? absl::StrCat("model ", hue) : absl::StrCat("models ", hue, ", ", hue + kColours, " ...");
}

Chart device_chart(const Outcome& o, uint32_t models, double until) {
  const size_t devices = std::min(o.nodes.size(), kDevicesDrawnMax);
  Chart chart{.title = "What each device computed, a colour per model", .note = "The thin line below: loading weights.", .x = time_axis(until),
              .y = {.label = "device", .high = static_cast<double>(devices)}, .height = static_cast<uint32_t>(60 + (devices > 16 ? 14 : 24) * devices)};
  for (size_t row = devices; row-- > 0;) chart.y.names.push_back(absl::StrCat(o.nodes[row].kind, " ", row));
  for (size_t hue = 0; hue < std::min<size_t>(kColours, models); ++hue) chart.series.push_back({model_name(hue, models), Mark::kSpans, colour(hue)});
  chart.series.push_back({"loading weights", Mark::kSpans, "fg"});
  double kept = 0;
  for (const TimelineSpan& span : merged(o.spans, o.virtual_seconds / (devices > 16 ? 600 : 1500))) {
    kept = std::max(kept, span.to);
    if (span.node >= devices) continue;
    const bool load = span.kind == TimelineSpan::Kind::kLoad;
    const double row = static_cast<double>(devices - 1 - span.node);
    Series& series = load ? chart.series.back() : chart.series[span.model.value % kColours];
    series.points.push_back(span_of(span.from, span.to, row + (load ? 0.08 : 0.28), row + (load ? 0.2 : 0.94)));
  }
  if (o.nodes.size() > devices) absl::StrAppend(&chart.note, " The first ", devices, " devices of ", o.nodes.size(), ".");
  if (o.spans.size() >= kSpansKeptMax) absl::StrAppendFormat(&chart.note, " Kept for the first %.0f s; what came after is not drawn.", kept);
  return chart;
}

PageTable cost_table(const Outcome& o) {
  struct Kind {
    uint32_t count = 0;
    double busy = 0, loads = 0, visible = 0, price = 0;
  };
  std::map<std::string, Kind> kinds;
  for (const NodeOutcome& n : o.nodes) {
    Kind& k = kinds[n.kind];
    ++k.count, k.busy += n.busy_seconds, k.loads += n.load_seconds, k.visible += n.visible_load_seconds, k.price = n.price_per_hour;
  }
  PageTable out{.title = "Devices and their cost", .note = "Shares of the simulated time.",
            .columns = {"device", "count", "computing", "loading weights", "loading and not computing", "$ per hour each", "$ of this run"}};
  for (const auto& [name, k] : kinds) {
    const double time = std::max(o.virtual_seconds * k.count, 1e-9);
    out.rows.push_back({{name, absl::StrCat(k.count), percent(k.busy / time), percent(k.loads / time), percent(k.visible / time),
                         absl::StrFormat("%.2f", k.price), absl::StrFormat("%.2f", k.price * time / 3600)}});
  }
  return out;
}

// `until`: to where time is drawn, the same for runs that are compared.
void run_section(const SimulatedRun& run, double until, HtmlPage& page) {
  const Outcome& o = run.outcome;
  const Attainment& a = o.attainment;
  page.heading(absl::StrCat(run.workload, ", ", run.policy, ": ", run.models, " models on ", run.devices),
               o.interrupted ? absl::StrFormat("Stopped after %.0f simulated s: the figures are of these.", o.virtual_seconds) : "");
  page.tiles({{percent(a.of_tokens()), "of all tokens on time", a.of_tokens() < kGoal},
              {percent(a.of_tokens_per_request()), "of a request's tokens on time, in the mean"},
              {percent(a.of_requests()), "of requests with every token on time"},
              {percent(a.of_artifact()), "of the time on time, as the program of the Aegaeon paper counts it", false,
               "Lenient: after a late token the reader begins anew, with all the grace given so far. For comparison with that paper only."},
              {absl::StrCat(o.requests), "requests"},
              {absl::StrCat(o.refused), "requests refused or failed", o.refused > 0},
              {seconds(o.first_token.quantile(0.5)), "median time to first token (TTFT)"},
              {seconds(o.first_token.quantile(0.99)), "p99 time to first token"},
              {number(1000 * o.gap.quantile(0.99)) + " ms", "p99 between tokens (TBT)"},
              {absl::StrCat(o.loads), "loads of weights"},
              {absl::StrFormat("$ %.2f", o.cost()), "for the devices, whole run"}});
  page.charts({queue_chart(o, until)});
  page.charts({token_rate(o, until)});
  page.charts({device_chart(o, run.models, until)});
  page.table(cost_table(o));
}

}  // namespace

std::string simulated_html(const std::vector<SimulatedRun>& runs, const Settings& settings) {
  HtmlPage page("Simulated", {"shoal simulate: the roles and policies of production on devices that are cost models. No figure here was measured on a device."});
  if (runs.size() > 1) page.table(comparison(runs));
  attainment_curves(runs, page);
  for (const SimulatedRun& run : runs) {
    double until = 0;
    for (const SimulatedRun& other : runs) until = std::max(until, other.workload == run.workload ? other.outcome.virtual_seconds : 0);
    run_section(run, until, page);
  }
  add_settings(settings, page);
  return page.html();
}

void add_settings(const Settings& settings, HtmlPage& page) {
  page.heading("Settings", "The flags that were given; the others had their defaults.");
  PageTable table{.columns = {"flag", "value"}, .words = true};
  for (const auto& [name, value] : settings) table.rows.push_back({{name, value}});
  page.table(table);
}

}  // namespace shoal
