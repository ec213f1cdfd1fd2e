#include "membership/membership.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace shoal {
namespace {

Member node(uint32_t id, uint32_t epoch) { return {NodeId(id), Role::kNode, epoch, {ModelId(1)}, false}; }

TEST(Reduce, AnEventAppliedTwiceEqualsOnce) {
  for (const MemberEvent& event : std::vector<MemberEvent>{MemberJoined{node(1, 1)}, MemberDraining{NodeId(1), 1}, MemberLeft{NodeId(1), 1}}) {
    const ClusterState start = reduce({}, MemberJoined{node(1, 1)});
    const ClusterState once = reduce(start, event);
    EXPECT_EQ(reduce(once, event), once);
  }
}

TEST(Reduce, AnOlderLifeChangesNothing) {
  const ClusterState state = reduce({}, MemberJoined{node(1, 5)});
  EXPECT_EQ(reduce(state, MemberJoined{node(1, 4)}), state);
  EXPECT_EQ(reduce(state, MemberLeft{NodeId(1), 4}), state);
  EXPECT_EQ(reduce(state, MemberDraining{NodeId(1), 4}), state);
}

TEST(Reduce, ADrainIsFinalForItsLifeButNotForTheNext) {
  ClusterState state = reduce(reduce({}, MemberJoined{node(1, 1)}), MemberDraining{NodeId(1), 1});
  EXPECT_TRUE(reduce(state, MemberJoined{node(1, 1)}).members.at(NodeId(1)).draining);
  EXPECT_FALSE(reduce(state, MemberJoined{node(1, 2)}).members.at(NodeId(1)).draining);
}

TEST(Reduce, TheVersionRisesExactlyWhenSomethingChanges) {
  Rng rng(4);
  ClusterState state;
  for (int i = 0; i < 2000; ++i) {
    const auto id = static_cast<uint32_t>(rng.below(4));
    const auto epoch = static_cast<uint32_t>(rng.below(5));
    const uint64_t kind = rng.below(3);
    const MemberEvent event = kind == 0   ? MemberEvent(MemberJoined{node(id, epoch)})
                              : kind == 1 ? MemberEvent(MemberLeft{NodeId(id), epoch})
                                          : MemberEvent(MemberDraining{NodeId(id), epoch});
    const ClusterState next = reduce(state, event);
    EXPECT_EQ(next.version, state.version + (next.members != state.members));
    state = next;
  }
}

TEST(InMemoryMembership, WhatAMemberServesChangesWithinItsLife) {
  InMemoryMembership membership;
  ClusterState seen;
  membership.watch([&](const ClusterState& state) { seen = state; });
  const uint32_t epoch = *membership.join(node(1, 0));
  ASSERT_TRUE(membership.serve(NodeId(1), epoch, {ModelId(5), ModelId(6)}).ok());
  EXPECT_EQ(seen.members.at(NodeId(1)).models, (std::vector<ModelId>{ModelId(5), ModelId(6)}));
  EXPECT_EQ(seen.members.at(NodeId(1)).epoch, epoch);
  EXPECT_FALSE(membership.serve(NodeId(1), epoch + 1, {}).ok());
  EXPECT_FALSE(membership.serve(NodeId(2), 1, {}).ok());
}

TEST(InMemoryMembership, EachLifeHasAHigherEpochAndWatchersSeeEveryChange) {
  InMemoryMembership membership;
  std::vector<uint64_t> versions;
  membership.watch([&](const ClusterState& state) { versions.push_back(state.version); });
  const uint32_t first = *membership.join(node(1, 0));
  const uint32_t second = *membership.join(node(1, 0));
  EXPECT_GT(second, first);
  ASSERT_TRUE(membership.leave(NodeId(1), first).ok());  // of the life before: no effect
  ASSERT_TRUE(membership.drain(NodeId(1), second).ok());
  ASSERT_TRUE(membership.leave(NodeId(1), second).ok());
  EXPECT_EQ(versions, (std::vector<uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_FALSE(membership.drain(NodeId(1), second).ok());
}

}  // namespace
}  // namespace shoal
