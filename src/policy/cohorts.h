// Requests of one model by how far they are: so many of each kind at most, however many requests. Plain values.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace shoal {

// Of `left` tokens of an answer, how many are on time if the first comes in `start` seconds and one more every `step`; the
// first is due in `slack` seconds, one more every `tbt`. What is late may catch up.
inline double tokens_in_time(double left, double start, double step, double slack, double tbt) {
  const double late = start - slack;
  if (late <= 0) return step <= tbt ? left : std::min(left, 1 - late / (step - tbt));
  return step >= tbt ? 0 : std::max(0.0, left - late / (tbt - step));
}

// What can still become of an answer, if it went on at once.
enum class Chance { kWhole, kPart, kNone };

// Whether an answer is worth a place before others: half of what is left of it would be on time, if it went on at once.
inline bool promising(double left, double start, double step, double slack, double tbt) {
  return tokens_in_time(left, start, step, slack, tbt) >= 0.5 * left;
}

// Whether next to nothing of what is left of an answer would be on time, if it went on at once.
inline bool hopeless(double left, double start, double step, double slack, double tbt) { return tokens_in_time(left, start, step, slack, tbt) < 0.1 * left; }

// Where not everybody can keep pace, the hopeless ones are passed over if without them a step would be shorter by more than this share.
constexpr double kPassedOverFrom = 0.1;

// Of the time of a first token, what may be kept for the tokens after it: nobody could wait for a place if it were all.
constexpr double kBehindMost = 0.5;

// What answers of so many tokens fall behind if they come every `pace` seconds, beside the prompts of others.
inline double falls_behind(double left, double pace, double tbt, double ttft) {
  return std::min(std::max(0.0, left - 1) * std::max(0.0, pace - tbt), kBehindMost * ttft);
}

// Of one that begins: kNone is not worth a place before others, and kPart none before those that are kWhole. In overload the earliest
// deadline first, however late, would pass the lateness of each on to the next, until all are as late as is worth a place at all. All that
// wait take `waiting_seconds` of the device: if that is no more than kWhole leaves, nobody would be late for another's sake and none is kPart.
// `behind`: of falls_behind(), as things are.
inline Chance chance(double left, double start, double step, double behind, double slack, double tbt, double waiting_seconds) {
  if (!promising(left, start, step, slack, tbt)) return Chance::kNone;
  const bool whole = start + behind + tbt <= slack;  // a step of others may be before it
  return whole || waiting_seconds <= tbt ? Chance::kWhole : Chance::kPart;
}

// Requests of one model that are about equally far. Seconds are from now.
struct Cohort {
  double requests = 0;
  double due = 0;             // when the next token of each is due
  double left = 0;            // tokens that each has to give in the mean, as far as that can be known
  double prompt_seconds = 0;  // of each, before that token; 0: they decode
  double spread = 0;          // standard deviation of `left`

  // Beyond a least number of tokens that all have to give, they are spread as exponentials are, with this mean and deviation. One request has one number.
  double beyond() const { return requests > 1 ? std::min(spread, left) : 0; }
  // Tokens that each gives in so many steps, in the mean.
  double given(double steps) const {
    const double mean = beyond(), least = left - mean;
    return steps <= least ? steps : least + (mean > 0 ? mean * (1 - std::exp((least - steps) / mean)) : 0);
  }
  // Of them, the share that has more to give after so many steps.
  double remaining(double steps) const {
    const double mean = beyond(), least = left - mean;
    return steps < least ? 1 : mean > 0 ? std::exp((least - steps) / mean) : 0;
  }
  // Those who had no more in so many steps are gone; what the others have left.
  void give(double steps) {
    const double mean = beyond(), least = left - mean;
    requests *= remaining(steps);
    left = std::max(0.0, least - steps) + mean;
  }
  // Steps until all have given everything, about.
  double longest() const { return left + (requests > 1 ? beyond() * std::log(requests) : 0); }
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
  void clear() { count_ = 0; }

 private:
  std::array<Cohort, kMax + 1> all_;  // one more while two become one
  size_t count_ = 0;
};

}  // namespace shoal
