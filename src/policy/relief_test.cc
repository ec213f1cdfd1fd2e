#include "policy/relief.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "policy/static_choice.h"

namespace shoal {
namespace {

constexpr TimePoint at(int ms) { return TimePoint(std::chrono::milliseconds(ms)); }

ReliefView resident(uint32_t id) {
  ReliefView m;
  m.model = ModelId(id);
  m.resident = true;
  m.last_used = at(static_cast<int>(id));
  return m;
}
ReliefView busy(uint32_t id, uint64_t oldest) {
  ReliefView m = resident(id);
  m.running = 2;
  m.oldest = oldest;
  m.last_turn = id;
  return m;
}
ReliefView absent(uint32_t id, int slack_ms) {
  ReliefView m;
  m.model = ModelId(id);
  m.away = true;
  m.running = 1;
  m.slack = std::chrono::milliseconds(slack_ms);
  return m;
}

TEST(Relief, IdlePrefixesOfAnotherModelComeFirstThoseUsedLongestAgo) {
  std::vector<ReliefView> models = {busy(0, 1), resident(1), resident(2)};
  for (ReliefView& m : models) m.blocks_cached = 5;
  models[1].last_used = at(9);
  EXPECT_EQ(to_string(relieve(ModelId(0), true, models, false)), "trim 2; ");
  EXPECT_EQ(to_string(relieve_all(models, false)), "trim 0; trim 1; trim 2; ");
}

TEST(Relief, OnlyAModelThatOwesATokenTakesMoreThanIdlePrefixes) {
  const std::vector<ReliefView> models = {busy(0, 1), resident(1)};
  EXPECT_EQ(to_string(relieve(ModelId(0), false, models, false)), "nothing");
  EXPECT_EQ(to_string(relieve(ModelId(0), true, models, false)), "drop 1; ");
}

TEST(Relief, NothingIsTakenWhilePagesAreOnTheirWay) {
  const std::vector<ReliefView> models = {busy(0, 1), resident(1), absent(2, 5)};
  EXPECT_EQ(relieve(ModelId(0), true, models, true), ReliefPlan{});
  EXPECT_EQ(relieve_all(models, true), ReliefPlan{});
}

TEST(Relief, KvOfTheModelThatIsAwayWithTheMostSlackGoesAfterIdleWeights) {
  std::vector<ReliefView> models = {busy(0, 1), absent(2, 5), absent(3, 50), absent(4, 50)};
  EXPECT_EQ(to_string(relieve(ModelId(0), true, models, false)), "take KV of 3; ");
  EXPECT_EQ(to_string(relieve_all(models, false)), "take KV of 3; ");
  EXPECT_EQ(first_to_park(models), ModelId(3));
  models.push_back(resident(1));
  EXPECT_EQ(to_string(relieve_all(models, false)), "drop 1; ");
}

TEST(Relief, TheNewcomerTakesThePlaceOfAModelWhoseTurnIsOver) {
  std::vector<ReliefView> models = {busy(0, 1), busy(1, 2), busy(2, 3), busy(3, 4)};
  models[1].turn_over = models[2].turn_over = true;
  models[1].pinned = true;
  EXPECT_EQ(to_string(relieve(ModelId(0), true, models, false)), "drop 2; ");
  models[2].fresh = true;
  EXPECT_EQ(to_string(relieve(ModelId(0), true, models, false)), "nothing");
}

TEST(Relief, TheOldestRequestIsNeverPreemptedAndTheVictimHadTheLastStep) {
  const std::vector<ReliefView> models = {busy(0, 7), busy(1, 3), busy(2, 9)};
  EXPECT_EQ(to_string(relieve_all(models, false)), "preempt 2 for 1; ");
  EXPECT_EQ(relieve_all(std::vector{busy(0, 1)}, false), ReliefPlan{}) << "nobody else holds anything";
}

TEST(Relief, WeightsOfModelsWithWaitingRequestsAndPinnedOnesGoLast) {
  std::vector<ReliefView> models = {busy(0, 1), resident(1), resident(2)};
  models[0].running = 0;
  models[0].oldest.reset();
  models[0].waiting = models[1].waiting = models[2].waiting = 1;
  models[1].pinned = true;
  models[0].fresh = true;
  EXPECT_EQ(to_string(relieve_all(models, false)), "drop 2; ");
  EXPECT_EQ(relieve_all(std::vector{models[0]}, false), ReliefPlan{}) << "the only one stays";
}

// Whatever is there: at most one act, and only of those who may.
TEST(Relief, KeepsItsPromisesForAnyViews) {
  Rng rng(5);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<ReliefView> models;
    for (uint32_t id = 0; id < 1 + rng.below(5); ++id) {
      ReliefView m = rng.chance(0.7) ? resident(id) : absent(id, static_cast<int>(rng.below(20)));
      m.pinned = rng.chance(0.2), m.fresh = rng.chance(0.2), m.turn_over = rng.chance(0.5);
      m.running = rng.below(3), m.waiting = rng.below(2), m.moving = rng.below(2);
      if (m.running > 0) m.oldest = rng.below(100) * 10 + id;
      m.blocks_cached = rng.chance(0.1) ? 3 : 0;
      models.push_back(m);
    }
    const auto view = [&](ModelId id) { return *std::find_if(models.begin(), models.end(), [&](const ReliefView& m) { return m.model == id; }); };
    for (const ReliefPlan& plan : {relieve(ModelId(0), true, models, false), relieve_all(models, false)}) {
      EXPECT_LE(!plan.trim.empty() + plan.drop.has_value() + plan.take_kv.has_value() + plan.preempt.has_value(), 1) << to_string(plan);
      EXPECT_EQ(plan.preempt.has_value(), plan.protect.has_value());
      EXPECT_TRUE(!plan.drop || view(*plan.drop).resident);
      EXPECT_TRUE(!plan.take_kv || (view(*plan.take_kv).away && view(*plan.take_kv).running > 0));
      EXPECT_TRUE(!plan.preempt || (view(*plan.preempt).running > 0 && plan.preempt != plan.protect));
    }
  }
}

TEST(StaticChoice, WhoWasChosenStaysThenPinnedOnesThenTheOthersInOrder) {
  std::vector<StaticView> models = {{ModelId(0), 4}, {ModelId(1), 4}, {ModelId(2), 4, true}, {ModelId(3), 4, false, false, true}, {ModelId(4), 2}};
  EXPECT_EQ(choose_static(models, 14), (std::vector{ModelId(3), ModelId(0), ModelId(4)}));
  EXPECT_EQ(choose_static(models, 10), (std::vector{ModelId(3), ModelId(4)})) << "one that does not fit keeps nobody out";
  models[3].retired = true;
  EXPECT_EQ(choose_static(models, 8), (std::vector{ModelId(0)}));
  EXPECT_TRUE(choose_static(models, 3).empty());
}

}  // namespace
}  // namespace shoal
