// What the models of a node were like so far, for those that are not known yet. Plain values.
#pragma once

#include <algorithm>
#include <optional>

#include "roles/hosted_model.h"

namespace shoal {

class Likeness {
 public:
  // `fills`: it was as long as it may be, and ended for that.
  void observe_answer(HostedModel& model, double tokens, bool fills) {
    model.answers.add(tokens, fills);
    answers_.add(tokens, fills);
  }
  // Of an answer of this model in the mean, or of any while none of its own has ended.
  double answer_tokens(const HostedModel& model) const {
    for (const double known : {model.answer_expected, model.answers.tokens.value, answers_.tokens.value}) {
      if (known > 0) return known;
    }
    return kAnswerTokens;
  }
  // The share of its answers that are as long as they may be, and how long those are in the mean.
  double filled(const HostedModel& model) const { return like_others(model.answers.filled, answers_.filled.value); }
  double filled_tokens(const HostedModel& model) const { return like_others(model.answers.filled_tokens, answers_.filled_tokens.value); }
  // To be called now and then. Of a model of which few have ended it is believed that they are like those of the others; for the first that
  // end are the short ones. So those under way that have more tokens than the mean count as what they will probably have, the less the
  // more have ended.
  template <typename Models>
  void expect_answers(Models& models) {
    for (auto& [id, model] : models) {
      const double mean = like_others(model.answers.tokens, answers_.tokens.count > 0 ? answers_.tokens.value : kAnswerTokens);
      const LongAnswers longer = LongAnswers::of(*model.engine, mean);
      const double weight = std::max(1.0, static_cast<double>(model.answers.tokens.count));
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
  static double like_others(const MovingMean& own, double of_all) {
    const auto count = static_cast<double>(own.count);
    return (count * own.value + kLikeOthers * of_all) / (count + kLikeOthers);
  }
  static double bytes(const HostedModel& model) { return static_cast<double>(std::max<uint64_t>(model.facts.weight_bytes, 1)); }

  static constexpr double kLikeOthers = 8;      // answers of the others count for one's own
  static constexpr double kAnswerTokens = 256;  // believed until one of any model has ended

  AnswerLengths answers_;  // of all models
  std::optional<Measured> measured_;
};

}  // namespace shoal
