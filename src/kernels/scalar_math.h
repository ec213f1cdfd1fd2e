// Double-precision elementary functions in plain additions, multiplications and divisions. The C library's differ between
// versions and between CPUs of one version; these give the same bits wherever IEEE 754 holds, so that positions are
// embedded identically on every machine. Relative error below 1e-14 in the stated ranges.
#pragma once

#include <span>

namespace shoal {

double portable_exp(double x);               // |x| < 700
double portable_log(double x);               // normal x > 0
// Each number replaced by what these give for it. Several go side by side, for every operation of one waits for the one before.
void portable_exp(std::span<double> x);
void portable_log(std::span<double> x);
double portable_pow(double x, double y);     // normal x > 0, |y log x| < 700
struct SinCos {
  double sin, cos;
};
SinCos portable_sincos(double x);            // |x| < 2^24; absolute error below 1e-15

}  // namespace shoal
