#include <gtest/gtest.h>

#include "base/rng.h"
#include "policy/batch.h"
#include "policy/model_switch.h"
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

// ---- switching ------------------------------------------------------------------------------------------------------

ModelView model(uint32_t id, uint32_t pages) {
  ModelView view;
  view.model = ModelId(id);
  view.weight_pages = pages;
  view.kv_pages_min = 1;
  return view;
}

TEST(PlanSwitch, LoadsWhatIsWantedIfItFits) {
  ModelView a = model(1, 4);
  a.wanted = true;
  const auto result = plan_switch(std::vector{a, model(2, 4)}, {10, 10}, {}, TimePoint{});
  EXPECT_EQ(result.load, ModelId(1));
  EXPECT_TRUE(result.drop.empty());
}

TEST(PlanSwitch, IdleKvGoesBeforeWeightsAndTheLeastRecentFirst) {
  ModelView wanted = model(1, 6), old = model(2, 4), recent = model(3, 4);
  wanted.wanted = true;
  old.resident = recent.resident = true;
  recent.last_used = TimePoint(milliseconds(5));
  recent.kv_pages_idle = 3;
  const auto trimmed = plan_switch(std::vector{wanted, old, recent}, {16, 4}, {}, TimePoint{});
  EXPECT_EQ(trimmed.trim, std::vector<ModelId>{ModelId(3)});
  EXPECT_TRUE(trimmed.drop.empty());
  const auto dropped = plan_switch(std::vector{wanted, old, recent}, {16, 1}, {}, TimePoint{});
  EXPECT_EQ(dropped.drop, std::vector<ModelId>{ModelId(2)});
}

TEST(PlanSwitch, ABusyOrPinnedModelIsNeverDropped) {
  ModelView wanted = model(1, 6), busy = model(2, 4), pinned = model(3, 4);
  wanted.wanted = true;
  busy.resident = busy.busy = true;
  pinned.resident = pinned.pinned = true;
  const auto result = plan_switch(std::vector{wanted, busy, pinned}, {10, 2}, {}, TimePoint{});
  EXPECT_FALSE(result.load.has_value());
  EXPECT_TRUE(result.drop.empty());
}

TEST(PlanSwitch, AfterAWhileBusyModelsTakeNothingNew) {
  ModelView wanted = model(1, 6), busy = model(2, 4);
  wanted.wanted = true;
  busy.resident = busy.busy = true;
  const std::vector views{wanted, busy};
  EXPECT_TRUE(plan_switch(views, {10, 2}, {milliseconds(500)}, TimePoint(milliseconds(499))).hold.empty());
  EXPECT_EQ(plan_switch(views, {10, 2}, {milliseconds(500)}, TimePoint(milliseconds(500))).hold,
            std::vector<ModelId>{ModelId(2)});
}

TEST(PlanSwitch, RequestsThatCameFirstHaveTheirModelForTheirTime) {
  ModelView wanted = model(1, 6), queued = model(2, 6);
  wanted.wanted = queued.resident = queued.queued = true;
  wanted.wanted_since = TimePoint(milliseconds(100));
  queued.queued_since = TimePoint(milliseconds(99));
  EXPECT_FALSE(plan_switch(std::vector{wanted, queued}, {10, 2}, {}, TimePoint(milliseconds(9000))).load.has_value());
  queued.queued_since = TimePoint(milliseconds(101));
  EXPECT_EQ(plan_switch(std::vector{wanted, queued}, {10, 2}, {}, TimePoint(milliseconds(9000))).load, ModelId(1));
}

TEST(PlanSwitch, AModelThatFitsDoesNotWaitForOneThatDoesNot) {
  ModelView large = model(1, 9), small = model(2, 1), busy = model(3, 4);
  large.wanted = small.wanted = true;
  small.wanted_since = TimePoint(milliseconds(1));
  busy.resident = busy.busy = true;
  EXPECT_EQ(plan_switch(std::vector{large, small, busy}, {10, 6}, {}, TimePoint{}).load, ModelId(2));
}

TEST(PlanSwitch, OneLoadAtATime) {
  ModelView loading = model(1, 2), wanted = model(2, 2);
  loading.loading = wanted.wanted = true;
  EXPECT_EQ(plan_switch(std::vector{loading, wanted}, {10, 8}, {}, TimePoint{}), SwitchPlan{});
}

