#include "engine/engine.h"

#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "engine/test_harness.h"

namespace shoal {
namespace {

TEST(Engine, ARequestRunsToItsLastToken) {
  Harness h(8);
  ASSERT_TRUE(h.submit(1, 10, 5).ok());
  h.run();
  EXPECT_EQ(h.received(1), 5u);
  EXPECT_EQ(h.end(1), FinishReason::kLength);
  EXPECT_FALSE(h.engine().has_work());
}

TEST(Engine, PromptsAreComputedInChunksAndSampledAtTheirEnd) {
  Harness h(8, {.limits = {.tokens_per_step = 8}});
  ASSERT_TRUE(h.submit(1, 20, 2).ok());
  std::vector<std::pair<uint32_t, bool>> slices;
  while (h.step()) slices.emplace_back(h.last().slices[0].tokens.size(), h.last().slices[0].sample);
  EXPECT_EQ(slices, (std::vector<std::pair<uint32_t, bool>>{{8, false}, {8, false}, {4, true}, {1, true}}));
}

TEST(Engine, DecodesAndPrefillsShareAStep) {
  Harness h(8, {.limits = {.tokens_per_step = 16}});
  ASSERT_TRUE(h.submit(1, 4, 30).ok());
  h.step();
  ASSERT_TRUE(h.submit(2, 40, 2).ok());
  h.step();
  ASSERT_EQ(h.last().slices.size(), 2u);
  EXPECT_EQ(h.last().slices[0].tokens.size(), 1u);
  EXPECT_EQ(h.last().slices[1].tokens.size(), 15u);
}

TEST(Engine, AStepTakesNoMoreTokensThanItsCallerAllows) {
  PagePool pages(8);
  BlockPool blocks(pages, kBlockBytes);
  EngineConfig config;
  config.max_model_len = 256;
  config.vocab_size = 1000;
  Engine engine(blocks, config);
  Request request;
  request.id = RequestId(1);
  request.prompt.assign(50, 7);
  request.max_tokens = 1;
  ASSERT_TRUE(engine.submit(request).ok());
  EXPECT_EQ(engine.begin_step(TimePoint(), 20)->rows(), 20u);
}

TEST(Engine, AStopTokenEndsTheAnswerAndIsDelivered) {
  Harness h(8);
  TokenId second = 0;
  ASSERT_TRUE(h.submit(1, 4, 10).ok());
  h.step();
  h.step();
  second = static_cast<TokenId>(mix64(1 ^ (1ull << 20)) % 900);
  h.engine().cancel(RequestId(1));
  Harness stopped(8);
  ASSERT_TRUE(stopped.submit(1, 4, 10, [&](Request& r) { r.stop_ids = {second}; }).ok());
  stopped.run();
  EXPECT_EQ(stopped.received(1), 2u);
  EXPECT_EQ(stopped.end(1), FinishReason::kStop);
}

TEST(Engine, StopTokensAreBannedBeforeMinTokens) {
  Harness h(8);
  ASSERT_TRUE(h.submit(1, 4, 10, [](Request& r) { r.min_tokens = 2; r.stop_ids = {5}; }).ok());
  std::vector<bool> banned;
  while (h.step()) banned.push_back(h.last().slices[0].ban_stop_ids);
  EXPECT_TRUE(banned[0] && banned[1]);
  EXPECT_FALSE(banned[2]);
}

TEST(Engine, ADeferredStepCommitsNothingAndItsRequestsGoOnAsTheyWere) {
  const auto answers = [](int deferred, bool cancel) {
    Harness h(8, {.limits = {.tokens_per_step = 16}});
    EXPECT_TRUE(h.submit(1, 40, 6, [](Request& r) { r.prompt_logprobs = 0; }).ok());
    EXPECT_TRUE(h.submit(2, 4, 9).ok());
    for (int i = 0; i < 5; ++i) {
      h.defer(deferred);
      for (int k = 0; k <= deferred; ++k) EXPECT_TRUE(h.step());
    }
    if (cancel) {
      h.defer(1);
      h.between([&] { h.engine().cancel(RequestId(2)); });
      EXPECT_TRUE(h.step());
      h.between([] {});
      EXPECT_FALSE(h.engine().has(RequestId(2))) << "it ends with the step that it was in";
    }
    h.run();
    EXPECT_EQ(h.engine().counters().steps_deferred, static_cast<uint64_t>(5 * deferred + (cancel ? 1 : 0)));
    EXPECT_EQ(h.engine().blocks_active(), 0u);
    EXPECT_FALSE(h.engine().has_work());
    return std::tuple(h.received(1), h.end(1), h.scored(1).size());
  };
  const auto want = answers(0, false);
  EXPECT_EQ(answers(1, false), want);
  EXPECT_EQ(answers(3, true), want);
}

TEST(Engine, TheContextLengthEndsAnAnswer) {
  Harness h(8, {.max_model_len = 20});
  ASSERT_TRUE(h.submit(1, 15, 100).ok());
  h.run();
  EXPECT_EQ(h.received(1), 5u);
  EXPECT_EQ(h.end(1), FinishReason::kLength);
}

TEST(Engine, WhatCanNeverRunIsRefusedWithTheReason) {
  Harness h(8, {.max_model_len = 20});
  EXPECT_FALSE(h.submit(1, 0, 5).ok());
  const Status too_long = h.submit(2, 20, 5);
  EXPECT_NE(too_long.message().find("maximum context length is 20 tokens"), std::string_view::npos);
  EXPECT_FALSE(h.submit(3, 5, 1, [](Request& r) { r.output = {1}; }).ok());
  EXPECT_FALSE(h.submit(4, 5, 5, [](Request& r) { r.prompt[0] = 1000; }).ok());
  EXPECT_FALSE(h.submit(5, 5, 5, [](Request& r) { r.prompt[0] = -1; }).ok());
  ASSERT_TRUE(h.submit(6, 5, 5).ok());
  EXPECT_FALSE(h.submit(6, 5, 5).ok());
}

TEST(Engine, AFullQueueRefuses) {
  Harness h(8, {.waiting_max = 2});
  ASSERT_TRUE(h.submit(1, 5, 5).ok());
  ASSERT_TRUE(h.submit(2, 5, 5).ok());
  EXPECT_EQ(h.submit(3, 5, 5).code(), StatusCode::kResourceExhausted);
}

TEST(Engine, ACancelOutsideAStepFreesAtOnce) {
  Harness h(8);
  ASSERT_TRUE(h.submit(1, 40, 50).ok());
  h.step();
  EXPECT_TRUE(h.engine().cancel(RequestId(1)));
  EXPECT_FALSE(h.engine().cancel(RequestId(1)));
  EXPECT_EQ(h.engine().blocks_active(), 0u);
  EXPECT_FALSE(h.step());
}

TEST(Engine, ACancelDuringAStepFreesWhenTheStepEnds) {
  Harness h(8);
  ASSERT_TRUE(h.submit(1, 10, 50).ok());
  h.step();
  h.between([&] {
    EXPECT_TRUE(h.engine().cancel(RequestId(1)));
    EXPECT_GT(h.engine().blocks_active(), 0u);  // the step still writes there
  });
  h.step();
  EXPECT_EQ(h.received(1), 1u);  // the token of the cancelled step goes to nobody
  EXPECT_FALSE(h.engine().has_work());
  EXPECT_EQ(h.engine().blocks_active(), 0u);
}

TEST(Engine, AnEqualPromptIsServedFromThePrefixIndex) {
  Harness h(8);
  const auto same = [](Request& r) { r.prompt.assign(50, 7); };
  ASSERT_TRUE(h.submit(1, 50, 2, same).ok());
  h.run();
  ASSERT_TRUE(h.submit(2, 50, 2, same).ok());
  h.step();
  EXPECT_EQ(h.last().slices[0].begin, 48u);
  EXPECT_EQ(h.engine().counters().prefix_hits, 48u);
}

TEST(Engine, AWholeCachedPromptStillComputesItsLastToken) {
  Harness h(8);
  const auto same = [](Request& r) { r.prompt.assign(48, 7); };
  ASSERT_TRUE(h.submit(1, 48, 1, same).ok());
  h.run();
  ASSERT_TRUE(h.submit(2, 48, 1, same).ok());
  h.step();
  EXPECT_EQ(h.last().slices[0].begin, 32u);
  EXPECT_TRUE(h.last().slices[0].sample);
}

TEST(Engine, PromptsOfOtherLengthsDoNotShareKvThatDependsOnTheLength) {
  Harness h(8, {.kv_salt_above = 40});
  ASSERT_TRUE(h.submit(1, 50, 1, [](Request& r) { r.prompt.assign(50, 7); }).ok());
  h.run();
  ASSERT_TRUE(h.submit(2, 51, 1, [](Request& r) { r.prompt.assign(51, 7); }).ok());
  h.step();
  EXPECT_EQ(h.last().slices[0].begin, 0u);
  ASSERT_TRUE(h.submit(3, 50, 1, [](Request& r) { r.prompt.assign(50, 7); }).ok());
  h.step();
  EXPECT_EQ(h.last().slices[0].begin, 48u);
}

TEST(Engine, RunningOutOfBlocksPreemptsTheYoungestAndLosesNothing) {
  Harness h(2, {.prefix_cache = false});  // 8 blocks
  ASSERT_TRUE(h.submit(1, 30, 60).ok());
  ASSERT_TRUE(h.submit(2, 30, 60).ok());
  h.run();
  EXPECT_GT(h.engine().counters().preemptions, 0u);
  EXPECT_EQ(h.received(1), 60u);
  EXPECT_EQ(h.received(2), 60u);
  EXPECT_EQ(h.pages().free(), 2u);
}

TEST(Engine, APreemptedRequestKeepsItsPlaceInTheQueue) {
  Harness h(2, {.limits = {.sequences_max = 2}, .prefix_cache = false});
  ASSERT_TRUE(h.submit(1, 30, 60).ok());
  ASSERT_TRUE(h.submit(2, 30, 60).ok());
  ASSERT_TRUE(h.submit(3, 30, 60).ok());
  while (!h.end(2)) ASSERT_TRUE(h.step());
  EXPECT_LT(h.received(3), 60u);
}

TEST(Engine, HigherPriorityIsAdmittedFirst) {
  Harness h(8, {.limits = {.sequences_max = 1}});
  ASSERT_TRUE(h.submit(1, 5, 3).ok());
  ASSERT_TRUE(h.submit(2, 5, 3).ok());
  ASSERT_TRUE(h.submit(3, 5, 3, [](Request& r) { r.priority = 5; }).ok());
  h.step();
  EXPECT_EQ(h.last().slices[0].request, RequestId(3));
}

TEST(Engine, AReplayedRequestContinuesAtTheNextIndex) {
  Harness h(8);
  std::vector<TokenId> delivered = {11, 12, 13};
  Request request;
  request.id = RequestId(9);
  request.prompt = {1, 2, 3};
  request.output = delivered;
  request.max_tokens = 5;
  ASSERT_TRUE(h.engine().submit(request).ok());
  const auto input = h.engine().begin_step(TimePoint());
  ASSERT_TRUE(input.has_value());
  EXPECT_EQ(input->slices[0].tokens, (std::vector<TokenId>{1, 2, 3, 11, 12, 13}));
  EXPECT_EQ(input->slices[0].output_index, 3u);
  SliceResult out;
  out.request = request.id;
  out.sampled.push_back({.token = 14, .logprob = 0, .top = {}});
  const auto deltas = h.engine().finish_step({input->step, {out}});
  EXPECT_EQ(deltas[0].first_index, 3u);
}

TEST(Engine, CountsTheWaitForTheFirstStepAndTheTokensOfEachStep) {
  Harness h(8, {.limits = {.tokens_per_step = 16}});
  const TimePoint arrival{std::chrono::seconds(5)};
  ASSERT_TRUE(h.submit(1, 20, 1, [&](Request& r) { r.arrival = arrival; }).ok());
  Duration queued{0};
  TimePoint now = arrival + std::chrono::seconds(2);
  while (const auto input = h.engine().begin_step(now)) {
    SliceResult out{.request = RequestId(1)};
    if (input->slices[0].sample) out.sampled.push_back({.token = 1});
    for (const TokenDelta& delta : h.engine().finish_step({input->step, {out}})) queued = delta.queued;
    now += std::chrono::seconds(1);
  }
  EXPECT_EQ(queued, std::chrono::seconds(2)) << "later steps are no queue";
  EXPECT_EQ(h.engine().counters().step_tokens, 20u);
  EXPECT_EQ(h.engine().counters().steps_by_tokens[2], 1u);  // 16 tokens
  EXPECT_EQ(h.engine().counters().steps_by_tokens[1], 1u);  // 4 tokens
}

TEST(Engine, ScoresComeOncePerPromptTokenWhateverTheChunks) {
  Harness h(8, {.limits = {.tokens_per_step = 7}});
  ASSERT_TRUE(h.submit(1, 50, 2, [](Request& r) { r.prompt_logprobs = 0; }).ok());
  h.run();
  ASSERT_EQ(h.scored(1).size(), 49u);
  for (uint32_t i = 0; i < 49; ++i) EXPECT_EQ(h.scored(1)[i].token, static_cast<TokenId>(i + 1));
}

TEST(Engine, APromptOfOneTokenHasNothingToScore) {
  Harness h(8);
  ASSERT_TRUE(h.submit(1, 1, 2, [](Request& r) { r.prompt_logprobs = 0; }).ok());
  h.run();
  EXPECT_EQ(h.received(1), 2u);
  EXPECT_TRUE(h.scored(1).empty());
}

TEST(Engine, LogitsThatAreNoNumbersFailTheirOwnRequestOnly) {
  Harness h(8);
  ASSERT_TRUE(h.submit(1, 5, 5).ok());
  ASSERT_TRUE(h.submit(2, 5, 5).ok());
  h.poison(1);
  h.run();
  EXPECT_EQ(h.end(1), FinishReason::kError);
  EXPECT_EQ(h.end(2), FinishReason::kLength);
  EXPECT_FALSE(h.engine().has_work());
}

TEST(Engine, CachedBlocksAreGivenUpForRunningSequences) {
  Harness h(2);  // 8 blocks
  ASSERT_TRUE(h.submit(1, 60, 1).ok());
  h.run();
  EXPECT_GT(h.engine().blocks_cached(), 0u);
  ASSERT_TRUE(h.submit(2, 110, 5).ok());
  h.run();
  EXPECT_EQ(h.received(2), 5u);
  h.engine().drop_cached();
  EXPECT_EQ(h.pages().free(), 2u);
}

TEST(Engine, AnAnswerEndsWhereItsGrammarLetsNothingFollow) {
  PagePool pages(64);
  BlockPool blocks(pages, kBlockBytes);
  EngineConfig config;
  config.max_model_len = 256;
  config.vocab_size = 1000;
  Engine engine(blocks, config);
  for (uint64_t id = 1; id <= 3; ++id) {
    Request request;
    request.id = RequestId(id);
    request.prompt = {1, 2, 3};
    request.max_tokens = 50;
    request.min_tokens = 10;
    request.sampling.grammar = Grammar{"root ::= \"a\"", {}};
    ASSERT_TRUE(engine.submit(request).ok());
  }
  const auto step = [&](const std::function<void(SliceResult&)>& fill) {
    const auto input = engine.begin_step(TimePoint());
    StepResult result{input->step, {}};
    for (const StepSlice& slice : input->slices) {
      EXPECT_EQ(slice.output.size(), slice.output_index) << "whoever follows a grammar sees the answer so far";
      result.slices.push_back({.request = slice.request});
      fill(result.slices.back());
    }
    return engine.finish_step(result);
  };
  for (const TokenDelta& delta : step([](SliceResult& out) { out.sampled = {{5, 0, {}}}; })) EXPECT_FALSE(delta.finish.has_value());
  const auto deltas = step([](SliceResult& out) {
    out.complete = out.request != RequestId(3);
    if (out.request == RequestId(1)) out.sampled = {{6, 0, {}}};
    if (out.request == RequestId(3)) out.error = invalid_argument("no way on");
  });
  ASSERT_EQ(deltas.size(), 3u);
  EXPECT_EQ(deltas[0].finish, FinishReason::kStop);
  EXPECT_EQ(deltas[0].tokens.size(), 1u);
  EXPECT_EQ(deltas[1].finish, FinishReason::kStop);
  EXPECT_TRUE(deltas[1].tokens.empty());
  EXPECT_EQ(deltas[2].finish, FinishReason::kError);
  EXPECT_EQ(deltas[2].error.message(), "no way on");
  EXPECT_FALSE(engine.has_work());
}

TEST(Engine, DemandIsThatOfTheMostUrgentRequest) {
  Harness h(8, {.limits = {.sequences_max = 1}});
  const SloTarget target{std::chrono::seconds(1), std::chrono::milliseconds(100)};
  EXPECT_EQ(h.engine().demand(target, TimePoint()).slack, Duration::max());
  ASSERT_TRUE(h.submit(1, 20, 8).ok());
  for (int i = 0; i < 3; ++i) h.step();
  EXPECT_EQ(h.engine().demand(target, TimePoint()).slack, std::chrono::milliseconds(1300));  // three are there already
  EXPECT_EQ(h.engine().demand(target, TimePoint()).context_tokens, 23u);
  EXPECT_EQ(h.engine().demand(target, TimePoint()).known - h.engine().demand(target, TimePoint()).computed, 1u);
  ASSERT_TRUE(h.submit(2, 19, 8).ok());
  const Engine::Demand demand = h.engine().demand(target, TimePoint());
  EXPECT_EQ(demand.slack, std::chrono::seconds(1));
  EXPECT_EQ(demand.known, 19u);
  EXPECT_EQ(demand.computed, 0u);
}

TEST(Engine, DemandCountsWhatABegunPromptStillNeeds) {
  Harness h(8, {.limits = {.tokens_per_step = 8}});
  const SloTarget target{std::chrono::seconds(1), std::chrono::milliseconds(100)};
  ASSERT_TRUE(h.submit(1, 20, 8).ok());
  h.step();
  const Engine::Demand demand = h.engine().demand(target, TimePoint());
  EXPECT_EQ(demand.known, 20u);
  EXPECT_EQ(demand.computed, 8u);
}

// Of three answers two are a minute late; a step with all of them is half as long again as with the one that can be on time.
class HopelessAnswers : public ::testing::Test {
 protected:
  void SetUp() override {
    for (uint64_t i = 1; i <= 3; ++i) {
      ASSERT_TRUE(h_.submit(i, 4, 60, [&](Request& r) { r.arrival = TimePoint(-std::chrono::seconds(i == 3 ? 0 : 60)); }).ok());
    }
    ASSERT_TRUE(h_.step());
    h_.engine().line().sort_out({{std::chrono::seconds(1), std::chrono::milliseconds(100)}, 0.05, {1e-4}, 60, 0.01}, TimePoint());
    h_.engine().line().passing_over().set(true);
  }
  std::vector<size_t> slices_of_steps(int steps) {
    std::vector<size_t> slices;
    for (int i = 0; i < steps && h_.step(); ++i) slices.push_back(h_.last().slices.size());
    return slices;
  }
  Harness h_{64, {.limits = {.sequences_max = 3}, .late_every = 4}};
};

TEST_F(HopelessAnswers, ArePassedOverForThoseThatCanBeOnTimeButNotAlways) {
  EXPECT_EQ(slices_of_steps(6), (std::vector<size_t>{1, 1, 3, 1, 1, 1}));
  h_.engine().line().passing_over().set(false);
  EXPECT_EQ(slices_of_steps(1), std::vector<size_t>{3});
}

TEST_F(HopelessAnswers, KeepNoPlacesFromThem) {
  for (uint64_t i = 4; i <= 6; ++i) ASSERT_TRUE(h_.submit(i, 4, 8).ok());
  EXPECT_EQ(slices_of_steps(2), (std::vector<size_t>{3, 3})) << "no more than have a place in a step";
  EXPECT_EQ(h_.engine().running(), 5u);
  h_.run();
  for (uint64_t i = 1; i <= 6; ++i) EXPECT_EQ(h_.received(i), i <= 3 ? 60u : 8u) << i;
}

TEST_F(HopelessAnswers, GoOnWhereNobodyElseHasWork) {
  ASSERT_TRUE(h_.engine().cancel(RequestId(3)));
  EXPECT_EQ(slices_of_steps(3), (std::vector<size_t>{2, 2, 2}));
}

TEST_F(HopelessAnswers, AreComputedBesideTheOthersWhereThatTakesHardlyLonger) {
  h_.engine().line().sort_out({{std::chrono::seconds(1), std::chrono::milliseconds(100)}, 0.05, {1e-4}, 60, 0.001}, TimePoint());
  EXPECT_EQ(slices_of_steps(2), (std::vector<size_t>{3, 3}));
}

TEST(PooledRequests, EndWithTheirPromptAndGenerateNothing) {
  Harness harness(8, {.limits = {.tokens_per_step = 8}});
  ASSERT_TRUE(harness.submit(1, 20, 0).ok());
  ASSERT_TRUE(harness.submit(2, 5, 0).ok());
  harness.run();
  for (const uint64_t id : {1, 2}) {
    EXPECT_TRUE(harness.end(id).has_value());
    EXPECT_EQ(harness.received(id), 1u);  // what the model makes of the prompt
  }
  EXPECT_EQ(harness.engine().counters().generated_tokens, 0u);
  EXPECT_EQ(harness.engine().counters().prompt_tokens, 25u);
  EXPECT_FALSE(harness.submit(3, 5, 0, [](Request& r) { r.output = {1}; }).ok());  // there is nothing to go on from
}

TEST(PooledRequests, ShareNoPrefixesWhereKvIsOfWholeSequences) {
  for (const uint32_t salt_above : {0u, UINT32_MAX}) {
    EngineConfig config;
    config.kv_salt_above = salt_above;
    Harness harness(8, config);
    const auto same = [](Request& r) { r.prompt.assign(40, 7); };
    for (const uint64_t id : {1, 2}) {
      ASSERT_TRUE(harness.submit(id, 1, 0, same).ok());
      harness.run();
    }
    EXPECT_EQ(harness.engine().counters().prefix_hits, salt_above == 0 ? 0u : 32u);
  }
}

}  // namespace
}  // namespace shoal
