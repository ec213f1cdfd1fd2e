#include "engine/passing_over.h"

#include <algorithm>

#include "engine/waiting_line.h"
#include "policy/cohorts.h"

namespace shoal {

void PassingOver::mark(std::span<Sequence* const> running, std::vector<SequenceView>& views, const Prospects& expected, TimePoint now) {
  count_ = 0;
  for (size_t i = 0; i < views.size(); ++i) {
    views[i].passed_over = views[i].known == views[i].computed + 1 && expected.hopeless(*running[i], now);
    count_ += views[i].passed_over;
  }
  if (static_cast<double>(count_) * expected.token_seconds > kPassedOverFrom * expected.step_seconds) {
    std::stable_partition(views.begin(), views.end(), [](const SequenceView& s) { return !s.passed_over; });
  } else {
    for (SequenceView& s : views) s.passed_over = false;
    count_ = 0;
  }
}

}  // namespace shoal
