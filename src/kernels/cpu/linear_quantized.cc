// Linear with quantised weights and int8 activations: exact integer dots per block, one FMA per block and output.
#include "kernels/cpu/targets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_quantized.cc"
#include "hwy/foreach_target.h"

#include "base/bytes.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/linear-inl.h"
#include "kernels/cpu/quant_lines-inl.h"
#include "kernels/ref/ref.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if SHOAL_PORTABLE_TARGET
QuantizedLinear quantized_linear() { return {&ref::linear, false}; }
#else

constexpr size_t kStoredBytes = 256 * 1024;  // of panels that are used together: half of a small second-level cache
constexpr size_t kStageBytes = 384 * 1024;   // likewise, staged

// A tile is MR rows of activations by NP neighbouring panels. Panels are read as they are stored for a few rows. For many,
// a group of them is staged first - codes ready to multiply, scales as f32 - and stays in the second-level cache while the
// rows pass over it.

// Panels as they lie in memory. kAhead: one panel after the other is read from there, and asked for before.
template <typename Multiply, typename Block, bool kAhead>
class StoredCodes {
 public:
  StoredCodes(const std::byte* panel, size_t bytes) : panel_(panel), bytes_(bytes) {}
  HWY_INLINE void start_block(size_t b) {
    b_ = b;
    if (!kAhead) return;
    for (size_t at = 0; at < Block::kBytes; at += 64) __builtin_prefetch(block(0).p + kAheadBytes + at);
  }
  HWY_INLINE Bytes element(size_t p, size_t g, size_t e) const { return Multiply::element(block(p).line(g), e); }
  HWY_INLINE F16x scale(size_t p, size_t half) const { return block(p).scale(half); }
  HWY_INLINE F16x min(size_t p, size_t half) const { return block(p).min(half); }

 private:
  static constexpr size_t kAheadBytes = 12 * 544;  // what memory gives while it is asked
  HWY_INLINE Block block(size_t p) const { return Block(panel_ + p * bytes_, b_); }
  const std::byte* panel_;
  size_t bytes_;  // of a panel
  size_t b_ = 0;
};

// Activations as quantize_row() leaves them, MR rows `stride` blocks apart. Where only MR - 1 are there, the last one stands in
// for the one that is missing.
template <typename Multiply, typename Block, size_t MR>
class Rows {
 public:
  Rows(const QuantBlock* x, size_t stride, size_t count) : x_(x), stride_(stride), last_(x + (count - 1) * stride) {}
  HWY_INLINE void start_block(size_t b) { b_ = b; }
  HWY_INLINE const std::byte* bytes(size_t m) const { return reinterpret_cast<const std::byte*>(&at(m) + (Multiply::kPairs ? stride_ / 2 : 0)); }
  HWY_INLINE float scale(size_t m) const { return at(m).scale; }
  HWY_INLINE int32_t raised_sums(size_t m, size_t half) const { return -Multiply::kRaised * codes(m, half); }
  HWY_INLINE float code_sum(size_t m, size_t half) const { return static_cast<float>(codes(m, half)); }

 private:
  HWY_INLINE const QuantBlock& at(size_t m) const { return m + 1 < MR ? x_[m * stride_ + b_] : last_[b_]; }
  HWY_INLINE int32_t codes(size_t m, size_t half) const { return Block::kHalves ? at(m).sum[half] : at(m).sum[0] + at(m).sum[1]; }
  const QuantBlock* x_;
  size_t stride_;
  const QuantBlock* last_;
  size_t b_ = 0;
};

// Staged panels: per block the elements of its lines, then f32 scales and mins.
template <typename Multiply, typename Block>
struct StagedPanel {
  static constexpr size_t kHalves = Block::kHalves ? 2 : 1;
  static constexpr size_t kLineBytes = 64 * Multiply::kElements, kScales = 8 * kLineBytes, kMins = kScales + 64 * kHalves;
  static constexpr size_t kBlockBytes = kMins + (Block::kMins ? 64 * kHalves : 0);

