// Sequences of models whose layers keep a state: it is memory like KV, and the prefix index keeps some of them.
#include <gtest/gtest.h>

#include <set>

#include "engine/test_harness.h"

namespace shoal {
namespace {

// A state takes two blocks.
EngineConfig with_states(uint32_t kept = 16) {
  EngineConfig config;
  config.state_blocks = 2;
  config.states_kept_max = kept;
  config.max_model_len = 4000;
  return config;
}

std::set<uint32_t> ids(const std::vector<BlockId>& blocks) {
  std::set<uint32_t> result;
  for (const BlockId block : blocks) result.insert(block.value);
  return result;
}

TEST(State, AStepReadsWhatTheLastOneWroteAndWritesElsewhere) {
  Harness h(16, with_states());
  ASSERT_TRUE(h.submit(1, 40, 6).ok());
  std::vector<BlockId> written;
  for (int i = 0; h.step(); ++i) {
    const StepSlice& slice = h.last().slices[0];
    EXPECT_EQ(slice.state_before, written) << i;  // nothing before the first
    EXPECT_EQ(slice.state_after.size(), 2u);
    std::set<uint32_t> all = ids(slice.blocks);
    for (const auto* state : {&slice.state_before, &slice.state_after, &slice.state_kept}) {
      for (const BlockId block : *state) EXPECT_TRUE(all.insert(block.value).second) << "a block is two things";
    }
    written = slice.state_after;
  }
  EXPECT_EQ(h.received(1), 6u);
}

TEST(State, AStepThatCountsForNothingLeavesTheStateAsItWas) {
  Harness h(16, with_states());
  ASSERT_TRUE(h.submit(1, 40, 6).ok());
  h.step();
  h.step();
  const StepSlice before = h.last().slices[0];
  h.defer(1);
  h.step();
  const StepSlice deferred = h.last().slices[0];
  h.step();
  EXPECT_EQ(deferred.state_before, before.state_after);
  EXPECT_EQ(h.last().slices[0].state_before, deferred.state_before);
  EXPECT_EQ(h.last().slices[0].begin, deferred.begin);
}

TEST(State, TheNextTurnComputesOnlyWhatIsNew) {
  Harness h(64, with_states());
  ASSERT_TRUE(h.submit(1, 100, 60).ok());
  h.run();
  // Turn 2: prompt and answer of turn 1, and something new.
  ASSERT_TRUE(h.submit(2, 100, 5, [&](Request& r) {
    r.prompt.clear();
    for (uint32_t i = 0; i < 100; ++i) r.prompt.push_back(static_cast<TokenId>((31 + i) % 1000));
    const std::vector<TokenId> answer = h.answer(1);
    r.prompt.insert(r.prompt.end(), answer.begin(), answer.end());
    r.prompt.insert(r.prompt.end(), 20, 5);
  }).ok());
  h.step();
  EXPECT_EQ(h.last().slices[0].begin, 159u) << "all that was computed for turn 1: all but the token drawn last";
  EXPECT_EQ(h.last().slices[0].state_before.size(), 2u);
  ASSERT_EQ(h.last().slices[0].tail_from.size(), 1u);
  EXPECT_NE(h.last().slices[0].tail_from[0], h.last().slices[0].blocks[9]) << "others may need what is there";
  h.step();
  EXPECT_TRUE(h.last().slices[0].tail_from.empty());
  h.run();
  EXPECT_EQ(h.received(2), 5u);
}

// Those tokens that ask for an answer may differ the next time.
TEST(State, APromptIsFoundAgainALittleBeforeItsEnd) {
  for (uint32_t length = 96; length < 112; ++length) {
    for (const uint32_t answer : {1u, 40u}) {
      Harness h(64, with_states());
      ASSERT_TRUE(h.submit(1, length, answer).ok());
      h.step();
      const StepSlice first = h.last().slices[0];
      EXPECT_EQ(first.kept_tokens, length - 6);
      EXPECT_EQ(first.state_kept.size(), 2u);
      h.run();
      ASSERT_TRUE(h.submit(32, length, 1, [&](Request& r) {
        for (uint32_t i = 0; i < length - 6; ++i) r.prompt[i] = static_cast<TokenId>((31 + i) % 1000);
      }).ok());
      h.step();
      EXPECT_EQ(h.last().slices[0].begin, length - 6) << length << " " << answer;
      EXPECT_EQ(h.last().slices[0].tail_from.empty(), (length - 6) % kTokensPerBlock == 0);
    }
  }
}

// An answer that was stopped is in the history of the next turn, too.
TEST(State, WhatWasCancelledIsFoundAgain) {
  Harness h(64, with_states());
  ASSERT_TRUE(h.submit(1, 50, 60).ok());
  for (int i = 0; i < 8; ++i) h.step();
  ASSERT_TRUE(h.engine().cancel(RequestId(1)));
  ASSERT_TRUE(h.submit(2, 80, 1, [&](Request& r) {
    for (uint32_t i = 0; i < 50; ++i) r.prompt[i] = static_cast<TokenId>((31 + i) % 1000);
    std::copy_n(h.answer(1).begin(), 8, r.prompt.begin() + 50);
  }).ok());
  h.step();
  EXPECT_EQ(h.last().slices[0].begin, 57u);
}

// A step that counts for nothing has copied nothing for good: the next one does, and until then the sequence stays where it is.
TEST(State, ADeferredStepCopiesTheTailAgain) {
  EngineConfig config = with_states();
  Harness h(64, config, /*host_pages=*/64);
  ASSERT_TRUE(h.submit(1, 100, 1).ok());
  h.run();
  ASSERT_TRUE(h.submit(32, 120, 3, [&](Request& r) {
    for (uint32_t i = 0; i < 100; ++i) r.prompt[i] = static_cast<TokenId>((31 + i) % 1000);
  }).ok());
  h.defer(2);
  h.step();
  const StepSlice first = h.last().slices[0];
  EXPECT_EQ(first.begin, 100u);
  EXPECT_EQ(first.tail_from.size(), 1u);
  EXPECT_FALSE(h.engine().park(RequestId(32)).has_value());
  h.step();
  EXPECT_EQ(h.last().slices[0].tail_from, first.tail_from);
  h.step();
  EXPECT_EQ(h.last().slices[0].tail_from, first.tail_from);
  EXPECT_TRUE(h.engine().park(RequestId(32)).has_value());
}

TEST(State, LongPromptsKeepStatesOnTheWay) {
  EngineConfig config = with_states();
  config.limits.tokens_per_step = 512;
  Harness h(400, config);
  ASSERT_TRUE(h.submit(1, 3000, 1).ok());
  h.run();
  ASSERT_TRUE(h.submit(2, 3000, 1, [](Request& r) {
    for (uint32_t i = 0; i < 2500; ++i) r.prompt[i] = static_cast<TokenId>((31 + i) % 1000);
  }).ok());
  h.step();
  EXPECT_EQ(h.last().slices[0].begin, 2048u);
}

TEST(State, OnlySoManyAreKept) {
  Harness h(200, with_states(/*kept=*/6));
  for (uint64_t id = 1; id <= 8; ++id) {
    ASSERT_TRUE(h.submit(id * 100, 100, 1).ok());
    h.run();
  }
  int found = 0;
  for (uint64_t id = 8; id > 0; --id) {  // from the latest
    ASSERT_TRUE(h.submit(1000 + id, 100, 1, [&](Request& r) {
      for (uint32_t i = 0; i < 100; ++i) r.prompt[i] = static_cast<TokenId>((id * 100 * 31 + i) % 1000);
    }).ok());
    h.step();
    found += h.last().slices[0].begin > 0;
    h.run();
  }
  EXPECT_GE(found, 3) << "each prompt has two, one of them of little worth";
  EXPECT_LE(found, 6);
}

TEST(State, KeptStatesGiveWayToRunningSequences) {
  Harness h(12, with_states());  // 48 blocks
  for (uint64_t id = 1; id <= 4; ++id) {
    ASSERT_TRUE(h.submit(id * 100, 90, 1).ok());
    h.run();
  }
  ASSERT_TRUE(h.submit(1, 600, 4).ok());
  h.run();
  EXPECT_EQ(h.received(1), 4u);
  EXPECT_EQ(h.engine().counters().preemptions, 0u);
}

TEST(State, ParkingTakesTheStateAlong) {
  EngineConfig config = with_states();
  config.prefix_cache = false;
  Harness h(16, config, 16);
  ASSERT_TRUE(h.submit(1, 40, 20).ok());
  for (int i = 0; i < 5; ++i) h.step();
  const std::vector<BlockId> state = h.last().slices[0].state_after;
  const auto out = h.engine().park();
  ASSERT_TRUE(out.has_value());
  ASSERT_EQ(out->copies.size(), 3u + 2u);  // 44 tokens are computed
  EXPECT_EQ(out->copies[3].from, state[0]);
  h.engine().finish_move(out->id);
  EXPECT_EQ(h.pages().free(), 16u);
  const auto back = h.engine().unpark_oldest();
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->copies[3].from, out->copies[3].to);
  h.engine().finish_move(back->id);
  h.step();
  EXPECT_EQ(h.last().slices[0].begin, 44u);
  EXPECT_EQ(h.last().slices[0].state_before[0], back->copies[3].to);
  h.run();
  EXPECT_EQ(h.received(1), 20u);
}

TEST(State, ARequestIsAdmittedOnlyWithRoomForItsStates) {
  Harness h(4, with_states(0));  // 16 blocks
  ASSERT_TRUE(h.submit(1, 16, 60).ok());
  ASSERT_TRUE(h.submit(2, 16, 4).ok());
  ASSERT_TRUE(h.submit(3, 16, 4).ok());
  h.step();
  EXPECT_EQ(h.engine().running(), 2u);  // two blocks of KV and four of states each
  h.run();
  for (uint64_t id : {1, 2, 3}) EXPECT_TRUE(h.end(id).has_value()) << id;
}

// Two are admitted in one step when the free blocks are fewer than the states of the first: what is evicted for them is not what the
// plan counts on for the second, though that was used longest ago.
TEST(State, WhoIsAdmittedBeforeAnotherDoesNotTakeThePrefixThatThePlanGaveIt) {
  Harness h(7, with_states());  // 28 blocks
  for (const auto& [id, prompt] : {std::pair(1, 100), std::pair(5, 60), std::pair(6, 44)}) {
    ASSERT_TRUE(h.submit(id, prompt, 1).ok());
    h.run();
  }
  ASSERT_TRUE(h.submit(2, 16, 20).ok());
  h.step();
  ASSERT_EQ(h.engine().blocks_cached(), 21u);  // and 6 are held
  ASSERT_TRUE(h.submit(3, 16, 2).ok());
  ASSERT_TRUE(h.submit(4, 100, 2, [](Request& r) {
    for (uint32_t i = 0; i < 94; ++i) r.prompt[i] = static_cast<TokenId>((31 + i) % 1000);
  }).ok());
  h.step();
  ASSERT_EQ(h.last().slices.size(), 3u);
  EXPECT_EQ(h.last().slices[2].begin, 94u);
  h.run();
  EXPECT_EQ(h.received(3), 2u);
  EXPECT_EQ(h.received(4), 2u);
}

TEST(State, AnyMixOfLengthsCancelsAndPreemptionsEndsWithEverythingFree) {
  Rng rng(11);
  EngineConfig config = with_states(5);
  config.limits = {64, 6, 6, true};
  config.max_model_len = 256;
  Harness h(10, config, 6);
  for (uint64_t id = 1; id <= 60; ++id) {
    const uint32_t prompt = 1 + static_cast<uint32_t>(rng.below(150)), same = static_cast<uint32_t>(rng.below(prompt));
    ASSERT_TRUE(h.submit(id, prompt, 1 + static_cast<uint32_t>(rng.below(50)), [&](Request& r) {
      for (uint32_t i = 0; i < same; ++i) r.prompt[i] = static_cast<TokenId>(i);
    }).ok());
    for (uint64_t steps = rng.below(8); steps > 0; --steps) h.step();
    if (rng.chance(0.2)) h.engine().cancel(RequestId(1 + rng.below(id)));
    if (rng.chance(0.2)) h.engine().preempt_youngest();
    if (rng.chance(0.3)) {
      if (const auto move = h.engine().park()) h.engine().finish_move(move->id);
    }
    if (const auto move = h.engine().unpark_oldest()) h.engine().finish_move(move->id);
    h.engine().check();
  }
  while (h.engine().has_work()) {
    h.run();
    if (const auto move = h.engine().unpark_oldest()) h.engine().finish_move(move->id);
  }
  h.engine().drop_cached();
  EXPECT_EQ(h.pages().free(), 10u);
}

}  // namespace
}  // namespace shoal
