// Linear with quantised weights and int8 activations: exact integer dots per block, one FMA per block and output.
#include "kernels/cpu/targets.h"

#include <algorithm>

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

constexpr size_t kCacheBytes = 256 * 1024;   // of panels that are used together: half of a small second-level cache
constexpr size_t kPrefetchBytes = 4 * 544;

// Dots of lines [first, last) of a block of NP panels with MR rows of activations, which are `stride` blocks apart.
template <typename Multiply, typename Block, size_t MR, size_t NP>
HWY_INLINE void dot_lines(const Block (&blocks)[NP], size_t first, size_t last, const QuantBlock* x, size_t stride,
                          I16x (&dots)[MR][NP]) {
  for (size_t m = 0; m < MR; ++m) {
    const I16x start = Multiply::start(x[m * stride], first, last);
    for (size_t p = 0; p < NP; ++p) dots[m][p] = start;
  }
  for (size_t g = first; g < last; g += Multiply::kGroup) {
    typename Multiply::Line lines[NP][Multiply::kGroup];
    for (size_t p = 0; p < NP; ++p) {
      for (size_t j = 0; j < Multiply::kGroup; ++j) lines[p][j] = Multiply::prepare(blocks[p].line(g + j));
    }
    for (size_t m = 0; m < MR; ++m) Multiply::add(lines, x[m * stride], g, dots[m]);
  }
}

// Weights come from memory in the order in which they lie there: ask for what is needed some blocks later.
HWY_INLINE void prefetch_ahead(const std::byte* p, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(p + kPrefetchBytes + at);
}

template <typename Multiply, typename Block>
struct QuantDot {
  const LinearCall& call;
  const std::byte* panel;  // the first of those that are summed together
  size_t bytes;            // of a panel
  size_t stride;           // blocks of a row of activations
  bool prefetch;           // the panels come from memory; a single row is as fast as memory without asking ahead

  template <size_t MR, size_t NP>
  HWY_INLINE void sum(size_t row, size_t begin, size_t end, F16x (&acc)[MR][NP]) const {
    for (size_t m = 0; m < MR; ++m) {
      for (size_t p = 0; p < NP; ++p) acc[m][p] = zero();
    }
    const QuantBlock* x = call.quantized + row * stride;
    for (size_t b = begin / kQuantBlock; b < end / kQuantBlock; ++b) {
      if constexpr (NP == 1) {
        add_block(Blocks<1>{{Block(panel, b)}}, x + b, acc);
      } else {
        add_block(Blocks<2>{{Block(panel, b), Block(panel + bytes, b)}}, x + b, acc);
      }
    }
  }

  template <size_t NP>
  struct Blocks {
    Block at[NP];
  };

  template <size_t MR, size_t NP>
  HWY_INLINE void add_block(const Blocks<NP>& blocks, const QuantBlock* x, F16x (&acc)[MR][NP]) const {
    if (prefetch) {
      for (size_t p = 0; p < NP; ++p) prefetch_ahead(blocks.at[p].p, Block::kBytes);
    }
    for (size_t half = 0; half < (Block::kHalves ? 2 : 1); ++half) add_scaled(blocks.at, half, x, acc);
  }

  template <size_t MR, size_t NP>
  HWY_INLINE void add_scaled(const Block (&blocks)[NP], size_t half, const QuantBlock* x, F16x (&acc)[MR][NP]) const {
    I16x dots[MR][NP];
    constexpr size_t kLines = Block::kHalves ? 4 : 8;
    dot_lines<Multiply>(blocks, kLines * half, kLines * (half + 1), x, stride, dots);
    for (size_t p = 0; p < NP; ++p) {
      const F16x scale = blocks[p].scale(half);
      const F16x min = Block::kMins ? blocks[p].min(half) : zero();
      for (size_t m = 0; m < MR; ++m) {
        const QuantBlock& xm = x[m * stride];
        const F16x x_scale = set1(xm.scale);
        acc[m][p] = fma(to_float(dots[m][p]), scale * x_scale, acc[m][p]);
        if (!Block::kMins) continue;
        const int32_t codes = Block::kHalves ? xm.sum[half] : xm.sum[0] + xm.sum[1];
        acc[m][p] = neg_fma(min * x_scale, set1(static_cast<float>(codes)), acc[m][p]);
      }
    }
  }
};

// Rows of activations pass over a group of panels, which stays in the second-level cache meanwhile.
template <typename Multiply, typename Block>
struct QuantLinear {
  const LinearCall& call;
  size_t bytes;  // of a panel

  template <size_t MR>
  HWY_INLINE void pass(size_t row, size_t first, size_t last) const {
    constexpr size_t NP = MR > 1 ? Multiply::kPanels : 1;
    const auto dot = [&](size_t panel) {
      return QuantDot<Multiply, Block>{call, call.weight.data + panel * bytes, bytes, call.weight.columns / kQuantBlock, MR > 1 && row == 0};
    };
    size_t panel = first;
    for (; panel + NP <= last; panel += NP) run_tile<MR, NP>(call, dot(panel), row, panel);
    for (; panel < last; ++panel) run_tile<MR, 1>(call, dot(panel), row, panel);
  }

  void run(size_t first, size_t last) const {
    size_t row = 0;
    for (; row + Multiply::kRows <= call.rows; row += Multiply::kRows) pass<Multiply::kRows>(row, first, last);
    for (; row + 2 <= call.rows; row += 2) pass<2>(row, first, last);
    for (; row < call.rows; ++row) pass<1>(row, first, last);
  }
};

template <typename Multiply, typename Block>
void linear_of(const LinearCall& call, size_t panel_begin, size_t panel_end) {
  const QuantLinear<Multiply, Block> linear{call, panel_bytes(call.weight.format, call.weight.columns)};
  const size_t together = std::max<size_t>(Multiply::kPanels, kCacheBytes / linear.bytes / Multiply::kPanels * Multiply::kPanels);
  for (size_t first = panel_begin; first < panel_end; first += together) linear.run(first, std::min(panel_end, first + together));
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
