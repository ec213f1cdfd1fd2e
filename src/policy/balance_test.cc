#include "policy/balance.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

RoleView prefill(uint32_t id, double pressure, double decode_pressure = 0) {
  return {NodeId(id), InstanceRole::kPrefill, InstanceRole::kPrefill, pressure, decode_pressure};
}
RoleView decode(uint32_t id, double pressure, double prompt_pressure = 0) {
  return {NodeId(id), InstanceRole::kDecode, InstanceRole::kDecode, prompt_pressure, pressure};
}

TEST(PlanRoles, NobodyMovesWhileBothSidesKeepTheirTime) {
  const std::vector<RoleView> nodes{prefill(1, 0.9), decode(2, 0.2), decode(3, 0.2)};
  EXPECT_FALSE(plan_roles(nodes, {}).has_value());
}

TEST(PlanRoles, ASideThatWillBeLateGetsTheLeastLoadedNodeOfTheOther) {
  const std::vector<RoleView> nodes{prefill(1, 3), decode(2, 0.5), decode(3, 0.3), decode(4, 0.4)};
  EXPECT_EQ(plan_roles(nodes, {}), (RoleChange{NodeId(3), InstanceRole::kPrefill}));
  const std::vector<RoleView> other{prefill(1, 0.2), prefill(2, 0.1), decode(3, 1.4)};
  EXPECT_EQ(plan_roles(other, {}), (RoleChange{NodeId(2), InstanceRole::kDecode}));
}

TEST(PlanRoles, ASideThatIsBusyItselfSparesNobody) {
  const std::vector<RoleView> nodes{prefill(1, 3), decode(2, 0.9), decode(3, 0.8)};
  EXPECT_FALSE(plan_roles(nodes, {}).has_value());
}

TEST(PlanRoles, HelpMustNotMakeTheHelpersWorseOffThanTheHelped) {
  const std::vector<RoleView> nodes{prefill(1, 1.2), decode(2, 0.0), decode(3, 0.9)};
  EXPECT_EQ(plan_roles(nodes, {}), (RoleChange{NodeId(2), InstanceRole::kPrefill}));  // 0.9 is left to one
  const std::vector<RoleView> worse{prefill(1, 1.2), decode(2, 0.0), decode(3, 1.5)};
  EXPECT_FALSE(plan_roles(worse, {.high = 1, .low = 0.8}).has_value());
}

TEST(PlanRoles, TheLastNodeOfASideDoesBoth) {
  std::vector<RoleView> nodes{prefill(1, 2), decode(2, 0.1)};
  const auto change = plan_roles(nodes, {});
  EXPECT_EQ(change, (RoleChange{NodeId(2), InstanceRole::kBoth}));
  nodes[1].instance_role = InstanceRole::kBoth;
  nodes[0].prompt_pressure = 1.5;
  nodes[1].prompt_pressure = 1;
  EXPECT_FALSE(plan_roles(nodes, {}).has_value());  // still needed
}

TEST(PlanRoles, AHelperGoesHomeWhenItIsNotNeededOrMissed) {
  std::vector<RoleView> nodes{prefill(1, 0.2), {NodeId(2), InstanceRole::kBoth, InstanceRole::kDecode, 0.1, 0.1}};
  EXPECT_EQ(plan_roles(nodes, {}), (RoleChange{NodeId(2), InstanceRole::kDecode}));
  nodes[0].prompt_pressure = nodes[1].prompt_pressure = 2;
  nodes[1].decode_pressure = 1.3;
  EXPECT_EQ(plan_roles(nodes, {}), (RoleChange{NodeId(2), InstanceRole::kDecode}));
}

TEST(PlanRoles, NodesThatDoBothByNatureStayAsTheyAre) {
  const std::vector<RoleView> nodes{{NodeId(1), InstanceRole::kBoth, InstanceRole::kBoth, 3, 0}, {NodeId(2), InstanceRole::kBoth, InstanceRole::kBoth, 0, 0}};
  EXPECT_FALSE(plan_roles(nodes, {}).has_value());
}

