// Many models on a device that holds two of them, under each way of scheduling.
#include <gtest/gtest.h>

#include "roles/served_set.h"
#include "sim/scenario.h"
#include "sim/world.h"

namespace shoal {
namespace {

std::string describe(const Outcome& outcome) { return outcome.violations.empty() ? "" : outcome.violations.front(); }

// Twelve models of equal size, room for the weights of two and for `kv_pages` of KV. A load takes 0.3 s, a step some 12 ms.
Scenario twelve_on_two(uint64_t seed, Scheduling scheduling, double requests_per_second, uint32_t kv_pages) {
  Scenario s;
  s.seed = seed;
  s.scheduling = scheduling;
  s.models = 12;
  s.weight_pages = 30;
  s.kv_block_bytes = kPageBytes / 8;
  s.pages = 2 * s.weight_pages + kv_pages;
  s.max_model_len = 512;
  s.requests = 120;
  s.requests_per_second = requests_per_second;
  s.prompt_max = 100;
  s.output_max = 300;
  s.cancel_probability = 0;
  s.deadline_probability = 0;
  s.limits = {256, 32, 32, true};
  s.cost.step_seconds = 0.010;
  s.cost.row_seconds = 0.0002;
  s.cost.load_bytes_per_second = s.weight_pages * static_cast<double>(kPageBytes) / 0.3;
  return s;
}

TEST(Pooling, EveryRequestOfTwelveModelsOnADeviceForTwoEndsOnceWithItsOwnTokens) {
  // More than the device can do, and so little KV that requests of other turns must give theirs up.
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    for (const bool said : {true, false}) {  // by when a first token is due
      Scenario scenario = twelve_on_two(seed, Scheduling::kToken, 2.5, 16);
      if (said) scenario.pooling.ttft_loads = 0;
      const Outcome outcome = run_scenario(scenario);
      ASSERT_EQ(describe(outcome), "") << "seed " << seed << ", " << said;
      EXPECT_EQ(outcome.finished, scenario.requests);
      EXPECT_GT(outcome.loads, said ? 50u : 2 * scenario.models) << "seed " << seed;
      EXPECT_GT(outcome.preemptions, said ? 3u : 0u) << "seed " << seed;
    }
  }
}

TEST(Pooling, TurnsKeepDeadlinesThatRequestLevelSwappingMisses) {
  Attainment token, request;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const Outcome turns = run_scenario(twelve_on_two(seed, Scheduling::kToken, 1.2, 60));
    const Outcome whole = run_scenario(twelve_on_two(seed, Scheduling::kRequest, 1.2, 60));
    ASSERT_EQ(describe(turns), "") << "seed " << seed;
    ASSERT_EQ(describe(whole), "") << "seed " << seed;
    EXPECT_LT(turns.first_token_seconds_max, 10) << "seed " << seed;
    token.merge(turns.attainment);
    request.merge(whole.attainment);
  }
  EXPECT_GT(token.of_tokens(), 0.999);
  EXPECT_GT(token.of_requests(), 0.99);
  EXPECT_GT(token.of_requests(), request.of_requests());
}

TEST(Pooling, AHostTierKeepsWhatWouldBeComputedTwice) {
  Scenario scenario = twelve_on_two(2, Scheduling::kToken, 2.5, 24);
  const Outcome without = run_scenario(scenario);
  scenario.host_pages = 400;
  const Outcome with = run_scenario(scenario);
  ASSERT_EQ(describe(without), "");
  ASSERT_EQ(describe(with), "");
  EXPECT_EQ(with.finished, scenario.requests);
  EXPECT_GT(with.copies, 50u);
  EXPECT_LT(with.preemptions, without.preemptions / 2);
  EXPECT_GT(with.attainment.of_tokens(), without.attainment.of_tokens());
}

