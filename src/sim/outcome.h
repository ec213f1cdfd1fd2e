// What came of a simulation: counts, attainment, distributions in constant memory, and time lines if they were asked for.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "policy/slo.h"

namespace shoal {

// Counts in buckets that are 2 % wide, from a microsecond to a day: quantiles of any number of values in constant memory.
class Histogram {
 public:
  void add(double seconds, uint64_t count = 1);
  void merge(const Histogram& other);
  uint64_t count() const { return count_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  double max() const { return max_; }
  // Within 1 % of the exact one; 0 if there is none. REQUIRES: 0 <= share <= 1.
  double quantile(double share) const;

 private:
  static constexpr size_t kBuckets = 1280;
  std::array<uint64_t, kBuckets> buckets_{};
  uint64_t count_ = 0;
  double sum_ = 0, max_ = 0;
};

struct NodeOutcome {
  std::string kind;
  double busy_seconds = 0;  // computing
  double load_seconds = 0;  // loading weights, also beside a step
  double visible_load_seconds = 0;  // loading, and not computing
  uint64_t steps = 0, tokens = 0, loads = 0, copies = 0;
  double price_per_hour = 0;
};

struct ModelOutcome {
  Attainment attainment;
  Histogram first_token;
  double silent_seconds_max = 0;  // some of its requests under way, and no token for any of them
};

// The state at an instant.
struct TimeSample {
  double at = 0;
  uint32_t unfinished = 0;      // accepted by the router, not ended
  uint32_t unstarted = 0;       // of these, without a token
  uint32_t computing = 0;       // devices
  uint32_t loading = 0;
  uint64_t tokens = 0;          // delivered so far
  uint64_t tokens_on_time = 0;
};

// A stretch of a device's time.
struct TimelineSpan {
  enum class Kind : uint8_t { kCompute, kLoad } kind = Kind::kCompute;
  uint32_t node = 0;
  ModelId model;
  double from = 0, to = 0;
};

struct RequestCounts {
  uint64_t requests = 0;
  uint64_t finished = 0;
  uint64_t cancelled = 0;
  uint64_t refused = 0;
  uint64_t tokens = 0;        // delivered
  uint64_t handovers = 0;     // requests that went on at another node
  uint64_t balanced = 0;      // changes of role, and batches taken from a node
};

// Of all devices.
struct DeviceCounts {
  uint64_t steps = 0;
  uint64_t steps_deferred = 0;  // of these
  uint64_t preemptions = 0;
  uint64_t copies = 0;
  uint64_t fetches = 0;       // of these, from another node
  uint64_t loads = 0;
  uint64_t loads_cancelled = 0;
  uint64_t loads_copied_nothing = 0;
  double loads_copied = 0;       // of all loads, the shares of weights that were copied
  uint64_t prefix_hits = 0;
};

// What was done to them.
struct DisturbanceCounts {
  uint64_t crashes = 0;       // and other ends of a node's life
  uint64_t faults = 0;        // begun
  uint64_t admin_changes = 0; // asked for while requests came
  uint64_t admin_failures = 0;  // of these, reported as failed
};

struct Outcome : RequestCounts, DeviceCounts, DisturbanceCounts {
  uint64_t trace_hash = 0;
  uint64_t events = 0;
  Attainment attainment;
  Histogram first_token;      // seconds from arrival
  Histogram gap;              // between two tokens of an answer
  double first_token_seconds_max = 0;
  double gap_seconds_max = 0;
  double virtual_seconds = 0;
  std::vector<NodeOutcome> nodes;
  std::vector<ModelOutcome> models;
  std::map<uint32_t, Attainment> payers;
  std::vector<TimeSample> samples;
  std::vector<TimelineSpan> spans;
  std::map<std::string, uint64_t> failures;  // requests by what they were told, numbers left out; some kinds at most
  bool given_up = false;      // beyond WorldSetup::late_tokens_max
  bool interrupted = false;   // by who watched it: the figures are of what was simulated
  std::vector<std::string> violations;  // empty, or what went wrong

  double device_hours() const { return virtual_seconds / 3600 * static_cast<double>(nodes.size()); }
  double cost() const;        // of all devices for the whole time, in the unit of their prices
};

}  // namespace shoal
