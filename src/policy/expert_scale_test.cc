#include "policy/expert_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace shoal {
namespace {

TimePoint at(int s) { return TimePoint(std::chrono::seconds(s)); }

// Servers after each of `windows` seconds of that load, from `servers` on.
std::vector<uint32_t> follow(ExpertScale& scale, uint32_t servers, int windows, const std::function<ExpertScaleView(uint32_t servers, int second)>& view, int from = 0) {
  std::vector<uint32_t> counts;
  for (int s = from; s < from + windows; ++s) {
    servers += static_cast<uint32_t>(scale.window(view(servers, s), at(s)));
    counts.push_back(servers);
  }
  return counts;
}

TEST(ExpertScale, OneServerMoreAfterThreeBusyWindowsAndThenQuiet) {
  ExpertScale scale({.cool_down = std::chrono::seconds(10)});
  EXPECT_EQ(scale.window({8, 0.9}, at(1)), 0);
  EXPECT_EQ(scale.window({8, 0.9}, at(2)), 0);
  EXPECT_EQ(scale.window({8, 0.9}, at(3)), 1);
  for (int s = 4; s < 13; ++s) EXPECT_EQ(scale.window({9, 0.9}, at(s)), 0);
  EXPECT_EQ(scale.window({9, 0.9}, at(13)), 1);
}

TEST(ExpertScale, AServerGoesOnlyIfTheOthersStayWithinTheBand) {
  ExpertScale scale({.cool_down = Duration(0)});
  for (int s = 1; s < 10; ++s) EXPECT_EQ(scale.window({2, 0.6}, at(s)), 0);  // one would be 1.2 busy
  EXPECT_EQ(scale.window({8, 0.6}, at(10)), 0);
  EXPECT_EQ(scale.window({8, 0.6}, at(11)), 0);
  EXPECT_EQ(scale.window({8, 0.6}, at(12)), -1);
}

TEST(ExpertScale, AnswersThatNothingHidesCallForAServerUnlessTheOthersAreIdle) {
  const auto changes = [](const ExpertScaleView& view) {
    ExpertScale scale({.cool_down = Duration(0)});
    int sum = 0;
    for (int s = 0; s < 3; ++s) sum += scale.window(view, at(s));
    return sum;
  };
  EXPECT_EQ(changes({8, 0.75, 260e-6, 273e-6}), 1);
  EXPECT_EQ(changes({8, 0.75, 240e-6, 273e-6}), 0) << "there is a tenth to spare";
  EXPECT_EQ(changes({8, 0.75, 260e-6, 0}), 0) << "one lane: nothing could hide it";
  EXPECT_EQ(changes({8, 0.3, 260e-6, 273e-6}), -1);
  EXPECT_EQ(ExpertScale({.servers_min = 2}).window({1, 0.1}, TimePoint{}), 1);
}

TEST(ExpertScale, ThereAreNeverFewerThanTheLeastNorMoreThanTheMost) {
  ExpertScale scale({.servers_min = 2, .servers_max = 4, .cool_down = Duration(0)});
  const auto busy = follow(scale, 2, 40, [](uint32_t servers, int) { return ExpertScaleView{servers, 0.99}; });
  EXPECT_EQ(*std::max_element(busy.begin(), busy.end()), 4u);
  const auto idle = follow(scale, 4, 40, [](uint32_t servers, int) { return ExpertScaleView{servers, 0.0}; }, 40);
  EXPECT_EQ(*std::min_element(idle.begin(), idle.end()), 2u);
}

TEST(ExpertScale, ALoadThatStaysSettlesOnANumberAndOneThatJumpsToAndFroDoesNotFlap) {
  for (const double work : {0.5, 1.7, 3.3, 6.1}) {  // servers' worth
    ExpertScale scale({.cool_down = std::chrono::seconds(10)});
    const auto counts = follow(scale, 1, 400, [&](uint32_t servers, int) { return ExpertScaleView{servers, std::min(1.0, work / servers)}; });
    EXPECT_EQ(std::count(counts.end() - 200, counts.end(), counts.back()), 200) << work;
    EXPECT_LE(work / counts.back(), 0.85) << work;
  }
  ExpertScale scale({.cool_down = std::chrono::seconds(10)});
  const auto counts = follow(scale, 3, 200, [](uint32_t servers, int s) { return ExpertScaleView{servers, s % 3 == 0 ? 0.1 : 0.99}; });
  EXPECT_EQ(std::count(counts.begin(), counts.end(), 3u), 200);
}

TEST(ExpertScale, MemoryForOneCopyComesAtOnceAndForTwoIsNotGivenAway) {
  ExpertScale scale({.cool_down = Duration(0)});
  EXPECT_EQ(scale.window({2, 0.0, 0, 0, 100, 40}, at(0)), 1);   // 80 bytes for 100
  EXPECT_EQ(scale.window({3, 0.75, 0, 0, 100, 40}, at(1)), 0);
  for (int s = 2; s < 9; ++s) EXPECT_EQ(scale.window({5, 0.1, 0, 0, 100, 40}, at(s)), 0);  // four would hold 160 of 200
  int sum = 0;
  for (int s = 9; s < 12; ++s) sum += scale.window({6, 0.1, 0, 0, 100, 40}, at(s));
  EXPECT_EQ(sum, -1);
  sum = 0;
  for (int s = 12; s < 15; ++s) sum += scale.window({2, 0.1, 0, 0, 100, 100}, at(s));  // one server has one copy
  EXPECT_EQ(sum, -1);
  EXPECT_EQ(ExpertScale({.servers_max = 2}).window({2, 0.0, 0, 0, 100, 40}, at(0)), 0);
}

TEST(ExpertScale, TheLastThatCameLeavesUnlessAnOperatorPlacedExpertsOnIt) {
  EXPECT_EQ(which_leaves({}), std::nullopt);
  EXPECT_EQ(which_leaves(std::vector<ScaledServer>{{0}, {2}, {1}}), 1u);
  EXPECT_EQ(which_leaves(std::vector<ScaledServer>{{0}, {2, true}, {1}}), 2u);
  EXPECT_EQ(which_leaves(std::vector<ScaledServer>{{0, true}, {2, true}}), 1u);
}

}  // namespace
}  // namespace shoal
