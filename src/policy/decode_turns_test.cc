#include "policy/decode_turns.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace shoal {
namespace {

using std::chrono::milliseconds;

// Batches of distinct models with these step seconds; c is shared evenly.
std::vector<TurnBatch> batches(const std::vector<double>& steps, double c, double tbt = 0.1) {
  std::vector<TurnBatch> out;
  for (size_t i = 0; i < steps.size(); ++i) {
    const double share = c / static_cast<double>(steps.size());
    out.push_back({ModelId(static_cast<uint32_t>(i)), steps[i], tbt, share, share, Duration(0)});
  }
  return out;
}

std::vector<double> quotas(const RoundPlan& plan) {
  std::vector<double> out;
  for (const Turn& turn : plan.turns) out.push_back(turn.quota_seconds);
  return out;
}

std::vector<uint32_t> order(const RoundPlan& plan) {
  std::vector<uint32_t> out;
  for (const Turn& turn : plan.turns) out.push_back(turn.model.value);
  return out;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-3);
}

// ---- the vectors of the published formula ---------------------------------------------------------------------------

TEST(PlanRound, SlowBatchesGetMoreTimeAndAllTheSameSecondsOfReading) {
  const auto b = batches({.01, .02, .03}, 3);
  const RoundPlan plan = plan_round(b, TurnOptions::paper());
  EXPECT_NEAR(plan.alpha, .825, 1e-9);
  expect_near(quotas(plan), {1.3333, 2.6667, 4.0});
  EXPECT_NEAR(plan.round_seconds, 11, 1e-9);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(plan.turns[i].quota_seconds * .1 / b[i].step_seconds, 13.3333, 1e-3);
  EXPECT_DOUBLE_EQ(plan.attainment(), 1);
}

TEST(PlanRound, NeverBuffersMoreThanTwiceTheRound) {
  const RoundPlan plan = plan_round(batches({.01, .01}, 1.5), TurnOptions::paper());
  EXPECT_NEAR(plan.alpha, .5, 1e-9);
  expect_near(quotas(plan), {.5, .5});
}

TEST(PlanRound, SevenModelsOnOneDevice) {
  const RoundPlan plan = plan_round(batches(std::vector(7, .01), 5.5), TurnOptions::paper());
  EXPECT_NEAR(plan.alpha, .8375, 1e-9);
  expect_near(quotas(plan), std::vector(7, 4.0));
  EXPECT_NEAR(plan.round_seconds, 33.5, 1e-9);
}

TEST(PlanRound, AlphaAboveOnePredictsWhatCanBeAttained) {
  const RoundPlan plan = plan_round(batches(std::vector(7, .012), 5.5, .05), TurnOptions::paper());
  EXPECT_NEAR(plan.alpha, 2.01, 5e-3);
  EXPECT_NEAR(plan.attainment(), .498, 1e-3);
}

TEST(PlanRound, TheWorkedExampleOfThePaper) {
  TurnOptions options = TurnOptions::paper();
  const auto b = batches({.025, .025, .025}, 3);
  EXPECT_NEAR(plan_round(b, options).alpha, .9375, 1e-9);
  options.quota_max_seconds = 3;
  const RoundPlan plan = plan_round(b, options);
  EXPECT_NEAR(plan.alpha, 1, 1e-9);
  expect_near(quotas(plan), {3, 3, 3});
  EXPECT_NEAR(plan.round_seconds, 12, 1e-9);
}

TEST(PlanRound, WithNothingToSwitchThereIsNoQuota) {
  EXPECT_EQ(plan_round(batches({.01}, 1), {}).turns, std::vector<Turn>{{ModelId(0)}});
  const RoundPlan resident = plan_round(batches({.01, .02}, 0), {});
  EXPECT_EQ(quotas(resident), std::vector(2, Turn::kUnlimited));
  EXPECT_NEAR(plan_round(batches({.08, .09}, 0), {}).alpha, 1.7, 1e-9);  // over-committed even so
  EXPECT_TRUE(plan_round({}, {}).turns.empty());
}

TEST(PlanRound, TwoBatchesOfOneModelPayOneSwitch) {
  auto b = batches({.01, .01, .01}, 3);
  b[2].model = ModelId(0);
  const RoundPlan plan = plan_round(b, TurnOptions::paper());
  EXPECT_NEAR(plan.alpha, std::max(2.0 / (10 * 4) + .3, .5), 1e-9);
}

