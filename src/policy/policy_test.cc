#include <gtest/gtest.h>

#include "base/rng.h"
#include "policy/batch.h"
#include "policy/turns.h"

namespace shoal {
namespace {

using std::chrono::milliseconds;

SequenceView seq(uint64_t id, uint32_t known, uint32_t computed, uint32_t held, uint32_t freed = 0) {
  SequenceView view;
  view.request = RequestId(id);
  view.known = known;
  view.computed = computed;
  view.blocks_held = held;
  view.blocks_freed = freed;
  return view;
}

BatchPlan plan(const std::vector<SequenceView>& running, const std::vector<SequenceView>& waiting, uint32_t blocks,
               const BatchLimits& limits) {
  const EngineView view{running, waiting, blocks, 16};
  const BatchPlan result = plan_batch(view, limits);
  check_plan(result, view, limits);
  return result;
}

// ---- batches --------------------------------------------------------------------------------------------------------

TEST(PlanBatch, DecodesComeBeforePrefillChunks) {
  const auto result = plan({seq(1, 100, 0, 0), seq(2, 33, 32, 2)}, {}, 100, {.tokens_per_step = 20});
  EXPECT_EQ(result.slices, (std::vector<Slice>{{RequestId(1), 0, 19}, {RequestId(2), 32, 33}}));
}

TEST(PlanBatch, WhoIsPassedOverHasNoSliceAndNoPlaceAndGoesFirst) {
  std::vector<SequenceView> running = {seq(1, 17, 16, 1), seq(2, 17, 16, 1, 1), seq(3, 17, 16, 1, 1)};
  running[2].passed_over = true;
  const auto result = plan(running, {seq(4, 8, 0, 0)}, 3, {.tokens_per_step = 20, .sequences_max = 3});
  EXPECT_EQ(result.slices, (std::vector<Slice>{{RequestId(1), 16, 17}, {RequestId(2), 16, 17}, {RequestId(4), 0, 8}}));
  const auto short_of_blocks = plan(running, {}, 1, {.tokens_per_step = 20});
  EXPECT_EQ(short_of_blocks.preempt, std::vector<RequestId>{RequestId(3)});
  EXPECT_EQ(short_of_blocks.slices.size(), 2u);
}

TEST(PlanBatch, NoMoreHaveASliceThanMayRun) {
  const auto result = plan({seq(1, 17, 16, 1), seq(2, 17, 16, 1), seq(3, 40, 16, 1)}, {}, 10, {.tokens_per_step = 20, .sequences_max = 2});
  EXPECT_EQ(result.slices, (std::vector<Slice>{{RequestId(1), 16, 17}, {RequestId(2), 16, 17}}));
}

TEST(PlanBatch, APromptIsCutAtTheTokenBudget) {
  const auto result = plan({}, {seq(1, 100, 0, 0)}, 100, {.tokens_per_step = 64});
  EXPECT_EQ(result.slices, (std::vector<Slice>{{RequestId(1), 0, 64}}));
  EXPECT_EQ(result.admit, std::vector<RequestId>{RequestId(1)});
}

TEST(PlanBatch, AdmissionIsFirstComeFirstServed) {
  // The second would fit, but the first is next in line.
  const auto result = plan({}, {seq(1, 160, 0, 0), seq(2, 10, 0, 0)}, 5, {.tokens_per_step = 512});
  EXPECT_TRUE(result.admit.empty());
}

TEST(PlanBatch, APromptIsAdmittedOnlyIfAllOfItFits) {
  EXPECT_TRUE(plan({}, {seq(1, 100, 0, 0)}, 6, {.tokens_per_step = 16}).admit.empty());
  EXPECT_EQ(plan({}, {seq(1, 100, 0, 0)}, 7, {.tokens_per_step = 16}).admit.size(), 1u);
}

TEST(PlanBatch, BlocksPromisedToOneAdmissionAreNotGivenToTheNext) {
  const auto result = plan({}, {seq(1, 60, 0, 0), seq(2, 60, 0, 0)}, 7, {.tokens_per_step = 64});
  EXPECT_EQ(result.admit, std::vector<RequestId>{RequestId(1)});
}

TEST(PlanBatch, CachedBlocksOfAnAdmissionAreNoLongerAvailable) {
  SequenceView cached = seq(1, 40, 32, 2);
  cached.prefix_evictable = 2;
  EXPECT_TRUE(plan({}, {cached}, 2, {}).admit.empty());  // one new block, but both available ones are its own prefix
  EXPECT_EQ(plan({}, {cached}, 3, {}).admit.size(), 1u);
}

TEST(PlanBatch, TheYoungestIsPreemptedWhenBlocksRunOut) {
  const auto result = plan({seq(1, 33, 32, 2, 2), seq(2, 33, 32, 2, 2), seq(3, 20, 19, 2, 2)}, {}, 0, {});
  EXPECT_EQ(result.preempt, std::vector<RequestId>{RequestId(3)});
  EXPECT_EQ(result.slices.size(), 2u);
}

TEST(PlanBatch, TheOldestIsNeverPreempted) {
  const auto result = plan({seq(1, 33, 32, 2, 2)}, {}, 0, {});
  EXPECT_TRUE(result.preempt.empty());
  EXPECT_TRUE(result.slices.empty());
}

TEST(PlanBatch, NothingIsAdmittedInAStepThatPreemptsOrStarves) {
  EXPECT_TRUE(plan({seq(1, 33, 32, 2, 2), seq(2, 33, 32, 2, 2)}, {seq(3, 4, 0, 0)}, 1, {}).admit.empty());
  EXPECT_TRUE(plan({seq(1, 33, 32, 2, 2)}, {seq(3, 4, 0, 0)}, 0, {}).admit.empty());
}

TEST(PlanBatch, APrefillTakesTheRoomThereIsBeforeItAsksForMore) {
  const auto result = plan({seq(1, 200, 16, 1, 1), seq(2, 33, 32, 3, 3)}, {}, 2, {});
  EXPECT_TRUE(result.preempt.empty());
  EXPECT_EQ(result.slices.front(), (Slice{RequestId(1), 16, 48}));
}

TEST(PlanBatch, ScoringSpendsALogitRowPerToken) {
  SequenceView scoring = seq(1, 100, 0, 0);
  scoring.scores_prompt = true;
  const auto result = plan({}, {scoring}, 100, {.tokens_per_step = 512, .logit_rows_max = 8});
  EXPECT_EQ(result.slices, (std::vector<Slice>{{RequestId(1), 0, 8}}));
}

TEST(PlanBatch, WithoutLogitRowsAPromptStopsBeforeItsLastToken) {
  const auto result = plan({seq(1, 17, 16, 2), seq(2, 10, 0, 0)}, {}, 100, {.logit_rows_max = 1});
  EXPECT_EQ(result.slices, (std::vector<Slice>{{RequestId(1), 16, 17}, {RequestId(2), 0, 9}}));
}

TEST(PlanBatch, HoldingAdmissionLetsTheRunningFinish) {
  const auto result = plan({seq(1, 17, 16, 2)}, {seq(2, 4, 0, 0)}, 100, {.admit = false});
  EXPECT_EQ(result.slices.size(), 1u);
  EXPECT_TRUE(result.admit.empty());
}

TEST(PlanBatch, TakesNoMoreAtOnceThanItMay) {
  const auto result = plan({}, {seq(1, 4, 0, 0), seq(2, 4, 0, 0), seq(3, 4, 0, 0)}, 100, {.admissions_max = 2});
  EXPECT_EQ(result.admit, (std::vector<RequestId>{RequestId(1), RequestId(2)}));
}

TEST(PlanBatch, KeepsItsPromisesForRandomViews) {
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    Rng rng(seed);
    std::vector<SequenceView> running, waiting;
    for (uint64_t n = rng.below(6); n > 0; --n) {
      const auto known = static_cast<uint32_t>(1 + rng.below(100));
      const auto computed = rng.chance(0.5) ? known - 1 : static_cast<uint32_t>(rng.below(known));
      const uint32_t held = (computed + 15) / 16;
      running.push_back(seq(n, known, computed, held, static_cast<uint32_t>(rng.below(held + 1))));
      running.back().scores_prompt = rng.chance(0.2);
    }
    for (uint64_t n = rng.below(6); n > 0; --n) {
      const auto known = static_cast<uint32_t>(1 + rng.below(100));
      const auto cached = static_cast<uint32_t>(rng.below((known - 1) / 16 + 1));
      waiting.push_back(seq(100 + n, known, cached * 16, cached));
      waiting.back().prefix_evictable = static_cast<uint32_t>(rng.below(cached + 1));
    }
    const BatchLimits limits{1 + static_cast<uint32_t>(rng.below(80)), 1 + static_cast<uint32_t>(rng.below(8)),
                             1 + static_cast<uint32_t>(rng.below(8)), rng.chance(0.9), static_cast<uint32_t>(rng.below(6))};
    plan(running, waiting, 6 + static_cast<uint32_t>(rng.below(20)), limits);
  }
}

// ---- turns and placement --------------------------------------------------------------------------------------------

TEST(NextTurn, GoesRoundTheRunnableModels) {
  EXPECT_EQ(next_turn(std::vector<StepView>{{ModelId(1), true, 5}, {ModelId(2), true, 3}, {ModelId(3), false, 1}}), ModelId(2));
  EXPECT_EQ(next_turn(std::vector<StepView>{{ModelId(1), false, 0}}), std::nullopt);
}

TEST(NextTurn, WhoWouldBeLateComesFirstAndWhoIsLateTakesTurns) {
  std::vector<StepView> models{{ModelId(1), true, 3, milliseconds(900), 0.02}, {ModelId(2), true, 5, milliseconds(30), 0.02}};
  EXPECT_EQ(next_turn(models), ModelId(2));
  models[1].slack = milliseconds(-30);
  EXPECT_EQ(next_turn(models), ModelId(1));
  models[1].slack = milliseconds(50);  // there is time for one step of the other
  EXPECT_EQ(next_turn(models), ModelId(1));
}

TEST(NextTurn, WhatIsLateAnywayHasFewStepsAndThoseThatNobodyWants) {
  std::vector<StepView> models{{ModelId(1), true, 20, Duration::max(), 0.02}, {ModelId(2), true, 10, Duration::max(), 0.02, true}};
  EXPECT_EQ(next_turn(models), ModelId(1));
  models[0].last_turn = 10 + kLateShare;
  EXPECT_EQ(next_turn(models), ModelId(2));
  models[0] = {ModelId(1), false, 20};
  EXPECT_EQ(next_turn(models), ModelId(2));
}

}  // namespace
}  // namespace shoal
