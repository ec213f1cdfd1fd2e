#include "policy/expert_relays.h"

#include <gtest/gtest.h>

#include <set>

namespace shoal {
namespace {

const NodeId kA(1), kB(2), kC(3), kD(4);
const std::vector<ExpertAsk> kAll = {{kA, {0, 1}}, {kB, {2}}, {kC, {3}}, {kD, {4, 5}}};
// Two machines with two servers each.
const std::vector<ExpertRelayView> kTwoMachines = {{kA, {kA, kB}}, {kB, {kA, kB}}, {kC, {kC, kD}}, {kD, {kC, kD}}};

TEST(ExpertRelays, OneServerOfEachMachineIsAskedForAllOfIt) {
  EXPECT_EQ(route_asks(kAll, kTwoMachines, 0), (std::vector<RoutedAsk>{{kA, {kAll[0], kAll[1]}}, {kC, {kAll[2], kAll[3]}}}));
  EXPECT_EQ(route_asks(kAll, kTwoMachines, 1), (std::vector<RoutedAsk>{{kB, {kAll[0], kAll[1]}}, {kD, {kAll[2], kAll[3]}}}));
}

TEST(ExpertRelays, RanksSpreadOverTheServersOfAMachine) {
  std::set<NodeId> used;
  for (uint64_t rank = 0; rank < 4; ++rank) used.insert(route_asks(kAll, kTwoMachines, rank).front().to);
  EXPECT_EQ(used, (std::set<NodeId>{kA, kB}));
}

TEST(ExpertRelays, WhatOnlyOneServerIsAskedForGoesThereDirectly) {
  const std::vector<ExpertAsk> one = {{kB, {0, 1}}};
  EXPECT_EQ(route_asks(one, kTwoMachines, 0), (std::vector<RoutedAsk>{{kB, one}}));
}

TEST(ExpertRelays, WithoutARelayEverythingGoesDirectly) {
  const std::vector<ExpertRelayView> half = {{kC, {kC, kD}}};
  const auto routed = route_asks(kAll, half, 0);
  EXPECT_EQ(routed, (std::vector<RoutedAsk>{{kA, {kAll[0]}}, {kB, {kAll[1]}}, {kC, {kAll[2], kAll[3]}}}));
  EXPECT_TRUE(route_asks({}, half, 0).empty());
}

TEST(ExpertRelays, PiecesKeepTheRowsOfATokenTogetherAndHaveEachRowOnce) {
  std::vector<ExpertRow> rows;
  std::vector<ExpertAsk> asks = {{kA, {}}, {kB, {}}};
  for (uint32_t token = 0; token < 10; ++token) {
    for (uint32_t i = 0; i < 3; ++i) {
      asks[i % 2].rows.push_back(static_cast<uint32_t>(rows.size()));
      rows.push_back({token, i});
    }
  }
  EXPECT_EQ(pieces_of(asks, rows, 30).size(), 1u);
  for (const uint32_t most : {1u, 2u, 7u, 12u}) {
    std::multiset<uint32_t> seen;
    for (const auto& piece : pieces_of(asks, rows, most)) {
      std::multiset<uint32_t> tokens;
      for (const ExpertAsk& ask : piece) {
        for (const uint32_t row : ask.rows) seen.insert(row), tokens.insert(rows[row].token);
        EXPECT_EQ(ask.server, rows[ask.rows.front()].expert % 2 == 0 ? kA : kB);
      }
      EXPECT_LE(tokens.size(), most);
      for (const uint32_t token : tokens) EXPECT_TRUE(most < 3 || tokens.count(token) == 3) << "all of a token";
    }
    EXPECT_EQ(seen.size(), rows.size());
    EXPECT_EQ(std::set<uint32_t>(seen.begin(), seen.end()).size(), rows.size());
  }
}

}  // namespace
}  // namespace shoal
