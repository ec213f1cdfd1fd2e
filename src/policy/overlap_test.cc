#include "policy/overlap.h"

#include <gtest/gtest.h>

#include <map>

namespace shoal {
namespace {

constexpr double kUs = 1e-6;
LaneTimes times(double attention, double experts, double comm) { return {attention * kUs, experts * kUs, comm / 2 * kUs, comm / 2 * kUs}; }

// A pipeline of single resources by events: every lane in turn computes, sends, is served, and is sent back.
double simulated_layer(const LaneTimes& t, uint32_t lanes, uint32_t layers) {
  double attention_free = 0, out_free = 0, experts_free = 0, back_free = 0;
  std::vector<double> back(lanes, 0);
  for (uint32_t layer = 0; layer < layers; ++layer) {
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      double at = std::max(back[lane], attention_free) + t.attention;
      attention_free = at;
      at = out_free = std::max(at, out_free) + t.dispatch;
      at = experts_free = std::max(at, experts_free) + t.experts;
      back[lane] = back_free = std::max(at, back_free) + t.combine;
    }
  }
  return back[lanes - 1] / layers;
}

TEST(Overlap, AnEventByEventPipelineTakesWhatTheFormulaSays) {
  for (const double attention : {100.0, 150.0, 200.0}) {
    for (const double experts : {80.0, 200.0, 300.0}) {
      for (const double comm : {50.0, 100.0, 250.0, 400.0}) {
        for (uint32_t m = 1; m <= 4; ++m) {
          const LaneTimes t = times(attention, experts, comm);
          EXPECT_NEAR(simulated_layer(t, m, 2000) / layer_seconds(t, m), 1, 0.01) << attention << " " << experts << " " << comm << " " << m;
        }
      }
    }
  }
}

// tA = tF = 200 us; here each way takes all of `comm`, so that the wire is what it is in the published conditions.
TEST(Overlap, BusyIsAsPublished) {
  const auto busy = [](double experts, double comm, uint32_t m) { return attention_busy({200 * kUs, experts * kUs, comm / 2 * kUs, comm / 2 * kUs}, m, Wire::kOneStream); };
  EXPECT_NEAR(busy(200, 100, 2), 0.80, 0.01);
  EXPECT_NEAR(busy(200, 100, 3), 1.00, 0.01);
  EXPECT_NEAR(busy(200, 200, 2), 0.67, 0.01);
  EXPECT_NEAR(busy(200, 200, 3), 1.00, 0.01);
  EXPECT_NEAR(busy(200, 250, 3), 0.80, 0.01);  // one stream that needs more than tA
  EXPECT_NEAR(busy(80, 100, 2), 1.00, 0.01);   // experts with room to spare: two lanes
  EXPECT_NEAR(attention_busy(times(200, 200, 300), 3), 0.86, 0.01);
  EXPECT_NEAR(attention_busy(times(200, 200, 300), 4), 1.00, 0.01);
  EXPECT_NEAR(attention_busy({150 * kUs, 200 * kUs, 20 * kUs, 20 * kUs}, 4), 0.75, 0.01);  // tA < tF, whatever the lanes
}

TEST(Overlap, ABubbleFreePipelineIsAlwaysBusyAndTheOtherNever) {
  for (uint32_t m = 1; m <= 4; ++m) {
    for (double attention = 50.3; attention <= 300; attention += 50) {
      for (double experts = 50.1; experts <= 300; experts += 50) {
        for (double comm = 47; comm <= 600; comm += 51) {
          const LaneTimes t = times(attention, experts, comm);
          EXPECT_EQ(bubble_free(t, m), attention_busy(t, m) > 1 - 1e-9) << attention << " " << experts << " " << comm << " " << m;
        }
      }
    }
  }
}

TEST(Overlap, TheBudgetOfALayerAndALane) {
  EXPECT_NEAR(lane_budget(0.05, 61, 3).layer_s / kUs, 819.7, 0.05);
  EXPECT_NEAR(lane_budget(0.05, 61, 3).lane_s / kUs, 273.2, 0.05);
  EXPECT_NEAR(lane_budget(0.05, 61, 2).lane_s / kUs, 409.8, 0.05);
  EXPECT_NEAR(lane_budget(0.1, 61, 3).lane_s / kUs, 546.4, 0.05);
  EXPECT_NEAR(lane_budget(0.05, 61, 3, 1.5).layer_s / kUs, 1229.5, 0.05);
}

TEST(PlanLanes, TwoWhereExpertsAreQuickThreeWhereTheyAreBalanced) {
  EXPECT_EQ(plan_lanes(times(200, 80, 100)).lanes, 2u);   // tF + comm <= tA
  EXPECT_EQ(plan_lanes(times(200, 200, 100)).lanes, 3u);  // 1 + 300 / 200
  EXPECT_EQ(plan_lanes(times(200, 200, 300)).lanes, 4u);
  EXPECT_EQ(plan_lanes(times(200, 0, 0)).lanes, 1u);
  EXPECT_EQ(plan_lanes(times(200, 80, 100)).limit, "attention");
  EXPECT_EQ(plan_lanes(times(200, 300, 100)).limit, "experts");
  EXPECT_EQ(plan_lanes(times(100, 50, 500)).limit, "wire");
  EXPECT_TRUE(plan_lanes(times(200, 200, 100)).bubble_free);
}

// A batch that is split has its fixed costs (weights read, launches) in every lane.
TEST(PlanLanes, SplittingABatchPaysOnlyWhileTheFixedCostsAreHidden) {
  const auto split = [](double fixed, double rows, double comm) {
    std::vector<LaneTimes> out;
    for (int m = 1; m <= 4; ++m) out.push_back({(fixed + rows / m) * kUs, (fixed + rows / m) * kUs, comm / m * kUs, comm / m * kUs});
    return plan_lanes(out).lanes;
  };
  EXPECT_EQ(split(0, 300, 300), 4u);
  EXPECT_EQ(split(100, 300, 100), 2u);
  EXPECT_EQ(split(500, 10, 10), 2u);  // one lane leaves each side idle while the other works
  EXPECT_EQ(plan_lanes(std::vector<LaneTimes>{{400 * kUs, 0, 0, 0}, {350 * kUs, 0, 0, 0}}).lanes, 1u);
}

TEST(PlanSplit, TheMostTokensPerCostThatKeepTheTime) {
  const SplitGoal goal{.token_s = 0.05, .layers = 61};
  std::vector<SplitChoice> choices;
  choices.push_back({32, 16, 3, 128, times(250, 250, 200), 48});   // 750 us of 819.7
  choices.push_back({32, 16, 3, 192, times(360, 300, 300), 48});   // too late
  choices.push_back({40, 8, 3, 96, times(200, 270, 200), 48});     // 810 us, fewer tokens
  choices.push_back({32, 16, 3, 128, times(250, 250, 200), 40});   // the same, cheaper
  EXPECT_EQ(*plan_split(choices, goal), 3u);
  EXPECT_NEAR(split_rate(choices[0], goal), 32 * 3 * 128 / (61 * 750e-6), 1);
  const auto none = plan_split(choices, {.token_s = 0.01, .layers = 61});
  EXPECT_EQ(none.status().message(), "no choice gives a token within 10 ms; the quickest takes 45.75 ms with 32 attention and 16 expert devices");
  EXPECT_FALSE(plan_split({}, goal).ok());
}

TEST(ServerOrder, IsTheOneOfThreeLanes) { EXPECT_EQ(wire_order(3, 2), "D1 D2 C1 D3 C2 D1' C3 D2' C1' D3' C2' C3'"); }

// Experts in the order of dispatch; a lane is dispatched before the combine of the lane before it, and after that of the one before.
TEST(ServerOrder, KeepsItsThreeConditionsForAnyLayers) {
  for (const uint32_t layers : {1u, 2u, 7u}) {
    std::map<std::pair<SideStage, uint32_t>, size_t> at;  // stage, running number of (layer, lane)
    const auto order = server_order(3, layers);
    for (size_t i = 0; i < order.size(); ++i) at[{order[i].stage, order[i].layer * 3 + order[i].lane}] = i;
    const uint32_t all = 3 * layers;
    for (uint32_t i = 0; i < all; ++i) {
      EXPECT_LT(at[std::pair(SideStage::kDispatch, i)], at[std::pair(SideStage::kExperts, i)]);
      EXPECT_LT(at[std::pair(SideStage::kExperts, i)], at[std::pair(SideStage::kCombine, i)]);
      if (i + 1 < all) {
        EXPECT_LT(at[std::pair(SideStage::kExperts, i)], at[std::pair(SideStage::kExperts, i + 1)]);
        EXPECT_LT(at[std::pair(SideStage::kDispatch, i + 1)], at[std::pair(SideStage::kCombine, i)]);
      }
      if (i > 0 && i + 1 < all) { EXPECT_GT(at[std::pair(SideStage::kDispatch, i + 1)], at[std::pair(SideStage::kCombine, i - 1)]); }
    }
  }
}

TEST(ClientOrder, LanesTakeTurnsAndEndWithTheHead) {
  const auto order = client_order(2, 2);
  EXPECT_EQ(order, (std::vector<ClientStep>{{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2}, {1, 2}}));
}

TEST(EvenLanes, LongContextsAreSpread) {
  const std::vector<double> work{8, 7, 1, 1, 1, 1, 1, 1, 9, 6};
  const auto lanes = even_lanes(work, 3);
  std::vector<double> sums(3);
  for (size_t i = 0; i < work.size(); ++i) sums[lanes[i]] += work[i];
  EXPECT_LE(*std::max_element(sums.begin(), sums.end()) - *std::min_element(sums.begin(), sums.end()), 2);
}

}  // namespace
}  // namespace shoal
