#include "experts/busy_share.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TimePoint at(int ms) { return TimePoint(std::chrono::hours(1)) + std::chrono::milliseconds(ms); }

TEST(BusyShare, CountsWhatWasBusyInTheLastFourSeconds) {
  BusyShare busy;
  EXPECT_EQ(busy.share(at(0)), 0);
  for (int ms = 10; ms <= 10'000; ms += 10) busy.add(at(ms - 1), std::chrono::milliseconds(3));
  EXPECT_NEAR(busy.share(at(10'000)), 0.3, 1e-9);
  EXPECT_NEAR(busy.share(at(12'000)), 0.15, 0.002);
  EXPECT_EQ(busy.share(at(14'500)), 0);
  busy.add(at(20'000), std::chrono::seconds(30));
  EXPECT_EQ(busy.share(at(20'400)), 0) << "that part is not over";
  EXPECT_EQ(busy.share(at(20'500)), 1);
}

}  // namespace
}  // namespace shoal