BatchView batch(uint32_t model, bool running, uint32_t requests, double pressure, bool late = false) { return {ModelId(model), running, requests, pressure, late}; }
const std::vector<BatchView> kNothing{batch(1, false, 0, 0), batch(2, false, 0, 0), batch(3, false, 0, 0)};

TEST(PlanSteal, TheBatchMovesThatGainsTheMost) {
  const std::vector<BatchView> many{batch(1, true, 9, 0.9), batch(2, false, 4, 0.3), batch(3, false, 2, 0.2)};
  std::vector<StealView> nodes{{NodeId(1), InstanceRole::kDecode, 1.2, many}, {NodeId(2), InstanceRole::kDecode, 0, kNothing}};
  EXPECT_EQ(plan_steal(nodes), (Steal{NodeId(1), ModelId(2)}));
  nodes[0].decode_pressure = 0.7;  // it keeps its time
  EXPECT_FALSE(plan_steal(nodes).has_value());
  nodes[0].decode_pressure = 1.2;
  nodes[1].instance_role = InstanceRole::kPrefill;  // idle, but not for decodes
  EXPECT_FALSE(plan_steal(nodes).has_value());
}

TEST(PlanSteal, WhoIsLateWhereHeIsMovesToWhereThereIsTime) {
  const std::vector<BatchView> two{batch(1, true, 9, 0.5), batch(2, false, 4, 0.3, true)};
  std::vector<BatchView> busy{batch(2, false, 0, 0), batch(3, true, 5, 0.6)};
  std::vector<StealView> nodes{{NodeId(1), InstanceRole::kBoth, 0.7, two}, {NodeId(2), InstanceRole::kBoth, 0.6, busy}};
  EXPECT_EQ(plan_steal(nodes), (Steal{NodeId(1), ModelId(2)}));
  busy[0].late = true;  // there it would be, too
  EXPECT_FALSE(plan_steal(nodes).has_value());
  busy[0] = batch(2, false, 0, 0);
  busy[0].room = false;  // it would send another one away
  EXPECT_FALSE(plan_steal(nodes).has_value());
  busy[1].requests = 0;  // which has nothing to do
  EXPECT_TRUE(plan_steal(nodes).has_value());
}

TEST(PlanSteal, WhatANodeTakesItsOwnDoNotLose) {
  const std::vector<BatchView> two{batch(1, true, 9, 0.9), batch(2, false, 4, 0.6)}, one{batch(2, false, 0, 0), batch(3, true, 5, 0.5)};
  std::vector<StealView> nodes{{NodeId(1), InstanceRole::kBoth, 1.5, two}, {NodeId(2), InstanceRole::kBoth, 0.5, one}};
  EXPECT_EQ(plan_steal(nodes), (Steal{NodeId(1), ModelId(2)}));  // half of it is served there, and nothing here
  nodes[1].decode_pressure = 1.1;
  EXPECT_FALSE(plan_steal(nodes).has_value());
}

TEST(PlanSteal, OfEqualGainsTheSmallerBatchMoves) {
  const std::vector<BatchView> many{batch(1, true, 9, 0.9), batch(2, false, 4, 0.3), batch(3, false, 2, 0.3)};
  EXPECT_EQ(plan_steal(std::vector<StealView>{{NodeId(1), InstanceRole::kBoth, 1.5, many}, {NodeId(2), InstanceRole::kBoth, 0, kNothing}}), (Steal{NodeId(1), ModelId(3)}));
}

TEST(PlanSteal, ANodeKeepsItsOnlyBatchAndWhatIsRunning) {
  const std::vector<BatchView> one{batch(1, false, 3, 0.5)}, running{batch(1, true, 1, 0.6), batch(2, true, 4, 0.6)};
  const std::vector<StealView> nodes{{NodeId(1), InstanceRole::kBoth, 1.5, one}, {NodeId(2), InstanceRole::kBoth, 1.2, running}, {NodeId(3), InstanceRole::kBoth, 0, kNothing}};
  EXPECT_FALSE(plan_steal(nodes).has_value());
}

}  // namespace
}  // namespace shoal