  static void fill(const std::byte* panel, size_t blocks, std::byte* out) {
    for (size_t b = 0; b < blocks; ++b, out += kBlockBytes) {
      const Block block(panel, b);
      for (size_t g = 0; g < 8; ++g) {
        for (size_t e = 0; e < Multiply::kElements; ++e) store_bytes(Multiply::element(block.line(g), e), out + g * kLineBytes + e * 64);
      }
      for (size_t half = 0; half < kHalves; ++half) {
        store(block.scale(half), reinterpret_cast<float*>(out + kScales + 64 * half));
        if (Block::kMins) store(block.min(half), reinterpret_cast<float*>(out + kMins + 64 * half));
      }
    }
  }
};

template <typename Multiply, typename Block>
class StagedCodes {
 public:
  using Panel = StagedPanel<Multiply, Block>;
  StagedCodes(const std::byte* panel, size_t bytes) : panel_(panel), bytes_(bytes) {}
  HWY_INLINE void start_block(size_t b) { at_ = panel_ + b * Panel::kBlockBytes; }
  HWY_INLINE Bytes element(size_t p, size_t g, size_t e) const { return load_bytes(at_ + p * bytes_ + g * Panel::kLineBytes + e * 64); }
  HWY_INLINE F16x scale(size_t p, size_t half) const { return floats(p, Panel::kScales + 64 * half); }
  HWY_INLINE F16x min(size_t p, size_t half) const { return floats(p, Panel::kMins + 64 * half); }

 private:
  HWY_INLINE F16x floats(size_t p, size_t offset) const { return load(reinterpret_cast<const float*>(at_ + p * bytes_ + offset)); }
  const std::byte* panel_;
  size_t bytes_;  // of a staged panel
  const std::byte* at_ = nullptr;
};

// The sums of a tile, for run_tile().
template <typename Multiply, typename Block, typename Codes, typename Activations>
struct QuantDot {
  Codes codes;
  Activations rows;

  template <size_t MR, size_t NP>
  HWY_INLINE void sum(size_t begin, size_t end, F16x (&acc)[MR][NP]) {
    SHOAL_UNROLLED(m, MR) {
      SHOAL_UNROLLED(p, NP) acc[m][p] = zero();
    }
    for (size_t b = begin / kQuantBlock; b < end / kQuantBlock; ++b) {
      codes.start_block(b);
      rows.start_block(b);
      for (size_t half = 0; half < (Block::kHalves ? 2 : 1); ++half) add_half(half, acc);
    }
  }

  template <size_t MR, size_t NP>
  HWY_INLINE void add_half(size_t half, F16x (&acc)[MR][NP]) const {
    typename Multiply::Dot dots[MR][NP];
    const auto raised_sums = [&](size_t m) HWY_ATTR { return Multiply::kRaised == 0 ? 0 : rows.raised_sums(m, half); };
    SHOAL_UNROLLED(m, MR) {
      SHOAL_UNROLLED(p, NP) Multiply::start(raised_sums(m), dots[m][p]);
    }
    constexpr size_t kLines = Block::kHalves ? 4 : 8, kElements = Multiply::kElements;
    SHOAL_UNROLLED(i, kLines) {
      const size_t g = kLines * half + i;
      SHOAL_UNROLLED(e, kElements) {
        Bytes elements[NP];
        SHOAL_UNROLLED(p, NP) elements[p] = codes.element(p, g, e);
        SHOAL_UNROLLED(m, MR) {
          const VI x = broadcast4(rows.bytes(m) + 4 * (g * kElements + e));
          SHOAL_UNROLLED(p, NP) Multiply::add(elements[p], x, i, dots[m][p]);
        }
      }
    }
    SHOAL_UNROLLED(p, NP) {
      const F16x scale = codes.scale(p, half);
      const F16x min = Block::kMins ? codes.min(p, half) : zero();
      SHOAL_UNROLLED(m, MR) {
        const F16x x_scale = set1(rows.scale(m));
        acc[m][p] = fma(to_float(Multiply::finish(raised_sums(m), dots[m][p])), scale * x_scale, acc[m][p]);
        if (Block::kMins) acc[m][p] = neg_fma(min * x_scale, set1(rows.code_sum(m, half)), acc[m][p]);
      }
    }
  }
};

