// Layers that keep a state of fixed size instead of keys and values: their convolution and their recurrence, token by token, as
// every backend computes them (kernels.h). There is one form for prompts, decoding and recomputation, so that no cut shows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shoal {

constexpr uint32_t kScanValuesMax = 64;  // values of a ScanCall

// Each channel's convolution over consecutive tokens of one sequence. Per token t and channel c, with x[-1], x[-2] .. from `tail`:
//   acc = bias[c] or 0; acc = fma(weight[j][c], x[t - (taps - 1) + j][c], acc) for j ascending; out = acc, or acc / (1 + exp(-acc))
struct ConvolveCall {
  const float* x = nullptr;       // token t: x + t * x_stride
  size_t x_stride = 0;
  const float* tail = nullptr;    // [taps - 1][tail_stride], oldest first; null: zeros
  size_t tail_stride = 0;
  const float* weight = nullptr;  // [taps][weight_stride]
  size_t weight_stride = 0;
  const float* bias = nullptr;    // [channels], or none
  float* out = nullptr;           // not x
  size_t out_stride = 0;
  uint32_t channels = 0, taps = 0, tokens = 0;
  bool silu = false;
};

// The recurrence of one head over consecutive tokens of one sequence, for a stretch of its values: state S [key_dim][values].
// Per token and value, i ascending in every sum, from 0:
//   plain (Mamba 2, arXiv 2405.21060)       S[i] = fma(k[i], v, decay * S[i]); o = fma(S[i], q[i], o)
//   delta rule (arXiv 2412.06464)           S[i] = decay[i] * S[i], m = fma(S[i], k[i], m); u = beta * (v - m);
//                                           S[i] = fma(k[i], u, S[i]), o = fma(S[i], q[i], o)
struct ScanCall {
  const float* from = nullptr;  // [key_dim][width], before the first token; null: zeros; may be `state`
  float* state = nullptr;       // [key_dim][width], after the last; channels beyond `values` are written, and mean nothing
  uint32_t width = 0;           // whole lanes
  const float* q = nullptr;     // token t: q + t * stride, [key_dim]
  const float* k = nullptr;     // likewise
  size_t stride = 0;
  const float* v = nullptr;     // token t: v + t * v_stride, [values]
  size_t v_stride = 0;
  const float* decay = nullptr; // token t: decay + t * decay_stride, one number or [key_dim]
  size_t decay_stride = 0;
  bool decay_by_key = false;
  const float* beta = nullptr;  // token t: beta[t * beta_stride]; null: the plain form
  size_t beta_stride = 0;
  float* out = nullptr;         // token t: out + t * out_stride, [values]
  size_t out_stride = 0;
  uint32_t key_dim = 0, values = 0, tokens = 0;
};

}  // namespace shoal
