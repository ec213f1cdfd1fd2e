// Lines of int8 codes: how each packed format yields them, and how each target multiplies them.
#if defined(SHOAL_KERNELS_CPU_QUANT_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHOAL_KERNELS_CPU_QUANT_LINES_INL_H_
#undef SHOAL_KERNELS_CPU_QUANT_LINES_INL_H_
#else
#define SHOAL_KERNELS_CPU_QUANT_LINES_INL_H_
#endif

#include <type_traits>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/neon_dot-inl.h"

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
HWY_INLINE void store_bytes(const Bytes& x, std::byte* p) {
  SHOAL_LANES(i) hn::StoreU(x.r[i], kDB, reinterpret_cast<uint8_t*>(p) + i * kRegBytes);
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

// How a target multiplies: a line gives kElements elements of 64 bytes, each ready for many rows of activations;
// add() takes an element times the four bytes of a row's codes for it, of those in pairs if kPairs; finish() gives the integer dots. To a dot of
// codes that are stored raised by kRaised, start() or finish() adds -kRaised times the sum of the activations. Dots are exact, so the
// ways may differ between targets and formats. kRows x kPanels is the tile that the registers hold.
HWY_INLINE VI broadcast4(const void* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return hn::Set(kDI, four);
}
HWY_INLINE void fill(int32_t value, I16x& y) {
  SHOAL_LANES(i) y.r[i] = hn::Set(kDI, value);
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

// A sum that grows term by term: compilers would gather the terms into a tree, for which there are not enough registers. As an
// operand itself, a sum in an array would be stored each time.
template <typename V>
HWY_INLINE void grow(V& sum, V term) {
  V grown = hn::Add(sum, term);
  asm("" : "+v"(grown.raw));
  sum = grown;
}

// Unsigned codes up to 15 or 63: products of kTogether lines fit 16 bits (2 * 8 * 15 * 127 = 30480, 2 * 2 * 63 * 127 =
// 32004) and are widened together.
template <int kOffset, size_t kTogether>
struct UnsignedMultiply {
  static constexpr size_t kElements = 1, kRows = (kTogether == 8 ? 6 : 3) * (kRegs == 1 ? 2 : 1), kPanels = 1;
  static constexpr int kRaised = kOffset;
  struct Dot {
    V16 narrow[kRegs];
    I16x wide;
  };
  static HWY_INLINE Bytes element(const Bytes& line, size_t) { return line; }
  static constexpr bool kPairs = false;
  static HWY_INLINE void start(int32_t, Dot&) {}
  static HWY_INLINE void add(const Bytes& codes, VI x, size_t element, Dot& dot) {
    SHOAL_LANES(i) {
      const V16 pairs = add_byte_pairs(codes.r[i], hn::BitCast(kDB, x));
      if (element % kTogether == 0) {
        dot.narrow[i] = pairs;
      } else {
        grow(dot.narrow[i], pairs);
      }
      if (element % kTogether + 1 < kTogether) continue;
      const VI widened = add_pairs(dot.narrow[i], hn::Set(D16(), 1));
      if (element < kTogether) {
        dot.wide.r[i] = widened;
      } else {
        grow(dot.wide.r[i], widened);
      }
    }
  }
  static HWY_INLINE I16x finish(int32_t raised_sums, const Dot& dot) {  // what is added now was in no register until now
    I16x y;
    SHOAL_LANES(i) y.r[i] = kRaised == 0 ? dot.wide.r[i] : hn::Add(dot.wide.r[i], hn::Set(kDI, raised_sums));
    return y;
  }
};

// Codes of eight bits, widened to sixteen first: columns (0, 2), then (1, 3) of each row.
struct WideMultiply {
  static constexpr size_t kElements = 2, kRows = 6, kPanels = kRegs == 1 ? 2 : 1;
  static constexpr int kRaised = 0;
  using Dot = I16x;
  static HWY_INLINE Bytes element(const Bytes& line, size_t e) {
    Bytes y;
    SHOAL_LANES(i) {
      const V16 both = hn::BitCast(D16(), line.r[i]);
      y.r[i] = hn::BitCast(kDB, hn::ShiftRight<8>(e == 0 ? hn::ShiftLeft<8>(both) : both));
    }
    return y;
  }
  static constexpr bool kPairs = true;
  static HWY_INLINE void start(int32_t, Dot& dot) { fill(0, dot); }
  static HWY_INLINE void add(const Bytes& codes, VI x, size_t, Dot& dot) {
    SHOAL_LANES(i) grow(dot.r[i], add_pairs(hn::BitCast(D16(), codes.r[i]), hn::BitCast(D16(), x)));
  }
  static HWY_INLINE I16x finish(int32_t, const Dot& dot) { return dot; }
};

// Codes of eight bits for a few rows: magnitudes times activations of the codes' signs, so nothing is widened and there is
// one sum to grow. 2 * 128 * 127 fits 16 bits.
struct SignMultiply {
  static constexpr size_t kElements = 1, kRows = 4, kPanels = 1;
  static constexpr int kRaised = 0;
  using Dot = I16x;
  static HWY_INLINE Bytes element(const Bytes& line, size_t) { return line; }
  static constexpr bool kPairs = false;
  static HWY_INLINE void start(int32_t, Dot& dot) { fill(0, dot); }
  static HWY_INLINE void add(const Bytes& codes, VI x, size_t, Dot& dot) {
    const hn::RebindToSigned<DB> signed_bytes;
    SHOAL_LANES(i) {
      const auto code = hn::BitCast(signed_bytes, codes.r[i]);
      const VB magnitude = hn::BitCast(kDB, hn::Abs(code));
      grow(dot.r[i], add_pairs(add_byte_pairs(magnitude, with_sign_of(x, code)), hn::Set(D16(), 1)));
    }
  }
  static HWY_INLINE I16x finish(int32_t, const Dot& dot) { return dot; }

 private:
  template <typename V>
  static HWY_INLINE VB with_sign_of(VI x, V code) {
#if HWY_TARGET == HWY_AVX2
    return VB{_mm256_sign_epi8(x.raw, code.raw)};
#else
    const hn::RebindToSigned<DB> signed_bytes;
    const auto value = hn::BitCast(signed_bytes, x);
    return hn::BitCast(kDB, hn::IfThenElse(hn::Lt(code, hn::Zero(signed_bytes)), hn::Neg(value), value));
#endif
  }
};

// MultiplyFew is for rows that wait for memory.
struct AnyTarget {
  static constexpr bool kPairs = true;  // for codes of eight bits
  template <typename Block>
  using Multiply = std::conditional_t<Block::kUnsigned, UnsignedMultiply<Block::kOffset, Block::kOffset == 32 ? 2 : 8>, WideMultiply>;
  template <typename Block>
  using MultiplyFew = std::conditional_t<Block::kUnsigned, Multiply<Block>, SignMultiply>;
};

#else  // NEON

template <int kOffset, typename Products>
struct NeonMultiply {
  static constexpr size_t kElements = 1, kRows = 4, kPanels = 1;
  static constexpr int kRaised = kOffset;
  using Dot = I16x;
  static HWY_INLINE Bytes element(const Bytes& line, size_t) { return line; }
  static constexpr bool kPairs = false;
  static HWY_INLINE void start(int32_t raised_sums, Dot& dot) { fill(raised_sums, dot); }
  static HWY_INLINE void add(const Bytes& codes, VI x, size_t, Dot& dot) {
    SHOAL_LANES(i) dot.r[i] = VI(Products::add(dot.r[i].raw, vreinterpretq_s8_u8(codes.r[i].raw), vreinterpretq_s8_s32(x.raw)));
  }
  static HWY_INLINE I16x finish(int32_t, const Dot& dot) { return dot; }
};

struct AnyTarget {
  static constexpr bool kPairs = false;
  template <typename Block>
  using Multiply = NeonMultiply<Block::kOffset, WithoutSdot>;
  template <typename Block>
  using MultiplyFew = Multiply<Block>;
};
struct SdotTarget {
  static constexpr bool kPairs = false;
  template <typename Block>
  using Multiply = NeonMultiply<Block::kOffset, WithSdot>;
  template <typename Block>
  using MultiplyFew = Multiply<Block>;
};

#endif

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
// VPDPBUSD takes unsigned times signed: int8 codes are raised by 128 first. In the AVX2 code it is that of AVX-VNNI.
template <bool kUnsigned, int kOffset>
struct VnniMultiply {
  static constexpr size_t kElements = 1, kRows = 6, kPanels = kRegs == 1 ? 2 : 1;
  static constexpr int kRaised = kUnsigned ? kOffset : 128;
  using Dot = I16x;
  static HWY_INLINE Bytes element(const Bytes& line, size_t) {
    if (kUnsigned) return line;
    Bytes y;
    SHOAL_LANES(i) y.r[i] = hn::Xor(line.r[i], hn::Set(kDB, uint8_t{0x80}));
    return y;
  }
  static constexpr bool kPairs = false;
  static HWY_INLINE void start(int32_t raised_sums, Dot& dot) { fill(raised_sums, dot); }
  static HWY_INLINE void add(const Bytes& codes, VI x, size_t, Dot& dot) {
    SHOAL_LANES(i) {
      auto sum = dot.r[i].raw;  // see grow()
#if HWY_TARGET == HWY_AVX3
      asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes.r[i].raw), "v"(x.raw));
#else
      asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(codes.r[i].raw), "x"(x.raw));
#endif
      dot.r[i].raw = sum;
    }
  }
  static HWY_INLINE I16x finish(int32_t, const Dot& dot) { return dot; }
};

struct VnniTarget {
  static constexpr bool kPairs = false;
  template <typename Block>
  using Multiply = VnniMultiply<Block::kUnsigned, Block::kOffset>;
  template <typename Block>
  using MultiplyFew = Multiply<Block>;
};
#endif

#endif  // !SHOAL_PORTABLE_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#endif  // include guard