// Memory for the KV of others' turns that is not in use holds weights of models whose turn comes again.
TEST(Pooling, WhatOneMemoryLeavesIsAdoptedAndSwitchesCopyLess) {
  Scenario scenario = twelve_on_two(4, Scheduling::kToken, 1.2, 60);
  scenario.host_pages = 300;
  scenario.adopt_weights = false;
  const Outcome without = run_scenario(scenario);
  scenario.adopt_weights = scenario.one_memory = true;
  const Outcome with = run_scenario(scenario);
  ASSERT_EQ(describe(without), "");
  ASSERT_EQ(describe(with), "");
  EXPECT_EQ(without.loads_copied_nothing, 0u);
  EXPECT_GT(with.loads_copied_nothing, with.loads / 2);
  EXPECT_GE(with.attainment.of_tokens(), without.attainment.of_tokens());
}

// Four models and memory for the most of them: a first load takes longer than a first token may, and what follows a fifth of it.
TEST(Pooling, AModelIsLoadedThoughNobodyWhoWaitsCouldBeInTimeForItsFirstLoad) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Scenario scenario = twelve_on_two(seed, Scheduling::kToken, 2, 60);
    scenario.models = 4;
    scenario.pages = 3 * scenario.weight_pages + 24;
    scenario.output_max = 30;
    scenario.requests = 150;
    scenario.cost.load_bytes_per_second = scenario.weight_pages * static_cast<double>(kPageBytes) / 2.0;
    scenario.pooling.slo.ttft = std::chrono::seconds(1);
    scenario.pooling.ttft_loads = 0;
    const Outcome outcome = run_scenario(scenario);
    ASSERT_EQ(describe(outcome), "") << "seed " << seed;
    for (const ModelOutcome& model : outcome.models) EXPECT_GT(model.attainment.of_tokens(), 0.5) << "seed " << seed;
  }
}

// Keys that share one model, with more requests than the device can serve in time; `first`: the share that the first of them asks for.
Scenario keys_of_one_model(uint64_t seed, uint32_t requests, uint32_t keys, double first) {
  Scenario scenario = twelve_on_two(seed, Scheduling::kToken, 30, 200);
  scenario.models = 1;
  scenario.requests = requests;
  scenario.pooling.slo.ttft = std::chrono::seconds(2);
  scenario.pooling.ttft_loads = 0;
  scenario.payers = keys;
  scenario.flood = first;
  return scenario;
}

// One key asks for ten times what the others ask for together, which is more than the device can do.
TEST(Pooling, AKeyThatFloodsAModelDoesNotMakeOthersLate) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    const Outcome outcome = run_scenario(keys_of_one_model(seed, 450, 4, 0.9));
    ASSERT_EQ(describe(outcome), "") << "seed " << seed;
    EXPECT_LT(outcome.payers.at(1).of_tokens(), 0.9) << "the device carries it all";
    for (const uint32_t quiet : {2u, 3u, 4u}) EXPECT_GT(outcome.payers.at(quiet).of_tokens(), 0.97) << "payer " << quiet << ", seed " << seed;
  }
}

// Two keys ask for as much each, together for more than the device can do.
TEST(Pooling, OfTwoKeysInOverloadTheOneWithTheWeightIsServedMore) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    Scenario scenario = keys_of_one_model(seed, 600, 2, 0.5);
    const Outcome alike = run_scenario(scenario);
    scenario.first_weight = 5;
    const Outcome weighted = run_scenario(scenario);
    for (const Outcome* outcome : {&alike, &weighted}) ASSERT_EQ(describe(*outcome), "") << "seed " << seed;
    const double first = weighted.payers.at(1).of_tokens(), second = weighted.payers.at(2).of_tokens();
    EXPECT_NEAR(alike.payers.at(1).of_tokens(), alike.payers.at(2).of_tokens(), 0.1) << "seed " << seed;
    EXPECT_GT(first, alike.payers.at(1).of_tokens() + 0.05) << "seed " << seed;
    EXPECT_GT(first, second + 0.1) << "seed " << seed;
    EXPECT_GT(second, 0.1) << "it has a share, seed " << seed;
  }
}

TEST(Pooling, ThePapersOptionsAreSafeToo) {
  Scenario scenario = twelve_on_two(3, Scheduling::kToken, 1.2, 60);
  scenario.turns = TurnOptions::paper();
  const Outcome outcome = run_scenario(scenario);
  ASSERT_EQ(describe(outcome), "");
  EXPECT_EQ(outcome.finished, scenario.requests);
}

