// Sixteen lanes as one value, whatever the vector width: one register with AVX-512, two with AVX2, four with NEON.
// Every kernel is written in these, so its order of operations is the same on every target.
#if defined(SHOAL_KERNELS_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHOAL_KERNELS_CPU_LANES_INL_H_
#undef SHOAL_KERNELS_CPU_LANES_INL_H_
#else
#define SHOAL_KERNELS_CPU_LANES_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "kernels/kernels.h"
#include "kernels/math_constants.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if !SHOAL_PORTABLE_TARGET
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using MF = hn::Mask<DF>;
constexpr DF kDF;
constexpr DI kDI;
constexpr size_t kLanes = hn::MaxLanes(DF());  // of one register
constexpr size_t kRegs = 16 / kLanes;

struct F16x {  // 16 f32 lanes
  VF r[kRegs];
};
struct I16x {  // 16 i32 lanes
  VI r[kRegs];
};

// A loop over what registers hold. Unrolled from the start, or compilers leave the array in memory: they look for registers before
// they unroll what they count as large or as the outermost loop.
#define SHOAL_UNROLLED(i, count) _Pragma("GCC unroll 32") for (size_t i = 0; i < (count); ++i)
#define SHOAL_LANES(i) SHOAL_UNROLLED(i, kRegs)

HWY_INLINE F16x set1(float x) {
  F16x y;
  SHOAL_LANES(i) y.r[i] = hn::Set(kDF, x);
  return y;
}
HWY_INLINE F16x zero() { return set1(0.0f); }

HWY_INLINE F16x load(const float* p) {
  F16x y;
  SHOAL_LANES(i) y.r[i] = hn::LoadU(kDF, p + i * kLanes);
  return y;
}
HWY_INLINE F16x load(const hwy::float16_t* p) {
  const hn::Rebind<hwy::float16_t, DF> dh;
  F16x y;
  SHOAL_LANES(i) y.r[i] = hn::PromoteTo(kDF, hn::LoadU(dh, p + i * kLanes));
  return y;
}
HWY_INLINE F16x load(const hwy::bfloat16_t* p) {
  const hn::Rebind<uint16_t, DF> dh;
  const hn::RebindToUnsigned<DF> du;
  const auto* bits = reinterpret_cast<const uint16_t*>(p);
  F16x y;
  SHOAL_LANES(i) {
    y.r[i] = hn::BitCast(kDF, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, bits + i * kLanes))));
  }
  return y;
}
HWY_INLINE void store(const F16x& x, float* p) { SHOAL_LANES(i) hn::StoreU(x.r[i], kDF, p + i * kLanes); }
// Past the caches, to whole lines. REQUIRES: p is aligned to 64 bytes; hwy::FlushStream() before another thread reads it.
HWY_INLINE void stream(const F16x& x, float* p) { SHOAL_LANES(i) hn::Stream(x.r[i], kDF, p + i * kLanes); }

// The first n (< 16) elements; the others are zero and are not read.
HWY_INLINE F16x load_first(const float* p, size_t n) {
  float buffer[16] = {};
  std::memcpy(buffer, p, n * sizeof(float));
  return load(buffer);
}
HWY_INLINE void store_first(const F16x& x, float* p, size_t n) {
  float buffer[16];
  store(x, buffer);
  std::memcpy(p, buffer, n * sizeof(float));
}

HWY_INLINE F16x fma(const F16x& a, const F16x& b, const F16x& c) {
  F16x y;
  SHOAL_LANES(i) y.r[i] = hn::MulAdd(a.r[i], b.r[i], c.r[i]);
  return y;
}
HWY_INLINE F16x neg_fma(const F16x& a, const F16x& b, const F16x& c) {  // c - a b
  F16x y;
  SHOAL_LANES(i) y.r[i] = hn::NegMulAdd(a.r[i], b.r[i], c.r[i]);
  return y;
}
HWY_INLINE F16x operator+(const F16x& a, const F16x& b) {
  F16x y;
  SHOAL_LANES(i) y.r[i] = hn::Add(a.r[i], b.r[i]);
  return y;
}
HWY_INLINE F16x operator-(const F16x& a, const F16x& b) {
  F16x y;
  SHOAL_LANES(i) y.r[i] = hn::Sub(a.r[i], b.r[i]);
  return y;
}
HWY_INLINE F16x operator*(const F16x& a, const F16x& b) {
  F16x y;
  SHOAL_LANES(i) y.r[i] = hn::Mul(a.r[i], b.r[i]);
  return y;
}
HWY_INLINE F16x operator/(const F16x& a, const F16x& b) {
  F16x y;
  SHOAL_LANES(i) y.r[i] = hn::Div(a.r[i], b.r[i]);
  return y;
}
HWY_INLINE F16x max(const F16x& a, const F16x& b) {
  F16x y;
  SHOAL_LANES(i) y.r[i] = hn::Max(a.r[i], b.r[i]);
  return y;
}
HWY_INLINE F16x min(const F16x& a, const F16x& b) {
  F16x y;
  SHOAL_LANES(i) y.r[i] = hn::Min(a.r[i], b.r[i]);
  return y;
}
HWY_INLINE F16x abs(const F16x& a) {
  F16x y;
  SHOAL_LANES(i) y.r[i] = hn::Abs(a.r[i]);
  return y;
}
HWY_INLINE F16x to_float(const I16x& a) {
  F16x y;
  SHOAL_LANES(i) y.r[i] = hn::ConvertTo(kDF, a.r[i]);
  return y;
}

