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

// Sums of MR activation rows with NP neighbouring panels over columns [begin, end).
template <typename W>
struct FloatDot {
  const LinearCall& call;
  const W* panel;        // first of the panels
  size_t panel_stride;   // in W

  template <size_t MR, size_t NP>
  HWY_INLINE void sum(size_t row, size_t begin, size_t end, F16x (&acc)[MR][NP]) const {
    for (size_t m = 0; m < MR; ++m) {
      for (size_t p = 0; p < NP; ++p) acc[m][p] = zero();
    }
    const float* x = call.x + row * call.x_stride;
    for (size_t k = begin; k < end; ++k) {
      F16x w[NP];
      for (size_t p = 0; p < NP; ++p) w[p] = load(panel + p * panel_stride + k * kPanelRows);
      for (size_t m = 0; m < MR; ++m) {
        const F16x xk = set1(x[m * call.x_stride + k]);
        for (size_t p = 0; p < NP; ++p) acc[m][p] = fma(w[p], xk, acc[m][p]);
      }
    }
  }
};

template <typename W>
void linear_of(const LinearCall& call, size_t panel_begin, size_t panel_end) {
  const size_t stride = static_cast<size_t>(call.weight.columns) * kPanelRows;
  const W* data = reinterpret_cast<const W*>(call.weight.data);
  constexpr size_t kRows = kRegs == 1 ? 12 : kRegs == 2 ? 6 : 4;  // what the registers hold
  for (size_t panel = panel_begin; panel < panel_end;) {
    const FloatDot<W> dot{call, data + panel * stride, stride};
    const size_t left = panel_end - panel;
    if (call.rows == 1 && left >= 4) {  // one row: more panels, to hide the latency of the additions
      run_tile<1, 4>(call, dot, 0, panel);
      panel += 4;
      continue;
    }
    size_t row = 0;
    for (; row + kRows <= call.rows; row += kRows) run_tile<kRows, 1>(call, dot, row, panel);
    for (; row + 4 <= call.rows; row += 4) run_tile<4, 1>(call, dot, row, panel);
    for (; row + 2 <= call.rows; row += 2) run_tile<2, 1>(call, dot, row, panel);
    for (; row < call.rows; ++row) run_tile<1, 1>(call, dot, row, panel);
    ++panel;
  }
}

void float_linear_any(const LinearCall& call, size_t panel_begin, size_t panel_end) {
  switch (call.weight.format) {
    case WeightFormat::kF32: return linear_of<float>(call, panel_begin, panel_end);
    case WeightFormat::kF16: return linear_of<hwy::float16_t>(call, panel_begin, panel_end);
    default: return linear_of<hwy::bfloat16_t>(call, panel_begin, panel_end);
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