template <typename Target, typename Block>
class QuantLinear {
 public:
  explicit QuantLinear(const LinearCall& call)
      : call_(call), blocks_(call.weight.columns / kQuantBlock), stride_(quant_row_stride(call.weight.columns)), bytes_(panel_bytes(call.weight.format, call.weight.columns)) {}

  void run(size_t begin, size_t end) const {
    const size_t staged_bytes = blocks_ * Panel::kBlockBytes;
    const size_t fit = std::min(std::max(kStageBytes, kPanels * staged_bytes), call_.stage.size()) / staged_bytes / kPanels * kPanels;
    if (call_.rows < kStagedRows || fit == 0) return run_stored(begin, end);
    for (size_t first = begin; first < end; first += fit) {
      const size_t count = std::min(fit, end - first);
      std::byte* staged = call_.stage.data();
      for (size_t i = 0; i < count; ++i) Panel::fill(call_.weight.data + (first + i) * bytes_, blocks_, staged + i * staged_bytes);
      run_staged(staged, staged_bytes, first, first + count);
    }
  }

 private:
  using Multiply = typename Target::template Multiply<Block>;
  static constexpr size_t kRows = Multiply::kRows, kPanels = Multiply::kPanels;
  static constexpr size_t kFirstRows = kPanels > 1 ? 8 : kRows;  // as many sums as fit beside those of one panel
  static constexpr size_t kFewRows = 4;
  static_assert(kFirstRows <= kRows + 2, "a first tile of more than kRows rows lacks one at most");
  static constexpr bool kWide = kPanels > 1;
  // With fewer, staging costs more than it saves; that is soon made up for codes that are dear to take apart.
  static constexpr size_t kStagedRows = Block::kUnsigned && Block::kHalves          ? (kWide ? 48 : 12)  // Q6_K
                                        : Block::kUnsigned && Block::kMins && !kWide ? 56                 // Q4_K
                                                                                     : 192;
  using Panel = StagedPanel<Multiply, Block>;

  // With panels as they are stored; those of a group are in the second-level cache for all but the first tile. What bounds the
  // first one is memory: it takes as many rows as it can, and one panel after the other.
  void run_stored(size_t begin, size_t end) const {
    const size_t together = std::max<size_t>(kPanels, kStoredBytes / bytes_ / kPanels * kPanels);
    for (size_t first = begin; first < end; first += together) {
      const size_t last = std::min(end, first + together);
      size_t row = first_tiles(first, last);
      const auto tile = [&]<size_t MR, size_t NP>(size_t panel) HWY_ATTR {
        run<MR, NP, Multiply>(StoredCodes<Multiply, Block, false>(panel_at(panel), bytes_), row, panel);
      };
      while (row < call_.rows) row += tiles(call_.rows - row, first, last, tile);
    }
  }

  void run_staged(const std::byte* staged, size_t staged_bytes, size_t first, size_t last) const {
    size_t row = 0;
    const auto tile = [&]<size_t MR, size_t NP>(size_t panel) HWY_ATTR {
      run<MR, NP, Multiply>(StagedCodes<Multiply, Block>(staged + (panel - first) * staged_bytes, staged_bytes), row, panel);
    };
    while (row < call_.rows) row += tiles(call_.rows - row, first, last, tile);
  }

  // Room for a row that is not there costs less than another tile.
  size_t first_tiles(size_t first, size_t last) const {
    const auto tile = [&]<size_t MR, size_t NP>(size_t panel) HWY_ATTR {
      using Few = typename Target::template MultiplyFew<Block>;
      using Way = std::conditional_t<MR <= kFewRows, Few, Multiply>;
      run<MR, NP, Way>(StoredCodes<Way, Block, true>(panel_at(panel), bytes_), 0, panel);
    };
    const size_t rows = call_.rows;
    if (kFirstRows > kRows && rows > kRows) return pass<kFirstRows, 1>(first, last, tile);
    if (rows >= kRows || (kPanels > 1 && rows + 1 == kRows)) return pass<kRows, 1>(first, last, tile);
    if constexpr (kRows > 4) {
      if (rows > 2) return pass<4, 1>(first, last, tile);
    }
    return rows == 2 ? pass<2, 1>(first, last, tile) : pass<1, 1>(first, last, tile);
  }

