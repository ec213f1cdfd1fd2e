// How long the parts of an answer took, for interfaces that say so in each answer.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "gateway/generation.h"

namespace shoal {

struct AnswerTimes {
  Duration total{0};
  Duration prompt{0};    // until the first token, waiting included
  Duration tokens{0};    // from the first token to the last
};

class AnswerClock {
 public:
  AnswerTimes times(const Generation& generation) const {
    AnswerTimes times{.total = steady_now() - started_};
    times.prompt = std::min(times.total, generation.first_token_after().value_or(times.total));
    times.tokens = times.total - times.prompt;
    return times;
  }

 private:
  const TimePoint started_ = steady_now();  // when the answer was prepared
};

}  // namespace shoal
