#include "loadgen/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/numbers.h"

namespace shoal {
namespace {

constexpr double kMsPerS = 1000;
constexpr size_t kTimeLineStepsMax = 1'000'000;

size_t step_of(double time_s, const TimeLine& line) {
  const double step = std::clamp(time_s / line.step_s, 0.0, static_cast<double>(line.tokens.size() - 1));
  return static_cast<size_t>(step);
}

void add_tokens(const RequestRecord& record, TimeLine& line) {
  if (record.output_tokens == 0) return;
  // Events may hold several tokens each: they share the request's tokens.
  const double per_event = static_cast<double>(record.output_tokens) / static_cast<double>(record.gaps_s.size() + 1);
  double time = record.start_s + record.ttft_s;
  line.tokens[step_of(time, line)] += per_event;
  for (const float gap : record.gaps_s) line.tokens[step_of(time += gap, line)] += per_event;
}

}  // namespace

double percentile(const std::vector<double>& sorted, double rank) {
  const double at = rank / 100 * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

Distribution describe(std::vector<double> values, const std::vector<double>& ranks) {
  Distribution out;
  for (const double rank : ranks) out.percentiles.push_back({rank, 0});
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  out.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - out.mean) * (value - out.mean);
  out.deviation = std::sqrt(squares / count);
  out.median = percentile(values, 50);
  for (Percentile& p : out.percentiles) p.value = percentile(values, p.rank);
  return out;
}

bool Goodput::met(const RequestRecord& record) const {
  return record.ok() && (!ttft_s || record.ttft_s <= *ttft_s) && (!tpot_s || record.tpot_s() <= *tpot_s) &&
         (!e2el_s || record.latency_s <= *e2el_s);
}

StatusOr<Goodput> parse_goodput(const std::vector<std::string>& items) {
  Goodput goodput;
  for (const std::string& item : items) {
    const size_t colon = item.find(':');
    double ms = 0;
    const std::string name = item.substr(0, colon);
    std::optional<double>* slot = name == "ttft" ? &goodput.ttft_s : name == "tpot" ? &goodput.tpot_s : name == "e2el" ? &goodput.e2el_s : nullptr;
    if (slot == nullptr) return invalid_argument("--goodput ", item, ": write ttft:MS, tpot:MS or e2el:MS");
    if (colon == std::string::npos || !absl::SimpleAtod(item.substr(colon + 1), &ms) || !(ms >= 0) || std::isinf(ms)) {
      return invalid_argument("--goodput ", item, ": '", item.substr(std::min(item.size(), name.size() + 1)), "' is not a number of milliseconds; write ttft:MS, tpot:MS or e2el:MS");
    }
    *slot = ms / kMsPerS;
  }
  return goodput;
}

std::vector<Metric> metrics_of(const std::vector<RequestRecord>& records) {
  std::vector<Metric> metrics = {{"ttft", "Time to First Token", "TTFT", {}},
                                 {"tpot", "Time per Output Token (excl. 1st token)", "TPOT", {}},
                                 {"itl", "Inter-token Latency", "ITL", {}},
                                 {"e2el", "End-to-end Latency", "E2EL", {}}};
  for (const RequestRecord& record : records) {
    if (!record.ok()) continue;
    metrics[0].values_ms.push_back(record.ttft_s * kMsPerS);
    if (record.output_tokens > 1) metrics[1].values_ms.push_back(record.tpot_s() * kMsPerS);
    for (const float gap : record.gaps_s) metrics[2].values_ms.push_back(gap * kMsPerS);
    metrics[3].values_ms.push_back(record.latency_s * kMsPerS);
  }
  return metrics;
}

Summary summarize(const RunResult& run, const Goodput& goodput, const std::vector<double>& ranks) {
  Summary out;
  out.duration_s = run.duration_s;
  uint64_t good = 0;
  for (const RequestRecord& record : run.records) {
    if (!record.sent()) {
      ++out.unsent;
    } else if (record.ok()) {
      ++out.completed;
      out.input_tokens += record.input_tokens;
      out.output_tokens += record.output_tokens;
      out.counts_are_events |= !record.has_usage;
    } else if (record.interrupted()) {
      ++out.interrupted;
    } else {
      ++out.failed;
      ++out.failures[record.failure];
      out.failure_samples.emplace(record.failure, record.message);
    }
    good += goodput.met(record) ? 1 : 0;
  }
  const double per_second = run.duration_s > 0 ? 1 / run.duration_s : 0;
  out.request_throughput = static_cast<double>(out.completed) * per_second;
  if (goodput.asked()) out.request_goodput = static_cast<double>(good) * per_second;
  out.output_throughput = static_cast<double>(out.output_tokens) * per_second;
  out.total_token_throughput = static_cast<double>(out.input_tokens + out.output_tokens) * per_second;
  for (const auto& [time, requests] : in_flight_steps(run.records)) out.peak_concurrency = std::max(out.peak_concurrency, requests);
  const TimeLine seconds = time_line(run, 1);
  if (run.duration_s < 1) out.peak_output_throughput = out.output_throughput;
  for (const double tokens : seconds.tokens) out.peak_output_throughput = std::max(out.peak_output_throughput, tokens);
  for (Metric& metric : metrics_of(run.records)) {
    Distribution distribution = describe(metric.values_ms, ranks);
    out.metrics.emplace_back(std::move(metric), std::move(distribution));
  }
  return out;
}

std::vector<std::pair<double, uint64_t>> in_flight_steps(const std::vector<RequestRecord>& records) {
  std::vector<std::pair<double, int>> changes;  // at one time, ends before starts: a place that is handed on is one place
  for (const RequestRecord& record : records) {
    if (!record.sent()) continue;
    changes.emplace_back(record.start_s, 1);
    changes.emplace_back(record.start_s + std::max(record.latency_s, 1e-9), -1);
  }
  std::sort(changes.begin(), changes.end());
  std::vector<std::pair<double, uint64_t>> steps;
  int64_t now = 0;
  for (const auto& [time, change] : changes) {
    now += change;
    if (!steps.empty() && steps.back().first == time) steps.pop_back();
    steps.emplace_back(time, static_cast<uint64_t>(now));
  }
  return steps;
}

TimeLine time_line(const RunResult& run, double step_s) {
  TimeLine line{.step_s = std::max(step_s, run.duration_s / kTimeLineStepsMax)};
  const auto steps = static_cast<size_t>(run.duration_s / line.step_s) + 1;
  line.tokens.assign(steps, 0);
  for (const RequestRecord& record : run.records) {
    if (!record.sent()) continue;
    add_tokens(record, line);
  }
  return line;
}

}  // namespace shoal
