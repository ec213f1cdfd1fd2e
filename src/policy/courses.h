// Which way of sharing the device brings the most: courses rehearsed against each other. Pure.
#pragma once

#include <span>

#include "policy/rehearsal.h"

namespace shoal {

struct CourseOptions {
  double gain_min = 0.03;      // by which another course must be better than the one that is kept
  double loss_max = 0.005;     // that short turns for everybody may cost
  // Of a token given ahead: what the time is worth that it saves afterwards. More where the device is never idle and more is wanted than it
  // has time for.
  double ahead_min = 0.1, ahead_max = 0.5;
};
// The best of: the first models alone, as many as there is room for or fewer, for those that are here share the device's time; those that
// are here, if others are before them in the order, since a change of hands between models that are worth about the same only costs; more and
// more of them, up to all, in short turns, in longer ones, in such as serve who is there and let answers end, and in such as go on until
// nothing is left. `kept` (of a few alone: those that are here) stays unless another is better by gain_min, or short turns for everybody are as good but for loss_max, or lose
// next to nothing. Turns in which nobody would come until the horizon are none: those that are here alone.
// REQUIRES: device.rooms > 0.
Course best_course(std::span<const RehearsedModel> models, const RehearsedDevice& device, double horizon, const Course& kept, const CourseOptions& options);

// Whether short turns for everybody keep everybody on time, but for loss_max.
bool keeps_everybody(std::span<const RehearsedModel> models, const RehearsedDevice& device, double horizon, const CourseOptions& options);

// The order of models of a Course that is `here`.
void put_here_first(std::span<RehearsedModel> models);

}  // namespace shoal