// Lanes [first, last] of `a`, the others `other`.
HWY_INLINE F16x select_lanes(size_t first, size_t last, const F16x& a, const F16x& other) {
  F16x y;
  SHOAL_LANES(i) {
    const VI lane = hn::Iota(kDI, static_cast<int32_t>(i * kLanes));
    const auto outside = hn::Or(hn::Lt(lane, hn::Set(kDI, static_cast<int32_t>(first))),
                                hn::Gt(lane, hn::Set(kDI, static_cast<int32_t>(last))));
    y.r[i] = hn::IfThenElse(hn::RebindMask(kDF, outside), other.r[i], a.r[i]);
  }
  return y;
}

// The fixed tree of kernels.h over the lanes.
HWY_INLINE float tree_sum(const F16x& x) {
  float lanes[16];
  store(x, lanes);
  for (size_t width = 8; width >= 1; width /= 2) {
    for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}
HWY_INLINE float tree_max(const F16x& x) {  // exact, so in any order
  VF top = x.r[0];
  for (size_t i = 1; i < kRegs; ++i) top = hn::Max(top, x.r[i]);
  return hn::GetLane(hn::MaxOfLanes(kDF, top));
}

// The functions of ref/math.h, lane by lane.
HWY_INLINE VF expm1_reduced(VF r) {
  VF p = hn::Set(kDF, kExpTaylor[0]);
  for (int i = 1; i < 6; ++i) p = hn::MulAdd(p, r, hn::Set(kDF, kExpTaylor[i]));
  return hn::MulAdd(hn::Mul(r, r), p, r);
}
HWY_INLINE VF reduce(VF x, VI exponent) {  // x - exponent ln 2
  const VF n = hn::ConvertTo(kDF, exponent);
  return hn::MulAdd(n, hn::Set(kDF, -kLn2Low), hn::MulAdd(n, hn::Set(kDF, -kLn2High), x));
}
HWY_INLINE VF power_of_two(VI exponent) {
  return hn::BitCast(kDF, hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(kDI, 127))));
}
HWY_INLINE VF exp(VF x) {
  const VF low = hn::Set(kDF, kExpLowest), high = hn::Set(kDF, kExpHighest);
  const VF clamped = hn::Min(hn::Max(x, low), high);
  const VI exponent = hn::NearestInt(hn::Mul(clamped, hn::Set(kDF, kLog2E)));
  const VF value = hn::Add(expm1_reduced(reduce(clamped, exponent)), hn::Set(kDF, 1.0f));
  const VI half = hn::ShiftRight<1>(exponent);
  const VF result = hn::Mul(hn::Mul(value, power_of_two(half)), power_of_two(hn::Sub(exponent, half)));
  const VF finite = hn::IfThenElse(hn::Gt(x, high), hn::Inf(kDF), result);
  return hn::IfThenElse(hn::Lt(x, low), hn::Zero(kDF), finite);
}
HWY_INLINE F16x exp(const F16x& x) {
  F16x y;
  SHOAL_LANES(i) y.r[i] = exp(x.r[i]);
  return y;
}
// The bits of exp() for x <= 0, with less to do.
HWY_INLINE F16x exp_of_nonpositive(const F16x& x) {
  const VF low = hn::Set(kDF, kExpLowest);
  F16x y;
  SHOAL_LANES(i) {
    const VF clamped = hn::Max(x.r[i], low);
    const VI exponent = hn::NearestInt(hn::Mul(clamped, hn::Set(kDF, kLog2E)));
    const VF value = hn::Add(expm1_reduced(reduce(clamped, exponent)), hn::Set(kDF, 1.0f));
    const VF result = hn::Mul(value, power_of_two(exponent));
    y.r[i] = hn::IfThenZeroElse(hn::Lt(x.r[i], low), result);
  }
  return y;
}
HWY_INLINE float exp1(float x) { return hn::GetLane(exp(hn::Set(kDF, x))); }

HWY_INLINE F16x tanh(const F16x& x) {
  const VF one = hn::Set(kDF, 1.0f), two = hn::Set(kDF, 2.0f);
  F16x result;
  SHOAL_LANES(i) {
    const VF y = hn::Min(hn::Mul(two, hn::Abs(x.r[i])), hn::Set(kDF, kTanhLimit));
    const VI exponent = hn::NearestInt(hn::Mul(y, hn::Set(kDF, kLog2E)));
    const VF s = power_of_two(exponent);
    const VF minus_one = hn::MulAdd(s, expm1_reduced(reduce(y, exponent)), hn::Sub(s, one));
    result.r[i] = hn::CopySign(hn::Div(minus_one, hn::Add(minus_one, two)), x.r[i]);
  }
  return result;
}

HWY_INLINE F16x sigmoid_mul(const F16x& x, const F16x& z) {
  F16x y;
  SHOAL_LANES(i) y.r[i] = hn::Div(x.r[i], hn::Add(hn::Set(kDF, 1.0f), exp(hn::Neg(z.r[i]))));
  return y;
}
HWY_INLINE F16x silu(const F16x& x) { return sigmoid_mul(x, x); }
HWY_INLINE F16x gelu_erf(const F16x& x) {
  const F16x a = abs(x), t = set1(1.0f) / fma(a, set1(kErfcP), set1(1.0f));
  F16x p = set1(kErfc[0]);
  for (int i = 1; i < 5; ++i) p = fma(p, t, set1(kErfc[i]));
  const F16x tail = (p * t) * exp((x * x) * set1(-0.5f));
  return max(x, set1(0.0f)) - (a * set1(0.5f)) * tail;
}
HWY_INLINE F16x gelu(const F16x& x) { return sigmoid_mul(x, x * fma(x * x, set1(kGeluCubic), set1(kGeluLinear))); }

#endif  // !SHOAL_PORTABLE_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#endif  // include guard
