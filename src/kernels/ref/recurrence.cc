// Scalar convolution and recurrence of layers that keep a state.
#include <cmath>

#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

namespace shoal::ref {

void convolve(const ConvolveCall& call) {
  for (uint32_t t = 0; t < call.tokens; ++t) {
    for (uint32_t c = 0; c < call.channels; ++c) {
      float acc = call.bias == nullptr ? 0.0f : call.bias[c];
      for (uint32_t j = 0; j < call.taps; ++j) {
        const uint32_t at = t + j;  // of tail and tokens together
        float x = 0;
        if (at >= call.taps - 1) x = call.x[(at - (call.taps - 1)) * call.x_stride + c];
        else if (call.tail != nullptr) x = call.tail[at * call.tail_stride + c];
        acc = std::fma(call.weight[j * call.weight_stride + c], x, acc);
      }
      call.out[t * call.out_stride + c] = call.silu ? silu(acc) : acc;
    }
  }
}

void scan(const ScanCall& call) {
  for (uint32_t d = 0; d < call.width; ++d) {
    for (uint32_t i = 0; i < call.key_dim; ++i) call.state[i * call.width + d] = call.from == nullptr ? 0.0f : call.from[i * call.width + d];
    for (uint32_t t = 0; t < call.tokens; ++t) {
      const float* const k = call.k + t * call.stride;
      const float* const q = call.q + t * call.stride;
      const float* const decay = call.decay + t * call.decay_stride;
      const float v = d < call.values ? call.v[t * call.v_stride + d] : 0.0f;
      float m = 0, o = 0;
      for (uint32_t i = 0; i < call.key_dim; ++i) {
        float& s = call.state[i * call.width + d];
        s = decay[call.decay_by_key ? i : 0] * s;
        m = std::fma(s, k[i], m);
      }
      const float u = call.beta == nullptr ? v : call.beta[t * call.beta_stride] * (v - m);
      for (uint32_t i = 0; i < call.key_dim; ++i) {
        float& s = call.state[i * call.width + d];
        s = std::fma(k[i], u, s);
        o = std::fma(s, q[i], o);
      }
      if (d < call.values) call.out[t * call.out_stride + d] = o;
    }
  }
}

}  // namespace shoal::ref