TEST(PlanRound, KeepsItsPromisesForRandomBatches) {
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    Rng rng(seed);
    std::vector<TurnBatch> b;
    for (uint64_t n = 1 + rng.below(40); n > 0; --n) {
      const double seconds = .001 + 5 * rng.uniform();
      b.push_back({ModelId(static_cast<uint32_t>(rng.below(20))), 1e-4 + .2 * rng.uniform(), .01 + .3 * rng.uniform(),
                   seconds, seconds * rng.uniform(), milliseconds(static_cast<int64_t>(rng.below(5000)))});
    }
    const RoundPlan plan = plan_round(b, {});
    ASSERT_EQ(plan.turns.size(), b.size());
    for (const double q : quotas(plan)) {
      EXPECT_GT(q, 0);
      EXPECT_TRUE(q == Turn::kUnlimited || q <= quota_max_seconds(b, {}) * (1 + 1e-9)) << q;
    }
  }
}

// ---- beyond the paper -----------------------------------------------------------------------------------------------

TEST(PlanRound, TheLeastSlackGoesFirstAndAModelsBatchesStayTogether) {
  auto b = batches({.01, .01, .01, .01}, 1);
  b[3].model = ModelId(0);
  b[0].slack = milliseconds(50);
  b[1].slack = milliseconds(30);
  b[2].slack = milliseconds(40);
  b[3].slack = milliseconds(10);
  EXPECT_EQ(order(plan_round(b, {})), (std::vector<uint32_t>{0, 0, 1, 2}));
  TurnOptions arrival;
  arrival.least_slack_first = false;
  EXPECT_EQ(order(plan_round(b, arrival)), (std::vector<uint32_t>{0, 0, 1, 2}));
  b[3].slack = milliseconds(60);
  EXPECT_EQ(order(plan_round(b, {})), (std::vector<uint32_t>{1, 2, 0, 0}));
  EXPECT_EQ(order(plan_round(b, arrival)), (std::vector<uint32_t>{0, 0, 1, 2}));
}

TEST(PlanRound, TheLongestQuotaFollowsTheMeasuredSwitch) {
  EXPECT_NEAR(quota_max_seconds(batches({.01, .01}, 1.0), {}), 1.25, 1e-9);
  EXPECT_NEAR(quota_max_seconds(batches({.01, .01}, 0.02), {}), 0.25, 1e-9);
  EXPECT_NEAR(quota_max_seconds(batches({.01, .01}, 40), {}), 4, 1e-9);
  EXPECT_NEAR(quota_max_seconds(batches({.01, .01}, 1), TurnOptions::paper()), 4, 1e-9);
  EXPECT_NEAR(quota_max_seconds(batches({.01, .01}, 0.12), {}), 0.72, 1e-9);  // 60 ms each, of the steps' cores
  auto hidden = batches({.01, .01}, 0.12);
  for (TurnBatch& batch : hidden) batch.waited_seconds = 0.006;
  EXPECT_NEAR(quota_max_seconds(hidden, {}), 0.25, 1e-9);
}

TEST(QuotaMax, IsLongerWhereShortTurnsWouldNotKeepThePace) {
  auto slow = batches({.025, .025, .025}, 3);  // three quarters of the device, and a second for each switch
  EXPECT_NEAR(plan_round(slow, {.quota_max_seconds = 2.5}).alpha, 1.05, 1e-9);
  for (TurnBatch& b : slow) b.ttft_seconds = 30;
  EXPECT_NEAR(quota_max_seconds(slow, {}), 3, 1e-9);
  EXPECT_NEAR(plan_round(slow, {}).alpha, 1, 1e-9);
  for (TurnBatch& b : slow) b.ttft_seconds = 5;  // a round of 12 s would be too long
  EXPECT_NEAR(quota_max_seconds(slow, {}), 2.5, 1e-9);
  auto hopeless = batches({.08, .08}, 1);
  EXPECT_NEAR(quota_max_seconds(hopeless, {}), 4, 1e-9);
}

TEST(PlanRound, AQuotaIsLongEnoughToBeWorthItsSwitch) {
  auto b = batches({.01, .01, .01}, 3);
  for (TurnBatch& batch : b) batch.waited_seconds = 0.01;
  expect_near(quotas(plan_round(b, {})), {2, 2, 2});
  TurnOptions bare;
  bare.cover_switch = false;
  for (const double q : quotas(plan_round(b, bare))) EXPECT_LT(q, .1);
}

