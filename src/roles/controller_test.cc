#include "roles/controller.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shoal {
namespace {

constexpr TimePoint kStart{};

ClusterState two_nodes(uint32_t epoch = 1) {
  ClusterState state;
  state.version = epoch;
  for (const uint32_t id : {1u, 2u}) state.members[NodeId(id)] = {.id = NodeId(id), .role = Role::kNode, .epoch = epoch, .models = {ModelId(0), ModelId(1)}};
  return state;
}

// A node with so much to decode, of two models.
MessageFrom report(uint32_t node, double decode_pressure, uint32_t life = 1) {
  NodeStatus status;
  status.version = 1;
  status.decode_pressure = decode_pressure;
  for (const uint32_t model : {0u, 1u}) {
    ModelStatus m;
    m.model = ModelId(model);
    m.running = decode_pressure > 0 ? 4 : 0;
    m.answer_pressure = 0.1;
    m.state = model == 0 ? ModelState::kLoaded : ModelState::kUnloaded;
    status.models.push_back(m);
  }
  return {NodeId(node), status, life};
}

std::vector<Send> sends(const std::vector<Effect>& effects) {
  std::vector<Send> out;
  for (const Effect& effect : effects) {
    if (const auto* send = std::get_if<Send>(&effect)) out.push_back(*send);
  }
  return out;
}

TEST(Controller, TheOneThatLeadsTakesABatchFromANodeWithTooMuchToDo) {
  Controller controller({});
  controller.handle(ClusterChanged{two_nodes()}, kStart);
  controller.handle(LeadershipChanged{true}, kStart);
  controller.handle(report(2, 0), kStart);
  const auto sent = sends(controller.handle(report(1, 3), kStart + std::chrono::seconds(1)));
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].to, NodeId(1));
  EXPECT_EQ(std::get<MigrateRequests>(sent[0].message).model, ModelId(1));
}

TEST(Controller, OneThatDoesNotLeadListensAndKnowsAllWhenItsTurnComes) {
  Controller controller({});
  controller.handle(ClusterChanged{two_nodes()}, kStart);
  EXPECT_TRUE(controller.handle(report(2, 0), kStart).empty());
  EXPECT_TRUE(controller.handle(report(1, 3), kStart).empty());
  controller.handle(LeadershipChanged{true}, kStart);
  EXPECT_EQ(sends(controller.handle(report(1, 3), kStart + std::chrono::seconds(1))).size(), 1u);
  controller.handle(LeadershipChanged{false}, kStart);
  EXPECT_TRUE(controller.handle(report(1, 3), kStart + std::chrono::seconds(9)).empty());
}

TEST(Controller, WhoIsLostOrOfALifeBeforeHelpsNobody) {
  Controller controller({});
  controller.handle(ClusterChanged{two_nodes(2)}, kStart);
  controller.handle(LeadershipChanged{true}, kStart);
  controller.handle(report(2, 0, /*life=*/1), kStart);
  EXPECT_TRUE(controller.handle(report(1, 3, 2), kStart + std::chrono::seconds(1)).empty());
  controller.handle(report(2, 0, 2), kStart + std::chrono::seconds(1));
  controller.handle(PeerLost{NodeId(2)}, kStart + std::chrono::seconds(1));
  EXPECT_TRUE(controller.handle(report(1, 3, 2), kStart + std::chrono::seconds(3)).empty());
}

}  // namespace
}  // namespace shoal
