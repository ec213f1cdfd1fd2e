// What a switch takes, stage by stage, and requests that end in the middle of one.
#include <gtest/gtest.h>

#include "roles/test_body.h"

namespace shoal {
namespace {

SwitchRecord only(const std::vector<SwitchRecord>& records, uint32_t model) {
  std::vector<SwitchRecord> found;
  for (const SwitchRecord& r : records) {
    if (r.model == ModelId(model)) found.push_back(r);
  }
  EXPECT_EQ(found.size(), 1u) << "of model " << model;
  return found.empty() ? SwitchRecord{} : found.front();
}

TEST(SwitchRecords, ASwitchThatARequestWaitsForIsTold) {
  Body body(config(20, {model(0)}));
  body.run(body.now() + seconds(1));
  const TimePoint asked = body.now();
  body.submit(0, 3);
  body.run();
  const SwitchRecord record = only(body.switches, 0);
  EXPECT_EQ(record.end, SwitchEnd::kServed);
  EXPECT_EQ(record.asked, asked);
  EXPECT_EQ(record.begun, asked);
  EXPECT_EQ(record.ready, asked + milliseconds(200));
  EXPECT_EQ(record.first_step, record.ready);
  EXPECT_DOUBLE_EQ(record.visible_seconds, 0.2);
  EXPECT_FALSE(record.hidden());
  EXPECT_FALSE(record.ahead);
  EXPECT_DOUBLE_EQ(record.stages.repack_seconds, 0.2);
  EXPECT_TRUE(record.dropped.empty());
}

TEST(SwitchRecords, WhatStepsOfAnotherModelFillIsNotVisible) {
  Body body(config(40, {model(0), model(1)}));
  body.submit(0, 200);
  body.run(body.now() + seconds(1));
  body.submit(1, 5);
  body.run();
  const SwitchRecord record = only(body.switches, 1);
  EXPECT_EQ(record.end, SwitchEnd::kServed);
  EXPECT_LT(record.visible_seconds, 0.001);
  EXPECT_TRUE(record.hidden());
  EXPECT_TRUE(record.ahead);
  EXPECT_GE(record.first_step - record.begun, milliseconds(200));
}

TEST(SwitchRecords, WhoWentForItAndTheWayOfItsKvAreTold) {
  NodeConfig c = config(11, {model(0), model(1)});
  c.host_pages = 40;
  Body body(c);
  body.submit(0, 100, 120);
  body.submit(1, 100, 120);
  body.run();
  ASSERT_GT(body.copies, 0u);
  double swapped = 0;
  size_t dropping = 0;
  for (const SwitchRecord& r : body.switches) {
    EXPECT_LE(r.asked, r.planned);
    EXPECT_LE(r.planned, r.begun);
    EXPECT_LE(r.begun, r.ready);
    EXPECT_LE(r.ready, r.first_step);
    EXPECT_LE(r.visible_seconds, to_seconds(r.first_step - r.planned) + 1e-9);
    swapped += r.swap_in_seconds;
    dropping += r.dropped == std::vector{ModelId(1 - r.model.value)};
  }
  EXPECT_GT(swapped, 0.0);
  EXPECT_GE(dropping, 2u);
  EXPECT_EQ(body.switches.size(), body.loads.size());
}

TEST(EarlyModel, AFirstTokenComesBeforeTheWeightsArePackedAndTheSwitchIsToldWhole) {
  Body body(config(20, {model(0)}));
  body.packing_time = milliseconds(500);
  const RequestId id = body.submit(0, 3);
  body.run(body.now() + milliseconds(40));
  EXPECT_EQ(body.answer(id).tokens, 1u);
  EXPECT_TRUE(body.switches.empty()) << "its load goes on";
  EXPECT_FALSE(body.node().idle());
  body.run();
  EXPECT_EQ(body.answer(id).tokens, 3u);
  EXPECT_EQ(body.answer(id).last, TimePoint(milliseconds(550)));
  const SwitchRecord record = only(body.switches, 0);
  EXPECT_EQ(record.end, SwitchEnd::kServed);
  EXPECT_EQ(record.ready, TimePoint(milliseconds(10)));
  EXPECT_DOUBLE_EQ(record.visible_seconds, 0.49) << "before its first step, and between that and the end of the load";
  EXPECT_DOUBLE_EQ(record.stages.repack_seconds, 0.2);
  const ModelEstimator costs = body.node().costs().at(ModelId(0));
  EXPECT_DOUBLE_EQ(costs.switch_seconds(0), 0.51) << "a switch costs what the whole load took";
  EXPECT_EQ(costs.steps_observed(), 2u) << "steps beside the packing say nothing of steps";
  EXPECT_TRUE(body.node().idle());
}

TEST(EarlyModel, NobodyElseComesToTheDeviceWhileItsWeightsArePacked) {
  for (const bool fits : {true, false}) {
    Body body(config(fits ? 40 : 11, {model(0), model(1)}));
    body.packing_time = milliseconds(500);
    const RequestId first = body.submit(0, 30);
    body.run(body.now() + milliseconds(100));
    const RequestId second = body.submit(1, 30);
    body.run(body.now() + milliseconds(100));
    EXPECT_EQ(body.loads, std::vector<uint32_t>{0});
    EXPECT_TRUE(body.drops.empty());
    body.run();
    EXPECT_EQ(body.answer(first).tokens, 30u);
    EXPECT_EQ(body.answer(second).tokens, 30u);
    EXPECT_EQ(body.cancels, 0u);
  }
}

TEST(EarlyModel, OthersOnTheDeviceComputeWhileItWaitsForItsWeights) {
  Body body(config(40, {model(0), model(1)}));
  body.submit(1, 2);
  body.run();
  body.packing_time = milliseconds(500);
  const TimePoint asked = body.now();
  const RequestId early = body.submit(0, 3);
  body.run(body.now() + milliseconds(50));
  EXPECT_EQ(body.answer(early).tokens, 1u);
  const RequestId other = body.submit(1, 5);
  body.run();
  EXPECT_LE(body.answer(other).last, asked + milliseconds(250));
  EXPECT_EQ(body.answer(early).tokens, 3u);
  EXPECT_EQ(body.answer(early).last, asked + milliseconds(550));
}

TEST(EarlyModel, ThatNobodyWantsAnyMoreMakesRoomBeforeItIsPacked) {
  Body body(config(11, {model(0), model(1)}));
  body.packing_time = seconds(100);
  const RequestId first = body.submit(0, 30);
  body.run(body.now() + milliseconds(20));
  body.packing_time = Duration(0);  // of those that follow
  body.cancel(first);  // within its first step
  body.run(body.now() + milliseconds(100));
  EXPECT_EQ(body.cancels, 0u) << "nobody else wants the device";
  const RequestId second = body.submit(1, 5);
  body.run(body.now() + seconds(2));
  EXPECT_EQ(body.cancels, 1u);
  EXPECT_EQ(body.drops.front(), 0u);
  EXPECT_EQ(body.answer(second).tokens, 5u);
  const RequestId again = body.submit(0, 5);
  body.run(body.now() + seconds(200));
  EXPECT_EQ(body.answer(again).tokens, 5u);
}

TEST(EarlyModel, WhoseFilesChangeBeforeTheyArePackedFailsItsRequestsOnceAndIsLoadedAnew) {
  Body body(config(40, {model(0), model(1)}));
  body.packing_time = milliseconds(500);
  body.packing_status = absl::DataLossError("f: it was truncated");
  const RequestId running = body.submit(0, 30);
  const RequestId other = body.submit(1, 5);
  body.run(body.now() + milliseconds(300));
  body.packing_time = Duration(0);  // of those that follow
  const RequestId waiting = body.submit(0, 30, 200);
  body.run();
  for (const RequestId id : {running, waiting}) {
    EXPECT_EQ(body.answer(id).finish, FinishReason::kError);
    EXPECT_EQ(body.answer(id).error, "model 'm0' could not be loaded: f: it was truncated");
  }
  EXPECT_EQ(body.answer(running).tokens, 1u);
  EXPECT_EQ(body.drops, std::vector<uint32_t>{0});
  EXPECT_EQ(body.answer(other).tokens, 5u);
  const RequestId again = body.submit(0, 5);
  body.run();
  EXPECT_EQ(body.answer(again).tokens, 5u);
}

TEST(SwitchRecords, AFailedLoadAndOneThatNobodyWaitsForAnyMoreAreTold) {
  Body body(config(20, {model(0), model(1)}));
  body.load_status[0] = data_loss("the file vanished");
  body.submit(0, 3);
  body.run();
  EXPECT_EQ(only(body.switches, 0).end, SwitchEnd::kFailed);
  body.set_resident(1, true);
  body.run();
  const SwitchRecord asked_for = only(body.switches, 1);
  EXPECT_EQ(asked_for.end, SwitchEnd::kUnused);
  EXPECT_EQ(asked_for.visible_seconds, 0);
  EXPECT_EQ(asked_for.first_step, kForever);
}

TEST(CancelLoad, ALoadThatNobodyWantsAnyMoreGivesWayToOneThatIsWaitedFor) {
  Body body(config(9, {model(0), model(1)}));  // room for one
  const RequestId gone = body.submit(0, 5), waits = body.submit(1, 5);
  body.run(body.now() + milliseconds(50));
  const TimePoint now = body.now();
  body.cancel(gone);
  body.run();
  EXPECT_EQ(body.cancels, 1u);
  EXPECT_EQ(body.loads, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(body.answer(waits).tokens, 5u);
  EXPECT_LT(body.answer(waits).first, now + milliseconds(230)) << "its load began a moment after the other was called off";
  EXPECT_EQ(only(body.switches, 0).end, SwitchEnd::kCancelled);
  EXPECT_EQ(body.state(0), ModelState::kUnloaded);
  EXPECT_TRUE(body.node().idle());
}

TEST(CancelLoad, ALoadThatNobodyElseWaitsForIsLeftToEnd) {
  Body body(config(20, {model(0), model(1)}));
  body.cancel(body.submit(0, 5));
  body.run();
  EXPECT_EQ(body.cancels, 0u);
  EXPECT_EQ(body.state(0), ModelState::kLoaded);
}

TEST(CancelLoad, UnloadingEndsALoadUnlessRequestsWaitForIt) {
  Body body(config(20, {model(0), model(1)}));
  body.set_resident(0, true);
  body.set_resident(0, false);
  body.run();
  EXPECT_EQ(body.cancels, 1u);
  EXPECT_EQ(body.state(0), ModelState::kUnloaded);
  body.set_resident(1, true);
  const RequestId id = body.submit(1, 5);
  body.set_resident(1, false);
  body.run();
  EXPECT_EQ(body.cancels, 1u);
  EXPECT_EQ(body.answer(id).tokens, 5u);
}

TEST(CancelLoad, KvInUseTakesThePagesOfAPrefetchBack) {
  Body body(config(28, {model(0), model(1)}));
  body.load_time = seconds(2);
  std::vector<RequestId> ids;
  for (int i = 0; i < 16; ++i) ids.push_back(body.submit(0, 40, 50));
  body.run(body.now() + milliseconds(2100));  // loaded, and all have begun
  ASSERT_GT(body.answer(ids.back()).tokens, 0u);
  const RequestId waits = body.submit(1, 5);
  ASSERT_EQ(body.loads, (std::vector<uint32_t>{0, 1})) << "the free pages are enough for the other model when it is asked for";
  body.run();
  EXPECT_GE(body.cancels, 1u);
  for (const RequestId id : ids) EXPECT_EQ(body.answer(id).tokens, 40u);
  EXPECT_EQ(body.answer(waits).tokens, 5u);
  EXPECT_EQ(body.node().status().models[0].preemptions, 0u);
  EXPECT_TRUE(body.node().idle());
}

TEST(ReadAhead, TheFilesOfTheModelThatComesNextAreAskedForOnce) {
  Body body(config(9, {model(0), model(1), model(2)}));
  body.submit(0, 40);
  body.run(body.now() + milliseconds(300));
  body.submit(1, 5);
  body.run(body.now() + milliseconds(100));
  EXPECT_EQ(body.read_ahead, std::vector<uint32_t>{1});
  body.run();
}

TEST(KvOfALoadingModel, ComesBackWhileTheWeightsCome) {
  NodeConfig c = config(16, {model(0), model(1), model(2)});
  c.host_pages = 60;
  Body body(c);
  for (uint32_t m = 0; m < 3; ++m) body.submit(m, 150, 100);
  body.run();
  size_t beside = 0;
  for (const SwitchRecord& r : body.switches) beside += r.swap_in_seconds > 0 && r.first_step == r.ready;
  EXPECT_GT(beside, 0u) << "no switch found its KV there when its weights were";
}

// Two models in turns with KV on both tiers; one request ends at any moment of it: while pages drain, weights load, KV
// comes back, in the first step and between.
TEST(AtAnyMomentOfASwitch, ARequestCanBeWithdrawnAndTheOthersEndWell) {
  for (int moment = 0; moment < 2400; moment += 5) {
    NodeConfig c = config(11, {model(0), model(1)});
    c.host_pages = 40;
    Body body(c);
    std::vector<RequestId> ids;
    for (uint32_t m = 0; m < 2; ++m) {
      ids.push_back(body.submit(m, 40, 120));
      ids.push_back(body.submit(m, 40, 50));
    }
    body.run(body.now() + milliseconds(moment));
    const RequestId gone = ids[static_cast<size_t>(moment / 5) % ids.size()];
    const uint32_t before = body.answer(gone).tokens;
    body.cancel(gone);
    body.run();
    ASSERT_EQ(body.answer(gone).tokens, before) << "at " << moment << " ms";
    for (const RequestId id : ids) {
      if (id == gone) continue;
      ASSERT_EQ(body.answer(id).tokens, 40u) << "at " << moment << " ms";
    }
    ASSERT_TRUE(body.node().idle()) << "at " << moment << " ms";
    for (const ModelStatus& m : body.node().status().models) ASSERT_EQ(m.kv_bytes_active, 0u) << "at " << moment << " ms";
  }
}

TEST(AtAnyMomentOfASwitch, AllRequestsOfAModelCanBeWithdrawn) {
  for (int moment = 0; moment < 1500; moment += 5) {
    NodeConfig c = config(11, {model(0), model(1)});
    c.host_pages = 40;
    Body body(c);
    const RequestId a = body.submit(0, 40, 120), b = body.submit(1, 40, 120);
    body.run(body.now() + milliseconds(moment));
    body.cancel(moment % 2 ? a : b);
    body.cancel(moment % 2 ? b : a);
    body.run();
    ASSERT_TRUE(body.node().idle()) << "at " << moment << " ms";
    const RequestId after = body.submit(1, 3);
    body.run();
    ASSERT_EQ(body.answer(after).tokens, 3u) << "at " << moment << " ms";
  }
}

// With memory for one of two models, and a host tier that has room for both.
NodeConfig one_memory_config() {
  NodeConfig c = config(11, {model(0), model(1)});
  c.host_pages = 40;
  c.one_memory = true;
  return c;
}

TEST(Adoption, SwitchesToWhatIsStillThereAreNearlyFreeAndKnownToBe) {
  Body body(one_memory_config());
  for (int i = 0; i < 6; ++i) {
    const TimePoint asked = body.now();
    const RequestId id = body.submit(i % 2, 3, 120);
    body.run();
    if (i >= 2) {
      EXPECT_LE(body.answer(id).first - asked, milliseconds(30)) << i;
    }
  }
  for (const auto& [id, costs] : body.node().costs()) {
    EXPECT_NEAR(costs.switch_seconds(9), 0.2, 0.02);
    EXPECT_LT(costs.switch_seconds(9, 0), 0.005);
  }
}

TEST(Adoption, WhatIsSwitchedOffIsNot) {
  NodeConfig c = one_memory_config();
  c.adopt_weights = false;
  Body body(c);
  for (int i = 0; i < 4; ++i) {
    const TimePoint asked = body.now();
    const RequestId id = body.submit(i % 2, 3, 120);
    body.run();
    EXPECT_GE(body.answer(id).first - asked, milliseconds(200));
  }
}

TEST(AFailedLoad, FailsTheRequestsOfItsModelOnlyAndTheNextOneMayLoadAgain) {
  Body body(config(9, {model(0), model(1)}));
  const RequestId lost = body.submit(0, 5), kept = body.submit(1, 5);
  body.load_status[0] = data_loss("the file was cut");
  Body again(config(9, {model(0), model(1)}));
  again.load_status[0] = data_loss("the file was cut");
  const RequestId first = again.submit(0, 5), other = again.submit(1, 5);
  again.run();
  EXPECT_EQ(again.answer(first).finish, FinishReason::kError);
  EXPECT_NE(again.answer(first).error.find("the file was cut"), std::string::npos);
  EXPECT_EQ(again.answer(other).tokens, 5u);
  again.load_status.clear();
  const RequestId retry = again.submit(0, 5);
  again.run();
  EXPECT_EQ(again.answer(retry).tokens, 5u);
  body.run();
  EXPECT_EQ(body.answer(lost).tokens, 5u) << "its load was under way with a good file";
  EXPECT_EQ(body.answer(kept).tokens, 5u);
}

}  // namespace
}  // namespace shoal
