// Convolution and recurrence of layers that keep a state: lanes are channels, or values of a head.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/recurrence.cc"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <type_traits>

#include "hwy/cache_control.h"
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

constexpr uint32_t kTapsMax = 64;  // as formats allow

// Of `count` channels from c of one token; rows[j]: what tap j is multiplied with, null for zeros.
HWY_INLINE F16x convolve_lanes(const ConvolveCall& call, const float* const* rows, uint32_t c, size_t count) {
  const auto some = [&](const float* p) HWY_ATTR { return count == 16 ? load(p) : load_first(p, count); };
  F16x acc = call.bias == nullptr ? zero() : some(call.bias + c);
  for (uint32_t j = 0; j < call.taps; ++j) {
    acc = fma(some(call.weight + j * call.weight_stride + c), rows[j] == nullptr ? zero() : some(rows[j] + c), acc);
  }
  return call.silu ? silu(acc) : acc;
}

// Token by token, all channels: rows lie far apart, and each is read again for the tokens after it.
void convolve(const ConvolveCall& call) {
  const float* rows[kTapsMax];
  for (uint32_t t = 0; t < call.tokens; ++t) {
    for (uint32_t j = 0; j < call.taps; ++j) {
      const uint32_t at = t + j, kept = call.taps - 1;
      rows[j] = at >= kept ? call.x + (at - kept) * call.x_stride : call.tail == nullptr ? nullptr : call.tail + at * call.tail_stride;
    }
    float* const out = call.out + t * call.out_stride;
    uint32_t c = 0;
    for (; c + 16 <= call.channels; c += 16) store(convolve_lanes(call, rows, c, 16), out + c);
    if (c < call.channels) store_first(convolve_lanes(call, rows, c, call.channels - c), out + c, call.channels - c);
  }
}

// Values in lanes of sixteen, and tokens, that go side by side: their sums fill the registers.
constexpr uint32_t kWide = kRegs == 1 ? 4 : 2;
constexpr uint32_t kNarrow = kRegs == 1 ? 2 : 1, kTogether = kRegs == 1 ? 4 : 2;

template <uint32_t N>
HWY_INLINE void load_values(const ScanCall& call, uint32_t t, uint32_t d, F16x* values) {
  const float* const v = call.v + t * call.v_stride + d;
  for (uint32_t n = 0; n < N; ++n) {
    const size_t left = call.values > d + 16 * n ? call.values - (d + 16 * n) : 0;
    values[n] = left >= 16 ? load(v + 16 * n) : load_first(v + 16 * n, left);
  }
}

template <uint32_t N>
HWY_INLINE void store_out(const ScanCall& call, uint32_t t, uint32_t d, const F16x* out) {
  for (uint32_t n = 0; n < N; ++n) {
    const size_t left = call.values > d + 16 * n ? call.values - (d + 16 * n) : 0;
    float* const to = call.out + t * call.out_stride + d + 16 * n;
    left >= 16 ? store(out[n], to) : store_first(out[n], to, left);
  }
}

// The first part of the first token of the delta rule: S = decay * from, and what S knows of the key.
template <uint32_t N>
HWY_INLINE void decay_state(const ScanCall& call, uint32_t d, F16x* known) {
  for (uint32_t n = 0; n < N; ++n) known[n] = zero();
  for (uint32_t i = 0; i < call.key_dim; ++i) {
    const F16x by = set1(call.decay[call.decay_by_key ? i : 0]), key = set1(call.k[i]);
    const size_t at = size_t{i} * call.width + d;
    SHOAL_UNROLLED(n, N) {
      const F16x s = call.from == nullptr ? by * zero() : by * load(call.from + at + 16 * n);
      store(s, call.state + at + 16 * n);
      known[n] = fma(s, key, known[n]);
    }
  }
}

// The second part of token t, and of the same numbers of the state, while they are in registers, the first part of the next token.
template <uint32_t N, bool kNext>
HWY_INLINE void update_state(const ScanCall& call, uint32_t t, uint32_t d, F16x* known) {
  const float* const k = call.k + t * call.stride;
  const float* const q = call.q + t * call.stride;
  const float* const next_k = k + call.stride;
  const float* const next_decay = call.decay + (t + 1) * call.decay_stride;
  const F16x beta = set1(call.beta[t * call.beta_stride]);
  F16x update[N], out[N];
  load_values<N>(call, t, d, update);
  for (uint32_t n = 0; n < N; ++n) {
    update[n] = beta * (update[n] - known[n]);
    out[n] = known[n] = zero();
  }
  for (uint32_t i = 0; i < call.key_dim; ++i) {
    const F16x key = set1(k[i]), query = set1(q[i]);
    const F16x by = kNext ? set1(next_decay[call.decay_by_key ? i : 0]) : zero(), next_key = kNext ? set1(next_k[i]) : zero();
    float* const state = call.state + size_t{i} * call.width + d;
    SHOAL_UNROLLED(n, N) {
      F16x s = fma(key, update[n], load(state + 16 * n));
      out[n] = fma(s, query, out[n]);
      if constexpr (kNext) {
        s = by * s;
        known[n] = fma(s, next_key, known[n]);
      }
      store(s, state + 16 * n);
    }
  }
  store_out<N>(call, t, d, out);
}

// Delta rule of N x 16 values from d: the state passes through the registers once a token.
template <uint32_t N>
void scan_delta(const ScanCall& call, uint32_t d) {
  F16x known[N];
  decay_state<N>(call, d, known);
  for (uint32_t t = 0; t + 1 < call.tokens; ++t) update_state<N, true>(call, t, d, known);
  update_state<N, false>(call, call.tokens - 1, d, known);
}

