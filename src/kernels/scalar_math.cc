#include "kernels/scalar_math.h"

#include <cmath>
#include <cstdint>

namespace shoal {
namespace {

constexpr double kLn2High = 0x1.62e42feep-1;         // 32 bits of ln 2: a product with a small integer is exact
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;    // ln 2 - kLn2High
// pi / 2 in three parts, the first two of 29 and 24 bits: n times them is exact for |n| < 2^24 (Cody and Waite 1980).
constexpr double kHalfPi1 = 0x1.921fb54p+0;
constexpr double kHalfPi2 = 0x1.10b4611p-30;
constexpr double kHalfPi3 = 0x1.4c4c6628b80dcp-59;

constexpr size_t kSideBySide = 8;

template <size_t N>
void exp_of(double* x) {
  double n[N], r[N], sum[N];
  for (size_t j = 0; j < N; ++j) {
    n[j] = std::nearbyint(x[j] / (kLn2High + kLn2Low));
    r[j] = (x[j] - n[j] * kLn2High) - n[j] * kLn2Low;
    sum[j] = 1.0;  // Horner's form of the Taylor series, 0.35^17 / 17! < 1e-22
  }
  for (int i = 16; i >= 1; --i) {
    for (size_t j = 0; j < N; ++j) sum[j] = 1.0 + sum[j] * r[j] / i;
  }
  for (size_t j = 0; j < N; ++j) x[j] = std::ldexp(sum[j], static_cast<int>(n[j]));
}

template <size_t N>
void log_of(double* x) {
  int exponent[N];
  double s[N], s2[N], sum[N];
  for (size_t j = 0; j < N; ++j) {
    double m = std::frexp(x[j], &exponent[j]);  // [0.5, 1)
    if (m < 0.70710678118654752) {
      m *= 2;
      --exponent[j];
    }
    s[j] = (m - 1) / (m + 1);  // log m = 2 artanh s, |s| < 0.172
    s2[j] = s[j] * s[j];
    sum[j] = 0;
  }
  for (int i = 29; i >= 1; i -= 2) {
    for (size_t j = 0; j < N; ++j) sum[j] = 1.0 / i + sum[j] * s2[j];
  }
  for (size_t j = 0; j < N; ++j) x[j] = exponent[j] * kLn2High + (exponent[j] * kLn2Low + 2 * s[j] * sum[j]);
}

template <typename Some, typename One>
void for_each(std::span<double> x, const Some& some, const One& one) {
  size_t at = 0;
  for (; at + kSideBySide <= x.size(); at += kSideBySide) some(&x[at]);
  for (; at < x.size(); ++at) one(&x[at]);
}

}  // namespace

double portable_exp(double x) {
  exp_of<1>(&x);
  return x;
}
double portable_log(double x) {
  log_of<1>(&x);
  return x;
}
void portable_exp(std::span<double> x) { for_each(x, exp_of<kSideBySide>, exp_of<1>); }
void portable_log(std::span<double> x) { for_each(x, log_of<kSideBySide>, log_of<1>); }

double portable_pow(double x, double y) { return portable_exp(y * portable_log(x)); }

SinCos portable_sincos(double x) {
  const double n = std::nearbyint(x * 0.63661977236758134);
  const double r = ((x - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3;
  const double r2 = r * r;
  double s = 1.0, c = 1.0;  // |r| <= pi / 4: 0.79^20 / 20! < 1e-20
  for (int i = 19; i >= 3; i -= 2) s = 1.0 - s * r2 / (i * (i - 1));
  for (int i = 20; i >= 2; i -= 2) c = 1.0 - c * r2 / (i * (i - 1));
  s *= r;
  switch (static_cast<int64_t>(n) & 3) {
    case 0: return {s, c};
    case 1: return {c, -s};
    case 2: return {-s, -c};
    default: return {-c, s};
  }
}

}  // namespace shoal
