// Scores of an index: lanes are the tokens of a block.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/token_index.cc"
#include "hwy/foreach_target.h"

#include "kernels/cpu/backend.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/ref/ref.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if SHOAL_PORTABLE_TARGET
using ref::index_scores;
#else

// H heads at once, for their sums do not wait for each other.
template <uint32_t H>
HWY_INLINE void add_heads(const IndexScoresCall& call, uint32_t head, F16x& total) {
  const float* const q = call.q + size_t{head} * call.dim;
  F16x dots[H];
  for (uint32_t h = 0; h < H; ++h) dots[h] = zero();
  for (uint32_t d = 0; d < call.dim; ++d) {
    const F16x key = load(call.keys + d * 16);
    SHOAL_UNROLLED(h, H) dots[h] = fma(key, set1(q[h * call.dim + d]), dots[h]);
  }
  for (uint32_t h = 0; h < H; ++h) total = fma(max(dots[h] * set1(call.scale), zero()), set1(call.weights[head + h]), total);
}

void index_scores(const IndexScoresCall& call) {
  F16x total = zero();
  uint32_t head = 0;
  for (; head + 4 <= call.heads; head += 4) add_heads<4>(call, head, total);
  for (; head < call.heads; ++head) add_heads<1>(call, head, total);
  store(total, call.scores);
}
#endif  // SHOAL_PORTABLE_TARGET

IndexScoresFunction index_scores_function() { return &index_scores; }

}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
HWY_EXPORT(index_scores_function);
IndexScoresFunction chosen_index_scores() { return HWY_DYNAMIC_DISPATCH(index_scores_function)(); }
}  // namespace shoal
#endif
