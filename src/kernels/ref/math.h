// The elementary functions of the kernels, scalar. cpu/lanes-inl.h holds the same steps in lanes; the two are compared bit
// for bit over their whole range by kernels_test.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/math_constants.h"

namespace shoal::ref {

// e^r - 1 for |r| <= ln(2)/2: Taylor to degree 7, truncation below 2^-27.
inline float expm1_reduced(float r) {
  float p = kExpTaylor[0];
  for (int i = 1; i < 6; ++i) p = std::fma(p, r, kExpTaylor[i]);
  return std::fma(r * r, p, r);
}

// 0 below ln(2^-126) (no subnormal results), infinity above ln(2^128). Error below 1.5 ulp.
inline float exp(float x) {
  const float clamped = std::fmin(std::fmax(x, kExpLowest), kExpHighest);
  const float n = std::nearbyint(clamped * kLog2E);
  const float r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, clamped));
  const int32_t exponent = static_cast<int32_t>(n);
  const int32_t half = exponent >> 1;
  const float s1 = std::bit_cast<float>((half + 127) << 23);
  const float s2 = std::bit_cast<float>((exponent - half + 127) << 23);
  const float result = (expm1_reduced(r) + 1.0f) * s1 * s2;
  if (x < kExpLowest) return 0.0f;
  return x > kExpHighest ? INFINITY : result;
}

inline float sigmoid_mul(float x, float z) { return x / (1.0f + ref::exp(-z)); }  // x * sigmoid(z)

// tanh by (e^y - 1) / (e^y - 1 + 2), y = 2 |x|: e^y - 1 = 2^n (e^r - 1) + (2^n - 1), in which nothing cancels. Exactly 1
// from |x| = 10 on. Error below 3 ulp.
inline float tanh(float x) {
  const float y = std::fmin(2.0f * std::fabs(x), kTanhLimit);
  const float n = std::nearbyint(y * kLog2E);
  const float r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, y));
  const float s = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  const float minus_one = std::fma(s, expm1_reduced(r), s - 1.0f);
  return std::copysign(minus_one / (minus_one + 2.0f), x);
}

inline float silu(float x) { return sigmoid_mul(x, x); }

// GELU, tanh form (Hendrycks and Gimpel 2016): x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
inline float gelu(float x) {
  const float x2 = x * x;
  return sigmoid_mul(x, x * std::fma(x2, kGeluCubic, kGeluLinear));
}

// GELU by the error function (Hendrycks and Gimpel 2016): x/2 (1 + erf(x / sqrt(2))) = max(x, 0) - |x|/2 erfc(|x| / sqrt(2)), with
// erfc(z) = (a1 t + ... + a5 t^5) e^(-z^2), t = 1 / (1 + p z) (Abramowitz and Stegun 7.1.26). Error below 1.5e-7 |x|/2.
inline float gelu_erf(float x) {
  const float a = std::fabs(x);
  const float t = 1.0f / std::fma(a, kErfcP, 1.0f);
  float p = kErfc[0];
  for (int i = 1; i < 5; ++i) p = std::fma(p, t, kErfc[i]);
  const float tail = (p * t) * ref::exp((x * x) * -0.5f);
  return (x > 0.0f ? x : 0.0f) - (a * 0.5f) * tail;
}

}  // namespace shoal::ref
