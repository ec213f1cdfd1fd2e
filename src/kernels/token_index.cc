#include "kernels/token_index.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace shoal {

void select_tokens(std::span<const float> scores, uint32_t top, uint16_t* selected) {
  std::fill_n(selected, (scores.size() + 15) / 16, uint16_t{0});
  const auto value = [&](size_t t) { return std::isnan(scores[t]) ? -std::numeric_limits<float>::infinity() : scores[t]; };
  float least = -std::numeric_limits<float>::infinity();
  size_t of_least = scores.size();  // how many that are equal to the least are taken
  if (top < scores.size()) {
    std::vector<float> sorted(scores.size());
    for (size_t t = 0; t < scores.size(); ++t) sorted[t] = value(t);
    std::nth_element(sorted.begin(), sorted.begin() + (top - 1), sorted.end(), std::greater<>());
    least = sorted[top - 1];
    of_least = top - static_cast<size_t>(std::count_if(sorted.begin(), sorted.begin() + top, [&](float s) { return s > least; }));
  }
  for (size_t t = 0; t < scores.size(); ++t) {
    const float s = value(t);
    if (s < least || (s == least && of_least == 0)) continue;
    if (s == least) --of_least;
    selected[t / 16] |= static_cast<uint16_t>(1u << (t % 16));
  }
}

}  // namespace shoal
