// Norms, activations, rotary embedding and quantisation of activations, 16 lanes at a time.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include "hwy/foreach_target.h"

#include <cmath>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/ref/ref.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if SHOAL_PORTABLE_TARGET
using ref::add;
using ref::add_scaled;
using ref::clamped_mul;
using ref::gelu_erf_mul;
using ref::gelu_mul;
using ref::layer_norm;
using ref::mul;
template <bool>
void quantize_row(const float* x, size_t columns, QuantBlock* out) {
  ref::quantize_row(x, columns, out);
}
using ref::rms_norm;
using ref::rope;
using ref::scale;
using ref::sigmoid_mul;
using ref::silu_mul;
using ref::softcap;
using ref::square_positive;
#else

// Calls body(i, 16) for whole stretches of 16 elements and body(i, rest) for what is left.
template <typename Body>
HWY_INLINE void for_each_16(size_t n, const Body& body) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) body(i, 16);
  if (i < n) body(i, n - i);
}
HWY_INLINE F16x load_some(const float* p, size_t count) { return count == 16 ? load(p) : load_first(p, count); }
HWY_INLINE void store_some(const F16x& x, float* p, size_t count) { count == 16 ? store(x, p) : store_first(x, p, count); }

void rms_norm(const float* x, const float* weight, float eps, size_t n, float* out) {
  F16x sum = zero();
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR {
    const F16x v = load_some(x + i, count);
    sum = fma(v, v, sum);
  });
  const F16x inverse = set1(1.0f / std::sqrt(tree_sum(sum) / static_cast<float>(n) + eps));
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR {
    store_some((load_some(x + i, count) * inverse) * load_some(weight + i, count), out + i, count);
  });
}

void layer_norm(const float* x, const float* weight, float eps, size_t n, float* out) {
  F16x sum = zero(), squares = zero();
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR { sum = sum + load_some(x + i, count); });
  const F16x mean = set1(tree_sum(sum) / static_cast<float>(n));
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR {
    store_some(load_some(x + i, count) - mean, out + i, count);
    const F16x d = load_some(out + i, count);  // zero beyond the end
    squares = fma(d, d, squares);
  });
  const F16x inverse = set1(1.0f / std::sqrt(tree_sum(squares) / static_cast<float>(n) + eps));
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR {
    store_some((load_some(out + i, count) * inverse) * load_some(weight + i, count), out + i, count);
  });
}

void add(float* x, const float* y, size_t n) {
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR {
    store_some(load_some(x + i, count) + load_some(y + i, count), x + i, count);
  });
}

void scale(float* x, float factor, size_t n) {
  const F16x f = set1(factor);
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR { store_some(load_some(x + i, count) * f, x + i, count); });
}

void add_scaled(float* x, float factor, const float* y, size_t n) {
  const F16x f = set1(factor);
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR { store_some(fma(f, load_some(y + i, count), load_some(x + i, count)), x + i, count); });
}

void silu_mul(const float* gate, const float* up, size_t n, float* out) {
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR {
    store_some(silu(load_some(gate + i, count)) * load_some(up + i, count), out + i, count);
  });
}

void gelu_mul(const float* gate, const float* up, size_t n, float* out) {
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR {
    store_some(gelu(load_some(gate + i, count)) * load_some(up + i, count), out + i, count);
  });
}

void gelu_erf_mul(const float* gate, const float* up, size_t n, float* out) {
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR {
    const F16x activated = gelu_erf(load_some(gate + i, count));
    store_some(up == nullptr ? activated : activated * load_some(up + i, count), out + i, count);
  });
}

void clamped_mul(const float* gate, const float* up, float alpha, float limit, size_t n, float* out) {
  const F16x a = set1(alpha), high = set1(limit), low = set1(-limit), one = set1(1.0f);
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR {
    const F16x g = min(load_some(gate + i, count), high), u = min(max(load_some(up + i, count), low), high);
    store_some(sigmoid_mul(g, a * g) * (u + one), out + i, count);
  });
}

void sigmoid_mul(const float* gate, const float* up, size_t n, float* out) {
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR {
    store_some(sigmoid_mul(load_some(up + i, count), load_some(gate + i, count)), out + i, count);
  });
}

void mul(const float* x, const float* y, size_t n, float* out) {
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR { store_some(load_some(x + i, count) * load_some(y + i, count), out + i, count); });
}

void square_positive(const float* x, size_t n, float* out) {
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR {
    const F16x positive = max(load_some(x + i, count), zero());
    store_some(positive * positive, out + i, count);
  });
}

void softcap(float* x, float cap, size_t n) {
  const F16x c = set1(cap);
  for_each_16(n, [&](size_t i, size_t count) HWY_ATTR {
    store_some(c * tanh(load_some(x + i, count) / c), x + i, count);
  });
}

