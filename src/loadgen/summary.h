// The figures of a run, under the names and by the formulas of vLLM's `bench serve`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "loadgen/record.h"
#include "nlohmann/json.hpp"

namespace shoal {

struct Percentile {
  double rank = 99;     // of 100
  double value = 0;
};
struct Distribution {
  double mean = 0, median = 0, deviation = 0;   // deviation: of the population, as NumPy's std()
  std::vector<Percentile> percentiles;
};
// Of unsorted values; all zero if there are none. Percentiles interpolate linearly, as NumPy does by default.
Distribution describe(std::vector<double> values, const std::vector<double>& ranks);
// REQUIRES: sorted ascending, not empty, rank within [0, 100].
double percentile(const std::vector<double>& sorted, double rank);

// Service level objectives in seconds; absent ones are always met.
struct Goodput {
  std::optional<double> ttft_s, tpot_s, e2el_s;
  bool asked() const { return ttft_s || tpot_s || e2el_s; }
  bool met(const RequestRecord& record) const;
};
// "ttft:500", "tpot:50", "e2el:10000" in milliseconds. InvalidArgument names the item.
StatusOr<Goodput> parse_goodput(const std::vector<std::string>& items);

struct Metric {
  std::string key;      // ttft | tpot | itl | e2el
  std::string title;    // "Time to First Token"
  std::string label;    // "TTFT"
  std::vector<double> values_ms;
};
// All four, over the requests that succeeded.
std::vector<Metric> metrics_of(const std::vector<RequestRecord>& records);

struct Summary {
  double duration_s = 0;
  uint64_t completed = 0, failed = 0, unsent = 0;
  uint64_t interrupted = 0;                 // under way when the run was stopped: neither completed nor failed
  uint64_t input_tokens = 0, output_tokens = 0;
  double request_throughput = 0;            // per second
  std::optional<double> request_goodput;
  double output_throughput = 0, total_token_throughput = 0;
  uint64_t peak_concurrency = 0;
  double peak_output_throughput = 0;        // tokens of the best whole second
  bool counts_are_events = false;           // some answers came without `usage`
  std::map<std::string, uint64_t> failures; // by kind
  std::map<std::string, std::string> failure_samples;
  std::vector<std::pair<Metric, Distribution>> metrics;
};
Summary summarize(const RunResult& run, const Goodput& goodput, const std::vector<double>& ranks);

// How many requests were in flight from each time on, wherever that changed: none is too short to be counted.
std::vector<std::pair<double, uint64_t>> in_flight_steps(const std::vector<RequestRecord>& records);

// Per step of the run, the tokens that came in it.
struct TimeLine {
  double step_s = 1;
  std::vector<double> tokens;
};
TimeLine time_line(const RunResult& run, double step_s);

}  // namespace shoal
