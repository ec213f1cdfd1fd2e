// What a way of sharing the device would bring: a rehearsal of the next while, from what a node knows, by its own estimates.
// Requests are a fluid in it, in cohorts, and time goes from switch to switch; so it costs microseconds. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"

namespace shoal {

// Of `left` tokens of an answer, how many are on time if the first comes in `start` seconds and one more every `step`; the
// first is due in `slack` seconds, one more every `tbt`. What is late may catch up.
double tokens_in_time(double left, double start, double step, double slack, double tbt);

// Whether an answer is worth a place before others: half of what is left of it would be on time, if it went on at once.
bool promising(double left, double start, double step, double slack, double tbt);

// Requests of one model that are about equally far. Seconds are from now.
struct Cohort {
  double requests = 0;
  double due = 0;             // when the next token of each is due
  double left = 0;            // tokens that each has to give, as far as that can be known
  double prompt_seconds = 0;  // of each, before that token; 0: they decode
};

class Cohorts {
 public:
  static constexpr size_t kOfKind = 5, kMax = 2 * kOfKind;
  // Where there are as many of its kind as there may be (those that decode, or those that wait), the two of them that are the most alike
  // become one: by Ward's criterion (1963), of when they are due.
  void add(const Cohort& cohort);
  // By kind, and of each by when they were due when they were added.
  Cohort* begin() { return all_.data(); }
  Cohort* end() { return all_.data() + count_; }
  const Cohort* begin() const { return all_.data(); }
  const Cohort* end() const { return all_.data() + count_; }
  bool empty() const { return count_ == 0; }
  void remove_empty();

 private:
  std::array<Cohort, kMax + 1> all_;  // one more while two become one
  size_t count_ = 0;
};

struct RehearsedModel {
  ModelId model;
  bool resident = false;
  bool stays = false;          // on the device, whatever comes
  double switch_seconds = 0;
  double step_base = 0, step_each = 0;  // a decode step of n sequences takes step_base + n * step_each
  double ttft = 10, tbt = 0.1;
  double weight = 1;           // of one of its tokens
  double arrivals = 0;         // a second, expected
  double prompt_seconds = 0;   // of one that comes
  double answer_tokens = 128;  // of one that comes
  double sequences_max = 256;  // at once
  double quota_seconds = 0;    // of its turn
  double spent_seconds = 0;    // of the turn under way
  double weight_pages = 0;
  double kv_pages = 0;         // of one sequence, in the mean,
  double again_seconds = 0;    // and of computing that anew
  Cohorts cohorts;

  double step_seconds(double sequences) const { return step_base + step_each * sequences; }
};

struct RehearsedDevice {
  uint32_t rooms = 1;          // models that are on it at once
  double pages = std::numeric_limits<double>::infinity();  // for their weights, and KV;
  double host_pages = 0;       // KV of those that are away may go there. What has no place is computed anew
};

// How the device is shared: turns among the first `served` models, each `stretch` quotas long. The others wait.
struct Course {
  uint32_t served = 0;
  double stretch = 1;
  bool ends = false;  // when others wait after that, a model begins no answers, and goes when those that it began have ended
  static constexpr double kUntilDone = std::numeric_limits<double>::infinity();  // until nothing promising is left of it
  friend bool operator==(const Course&, const Course&) = default;
};

// Weighted tokens that are due within `horizon` seconds: on time, and late or not given; together what is wanted then. And those that are
// due afterwards and were given already.
struct Rehearsed {
  double on_time = 0;
  double lost = 0;
  double ahead = 0;
  double idle = 0;             // share of the time without switches in which there was nothing to do that could be on time
  // What it is worth, if a token that is given ahead counts as so much of one that is on time.
  double worth(double ahead_counts) const { return on_time + ahead_counts * ahead; }
};
Rehearsed rehearse(std::span<const RehearsedModel> models, const RehearsedDevice& device, const Course& course, double horizon);

// Whether a switch to it, begun now, would bring it anything that is on time.
bool worth_a_switch(const RehearsedModel& model);

// The share of the device's time that it takes to compute what comes, and what is here and promising within the horizon, at the pace of
// those who read it.
double load(const RehearsedModel& model, double horizon);

// On-time tokens for a second of the device, if it is served from now on: what a set that narrows is ordered by.
double yield(const RehearsedModel& model, double horizon);

}  // namespace shoal
