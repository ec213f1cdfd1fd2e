#include "policy/prefill_groups.h"

#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"

namespace shoal {
namespace {

using std::chrono::seconds;

constexpr TimePoint kStart{};

PrefillJob job(uint64_t id, uint32_t model, TimePoint deadline = kStart + seconds(10), double cost = 0.5) {
  return {RequestId(id), ModelId(model), cost, deadline};
}

double one_second(ModelId) { return 1.0; }

// Computes everything; the models in the order of their turns at the device.
std::vector<uint32_t> drain(PrefillQueue& queue) {
  std::vector<uint32_t> order;
  while (const auto next = queue.next()) {
    order.push_back(next->model.value);
    EXPECT_TRUE(queue.remove(next->request));
    queue.check();
  }
  return order;
}

TEST(PrefillQueue, RequestsOfOneModelShareASwitch) {
  PrefillQueue queue({});
  for (uint64_t i = 0; i < 6; ++i) queue.add(job(i, i % 2), one_second, kStart);
  EXPECT_EQ(drain(queue), (std::vector<uint32_t>{0, 0, 0, 1, 1, 1}));
}

TEST(PrefillQueue, AGroupTakesEightInItsLife) {
  PrefillQueue queue({});
  queue.add(job(100, 1), one_second, kStart);
  queue.add(job(200, 2), one_second, kStart);
  // A hot model whose requests come as fast as they are served does not keep the other one waiting for ever.
  uint32_t served = 0;
  for (uint64_t id = 0; queue.next()->model == ModelId(1); ++id) {
    ASSERT_LT(id, 20u);
    queue.add(job(id, 1), one_second, kStart);
    queue.remove(queue.next()->request);
    ++served;
  }
  EXPECT_EQ(served, 8u);
}

TEST(PrefillQueue, NobodyJoinsWhenAnotherGroupWouldBeLate) {
  PrefillQueue queue({});
  queue.add(job(1, 1, kStart + seconds(20)), one_second, kStart);
  queue.add(job(2, 2, kStart + seconds(10)), one_second, kStart);
  const TimePoint late = kStart + std::chrono::milliseconds(8600);  // its switch and prompt take 1.5 s
  EXPECT_TRUE(queue.joins(job(3, 1), one_second, kStart));
  EXPECT_FALSE(queue.joins(job(3, 1), one_second, late));
  EXPECT_TRUE(queue.joins(job(3, 2), one_second, late));  // its own group: no switch is saved by waiting
  queue.add(job(3, 1), one_second, late);
  EXPECT_EQ(drain(queue), (std::vector<uint32_t>{1, 2, 1}));
  PrefillQueue unguarded({8, false});
  unguarded.add(job(1, 1), one_second, kStart);
  unguarded.add(job(2, 2), one_second, kStart);
  EXPECT_TRUE(unguarded.joins(job(3, 1), one_second, late));
}

TEST(PrefillQueue, LoadIsTheTimeToDrain) {
  PrefillQueue queue({2, false});
  queue.add(job(1, 1), one_second, kStart);
  queue.add(job(2, 2), one_second, kStart);
  queue.add(job(3, 2), one_second, kStart);
  queue.add(job(4, 2), one_second, kStart);  // a second group of model 2: no switch between them
  EXPECT_DOUBLE_EQ(queue.load_seconds(ModelId(1), 0.25, one_second), 0.25 + 4 * 0.5 + 1);
  EXPECT_DOUBLE_EQ(queue.load_seconds(std::nullopt, 0, one_second), 4 * 0.5 + 2);
  EXPECT_DOUBLE_EQ(queue.seconds_of(ModelId(2)), 1.5);
  EXPECT_DOUBLE_EQ(queue.load_seconds(ModelId(1), 0, [](ModelId m) { return m == ModelId(2) ? 0.0 : 1.0; }), 2);
}

TEST(PrefillQueue, SuggestsTheNextModelToLoad) {
  PrefillQueue queue({1, false});
  EXPECT_EQ(queue.prefetch(), std::nullopt);
  for (uint64_t i = 0; i < 3; ++i) queue.add(job(i, 1), one_second, kStart);
  EXPECT_EQ(queue.prefetch(), std::nullopt);
  queue.add(job(5, 4), one_second, kStart);
  EXPECT_EQ(queue.prefetch(), ModelId(4));
}

TEST(PrefillQueue, ReadyAreThoseBeforeAnotherModelsGroup) {
  PrefillQueue queue({2, false});
  for (uint64_t i = 0; i < 3; ++i) queue.add(job(i, 1), one_second, kStart);  // two groups
  queue.add(job(3, 2), one_second, kStart);
  queue.add(job(4, 1), one_second, kStart);
  EXPECT_EQ(queue.ready(ModelId(1)), 4u);
  queue.add(job(5, 1), one_second, kStart);
  EXPECT_EQ(queue.ready(ModelId(1)), 4u);  // the fifth stands behind model 2
  EXPECT_EQ(queue.ready(ModelId(2)), 1u);
  EXPECT_EQ(queue.ready(ModelId(3)), 0u);
}

TEST(PrefillQueue, EveryJobIsServedOnceAndNoModelStarves) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    PrefillQueue queue({});
    std::map<uint64_t, size_t> position;  // of a job: how many were served before it
    size_t served = 0, added = 0;
    while (added < 200 || !queue.empty()) {
      if (added < 200 && (queue.empty() || rng.chance(0.6))) {
        queue.add(job(added, static_cast<uint32_t>(rng.below(5))), one_second, kStart);
        position[added++] = served;
      } else {
        const uint64_t id = queue.next()->request.sequence;
        EXPECT_LE(served - position[id], 200u);
        EXPECT_EQ(position.erase(id), 1u);
        queue.remove(RequestId(id));
        ++served;
      }
      queue.check();
    }
    EXPECT_EQ(served, 200u);
  }
}

}  // namespace
}  // namespace shoal
