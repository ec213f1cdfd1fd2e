// The steps that a node's device has under way, in the order in which they began. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "engine/step.h"
#include "policy/estimator.h"

namespace shoal {

class StepsInFlight {
 public:
  struct Step {
    ModelId model;
    TimePoint began{};
    StepWork work;
  };

  bool any() const { return !steps_.empty(); }
  bool has(ModelId model) const;
  std::optional<ModelId> first() const { return any() ? std::optional(steps_.front().model) : std::nullopt; }
  const std::vector<Step>& all() const { return steps_; }

  void begin(ModelId model, const StepWork& work, TimePoint now);  // REQUIRES: none of this model is in flight
  Step end(ModelId model);  // REQUIRES: one is

 private:
  std::vector<Step> steps_;
};

// What a step computes, of all its slices.
StepWork work_of(const StepInput& input);

}  // namespace shoal
