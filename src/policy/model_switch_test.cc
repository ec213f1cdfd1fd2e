// Who comes to the device and who goes for it: request by request, and token by token.
#include <gtest/gtest.h>

#include "policy/model_switch.h"

namespace shoal {
namespace {

using std::chrono::milliseconds;

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
TEST(PlanTokenSwitch, WhoHasComeButIsNotServedStaysUntilItsFirstTokenIfTheOtherCanWait) {
  ModelView guest = working(1, 6, true, milliseconds(-9000)), host = working(2, 6, true, milliseconds(90'000)), next = working(3, 6, false, milliseconds(500));
  guest.served = false;
  guest.fresh = true;
  host.turn.over = true;
  EXPECT_TRUE(turns({guest, host, next}, {18, 5}).drop.empty()) << "nor does the host go instead";
  next.turn.slack = milliseconds(250);
  EXPECT_EQ(turns({guest, host, next}, {18, 5}).drop, std::vector<ModelId>{ModelId(1)}) << "it cannot wait";
  next.turn.slack = milliseconds(500);
  guest.fresh = false;
  EXPECT_EQ(turns({guest, host, next}, {18, 5}).drop, std::vector<ModelId>{ModelId(1)}) << "it has given a token";
  guest.fresh = guest.turn.over = true;
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

TEST(PlanTokenSwitch, APromiseThatCanBeKeptIsBeforeThoseThatAreLate) {
  const ModelView late = working(1, 4, false, milliseconds(-5000));
  ModelView promise = working(2, 4, false, milliseconds(3000)), first = working(3, 4, false, milliseconds(9000));
  EXPECT_EQ(turns({late, promise}, {20, 5}).load, ModelId(1));
  promise.turn.promise = true;
  EXPECT_EQ(turns({late, promise}, {20, 5}).load, ModelId(2));
  first.turn.first = true;
  EXPECT_EQ(turns({late, promise, first}, {20, 5}).load, ModelId(3));
}

TEST(PlanTokenSwitch, AnswersAreBrokenOffForAPromiseThatIsKeptOnlyNowAndAfterFourSwitches) {
  ModelView running = working(1, 6, true, milliseconds(-5000)), promise = working(2, 6, false, milliseconds(430));
  running.turn.spent_seconds = 0.81, running.turn.answers_first = true, promise.turn.promise = true;
  EXPECT_EQ(turns({running, promise}, {12, 5}).load, ModelId(2));
  running.turn.spent_seconds = 0.79;
  EXPECT_FALSE(turns({running, promise}, {12, 5}).load);
  running.turn.spent_seconds = 0.81, promise.turn.slack = milliseconds(450);
  EXPECT_FALSE(turns({running, promise}, {12, 5}).load) << "there is time";
  promise.turn.slack = milliseconds(430), promise.turn.promise = false;
  EXPECT_FALSE(turns({running, promise}, {12, 5}).load);
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

}  // namespace
}  // namespace shoal
