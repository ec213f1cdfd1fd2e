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
  static constexpr size_t kMax = 8;
  // Joins the nearest of its kind where there is no place of its own.
  void add(const Cohort& cohort);
  Cohort* begin() { return all_.data(); }
  Cohort* end() { return all_.data() + count_; }
  const Cohort* begin() const { return all_.data(); }
  const Cohort* end() const { return all_.data() + count_; }
  bool empty() const { return count_ == 0; }
  void remove_empty();

 private:
  std::array<Cohort, kMax> all_;
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
  Cohorts cohorts;

  double step_seconds(double sequences) const { return step_base + step_each * sequences; }
};

// How the device is shared: turns among the first `served` models, each `stretch` quotas long. The others wait.
struct Course {
  uint32_t served = 0;
  double stretch = 1;
  bool ends = false;  // when others wait after that, a model begins no answers, and goes when those that it began have ended
  static constexpr double kUntilDone = std::numeric_limits<double>::infinity();  // until nothing promising is left of it
  friend bool operator==(const Course&, const Course&) = default;
};

// Weighted tokens that are due within `horizon` seconds: on time, and late or not given; together what is wanted then. What is given
// ahead counts a little beside those on time.
struct Rehearsed {
  double on_time = 0;
  double lost = 0;
};
// `rooms`: models that are on the device at once.
Rehearsed rehearse(std::span<const RehearsedModel> models, uint32_t rooms, const Course& course, double horizon);

struct CourseOptions {
  double gain_min = 0.03;      // by which another course must be better than the one that is kept
  double loss_max = 0.005;     // that short turns for everybody may cost
};
// The best of: the first models alone, as many as there is room for or fewer, for those that are here share the device's time; more and
// more of them, up to all, in short turns, in longer ones, in such as let answers end, and in such as go on until nothing is left. `kept`
// stays unless another is better by gain_min, or short turns for everybody are as good but for loss_max, or lose next to nothing.
// REQUIRES: rooms > 0.
Course best_course(std::span<const RehearsedModel> models, uint32_t rooms, double horizon, const Course& kept, const CourseOptions& options);

// Whether a switch to it, begun now, would bring it anything that is on time.
bool worth_a_switch(const RehearsedModel& model);

// On-time tokens for a second of the device, if it is served from now on: what a set that narrows is ordered by.
double yield(const RehearsedModel& model, double horizon);

}  // namespace shoal
