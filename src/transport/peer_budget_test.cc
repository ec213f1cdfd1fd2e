#include "transport/peer_budget.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

using Answer = PeerBudget::Answer;

constexpr NodeId kOne{1}, kOther{2};

TEST(PeerBudget, WhatIsBeyondTheBoundIsRefusedUntilTheRoleHasHeard) {
  PeerBudget budget(/*messages_max=*/2, /*bytes_max=*/1000);
  EXPECT_EQ(budget.take(kOne, 1), Answer::kTaken);
  EXPECT_EQ(budget.take(kOne, 1), Answer::kTaken);
  EXPECT_EQ(budget.take(kOne, 1), Answer::kLost);
  EXPECT_EQ(budget.take(kOther, 1), Answer::kTaken) << "nobody takes the room of another";
  budget.give(kOne, 1);
  budget.give(kOne, 1);
  EXPECT_EQ(budget.take(kOne, 1), Answer::kRefused) << "there is room, but what comes after a lost message means nothing";
  budget.heard(kOne);
  EXPECT_EQ(budget.take(kOne, 1), Answer::kTaken);
}

TEST(PeerBudget, BytesCountAndOneMessageAlwaysFits) {
  PeerBudget budget(100, 1000);
  EXPECT_EQ(budget.take(kOne, 5000), Answer::kTaken);
  EXPECT_EQ(budget.take(kOne, 1), Answer::kLost);
  budget.heard(kOne);
  EXPECT_EQ(budget.take(kOne, 1), Answer::kLost) << "it still waits";
  budget.give(kOne, 5000);
  budget.heard(kOne);
  EXPECT_EQ(budget.take(kOne, 600), Answer::kTaken);
  EXPECT_EQ(budget.take(kOne, 400), Answer::kTaken);
  EXPECT_EQ(budget.take(kOne, 1), Answer::kLost);
}

}  // namespace
}  // namespace shoal
