#include "experts/step_times.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

// A step of two layers, each with one exchange per lane: 100 us of computing, then `away` until the answer.
TimePoint step(StepTimes& times, TimePoint now, uint32_t lanes, Duration away) {
  constexpr Duration kAttention = std::chrono::microseconds(100);
  times.begin(8, 8, lanes, now);
  for (uint32_t exchange = 0; exchange < 2 * lanes; ++exchange) {
    times.works(now);
    times.waits(now += kAttention);
    times.answered(away);
    now += away;
  }
  times.end(now);
  return now;
}

TEST(StepTimes, TheOverlapIsOfStepsThatAreOver) {
  StepTimes times(4, /*choose=*/false);
  EXPECT_EQ(times.overlap().lanes, 0u);
  TimePoint now{};
  now = step(times, now, 2, std::chrono::microseconds(300));
  EXPECT_EQ(times.overlap().hidden_s(), 0) << "it might go on";
  now = step(times, now, 2, std::chrono::microseconds(300));
  EXPECT_EQ(times.overlap().lanes, 2u);
  EXPECT_NEAR(times.overlap().attention_s, 100e-6, 1e-9);
  EXPECT_NEAR(times.overlap().hidden_s(), 100e-6, 1e-9);
  EXPECT_NEAR(times.overlap().response_s, 300e-6, 75e-6);
  now = step(times, now, 1, std::chrono::microseconds(300));
  step(times, now, 1, std::chrono::microseconds(300));
  EXPECT_EQ(times.overlap().hidden_s(), 0) << "nothing is computed beside one lane";
  for (int i = 0; i < 1000; ++i) now = step(times, now, 3, std::chrono::microseconds(i % 10 == 0 ? 4000 : 300));
  EXPECT_NEAR(times.overlap().response_s, 4000e-6, 1000e-6) << "more than one of twenty takes that long";
  EXPECT_TRUE(times.news(now));
  EXPECT_FALSE(times.news(now + std::chrono::milliseconds(999)));
  EXPECT_TRUE(times.news(now + std::chrono::seconds(1)));
}

}  // namespace
}  // namespace shoal
