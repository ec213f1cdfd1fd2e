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

}  // namespace shoal