TEST(EndsEarly, OnlyForOneThatWouldBeLateAndIfTheRunningOneCanAffordIt) {
  EarlyEndView view{milliseconds(3000), 1.0, 5.0, milliseconds(900), 1.0, 0.02};
  EXPECT_TRUE(ends_early(view, {}));
  view.running_spent_seconds = 0.5;  // its switch has brought next to nothing yet
  EXPECT_FALSE(ends_early(view, {}));
  view.waiting_queued = true;  // a first token
  EXPECT_TRUE(ends_early(view, {}));
  view.waiting_queued = false;
  view.running_spent_seconds = 5;
  view.waiting_slack = milliseconds(1100);  // there is time
  EXPECT_FALSE(ends_early(view, {}));
  view.waiting_slack = milliseconds(900);
  view.running_slack = milliseconds(2000);  // it would be late itself
  EXPECT_FALSE(ends_early(view, {}));
  view.running_slack = milliseconds(3000);
  EXPECT_FALSE(ends_early(view, TurnOptions::paper()));
  view.waiting_slack = milliseconds(-1);  // is late anyhow
  EXPECT_FALSE(ends_early(view, {}));
}

TEST(RoundMembers, EveryoneHasOneTurnARound) {
  RoundMembers members({});
  const std::vector<ModelId> all{ModelId(1), ModelId(2)};
  EXPECT_TRUE(members.update(all));
  members.had_turn(ModelId(1));
  EXPECT_FALSE(members.update(all));
  EXPECT_FALSE(members.is_due(ModelId(1)));
  EXPECT_TRUE(members.is_due(ModelId(2)));
  members.had_turn(ModelId(2));
  members.update(all);
  EXPECT_EQ(members.round(), 2u);
  EXPECT_TRUE(members.is_due(ModelId(1)));
}

TEST(RoundMembers, ANewBatchEntersTheRunningRoundOrWaitsForTheNext) {
  for (const bool enter : {true, false}) {
    TurnOptions options;
    options.enter_running_round = enter;
    RoundMembers members(options);
    members.update(std::vector{ModelId(1), ModelId(2)});
    EXPECT_TRUE(members.is_due(ModelId(1)));
    members.had_turn(ModelId(1));
    members.update(std::vector{ModelId(1), ModelId(2), ModelId(3)});
    EXPECT_EQ(members.is_due(ModelId(3)), enter);
    members.had_turn(ModelId(2));
    members.update(std::vector{ModelId(1), ModelId(2), ModelId(3)});
    EXPECT_TRUE(members.is_due(ModelId(3)));
    EXPECT_EQ(members.is_due(ModelId(1)), !enter);
  }
}

TEST(RoundMembers, AModelWithoutWorkHoldsUpNoRound) {
  RoundMembers members({});
  members.update(std::vector{ModelId(1), ModelId(2)});
  members.had_turn(ModelId(1));
  EXPECT_TRUE(members.update(std::vector{ModelId(1)}));
  EXPECT_TRUE(members.is_due(ModelId(1)));
  EXPECT_FALSE(members.is_due(ModelId(2)));
}

TEST(RoundMembers, WhoIsDoneAndCalledAgainWaitsForTheNextRound) {
  RoundMembers members({});
  const std::vector<ModelId> all{ModelId(1), ModelId(2), ModelId(3)}, without_second{ModelId(1), ModelId(3)};
  members.update(all);
  members.had_turn(ModelId(1));  // the one that is never done
  members.had_turn(ModelId(2));
  members.update(without_second);
  EXPECT_TRUE(members.update(all));
  EXPECT_FALSE(members.is_due(ModelId(2)));
  EXPECT_TRUE(members.is_due(ModelId(3)));
  members.had_turn(ModelId(3));
  members.update(all);
  for (const ModelId id : all) EXPECT_TRUE(members.is_due(id));
}

TEST(RoundMembers, WhoLeftBeforeItsTurnHasItWhenItComesBack) {
  RoundMembers members({});
  const std::vector<ModelId> all{ModelId(1), ModelId(2), ModelId(3)};
  members.update(all);
  members.had_turn(ModelId(1));
  members.update(std::vector{ModelId(1), ModelId(3)});
  members.update(all);
  EXPECT_TRUE(members.is_due(ModelId(2)));
  EXPECT_FALSE(members.is_due(ModelId(1)));
}

}  // namespace
}  // namespace shoal
