#include "policy/balance.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

DutyView prefill(uint32_t id, double pressure, double decode_pressure = 0) {
  return {NodeId(id), Duty::kPrefill, Duty::kPrefill, pressure, decode_pressure};
}
DutyView decode(uint32_t id, double pressure, double prompt_pressure = 0) {
  return {NodeId(id), Duty::kDecode, Duty::kDecode, prompt_pressure, pressure};
}

TEST(PlanDuties, NobodyMovesWhileBothSidesKeepTheirTime) {
  const std::vector<DutyView> nodes{prefill(1, 0.9), decode(2, 0.2), decode(3, 0.2)};
  EXPECT_FALSE(plan_duties(nodes, {}).has_value());
}

TEST(PlanDuties, ASideThatWillBeLateGetsTheLeastLoadedNodeOfTheOther) {
  const std::vector<DutyView> nodes{prefill(1, 3), decode(2, 0.5), decode(3, 0.3), decode(4, 0.4)};
  EXPECT_EQ(plan_duties(nodes, {}), (DutyChange{NodeId(3), Duty::kPrefill}));
  const std::vector<DutyView> other{prefill(1, 0.2), prefill(2, 0.1), decode(3, 1.4)};
  EXPECT_EQ(plan_duties(other, {}), (DutyChange{NodeId(2), Duty::kDecode}));
}

TEST(PlanDuties, ASideThatIsBusyItselfSparesNobody) {
  const std::vector<DutyView> nodes{prefill(1, 3), decode(2, 0.9), decode(3, 0.8)};
  EXPECT_FALSE(plan_duties(nodes, {}).has_value());
}

TEST(PlanDuties, HelpMustNotMakeTheHelpersWorseOffThanTheHelped) {
  const std::vector<DutyView> nodes{prefill(1, 1.2), decode(2, 0.0), decode(3, 0.9)};
  EXPECT_EQ(plan_duties(nodes, {}), (DutyChange{NodeId(2), Duty::kPrefill}));  // 0.9 is left to one
  const std::vector<DutyView> worse{prefill(1, 1.2), decode(2, 0.0), decode(3, 1.5)};
  EXPECT_FALSE(plan_duties(worse, {.high = 1, .low = 0.8}).has_value());
}

TEST(PlanDuties, TheLastNodeOfASideDoesBoth) {
  std::vector<DutyView> nodes{prefill(1, 2), decode(2, 0.1)};
  const auto change = plan_duties(nodes, {});
  EXPECT_EQ(change, (DutyChange{NodeId(2), Duty::kBoth}));
  nodes[1].duty = Duty::kBoth;
  nodes[0].prompt_pressure = 1.5;
  nodes[1].prompt_pressure = 1;
  EXPECT_FALSE(plan_duties(nodes, {}).has_value());  // still needed
}

TEST(PlanDuties, AHelperGoesHomeWhenItIsNotNeededOrMissed) {
  std::vector<DutyView> nodes{prefill(1, 0.2), {NodeId(2), Duty::kBoth, Duty::kDecode, 0.1, 0.1}};
  EXPECT_EQ(plan_duties(nodes, {}), (DutyChange{NodeId(2), Duty::kDecode}));
  nodes[0].prompt_pressure = nodes[1].prompt_pressure = 2;
  nodes[1].decode_pressure = 1.3;
  EXPECT_EQ(plan_duties(nodes, {}), (DutyChange{NodeId(2), Duty::kDecode}));
}

TEST(PlanDuties, NodesThatDoBothByNatureStayAsTheyAre) {
  const std::vector<DutyView> nodes{{NodeId(1), Duty::kBoth, Duty::kBoth, 3, 0}, {NodeId(2), Duty::kBoth, Duty::kBoth, 0, 0}};
  EXPECT_FALSE(plan_duties(nodes, {}).has_value());
}

TEST(PlanSteal, AnIdleNodeTakesASmallBatchThatIsNotRunning) {
  const std::vector<BatchView> many{{ModelId(1), true, 1}, {ModelId(2), false, 4}, {ModelId(3), false, 2}}, none;
  std::vector<StealView> nodes{{NodeId(1), Duty::kDecode, 1.2, many}, {NodeId(2), Duty::kDecode, 0, none}};
  EXPECT_EQ(plan_steal(nodes), (Steal{NodeId(1), ModelId(3)}));
  nodes[0].decode_pressure = 0.7;  // it keeps its time
  EXPECT_FALSE(plan_steal(nodes).has_value());
  nodes[0].decode_pressure = 1.2;
  nodes[1].duty = Duty::kPrefill;  // idle, but not for decodes
  EXPECT_FALSE(plan_steal(nodes).has_value());
}

TEST(PlanSteal, ABatchMovesToANodeThatIsBusyOnlyIfItsOwnHasMuchMoreToDo) {
  const std::vector<BatchView> two{{ModelId(1), true, 1}, {ModelId(2), false, 4}};
  std::vector<StealView> nodes{{NodeId(1), Duty::kBoth, 1.5, two}, {NodeId(2), Duty::kBoth, 0.9, two}};
  EXPECT_EQ(plan_steal(nodes), (Steal{NodeId(1), ModelId(2)}));
  nodes[1].decode_pressure = 1.1;
  EXPECT_FALSE(plan_steal(nodes).has_value());
  nodes[1].decode_pressure = 3;
  EXPECT_EQ(plan_steal(nodes), (Steal{NodeId(2), ModelId(2)}));
  nodes[0].duty = Duty::kPrefill;  // nobody else decodes
  EXPECT_FALSE(plan_steal(nodes).has_value());
}

TEST(PlanSteal, ANodeKeepsItsOnlyBatchAndWhatIsRunning) {
  const std::vector<BatchView> one{{ModelId(1), false, 3}}, running{{ModelId(1), true, 1}, {ModelId(2), true, 4}}, none;
  const std::vector<StealView> nodes{{NodeId(1), Duty::kBoth, 1.5, one}, {NodeId(2), Duty::kBoth, 1.2, running}, {NodeId(3), Duty::kBoth, 0, none}};
  EXPECT_FALSE(plan_steal(nodes).has_value());
}

}  // namespace
}  // namespace shoal
