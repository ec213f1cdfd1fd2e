#include "memory/weight_tier.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/rng.h"

namespace shoal {
namespace {

std::vector<uint32_t> evicted(const std::optional<WeightTier::Place>& place) {
  std::vector<uint32_t> out;
  for (const ModelId model : place.value().evicted) out.push_back(model.value);
  return out;
}

TEST(WeightTier, AmongModelsReadAtOneSpeedTheLeastRecentlyUsedGoes) {
  WeightTier tier(10);
  EXPECT_EQ(evicted(tier.add(ModelId(1), 4, 4)), std::vector<uint32_t>{});
  EXPECT_EQ(evicted(tier.add(ModelId(2), 4, 4)), std::vector<uint32_t>{});
  tier.use(ModelId(1));
  EXPECT_EQ(evicted(tier.add(ModelId(3), 4, 4)), std::vector<uint32_t>{2});
  EXPECT_EQ(evicted(tier.add(ModelId(4), 8, 8)), (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(tier.pages_free(), 2u);
}

// Worth per page: a slow one 3 s, fast ones 1 s. The level rises by one with each fast one that leaves, so after two of
// them a slow one that nobody has used since ranks as a fast one does, and then it is the oldest.
TEST(WeightTier, WhatIsSlowToReadAgainStaysLongerButNotForEver) {
  WeightTier tier(2);
  tier.add(ModelId(1), 1, 3);  // rank 3
  tier.add(ModelId(2), 1, 1);  // rank 1
  EXPECT_EQ(evicted(tier.add(ModelId(3), 1, 1)), std::vector<uint32_t>{2});  // level 1, rank 2
  EXPECT_EQ(evicted(tier.add(ModelId(4), 1, 1)), std::vector<uint32_t>{3});  // level 2, rank 3
  EXPECT_EQ(evicted(tier.add(ModelId(5), 1, 1)), std::vector<uint32_t>{1});  // level 3: both have rank 3
}

TEST(WeightTier, AModelLargerThanTheTierPushesNobodyOut) {
  WeightTier tier(4);
  tier.add(ModelId(1), 3, 1);
  EXPECT_FALSE(tier.add(ModelId(2), 5, 100).has_value());
  EXPECT_TRUE(tier.contains(ModelId(1)));
  tier.remove(ModelId(1));
  tier.remove(ModelId(7));
  EXPECT_EQ(tier.pages_free(), 4u);
  EXPECT_FALSE(WeightTier(0).add(ModelId(1), 1, 1).has_value());
}

TEST(WeightTier, NoPageIsGivenTwiceWhateverComes) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    WeightTier tier(1 + static_cast<uint32_t>(rng.below(40)));
    std::map<uint32_t, std::vector<PageRun>> kept;
    for (int step = 0; step < 100; ++step) {
      const auto model = static_cast<uint32_t>(rng.below(8));
      if (tier.contains(ModelId(model))) {
        if (rng.chance(0.7)) {
          tier.use(ModelId(model));
        } else {
          tier.remove(ModelId(model));
          kept.erase(model);
        }
      } else if (const auto place = tier.add(ModelId(model), 1 + static_cast<uint32_t>(rng.below(12)), rng.uniform())) {
        for (const ModelId gone : place->evicted) EXPECT_EQ(kept.erase(gone.value), 1u);
        kept[model] = place->pages;
      }
      tier.check();
      std::set<uint32_t> taken;
      for (const auto& [id, runs] : kept) {
        EXPECT_TRUE(tier.contains(ModelId(id)));
        for (const PageRun& run : runs) {
          for (uint32_t i = 0; i < run.count; ++i) EXPECT_TRUE(taken.insert(run.first.value + i).second);
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal
