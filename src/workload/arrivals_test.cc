#include "workload/arrivals.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

std::vector<double> gaps(const std::vector<double>& times) {
  std::vector<double> out = {times[0]};
  for (size_t i = 1; i < times.size(); ++i) out.push_back(times[i] - times[i - 1]);
  return out;
}

double variation(const std::vector<double>& values) {
  double mean = 0, squares = 0;
  for (const double v : values) mean += v / static_cast<double>(values.size());
  for (const double v : values) squares += (v - mean) * (v - mean) / static_cast<double>(values.size());
  return std::sqrt(squares) / mean;
}

TEST(Arrivals, InfiniteRateSendsAllAtOnce) {
  EXPECT_EQ(*arrival_times_s({}, 3), (std::vector<double>{0, 0, 0}));
}

TEST(Arrivals, TheRateThatWasAskedForIsOfferedWhateverTheShape) {
  for (const double shape : {0.2, 1.0, 5.0}) {
    const auto times = *arrival_times_s({.rate = 8, .burstiness = shape, .seed = 4}, 4000);
    EXPECT_NEAR(times.back(), 500, 1e-6);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    EXPECT_NEAR(variation(gaps(times)), 1 / std::sqrt(shape), 0.12 / std::sqrt(shape)) << shape;  // of a gamma distribution
  }
}

TEST(Arrivals, AnInfiniteShapeIsAClock) {
  const auto times = *arrival_times_s({.rate = 4, .burstiness = INFINITY}, 8);
  for (size_t i = 0; i < times.size(); ++i) EXPECT_NEAR(times[i], 0.25 * static_cast<double>(i + 1), 1e-9);
}

TEST(Arrivals, BurstsComeTogetherAtTheSameRate) {
  const auto times = *arrival_times_s({.rate = 10, .burst_size = 5}, 1000);
  EXPECT_EQ(std::set<double>(times.begin(), times.end()).size(), 200u);
  EXPECT_NEAR(times.back(), 100, 1e-6);
}

TEST(Arrivals, ARampEndsFasterThanItBegins) {
  for (const char* ramp : {"linear", "exponential"}) {
    const auto times = *arrival_times_s({.burstiness = INFINITY, .ramp = ramp, .ramp_start = 1, .ramp_end = 10}, 100);
    EXPECT_NEAR(times[0], 1, 1e-9) << ramp;
    EXPECT_LT(times[99] - times[98], 0.12) << ramp;
  }
}

TEST(Arrivals, SameSeedSameTimes) {
  EXPECT_EQ(*arrival_times_s({.rate = 3, .seed = 7}, 50), *arrival_times_s({.rate = 3, .seed = 7}, 50));
  EXPECT_NE(*arrival_times_s({.rate = 3, .seed = 7}, 50), *arrival_times_s({.rate = 3, .seed = 8}, 50));
}

TEST(Arrivals, NonsenseIsRefusedByFlag) {
  EXPECT_THAT(arrival_times_s({.rate = 0}, 1).status().message(), HasSubstr("--request-rate"));
  EXPECT_THAT(arrival_times_s({.rate = NAN}, 1).status().message(), HasSubstr("--request-rate"));
  EXPECT_THAT(arrival_times_s({.rate = 1, .burstiness = -1}, 1).status().message(), HasSubstr("--burstiness"));
  EXPECT_THAT(arrival_times_s({.ramp = "up"}, 1).status().message(), HasSubstr("--ramp-up-strategy"));
  EXPECT_THAT(arrival_times_s({.ramp = "linear"}, 1).status().message(), HasSubstr("--ramp-up-start-rps"));
}

TEST(Arrivals, WithoutARateBurstsComeAtOnceToo) {
  EXPECT_EQ(*arrival_times_s({.burst_size = 7, .seed = 3}, 20), std::vector<double>(20, 0.0));
  EXPECT_TRUE(arrival_times_s({.rate = 5}, 0)->empty());
}

TEST(Arrivals, ABurstThatIsCutShortKeepsTheRate) {
  const auto times = *arrival_times_s({.rate = 10, .burst_size = 8, .seed = 1}, 20);  // 8, 8 and 4
  EXPECT_EQ(times[0], times[7]);
  EXPECT_EQ(times[16], times[19]);
  EXPECT_LT(times[7], times[8]);
  EXPECT_NEAR(times.back(), 2, 1e-9);
}

TEST(Arrivals, ARampIsAskedAtTheProgressOfEachRequest) {
  const auto linear = *arrival_times_s({.burstiness = INFINITY, .ramp = "linear", .ramp_start = 2, .ramp_end = 4}, 2);
  EXPECT_NEAR(linear[0], 1 / 2.0, 1e-12);
  EXPECT_NEAR(linear[1], 1 / 2.0 + 1 / 3.0, 1e-12);  // half way from 2 to 4
  const auto exponential = *arrival_times_s({.burstiness = INFINITY, .ramp = "exponential", .ramp_start = 1, .ramp_end = 16}, 2);
  EXPECT_NEAR(exponential[1], 1 + 1 / 4.0, 1e-12);
  const auto down = *arrival_times_s({.burstiness = INFINITY, .ramp = "linear", .ramp_start = 10, .ramp_end = 1}, 50);
  EXPECT_LT(down[1] - down[0], down[49] - down[48]);
}

TEST(Arrivals, ARampTakesNoNoticeOfTheRate) {
  const ArrivalSpec ramp{.rate = 1000, .ramp = "linear", .ramp_start = 1, .ramp_end = 2, .seed = 5};
  ArrivalSpec other = ramp;
  other.rate = 1;
  EXPECT_EQ(*arrival_times_s(ramp, 30), *arrival_times_s(other, 30));
}

TEST(Arrivals, EveryBoundOfARampIsChecked) {
  for (const auto& [begin, end] : {std::pair(0.0, 1.0), {1.0, 0.0}, {-1.0, 1.0}, {INFINITY, 1.0}, {1.0, INFINITY}, {NAN, 1.0}, {1.0, NAN}}) {
    EXPECT_THAT(arrival_times_s({.ramp = "linear", .ramp_start = begin, .ramp_end = end}, 3).status().message(), HasSubstr("above 0 and finite")) << begin << " " << end;
  }
  EXPECT_THAT(arrival_times_s({.rate = 1, .burst_size = 0}, 3).status().message(), HasSubstr("--burst-size"));
  EXPECT_THAT(arrival_times_s({.rate = 1, .burstiness = NAN}, 3).status().message(), HasSubstr("--burstiness"));
  EXPECT_FALSE(arrival_times_s({.rate = -3}, 3).ok());
}

TEST(UnitGamma, HasMeanOneAndTheVariationOfItsShape) {
  for (const double shape : {0.1, 0.5, 1.0, 2.0, 30.0}) {
    Rng rng(11);
    std::vector<double> values(40'000);
    for (double& v : values) v = unit_gamma(rng, shape);
    double mean = 0;
    for (const double v : values) mean += v / static_cast<double>(values.size());
    EXPECT_NEAR(mean, 1, 0.05 / std::sqrt(shape)) << shape;
    EXPECT_NEAR(variation(values) * std::sqrt(shape), 1, 0.1) << shape;
    EXPECT_GE(*std::min_element(values.begin(), values.end()), 0);
  }
  Rng rng(1);
  EXPECT_EQ(unit_gamma(rng, INFINITY), 1);
}

}  // namespace
}  // namespace shoal
