#include "policy/eplb.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace shoal {
namespace {

using Indices = std::vector<uint32_t>;

double imbalance(const EplbLayer& layer, const std::vector<float>& loads, uint32_t devices) {
  std::vector<double> of_device(devices, 0);
  const size_t places = layer.slots.size() / devices;
  for (size_t s = 0; s < layer.slots.size(); ++s) of_device[s / places] += loads[layer.slots[s]] / layer.copies[layer.slots[s]];
  return *std::max_element(of_device.begin(), of_device.end()) * devices / std::accumulate(of_device.begin(), of_device.end(), 0.0);
}

// 12 experts, 16 replicas, 4 groups, 2 machines, 8 devices: the example of the publication.
TEST(Eplb, GivesThePublishedPlacement) {
  const std::vector<float> first{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
  const std::vector<float> second{20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27};
  const EplbShape shape{.replicas = 16, .groups = 4, .nodes = 2, .devices = 8};
  EXPECT_EQ(eplb(first, shape)->slots, (Indices{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1}));
  EXPECT_EQ(eplb(second, shape)->slots, (Indices{7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}));
}

TEST(Eplb, SlotsCopiesAndRanksTellTheSame) {
  const std::vector<float> loads{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
  for (const uint32_t groups : {4u, 3u}) {  // hierarchical; 3 groups on 2 machines: global
    const auto layer = *eplb(loads, {.replicas = 16, .groups = groups, .nodes = 2, .devices = 8});
    uint32_t slots = 0;
    for (uint32_t e = 0; e < loads.size(); ++e) {
      ASSERT_EQ(layer.expert_slots[e].size(), layer.copies[e]);
      for (uint32_t rank = 0; rank < layer.copies[e]; ++rank, ++slots) {
        EXPECT_EQ(layer.slots[layer.expert_slots[e][rank]], e);
        EXPECT_EQ(layer.ranks[layer.expert_slots[e][rank]], rank);
      }
    }
    EXPECT_EQ(slots, 16u);
  }
}

TEST(Eplb, AGroupStaysOnItsMachine) {
  const std::vector<float> loads{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
  const auto layer = *eplb(loads, {.replicas = 16, .groups = 4, .nodes = 2, .devices = 8});
  std::vector<std::vector<bool>> on(4, std::vector<bool>(2));
  for (size_t s = 0; s < 16; ++s) on[layer.slots[s] / 3][s / 8] = true;
  for (const auto& machines : on) EXPECT_NE(machines[0], machines[1]);
}

// 256 experts with loads of a Pareto law on 32 devices with 9 slots each: 6.7 times the mean in a row, nearly even by EPLB.
TEST(Eplb, SkewedLoadsBecomeEven) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    std::vector<float> loads(256);
    for (float& load : loads) load = static_cast<float>(std::pow(1 - rng.uniform(), -1 / 1.2));
    const double before = imbalance(*eplb(std::vector<float>(256, 1.0f), {.replicas = 256, .devices = 32}), loads, 32);
    const double after = imbalance(*eplb(loads, {.replicas = 288, .devices = 32}), loads, 32);
    const double hottest = *std::max_element(loads.begin(), loads.end());
    EXPECT_LT(after, before) << seed;
    const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / 32;
    if (hottest < 8 * mean) { EXPECT_LT(after, 1.25) << seed; }
  }
}

TEST(Eplb, WhatDoesNotDivideIsNamed) {
  const std::vector<float> loads(12, 1.0f);
  const auto why = [&](const EplbShape& shape) { return std::string(eplb(loads, shape).status().message()); };
  EXPECT_EQ(why({.replicas = 16, .groups = 5}), "eplb: 12 experts do not divide into 5 groups");
  EXPECT_EQ(why({.replicas = 16, .nodes = 3, .devices = 8}), "eplb: 8 devices do not divide among 3 machines");
  EXPECT_EQ(why({.replicas = 15, .devices = 8}), "eplb: 15 replicas do not divide among 8 devices");
  EXPECT_EQ(why({.replicas = 8, .devices = 8}), "eplb: 8 replicas cannot hold 12 experts");
  EXPECT_FALSE(eplb({}, {.replicas = 8}).ok());
}

}  // namespace
}  // namespace shoal
