#include "policy/slo.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TimePoint at(double s) { return TimePoint(from_seconds(s)); }

TokenScore scored(const SloTarget& target, std::initializer_list<double> times) {
  TokenScore score(target, at(0));
  for (const double t : times) score.add_token(at(t));
  return score;
}

TEST(Deadline, UnusedTimeIsCarriedOver) {
  const SloTarget target{seconds(10), milliseconds(100)};
  EXPECT_EQ(deadline(target, at(5), 1), at(15));
  EXPECT_EQ(deadline(target, at(5), 11), at(16));
  EXPECT_EQ(slack(target, at(5), 11, at(12)), seconds(4));
  EXPECT_EQ(slack(target, at(5), 1, at(16)), seconds(-1));
}

TEST(Deadline, BeyondTheTimeLineIsForever) {
  const SloTarget target{seconds(1), std::chrono::hours(10000)};
  EXPECT_EQ(deadline(target, at(0), UINT64_MAX), kForever);
  EXPECT_GT(slack(target, at(0), UINT64_MAX, TimePoint::min()), Duration(0));
}

TEST(TokenScore, ATokenIsOnTimeUpToItsDeadline) {
  const TokenScore score = scored({seconds(3), seconds(2)}, {3, 5.0, 7.1, 8});
  EXPECT_EQ(score.tokens(), 4u);
  EXPECT_EQ(score.on_time(), 3u);  // the third was due at 7
  EXPECT_FALSE(score.all_on_time());
}

TEST(TokenScore, TheArtifactsFigureIsThatOfItsOwnExample) {
  EXPECT_DOUBLE_EQ(scored({seconds(3), seconds(2)}, {3, 6, 7, 8}).artifact_fraction(), 5.0 / 8);
  EXPECT_DOUBLE_EQ(scored({seconds(3), seconds(2)}, {0}).artifact_fraction(), 1);
}

TEST(TokenScore, TheArtifactForgivesWhatDeadlinesDoNot) {
  TokenScore score({seconds(10), milliseconds(100)}, at(0));
  for (int burst = 1; burst <= 20; ++burst) {
    for (int i = 0; i < 5; ++i) score.add_token(at(9 * burst));  // 0.56 tokens a second of the 10 that are wanted
  }
  EXPECT_GT(score.artifact_fraction(), 0.7);
  EXPECT_LT(static_cast<double>(score.on_time()) / static_cast<double>(score.tokens()), 0.1);
}

TEST(Attainment, TheFourFiguresDiffer) {
  const SloTarget target{seconds(1), seconds(1)};
  Attainment sum;
  sum.add(scored(target, {1, 2, 3, 4, 5, 6, 7, 8}), true);  // all on time
  sum.add(scored(target, {1, 5}), true);                    // one of two
  EXPECT_DOUBLE_EQ(sum.of_tokens(), 0.9);
  EXPECT_DOUBLE_EQ(sum.of_tokens_per_request(), 0.75);
  EXPECT_DOUBLE_EQ(sum.of_requests(), 0.5);
  EXPECT_GT(sum.of_artifact(), 0.5);
}

TEST(Attainment, AFailedAnswerCountsAsNothingOnTime) {
  const SloTarget target{seconds(1), seconds(1)};
  Attainment sum;
  sum.add(scored(target, {1, 2}), true);
  sum.add(scored(target, {1, 2}), false, 6);
  sum.add(scored(target, {}), false);
  EXPECT_EQ(sum.tokens, 2u + 6u + 1u);
  EXPECT_DOUBLE_EQ(sum.of_tokens(), 2.0 / 9);
  EXPECT_DOUBLE_EQ(sum.of_tokens_per_request(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(sum.of_requests(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(sum.of_artifact(), 1.0 / 3);
}

TEST(Attainment, TheSumOfTwoSetsIsThatOfBoth) {
  const SloTarget target{seconds(1), seconds(1)};
  Attainment a, b, both;
  a.add(scored(target, {1, 5}), true);
  b.add(scored(target, {0.5, 1.5, 9}), true);
  b.add(scored(target, {1}), false);
  both.add(scored(target, {1, 5}), true);
  both.add(scored(target, {0.5, 1.5, 9}), true);
  both.add(scored(target, {1}), false);
  a.merge(b);
  EXPECT_EQ(a, both);
  EXPECT_DOUBLE_EQ(Attainment{}.of_tokens(), 1);
}

}  // namespace
}  // namespace shoal