// ---- switching between tokens ---------------------------------------------------------------------------------------

ModelView working(uint32_t id, uint32_t pages, bool resident, milliseconds slack) {
  ModelView view = model(id, pages);
  view.busy = true;
  view.resident = resident;
  view.wanted = !resident;
  view.turn.due = !resident;
  view.turn.slack = slack;
  view.turn.switch_seconds = 0.2;
  view.turn.step_seconds = 0.02;
  return view;
}

SwitchPlan turns(const std::vector<ModelView>& models, const PoolView& pool) { return plan_token_switch(models, pool, {}); }

TEST(PlanTokenSwitch, AModelWhoseTurnIsOverGivesWayThoughItHasWork) {
  ModelView running = working(1, 6, true, milliseconds(900)), next = working(2, 6, false, milliseconds(500));
  EXPECT_EQ(turns({running, next}, {12, 5}), (SwitchPlan{.next = ModelId(2)}));
  running.turn.over = true;
  const SwitchPlan plan = turns({running, next}, {12, 5});
  EXPECT_EQ(plan.load, ModelId(2));
  EXPECT_EQ(plan.drop, std::vector<ModelId>{ModelId(1)});
}

TEST(PlanTokenSwitch, NobodyGoesInAStepOrBeforeATokenOrWhenPinned) {
  for (int why = 0; why < 3; ++why) {
    ModelView running = working(1, 6, true, milliseconds(900));
    running.turn.over = true;
    (why == 0 ? running.turn.stepping : why == 1 ? running.fresh : running.pinned) = true;
    EXPECT_FALSE(turns({running, working(2, 6, false, milliseconds(500))}, {12, 5}).load) << why;
  }
}

TEST(PlanTokenSwitch, PriorityComesBeforeSlackOnceARound) {
  ModelView late = working(1, 4, false, milliseconds(-500)), urgent = working(2, 4, false, milliseconds(10));
  ModelView high = working(3, 4, false, milliseconds(900));
  EXPECT_EQ(turns({urgent, high}, {20, 5}).load, ModelId(2));
  high.priority = 1;
  EXPECT_EQ(turns({late, urgent, high}, {20, 5}).load, ModelId(3));
  high.turn.due = false;
  EXPECT_EQ(turns({late, urgent, high}, {20, 5}).load, ModelId(1));
  high.turn.slack = milliseconds(-800);
  EXPECT_EQ(turns({late, urgent, high}, {20, 5}).load, ModelId(3));
}

// One that always has work had its turn; others are done soon, called again soon, and new in the round each time.
TEST(PlanTokenSwitch, WhoseAnswersAreDueFirstComesWhetherItHadItsTurnOrNot) {
  ModelView busy = working(1, 4, false, milliseconds(10));
  busy.turn.due = false;
  const std::vector models{busy, working(2, 4, false, milliseconds(900))};
  EXPECT_EQ(turns(models, {20, 5}).load, ModelId(1));
  EXPECT_EQ(plan_token_switch(models, {20, 5}, TurnOptions::paper()).load, ModelId(2));
}

