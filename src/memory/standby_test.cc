#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "base/rng.h"
#include "memory/residency.h"

namespace shoal {
namespace {

constexpr ModelId kA{1}, kB{2}, kC{3};
using Runs = std::vector<PageRun>;
using Spans = std::vector<PageSpan>;

Runs run(uint32_t first, uint32_t count) { return {{PageId(first), count}}; }
Spans all(uint32_t count) { return {{0, count}}; }

TEST(Standby, PagesThatNobodyTookComeBackAsTheyWere) {
  PagePool pool(10);
  const Runs mine = *pool.allocate(4);
  pool.stand_by(kA, mine, all(4));
  EXPECT_EQ(pool.free(), 10u);
  const auto back = *pool.take_back(kA, 4);
  EXPECT_EQ(back.pages, mine);
  EXPECT_EQ(back.whole, all(4));
  EXPECT_EQ(pool.free(), 6u);
  pool.check();
}

TEST(Standby, WhatHoldsNothingIsTakenFirstThenFromTheEndOfWhatStandsBy) {
  PagePool pool(10);
  const Runs a = *pool.allocate(6);
  pool.stand_by(kA, a, all(6));
  EXPECT_EQ(*pool.allocate(4), run(6, 4));
  EXPECT_EQ(pool.standing_by(kA), 6u);
  EXPECT_EQ(*pool.allocate(2), run(4, 2));
  EXPECT_EQ(pool.standing_by(kA), 4u);
  EXPECT_EQ(pool.free(), 4u);
  pool.check();
}

TEST(Standby, OnlyWhatWasTakenHasToBeBroughtAgainAndTheRestKeepsItsPlace) {
  PagePool pool(10);
  pool.stand_by(kA, *pool.allocate(6), all(6));
  const Runs b = *pool.allocate(6);  // 4 that held nothing, and the last 2 of A
  EXPECT_EQ(pool.standing_by(kA), 4u);
  pool.release(b);
  const auto back = *pool.take_back(kA, 6);
  EXPECT_EQ(back.whole, all(4));
  EXPECT_EQ(back.pages, run(0, 6));
  pool.check();
}

// A, B and C, 4 pages each.
void three_stand_by(PagePool& pool) {
  const Runs a = *pool.allocate(4), b = *pool.allocate(4), c = *pool.allocate(4);
  pool.stand_by(kA, a, all(4));
  pool.stand_by(kB, b, all(4));
  pool.stand_by(kC, c, all(4));
}

TEST(Standby, ModelsStayWholeWhileOthersGo) {
  PagePool pool(12);
  three_stand_by(pool);
  (void)pool.allocate(5);  // those left longest ago
  EXPECT_EQ(pool.standing_by(kA), 0u);
  EXPECT_EQ(pool.standing_by(kB), 3u);
  EXPECT_EQ(pool.standing_by(kC), 4u);
  pool.check();
}

TEST(Standby, WhoIsAwaitedGoesLastAndOfThoseWhoseTurnIsFurthestFirst) {
  PagePool pool(12);
  three_stand_by(pool);
  pool.set_awaited(kA, true);
  pool.set_awaited(kC, true);
  (void)pool.allocate(6);  // B, whom nobody waits for; then C, which was there last
  EXPECT_EQ(pool.standing_by(kA), 4u);
  EXPECT_EQ(pool.standing_by(kB), 0u);
  EXPECT_EQ(pool.standing_by(kC), 2u);
}

TEST(Standby, LittleIsNotWorthAMapping) {
  PagePool pool(100);
  pool.stand_by(kA, *pool.allocate(64), all(64));
  pool.release(*pool.allocate(97));  // 3 are left
  EXPECT_EQ(pool.standing_by(kA), 3u);
  const auto back = *pool.take_back(kA, 64);
  EXPECT_TRUE(back.whole.empty());
  EXPECT_EQ(back.pages.size(), 1u);
  pool.check();
}

TEST(Standby, SparePagesHoldNothingButWhatStandsBy) {
  PagePool pool(8, 8);
  EXPECT_EQ(pool.free(), 8u);
  pool.stand_by(kA, *pool.allocate(8), all(8));
  const Runs b = *pool.allocate(8);
  EXPECT_FALSE(pool.allocate(1).has_value());
  EXPECT_EQ(pool.standing_by(kA), 8u);
  pool.stand_by(kB, b, all(8));
  EXPECT_EQ(pool.take_back(kA, 8)->whole, all(8));  // A, B, A: nothing to copy
  pool.check();
}

TEST(Standby, SparePagesGoBackWhenTheyAreWantedElsewhere) {
  PagePool pool(8, 8);
  pool.stand_by(kA, *pool.allocate(8), all(8));
  (void)pool.allocate(8);
  const Runs gone = pool.set_spare(3);
  EXPECT_EQ(page_count(gone), 5u);
  EXPECT_EQ(pool.standing_by(kA), 3u);
  pool.check();
  EXPECT_TRUE(pool.set_spare(8).empty());
  EXPECT_EQ(pool.standing_by(kA), 3u);
  pool.check();
}

TEST(Standby, ALoadThatIsCalledOffLeavesWhatItFound) {
  PagePool pages(10);
  Residency residency(pages);
  residency.add_model(kA, 6);
  (void)residency.begin_load(kA);
  residency.finish_load(kA, Residency::LoadEnd::kCalledOff, TimePoint{});
  EXPECT_EQ(residency.pages_missing(kA), 6u);  // of what it brought nothing is believed
  (void)residency.begin_load(kA);
  residency.finish_load(kA, Residency::LoadEnd::kDone, TimePoint{});
  EXPECT_EQ(residency.pages_missing(kA), 0u);
  residency.drop(kA);
  pages.release(*pages.allocate(6));
  EXPECT_EQ(residency.pages_missing(kA), 2u);
  EXPECT_EQ(residency.begin_load(kA)->whole, all(4));
  residency.finish_load(kA, Residency::LoadEnd::kCalledOff, TimePoint{});
  EXPECT_EQ(residency.pages_missing(kA), 2u);
  residency.check();
}

TEST(Standby, WhatALoadBroughtThatWasCalledOffStandsBy) {
  PagePool pages(10);
  Residency residency(pages);
  residency.add_model(kA, 6);
  residency.add_model(kB, 6);
  (void)residency.begin_load(kA);
  residency.set_whole(kA, {{1, 2}, {4, 1}});
  residency.finish_load(kA, Residency::LoadEnd::kCalledOff, TimePoint{});
  EXPECT_EQ(residency.pages_missing(kA), 3u);
  EXPECT_EQ(residency.pages_missing(kB), 6u);
  EXPECT_TRUE(residency.begin_load(kB)->whole.empty());
  residency.finish_load(kB, Residency::LoadEnd::kFailed, TimePoint{});
  EXPECT_EQ(residency.begin_load(kA)->whole, (std::vector<PageSpan>{{1, 2}, {4, 1}}));
  residency.finish_load(kA, Residency::LoadEnd::kDone, TimePoint{});
  residency.drop(kA);
  EXPECT_EQ(residency.pages_missing(kA), 0u);
  residency.check();
  pages.check();
}

TEST(Standby, OfALoadThatFailedAndOfAModelThatIsGoneNothingStandsBy) {
  PagePool pages(10);
  Residency residency(pages);
  residency.add_model(kA, 6);
  const auto load = [&](Residency::LoadEnd end) {
    const auto memory = residency.begin_load(kA);
    residency.finish_load(kA, end, TimePoint{});
    return memory->whole;
  };
  load(Residency::LoadEnd::kDone);
  residency.drop(kA);
  EXPECT_EQ(load(Residency::LoadEnd::kFailed), all(6));
  EXPECT_EQ(pages.standing_by(kA), 0u);
  load(Residency::LoadEnd::kDone);
  residency.set_whole(kA, {});
  residency.drop(kA);
  EXPECT_EQ(pages.standing_by(kA), 0u);
  load(Residency::LoadEnd::kDone);
  residency.drop(kA);
  residency.remove_model(kA);
  EXPECT_EQ(pages.standing_by(kA), 0u);
  residency.add_model(kA, 6);
  EXPECT_TRUE(load(Residency::LoadEnd::kDone).empty());
}

// A memory whose pages remember what was written to them last: what is said to be whole is.
class Remembering {
 public:
  explicit Remembering(uint64_t seed) : rng_(seed), pages_(1 + static_cast<uint32_t>(rng_.below(60))), spare_(static_cast<uint32_t>(rng_.below(40))), pool_(pages_, spare_) {
    for (uint32_t i = 0; i < 5; ++i) sizes_.push_back(1 + static_cast<uint32_t>(rng_.below(pages_)));
  }

