#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "loadgen/html_page.h"
#include "loadgen/report.h"
#include "loadgen/svg_chart.h"

namespace shoal {
namespace {

constexpr double kHalf = 560, kWhole = 1136;
constexpr size_t kBars = 40, kCurvePoints = 240, kDotsMax = 3000, kRowsMax = 300;
constexpr double kTimeSteps = 200;
constexpr double kLogFrom = 50;  // a spread over this many times its smallest values is drawn on a logarithmic axis

std::string tiles(const Summary& s) {
  std::string out = "<div class=\"tiles\">";
  out += tile(absl::StrCat(s.completed), "requests completed") + tile(absl::StrCat(s.failed), "requests failed", s.failed > 0);
  if (s.unsent > 0) out += tile(absl::StrCat(s.unsent), "requests not sent", true);
  out += tile(number(s.request_throughput), "requests / s");
  if (s.request_goodput) out += tile(number(*s.request_goodput), "requests / s within the SLO");
  out += tile(number(s.output_throughput), "output tokens / s") + tile(number(s.duration_s) + " s", "duration");
  out += tile(absl::StrCat(s.peak_concurrency), "most at once");
  for (const auto& [metric, d] : s.metrics) {
    if (metric.key != "tpot") out += tile(number(d.median) + " ms", "median " + metric.label);
  }
  return out + "</div>\n";
}

std::string percentile_table(const Summary& s) {
  static constexpr double kRanks[] = {25, 50, 75, 90, 95, 99, 99.9};
  std::string out = "<table><tr><th>milliseconds</th><th>mean</th><th>std</th><th>min</th>";
  for (const double rank : kRanks) absl::StrAppend(&out, "<th>p", rank, "</th>");
  out += "<th>max</th><th>samples</th></tr>\n";
  for (const auto& [metric, d] : s.metrics) {
    std::vector<double> sorted = metric.values_ms;
    std::sort(sorted.begin(), sorted.end());
    absl::StrAppend(&out, "<tr><td>", metric.label, " &nbsp;", html_escaped(metric.title), "</td>");
    const auto cell = [&](double value) { absl::StrAppend(&out, "<td>", sorted.empty() ? "" : number(value), "</td>"); };
    cell(d.mean);
    cell(d.deviation);
    cell(sorted.empty() ? 0 : sorted.front());
    for (const double rank : kRanks) cell(sorted.empty() ? 0 : percentile(sorted, rank));
    cell(sorted.empty() ? 0 : sorted.back());
    absl::StrAppend(&out, "<td>", sorted.size(), "</td></tr>\n");
  }
  return out + "</table>";
}

// The axis that values (sorted) are drawn on.
AxisSpec value_axis(const std::vector<double>& sorted, const std::string& label) {
  const double small = std::max(percentile(sorted, 1), 1e-3);
  AxisSpec axis{.low = 0, .high = sorted.back() * 1.02, .label = label + " (ms)"};
  if (sorted.back() / small < kLogFrom) return axis;
  axis.logarithmic = true;
  axis.low = small / 1.5;
  axis.label += ", logarithmic";
  return axis;
}

double between(const AxisSpec& axis, double share) {
  return axis.logarithmic ? axis.low * std::pow(axis.high / axis.low, share) : axis.low + (axis.high - axis.low) * share;
}

std::string histogram(const Metric& metric, const std::vector<double>& sorted, const AxisSpec& axis) {
  std::vector<size_t> counts(kBars, 0);
  size_t at = 0;
  for (const double value : sorted) {
    while (at + 1 < kBars && value > between(axis, static_cast<double>(at + 1) / kBars)) ++at;
    ++counts[at];
  }
  const double most = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  SvgChart chart(kHalf, 250, axis, {.low = 0, .high = most * 1.05, .label = metric.key == "itl" ? "gaps" : "requests"}, metric.title + ", histogram");
  for (size_t i = 0; i < kBars; ++i) {
    if (counts[i] > 0) chart.bar(between(axis, static_cast<double>(i) / kBars), between(axis, (static_cast<double>(i) + 0.88) / kBars), static_cast<double>(counts[i]), "bars");
  }
  return chart.svg();
}

std::string cumulative(const Metric& metric, const std::vector<double>& sorted, const AxisSpec& axis) {
  SvgChart chart(kHalf, 250, axis, {.low = 0, .high = 100, .label = "at most this (%)"}, metric.title + ", cumulative distribution");
  Points points = {{sorted.front(), 0}};
  for (size_t i = 0; i <= kCurvePoints; ++i) {
    const double rank = 100.0 * static_cast<double>(i) / kCurvePoints;
    points.emplace_back(percentile(sorted, rank), rank);
  }
  chart.area(points, "under");
  chart.line(points, "curve");
  for (const double rank : {50.0, 90.0, 99.0}) chart.marker(percentile(sorted, rank), absl::StrCat("p", rank, " ", number(percentile(sorted, rank)), " ms"));
  return chart.svg();
}

std::string distributions(const Summary& s) {
  std::string out = "<h2>Distributions</h2>\n";
  for (const auto& [metric, d] : s.metrics) {
    if (metric.values_ms.empty()) continue;
    std::vector<double> sorted = metric.values_ms;
    std::sort(sorted.begin(), sorted.end());
    const AxisSpec axis = value_axis(sorted, metric.label);
    const std::string name = metric.key == "itl" ? "Inter-token latency (ITL, TBT)" : metric.title + " (" + metric.label + ")";
    absl::StrAppend(&out, "<div class=\"pair\">", card(name, histogram(metric, sorted, axis)), card("Cumulative", cumulative(metric, sorted, axis)), "</div>\n");
  }
  return out;
}

// Requests in flight, and tokens per second.
std::string time_lines(const RunResult& run) {
  const TimeLine line = time_line(run, std::max(run.duration_s / kTimeSteps, 1e-3));
  Points flights, tokens;
  double flights_max = 1, tokens_max = 1;
  for (size_t i = 0; i < line.tokens.size(); ++i) {
    const double start = static_cast<double>(i) * line.step_s;
    const bool partial = start + line.step_s > run.duration_s;  // the last step is seldom a whole one
    flights.emplace_back(start, line.in_flight[i]);
    if (!partial || i == 0) tokens.emplace_back(start + line.step_s / 2, line.tokens[i] / line.step_s);
    flights_max = std::max(flights_max, line.in_flight[i]);
    tokens_max = std::max(tokens_max, tokens.back().second);
  }
  const AxisSpec time{.low = 0, .high = run.duration_s, .label = "time since the start (s)"};
  SvgChart in_flight(kWhole, 220, time, {.low = 0, .high = flights_max * 1.08, .label = "requests"}, "requests in flight over time");
  in_flight.area(flights, "under");
  in_flight.line(flights, "curve");
  SvgChart rate(kWhole, 220, time, {.low = 0, .high = tokens_max * 1.08, .label = "tokens / s"}, "output tokens per second over time");
  rate.area(tokens, "under");
  rate.line(tokens, "curve");
  return card("Requests in flight", in_flight.svg()) + card("Output tokens per second", rate.svg());
}

// TTFT of each request by the time it was sent.
std::string first_tokens(const RunResult& run) {
  double most = 0;
  for (const RequestRecord& r : run.records) most = std::max(most, r.ok() ? r.ttft_s * 1000 : 0);
  if (most == 0) return "";
  SvgChart chart(kWhole, 240, {.low = 0, .high = run.duration_s, .label = "time at which the request was sent (s)"},
                 {.low = 0, .high = most * 1.05, .label = "TTFT (ms)"}, "time to first token of each request");
  const size_t every = run.records.size() / kDotsMax + 1;
  for (size_t i = 0; i < run.records.size(); i += every) {
    const RequestRecord& r = run.records[i];
    if (r.ok()) chart.dot(r.start_s, r.ttft_s * 1000, "dot", absl::StrFormat("request %d: %.1f ms", i, r.ttft_s * 1000));
    if (r.sent() && !r.ok()) chart.dot(r.start_s, 0, "dot-bad", absl::StrFormat("request %d: %s", i, r.failure));
  }
  return card("Time to first token by time of sending" + std::string(every > 1 ? absl::StrCat(" (1 of every ", every, " requests)") : ""), chart.svg());
}

std::string waterfall(const RunResult& run) {
  std::vector<const RequestRecord*> sent;
  for (const RequestRecord& r : run.records) {
    if (r.sent()) sent.push_back(&r);
  }
  if (sent.empty()) return "";
  std::stable_sort(sent.begin(), sent.end(), [](const auto* a, const auto* b) { return a->start_s < b->start_s; });
  const size_t every = (sent.size() + kRowsMax - 1) / kRowsMax;
  const size_t rows = (sent.size() + every - 1) / every;
  const double height = std::clamp(70.0 + 6.0 * static_cast<double>(rows), 140.0, 900.0);
  SvgChart chart(kWhole, height, {.low = 0, .high = run.duration_s, .label = "time since the start (s)"},
                 {.low = 0, .high = static_cast<double>(rows * every), .label = "requests, by time of sending"}, "each request from sending to its last token");
  for (size_t row = 0; row < rows; ++row) {
    const RequestRecord& r = *sent[row * every];
    const double low = (static_cast<double>(row) + 0.1) * static_cast<double>(every), high = low + 0.8 * static_cast<double>(every);
    const double first = r.ttft_s > 0 ? r.ttft_s : r.latency_s;
    chart.span(r.start_s, r.start_s + first, low, high, r.ok() ? "wait" : "lost");
    if (r.latency_s > first) chart.span(r.start_s + first, r.start_s + r.latency_s, low, high, r.ok() ? "stream" : "lost");
  }
  return card("Requests" + std::string(every > 1 ? absl::StrCat(" (1 of every ", every, ")") : ""),
              "<p><i class=\"key\" style=\"background:var(--b)\"></i>waiting for the first token<i class=\"key\" style=\"background:var(--a)\">"
              "</i>streaming<i class=\"key\" style=\"background:var(--bad)\"></i>failed</p>" + chart.svg());
}

std::string failure_table(const Summary& s) {
  if (s.failures.empty()) return "";
  std::string out = "<h2>Failures</h2><div class=\"card\"><table class=\"words\"><tr><th>kind</th><th>requests</th><th>for example</th></tr>";
  for (const auto& [kind, count] : s.failures) {
    absl::StrAppend(&out, "<tr><td>", html_escaped(kind), "</td><td>", count, "</td><td>", html_escaped(s.failure_samples.at(kind)), "</td></tr>");
  }
  return out + "</table></div>\n";
}

std::string settings_table(const ReportFacts& facts) {
  std::string out = "<h2>Settings</h2><div class=\"card\"><table class=\"words\">";
  for (const auto& [name, value] : facts.settings) absl::StrAppend(&out, "<tr><td>", html_escaped(name), "</td><td>", html_escaped(value), "</td></tr>");
  return out + "</table></div>\n";
}

}  // namespace

std::string html_report(const ReportFacts& facts, const Summary& summary, const RunResult& run) {
  std::string out;
  absl::StrAppend(&out, "<h1>", html_escaped(facts.model), "</h1><p>", html_escaped(facts.url), " &middot; ", facts.date, " &middot; shoal bench",
                  run.interrupted ? " &middot; <b>stopped early</b>" : "", "</p>\n", tiles(summary));
  absl::StrAppend(&out, card("Latency", percentile_table(summary)), failure_table(summary), "<h2>Over time</h2>\n", time_lines(run), first_tokens(run));
  absl::StrAppend(&out, waterfall(run), distributions(summary), settings_table(facts));
  return html_page(facts.model + ", " + facts.date, out);
}

}  // namespace shoal