TEST(PlanTokenSwitch, WhoWasInTheDarkTooLongComesBeforeWhoseAnswersAreDue) {
  ModelView dark = working(1, 4, false, milliseconds(90'000)), late = working(2, 4, false, milliseconds(-500));
  EXPECT_EQ(turns({dark, late}, {20, 5}).load, ModelId(2));
  dark.turn.first = true;
  EXPECT_EQ(turns({dark, late}, {20, 5}).load, ModelId(1));
  late.priority = 3;
  EXPECT_EQ(turns({dark, late}, {20, 5}).load, ModelId(1));
  dark.served = false;
  EXPECT_EQ(turns({dark, late}, {20, 5}).load, ModelId(2));
}

TEST(PlanTokenSwitch, ForWhoWasInTheDarkTooLongTheTurnUnderWayEnds) {
  ModelView here = working(1, 6, true, milliseconds(900)), dark = working(2, 6, false, milliseconds(90'000));
  EXPECT_FALSE(turns({here, dark}, {12, 5}).load) << "its turn is not over";
  dark.turn.first = true;
  EXPECT_EQ(turns({here, dark}, {12, 5}).drop, std::vector<ModelId>{ModelId(1)});
  here.turn.stepping = true;
  EXPECT_FALSE(turns({here, dark}, {12, 5}).load);
}

TEST(PlanTokenSwitch, WhoWasInTheDarkTooLongStaysForAsLongAsThatHolds) {
  ModelView guest = working(1, 6, true, milliseconds(90'000)), host = working(2, 6, false, milliseconds(10)), third = working(3, 6, false, milliseconds(90'000));
  third.turn.kv_pages_held = 12;
  guest.turn.over = true;
  EXPECT_EQ(turns({guest, host}, {12, 5}).load, ModelId(2));
  guest.turn.first = true;
  EXPECT_FALSE(turns({guest, host}, {12, 5}).load);
  EXPECT_TRUE(turns({guest, host, third}, {24, 5}).take_kv.empty()) << "it computes meanwhile";
  guest.busy = guest.queued = false;
  EXPECT_EQ(turns({guest, host}, {12, 5}).load, ModelId(2)) << "it has nothing to do";
}

TEST(PlanTokenSwitch, WhoIsNotServedTakesNobodysRoomAndGivesHis) {
  ModelView here = working(1, 6, true, milliseconds(900)), dark = working(2, 6, false, milliseconds(10)), next = working(3, 6, false, milliseconds(300));
  here.turn.over = true;
  dark.served = false;
  EXPECT_EQ(turns({here, dark, next}, {12, 5}).load, ModelId(3));
  EXPECT_FALSE(turns({here, dark}, {12, 5}).load);
  EXPECT_EQ(turns({here, dark}, {20, 8}).load, ModelId(2));  // there is room
  here.turn.over = here.served = false;
  EXPECT_EQ(turns({here, next}, {12, 5}).drop, std::vector<ModelId>{ModelId(1)});
}

TEST(PlanTokenSwitch, OfThoseWhoAreThereWhoIsNotServedGoesFirst) {
  ModelView guest = working(1, 6, true, milliseconds(10)), host = working(2, 6, true, milliseconds(90'000));
  const ModelView next = working(3, 6, false, milliseconds(300));
  guest.served = false;
  host.turn.over = true;
  for (const bool fresh : {false, true}) {
    guest.fresh = fresh;
    EXPECT_EQ(turns({guest, host, next}, {18, 5}).drop, std::vector<ModelId>{ModelId(1)}) << fresh;
  }
}

// Its load is paid for. A switch takes 200 ms.
TEST(PlanTokenSwitch, WhoHasComeButIsNotServedStaysForAMomentIfTheOtherCanWait) {
  ModelView guest = working(1, 6, true, milliseconds(-9000)), host = working(2, 6, true, milliseconds(90'000)), next = working(3, 6, false, milliseconds(500));
  guest.served = false;
  guest.turn.spent_seconds = 0.1;
  host.turn.over = true;
  EXPECT_TRUE(turns({guest, host, next}, {18, 5}).drop.empty()) << "nor does the host go instead";
  next.turn.slack = milliseconds(250);
  EXPECT_EQ(turns({guest, host, next}, {18, 5}).drop, std::vector<ModelId>{ModelId(1)}) << "it cannot wait";
  next.turn.slack = milliseconds(500);
  guest.turn.spent_seconds = 0.25;
  EXPECT_EQ(turns({guest, host, next}, {18, 5}).drop, std::vector<ModelId>{ModelId(1)}) << "it was there for long enough";
  guest.turn.spent_seconds = 0;
  guest.turn.over = true;
  EXPECT_EQ(turns({guest, host, next}, {18, 5}).drop, std::vector<ModelId>{ModelId(1)}) << "it can compute nothing";
  guest.turn.over = guest.busy = false;
  EXPECT_EQ(turns({guest, host, next}, {18, 5}).drop, std::vector<ModelId>{ModelId(1)}) << "it has nothing to do";
}

TEST(PlanTokenSwitch, OfTwoWhoAreNotServedTheOneThatIsThereStaysAsLongAsItHasWork) {
  ModelView there = working(1, 6, true, milliseconds(900)), waits = working(2, 6, false, milliseconds(10)), other = working(3, 6, true, milliseconds(900));
  there.served = waits.served = false;
  there.turn.over = true;
  EXPECT_FALSE(turns({there, waits, other}, {20, 5}).load);
  there.busy = false;
  EXPECT_EQ(turns({there, waits, other}, {20, 5}).load, ModelId(2));
}

TEST(PlanTokenSwitch, WhoIsNotServedTakesNobodysPlaceOnAnIdleDevice) {
  ModelView there = working(1, 6, true, milliseconds(900)), waits = working(2, 6, false, milliseconds(10));
  there.served = waits.served = there.busy = false;
  EXPECT_FALSE(turns({there, waits}, {12, 5}).load) << "whether it comes is decided with more in mind";
  EXPECT_EQ(turns({there, waits}, {16, 10}).load, ModelId(2)) << "where there is room";
  waits.served = true;
  EXPECT_EQ(turns({there, waits}, {12, 5}).load, ModelId(2));
}

TEST(PlanTokenSwitch, OfThoseWhoseTurnIsOverTheOneWithTheMostSlackGoes) {
  ModelView a = working(1, 6, true, milliseconds(900)), b = working(2, 6, true, milliseconds(4000));
  a.turn.over = b.turn.over = true;
  EXPECT_EQ(turns({a, b, working(3, 6, false, milliseconds(500))}, {20, 1}).drop, std::vector<ModelId>{ModelId(2)});
}

TEST(PlanTokenSwitch, ATurnEndsEarlyForOneThatWouldBeLate) {
  ModelView running = working(1, 6, true, milliseconds(5000));
  EXPECT_FALSE(turns({running, working(2, 6, false, milliseconds(100))}, {12, 5}).load) << "it has just come";
  running.turn.spent_seconds = 1;
  EXPECT_EQ(turns({running, working(2, 6, false, milliseconds(100))}, {12, 5}).load, ModelId(2));
  EXPECT_FALSE(turns({running, working(2, 6, false, milliseconds(800))}, {12, 5}).load);
}

TEST(PlanTokenSwitch, ATurnThatIsToEndWithItsAnswersDoesNotEndEarly) {
  ModelView running = working(1, 6, true, milliseconds(5000)), late = working(2, 6, false, milliseconds(100));
  running.turn.spent_seconds = 1, running.turn.answers_first = true;
  EXPECT_FALSE(turns({running, late}, {12, 5}).load);
  late.turn.first = true;
  EXPECT_EQ(turns({running, late}, {12, 5}).load, ModelId(2)) << "but for who was in the dark too long";
  late.turn.first = false, running.turn.over = true;
  EXPECT_EQ(turns({running, late}, {12, 5}).load, ModelId(2));
}

TEST(PlanTokenSwitch, KvInUseIsTakenOnlyIfNobodyComputesMeanwhile) {
  ModelView away = working(1, 6, false, milliseconds(900)), running = working(2, 6, true, milliseconds(900));
  away.turn.due = false;
  away.turn.kv_pages_held = 5;
  const ModelView next = working(3, 6, false, milliseconds(500));
  EXPECT_FALSE(turns({away, running, next}, {14, 3}).load);
  running.turn.over = true;
  running.pinned = true;
  const SwitchPlan plan = turns({away, running, next}, {14, 3});
  EXPECT_EQ(plan.load, ModelId(3));
  EXPECT_EQ(plan.take_kv, std::vector<ModelId>{ModelId(1)});
  EXPECT_FALSE(turns({away, running, next}, {14, 3, 4}).load);  // it comes free by itself
}

TEST(PlanTokenSwitch, ItsOwnKvIsNotNeededTwice) {
  ModelView back = working(1, 6, false, milliseconds(100));
  back.kv_pages_min = 4;
  EXPECT_FALSE(turns({back}, {12, 8}).load);
  back.turn.kv_pages_held = 3;
  EXPECT_EQ(turns({back}, {12, 8}).load, ModelId(1));
}

TEST(PlanTokenSwitch, IfNobodyComputesTheFirstComesThatCan) {
  ModelView large = working(1, 13, false, milliseconds(10)), small = working(2, 6, false, milliseconds(900)), idle = model(3, 4);
  idle.resident = true;
  const SwitchPlan plan = turns({large, small, idle}, {16, 3});
  EXPECT_EQ(plan.load, ModelId(2));
  EXPECT_EQ(plan.drop, std::vector<ModelId>{ModelId(3)});
  idle.busy = true;
  EXPECT_EQ(turns({large, small, idle}, {16, 3}), (SwitchPlan{.next = ModelId(1)}));
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
