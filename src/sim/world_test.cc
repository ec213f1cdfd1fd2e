#include "sim/world.h"

#include <gtest/gtest.h>

#include "sim/scenario.h"

namespace shoal {
namespace {

std::string describe(const Outcome& outcome) { return outcome.violations.empty() ? "" : outcome.violations.front(); }

TEST(World, SameSeedGivesTheSameTrace) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Outcome a = run_scenario(Scenario::random(seed));
    const Outcome b = run_scenario(Scenario::random(seed));
    EXPECT_EQ(a.trace_hash, b.trace_hash);
    EXPECT_EQ(a.events, b.events);
  }
}

TEST(World, DifferentSeedsGiveDifferentTraces) {
  EXPECT_NE(run_scenario(Scenario::random(1)).trace_hash, run_scenario(Scenario::random(2)).trace_hash);
}

TEST(World, EveryRequestEndsOnceWithItsOwnTokensUnderPressureAndFaults) {
  Outcome sum;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const Outcome outcome = run_scenario(Scenario::random(seed));
    ASSERT_EQ(describe(outcome), "") << "seed " << seed;
    sum.finished += outcome.finished;
    sum.cancelled += outcome.cancelled;
    sum.preemptions += outcome.preemptions;
    sum.prefix_hits += outcome.prefix_hits;
    sum.crashes += outcome.crashes;
    sum.handovers += outcome.handovers;
    sum.fetches += outcome.fetches;
    sum.balanced += outcome.balanced;
    sum.loads += outcome.loads;
    sum.loads_cancelled += outcome.loads_cancelled;
  }
  // The scenarios must reach what they are for.
  EXPECT_GT(sum.finished, 5000u);
  EXPECT_GT(sum.cancelled, 500u);
  EXPECT_GT(sum.preemptions, 500u);
  EXPECT_GT(sum.prefix_hits, 5000u);
  EXPECT_GT(sum.crashes, 20u);
  EXPECT_GT(sum.handovers, 500u);
  EXPECT_GT(sum.fetches, 500u);
  EXPECT_GT(sum.balanced, 50u);
  EXPECT_GT(sum.loads, 1000u);
  EXPECT_GT(sum.loads_cancelled, 0u);
}

TEST(World, AnswersDoNotDependOnMemoryCacheOrBatching) {
  // The checker compares each token with the undisturbed answer, so "no violation" is the whole statement.
  for (uint32_t pages : {14u, 20u, 200u}) {
    for (bool cache : {false, true}) {
      for (uint32_t batch : {1u, 3u, 12u}) {
        Scenario scenario;
        scenario.seed = 11;
        scenario.pages = pages;
        scenario.prefix_cache = cache;
        scenario.limits = {16, batch, 12, true};
        scenario.cancel_probability = 0;
        scenario.deadline_probability = 0;
        const Outcome outcome = run_scenario(scenario);
        ASSERT_EQ(describe(outcome), "");
        EXPECT_EQ(outcome.finished, scenario.requests);
      }
    }
  }
}

TEST(World, WhoIsServedLongAfterTheLastRequestCameIsNotLost) {
  Scenario scenario;
  scenario.requests_per_second = 1000;
  scenario.cancel_probability = scenario.deadline_probability = 0;
  scenario.cost.step_seconds = 1;
  scenario.pooling.ttft_loads = 0;
  WorldSetup setup = make_setup(scenario);
  setup.no_end_after = std::chrono::seconds(10);
  const Outcome outcome = World(std::move(setup)).run();
  EXPECT_EQ(describe(outcome), "");
  EXPECT_GT(outcome.virtual_seconds, 60);
  EXPECT_EQ(outcome.finished, scenario.requests);
}

TEST(World, LosingEveryNodeOnceLosesNoRequest) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Scenario scenario;
    scenario.seed = seed;
    scenario.nodes = 3;
    scenario.pages = 60;
    scenario.requests_per_second = 20;
    scenario.cancel_probability = 0;
    scenario.deadline_probability = 0;
    scenario.faults_per_second = 0.5;
    const Outcome outcome = run_scenario(scenario);
    ASSERT_EQ(describe(outcome), "") << "seed " << seed;
    EXPECT_EQ(outcome.finished + outcome.refused, scenario.requests);
    EXPECT_EQ(outcome.refused, 0u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace shoal
