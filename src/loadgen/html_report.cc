#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "loadgen/html_page.h"
#include "loadgen/report.h"

namespace shoal {
namespace {

constexpr size_t kBars = 40, kCurvePoints = 240, kDotsMax = 3000, kRowsMax = 300, kStepsMax = 4000;
constexpr double kTimeSteps = 200;
constexpr double kLogFrom = 50;  // a spread over this many times its smallest values is drawn on a logarithmic axis

std::string meaning(const std::string& key) {
  return key == "ttft" ? "From sending a request to its first token." : key == "tpot" ? "After the first token: the time of an answer over its further tokens."
         : key == "itl" ? "Between two events of a stream that held tokens; also called TBT." : "From sending a request to the end of its answer.";
}

std::vector<Tile> tiles_of(const Summary& s) {
  std::vector<Tile> out = {{absl::StrCat(s.completed), "requests completed"}, {absl::StrCat(s.failed), "requests failed", s.failed > 0}};
  if (s.interrupted > 0) out.push_back({absl::StrCat(s.interrupted), "requests under way when the run was stopped"});
  if (s.unsent > 0) out.push_back({absl::StrCat(s.unsent), "requests not sent", true});
  out.push_back({number(s.request_throughput), "requests per second"});
  if (s.request_goodput) out.push_back({number(*s.request_goodput), "requests per second that kept the objectives"});
  out.push_back({number(s.output_throughput), "output tokens per second"});
  out.push_back({number(s.duration_s) + " s", "duration"});
  out.push_back({absl::StrCat(s.peak_concurrency), "requests in flight at most"});
  for (const auto& [metric, d] : s.metrics) {
    if (metric.key != "tpot" && !metric.values_ms.empty()) out.push_back({number(d.median) + " ms", "median " + metric.label, false, meaning(metric.key)});
  }
  return out;
}

std::vector<double> sorted_values(const Metric& metric) {
  std::vector<double> sorted = metric.values_ms;
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

// A column for each metric: this way it fits narrow screens.
PageTable latencies(const Summary& s) {
  PageTable out{.title = "Latency, in milliseconds", .columns = {""}};
  for (const char* name : {"mean", "standard deviation", "least", "p25", "p50, the median", "p75", "p90", "p95", "p99", "p99.9", "most", "samples"}) {
    out.rows.push_back({{name}});
  }
  for (const auto& [metric, d] : s.metrics) {
    const std::vector<double> sorted = sorted_values(metric);
    out.columns.push_back(metric.label);
    std::vector<double> values = {d.mean, d.deviation};
    for (const double rank : {0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0}) values.push_back(sorted.empty() ? 0 : percentile(sorted, rank));
    for (size_t i = 0; i < values.size(); ++i) out.rows[i].cells.push_back(sorted.empty() ? "-" : number(values[i]));
    out.rows.back().cells.push_back(absl::StrCat(sorted.size()));
    absl::StrAppend(&out.note, metric.label, ": ", metric.title, ". ");
  }
  return out;
}

// The axis that values (sorted) are drawn on.
Axis value_axis(const std::vector<double>& sorted, const std::string& label) {
  const double small = std::max(percentile(sorted, 1), 1e-3);
  Axis axis{.label = label + " (ms)", .high = sorted.back() * 1.02};
  if (sorted.back() / small < kLogFrom) return axis;
  axis.logarithmic = true;
  axis.low = small / 1.5;
  axis.label += ", logarithmic";
  return axis;
}

double between(const Axis& axis, double share) {
  return axis.logarithmic ? axis.low * std::pow(axis.high / axis.low, share) : axis.low + (axis.high - axis.low) * share;
}

Chart histogram(const Metric& metric, const std::vector<double>& sorted, const Axis& axis) {
  std::vector<size_t> counts(kBars, 0);
  size_t at = 0;
  for (const double value : sorted) {
    while (at + 1 < kBars && value > between(axis, static_cast<double>(at + 1) / kBars)) ++at;
    ++counts[at];
  }
  Series bars{metric.key == "itl" ? "gaps" : "requests", Mark::kBars};
  for (size_t i = 0; i < kBars; ++i) {
    const double share = static_cast<double>(i) / kBars;
    if (counts[i] > 0) bars.points.push_back(bar_of(between(axis, share), between(axis, share + 0.88 / kBars), static_cast<double>(counts[i])));
  }
  const double most = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  return {.title = absl::StrCat(metric.title, " (", metric.label, ")"), .note = meaning(metric.key), .x = axis,
          .y = {.label = bars.name, .high = most * 1.05, .whole = true}, .series = {bars}};
}

Chart cumulative(const Metric& metric, const std::vector<double>& sorted, const Axis& axis) {
  Points points = {{sorted.front(), 0}};
  for (size_t i = 0; i <= kCurvePoints; ++i) {
    const double share = static_cast<double>(i) / kCurvePoints;
    points.emplace_back(percentile(sorted, 100 * share), share);
  }
  Series marks{"", Mark::kMarks, "c1"};
  for (const double rank : {50.0, 90.0, 99.0}) {
    marks.points.push_back(mark_of(percentile(sorted, rank), absl::StrCat("p", rank, " ", number(percentile(sorted, rank)), " ms")));
  }
  return {.title = metric.label + ", cumulative", .note = "The share that took at most so long.", .x = axis, .y = {.label = "share", .share = true},
          .series = {{"share", Mark::kArea, "c0", points_of(points)}, marks}};
}

void distributions(const Summary& s, HtmlPage& page) {
  page.heading("Distributions");
  for (const auto& [metric, d] : s.metrics) {
    if (metric.values_ms.empty()) continue;
    const std::vector<double> sorted = sorted_values(metric);
    const Axis axis = value_axis(sorted, metric.label);
    page.charts({histogram(metric, sorted, axis), cumulative(metric, sorted, axis)});
  }
}

Axis time_axis(const RunResult& run) { return {.label = "time since the start (s)", .high = run.duration_s}; }

Chart in_flight(const RunResult& run, const Summary& summary) {
  Points steps = {{0, 0}};
  for (const auto& [time, requests] : in_flight_steps(run.records)) steps.emplace_back(time, requests);
  Series line{"requests", Mark::kArea, "c0", points_of(thinned(steps, run.duration_s, kStepsMax))};
  line.steps = true;
  return {.title = "Requests in flight", .x = time_axis(run), .y = {.label = "requests", .high = 1.08 * static_cast<double>(std::max<uint64_t>(1, summary.peak_concurrency)), .whole = true},
          .series = {line}};
}

Chart token_rate(const RunResult& run) {
  const TimeLine line = time_line(run, std::max(run.duration_s / kTimeSteps, 1e-3));
  Points tokens;
  double most = 1;
  for (size_t i = 0; i < line.tokens.size(); ++i) {
    const double start = static_cast<double>(i) * line.step_s;
    const bool partial = start + line.step_s > run.duration_s * (1 + 1e-9);  // the last step is seldom a whole one
    if (!partial || i == 0) tokens.emplace_back(start, line.tokens[i] / line.step_s);
    most = std::max(most, tokens.back().second);
  }
  tokens.emplace_back(run.duration_s, tokens.back().second);
  Series rate{"tokens per second", Mark::kArea, "c2", points_of(tokens)};
  rate.steps = true;
  return {.title = "Output tokens per second", .x = time_axis(run), .y = {.label = "tokens / s", .high = most * 1.08}, .series = {rate}};
}

std::string sampled(size_t every) { return every > 1 ? absl::StrCat("One of every ", every, " requests is drawn.") : ""; }

// TTFT of each request by the time it was sent.
Chart first_tokens(const RunResult& run) {
  double most = 0;
  for (const RequestRecord& r : run.records) most = std::max(most, r.ok() ? r.ttft_s * 1000 : 0);
  Series answered{"answered", Mark::kDots, "c0"}, failed{"failed (drawn at 0)", Mark::kDots, "bad"}, cut{"ended by the interruption (drawn at 0)", Mark::kDots, "soft"};
  const size_t every = run.records.size() / kDotsMax + 1;
  for (size_t i = 0; i < run.records.size(); i += every) {
    const RequestRecord& r = run.records[i];
    if (!r.sent()) continue;
    Series& s = r.ok() ? answered : r.interrupted() ? cut : failed;
    s.points.push_back(dot_of(r.start_s, r.ok() ? r.ttft_s * 1000 : 0, r.ok() ? absl::StrFormat("request %d, %.1f ms", i, r.ttft_s * 1000) : absl::StrCat("request ", i, ", ", r.failure)));
  }
  return {.title = "Time to first token of each request", .note = sampled(every), .x = {.label = "time at which it was sent (s)", .high = run.duration_s},
          .y = {.label = "TTFT (ms)", .high = most * 1.05}, .height = 250, .series = {answered, failed, cut}};
}

Chart waterfall(const RunResult& run) {
  std::vector<const RequestRecord*> sent;
  for (const RequestRecord& r : run.records) {
    if (r.sent()) sent.push_back(&r);
  }
  std::stable_sort(sent.begin(), sent.end(), [](const auto* a, const auto* b) { return a->start_s < b->start_s; });
  const size_t every = std::max<size_t>(1, (sent.size() + kRowsMax - 1) / kRowsMax);
  const size_t rows = (sent.size() + every - 1) / every;
  Series waiting{"waiting for the first token", Mark::kSpans, "c1"}, streaming{"streaming", Mark::kSpans, "c0"}, failed{"failed", Mark::kSpans, "bad"},
      cut{"ended by the interruption", Mark::kSpans, "soft"};
  for (size_t row = 0; row < rows; ++row) {
    const RequestRecord& r = *sent[row * every];
    const double low = (static_cast<double>(row) + 0.1) * static_cast<double>(every), high = low + 0.8 * static_cast<double>(every);
    const double first = r.ttft_s > 0 ? r.ttft_s : r.latency_s, end = r.start_s + r.latency_s;
    Series* lost = r.ok() ? nullptr : r.interrupted() ? &cut : &failed;
    (lost != nullptr ? lost : &waiting)->points.push_back(span_of(r.start_s, r.start_s + first, low, high));
    if (r.latency_s > first) (lost != nullptr ? lost : &streaming)->points.push_back(span_of(r.start_s + first, end, low, high));
  }
  return {.title = "Requests, from sending to the last token", .note = sampled(every), .x = time_axis(run),
          .y = {.label = "requests, by time of sending", .high = static_cast<double>(std::max<size_t>(1, rows * every)), .whole = true},
          .height = static_cast<uint32_t>(std::clamp<size_t>(70 + 6 * rows, 150, 620)), .series = {waiting, streaming, failed, cut}};
}

void failures(const Summary& s, HtmlPage& page) {
  if (s.failures.empty()) return;
  PageTable out{.title = "Failures", .columns = {"kind", "requests", "for example"}, .words = true};
  for (const auto& [kind, count] : s.failures) out.rows.push_back({{kind, absl::StrCat(count), s.failure_samples.at(kind)}});
  page.table(out);
}

// What was asked for, as a sentence.
std::string offered(const ReportFacts& facts) {
  std::string out = absl::StrCat(facts.num_prompts, facts.num_prompts == 1 ? " request, " : " requests, ",
                                 std::isfinite(facts.request_rate) ? absl::StrCat(number(facts.request_rate), " per second") : "all at once");
  if (facts.concurrency_max > 0) absl::StrAppend(&out, ", at most ", facts.concurrency_max, " in flight");
  return out + ".";
}

// The model, or how many a trace asked for.
std::string models_of(const ReportFacts& facts, const RunResult& run) {
  std::set<std::string> models;
  for (const RequestRecord& r : run.records) {
    if (r.sent()) models.insert(r.model);
  }
  return models.size() > 1 ? absl::StrCat(models.size(), " models") : facts.model;
}

}  // namespace

std::string html_report(const ReportFacts& facts, const Summary& summary, const RunResult& run) {
  std::vector<std::string> lede = {absl::StrCat("shoal bench on ", facts.url, ", ", facts.day, ". Asked for: ", offered(facts))};
  if (!facts.prompt_lengths.empty()) lede.push_back(absl::StrCat("Prompt lengths: ", facts.prompt_lengths, "."));
  if (run.interrupted) lede.push_back("The run was stopped early: the figures are of the requests that had ended by then.");
  HtmlPage page("Load test of " + models_of(facts, run), lede);
  page.tiles(tiles_of(summary));
  failures(summary, page);
  page.table(latencies(summary));
  page.heading("Over time");
  page.charts({in_flight(run, summary)});
  page.charts({token_rate(run)});
  if (summary.completed + summary.failed + summary.interrupted > 0) page.charts({first_tokens(run)});
  page.charts({waterfall(run)});
  if (summary.completed > 0) distributions(summary, page);
  PageTable settings{.columns = {"flag", "value"}, .words = true};
  for (const auto& [name, value] : facts.settings) settings.rows.push_back({{name, value}});
  page.heading("Settings");
  page.table(settings);
  return page.html();
}

}  // namespace shoal
