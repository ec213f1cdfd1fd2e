// Convolution and recurrence of layers that keep a state: lanes are channels, or values of a head.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/recurrence.cc"
#include "hwy/foreach_target.h"

#include <algorithm>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/ref/ref.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {
#if SHOAL_PORTABLE_TARGET
using ref::convolve;
using ref::scan;
#else

// Of `count` channels from c.
HWY_INLINE void convolve_lanes(const ConvolveCall& call, uint32_t c, uint32_t count) {
  const bool whole = count == 16;
  const auto some = [&](const float* p) HWY_ATTR { return whole ? load(p) : load_first(p, count); };
  const F16x bias = call.bias == nullptr ? zero() : some(call.bias + c);
  for (uint32_t t = 0; t < call.tokens; ++t) {
    F16x acc = bias;
    for (uint32_t j = 0; j < call.taps; ++j) {
      const uint32_t at = t + j;
      const F16x weight = some(call.weight + j * call.weight_stride + c);
      if (at >= call.taps - 1) {
        acc = fma(weight, some(call.x + (at - (call.taps - 1)) * call.x_stride + c), acc);
      } else if (call.tail != nullptr) {
        acc = fma(weight, some(call.tail + at * call.tail_stride + c), acc);
      } else {
        acc = fma(weight, zero(), acc);
      }
    }
    if (call.silu) acc = silu(acc);
    float* const out = call.out + t * call.out_stride + c;
    whole ? store(acc, out) : store_first(acc, out, count);
  }
}

void convolve(const ConvolveCall& call) {
  for (uint32_t c = 0; c < call.channels; c += 16) convolve_lanes(call, c, std::min(16u, call.channels - c));
}

// The first part of a token: S = decay * from, and what S knows of the key.
template <uint32_t N>
HWY_INLINE void decay_state(const ScanCall& call, uint32_t t, uint32_t d, const float* from, F16x* known) {
  const float* const k = call.k + t * call.stride;
  const float* const decay = call.decay + t * call.decay_stride;
  for (uint32_t n = 0; n < N; ++n) known[n] = zero();
  for (uint32_t i = 0; i < call.key_dim; ++i) {
    const F16x by = set1(decay[call.decay_by_key ? i : 0]), key = set1(k[i]);
    const size_t at = size_t{i} * call.width + d;
    SHOAL_UNROLLED(n, N) {
      const F16x s = from == nullptr ? by * zero() : by * load(from + at + 16 * n);
      store(s, call.state + at + 16 * n);
      known[n] = fma(s, key, known[n]);
    }
  }
}

// N x 16 values from d of one token.
template <uint32_t N>
HWY_INLINE void scan_token(const ScanCall& call, uint32_t t, uint32_t d, const float* from) {
  const float* const k = call.k + t * call.stride;
  const float* const q = call.q + t * call.stride;
  const float* const v = call.v + t * call.v_stride + d;
  F16x update[N], out[N];
  const bool delta = call.beta != nullptr;
  if (delta) decay_state<N>(call, t, d, from, update);
  for (uint32_t n = 0; n < N; ++n) {
    const size_t left = call.values > d + 16 * n ? call.values - (d + 16 * n) : 0;
    const F16x value = left >= 16 ? load(v + 16 * n) : load_first(v + 16 * n, left);
    update[n] = delta ? set1(call.beta[t * call.beta_stride]) * (value - update[n]) : value;
    out[n] = zero();
  }
  const float* const decay = call.decay + t * call.decay_stride;
  for (uint32_t i = 0; i < call.key_dim; ++i) {
    const F16x key = set1(k[i]), query = set1(q[i]);
    const size_t at = size_t{i} * call.width + d;
    const F16x by = set1(decay[call.decay_by_key ? i : 0]);
    SHOAL_UNROLLED(n, N) {
      F16x s;
      if (delta) s = load(call.state + at + 16 * n);
      else s = from == nullptr ? by * zero() : by * load(from + at + 16 * n);
      s = fma(key, update[n], s);
      store(s, call.state + at + 16 * n);
      out[n] = fma(s, query, out[n]);
    }
  }
  for (uint32_t n = 0; n < N; ++n) {
    const size_t left = call.values > d + 16 * n ? call.values - (d + 16 * n) : 0;
    float* const to = call.out + t * call.out_stride + d + 16 * n;
    left >= 16 ? store(out[n], to) : store_first(out[n], to, left);
  }
}

template <uint32_t N>
void scan_values(const ScanCall& call, uint32_t d) {
  scan_token<N>(call, 0, d, call.from);
  for (uint32_t t = 1; t < call.tokens; ++t) scan_token<N>(call, t, d, call.state);
}

void scan(const ScanCall& call) {
  if (call.tokens == 0) return;
  uint32_t d = 0;
  for (; d + 64 <= call.width; d += 64) scan_values<4>(call, d);
  for (; d + 32 <= call.width; d += 32) scan_values<2>(call, d);
  for (; d < call.width; d += 16) scan_values<1>(call, d);
}
#endif  // SHOAL_PORTABLE_TARGET

RecurrenceFunctions recurrence_functions() { return {&convolve, &scan}; }

}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
HWY_EXPORT(recurrence_functions);
RecurrenceFunctions chosen_recurrence() { return HWY_DYNAMIC_DISPATCH(recurrence_functions)(); }
}  // namespace shoal
#endif
