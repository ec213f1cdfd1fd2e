// Linear with f32, f16 and bf16 weights: rank-1 updates of a register tile of activation rows x panels.
#include <algorithm>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_float.cc"
#include "hwy/foreach_target.h"

#include "kernels/cpu/backend.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/linear-inl.h"
#include "kernels/ref/ref.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if SHOAL_PORTABLE_TARGET
LinearFunction float_linear() { return &ref::linear; }
#else

// Sums of MR activation rows, from `x` on, with NP neighbouring panels over columns [begin, end). kAhead: memory is asked for
// what comes, which several rows leave the processor no time to see by itself.
template <typename W, bool kAhead>
struct FloatDot {
  static constexpr size_t kColumnsAhead = 4096 / (kPanelRows * sizeof(W));
  const float* x;
  size_t x_stride;
  const W* panel;        // first of the panels
  size_t panel_stride;   // in W

  template <size_t MR, size_t NP>
  HWY_INLINE void sum(size_t begin, size_t end, F16x (&acc)[MR][NP]) const {
    SHOAL_UNROLLED(m, MR) {
      SHOAL_UNROLLED(p, NP) acc[m][p] = zero();
    }
    for (size_t k = begin; k < end; ++k) {
      F16x w[NP];
      if (kAhead) __builtin_prefetch(panel + (k + kColumnsAhead) * kPanelRows);
      SHOAL_UNROLLED(p, NP) w[p] = load(panel + p * panel_stride + k * kPanelRows);
      SHOAL_UNROLLED(m, MR) {
        const F16x xk = set1(x[m * x_stride + k]);
        SHOAL_UNROLLED(p, NP) acc[m][p] = fma(w[p], xk, acc[m][p]);
      }
    }
  }
};

template <typename W>
class FloatLinear {
 public:
  explicit FloatLinear(const LinearCall& call)
      : call_(call), data_(reinterpret_cast<const W*>(call.weight.data)), stride_(size_t{call.weight.columns} * kPanelRows) {}

  // Some panels at a time, which stay in the second-level cache for all rows but the first; what bounds those is memory, and
  // one panel after the other is read fastest.
  void run(size_t begin, size_t end) const {
    if (call_.rows == 1) return one_row(begin, end);
    const size_t together = std::max<size_t>(kPanels, kGroupBytes / (stride_ * sizeof(W)) / kPanels * kPanels);
    for (size_t first = begin; first < end; first += together) {
      const size_t last = std::min(end, first + together);
      size_t row = 0;
      for (; row + kRows <= call_.rows; row += kRows) pass<kRows>(row, first, last);
      for (; row + 4 <= call_.rows; row += 4) pass<4>(row, first, last);
      for (; row + 2 <= call_.rows; row += 2) pass<2>(row, first, last);
      for (; row < call_.rows; ++row) pass<1>(row, first, last);
    }
  }

 private:
  // What the registers hold; and no more than eight rows, since those a multiple of 4 KiB apart share a set of the first cache.
  static constexpr size_t kRows = kRegs <= 2 ? 6 : 4, kPanels = kRegs == 1 ? 4 : 1;
  static constexpr size_t kGroupBytes = 256 << 10;

  void one_row(size_t begin, size_t end) const {
    size_t panel = begin;
    for (; panel + 4 <= end; panel += 4) tile<1, 4>(0, panel);  // more panels, to hide the latency of the additions
    for (; panel < end; ++panel) tile<1, 1>(0, panel);
  }

  template <size_t MR>
  HWY_INLINE void pass(size_t row, size_t first, size_t last) const {
    constexpr size_t kTogether = std::max<size_t>(kPanels, MR == 1 ? 4 : MR == 2 ? 2 : 1);  // enough sums to hide their latency
    size_t panel = first;
    if (row > 0 || MR == 1 || (MR == 2 && kRegs == 2)) {
      for (; panel + kTogether <= last; panel += kTogether) tile<MR, kTogether>(row, panel);
    }
    for (; panel < last; ++panel) tile<MR, 1, (MR > 1)>(row, panel);
  }

  template <size_t MR, size_t NP, bool kAhead = false>
  HWY_INLINE void tile(size_t row, size_t panel) const {
    run_tile<MR, NP>(call_, FloatDot<W, kAhead>{call_.x + row * call_.x_stride, call_.x_stride, data_ + panel * stride_, stride_}, row, MR, panel);
  }

  const LinearCall& call_;
  const W* data_;
  size_t stride_;  // of a panel, in W
};

void float_linear_any(const LinearCall& call, size_t panel_begin, size_t panel_end) {
  switch (call.weight.format) {
    case WeightFormat::kF32: return FloatLinear<float>(call).run(panel_begin, panel_end);
    case WeightFormat::kF16: return FloatLinear<hwy::float16_t>(call).run(panel_begin, panel_end);
    default: return FloatLinear<hwy::bfloat16_t>(call).run(panel_begin, panel_end);
  }
}

LinearFunction float_linear() { return &float_linear_any; }
#endif  // SHOAL_PORTABLE_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
HWY_EXPORT(float_linear);
LinearFunction chosen_float_linear() { return HWY_DYNAMIC_DISPATCH(float_linear)(); }
}  // namespace shoal
#endif
