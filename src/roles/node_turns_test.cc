// Turns of models on one device, with a body that takes time.
#include <gtest/gtest.h>

#include <algorithm>

#include "roles/test_body.h"

namespace shoal {
namespace {

TEST(NodeTurns, ALongPromptLeavesReadersTheirGap) {
  NodeModel big = model(0);
  big.max_model_len = 2048;
  big.kv_block_bytes = kPageBytes / 64;
  Body body(config(40, {big}));
  body.row_time = milliseconds(1);  // 80 rows in the 100 ms of a token
  const RequestId reader = body.submit(0, 200, 300);
  body.run(body.now() + seconds(3));
  EXPECT_EQ(body.rows.front(), 300u);  // nobody reads yet: as much as a step takes
  ASSERT_GT(body.answer(reader).tokens, 10u);
  const size_t before = body.rows.size();
  const RequestId late = body.submit(0, 4, 1200);
  body.run(body.now() + seconds(4));
  ASSERT_EQ(body.answer(late).tokens, 4u);
  const uint32_t most = *std::max_element(body.rows.begin() + static_cast<ptrdiff_t>(before), body.rows.end());
  EXPECT_GE(most, 65u);   // prompts go on while others read ...
  EXPECT_LE(most, 100u);  // ... about as fast as leaves them their time
}

TEST(NodeTurns, AReaderWhoAskedForALessGapHasIt) {
  NodeModel big = model(0);
  big.max_model_len = 2048;
  big.kv_block_bytes = kPageBytes / 64;
  Body body(config(40, {big}));
  body.row_time = microseconds(200);
  body.submit(0, 200, 300, milliseconds(50));  // 150 rows
  body.run(body.now() + seconds(3));
  const size_t before = body.rows.size();
  const RequestId late = body.submit(0, 4, 1200);
  body.run(body.now() + seconds(4));
  ASSERT_EQ(body.answer(late).tokens, 4u);
  const uint32_t most = *std::max_element(body.rows.begin() + static_cast<ptrdiff_t>(before), body.rows.end());
  EXPECT_GE(most, 100u);
  EXPECT_LE(most, 250u);  // 400 in the 100 ms that the model allows
}

TEST(NodeTurns, ALongPromptLeavesReadersOfAnotherModelTheirGap) {
  const auto first_rows = [](Duration tbt) {
    NodeModel read = model(0), big = model(1);
    big.max_model_len = 2048;
    big.kv_block_bytes = kPageBytes / 64;
    read.pooling.slo = {milliseconds(1), tbt};
    Body body(config(90, {read, big}));  // room for both
    body.row_time = milliseconds(1);
    body.submit(1, 4, 1200);
    body.run();
    EXPECT_EQ(body.rows.front(), 512u);  // nobody reads: as much as a step takes
    body.submit(0, 200);
    body.run();
    body.submit(0, 200);  // its first token comes after 28 ms, which is a little late; those that follow take 21 ms each
    const size_t before = body.steps.size();
    body.submit(1, 4, 1200);
    body.run();
    const auto prompt = std::find(body.steps.begin() + static_cast<ptrdiff_t>(before), body.steps.end(), 1u) - body.steps.begin();
    return body.rows[static_cast<size_t>(prompt)];
  };
  EXPECT_EQ(first_rows(milliseconds(25)), 16u);
  EXPECT_GT(first_rows(milliseconds(400)), 200u);
}

TEST(NodeTurns, AModelGivesWayBetweenTokensAndItsAnswerGoesOn) {
  Body body(config(11, {model(0), model(1)}));  // weights of one and KV of both
  const RequestId a = body.submit(0, 100), b = body.submit(1, 100);
  body.run();
  EXPECT_EQ(body.answer(a).tokens, 100u);
  EXPECT_EQ(body.answer(b).tokens, 100u);
  EXPECT_GT(body.loads.size(), 4u);  // back and forth within the answers
  EXPECT_LT(body.answer(b).first, body.answer(a).last);
  EXPECT_EQ(body.node().status().models[0].preemptions, 0u);  // KV stayed where it was
  EXPECT_TRUE(body.node().idle());
}

// What a first token takes is the load and the prompt, not the load and a step.
TEST(NodeTurns, AModelComesInTimeForItsPrompt) {
  NodeConfig c = config(11, {model(0), model(1)});
  c.turns.quota_max_seconds = 4;
  c.adopt_weights = false;  // switches of one kind
  c.models[1].pooling.slo.ttft = seconds(1);
  Body body(c);
  body.row_time = milliseconds(2);  // 0.3 s for 150 tokens
  for (int i = 0; i < 4; ++i) {     // what that takes is learned
    body.submit(i % 2, 4, 150);
    body.run();
  }
  const RequestId reader = body.submit(0, 200, 8);
  body.run(body.now() + milliseconds(700));
  ASSERT_GT(body.answer(reader).tokens, 10u);
  const TimePoint asked = body.now();
  const RequestId late = body.submit(1, 4, 151);
  body.run();
  EXPECT_GT(body.answer(late).first, asked + milliseconds(700));  // the reader went on as long as he could
  EXPECT_LT(body.answer(late).first, asked + milliseconds(1050));
}

TEST(NodeTurns, RequestLevelLetsAnAnswerEndFirst) {
  NodeConfig c = config(11, {model(0), model(1)});
  c.scheduling = Scheduling::kRequest;
  Body body(c);
  const RequestId a = body.submit(0, 100), b = body.submit(1, 100);
  body.run();
  EXPECT_GT(body.answer(b).first, body.answer(a).last);
  EXPECT_EQ(body.loads.size(), 2u);
}

// More than a step takes, and all before the other model was wanted: one switch.
TEST(NodeTurns, RequestLevelServesWhoCameFirstAndSwitchesOnce) {
  NodeConfig c = config(11, {model(0), model(1)});
  c.scheduling = Scheduling::kRequest;
  c.limits.tokens_per_step = 16;  // two prompts
  Body body(c);
  std::vector<RequestId> first;
  for (int i = 0; i < 12; ++i) first.push_back(body.submit(0, 60));
  const RequestId other = body.submit(1, 4);
  body.run(TimePoint(seconds(1)));
  const RequestId later = body.submit(0, 4);
  body.run();
  for (const RequestId id : first) EXPECT_LT(body.answer(id).last, body.answer(other).first);
  EXPECT_LT(body.answer(other).last, body.answer(later).first);
  EXPECT_EQ(body.loads, (std::vector<uint32_t>{0, 1, 0}));
}

TEST(NodeTurns, AResidentModelNeverWaitsBehindTheLoadOfAnother) {
  Body body(config(30, {model(0), model(1), model(2)}));
  body.submit(0, 1);
  body.run();
  body.submit(1, 4);  // loads for 200 ms
  const TimePoint asked = body.now();
  const RequestId quick = body.submit(0, 4);
  body.run();
  EXPECT_LE(body.answer(quick).last - asked, milliseconds(4 * 20));
}

TEST(NodeTurns, TheNextModelIsLoadedWhileTheOthersCompute) {
  Body body(config(27, {model(0, 8), model(1, 8), model(2, 8)}));  // room for two
  std::vector<RequestId> ids;
  for (uint32_t m = 0; m < 3; ++m) ids.push_back(body.submit(m, 200));
  body.run();
  TimePoint end{};
  for (const RequestId id : ids) end = std::max(end, body.answer(id).last);
  // 600 steps of 20 ms: the first load is waited for, and hardly any other.
  EXPECT_LT(end - TimePoint{}, milliseconds(600 * 20 + 2 * 200));
  EXPECT_GT(body.loads.size(), 6u);
}

TEST(NodeTurns, WhatALoadTakesFromTheStepsBesideItIsACostOfTheSwitchAndNotOfTheSteps) {
  const auto costs = [](Duration drag) {
    Body body(config(27, {model(0, 8), model(1, 8), model(2, 8)}));  // room for two
    body.load_drag = drag;
    for (uint32_t m = 0; m < 3; ++m) body.submit(m, 200);
    body.run();
    return body.node().costs().at(ModelId(2));
  };
  const ModelEstimator free = costs(Duration(0)), dragged = costs(milliseconds(20));  // half the cores, say
  EXPECT_LT(free.waited_seconds(9), 0.03);
  EXPECT_NEAR(dragged.waited_seconds(9), 0.1, 0.03);  // half of a load of 200 ms
  EXPECT_NEAR(dragged.decode_seconds(1, 100), 0.02, 0.002);
}

TEST(NodeTurns, EveryTurnBringsATokenEvenIfKvMustGo) {
  // One model with the KV of one sequence fits, nothing beside it: each turn computes anew what the last one lost.
  Body body(config(4 + 4, {model(0), model(1), model(2)}));
  std::vector<RequestId> ids;
  for (uint32_t m = 0; m < 3; ++m) ids.push_back(body.submit(m, 120, 100));
  body.run();
  for (const RequestId id : ids) EXPECT_EQ(body.answer(id).tokens, 120u);
  EXPECT_TRUE(body.node().idle());
}

// Nothing of them can be on time, which is no reason to let the device stand idle.
TEST(NodeTurns, AnswersThatAreAllLateGoOnWhileNobodyElseWantsTheDevice) {
  std::vector<NodeModel> models = {model(0), model(1), model(2), model(3)};
  for (NodeModel& m : models) m.pooling.slo = {milliseconds(1), milliseconds(1)};
  Body body(config(11, models));
  std::vector<RequestId> ids;
  for (uint32_t m = 0; m < 4; ++m) ids.push_back(body.submit(m, 200));
  body.run();
  for (const RequestId id : ids) {
    EXPECT_EQ(body.answer(id).tokens, 200u);
    EXPECT_LT(body.answer(id).last, TimePoint(seconds(2 * 4 * 200 / 50)));  // a step takes 20 ms
  }
}

// Until the first token of a request that comes for model 1 when all those for model 0 have ended, one each `gap`, a moment ago or just now.
Duration wait_of_another(Body& body, int requests, uint32_t tokens, Duration gap, bool just_now = false) {
  for (int i = 0; i < requests; ++i) {
    body.submit(0, tokens);
    body.run(body.now() + gap);
  }
  if (!just_now) body.run();
  EXPECT_EQ(body.state(0), ModelState::kLoaded);
  const TimePoint asked = body.now();
  const RequestId another = body.submit(1, 4);
  body.run();
  return body.answer(another).first - asked;
}

// Many came for the model that is there, and others may come: they can wait for as long as the other model would be there.
TEST(NodeTurns, WhoIsLateNeedNotWaitForThoseWhoMayComeAndHaveTime) {
  std::vector<NodeModel> models = {model(0), model(1)};
  models[0].pooling.slo = {seconds(10), milliseconds(100)};
  models[1].pooling.slo = {milliseconds(100), milliseconds(50)};  // a load takes 200 ms
  Body body(config(9, models));                                   // room for one
  EXPECT_LT(wait_of_another(body, 40, 100, milliseconds(50)), milliseconds(700));
}

// Room for one of two, of which a load takes longer than a first token may. Neither would be back at once.
NodeConfig config_for_late(Duration ttft, Duration tbt) {
  std::vector<NodeModel> models = {model(0), model(1)};
  for (NodeModel& m : models) m.pooling.slo = {ttft, tbt};
  NodeConfig c = config(9, models);
  c.adopt_weights = false;
  return c;
}

// Many came for the model that is there, who would be late if it left, until a moment ago.
TEST(NodeTurns, WhoIsLateNeedNotWaitLongForThoseWhoDoNotComeAnyMore) {
  const NodeConfig c = config_for_late(milliseconds(100), milliseconds(50));
  Body body(c);
  const Duration wait = wait_of_another(body, 100, 4, milliseconds(200), /*just_now=*/true);
  EXPECT_GT(wait, milliseconds(700));
  EXPECT_LT(wait, seconds(2));
  Body moment_ago(c);
  EXPECT_LT(wait_of_another(moment_ago, 100, 4, milliseconds(200)), milliseconds(500));
}

// Where they come meanwhile they are waited for, but not for ever.
TEST(NodeTurns, WhoIsLateWaitsWhereOthersComeMeanwhile) {
  Body body(config_for_late(seconds(10), milliseconds(100)));
  body.load_time = seconds(30);
  for (int i = 0; i < 20; ++i) {
    body.submit(0, 100);
    body.run(body.now() + seconds(8));
  }
  const RequestId late = body.submit(1, 100);
  const TimePoint asked = body.now();
  const RequestId usual = body.submit(0, 100);
  body.run();
  EXPECT_LT(body.answer(usual).first - asked, seconds(1));
  EXPECT_GT(body.answer(late).first - asked, seconds(60));
  EXPECT_LT(body.answer(late).first - asked, seconds(160));
}

// One after the other, a person asks for models of which a load takes three times as long as a first token may: nobody is disturbed, and no
// answer takes much longer to come than its model.
TEST(NodeTurns, OnePersonNeedNotWaitForHimself) {
  for (const Duration pause : {seconds(3), seconds(30), seconds(300)}) {
    Body body(config_for_late(seconds(10), milliseconds(100)));
    body.load_time = seconds(30);
    for (const uint32_t model : {0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1}) {
      const RequestId id = body.submit(model, 100);
      const TimePoint asked = body.now();
      while (!body.answer(id).finish && body.now() - asked < seconds(300)) body.run(body.now() + milliseconds(100));
      EXPECT_LT(body.answer(id).first - asked, seconds(30 + 30 + 11)) << "its load, the rest of one that was under way, and a silence";
      for (const TimePoint next = body.now() + pause; body.now() < next;) body.run(std::min(next, body.now() + milliseconds(100)));
    }
  }
}

TEST(NodeTurns, APinnedModelIsLoadedAtOnceAndStays) {
  NodeModel pinned = model(0);
  pinned.pooling.pinned = true;
  Body body(config(13, {pinned, model(1), model(2)}));  // the pinned one and one more
  EXPECT_EQ(body.loads, std::vector<uint32_t>{0});
  for (uint32_t m = 1; m < 3; ++m) body.submit(m, 60);
  body.run();
  EXPECT_EQ(std::count(body.drops.begin(), body.drops.end(), 0u), 0);
  EXPECT_EQ(body.state(0), ModelState::kLoaded);
}

TEST(NodeTurns, AModelThatWasAskedForIsLoadedAndGivesWayLikeAnyOther) {
  Body body(config(9, {model(0), model(1)}));  // room for one
  body.give(MessageFrom{kGateway, SetResident{ModelId(0), true}});
  body.run();
  EXPECT_EQ(body.state(0), ModelState::kLoaded);
  const RequestId other = body.submit(1, 4);
  body.run();
  EXPECT_EQ(body.answer(other).tokens, 4u);
  EXPECT_EQ(body.loads, (std::vector<uint32_t>{0, 1}));
}

TEST(NodeTurns, WhatDoesNotFitBesidePinnedModelsIsRefusedWithTheReason) {
  NodeModel pinned = model(0, 6);
  pinned.pooling.pinned = true;
  Body body(config(12, {pinned, model(1, 6)}));
  body.run(TimePoint(seconds(1)));
  const RequestId id = body.submit(1, 4);
  body.run();
  EXPECT_EQ(body.answer(id).finish, FinishReason::kError);
  EXPECT_NE(body.answer(id).error.find("pinned"), std::string::npos);
  EXPECT_TRUE(body.node().idle());
}

TEST(NodeTurns, StaticServesWhatFitsTogetherAndRefusesTheRest) {
  NodeModel last = model(2);
  last.pooling.pinned = true;
  NodeConfig c = config(17, {model(0), model(1), last});  // 8 pages each
  c.scheduling = Scheduling::kStatic;
  Body body(c);
  const RequestId a = body.submit(0, 20), b = body.submit(1, 20), e = body.submit(2, 20);
  body.run();
  EXPECT_EQ(body.answer(a).tokens, 20u);
  EXPECT_EQ(body.answer(e).tokens, 20u);
  EXPECT_NE(body.answer(b).error.find("'m1' is not served"), std::string::npos);
  EXPECT_EQ(body.state(1), ModelState::kFailed);
  EXPECT_EQ(body.loads, (std::vector<uint32_t>{0, 2}));
  EXPECT_TRUE(body.drops.empty());
}

TEST(NodeTurns, StaticServesAModelThatComesLaterIfItFitsOrAsSoonAsItDoes) {
  NodeConfig c = config(17, {model(0)});  // 8 pages each
  c.scheduling = Scheduling::kStatic;
  Body body(c);
  body.give(ModelAdded{model(1)});
  body.give(ModelAdded{model(2)});
  const RequestId fits = body.submit(1, 20), refused = body.submit(2, 20);
  body.run();
  EXPECT_EQ(body.answer(fits).tokens, 20u);
  EXPECT_NE(body.answer(refused).error.find("'m2' is not served"), std::string::npos);
  EXPECT_EQ(body.loads, (std::vector<uint32_t>{0, 1}));
  body.give(ModelRetired{ModelId(0)});
  body.run();
  const RequestId now_fits = body.submit(2, 20);
  body.run();
  EXPECT_EQ(body.answer(now_fits).tokens, 20u);
  EXPECT_EQ(body.loads, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(body.drops, (std::vector<uint32_t>{0}));
}

// The first model is away, in the middle of an answer, when its files are replaced.
TEST(NodeTurns, AnAnswerIsNeverWrittenWithTwoWeights) {
  for (const bool replaced : {false, true}) {
    NodeConfig c = config(11, {model(0), model(1)});
    c.host_pages = 40;
    Body body(c);
    const RequestId begun = body.submit(0, 100, 120);
    body.submit(1, 100, 120);
    while (body.drops.empty()) body.run(body.now() + milliseconds(5));
    ASSERT_EQ(body.drops.front(), 0u);
    Request same{.id = RequestId(50), .model = ModelId(0)};  // the same prompt, and not begun
    for (TokenId i = 0; i < 120; ++i) same.prompt.push_back((i + 1) % 90);
    same.max_tokens = 30;
    body.give(MessageFrom{kGateway, Submit{same}});
    body.weights = replaced ? 2 : 1;
    body.run();
    EXPECT_GT(body.answer(begun).tokens, 0u);
    EXPECT_EQ(body.answer(begun).error.find("were replaced") != std::string::npos, replaced);
    EXPECT_EQ(body.answer(begun).tokens == 100u, !replaced);
    EXPECT_EQ(body.answer(same.id).tokens, 30u);  // with the new ones
    EXPECT_EQ(body.node().status().models[0].prefix_hits == 0, replaced) << "nothing that the old ones computed is used";
    EXPECT_TRUE(body.node().idle());
  }
}

TEST(NodeTurns, WhileAModelsStepsAreDeferredTheDeviceIsForOthersAndNothingIsLost) {
  for (const uint32_t pages : {30u, 11u}) {  // room for both, and for one at a time
    Body body(config(pages, {model(0), model(1)}));
    const RequestId waits = body.submit(0, 30), reads = body.submit(1, 100);
    body.run(body.now() + milliseconds(900));
    const uint32_t before = body.answer(waits).tokens;
    body.deferring = {0};
    const size_t steps = body.steps.size();
    body.run(body.now() + seconds(8));
    EXPECT_LE(body.answer(waits).tokens, before + 1) << "the step under way may have ended well";
    EXPECT_EQ(body.answer(reads).tokens, 100u);
    const auto tried = std::count(body.steps.begin() + static_cast<ptrdiff_t>(steps), body.steps.end(), 0u);
    EXPECT_GE(tried, 2);
    EXPECT_LE(tried, 60) << "less and less often";
    body.deferring = {};
    body.run();
    EXPECT_EQ(body.answer(waits).tokens, 30u);
    EXPECT_EQ(body.answer(waits).finish, FinishReason::kLength);
    EXPECT_TRUE(body.node().idle());
  }
}

TEST(NodeTurns, ARequestOfADeferredModelCanBeWithdrawn) {
  Body body(config(30, {model(0)}));
  const RequestId id = body.submit(0, 30);
  body.deferring = {0};
  body.run(body.now() + seconds(1));
  body.cancel(id);
  body.run();
  EXPECT_TRUE(body.node().idle());
  EXPECT_EQ(body.answer(id).tokens, 0u);
}

TEST(NodeTurns, AnIdleModelLeavesAfterItsTime) {
  NodeModel brief = model(0);
  brief.pooling.idle_ttl = milliseconds(500);
  Body body(config(30, {brief, model(1)}));
  body.submit(0, 2);
  body.submit(1, 2);
  body.run();
  EXPECT_EQ(body.state(0), ModelState::kUnloaded);
  EXPECT_EQ(body.state(1), ModelState::kLoaded);
  const RequestId again = body.submit(0, 2);
  body.run();
  EXPECT_EQ(body.answer(again).tokens, 2u);
}

}  // namespace
}  // namespace shoal
