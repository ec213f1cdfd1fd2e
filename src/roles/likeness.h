// What the models of a node were like so far, for those that are not known yet. Plain values.
#pragma once

#include <algorithm>
#include <optional>

#include "roles/hosted_model.h"

namespace shoal {

class Likeness {
 public:
  void observe_answer(HostedModel& model, double tokens) {
    model.answer_tokens.add(tokens, MovingMean::kOfRequests);
    answer_tokens_.add(tokens, MovingMean::kOfRequests);
  }
  // Of an answer of this model in the mean, or of any while none of its own has ended.
  std::optional<double> answer_tokens(const HostedModel& model) const {
    const MovingMean& known = model.answer_tokens.count > 0 ? model.answer_tokens : answer_tokens_;
    return known.count > 0 ? std::optional(known.value) : std::nullopt;
  }

  // A step of this one was measured.
  void note_measured(const HostedModel& model) { measured_ = Measured{model.costs, bytes(model)}; }
  // Of one that has none it is believed that they are like those of the last one that has, in proportion to the weights.
  void believe_costs(HostedModel& model) const {
    if (measured_) model.costs.believe(measured_->costs, bytes(model) / measured_->weight_bytes);
  }

 private:
  struct Measured {
    ModelEstimator costs;
    double weight_bytes = 1;
  };
  static double bytes(const HostedModel& model) { return static_cast<double>(std::max<uint64_t>(model.facts.weight_bytes, 1)); }

  MovingMean answer_tokens_;
  std::optional<Measured> measured_;
};

}  // namespace shoal