// A single token's delta rule of N x 16 values from d: the state before is read twice, the second time from the caches, and the one
// after is written once.
template <uint32_t N>
void scan_delta_once(const ScanCall& call, uint32_t d) {
  const auto decayed = [&](uint32_t i, uint32_t n) HWY_ATTR {
    const F16x by = set1(call.decay[call.decay_by_key ? i : 0]);
    return by * load(call.from + size_t{i} * call.width + d + 16 * n);
  };
  F16x known[N], update[N], out[N];
  for (uint32_t n = 0; n < N; ++n) known[n] = out[n] = zero();
  for (uint32_t i = 0; i < call.key_dim; ++i) {
    const F16x key = set1(call.k[i]);
    SHOAL_UNROLLED(n, N) known[n] = fma(decayed(i, n), key, known[n]);
  }
  load_values<N>(call, 0, d, update);
  const F16x beta = set1(call.beta[0]);
  for (uint32_t n = 0; n < N; ++n) update[n] = beta * (update[n] - known[n]);
  for (uint32_t i = 0; i < call.key_dim; ++i) {
    const F16x key = set1(call.k[i]), query = set1(call.q[i]);
    SHOAL_UNROLLED(n, N) {
      const F16x s = fma(key, update[n], decayed(i, n));
      out[n] = fma(s, query, out[n]);
      stream(s, call.state + size_t{i} * call.width + d + 16 * n);
    }
  }
  store_out<N>(call, 0, d, out);
}

// Plain form, N x 16 values from d of T tokens: each number of the state goes through the tokens before the next one does.
template <uint32_t N, uint32_t T, bool kStream = false>
HWY_INLINE void scan_tokens(const ScanCall& call, uint32_t first, uint32_t d, const float* from) {
  F16x value[T][N], out[T][N];
  for (uint32_t t = 0; t < T; ++t) {
    load_values<N>(call, first + t, d, value[t]);
    for (uint32_t n = 0; n < N; ++n) out[t][n] = zero();
  }
  const float* const k = call.k + first * call.stride;
  const float* const q = call.q + first * call.stride;
  const float* const decay = call.decay + first * call.decay_stride;
  for (uint32_t i = 0; i < call.key_dim; ++i) {
    const size_t at = size_t{i} * call.width + d;
    F16x s[N];
    SHOAL_UNROLLED(n, N) s[n] = from == nullptr ? zero() : load(from + at + 16 * n);
    SHOAL_UNROLLED(t, T) {
      const F16x key = set1(k[t * call.stride + i]), query = set1(q[t * call.stride + i]);
      const F16x by = set1(decay[t * call.decay_stride + (call.decay_by_key ? i : 0)]);
      SHOAL_UNROLLED(n, N) {
        s[n] = fma(key, value[t][n], by * s[n]);
        out[t][n] = fma(s[n], query, out[t][n]);
      }
    }
    SHOAL_UNROLLED(n, N) kStream ? stream(s[n], call.state + at + 16 * n) : store(s[n], call.state + at + 16 * n);
  }
  for (uint32_t t = 0; t < T; ++t) store_out<N>(call, first + t, d, out[t]);
}

template <uint32_t N, uint32_t T>
void scan_plain(const ScanCall& call, uint32_t d) {
  uint32_t t = 0;
  const float* from = call.from;
  for (; t + T <= call.tokens; t += T, from = call.state) scan_tokens<N, T>(call, t, d, from);
  for (; t < call.tokens; ++t, from = call.state) scan_tokens<N, 1>(call, t, d, from);
}

// Calls body(n, d) for n x 16 values from d until all of `width` are done; n is a constant: kWidest, and one for what is left.
template <uint32_t kWidest, typename Body>
HWY_INLINE void for_values(uint32_t width, const Body& body) {
  uint32_t d = 0;
  for (; d + 16 * kWidest <= width; d += 16 * kWidest) body(std::integral_constant<uint32_t, kWidest>(), d);
  for (; d < width; d += 16) body(std::integral_constant<uint32_t, 1>(), d);
}

// Of one token, whose state after it is not read again before others have passed through the caches: it is written past them, so
// that its lines are not read for it.
void scan_once(const ScanCall& call) {
  if (call.beta != nullptr) {
    for_values<kWide>(call.width, [&](auto n, uint32_t d) HWY_ATTR { scan_delta_once<n()>(call, d); });
  } else {
    for_values<kWide>(call.width, [&](auto n, uint32_t d) HWY_ATTR { scan_tokens<n(), 1, true>(call, 0, d, call.from); });
  }
  hwy::FlushStream();
}

void scan(const ScanCall& call) {
  if (call.tokens == 0) return;
  const bool aligned = reinterpret_cast<uintptr_t>(call.state) % 64 == 0;
  if (call.tokens == 1 && aligned && call.from != nullptr && call.from != call.state) return scan_once(call);
  if (call.beta != nullptr) {
    for_values<kWide>(call.width, [&](auto n, uint32_t d) HWY_ATTR { scan_delta<n()>(call, d); });
  } else if (call.tokens < kTogether) {  // memory bounds it: whole lines, as they lie
    for_values<kWide>(call.width, [&](auto n, uint32_t d) HWY_ATTR { scan_plain<n(), 1>(call, d); });
  } else {
    for_values<kNarrow>(call.width, [&](auto n, uint32_t d) HWY_ATTR { scan_plain<n(), kTogether>(call, d); });
  }
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
