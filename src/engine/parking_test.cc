// Sequences that wait on the host tier.
#include <gtest/gtest.h>

#include "engine/test_harness.h"

namespace shoal {
namespace {

TEST(Parking, AParkedSequenceGoesOnWhereItStopped) {
  Harness h(8, {.prefix_cache = false}, 8);
  ASSERT_TRUE(h.submit(1, 40, 20).ok());
  for (int i = 0; i < 5; ++i) h.step();
  const auto out = h.engine().park();
  ASSERT_TRUE(out.has_value());
  EXPECT_EQ(out->copies.size(), 3u);  // 44 tokens are computed
  EXPECT_EQ(h.pages().free(), 7u);    // not free before the copy is done
  EXPECT_FALSE(h.engine().unpark_oldest().has_value());
  EXPECT_FALSE(h.step());
  h.engine().finish_move(out->id);
  EXPECT_EQ(h.pages().free(), 8u);
  const auto back = h.engine().unpark_oldest();
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->copies[0].from, out->copies[0].to);
  EXPECT_FALSE(h.step());  // not before it has arrived
  h.engine().finish_move(back->id);
  EXPECT_EQ(h.host().pages_free(), 8u);
  h.step();
  EXPECT_EQ(h.last().slices[0].begin, 44u);  // nothing is computed twice
  h.run();
  EXPECT_EQ(h.received(1), 20u);
  EXPECT_EQ(h.engine().counters().preemptions, 0u);
}

TEST(Parking, WithoutRoomOnTheHostTierNothingIsParked) {
  Harness none(8), small(8, {}, 1);
  for (Harness* h : {&none, &small}) {
    ASSERT_TRUE(h->submit(1, 100, 20).ok());
    h->step();
    EXPECT_FALSE(h->engine().park().has_value());
    h->run();
    EXPECT_EQ(h->received(1), 20u);
  }
}

TEST(Parking, AParkedSequenceIsNotOvertakenByNewOnes) {
  Harness h(4, {.prefix_cache = false}, 8);  // 16 blocks
  ASSERT_TRUE(h.submit(1, 100, 20).ok());
  h.step();
  ASSERT_TRUE(h.submit(2, 16, 4).ok());
  const auto out = h.engine().park();
  h.engine().finish_move(out->id);
  EXPECT_FALSE(h.step());
  const auto back = h.engine().unpark_oldest();
  h.engine().finish_move(back->id);
  h.run();
  EXPECT_EQ(h.received(1), 20u);
  EXPECT_EQ(h.received(2), 4u);
}

TEST(Parking, WhatIsOfNoUseIsComputedAnewWhereverItIs) {
  using Stage = Engine::Stage;
  for (const bool back : {false, true}) {
    for (const Stage stage : {Stage::kWaiting, Stage::kRunning, Stage::kParking, Stage::kParked}) {
      Harness h(8, {.prefix_cache = false}, 8);
      ASSERT_TRUE(h.submit(1, 40, 20).ok());
      std::optional<KvMove> move;
      if (stage != Stage::kWaiting || back) h.step();
      if (stage == Stage::kParking || stage == Stage::kParked) move = h.engine().park();
      if (back && move) {
        h.engine().finish_move(move->id);
        move = h.engine().unpark_oldest();
      }
      if (stage == Stage::kParked && !back) h.engine().finish_move(move->id);
      if (stage == Stage::kWaiting && back) h.engine().preempt_youngest();
      h.engine().restart(RequestId(1));
      if (h.engine().parking().moves() > 0) h.engine().finish_move(move->id);
      h.engine().check();
      EXPECT_EQ(h.pages().free(), 8u);
      EXPECT_EQ(h.host().pages_free(), 8u);
      h.step();
      EXPECT_EQ(h.last().slices[0].begin, 0u);
      h.run();
      EXPECT_EQ(h.received(1), 20u);
    }
  }
}

TEST(Parking, ACancelDuringACopyFreesBothSidesWhenItEnds) {
  for (const bool returning : {false, true}) {
    Harness h(8, {.prefix_cache = false}, 8);
    ASSERT_TRUE(h.submit(1, 40, 20).ok());
    h.step();
    std::optional<KvMove> move = h.engine().park();
    if (returning) {
      h.engine().finish_move(move->id);
      move = h.engine().unpark_oldest();
    }
    EXPECT_TRUE(h.engine().cancel(RequestId(1)));
    EXPECT_TRUE(h.engine().has(RequestId(1)));
    h.engine().check();
    h.engine().finish_move(move->id);
    EXPECT_FALSE(h.engine().has(RequestId(1)));
    EXPECT_EQ(h.pages().free(), 8u);
    EXPECT_EQ(h.host().pages_free(), 8u);
    h.engine().check();
  }
}

}  // namespace
}  // namespace shoal
