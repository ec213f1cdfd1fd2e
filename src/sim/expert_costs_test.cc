#include "sim/expert_costs.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

const ExpertCosts kCosts({}, {});
const ExpertDevice& h800() { return *find_expert_device("H800"); }
double us(double seconds) { return seconds * 1e6; }

TEST(ExpertCosts, AttentionIsTheRooflineOfTheDataSheets) {
  EXPECT_NEAR(us(kCosts.attention_s(h800(), 64, 4096)), 199, 4);
  EXPECT_NEAR(us(kCosts.attention_s(h800(), 128, 1024)), 143, 3);
  EXPECT_NEAR(us(kCosts.attention_s(h800(), 128, 4096)), 312, 3);
  EXPECT_NEAR(us(kCosts.attention_s(*find_expert_device("H20"), 128, 4096)), 1781, 20);  // bound by arithmetic
}

TEST(ExpertCosts, ExpertsAreWeightsUntilRowsAreMany) {
  EXPECT_NEAR(us(kCosts.experts_s(h800(), 2048, 16)), 263, 1);
  EXPECT_NEAR(us(kCosts.experts_s(h800(), 8192, 16)), 520, 5);
  EXPECT_NEAR(us(kCosts.experts_s(*find_expert_device("H20"), 2048, 16)), 871, 5);
}

// The worked numbers of the talk: 128 tokens a device, 50 GB/s at 80 %.
TEST(ExpertCosts, TheWayOf550MicrosecondsAndItsOtherSide) {
  const auto direct = kCosts.way(h800(), h800(), 128, 32, 16, false), two = kCosts.way(h800(), h800(), 128, 32, 16, true);
  EXPECT_NEAR(us(direct.attention_side), 550.5, 0.5);
  EXPECT_NEAR(us(direct.expert_side), 1101, 1);
  EXPECT_NEAR(us(two.attention_side), 137, 1);
  EXPECT_NEAR(us(two.expert_side), 274, 1);
  EXPECT_NEAR(us(two.machine), 199, 2);
  EXPECT_NEAR(kCosts.model().experts_per_token / kCosts.machines_hit(1), 8, 1e-9);
  EXPECT_NEAR(kCosts.model().experts_per_token / kCosts.machines_hit(2), 4.01, 0.02);
  EXPECT_NEAR(kCosts.model().experts_per_token / kCosts.machines_hit(4), 2.2, 0.05);
}

// DeepEP's README: H800, 128 tokens a device of 7168 numbers, 8 experts each, FP8 there and BF16 back.
TEST(ExpertCosts, WhatStaysWithinAMachineOfExpertParallelismMeetsWhatWasMeasured) {
  const struct {
    uint32_t devices;
    double measured;
  } rows[] = {{16, 118 + 195}, {32, 155 + 273}, {64, 173 + 314}, {128, 192 + 369}};
  for (const auto& row : rows) {
    const auto way = kCosts.way_together(h800(), 128, row.devices, false);
    EXPECT_NEAR(us(way.dispatch + way.combine) / row.measured, 1, 0.13) << row.devices;
  }
  EXPECT_EQ(kCosts.way_together(h800(), 128, 8, false).dispatch, 0);
  EXPECT_LT(kCosts.way_together(h800(), 128, 32, true).dispatch, kCosts.way_together(h800(), 128, 32, false).dispatch);
}

// Every device sends and takes rows and answers: two lanes need the links for both of both.
TEST(ExpertCosts, ExpertParallelismIsBoundByItsLinksAtLargeBatches) {
  const auto way = kCosts.way_together(h800(), 256, 32, false);
  EXPECT_NEAR(kCosts.expert_parallel_s(h800(), 512, 1024, 32, 2), 2 * (way.dispatch + way.combine), 1e-9);
}

TEST(ExpertCosts, SlowerNeighboursAndHotterExpertsNeverMakeItQuicker) {
  for (double batch = 8; batch <= 512; batch *= 2) {
    EXPECT_LE(kCosts.experts_s(h800(), batch * 8, 16), kCosts.experts_s(h800(), batch * 8, 16, 1.5));
    EXPECT_LE(kCosts.expert_parallel_s(h800(), batch, 2048, 32, 2), kCosts.expert_parallel_s(h800(), batch, 2048, 32, 2, 1.5));
    EXPECT_LE(kCosts.tensor_parallel_s(h800(), batch, 2048, 16), kCosts.tensor_parallel_s(h800(), batch * 2, 2048, 16));
  }
}

}  // namespace
}  // namespace shoal
