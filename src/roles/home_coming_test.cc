// Who comes back to a device with room for one of three models, with a body that takes time: a load takes 200 ms, a first token may take 100.
#include "roles/home_coming.h"

#include <gtest/gtest.h>

#include "roles/test_body.h"

namespace shoal {
namespace {

using Loads = std::vector<uint32_t>;

NodeConfig config_for_one(Duration ttft) {
  NodeConfig c = config(11, {model(0), model(1), model(2)});
  c.adopt_weights = false;  // they would be there at once
  for (NodeModel& m : c.models) m.pooling.slo = {ttft, milliseconds(25)};
  return c;
}

class HomeComingTest : public ::testing::Test {
 protected:
  void ask(uint32_t model, int times = 1) {
    for (int i = 0; i < times; ++i) {
      body_.submit(model, 8);
      body_.run(body_.now() + milliseconds(900));
    }
  }
  Body body_{config_for_one(milliseconds(100))};
};

TEST_F(HomeComingTest, WhoIsAskedForMostComesBackWhenTheOtherIsDone) {
  ask(0, 5);
  ask(1);
  body_.run();
  EXPECT_EQ(body_.loads, (Loads{0, 1, 0}));
  EXPECT_EQ(body_.state(0), ModelState::kLoaded);
  const RequestId next = body_.submit(0, 8);
  const TimePoint asked = body_.now();
  body_.run();
  EXPECT_LT(body_.answer(next).first - asked, milliseconds(100));
  EXPECT_EQ(body_.loads.size(), 3u);
}

TEST_F(HomeComingTest, OfTwoThatAreAskedForAlikeTheLastStays) {
  for (int i = 0; i < 4; ++i) ask(0), ask(1);
  body_.run();
  EXPECT_EQ(body_.loads.back(), 1u);
  EXPECT_EQ(body_.state(1), ModelState::kLoaded);
}

TEST_F(HomeComingTest, WhoeverMovesOnToAnotherModelFindsItThere) {
  ask(0, 30);
  ask(1);  // nobody knows yet what that means
  ask(1, 5);
  ask(2, 5);
  ask(0, 5);
  EXPECT_EQ(body_.loads, (Loads{0, 1, 0, 1, 2, 0}));
}

TEST_F(HomeComingTest, WhoeverLooksInNowAndThenTurnsNobodyAwayThoughOthersMoveOn) {
  for (int i = 0; i < 6; ++i) ask(0, 9), ask(1);
  body_.run();
  EXPECT_EQ(body_.loads, (Loads{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0}));
}

TEST_F(HomeComingTest, WhomTheOperatorSentAwayStaysAway) {
  ask(0, 5);
  body_.submit(1, 8);
  body_.set_resident(0, false);
  body_.run();
  EXPECT_EQ(body_.loads, (Loads{0, 1}));
}

TEST_F(HomeComingTest, WhoIsAskedForMeanwhileComesFirst) {
  ask(0, 5);
  body_.submit(1, 8);
  for (int i = 0; i < 20'000 && body_.loads.size() < 3; ++i) body_.run(body_.now() + milliseconds(10));
  ASSERT_EQ(body_.loads, (Loads{0, 1, 0}));
  const RequestId other = body_.submit(2, 8);
  body_.run(body_.now() + milliseconds(450));
  EXPECT_EQ(body_.cancels, 1u);
  EXPECT_EQ(body_.answer(other).tokens, 8u);
}

TEST_F(HomeComingTest, WhoWaitsInTheDarkKeepsNobodyAway) {
  ask(0, 40);
  body_.submit(1, 100);
  for (int i = 0; i < 1'000 && body_.loads.size() < 2; ++i) body_.run(body_.now() + milliseconds(10));
  body_.run(body_.now() + milliseconds(500));
  const RequestId dark = body_.submit(2, 8);
  body_.submit(1, 8);  // meanwhile
  body_.run();
  EXPECT_EQ(body_.loads, (Loads{0, 1, 0, 2, 0}));
  EXPECT_EQ(body_.answer(dark).tokens, 8u);
}

TEST(HomeComing, NobodyMovesForRequestsThatCouldWait) {
  Body body(config_for_one(seconds(10)));
  for (int i = 0; i < 5; ++i) {
    body.submit(0, 8);
    body.run();
  }
  body.submit(1, 8);
  body.run();
  EXPECT_EQ(body.loads, (Loads{0, 1}));
}

TEST(HomeComing, OneComesIfItLosesTwiceAsMuchAsThoseThatLeave) {
  const auto view = [](uint32_t id, double lost, uint32_t pages, int used = 0) { return HomeView{ModelId(id), lost, pages, TimePoint(seconds(used))}; };
  const HomeView away[] = {view(0, 3, 4), view(1, 5, 4)};
  const HomeView here[] = {view(2, 1, 2, 7), view(3, 0.5, 2, 5), view(4, 9, 2, 6)};
  EXPECT_EQ(comes_home(away, here, 2), ModelId(1)) << "the least recently used alone leaves";
  EXPECT_EQ(comes_home(away, here, 0), std::nullopt) << "the next one loses more";
  EXPECT_EQ(comes_home(away, {}, 4), ModelId(1));
  EXPECT_EQ(comes_home(away, {}, 3), std::nullopt) << "no room";
  EXPECT_EQ(comes_home({}, here, 0), std::nullopt);
}

}  // namespace
}  // namespace shoal
