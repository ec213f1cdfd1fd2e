#include <cmath>

#include "kernels/ref/ref.h"

namespace shoal::ref {

void index_scores(const IndexScoresCall& call) {
  for (uint32_t t = 0; t < kKvTokens; ++t) {
    float total = 0;
    for (uint32_t h = 0; h < call.heads; ++h) {
      float dot = 0;
      for (uint32_t d = 0; d < call.dim; ++d) dot = std::fma(call.keys[d * kKvTokens + t], call.q[h * call.dim + d], dot);
      dot *= call.scale;
      total = std::fma(dot > 0 ? dot : 0.0f, call.weights[h], total);
    }
    call.scores[t] = total;
  }
}

}  // namespace shoal::ref
