#include "policy/expert_heat.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace shoal {
namespace {

const std::vector<ExpertLayerSpec> kLayers{{3, 4, 1000}};

ExpertPlacement twice() {
  return {1, {{3, std::vector<std::vector<ExpertShare>>(4, {{NodeId(0), kWholeShare / 2}, {NodeId(1), kWholeShare / 2}})}}};
}

TEST(ExpertHeat, ThreeHotWindowsInARowAskForOneMoreCopy) {
  ExpertHeat heat(kLayers, {});
  const std::vector<std::vector<double>> even{{10, 10, 10, 10}}, hot{{10, 100, 10, 10}};
  const auto placement = twice();
  EXPECT_TRUE(heat.window(even, placement).empty());
  EXPECT_TRUE(heat.window(hot, placement).empty());
  EXPECT_TRUE(heat.window(hot, placement).empty());
  EXPECT_EQ(heat.window(hot, placement), (std::vector<ExpertCopies>{{3, 1, 3}}));
  EXPECT_TRUE(heat.window(hot, placement).empty());  // the streak begins anew
}

TEST(ExpertHeat, OneOddWindowChangesNothing) {
  ExpertHeat heat(kLayers, {.forget = 1});
  const std::vector<std::vector<double>> even{{10, 10, 10, 10}}, hot{{10, 100, 10, 10}};
  const auto placement = twice();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(heat.window(i % 3 == 0 ? even : hot, placement).empty());
}

TEST(ExpertHeat, AColdCopyGoesButNeverTheLastTwo) {
  ExpertHeat heat(kLayers, {});
  auto placement = twice();
  placement.layers[0].experts[2].push_back({NodeId(2), 0});
  const std::vector<std::vector<double>> cold{{10, 10, 1, 10}};
  EXPECT_TRUE(heat.window(cold, placement).empty());
  EXPECT_TRUE(heat.window(cold, placement).empty());
  EXPECT_EQ(heat.window(cold, placement), (std::vector<ExpertCopies>{{3, 2, 2}}));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(heat.window(cold, twice()).empty());
}

TEST(ExpertHeat, AnotherModelsWindowIsIgnored) {
  ExpertHeat heat(kLayers, {});
  EXPECT_TRUE(heat.window(std::vector<std::vector<double>>{{1, 2}}, twice()).empty());
  EXPECT_TRUE(heat.window(std::vector<std::vector<double>>{}, twice()).empty());
  EXPECT_EQ(heat.rows()[0], std::vector<double>(4, 0.0));
}

// Routing whose hot experts change: what heat asks for is planned, and the load evens out each time.
TEST(ExpertHeat, PlansFollowALoadThatMoves) {
  std::vector<ExpertLayerSpec> layers{{0, 32, 1000}};
  std::vector<ExpertServerSpec> servers;
  for (uint32_t s = 0; s < 8; ++s) servers.push_back({NodeId(s), 14 * 1000, 1, s});
  const ExpertCost cost{0, 1e-6};
  ExpertHeat heat(layers, {});
  std::vector<std::vector<double>> rows(1, std::vector<double>(32, 10));
  ExpertPlacement now = plan_placement({layers, servers, rows, nullptr, {}}, {.cost = cost})->target;
  for (int phase = 0; phase < 4; ++phase) {
    rows[0].assign(32, 10);
    rows[0][phase * 7] = 200;
    const ExpertPlacement before = now;
    for (int window = 0; window < 40; ++window) {
      const auto copies = heat.window(rows, now);
      const auto plan = plan_placement({layers, servers, heat.rows(), &now, copies}, {.cost = cost});
      ASSERT_TRUE(plan.ok()) << plan.status();
      now = plan->target;
    }
    const PlacementView view{layers, servers, rows, &now, {}};
    EXPECT_LT(imbalance(view, now, cost), 1.1) << phase;
    EXPECT_LT(imbalance(view, now, cost), imbalance(view, before, cost)) << phase;
  }
}

}  // namespace
}  // namespace shoal
