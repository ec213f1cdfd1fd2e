// What the float and the quantised linear share: chunk sums, their tree, bias and the ragged last panel.
#if defined(SHOAL_KERNELS_CPU_LINEAR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHOAL_KERNELS_CPU_LINEAR_INL_H_
#undef SHOAL_KERNELS_CPU_LINEAR_INL_H_
#else
#define SHOAL_KERNELS_CPU_LINEAR_INL_H_
#endif

#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if !SHOAL_PORTABLE_TARGET

// Adds the bias, and what is there already if asked to, and stores 16 outputs, or as many as the matrix has.
HWY_INLINE void store_outputs(const LinearCall& call, size_t row, size_t panel, F16x sum) {
  const size_t first = panel * kPanelRows;
  const size_t valid = call.weight.rows - first;
  float* out = call.out + row * call.out_stride + first;
  const float* bias = call.weight.bias;
  if (valid >= kPanelRows) {
    if (bias != nullptr) sum = sum + load(bias + first);
    store(call.add ? load(out) + sum : sum, out);
  } else {
    if (bias != nullptr) sum = sum + load_first(bias + first, valid);
    store_first(call.add ? load_first(out, valid) + sum : sum, out, valid);
  }
}

// Computes rows [row, row + MR) x panels [panel, panel + NP) and stores the first `count` of those rows.
// `dot.sum(begin, end, acc)` gives the sums over columns [begin, end).
template <size_t MR, size_t NP, typename Dot>
HWY_INLINE void run_tile(const LinearCall& call, Dot&& dot, size_t row, size_t count, size_t panel) {
  F16x acc[MR][NP];
  if (call.weight.chunk_unit == 0) {
    dot.sum(0, call.weight.columns, acc);
  } else {
    // partial[level] waits for its sibling: the tree ((c0+c1)+(c2+c3))+((c4+c5)+(c6+c7)) evaluated as the chunks come.
    F16x partial[3][MR][NP];
    for (uint32_t chunk = 0; chunk < kChunks; ++chunk) {
      const auto [begin, end] = chunk_columns(call.weight.columns, call.weight.chunk_unit, chunk);
      dot.sum(begin, end, acc);
      uint32_t level = 0;
      for (; (chunk >> level) & 1; ++level) {
        SHOAL_UNROLLED(m, MR) {
          SHOAL_UNROLLED(p, NP) acc[m][p] = partial[level][m][p] + acc[m][p];
        }
      }
      if (level == 3) break;
      SHOAL_UNROLLED(m, MR) {
        SHOAL_UNROLLED(p, NP) partial[level][m][p] = acc[m][p];
      }
    }
  }
  SHOAL_UNROLLED(m, MR) {
    if (m == count) break;
    SHOAL_UNROLLED(p, NP) store_outputs(call, row + m, panel + p, acc[m][p]);
  }
}

#endif  // !SHOAL_PORTABLE_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#endif  // include guard
