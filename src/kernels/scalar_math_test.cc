#include "kernels/scalar_math.h"

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"

namespace shoal {
namespace {

TEST(ScalarMathTest, AgreesWithTheCLibraryFarBeyondSinglePrecision) {
  Rng rng(1);
  for (int i = 0; i < 20000; ++i) {
    const double x = rng.uniform() * 1200 - 600, y = std::ldexp(rng.uniform() + 1e-9, static_cast<int>(rng.below(60)) - 30);
    EXPECT_NEAR(portable_exp(x) / std::exp(x), 1.0, 1e-13);
    EXPECT_NEAR(portable_log(y), std::log(y), 1e-14 * (1 + std::fabs(std::log(y))));
    const double angle = (rng.uniform() * 2 - 1) * std::ldexp(1.0, static_cast<int>(rng.below(24)));
    const SinCos got = portable_sincos(angle);
    EXPECT_NEAR(got.sin, std::sin(angle), 1e-15) << angle;
    EXPECT_NEAR(got.cos, std::cos(angle), 1e-15) << angle;
  }
  EXPECT_EQ(portable_log(1.0), 0.0);
  EXPECT_EQ(portable_exp(0.0), 1.0);
}

TEST(ScalarMathTest, ManyAtOnceHaveTheBitsOfEach) {
  Rng rng(2);
  for (size_t count = 0; count < 40; ++count) {
    std::vector<double> x(count), powers, logs;
    for (double& one : x) one = std::ldexp(rng.uniform() + 0.1, static_cast<int>(rng.below(9)));
    powers = logs = x;
    portable_exp(powers);
    portable_log(logs);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(powers[i], portable_exp(x[i]));
      EXPECT_EQ(logs[i], portable_log(x[i]));
    }
  }
}

}  // namespace
}  // namespace shoal
