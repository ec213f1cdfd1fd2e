// Steps beside those that wait for experts elsewhere, with a body that takes time.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "roles/test_body.h"

namespace shoal {
namespace {

NodeModel asking(NodeModel model) {
  model.experts_elsewhere = true;
  return model;
}

NodeConfig two_at_once(uint32_t pages, std::vector<NodeModel> models) {
  NodeConfig c = config(pages, std::move(models));
  c.steps_max = 2;
  return c;
}

TEST(NodeBeside, AStepThatWaitsForExpertsLeavesTheDeviceToAnotherModel) {
  const auto last = [](uint32_t steps_max) {
    NodeConfig c = two_at_once(40, {asking(model(0)), model(1)});
    c.steps_max = steps_max;
    Body body(c);
    body.away = milliseconds(60);
    const RequestId a = body.submit(0, 100), b = body.submit(1, 100);
    body.run();
    EXPECT_EQ(body.answer(a).tokens, 100u);
    EXPECT_EQ(body.answer(b).tokens, 100u);
    EXPECT_EQ(body.most_in_flight, steps_max);
    EXPECT_TRUE(body.node().idle());
    return std::max(body.answer(a).last, body.answer(b).last);
  };
  EXPECT_LT(last(2) - TimePoint{}, milliseconds(100 * 80 + 1000));  // as long as the one that waits takes alone
  EXPECT_GT(last(1) - TimePoint{}, milliseconds(100 * 100));
}

TEST(NodeBeside, WhatIsWaitedIsNoTimeOfSteps) {
  Body body(two_at_once(40, {asking(model(0)), model(1)}));
  body.away = milliseconds(60);
  body.submit(0, 100), body.submit(1, 100);
  body.run();
  EXPECT_NEAR(body.node().costs().at(ModelId(0)).decode_seconds(1, 50), 0.02, 0.002);
  EXPECT_NEAR(body.node().costs().at(ModelId(1)).decode_seconds(1, 50), 0.02, 0.002);
}

// Both ask and have work all the time: neither waits for the other to end.
TEST(NodeBeside, NeitherOfTwoStarves) {
  Body body(two_at_once(60, {asking(model(0)), asking(model(1)), model(2)}));
  body.away = milliseconds(60);
  std::vector<RequestId> ids;
  for (uint32_t m = 0; m < 3; ++m) ids.push_back(body.submit(m, 200));
  body.run(TimePoint(seconds(6)));
  for (const RequestId id : ids) EXPECT_GT(body.answer(id).tokens, 30u);
  body.run();
  for (const RequestId id : ids) EXPECT_EQ(body.answer(id).tokens, 200u);
}

// The third needs the room of both: they leave together, though one of them always waits for experts.
TEST(NodeBeside, AModelThatNeedsTheRoomOfBothHasIt) {
  Body body(two_at_once(13, {asking(model(0)), asking(model(1)), model(2, 8)}));
  body.away = milliseconds(60);
  const RequestId a = body.submit(0, 150), b = body.submit(1, 150);
  body.run(TimePoint(seconds(2)));
  const RequestId c = body.submit(2, 10);
  body.run(body.now() + seconds(10));
  EXPECT_EQ(body.answer(c).tokens, 10u);
  EXPECT_LT(body.answer(a).tokens, 150u);
  body.run();
  EXPECT_EQ(body.answer(a).tokens, 150u);
  EXPECT_EQ(body.answer(b).tokens, 150u);
}

TEST(NodeBeside, EverybodyIsServedWhateverComesWhileMemoryIsShort) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    std::vector<NodeModel> models;
    for (uint32_t m = 0; m < 4; ++m) {
      models.push_back(model(m, 3 + static_cast<uint32_t>(rng.below(3))));
      models.back().experts_elsewhere = rng.chance(0.6);
    }
    NodeConfig c = two_at_once(9 + static_cast<uint32_t>(rng.below(14)), models);
    c.host_pages = rng.chance(0.5) ? 6 : 0;
    if (rng.chance(0.2)) c.scheduling = Scheduling::kRequest;
    Body body(c);
    body.away = milliseconds(rng.below(100));
    std::map<RequestId, uint32_t> asked;
    for (int i = 0; i < 30; ++i) {
      const auto tokens = static_cast<uint32_t>(1 + rng.below(60));
      asked[body.submit(static_cast<uint32_t>(rng.below(4)), tokens, static_cast<uint32_t>(4 + rng.below(120)))] = tokens;
      body.run(body.now() + milliseconds(rng.below(300)));
      if (rng.chance(0.1)) {
        body.cancel(asked.rbegin()->first);
        asked.erase(std::prev(asked.end()));
      }
    }
    body.run();
    for (const auto& [id, tokens] : asked) EXPECT_EQ(body.answer(id).tokens, tokens) << body.answer(id).error;
    EXPECT_TRUE(body.node().idle());
  }
}

}  // namespace
}  // namespace shoal
