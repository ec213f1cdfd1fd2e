// Scalar norms, activations, rotary embedding and quantisation of activations.
#include <cmath>

#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

namespace shoal::ref {

void quantize_row(const float* x, size_t columns, QuantBlock* out) {
  for (size_t block = 0; block < columns / kQuantBlock; ++block, x += kQuantBlock) {
    QuantBlock& b = out[block];
    float amax = 0;
    for (size_t i = 0; i < kQuantBlock; ++i) amax = std::fmax(amax, std::fabs(x[i]));
    const float inverse = amax > 0 ? 127.0f / amax : 0.0f;
    b.scale = amax / 127.0f;
    b.sum[0] = b.sum[1] = 0;
    for (size_t i = 0; i < kQuantBlock; ++i) {
      const float code = std::fmin(std::fmax(std::nearbyint(x[i] * inverse), -127.0f), 127.0f);
      b.q[i] = static_cast<int8_t>(code);
      b.sum[i / 16] += b.q[i];
    }
  }
}

void rms_norm(const float* x, const float* weight, float eps, size_t n, float* out) {
  float lanes[16] = {};
  for (size_t i = 0; i < n; ++i) lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
  const float inverse = 1.0f / std::sqrt(tree_sum(lanes) / static_cast<float>(n) + eps);
  for (size_t i = 0; i < n; ++i) out[i] = (x[i] * inverse) * weight[i];
}

void layer_norm(const float* x, const float* weight, float eps, size_t n, float* out) {
  float lanes[16] = {}, squares[16] = {};
  for (size_t i = 0; i < n; ++i) lanes[i % 16] += x[i];
  const float mean = tree_sum(lanes) / static_cast<float>(n);
  for (size_t i = 0; i < n; ++i) out[i] = x[i] - mean;
  for (size_t i = 0; i < n; ++i) squares[i % 16] = std::fma(out[i], out[i], squares[i % 16]);
  const float inverse = 1.0f / std::sqrt(tree_sum(squares) / static_cast<float>(n) + eps);
  for (size_t i = 0; i < n; ++i) out[i] = (out[i] * inverse) * weight[i];
}

void add(float* x, const float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] += y[i];
}

void add_scaled(float* x, float factor, const float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] = std::fma(factor, y[i], x[i]);
}

void scale(float* x, float factor, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] *= factor;
}

void silu_mul(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = silu(gate[i]) * up[i];
}

void gelu_mul(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = gelu(gate[i]) * up[i];
}

void gelu_erf_mul(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = up == nullptr ? gelu_erf(gate[i]) : gelu_erf(gate[i]) * up[i];
}

void clamped_mul(const float* gate, const float* up, float alpha, float limit, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const float g = std::fmin(gate[i], limit), u = std::fmin(std::fmax(up[i], -limit), limit);
    out[i] = sigmoid_mul(g, alpha * g) * (u + 1.0f);
  }
}

void sigmoid_mul(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = sigmoid_mul(up[i], gate[i]);
}

void mul(const float* x, const float* y, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = x[i] * y[i];
}

void square_positive(const float* x, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = std::fmax(x[i], 0.0f) * std::fmax(x[i], 0.0f);
}

void softcap(float* x, float cap, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] = cap * ref::tanh(x[i] / cap);
}

void rope(const RopeCall& call) {
  for (uint32_t head = 0; head < call.heads; ++head) {
    float* x = call.x + static_cast<size_t>(head) * call.head_dim;
    for (uint32_t i = 0; i < call.half; ++i) {
      float& first = call.interleaved ? x[2 * i] : x[i];
      float& second = call.interleaved ? x[2 * i + 1] : x[i + call.half];
      const float a = first, b = second, c = call.cos[i], s = call.sin[i];
      first = std::fma(a, c, -(b * s));
      second = std::fma(b, c, a * s);
    }
  }
}

}  // namespace shoal::ref
