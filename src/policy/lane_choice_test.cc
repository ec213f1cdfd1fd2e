#include "policy/lane_choice.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

// Runs `steps` steps of a machine whose lanes take `fixed + attention_row * rows` beside the experts; how often each number of lanes was chosen.
std::array<int, kLanesMax + 1> run(LaneChoice& choice, int steps, uint32_t rows, double attention_row, double expert_row, double fixed, double wire) {
  std::array<int, kLanesMax + 1> chosen{};
  for (int step = 0; step < steps; ++step) {
    const uint32_t lanes = choice.choose(rows, rows);
    ++chosen[lanes];
    const double each = static_cast<double>(rows) / lanes;
    const LaneTimes times{fixed + attention_row * each, expert_row * each, wire, wire};
    choice.measured(rows, lanes, 24 * layer_seconds(times, lanes), times);
  }
  return chosen;
}

TEST(LaneChoice, ComesToWhatTheModelOfOverlapSaysIsBest) {
  for (const double attention : {1.0, 4.0}) {
    for (const double fixed : {0.0, 2.0, 20.0}) {
      for (const double wire : {0.0, 5.0, 40.0}) {
        LaneChoice choice(kLanesMax);
        run(choice, 400, 16, attention, 2.0, fixed, wire);
        const auto later = run(choice, 640, 16, attention, 2.0, fixed, wire);
        uint32_t best = 1;
        std::array<double, kLanesMax + 1> seconds{};
        for (uint32_t m = 1; m <= kLanesMax; ++m) seconds[m] = layer_seconds({fixed + attention * 16 / m, 2.0 * 16 / m, wire, wire}, m);
        for (uint32_t m = 2; m <= kLanesMax; ++m) best = seconds[m] < seconds[best] ? m : best;
        uint32_t most = 1;
        for (uint32_t m = 2; m <= kLanesMax; ++m) most = later[m] > later[most] ? m : most;
        EXPECT_LE(seconds[most], seconds[best] * 1.011) << attention << " " << fixed << " " << wire << ": " << most << " lanes, best " << best;
        EXPECT_GT(later[most], 600);
      }
    }
  }
}

TEST(LaneChoice, WhereOneIsBestTheOthersCostNextToNothing) {
  LaneChoice choice(kLanesMax);
  const auto chosen = run(choice, 200, 8, 1, 1, 50, 0);
  EXPECT_LE(chosen[2], 6);
  EXPECT_EQ(chosen[3] + chosen[4], 0);  // if two are worse, so are they
  EXPECT_GT(run(choice, 10'000, 8, 1, 1, 50, 0)[1], 9'980);
}

// What other work on the machine does to a step now and then does not decide.
TEST(LaneChoice, StepsThatWereHeldUpDoNotDecide) {
  LaneChoice choice(kLanesMax);
  int best = 0;
  for (int step = 0; step < 4000; ++step) {
    const uint32_t lanes = choice.choose(16, 16);
    const LaneTimes times{16.0 / lanes, 16.0 / lanes, 4, 4};
    // 40, 24, 18.7 and 16 seconds a layer. Every seventh step takes twice as long.
    choice.measured(16, lanes, layer_seconds(times, lanes) * (step % 7 == 3 ? 2 : 1), times);
    best += step >= 1000 && lanes >= 3 ? 1 : 0;
  }
  EXPECT_GT(best, 2500);
}

TEST(LaneChoice, AFewStepsAreEnoughToKnow) {
  LaneChoice choice(kLanesMax);
  run(choice, 16, 8, 1, 1, 50, 0);
  EXPECT_GT(run(choice, 40, 8, 1, 1, 50, 0)[1], 38);
}

TEST(LaneChoice, NoLaneIsEmptyAndWhatChangesIsNoticed) {
  LaneChoice choice(kLanesMax);
  for (uint32_t sequences = 1; sequences < 6; ++sequences) EXPECT_LE(choice.choose(100, sequences), sequences);
  run(choice, 400, 8, 1, 1, 50, 0);  // a lane more costs a lane: one is best
  EXPECT_GT(run(choice, 64, 8, 1, 1, 50, 0)[1], 60);
  const auto after = run(choice, 4000, 8, 10, 10, 0, 200);  // the way is long now
  EXPECT_LT(after[1], 3000);
}

}  // namespace
}  // namespace shoal