  // Tiles of the next of so many rows; how many they took. Here too, room for one more costs less than another tile.
  template <typename Tile>
  static HWY_INLINE size_t tiles(size_t rows, size_t first, size_t last, const Tile& tile) {
    if (rows >= kRows || (kRows > 3 && rows + 1 == kRows)) return pass<kRows, kPanels>(first, last, tile);
    if constexpr (kRows > 4) {
      if (rows >= 3) return pass<4, kPanels>(first, last, tile);
    }
    return rows >= 2 ? pass<2, kPanels>(first, last, tile) : pass<1, 1>(first, last, tile);
  }

  template <size_t MR, size_t NP, typename Tile>
  static HWY_INLINE size_t pass(size_t first, size_t last, const Tile& tile) {
    size_t panel = first;
    for (; panel + NP <= last; panel += NP) tile.template operator()<MR, NP>(panel);
    for (; panel < last; ++panel) tile.template operator()<MR, 1>(panel);
    return MR;
  }

  template <size_t MR, size_t NP, typename Way, typename Codes>
  HWY_INLINE void run(const Codes& codes, size_t row, size_t panel) const {
    using Activations = Rows<Way, Block, MR>;
    const size_t count = std::min<size_t>(MR, call_.rows - row);
    run_tile<MR, NP>(call_, QuantDot<Way, Block, Codes, Activations>{codes, {call_.quantized + row * stride_, stride_, count}}, row, count, panel);
  }

  const std::byte* panel_at(size_t panel) const { return call_.weight.data + panel * bytes_; }

  const LinearCall& call_;
  size_t blocks_;  // of a row
  size_t stride_;  // from one row to the next, in blocks
  size_t bytes_;   // of a panel
};

template <typename Target, typename Block>
void linear_of(const LinearCall& call, size_t panel_begin, size_t panel_end) {
  QuantLinear<Target, Block>(call).run(panel_begin, panel_end);
}

template <typename Target>
void quantized_linear_any(const LinearCall& call, size_t panel_begin, size_t panel_end) {
  switch (call.weight.format) {
    case WeightFormat::kQ8_0: return linear_of<Target, BlockQ8_0>(call, panel_begin, panel_end);
    case WeightFormat::kQ4_0: return linear_of<Target, BlockQ4_0>(call, panel_begin, panel_end);
    case WeightFormat::kQ8_M: return linear_of<Target, BlockQ8_M>(call, panel_begin, panel_end);
    case WeightFormat::kQ4_K: return linear_of<Target, BlockQ4_K>(call, panel_begin, panel_end);
    default: return linear_of<Target, BlockQ6_K>(call, panel_begin, panel_end);
  }
}

#if HWY_TARGET == HWY_AVX2
bool has_avx_vnni() {  // Highway does not know of it
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
}
#endif

template <typename Target>
QuantizedLinear of_target() {
  return {&quantized_linear_any<Target>, Target::kPairs};
}

QuantizedLinear quantized_linear() {
#if HWY_TARGET == HWY_AVX3
  if (hwy::SupportedTargets() & HWY_AVX3_DL) return of_target<VnniTarget>();
#elif HWY_TARGET == HWY_AVX2
  if (has_avx_vnni()) return of_target<VnniTarget>();
#elif HWY_TARGET == HWY_NEON
  if (has_dot_products()) return of_target<SdotTarget>();
#endif
  return of_target<AnyTarget>();
}
#endif  // SHOAL_PORTABLE_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
HWY_EXPORT(quantized_linear);
QuantizedLinear chosen_quantized_linear() { return HWY_DYNAMIC_DISPATCH(quantized_linear)(); }
}  // namespace shoal
#endif
