// Linear with quantised weights and int8 activations: exact integer dots per block, one FMA per block and output.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_quantized.cc"
#include "hwy/foreach_target.h"

#include "kernels/cpu/backend.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/linear-inl.h"
#include "kernels/cpu/quant_lines-inl.h"
#include "kernels/ref/ref.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if SHOAL_PORTABLE_TARGET
LinearFunction quantized_linear() { return &ref::linear; }
#else

// Dots of lines [first, last) of a block with MR rows of activations, which are `stride` blocks apart.
template <typename Multiply, typename Block, size_t MR>
HWY_INLINE void dot_lines(const Block& block, size_t first, size_t last, const QuantBlock* x, size_t stride,
                          I16x (&dots)[MR]) {
  for (size_t m = 0; m < MR; ++m) dots[m] = Multiply::start(x[m * stride], first, last);
  for (size_t g = first; g < last; g += Multiply::kGroup) {
    typename Multiply::Line lines[Multiply::kGroup];
    for (size_t j = 0; j < Multiply::kGroup; ++j) lines[j] = Multiply::prepare(block.line(g + j));
    for (size_t m = 0; m < MR; ++m) Multiply::add(lines, x[m * stride], g, dots[m]);
  }
}

template <typename Multiply, typename Block>
struct QuantDot {
  const LinearCall& call;
  const std::byte* panel;
  size_t stride;  // blocks of a row of activations

  template <size_t MR>
  HWY_INLINE void sum(size_t row, size_t begin, size_t end, F16x (&acc)[MR][1]) const {
    for (size_t m = 0; m < MR; ++m) acc[m][0] = zero();
    const QuantBlock* x = call.quantized + row * stride;
    for (size_t b = begin / kQuantBlock; b < end / kQuantBlock; ++b) {
      const Block block(panel, b);
      for (size_t half = 0; half < (Block::kHalves ? 2 : 1); ++half) add_scaled(block, half, x + b, acc);
    }
  }

  template <size_t MR>
  HWY_INLINE void add_scaled(const Block& block, size_t half, const QuantBlock* x, F16x (&acc)[MR][1]) const {
    I16x dots[MR];
    constexpr size_t kLines = Block::kHalves ? 4 : 8;
    dot_lines<Multiply>(block, kLines * half, kLines * (half + 1), x, stride, dots);
    const F16x scale = block.scale(half);
    const F16x min = Block::kMins ? block.min(half) : zero();
    for (size_t m = 0; m < MR; ++m) {
      const QuantBlock& xm = x[m * stride];
      const F16x x_scale = set1(xm.scale);
      acc[m][0] = fma(to_float(dots[m]), scale * x_scale, acc[m][0]);
      if (!Block::kMins) continue;
      const int32_t codes = Block::kHalves ? xm.sum[half] : xm.sum[0] + xm.sum[1];
      acc[m][0] = neg_fma(min * x_scale, set1(static_cast<float>(codes)), acc[m][0]);
    }
  }
};

template <typename Multiply, typename Block>
void linear_of(const LinearCall& call, size_t panel_begin, size_t panel_end) {
  const PackedMatrix& w = call.weight;
  const size_t bytes = panel_bytes(w.format, w.columns);
  constexpr size_t kRows = kRegs == 1 ? 8 : 4;
  for (size_t panel = panel_begin; panel < panel_end; ++panel) {
    const QuantDot<Multiply, Block> dot{call, w.data + panel * bytes, w.columns / kQuantBlock};
    size_t row = 0;
    for (; row + kRows <= call.rows; row += kRows) run_tile<kRows, 1>(call, dot, row, panel);
    for (; row + 2 <= call.rows; row += 2) run_tile<2, 1>(call, dot, row, panel);
    for (; row < call.rows; ++row) run_tile<1, 1>(call, dot, row, panel);
  }
}

template <typename Target>
void quantized_linear_any(const LinearCall& call, size_t panel_begin, size_t panel_end) {
  switch (call.weight.format) {
    case WeightFormat::kQ8_0: return linear_of<typename Target::template Multiply<BlockQ8_0>, BlockQ8_0>(call, panel_begin, panel_end);
    case WeightFormat::kQ4_0: return linear_of<typename Target::template Multiply<BlockQ4_0>, BlockQ4_0>(call, panel_begin, panel_end);
    case WeightFormat::kQ8_M: return linear_of<typename Target::template Multiply<BlockQ8_M>, BlockQ8_M>(call, panel_begin, panel_end);
    case WeightFormat::kQ4_K: return linear_of<typename Target::template Multiply<BlockQ4_K>, BlockQ4_K>(call, panel_begin, panel_end);
    default: return linear_of<typename Target::template Multiply<BlockQ6_K>, BlockQ6_K>(call, panel_begin, panel_end);
  }
}

LinearFunction quantized_linear() {
#if HWY_TARGET == HWY_AVX3
  if (hwy::SupportedTargets() & HWY_AVX3_DL) return &quantized_linear_any<VnniTarget>;
#endif
  return &quantized_linear_any<AnyTarget>;
}
#endif  // SHOAL_PORTABLE_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
HWY_EXPORT(quantized_linear);
LinearFunction chosen_quantized_linear() { return HWY_DYNAMIC_DISPATCH(quantized_linear)(); }
}  // namespace shoal
#endif
