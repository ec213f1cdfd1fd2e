#include "policy/expert_keeping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

FleetModel model_of(const std::string& key, uint32_t layers, uint32_t experts, uint64_t bytes, std::vector<NodeId> servers) {
  FleetModel model{.key = key};
  for (uint32_t layer = 0; layer < layers; ++layer) {
    model.layers.push_back({layer, experts, bytes});
    model.held.layers.push_back({layer, std::vector<std::vector<ExpertShare>>(experts)});
  }
  model.servers = std::move(servers);
  return model;
}

std::vector<ExpertServerSpec> servers_of(uint32_t count, uint64_t memory) {
  std::vector<ExpertServerSpec> servers;
  for (uint32_t s = 0; s < count; ++s) servers.push_back({.server = NodeId(s), .memory_bytes = memory, .domain = s});
  return servers;
}

// As servers would: copies first, then drops.
void apply(const PlacementPlan& plan, FleetModel& model) {
  const auto copies = [&](const ExpertMove& move) -> std::vector<ExpertShare>& { return model.held.layers[move.layer].experts[move.expert]; };
  for (const ExpertMove& move : plan.copies) copies(move).push_back({move.server, copies(move).empty() ? kWholeShare : 0});
  for (const ExpertMove& move : plan.drops) std::erase_if(copies(move), [&](const ExpertShare& copy) { return copy.server == move.server; });
  for (LayerPlacement& layer : model.held.layers) {
    for (auto& of : layer.experts) {
      for (ExpertShare& copy : of) copy.share = &copy == &of.front() ? kWholeShare : 0;
    }
  }
}

uint32_t fewest(const FleetModel& model) {
  size_t least = SIZE_MAX;
  for (const LayerPlacement& layer : model.held.layers) {
    for (const auto& copies : layer.experts) least = std::min(least, copies.size());
  }
  return static_cast<uint32_t>(least);
}

TEST(ExpertKeeping, FleetsOfAnySizeComeToRestWithTwoCopiesOfAllAndWithinMemory) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Rng rng(seed);
    const auto count = static_cast<uint32_t>(2 + rng.below(6));
    std::vector<NodeId> ids;
    for (uint32_t s = 0; s < count; ++s) ids.emplace_back(s);
    std::vector<FleetModel> models{model_of("a", 2, 8, 10, ids), model_of("b", 3, 16, 5, ids)};  // 160 and 240 bytes
    auto servers = servers_of(count, 2 * 400 / count + 80);
    ExpertKeeping keeping;
    bool rest = false;
    for (int round = 0; round < 20 && !rest; ++round) {
      rest = true;
      const auto plans = keeping.plan(servers, models);
      for (size_t m = 0; m < models.size(); ++m) {
        ASSERT_TRUE(plans[m].ok()) << plans[m].status() << " seed " << seed;
        rest &= plans[m]->empty();
        apply(*plans[m], models[m]);
      }
      for (const ExpertServerSpec& server : servers) EXPECT_LE(held_bytes(models[0], server.server) + held_bytes(models[1], server.server), server.memory_bytes) << seed;
    }
    EXPECT_TRUE(rest) << seed;
    EXPECT_EQ(fewest(models[0]), 2u) << seed;
    EXPECT_EQ(fewest(models[1]), 2u) << seed;
  }
}

TEST(ExpertKeeping, AHotExpertGetsACopyMoreAndByHandNothingMoves) {
  const std::vector<NodeId> ids{NodeId(0), NodeId(1), NodeId(2), NodeId(3)};
  for (const bool by_hand : {false, true}) {
    std::vector<FleetModel> models{model_of("a", 1, 8, 10, ids)};
    const auto servers = servers_of(4, 1000);
    ExpertKeeping keeping;
    apply(*keeping.plan(servers, models)[0], models[0]);
    models[0].by_hand = by_hand;
    models[0].rows = {{100, 10, 10, 10, 10, 10, 10, 10}};
    for (int window = 0; window < 6; ++window) apply(*keeping.plan(servers, models)[0], models[0]);
    EXPECT_EQ(models[0].held.of(0, 0).size() > 2, !by_hand);
    EXPECT_EQ(fewest(models[0]), 2u);
  }
}

TEST(ExpertKeeping, OneModelWithoutRoomKeepsNoOtherWaiting) {
  std::vector<FleetModel> models{model_of("large", 1, 8, 1000, {NodeId(0)}), model_of("small", 1, 8, 1, {NodeId(0)})};
  ExpertKeeping keeping;
  const auto plans = keeping.plan(servers_of(1, 100), models);
  EXPECT_THAT(plans[0].status().message(), HasSubstr("add a server or memory"));
  EXPECT_TRUE(plans[1].ok()) << plans[1].status();
}

}  // namespace
}  // namespace shoal
