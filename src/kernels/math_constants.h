// Constants of exp, tanh and GELU, shared by the scalar and the SIMD forms so that they cannot drift apart.
#pragma once

namespace shoal {

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2High = 0.693359375f;       // 9 bits: n * kLn2High is exact for |n| < 2^15
inline constexpr float kLn2Low = -2.12194440e-4f;     // ln 2 - kLn2High
inline constexpr float kExpLowest = -87.3365447f;     // ln 2^-126
inline constexpr float kExpHighest = 88.7228317f;     // just below ln 2^128
// 1/7!, 1/6!, ... 1/2!
inline constexpr float kExpTaylor[6] = {1.98412698e-4f, 1.38888889e-3f, 8.33333333e-3f, 4.16666667e-2f, 1.66666667e-1f, 0.5f};
inline constexpr float kTanhLimit = 20.0f;            // of 2 |x|
inline constexpr float kGeluLinear = 1.59576912f;     // 2 sqrt(2/pi)
inline constexpr float kGeluCubic = 0.0713548163f;    // 2 sqrt(2/pi) * 0.044715

// erfc(z) = (a1 t + ... + a5 t^5) e^(-z^2), t = 1 / (1 + p z): a5 .. a1, and p / sqrt(2) for z = |x| / sqrt(2)
inline constexpr float kErfc[5] = {1.061405429f, -1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f};
inline constexpr float kErfcP = 0.231641888f;

}  // namespace shoal
