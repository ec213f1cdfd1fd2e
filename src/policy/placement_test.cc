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

// For an answer of 100 tokens, the first within 10 s and then ten a second.
NodeView timed(uint32_t id, double wait_seconds, double switch_seconds = 0, double pressure = 0) {
  NodeView view = node(id, wait_seconds, switch_seconds);
  view.answer_tokens = 100;
  view.slack_seconds = 10;
  view.tbt_seconds = 0.1;
  view.decode_pressure = pressure;
  return view;
}

uint32_t chosen(const std::vector<NodeView>& nodes, Phase phase = Phase::kPrompt, bool by_load = false) {
  return std::get<PlaceOn>(place({nodes, 0, 10, by_load}, phase)).node.value;
}

TEST(Place, ByLoadAPromptGoesWhereItIsBegunFirst) {
  EXPECT_EQ(chosen({node(1, 0.5), node(2, 0.2), node(3, 0.4)}, Phase::kPrompt, true), 2u);
  EXPECT_EQ(chosen({node(1, 0.5), node(2, 0.5)}, Phase::kPrompt, true), 1u);
}

TEST(Place, ByLoadASwitchCountsForThoseWhoWouldWaitForItToo) {
  EXPECT_EQ(chosen({node(1, 1.0, 1.0), node(2, 1.8)}, Phase::kPrompt, true), 2u);  // begun later, but nobody is switched away
  EXPECT_EQ(chosen({node(1, 1.0, 1.0), node(2, 2.5)}, Phase::kPrompt, true), 1u);
}

TEST(Place, ARequestStaysWhereItsModelIsWhileItIsInTimeThere) {
  EXPECT_EQ(chosen({timed(1, 1.0, 1.0), timed(2, 4.0)}), 2u);
  EXPECT_EQ(chosen({timed(1, 1.0, 1.0), timed(2, 30.0)}), 1u);  // it would be late
  EXPECT_EQ(chosen({timed(1, 1.0, 1.0), timed(2, 0.1, 0, 4)}), 1u);  // so would most of it
  EXPECT_EQ(chosen({timed(1, 1.0, 1.0, 4), timed(2, 0.1, 0, 4)}), 2u);  // but not the less elsewhere
}

TEST(Place, ASwitchThatSendsNobodyAwayIsCheaper) {
  std::vector<NodeView> nodes{timed(1, 1.0, 1.0), timed(2, 1.5, 1.5)};
  EXPECT_EQ(chosen(nodes), 1u);
  nodes[0].room = false;
  EXPECT_EQ(chosen(nodes), 2u);
}

TEST(Place, OfTwoHomesTheOneIsChosenWhereItEndsFirst) {
  EXPECT_EQ(chosen({timed(1, 0, 0, 0.6), timed(2, 0, 0, 0.4)}), 2u);
  EXPECT_EQ(chosen({timed(1, 0.1, 0, 0.4), timed(2, 0.8, 0, 0.4)}), 1u);
}

TEST(Place, WhatOneMoreAnswerAddsIsCountedIn) {
  NodeView full = timed(1, 0, 0, 0.9);
  full.answer_pressure = 3;
  EXPECT_EQ(chosen({full, timed(2, 0.3, 0.3, 0.1)}), 2u);
  EXPECT_LT(share_on_time(full), 1);
  EXPECT_EQ(share_on_time(timed(1, 0, 0, 0.9)), 1);
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

TEST(Place, ByLoadADecodeJoinsItsModelOnANodeThatHasNotTooMuchIfThereIsOne) {
  std::vector<NodeView> nodes{node(1), node(2), node(3)};
  nodes[0].decode_pressure = 0.6;
  nodes[1].decode_pressure = 0.9;
  nodes[1].decodes_model = true;
  nodes[2].decode_pressure = 0.7;
  EXPECT_EQ(chosen(nodes, Phase::kDecode, true), 2u);
  nodes[1].decode_pressure = 1.1;
  EXPECT_EQ(chosen(nodes, Phase::kDecode, true), 2u);  // one more is less than another model on another node
  nodes[2].decodes_model = true;
  EXPECT_EQ(chosen(nodes, Phase::kDecode, true), 3u);
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

TEST(AgreeOnAnswers, WhoHasSeenMoreCountsMoreAndWhoKnowsNothingBelievesTheOthers) {
  NodeView nodes[3];
  nodes[0].answer_tokens = 100, nodes[0].answer_tokens_seen = 999;
  nodes[1].answer_tokens = 300, nodes[1].answer_tokens_seen = 2999;
  agree_on_answers(nodes);
  for (const NodeView& node : nodes) EXPECT_DOUBLE_EQ(node.answer_tokens, 250);
  NodeView unknown[1];
  agree_on_answers(unknown);
  EXPECT_EQ(unknown[0].answer_tokens, 0);
}

}  // namespace
}  // namespace shoal
