// The rooms of an engine alone: blocks and prefixes on the device, and sequences that are off it.
#include <gtest/gtest.h>

#include <memory>

#include "engine/device_kv.h"
#include "engine/parking.h"
#include "engine/test_harness.h"

namespace shoal {
namespace {

using Stage = Sequence::Stage;

class Rooms : public testing::Test {
 protected:
  static constexpr uint32_t kBlocks = 8;

  Sequence sequence(uint64_t order, uint32_t length) {
    Request request;
    request.id = RequestId(order);
    request.prompt.assign(length, 7);
    Sequence s;
    s.order = order;
    s.tokens = request.prompt;
    s.request = std::make_shared<const Request>(std::move(request));
    return s;
  }
  // As the engine does it: on the device, all but the last token computed.
  void run(Sequence& s) {
    device_.take_prefix(s);
    device_.grow(s, s.known());
    s.computed = s.known() - 1;
    s.stage = Stage::kRunning;
    device_.publish(s);
  }

  PagePool pages_{2};
  BlockPool blocks_{pages_, kBlockBytes};
  HostTier host_{1};  // half of what the device has
  DeviceKv device_{blocks_, /*share_prefixes=*/true, /*salt_above=*/1000};
  Parking parking_{device_, host_.blocks(kBlockBytes)};
};

TEST_F(Rooms, WhatIsPublishedIsFoundAndFreedByNobodyWhoSharesIt) {
  Sequence first = sequence(1, 50), second = sequence(2, 50);
  run(first);
  EXPECT_EQ(device_.freed_by(first), 4u);
  EXPECT_EQ(device_.find_prefix(second).blocks, 3u);
  EXPECT_TRUE(device_.take_prefix(second));
  EXPECT_EQ(second.computed, 48u);
  EXPECT_EQ(device_.freed_by(first), 1u) << "three are shared";
  device_.release(first);
  EXPECT_EQ(device_.cached(), 0u) << "held by the other one";
  device_.release(second);
  EXPECT_EQ(device_.cached(), 3u);
  EXPECT_EQ(device_.available(), kBlocks);
}

TEST_F(Rooms, PrefixesOfOtherWeightsAreNotFound) {
  Sequence first = sequence(1, 50), second = sequence(2, 50);
  run(first);
  device_.forget_prefixes();
  EXPECT_EQ(device_.find_prefix(second).blocks, 0u);
  device_.release(first);
}

TEST_F(Rooms, GrowthTakesWhatOnlyTheIndexHolds) {
  Sequence first = sequence(1, 120), second = sequence(2, 100);
  second.tokens.assign(100, 8);
  run(first);
  device_.release(first);
  EXPECT_EQ(device_.cached(), 7u);
  device_.grow(second, 100);
  EXPECT_EQ(second.blocks.size(), 7u);
  EXPECT_EQ(device_.available(), 1u);
  device_.release(second);
}

TEST_F(Rooms, BlocksOnTheirWayAreFreeOnNeitherSide) {
  Sequence s = sequence(1, 50);
  run(s);
  device_.forget_prefixes();
  const auto out = parking_.park(s);
  ASSERT_TRUE(out.has_value());
  EXPECT_EQ(s.stage, Stage::kParking);
  EXPECT_EQ(parking_.blocks_leaving(), 4u);
  EXPECT_EQ(parking_.host_blocks_held(), 4u);
  EXPECT_FALSE(parking_.unpark_oldest().has_value()) << "it has not arrived";
  parking_.check();
  EXPECT_EQ(&parking_.finish(out->id, true), &s);
  EXPECT_EQ(s.stage, Stage::kParked);
  device_.drop_cached();
  EXPECT_EQ(pages_.free(), 2u);
  const auto back = parking_.unpark_oldest();
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(s.stage, Stage::kUnparking);
  EXPECT_EQ(parking_.blocks_leaving(), 0u);
  parking_.finish(back->id, true);
  EXPECT_EQ(s.stage, Stage::kRunning);
  EXPECT_EQ(host_.pages_free(), 1u);
  device_.release(s);
}

TEST_F(Rooms, TheOldestComesBackFirstAndOnlyWhereItFits) {
  Sequence older = sequence(1, 30), younger = sequence(2, 30), large = sequence(3, 110);
  for (Sequence* s : {&younger, &older}) {
    run(*s);
    parking_.finish(parking_.park(*s)->id, true);
  }
  run(large);
  EXPECT_FALSE(parking_.unpark_oldest().has_value());
  device_.release(large);
  const auto back = parking_.unpark_oldest();
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->request, RequestId(1));
  parking_.finish(back->id, true);
  device_.release(older);
  parking_.forget(younger);
}

TEST_F(Rooms, KvOfAnotherNodeTakesNothingOfTheTierHere) {
  Sequence s = sequence(1, 50);
  parking_.take(s, {32, {BlockId(77), BlockId(78)}, /*remote=*/true});
  EXPECT_EQ(s.computed, 32u);
  EXPECT_EQ(parking_.host_blocks_held(), 0u);
  const auto move = parking_.unpark_oldest();
  ASSERT_TRUE(move.has_value());
  EXPECT_TRUE(move->remote);
  EXPECT_EQ(move->copies[1].from, BlockId(78));
  parking_.finish(move->id, /*ok=*/false);
  EXPECT_FALSE(s.remote);
  device_.release(s);
}

}  // namespace
}  // namespace shoal
