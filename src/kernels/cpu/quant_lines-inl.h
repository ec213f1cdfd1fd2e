// Lines of int8 codes: how each packed format yields them, and how each target multiplies them.
#if defined(SHOAL_KERNELS_CPU_QUANT_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHOAL_KERNELS_CPU_QUANT_LINES_INL_H_
#undef SHOAL_KERNELS_CPU_QUANT_LINES_INL_H_
#else
#define SHOAL_KERNELS_CPU_QUANT_LINES_INL_H_
#endif

#include <type_traits>

#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if !SHOAL_PORTABLE_TARGET

using DB = hn::Repartition<uint8_t, DF>;
using VB = hn::Vec<DB>;
constexpr DB kDB;
constexpr size_t kRegBytes = 4 * kLanes;

struct Bytes {  // a line: [16 rows][4 columns]
  VB r[kRegs];
};

HWY_INLINE Bytes load_bytes(const std::byte* p) {
  Bytes y;
  SHOAL_LANES(i) y.r[i] = hn::LoadU(kDB, reinterpret_cast<const uint8_t*>(p) + i * kRegBytes);
  return y;
}
template <int kBits>
HWY_INLINE VB shift_right(VB v) {  // bits of the neighbouring byte come in at the top; mask afterwards
  const hn::Repartition<uint16_t, DB> d16;
  return hn::BitCast(kDB, hn::ShiftRight<kBits>(hn::BitCast(d16, v)));
}
template <int kBits>
HWY_INLINE VB shift_left(VB v) {
  const hn::Repartition<uint16_t, DB> d16;
  return hn::BitCast(kDB, hn::ShiftLeft<kBits>(hn::BitCast(d16, v)));
}
HWY_INLINE VB mask_bits(VB v, int mask) { return hn::And(v, hn::Set(kDB, static_cast<uint8_t>(mask))); }
HWY_INLINE Bytes nibble_line(const std::byte* p, size_t g) {
  Bytes y = load_bytes(p + g % 4 * 64);
  SHOAL_LANES(i) y.r[i] = mask_bits(g < 4 ? y.r[i] : shift_right<4>(y.r[i]), 0x0f);
  return y;
}
HWY_INLINE I16x zero_int() {
  I16x y;
  SHOAL_LANES(i) y.r[i] = hn::Zero(kDI);
  return y;
}
HWY_INLINE F16x load_halves(const std::byte* p) { return load(reinterpret_cast<const hwy::float16_t*>(p)); }
template <typename T>  // int8_t or uint8_t
HWY_INLINE F16x load_small(const std::byte* p) {
  const hn::Rebind<T, DF> d8;
  F16x y;
  SHOAL_LANES(i) {
    y.r[i] = hn::ConvertTo(kDF, hn::PromoteTo(kDI, hn::LoadU(d8, reinterpret_cast<const T*>(p) + i * kLanes)));
  }
  return y;
}

// One block of 32 columns per format (packed.h). line(g): columns 4g..4g+3, each byte the code plus kOffset; unsigned
// lines hold 0..63, the others int8. scale and min are those of a half; kHalves: the halves differ; kMins: there are mins.
struct BlockQ8_0 {
  static constexpr size_t kBytes = 544;
  static constexpr bool kUnsigned = false;
  static constexpr int kOffset = 0;
  static constexpr bool kHalves = false, kMins = false;
  const std::byte* p;
  HWY_INLINE BlockQ8_0(const std::byte* panel, size_t b) : p(panel + b * 544) {}
  HWY_INLINE Bytes line(size_t g) const { return load_bytes(p + g * 64); }
  HWY_INLINE F16x scale(size_t) const { return load_halves(p + 512); }
  HWY_INLINE F16x min(size_t) const { return zero(); }
};

struct BlockQ4_0 {
  static constexpr size_t kBytes = 288;
  static constexpr bool kUnsigned = true;
  static constexpr int kOffset = 8;
  static constexpr bool kHalves = false, kMins = false;
  const std::byte* p;
  HWY_INLINE BlockQ4_0(const std::byte* panel, size_t b) : p(panel + b * 288) {}
  HWY_INLINE Bytes line(size_t g) const { return nibble_line(p, g); }
  HWY_INLINE F16x scale(size_t) const { return load_halves(p + 256); }
  HWY_INLINE F16x min(size_t) const { return zero(); }
};

struct BlockQ8_M {
  static constexpr size_t kBytes = 640;
  static constexpr bool kUnsigned = false;
  static constexpr int kOffset = 0;
  static constexpr bool kHalves = true, kMins = true;
  const std::byte* p;
  HWY_INLINE BlockQ8_M(const std::byte* panel, size_t b) : p(panel + b * 640) {}
  HWY_INLINE Bytes line(size_t g) const { return load_bytes(p + g * 64); }
  HWY_INLINE F16x scale(size_t half) const { return load_halves(p + 512 + 32 * half); }
  HWY_INLINE F16x min(size_t half) const { return load_halves(p + 576 + 32 * half); }
};

