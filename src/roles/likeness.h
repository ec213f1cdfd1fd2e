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
  double answer_tokens(const HostedModel& model) const {
    for (const double known : {model.answer_expected, model.answer_tokens.value, answer_tokens_.value}) {
      if (known > 0) return known;
    }
    return kAnswerTokens;
  }
  // To be called now and then. Of a model of which few have ended it is believed that they are like those of the others; for the first that
  // end are the short ones. So those under way that have more tokens than the mean count as what they will probably have, the less the
  // more have ended.
  template <typename Models>
  void expect_answers(Models& models) {
    for (auto& [id, model] : models) {
      const MovingMean& own = model.answer_tokens;
      const auto ended = static_cast<double>(own.count);
      const double of_all = answer_tokens_.count > 0 ? answer_tokens_.value : kAnswerTokens;
      const double mean = (ended * own.value + kLikeOthers * of_all) / (ended + kLikeOthers);
      const LongAnswers longer = LongAnswers::of(*model.engine, mean);
      const double weight = std::max(1.0, ended);
      model.answer_expected = (weight * mean + longer.tokens) / (weight + longer.count);
    }
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

  static constexpr double kLikeOthers = 8;      // answers of the others count for one's own
  static constexpr double kAnswerTokens = 256;  // believed until one of any model has ended

  MovingMean answer_tokens_;  // of all that ended
  std::optional<Measured> measured_;
};

}  // namespace shoal
