#include "policy/estimator.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace shoal {
namespace {

TEST(ArrivalRate, ComesNearWhatComes) {
  ArrivalRate rate;
  EXPECT_EQ(rate.per_second(TimePoint()), 0);
  TimePoint now{};
  rate.add(now);
  EXPECT_EQ(rate.per_second(now), 0);  // one says nothing of how many
  for (int i = 0; i < 40; ++i) rate.add(now += std::chrono::milliseconds(250));
  EXPECT_NEAR(rate.per_second(now), 4, 0.6);
  for (int i = 0; i < 400; ++i) rate.add(now += std::chrono::milliseconds(500));
  EXPECT_NEAR(rate.per_second(now), 2, 0.2);
  EXPECT_LT(rate.per_second(now + std::chrono::minutes(3)), 0.05);
}

TEST(ArrivalRate, IsNotBelievedLongOnceItIsSilentForMuchLongerThanBefore) {
  constexpr Duration kGap = std::chrono::milliseconds(20), kSilence = std::chrono::seconds(2);
  ArrivalRate steady, bursts;
  TimePoint now{};
  for (int i = 1; i <= 1000; ++i) {
    steady.add(now += kGap);
    if (i % 200 < 100) bursts.add(now);
  }
  const double before = steady.per_second(now);
  EXPECT_NEAR(before, 50, 10);
  EXPECT_LT(steady.per_second(now + kSilence), 0.05 * before);
  EXPECT_GT(bursts.per_second(now + kSilence), 0.3 * before) << "it was as silent before";
  steady.add(now + kSilence);
  EXPECT_GT(steady.per_second(now + kSilence), 0.8 * before) << "they come again";
}

TEST(ArrivalRate, IsNotBelievedToBeHighBecauseTwoOfRareOnesComeTogether) {
  ArrivalRate rate;
  TimePoint now{};
  for (int i = 0; i < 30; ++i) rate.add(now += std::chrono::minutes(10));
  rate.add(now += std::chrono::seconds(3));
  EXPECT_LT(rate.per_second(now), 0.02) << "one in 600 s";
  for (int i = 0; i < 20; ++i) rate.add(now += std::chrono::seconds(3));
  EXPECT_GT(rate.per_second(now), 0.05) << "but it is, once many do";
}

TEST(ArrivalRate, OfABatchThatCameAtOnceIsNotForgottenInTheNextMoment) {
  ArrivalRate rate;
  for (int i = 0; i < 10; ++i) rate.add(TimePoint());
  EXPECT_GT(rate.per_second(TimePoint() + std::chrono::milliseconds(10)), 1);
  EXPECT_LT(rate.per_second(TimePoint() + std::chrono::minutes(1)), 0.05);
}

// A device with exactly these costs, and some noise.
struct Truth {
  double step, row, attended;
  double of(const StepWork& w) const {
    return step + row * static_cast<double>(w.rows) + attended * static_cast<double>(w.attended);
  }
};

TEST(StepEstimate, WorkCountsWhatEachRowLooksAt) {
  EXPECT_EQ(work_of(0, 4).attended, 1u + 2 + 3 + 4);
  EXPECT_EQ(work_of(10, 11).attended, 11u);
  EXPECT_TRUE(work_of(10, 11).decode);
  EXPECT_FALSE(work_of(0, 4).decode);
}

TEST(StepEstimate, TheFirstObservationIsAlreadyAFit) {
  ModelEstimator e;
  e.observe_step({4, 400, true}, 0.05);
  EXPECT_NEAR(e.decode_seconds(4, 400), 0.05, 0.01);
  e.observe_step(work_of(0, 100), 2.0);
  EXPECT_NEAR(e.prefill_seconds(0, 1000, 512), 20, 8);  // by the token, not by the step
}

TEST(StepEstimate, FindsTheCostsOfADeviceThroughNoise) {
  const Truth decode{0.012, 3e-4, 2e-7}, prefill{0.006, 4e-5, 1e-9};
  ModelEstimator e;
  Rng rng(3);
  for (int i = 0; i < 400; ++i) {
    const auto noise = [&] { return 0.9 + 0.2 * rng.uniform(); };
    const uint64_t batch = 1 + rng.below(32);
    const StepWork d{batch, batch * (50 + rng.below(4000)), true};
    e.observe_step(d, decode.of(d) * noise());
    const uint64_t begin = rng.below(2000);
    const StepWork p = work_of(begin, begin + 16 + rng.below(512));
    e.observe_step(p, prefill.of(p) * noise());
  }
  for (const uint64_t batch : {1u, 8u, 32u}) {
    const double truth = decode.of({batch, batch * 1000, true});
    EXPECT_NEAR(e.decode_seconds(batch, batch * 1000), truth, 0.15 * truth);
  }
  double truth = 0;
  for (uint64_t at = 0; at < 2000; at += 500) truth += prefill.of(work_of(at, at + 500));
  EXPECT_NEAR(e.prefill_seconds(0, 2000, 500), truth, 0.15 * truth);
}

TEST(StepEstimate, FollowsADeviceThatBecameSlower) {
  ModelEstimator e;
  for (int i = 0; i < 200; ++i) e.observe_step({4, 400, true}, 0.02);
  for (int i = 0; i < 20; ++i) e.observe_step({4, 400, true}, 0.06);
  EXPECT_NEAR(e.decode_seconds(4, 400), 0.06, 0.01);
}

TEST(StepEstimate, OneHiccupIsNoNewTruth) {
  ModelEstimator e;
  for (int i = 0; i < 200; ++i) e.observe_step({4, 400, true}, 0.02);
  e.observe_step({4, 400, true}, 30.0);
  EXPECT_LT(e.decode_seconds(4, 400), 0.06);
  e.observe_step({4, 400, true}, -1);
  e.observe_step({4, 400, true}, 0.0 / 0.0);
  EXPECT_GT(e.decode_seconds(4, 400), 0.01);
}

TEST(StepEstimate, NoPredictionIsNegative) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    ModelEstimator e;
    for (int i = 0; i < 30; ++i) e.observe_step({1 + rng.below(64), rng.below(100000), true}, 1e-4 + rng.uniform());
    for (int i = 0; i < 30; ++i) EXPECT_GE(e.decode_seconds(rng.below(100), rng.below(1'000'000)), 0);
  }
}