HWY_INLINE void turn(F16x& a, F16x& b, const F16x& c, const F16x& s) {
  const F16x first = fma(a, c, zero() - b * s);
  b = fma(b, c, a * s);
  a = first;
}

void rope_halves(const RopeCall& call, float* x) {
  for_each_16(call.half, [&](size_t i, size_t count) HWY_ATTR {
    F16x a = load_some(x + i, count), b = load_some(x + call.half + i, count);
    turn(a, b, load_some(call.cos + i, count), load_some(call.sin + i, count));
    store_some(a, x + i, count);
    store_some(b, x + call.half + i, count);
  });
}

void rope_pairs(const RopeCall& call, float* x) {
  for_each_16(call.half, [&](size_t i, size_t count) HWY_ATTR {
    float first[16], second[16];
    for (size_t j = 0; j < count; ++j) first[j] = x[2 * (i + j)], second[j] = x[2 * (i + j) + 1];
    F16x a = load_first(first, count), b = load_first(second, count);
    turn(a, b, load_some(call.cos + i, count), load_some(call.sin + i, count));
    store(a, first);
    store(b, second);
    for (size_t j = 0; j < count; ++j) x[2 * (i + j)] = first[j], x[2 * (i + j) + 1] = second[j];
  });
}

void rope(const RopeCall& call) {
  for (size_t head = 0; head < call.heads; ++head) {
    float* x = call.x + head * call.head_dim;
    call.interleaved ? rope_pairs(call, x) : rope_halves(call, x);
  }
}

// Rounds 16 activations to int8, stores them and returns their sum.
HWY_INLINE int32_t quantize_half(const F16x& x, const F16x& inverse, int8_t* q) {
  const F16x scaled = x * inverse;
  int32_t sum = 0;
  SHOAL_LANES(i) {
    const hn::Rebind<int8_t, DF> d8;
    const VI code = hn::Min(hn::Max(hn::NearestInt(scaled.r[i]), hn::Set(kDI, -127)), hn::Set(kDI, 127));
    hn::StoreU(hn::DemoteTo(d8, code), d8, q + i * kLanes);
    sum += hn::GetLane(hn::SumOfLanes(kDI, code));
  }
  return sum;
}

// 16 codes as int16, the middle two of each four exchanged.
HWY_INLINE void widen_pairs(const int8_t* q, int16_t* pairs) {
  const hn::FixedTag<int8_t, 16> d8;
  const hn::FixedTag<int8_t, 8> d8_half;
  const hn::FixedTag<int16_t, 8> d16;
  alignas(16) static constexpr int8_t kOrder[16] = {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15};
  const auto ordered = hn::TableLookupBytes(hn::LoadU(d8, q), hn::Load(d8, kOrder));
  hn::StoreU(hn::PromoteTo(d16, hn::LowerHalf(d8_half, ordered)), d16, pairs);
  hn::StoreU(hn::PromoteTo(d16, hn::UpperHalf(d8_half, ordered)), d16, pairs + 8);
}

template <bool kPairs>
void quantize_row(const float* x, size_t columns, QuantBlock* out) {
  auto* pairs = reinterpret_cast<int16_t*>(out + columns / kQuantBlock);
  for (size_t block = 0; block < columns / kQuantBlock; ++block, x += kQuantBlock) {
    QuantBlock& b = out[block];
    const F16x low = load(x), high = load(x + 16);
    const float amax = tree_max(max(abs(low), abs(high)));
    const F16x inverse = set1(amax > 0 ? 127.0f / amax : 0.0f);
    b.scale = amax / 127.0f;
    b.sum[0] = quantize_half(low, inverse, b.q);
    b.sum[1] = quantize_half(high, inverse, b.q + 16);
    for (size_t i = 0; kPairs && i < kQuantBlock; i += 16, pairs += 16) widen_pairs(b.q + i, pairs);
  }
}
#endif  // SHOAL_PORTABLE_TARGET

void fill_elementwise(Kernels& kernels) {
  kernels.quantize_row = kernels.quant_pairs ? &quantize_row<true> : &quantize_row<false>;
  kernels.rms_norm = &rms_norm;
  kernels.layer_norm = &layer_norm;
  kernels.add = &add;
  kernels.scale = &scale;
  kernels.add_scaled = &add_scaled;
  kernels.silu_mul = &silu_mul;
  kernels.gelu_mul = &gelu_mul;
  kernels.gelu_erf_mul = &gelu_erf_mul;
  kernels.clamped_mul = &clamped_mul;
  kernels.sigmoid_mul = &sigmoid_mul;
  kernels.mul = &mul;
  kernels.square_positive = &square_positive;
  kernels.softcap = &softcap;
  kernels.rope = &rope;
}

}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
HWY_EXPORT(fill_elementwise);
void choose_elementwise(Kernels& kernels) { HWY_DYNAMIC_DISPATCH(fill_elementwise)(kernels); }
}  // namespace shoal
#endif
