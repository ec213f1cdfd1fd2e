#include "slots/batch.h"

#include <vector>

#include "gtest/gtest.h"

namespace shoal {
namespace {

constexpr Duration kUs = std::chrono::microseconds(1);
TimePoint at(int64_t us) { return TimePoint(std::chrono::microseconds(1'000'000 + us)); }

// Clients 1..n that send every 1000 us, heard of three times, the last time at 0.
BatchFormer regular(BatchRule rule, uint32_t clients, Duration wait = 60 * kUs) {
  BatchFormer former({.rule = rule, .rows_max = 100, .wait_max = wait});
  for (uint32_t c = 1; c <= clients; ++c) {
    former.attach(c);
    for (int64_t us : {-2000, -1000, 0}) former.arrived(c, at(us));
  }
  return former;
}

std::vector<ReadySlot> ready(std::initializer_list<uint32_t> clients, int64_t since, uint32_t rows = 1) {
  std::vector<ReadySlot> result;
  for (const uint32_t c : clients) result.push_back({c, rows, at(since)});
  return result;
}

TEST(SlotBatch, NothingReadyIsNothingToDo) {
  for (const BatchRule rule : {BatchRule::kAdaptive, BatchRule::kDeadline, BatchRule::kGreedy, BatchRule::kAll}) {
    const BatchDecision decision = regular(rule, 2).decide({}, at(10), Duration(0));
    EXPECT_FALSE(decision.fire);
    EXPECT_EQ(decision.look_again, kForever);
  }
}

TEST(SlotBatch, AdaptiveWaitsForThoseWhoAreExpectedAndNoLonger) {
  const BatchFormer former = regular(BatchRule::kAdaptive, 3);
  const auto two = ready({1, 2}, 1000), all = ready({1, 2, 3}, 1000);
  const BatchDecision waits = former.decide(two, at(1010), Duration(0));
  EXPECT_FALSE(waits.fire);
  EXPECT_EQ(waits.look_again, at(1060));
  EXPECT_TRUE(former.decide(two, at(1060), Duration(0)).fire);
  EXPECT_TRUE(former.decide(all, at(1010), Duration(0)).fire);
}

TEST(SlotBatch, AClientThatWasWaitedForInVainIsNotExpectedUntilItComesAgain) {
  BatchFormer former = regular(BatchRule::kAdaptive, 2);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(former.expected(2, at(100)));
    former.fired(ready({1}, 90), at(100));
  }
  EXPECT_FALSE(former.expected(2, at(100)));
  EXPECT_TRUE(former.decide(ready({1}, 100), at(101), Duration(0)).fire);
  former.arrived(2, at(200));
  EXPECT_TRUE(former.expected(2, at(201)));
}

TEST(SlotBatch, AClientThatIsSilentForTwoPeriodsIsNotExpected) {
  const BatchFormer former = regular(BatchRule::kAdaptive, 2);
  EXPECT_TRUE(former.expected(2, at(2000)));
  EXPECT_FALSE(former.expected(2, at(2001)));
}

TEST(SlotBatch, AFreshClientIsNotWaitedFor) {
  BatchFormer former = regular(BatchRule::kAdaptive, 1);
  former.attach(9);
  EXPECT_TRUE(former.decide(ready({1}, 10), at(11), Duration(0)).fire);
  former.arrived(9, at(20));
  EXPECT_FALSE(former.expected(9, at(21))) << "how often it sends is not known yet";
}

TEST(SlotBatch, APauseIsNoPeriod) {
  BatchFormer former = regular(BatchRule::kAdaptive, 1);
  former.arrived(1, at(1'000'000));
  former.arrived(1, at(1'001'000));
  EXPECT_FALSE(former.expected(1, at(1'004'000)));
}

TEST(SlotBatch, TheLeastSlackEndsTheWait) {
  const BatchFormer former = regular(BatchRule::kDeadline, 2);
  std::vector<ReadySlot> slots = ready({1}, 1000);
  slots[0].due = at(1050);
  EXPECT_EQ(former.decide(slots, at(1001), 20 * kUs).look_again, at(1030));
  EXPECT_TRUE(former.decide(slots, at(1030), 20 * kUs).fire);
}

TEST(SlotBatch, GreedyNeverWaitsAndManyRowsAreEnough) {
  EXPECT_TRUE(regular(BatchRule::kGreedy, 4).decide(ready({1}, 0), at(0), Duration(0)).fire);
  for (const BatchRule rule : {BatchRule::kAdaptive, BatchRule::kDeadline, BatchRule::kAll}) {
    EXPECT_TRUE(regular(rule, 4).decide(ready({1}, 0, 100), at(0), Duration(0)).fire) << batch_rule_name(rule);
  }
}

TEST(SlotBatch, AllIsABarrierThatASilentClientHoldsUntilItIsDetached) {
  BatchFormer former = regular(BatchRule::kAll, 2);
  const BatchDecision waits = former.decide(ready({1}, 0), at(1'000'000), Duration(0));
  EXPECT_FALSE(waits.fire);
  EXPECT_EQ(waits.look_again, kForever);
  former.detach(2);
  EXPECT_TRUE(former.decide(ready({1}, 0), at(1'000'000), Duration(0)).fire);
}

TEST(SlotBatch, RulesHaveNames) {
  EXPECT_EQ(parse_batch_rule("adaptive"), BatchRule::kAdaptive);
  EXPECT_EQ(parse_batch_rule("all"), BatchRule::kAll);
  EXPECT_FALSE(parse_batch_rule("eager").has_value());
}

}  // namespace
}  // namespace shoal