TEST(StepEstimate, WhatWasNotMeasuredIsLikeWhatWas) {
  ModelEstimator known, other;
  EXPECT_EQ(other.prompt_cost(512).seconds(0, 10'000), 0) << "a mere guess condemns nobody";
  other.believe(known, 2);
  EXPECT_EQ(other.prompt_cost(512).seconds(0, 10'000), 0) << "nothing is known of that one either";
  for (int i = 0; i < 50; ++i) {
    known.observe_step({4, 4 * 1024, true}, 0.005);
    known.observe_step(work_of(0, 512), 0.02);
  }
  other.believe(known, 2);
  EXPECT_NEAR(other.decode_seconds(4, 4 * 1024), 0.01, 1e-4);
  EXPECT_NEAR(other.prefill_seconds(0, 512, 512), 0.04, 1e-3);
  EXPECT_NEAR(other.prompt_cost(512).seconds(0, 512), 0.04, 1e-3);
  EXPECT_FALSE(other.measured());
  other.observe_step({4, 4 * 1024, true}, 0.03);  // what is measured counts from the first time on
  EXPECT_NEAR(other.decode_seconds(4, 4 * 1024), 0.03, 0.003);
  other.believe(known, 2);
  EXPECT_NEAR(other.decode_seconds(4, 4 * 1024), 0.03, 0.003);
}

// One sequence tells nothing of what each of many takes; another model's steps do.
TEST(ModelEstimator, WhatWasNotMeasuredIsLikeThatOfTheOther) {
  const auto takes = [](uint64_t n) { return 0.02 + 3e-5 * static_cast<double>(n); };
  ModelEstimator known, other;
  for (uint64_t i = 0; i < 100; ++i) known.observe_step({1 + i % 64, 100 * (1 + i % 64), true}, takes(1 + i % 64));
  other.observe_step({1, 100, true}, 2 * takes(1));
  other.believe(known, 2);
  EXPECT_NEAR(other.decode_seconds(1, 100), 2 * takes(1), 1e-3);
  EXPECT_NEAR(other.decode_seconds(64, 6400), 2 * takes(64), 2e-3);
}

// While prompts wait no step goes without them, maybe for hours; they tell what rows cost. Of 256 sequences a guess would be five times as long.
TEST(ModelEstimator, ADecodeThatWasNotSeenTakesWhatRowsBesidePromptsDo) {
  const auto takes = [](uint64_t rows) { return 0.01 + 1e-5 * static_cast<double>(rows); };
  ModelEstimator e, other;
  for (uint64_t i = 0; i < 100; ++i) e.observe_step({8 + 32 * (i % 64), 10'000, false}, takes(8 + 32 * (i % 64)));
  EXPECT_NEAR(e.decode_seconds(256, 10'000), e.step_seconds({256, 10'000, false}), 1e-9);
  EXPECT_NEAR(e.decode_seconds(256, 10'000), takes(256), 0.03 * takes(256));
  other.believe(e, 2);
  EXPECT_NEAR(other.decode_seconds(256, 10'000), 2 * takes(256), 0.03 * 2 * takes(256));
  e.observe_step({1, 100, true}, takes(1));
  EXPECT_NEAR(e.decode_seconds(1, 100), takes(1), 1e-4);
  EXPECT_NEAR(e.decode_seconds(256, 10'000), takes(256), 0.1 * takes(256)) << "one sequence tells nothing of many";
  const auto again = ModelEstimator::from_json(e.to_json());
  ASSERT_TRUE(again.ok());
  EXPECT_NEAR(again->decode_seconds(256, 10'000), e.decode_seconds(256, 10'000), 1e-9);
  for (uint64_t i = 1; i < 100; ++i) e.observe_step({i, 100 * i, true}, 0.02);
  EXPECT_NEAR(e.decode_seconds(64, 6400), 0.02, 1e-3) << "what is measured counts";
}

TEST(PromptCost, IsOfFullStepsWhatTheyTake) {
  ModelEstimator e;
  for (uint64_t i = 0; i < 200; ++i) e.observe_step(work_of(512 * (i % 8), 512 * (i % 8 + 1)), 0.01 + 1e-4 * 512 + 2e-8 * static_cast<double>(work_of(512 * (i % 8), 512 * (i % 8 + 1)).attended));
  EXPECT_NEAR(e.prompt_cost(512).seconds(0, 4096), e.prefill_seconds(0, 4096, 512), 1e-6);
  EXPECT_NEAR(e.prompt_cost(512).seconds(1024, 2048), e.prefill_seconds(1024, 1024, 512), 1e-6);
}

TEST(SwitchEstimate, IsTheFallbackUntilOneWasSeen) {
  ModelEstimator e;
  EXPECT_EQ(e.switch_seconds(2.5), 2.5);
  e.observe_switch(1.0, 0.2);
  EXPECT_EQ(e.switch_seconds(2.5), 1.0);
  EXPECT_EQ(e.waited_seconds(2.5), 0.2);
  for (int i = 0; i < 30; ++i) e.observe_switch(0.5, 0.0);
  EXPECT_NEAR(e.switch_seconds(2.5), 0.5, 0.01);
  EXPECT_NEAR(e.waited_seconds(2.5), 0, 0.01);
}

TEST(ModelEstimator, ASwitchTakesWhatHasToBeCopied) {
  ModelEstimator e;
  EXPECT_NEAR(e.switch_seconds(2.0, 0.5), 1.0, 0.01) << "nothing was seen yet";
  for (int i = 0; i < 20; ++i) e.observe_switch(0.004, 0.004, 0);
  for (int i = 0; i < 20; ++i) e.observe_switch(0.004 + 0.5 * 0.8, 0.2, 0.5);
  EXPECT_NEAR(e.switch_seconds(9), 0.804, 0.01);
  EXPECT_NEAR(e.switch_seconds(9, 0.25), 0.204, 0.01);
  EXPECT_NEAR(e.switch_seconds(9, 0), 0.004, 1e-6);
  EXPECT_NEAR(e.waited_seconds(9, 0.5), 0.2, 0.01);
  for (int i = 0; i < 20; ++i) e.observe_switch(0.004 + 0.1 * 0.8, 0, 0.1);  // a little is copied
  EXPECT_NEAR(e.switch_seconds(9, 0), 0.004, 0.001);
  const auto copy = ModelEstimator::from_json(e.to_json());
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(copy->switch_seconds(9, 0.1), e.switch_seconds(9, 0.1));
}

TEST(ModelEstimator, ReadsWhatWasWrittenBeforeWeightsWereAdopted) {
  std::string text = ModelEstimator().to_json();
  const size_t at = text.find("\"adoption\":[0.0,0.0],");
  ASSERT_NE(at, std::string::npos) << text;
  text.erase(at, std::string_view("\"adoption\":[0.0,0.0],").size());
  EXPECT_TRUE(ModelEstimator::from_json(text).ok());
}

TEST(ModelEstimator, SurvivesItsJson) {
  ModelEstimator e;
  Rng rng(9);
  for (int i = 0; i < 50; ++i) e.observe_step({1 + rng.below(8), rng.below(4000), i % 2 == 0}, 0.01 + rng.uniform());
  e.observe_switch(1.25, 0.5);
  const auto copy = ModelEstimator::from_json(e.to_json());
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(copy->decode_seconds(5, 500), e.decode_seconds(5, 500));
  EXPECT_EQ(copy->prefill_seconds(0, 700, 128), e.prefill_seconds(0, 700, 128));
  EXPECT_EQ(copy->switch_seconds(9), 1.25);
  EXPECT_EQ(copy->to_json(), e.to_json());
}

TEST(ModelEstimator, SaysHowManyRowsATimeIsEnoughFor) {
  ModelEstimator e;
  for (uint64_t rows = 16; rows <= 512; rows *= 2) e.observe_step({rows, 0, false}, 0.02 + 0.001 * static_cast<double>(rows));
  EXPECT_NEAR(static_cast<double>(e.rows_within(0.1, 4, 0)), 80, 4);
  EXPECT_EQ(e.rows_within(0.001, 4, 0), 4u);  // no time: those that decode anyhow
  EXPECT_LT(e.rows_within(0.1, 4, 10'000'000), e.rows_within(0.1, 4, 0) + 1);
}

TEST(StepPace, CountsTheTurnsOfOthers) {
  StepPace pace;
  EXPECT_EQ(pace.seconds(), 0);
  TimePoint now{};
  for (int i = 0; i < 200; ++i) pace.step_ended(now += std::chrono::milliseconds(100), true, 0.1);
  EXPECT_NEAR(pace.seconds(), 0.1, 1e-6);
  // Four steps, and then as long away as they took: readers see half as many tokens a second.
  for (int turn = 0; turn < 20; ++turn) {
    for (int i = 0; i < 4; ++i) pace.step_ended(now += std::chrono::milliseconds(i == 0 ? 500 : 100), true, 0.1);
  }
  EXPECT_NEAR(pace.seconds(), 0.2, 0.03);
}

TEST(StepPace, CountsNoTimeInWhichNobodyReads) {
  StepPace pace;
  TimePoint now{};
  for (int i = 0; i < 200; ++i) pace.step_ended(now += std::chrono::milliseconds(100), i < 199, 0.1);
  pace.step_ended(now += std::chrono::hours(1), true, 0.1);
  EXPECT_NEAR(pace.seconds(), 0.1, 1e-6);
  // And of the longest while away it forgets the most: soon it is as near as ever.
  pace.step_ended(now += std::chrono::hours(1), true, 0.1);
  for (int i = 0; i < 200; ++i) pace.step_ended(now += std::chrono::milliseconds(100), true, 0.1);
  EXPECT_NEAR(pace.seconds(), 0.1, 0.01);
}

TEST(StepPace, OfSlowReadersIsThatOfSlowSteps) {
  StepPace pace;
  TimePoint now{};
  for (int i = 0; i < 20; ++i) pace.step_ended(now += std::chrono::seconds(3), true, 2);
  EXPECT_NEAR(pace.seconds(), 3, 1e-6);
}

TEST(ModelEstimator, RefusesWhatItDidNotWrite) {
  const std::string good = ModelEstimator().to_json();
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t place = text.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    return text.replace(place, from.size(), to);
  };
  for (const std::string& bad : {std::string("[]"), std::string("{}"), std::string("{"), with("\"version\":1", "\"version\":2"),
                                 with("\"switch\":[0.0,0.0]", "\"switch\":[-1.0,0.0]"), with("\"switch\":[0.0,0.0]", "\"switch\":[0.0]"),
                                 with("\"switch\":[0.0,0.0]", "\"switch\":[1.0,1e30]"), with("\"decode\":{", "\"encode\":{")}) {
    EXPECT_FALSE(ModelEstimator::from_json(bad).ok()) << bad;
  }
  EXPECT_TRUE(ModelEstimator::from_json(good).ok());
}

}  // namespace
}  // namespace shoal
