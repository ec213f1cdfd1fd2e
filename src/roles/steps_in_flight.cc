#include "roles/steps_in_flight.h"

#include <algorithm>

#include "base/check.h"

namespace shoal {

bool StepsInFlight::has(ModelId model) const {
  return std::any_of(steps_.begin(), steps_.end(), [&](const Step& step) { return step.model == model; });
}

void StepsInFlight::begin(ModelId model, const StepWork& work, TimePoint now) {
  CHECK(!has(model));
  steps_.push_back({model, now, work});
}

StepsInFlight::Step StepsInFlight::end(ModelId model) {
  const auto at = std::find_if(steps_.begin(), steps_.end(), [&](const Step& step) { return step.model == model; });
  CHECK(at != steps_.end());
  const Step step = *at;
  steps_.erase(at);
  return step;
}

StepWork work_of(const StepInput& input) {
  StepWork all{0, 0, true};
  for (const StepSlice& slice : input.slices) {
    const StepWork work = work_of(slice.begin, slice.begin + slice.tokens.size());
    all.rows += work.rows;
    all.attended += work.attended;
    all.decode &= work.decode;
  }
  return all;
}

}  // namespace shoal
