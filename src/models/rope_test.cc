#include "models/rope.h"

#include <cmath>

#include "gtest/gtest.h"

namespace shoal {
namespace {

RopeConfig plain() {
  RopeConfig c;
  c.dims = 16;
  c.original_context = 64;
  return c;
}

std::vector<float> frequencies(const RopeConfig& c, uint32_t length = 0) {
  std::vector<float> f(c.dims / 2);
  rope_frequencies(c, length, f.data());
  return f;
}

TEST(RopeTest, PlainFrequenciesArePowersOfTheBase) {
  const auto f = frequencies(plain());
  for (size_t i = 0; i < f.size(); ++i) EXPECT_FLOAT_EQ(f[i], static_cast<float>(std::pow(10000.0, -2.0 * i / 16)));
}

TEST(RopeTest, TheTableIsCosineAndSineOfTheAngle) {
  const RopeFrequencies rope(plain());
  const auto f = frequencies(plain());
  float cos[8], sin[8];
  for (uint32_t position : {0u, 1u, 77u, 131071u, 1000000u}) {
    rope.table(position, 10, cos, sin);
    for (int i = 0; i < 8; ++i) {
      const float angle = static_cast<float>(position) * f[i];
      EXPECT_FLOAT_EQ(cos[i], static_cast<float>(std::cos(double{angle})));
      EXPECT_FLOAT_EQ(sin[i], static_cast<float>(std::sin(double{angle})));
    }
  }
}

TEST(RopeTest, DynamicScalingDependsOnThePromptOnlyBeyondTheTrainedLength) {
  RopeConfig c = plain();
  c.scaling = RopeScaling::kDynamic;
  c.factor = 4;
  EXPECT_EQ(frequencies(c, 1), frequencies(c, 64));
  EXPECT_LT(frequencies(c, 65).back(), frequencies(c, 64).back());
  const RopeFrequencies rope(c);
  float cos1[8], cos2[8], sin[8];
  rope.table(30, 64, cos1, sin);
  rope.table(30, 10, cos2, sin);
  EXPECT_EQ(cos1[3], cos2[3]);
  rope.table(30, 200, cos2, sin);
  EXPECT_NE(cos1[3], cos2[3]);
}

TEST(RopeTest, AnAlphaStretchesTheBaseWhateverTheLength) {
  RopeConfig c = plain();
  c.scaling = RopeScaling::kAlpha;
  c.factor = 1000;
  const double base = 10000.0 * std::pow(1000.0, 16.0 / 14.0);
  const auto f = frequencies(c);
  for (size_t i = 0; i < f.size(); ++i) EXPECT_FLOAT_EQ(f[i], static_cast<float>(std::pow(base, -2.0 * i / 16)));
  EXPECT_EQ(frequencies(c, 1000), f);
}

TEST(RopeTest, QueriesGrowByStepsOfTheTrainedLength) {
  const QueryGrowth growth{0.1, 64};
  EXPECT_EQ(query_growth_at(growth, 63), 1.0f);
  EXPECT_FLOAT_EQ(query_growth_at(growth, 64), static_cast<float>(1 + 0.1 * std::log(2.0)));
  EXPECT_EQ(query_growth_at(growth, 127), query_growth_at(growth, 64));
}

TEST(RopeTest, Llama3KeepsShortWavesAndStretchesLongOnes) {
  RopeConfig c = plain();
  c.scaling = RopeScaling::kLlama3;
  c.factor = 8;
  c.theta = 500000;
  const auto scaled = frequencies(c);
  c.scaling = RopeScaling::kNone;
  const auto exact = frequencies(c);
  EXPECT_EQ(scaled.front(), exact.front());
  EXPECT_FLOAT_EQ(scaled.back(), exact.back() / 8);
}

TEST(RopeTest, YarnScalesTheMagnitude) {
  RopeConfig c = plain();
  c.scaling = RopeScaling::kYarn;
  c.factor = 8;
  float cos[8], sin[8];
  RopeFrequencies(c).table(0, 1, cos, sin);
  EXPECT_FLOAT_EQ(cos[0], static_cast<float>(0.1 * std::log(8.0) + 1.0));
  c.attention_factor = 2.0;
  RopeFrequencies(c).table(0, 1, cos, sin);
  EXPECT_FLOAT_EQ(cos[0], 2.0f);
}

TEST(RopeTest, LongRopeTakesItsFactorsByThePromptsLength) {
  RopeConfig c = plain();
  c.scaling = RopeScaling::kLongRope;
  c.factor = 4;
  c.short_factor.assign(8, 1.0f);
  c.long_factor.assign(8, 2.0f);
  const RopeFrequencies rope(c);
  float cos[8], sin[8];
  const float magnitude = static_cast<float>(std::sqrt(1 + std::log(4.0) / std::log(64.0)));
  rope.table(1, 64, cos, sin);
  EXPECT_NEAR(sin[0], std::sin(1.0) * magnitude, 1e-6);
  rope.table(1, 65, cos, sin);
  EXPECT_NEAR(sin[0], std::sin(0.5) * magnitude, 1e-6);
}

TEST(RopeTest, DivisorsDivide) {
  const std::vector<float> divisors(8, 4.0f);
  float cos[8], sin[8];
  RopeFrequencies(plain(), divisors).table(2, 1, cos, sin);
  EXPECT_NEAR(sin[0], std::sin(0.5), 1e-7);
}

}  // namespace
}  // namespace shoal