struct BlockQ4_K {
  static constexpr size_t kBytes = 288;
  static constexpr bool kUnsigned = true;
  static constexpr int kOffset = 0;
  static constexpr bool kHalves = false, kMins = true;
  const std::byte* super;
  const std::byte* p;
  HWY_INLINE BlockQ4_K(const std::byte* panel, size_t b) : super(panel + b / 8 * 2368), p(super + 64 + b % 8 * 288) {}
  HWY_INLINE Bytes line(size_t g) const { return nibble_line(p + 32, g); }
  HWY_INLINE F16x scale(size_t) const { return load_halves(super) * load_small<uint8_t>(p); }
  HWY_INLINE F16x min(size_t) const { return load_halves(super + 32) * load_small<uint8_t>(p + 16); }
};

struct BlockQ6_K {
  static constexpr size_t kBytes = 416;
  static constexpr bool kUnsigned = true;
  static constexpr int kOffset = 32;
  static constexpr bool kHalves = true, kMins = false;
  const std::byte* super;
  const std::byte* p;
  HWY_INLINE BlockQ6_K(const std::byte* panel, size_t b) : super(panel + b / 8 * 3360), p(super + 32 + b % 8 * 416) {}
  HWY_INLINE Bytes line(size_t g) const {
    Bytes y = nibble_line(p + 32, g);
    const Bytes high = load_bytes(p + 288 + g % 2 * 64);
    SHOAL_LANES(i) {
      const VB h = high.r[i];
      const VB bits = g < 2 ? shift_left<4>(h) : g < 4 ? shift_left<2>(h) : g < 6 ? h : shift_right<2>(h);
      y.r[i] = hn::Or(y.r[i], mask_bits(bits, 0x30));
    }
    return y;
  }
  HWY_INLINE F16x scale(size_t half) const { return load_halves(super) * load_small<int8_t>(p + 16 * half); }
  HWY_INLINE F16x min(size_t) const { return zero(); }
};