TEST(Pooling, UnderLoadWithoutEndNobodyStarves) {
  Scenario scenario = twelve_on_two(5, Scheduling::kToken, 4, 400);
  scenario.requests = 400;
  const Outcome outcome = run_scenario(scenario);
  ASSERT_EQ(describe(outcome), "");
  EXPECT_EQ(outcome.finished, scenario.requests);
  // Who can be on time goes first, for EngineConfig::late_wait at most. A round is twelve turns of at most 2.5 switches each, at half the
  // speed while another model computes beside it, and a switch each. What is beyond that would be neglect.
  EXPECT_LT(outcome.gap_seconds_max, to_seconds(EngineConfig().late_wait) + 12 * (2 * 2.5 + 1) * 0.3 + 12);
}

// Of the first two models, in more load than the device carries.
double of_the_first_two(uint64_t seed, int32_t priority) {
  Scenario scenario = twelve_on_two(seed, Scheduling::kToken, 8, 60);
  scenario.requests = 320;
  WorldSetup setup = make_setup(scenario);
  for (NodeSpec& node : setup.nodes) {
    for (size_t m = 0; m < 2; ++m) node.config.models[m].pooling.priority = priority;
  }
  const Outcome outcome = World(std::move(setup)).run();
  EXPECT_EQ(describe(outcome), "");
  EXPECT_EQ(outcome.finished, 320u) << "the others wait, and get theirs";
  Attainment both = outcome.models.at(0).attainment;
  both.merge(outcome.models.at(1).attainment);
  return both.of_tokens();
}

// Long answers in overload: what a model that is away owes its readers is due later than what others can still do in time, and it comes
// nevertheless.
TEST(Pooling, AModelWhoseAnswersAreDueLateHasItsTurnWithinTheBound) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    Scenario scenario = twelve_on_two(seed, Scheduling::kToken, 2, 200);
    scenario.models = 4;
    scenario.pages = scenario.weight_pages + 100;
    scenario.max_model_len = 2048;
    scenario.output_max = 1500;
    scenario.requests = 130;
    scenario.pooling.slo = {std::chrono::seconds(30), std::chrono::milliseconds(250)};
    scenario.pooling.ttft_loads = 0;
    scenario.cost.step_seconds = 0.03;
    const Outcome outcome = run_scenario(scenario);
    ASSERT_EQ(describe(outcome), "") << "seed " << seed;
    const double bound = dark_seconds_most({}, scenario.models - 1, 0.3);
    for (const ModelOutcome& model : outcome.models) EXPECT_LT(model.silent_seconds_max, bound) << "seed " << seed;
  }
}

// Two models that both are on the device, and long answers: a third more than it can give at the pace of those who read.
TEST(Pooling, WhoCannotBeOnTimeAnyMoreMakesNobodyElseLate) {
  double on_time = 0;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    Scenario scenario = twelve_on_two(seed, Scheduling::kToken, 0.25, 600);
    scenario.models = 2;
    scenario.max_model_len = 2048;
    scenario.output_max = 1500;
    scenario.requests = 120;
    scenario.pooling.slo = {std::chrono::seconds(10), std::chrono::milliseconds(250)};
    scenario.pooling.ttft_loads = 0;
    scenario.cost.step_seconds = 0.05;
    scenario.cost.row_seconds = 0.008;
    const Outcome outcome = run_scenario(scenario);
    ASSERT_EQ(describe(outcome), "") << "seed " << seed;
    EXPECT_EQ(outcome.finished, scenario.requests);
    for (const ModelOutcome& model : outcome.models) on_time += model.attainment.of_tokens() / 4;
  }
  EXPECT_GT(on_time, 0.6) << "less than half, if all go on";
}

TEST(Pooling, PriorityDecidesBetweenModelsWhenNotAllCanBeServedInTime) {
  double low = 0, equal = 0, high = 0;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    low += of_the_first_two(seed, -2) / 2;
    equal += of_the_first_two(seed, 0) / 2;
    high += of_the_first_two(seed, 2) / 2;
  }
  EXPECT_GT(high, 0.9);
  EXPECT_LT(equal, high - 0.1);
  EXPECT_LT(low, equal);
}

}  // namespace
}  // namespace shoal
