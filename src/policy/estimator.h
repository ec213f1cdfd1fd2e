// How long steps, prefills and switches of one model take on one device: fitted to what was seen, from the first
// observation on. Plain values; what they are kept in is the caller's matter.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/time.h"

namespace shoal {

// What a step computes, in the terms that its time is linear in (the form of DistServe, appendix A).
struct StepWork {
  uint64_t rows = 0;      // tokens computed
  uint64_t attended = 0;  // sum over rows of the tokens each looks at: linear in the context of a decode, quadratic in a prompt
  bool decode = false;    // every sequence computes one token
};

// The work of tokens [begin, end) of one sequence.
StepWork work_of(uint64_t begin, uint64_t end);

// seconds = x0 + x1 * rows + x2 * attended, no coefficient negative: least squares over the observations, older ones
// forgotten by and by, with a quick correction for what changed since (another load on the machine, say).
class StepFit {
 public:
  using Terms = std::array<double, 3>;
  // `prior`: seconds per step, row and attended token that are believed before anything is seen. Positive; their ratios
  // decide what an early observation is put down to.
  explicit StepFit(const Terms& prior) : prior_(prior) {}

  void observe(const StepWork& work, double seconds);  // ignored unless finite and positive
  double predict(const StepWork& work) const;
  // What was not seen is like this one, which was, but `scale` times as long. Ignored unless that one has a reason.
  void believe(const StepFit& like, double scale);

  bool believed() const { return believed_ || observations_ > 0; }  // what it predicts has a reason
  uint64_t observations() const { return observations_; }

 private:
  friend class ModelEstimator;
  Terms solved() const;  // the coefficients, in units of the prior

  Terms prior_;
  Terms expected_{1, 1, 1};          // coefficients before anything is seen, in units of the prior
  std::array<double, 6> squares_{};  // upper triangle of sum x x', x in units of the prior
  Terms products_{};                 // sum x * seconds
  double correction_ = 1;            // moving mean of seen over fitted
  uint64_t observations_ = 0;
  bool believed_ = false;
  Terms coefficients_ = solved();    // of all of the above: predictions are many, observations few
};

// The mean of the first values, and then one that forgets: the last 1 / rate count, about.
struct MovingMean {
  static constexpr double kRate = 0.3;          // of what may change at any time
  static constexpr double kOfRequests = 1 / 256.0;  // of what differs from request to request
  double value = 0;
  uint64_t count = 0;
  void add(double x, double rate = kRate);
};

// Arrivals a second: those of the last half minute, drawn towards what is usual where they are few, and fewer once it is silent for much
// longer than it was before.
class ArrivalRate {
 public:
  void add(TimePoint now);
  double per_second(TimePoint now) const;

 private:
  bool any_ = false;
  double weight_ = 0;      // of the arrivals after the first, as of last_
  double longest_ = 0;     // of the seconds between two, of late
  MovingMean usual_gap_;   // seconds between two, of many
  TimePoint first_{}, last_{};
};

// How far apart the steps of a model are for those who read it: over the last second or the time of four tokens, with the
// prompts and the turns of others between them.
class StepPace {
 public:
  // `goes_on`: sequences have more to give, so that what passes until the next step has ended counts. `tbt`: seconds between two tokens, as
  // they are wanted; of a longer while than above no more counts.
  void step_ended(TimePoint now, bool goes_on, double tbt);
  double seconds() const { return steps_ > 0 ? wall_ / steps_ : 0; }

 private:
  bool goes_on_ = false;
  TimePoint ended_{};
  double wall_ = 0, steps_ = 0;  // of late
};

// Of computing prompts, in full steps: seconds for a token, and for a token that one of them looks at.
struct PromptCost {
  double token_seconds = 0;
  double attended_seconds = 0;
  // Of tokens [begin, end) of one sequence.
  double seconds(uint64_t begin, uint64_t end) const;
};

class ModelEstimator {
 public:
  void observe_step(const StepWork& work, double seconds);
  // As far as it is not measured, it is like this one, which was, but `scale` times as long.
  void believe(const ModelEstimator& measured, double scale);
  // A switch to this model: seconds until its weights were there, and what it cost the device: time without a step, or by
  // which steps beside it took longer. `copied`: the share of its weights that were copied, 0..1; the others were there.
  void observe_switch(double seconds, double waited_seconds, double copied = 1);

  double step_seconds(const StepWork& work) const;
  // Of a decode step of so many sequences that look at so many tokens together.
  double decode_seconds(uint64_t sequences, uint64_t context_tokens) const;
  // How many rows a step may have to end within `seconds`, if `context_tokens` are looked at by `decoding` of them.
  uint64_t rows_within(double seconds, uint64_t decoding, uint64_t context_tokens) const;
  // Of computing `tokens` after `cached` ones, in steps of at most tokens_per_step. REQUIRES: tokens_per_step > 0.
  double prefill_seconds(uint64_t cached, uint64_t tokens, uint64_t tokens_per_step) const;
  // Nothing while no prompt was seen, of it or of one that it is like: a mere guess condemns nobody. REQUIRES: tokens_per_step > 0.
  PromptCost prompt_cost(uint64_t tokens_per_step) const;
  // Linear in what is copied. `fallback`: of one that copies everything, while none was seen.
  double switch_seconds(double fallback, double copied = 1) const;
  double waited_seconds(double fallback, double copied = 1) const;

  uint64_t steps_observed() const { return decode_.observations() + prefill_.observations(); }
  bool measured() const { return steps_observed() + switch_.count > 0; }

  // One line of JSON with every number that predictions depend on.
  std::string to_json() const;
  // InvalidArgument for anything to_json() does not write.
  static StatusOr<ModelEstimator> from_json(std::string_view text);

 private:
  // As far as decode steps alone tell nothing, a row of one takes what a row beside prompts does, once enough were seen: in an overload all
  // steps have prompts.
  void believe_prompts(uint64_t observed);

  StepFit decode_{{0.01, 2e-4, 1e-7}};
  StepFit prefill_{{0.01, 1e-3, 1e-7}};
  bool decode_known_ = false;  // from another model's decode steps
  double adoption_seconds(double whole) const;  // of a switch that copies nothing, where `whole` is what one takes that copies all

  MovingMean switch_;  // as if all had been copied
  MovingMean waited_;
  MovingMean adoption_;
};

}  // namespace shoal