// How a target multiplies, kGroup lines at a time: prepare() makes a line ready for many activation rows; add() takes
// lines g.. times their columns of one row into a dot, which starts at -kOffset times the sum of the activations. Dots
// are exact integers, so the ways may differ between targets and formats.
template <int kOffset>
HWY_INLINE I16x start_dot(const QuantBlock& x, size_t first, size_t last) {
  I16x y = zero_int();
  if (kOffset == 0) return y;
  if ((kOffset == 8 || kOffset == 128) && last - first == 8) {
    SHOAL_LANES(i) y.r[i] = hn::Set(kDI, kOffset == 8 ? x.minus_8_sums : x.minus_128_sums);
    return y;
  }
  const int32_t sum = (first < 4 ? x.sum[0] : 0) + (last > 4 ? x.sum[1] : 0);
  SHOAL_LANES(i) y.r[i] = hn::Set(kDI, -kOffset * sum);
  return y;
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2

using D16 = hn::Repartition<int16_t, DF>;
using V16 = hn::Vec<D16>;
#if HWY_TARGET == HWY_AVX3
HWY_INLINE VI add_pairs(V16 a, V16 b) { return VI{_mm512_madd_epi16(a.raw, b.raw)}; }
HWY_INLINE V16 add_byte_pairs(VB a, VB b) { return V16{_mm512_maddubs_epi16(a.raw, b.raw)}; }
#else
HWY_INLINE VI add_pairs(V16 a, V16 b) { return VI{_mm256_madd_epi16(a.raw, b.raw)}; }
HWY_INLINE V16 add_byte_pairs(VB a, VB b) { return V16{_mm256_maddubs_epi16(a.raw, b.raw)}; }
#endif
HWY_INLINE VI broadcast4(const void* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return hn::Set(kDI, four);
}

// Codes up to 63: products of two lines fit 16 bits (4 * 63 * 127 = 32004), so one widening serves both.
template <int kOffset>
struct UnsignedMultiply {
  static constexpr size_t kGroup = 2, kRows = kRegs == 1 ? 8 : 4, kPanels = 1;
  using Line = Bytes;
  static HWY_INLINE Line prepare(const Bytes& line) { return line; }
  static HWY_INLINE I16x start(const QuantBlock& x, size_t first, size_t last) { return start_dot<kOffset>(x, first, last); }
  static HWY_INLINE void add(const Line (&panels)[1][kGroup], const QuantBlock& x, size_t g, I16x (&dots)[1]) {
    const Line* lines = panels[0];
    I16x& dot = dots[0];
    const VB x0 = hn::BitCast(kDB, broadcast4(x.q + 4 * g)), x1 = hn::BitCast(kDB, broadcast4(x.q + 4 * g + 4));
    const V16 ones = hn::Set(D16(), 1);
    SHOAL_LANES(i) {
      const V16 both = hn::Add(add_byte_pairs(lines[0].r[i], x0), add_byte_pairs(lines[1].r[i], x1));
      dot.r[i] = hn::Add(dot.r[i], add_pairs(both, ones));
    }
  }
};

// Codes of eight bits, widened to sixteen first.
struct WideMultiply {
  static constexpr size_t kGroup = 1, kRows = kRegs == 1 ? 8 : 4, kPanels = 1;
  struct Line {
    V16 even[kRegs], odd[kRegs];  // columns (0, 2) and (1, 3) of each row
  };
  static HWY_INLINE Line prepare(const Bytes& line) {
    Line y;
    SHOAL_LANES(i) {
      const V16 both = hn::BitCast(D16(), line.r[i]);
      y.even[i] = hn::ShiftRight<8>(hn::ShiftLeft<8>(both));
      y.odd[i] = hn::ShiftRight<8>(both);
    }
    return y;
  }
  static HWY_INLINE I16x start(const QuantBlock&, size_t, size_t) { return zero_int(); }
  static HWY_INLINE void add(const Line (&panels)[1][kGroup], const QuantBlock& x, size_t g, I16x (&dots)[1]) {
    const Line* line = panels[0];
    I16x& dot = dots[0];
    const V16 x_even = hn::BitCast(D16(), broadcast4(x.pairs + 4 * g)), x_odd = hn::BitCast(D16(), broadcast4(x.pairs + 4 * g + 2));
    SHOAL_LANES(i) {
      const VI pairs = hn::Add(add_pairs(line->even[i], x_even), add_pairs(line->odd[i], x_odd));
      dot.r[i] = hn::Add(dot.r[i], pairs);
    }
  }
};

struct AnyTarget {
  template <typename Block>
  using Multiply = std::conditional_t<Block::kUnsigned, UnsignedMultiply<Block::kOffset>, WideMultiply>;
};

#else

template <int kOffset>
struct AnyMultiply {
  static constexpr size_t kGroup = 1, kRows = 4, kPanels = 1;
  struct Line {
    VI column[4][kRegs];
  };
  static HWY_INLINE Line prepare(const Bytes& line) {
    Line y;
    SHOAL_LANES(i) {
      const VI all = hn::BitCast(kDI, line.r[i]);
      y.column[0][i] = hn::ShiftRight<24>(hn::ShiftLeft<24>(all));
      y.column[1][i] = hn::ShiftRight<24>(hn::ShiftLeft<16>(all));
      y.column[2][i] = hn::ShiftRight<24>(hn::ShiftLeft<8>(all));
      y.column[3][i] = hn::ShiftRight<24>(all);
    }
    return y;
  }
  static HWY_INLINE I16x start(const QuantBlock& x, size_t first, size_t last) { return start_dot<kOffset>(x, first, last); }
  static HWY_INLINE void add(const Line (&panels)[1][kGroup], const QuantBlock& x, size_t g, I16x (&dots)[1]) {
    const Line* line = panels[0];
    I16x& dot = dots[0];
    for (size_t j = 0; j < 4; ++j) {
      const VI xj = hn::Set(kDI, x.q[4 * g + j]);
      SHOAL_LANES(i) dot.r[i] = hn::Add(dot.r[i], hn::Mul(line->column[j][i], xj));
    }
  }
};

struct AnyTarget {
  template <typename Block>
  using Multiply = AnyMultiply<Block::kOffset>;
};

#endif

#if HWY_TARGET == HWY_AVX3
// VPDPBUSD takes unsigned times signed: int8 codes are raised by 128 first.
template <bool kUnsigned, int kOffset>
struct VnniMultiply {
  static constexpr size_t kGroup = 1, kRows = 6, kPanels = 2;
  struct Line {
    __m512i codes;
  };
  static HWY_INLINE Line prepare(const Bytes& line) {
    if (kUnsigned) return {line.r[0].raw};
    return {_mm512_xor_si512(line.r[0].raw, _mm512_set1_epi8(-128))};
  }
  static HWY_INLINE I16x start(const QuantBlock& x, size_t first, size_t last) {
    return start_dot<kUnsigned ? kOffset : 128>(x, first, last);
  }
  template <size_t NP>
  static HWY_INLINE void add(const Line (&lines)[NP][kGroup], const QuantBlock& x, size_t g, I16x (&dots)[NP]) {
    const auto& four = *reinterpret_cast<const int8_t(*)[4]>(x.q + 4 * g);
    if constexpr (NP == 1) {
      asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(dots[0].r[0].raw) : "v"(lines[0][0].codes), "m"(four));
    } else {  // one load of the activations for all panels
      const VI all = broadcast4(four);
      for (size_t p = 0; p < NP; ++p) asm("vpdpbusd %2, %1, %0" : "+v"(dots[p].r[0].raw) : "v"(lines[p][0].codes), "v"(all.raw));
    }
  }
};

struct VnniTarget {
  template <typename Block>
  using Multiply = VnniMultiply<Block::kUnsigned, Block::kOffset>;
};
#endif

#endif  // !SHOAL_PORTABLE_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#endif  // include guard
