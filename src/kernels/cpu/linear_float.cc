// Linear with f32, f16 and bf16 weights: rank-1 updates of a register tile of activation rows x panels.
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

// Sums of MR activation rows, from `x` on, with NP neighbouring panels over columns [begin, end).
template <typename W>
struct FloatDot {
  const float* x;
  size_t x_stride;
  const W* panel;        // first of the panels
  size_t panel_stride;   // in W

  template <size_t MR, size_t NP>
  HWY_INLINE void sum(size_t begin, size_t end, F16x (&acc)[MR][NP]) const {
    for (size_t m = 0; m < MR; ++m) {
      for (size_t p = 0; p < NP; ++p) acc[m][p] = zero();
    }
    for (size_t k = begin; k < end; ++k) {
      F16x w[NP];
      for (size_t p = 0; p < NP; ++p) w[p] = load(panel + p * panel_stride + k * kPanelRows);
      for (size_t m = 0; m < MR; ++m) {
        const F16x xk = set1(x[m * x_stride + k]);
        for (size_t p = 0; p < NP; ++p) acc[m][p] = fma(w[p], xk, acc[m][p]);
      }
    }
  }
};

template <typename W>
class FloatLinear {
 public:
  explicit FloatLinear(const LinearCall& call)
      : call_(call), data_(reinterpret_cast<const W*>(call.weight.data)), stride_(size_t{call.weight.columns} * kPanelRows) {}

  void run(size_t begin, size_t end) const {
    size_t panel = begin;
    if (call_.rows == 1) {  // more panels, to hide the latency of the additions
      for (; panel + 4 <= end; panel += 4) tile<1, 4>(0, panel);
    }
    for (; panel + kPanels <= end; panel += kPanels) all_rows<kPanels>(panel);
    for (; panel < end; ++panel) all_rows<1>(panel);
  }

 private:
  static constexpr size_t kRows = kRegs <= 2 ? 6 : 4, kPanels = kRegs == 1 ? 2 : 1;  // what the registers hold

  template <size_t NP>
  HWY_INLINE void all_rows(size_t panel) const {
    size_t row = 0;
    for (; row + kRows <= call_.rows; row += kRows) tile<kRows, NP>(row, panel);
    for (; row + 2 <= call_.rows; row += 2) tile<2, NP>(row, panel);
    for (; row < call_.rows; ++row) tile<1, NP>(row, panel);
  }

  template <size_t MR, size_t NP>
  HWY_INLINE void tile(size_t row, size_t panel) const {
    run_tile<MR, NP>(call_, FloatDot<W>{call_.x + row * call_.x_stride, call_.x_stride, data_ + panel * stride_, stride_}, row, panel);
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