  void step() {
    const ModelId model(static_cast<uint32_t>(rng_.below(sizes_.size())));
    const uint64_t what = rng_.below(10);
    if (what < 4) load_or_drop(model);
    else if (what < 7) take_or_give();
    else if (what == 7) pool_.set_awaited(model, rng_.chance(0.5));
    else if (what == 8 && rng_.chance(0.2)) pool_.forget(model);
    else spare(static_cast<uint32_t>(rng_.below(spare_ + 1)));
    pool_.check();
  }

 private:
  using Written = std::pair<ModelId, uint32_t>;
  static void each(const Runs& runs, const std::function<void(uint32_t page, uint32_t at)>& visit) {
    uint32_t at = 0;
    for (const PageRun& r : runs) {
      for (uint32_t i = 0; i < r.count; ++i) visit(r.first.value + i, at++);
    }
  }

  void load_or_drop(ModelId model) {
    if (const auto found = loaded_.find(model); found != loaded_.end()) {
      pool_.stand_by(model, found->second, all(sizes_[model.value]));
      loaded_.erase(found);
      return;
    }
    const auto memory = pool_.take_back(model, sizes_[model.value]);
    if (!memory) {
      EXPECT_GT(sizes_[model.value], pool_.free());
      return;
    }
    ASSERT_EQ(page_count(memory->pages), sizes_[model.value]);
    for (const PageSpan& span : memory->whole) {
      each(memory->pages, [&](uint32_t page, uint32_t at) {
        if (at >= span.first && at < span.first + span.count) ASSERT_EQ(written_[page], Written(model, at));
      });
    }
    each(memory->pages, [&](uint32_t page, uint32_t at) { written_[page] = {model, at}; });
    loaded_[model] = memory->pages;
  }

  void take_or_give() {
    if (!slabs_.empty() && rng_.chance(0.5)) {
      pool_.release(slabs_.back());
      slabs_.pop_back();
    } else if (const auto slab = pool_.allocate(1 + static_cast<uint32_t>(rng_.below(4)))) {
      each(*slab, [&](uint32_t page, uint32_t) { written_[page].reset(); });
      slabs_.push_back(*slab);
    }
  }

  void spare(uint32_t count) {
    each(pool_.set_spare(count), [&](uint32_t page, uint32_t) { written_[page].reset(); });
  }

  Rng rng_;
  const uint32_t pages_, spare_;
  PagePool pool_;
  std::vector<uint32_t> sizes_;
  std::map<ModelId, Runs> loaded_;
  std::vector<Runs> slabs_;
  std::map<uint32_t, std::optional<Written>> written_;
};

TEST(Standby, WhatIsSaidToBeWholeIsUnderRandomOperations) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Remembering memory(seed);
    for (int step = 0; step < 500; ++step) memory.step();
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace shoal
