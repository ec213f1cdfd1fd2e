#include "policy/placement.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

NodeView node(uint32_t id, double wait_seconds = 0, double switch_seconds = 0) {
  NodeView view;
  view.node = NodeId(id);
  view.serves_model = true;
  view.wait_seconds = wait_seconds;
  view.switch_seconds = switch_seconds;
  return view;
}

uint32_t chosen(const std::vector<NodeView>& nodes, Phase phase = Phase::kPrompt) {
  return std::get<PlaceOn>(place({nodes, 0, 10}, phase)).node.value;
}

TEST(Place, APromptGoesWhereItIsBegunFirst) {
  EXPECT_EQ(chosen({node(1, 0.5), node(2, 0.2), node(3, 0.4)}), 2u);
  EXPECT_EQ(chosen({node(1, 0.5), node(2, 0.5)}), 1u);
}

TEST(Place, ASwitchCountsForThoseWhoWouldWaitForItToo) {
  EXPECT_EQ(chosen({node(1, 1.0, 1.0), node(2, 1.8)}), 2u);  // begun later, but nobody is switched away
  EXPECT_EQ(chosen({node(1, 1.0, 1.0), node(2, 2.5)}), 1u);
}

TEST(Place, OfEqualNodesTheOneWithFewerRequestsIsChosen) {
  std::vector<NodeView> nodes{node(1), node(2), node(3)};
  nodes[0].requests_live = 5;
  nodes[1].requests_live = 2;
  nodes[2].requests_queued = 3;
  EXPECT_EQ(chosen(nodes), 2u);
}

TEST(Place, RolesComeBeforeLoad) {
  std::vector<NodeView> nodes{node(1, 9), node(2), node(3, 8)};
  nodes[0].instance_role = InstanceRole::kPrefill;
  nodes[1].instance_role = InstanceRole::kDecode;
  EXPECT_EQ(chosen(nodes), 3u);  // one that does both counts for either
  EXPECT_EQ(chosen(nodes, Phase::kDecode), 2u);
  nodes.erase(nodes.begin() + 1);
  EXPECT_EQ(chosen(nodes, Phase::kDecode), 3u);
  nodes.pop_back();
  EXPECT_EQ(chosen(nodes, Phase::kDecode), 1u);  // nobody else: any node can do anything
}

TEST(Place, ADecodeJoinsItsModelOnANodeThatHasNotTooMuchIfThereIsOne) {
  std::vector<NodeView> nodes{node(1), node(2), node(3)};
  nodes[0].decode_pressure = 0.6;
  nodes[1].decode_pressure = 0.9;
  nodes[1].decodes_model = true;
  nodes[2].decode_pressure = 0.7;
  EXPECT_EQ(chosen(nodes, Phase::kDecode), 2u);
  nodes[1].decode_pressure = 1.1;
  EXPECT_EQ(chosen(nodes, Phase::kDecode), 2u);  // one more is less than another model on another node
  nodes[2].decodes_model = true;
  EXPECT_EQ(chosen(nodes, Phase::kDecode), 3u);
}

TEST(Place, ADrainingNodeTakesNothing) {
  std::vector<NodeView> nodes{node(1)};
  nodes[0].draining = true;
  EXPECT_EQ(std::get<Reject>(place({nodes, 0, 10}, Phase::kPrompt)).why, Reject::Why::kNoNode);
}

TEST(Place, AFullRouterRejectsWithAHintWhenToComeBack) {
  const std::vector<NodeView> nodes{node(1)};
  const auto reject = std::get<Reject>(place({nodes, 10, 10}, Phase::kPrompt));
  EXPECT_EQ(reject.why, Reject::Why::kFull);
  EXPECT_GT(reject.retry_after, Duration(0));
}

}  // namespace
}  // namespace shoal
