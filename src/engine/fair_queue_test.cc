#include "engine/fair_queue.h"

#include <gtest/gtest.h>

#include <deque>

#include "engine/test_harness.h"

namespace shoal {
namespace {

constexpr double kAnswer = 100;

// Sequences with numbers, whose order is that in which they came.
class Waiting {
 public:
  Sequence& add(Payer payer, uint32_t prompt = 10, uint32_t max_tokens = 100, int32_t priority = 0) {
    Request request;
    request.id = RequestId(all_.size());
    request.payer = payer;
    request.prompt.assign(prompt, 1);
    request.max_tokens = max_tokens;
    request.priority = priority;
    Sequence& s = all_.emplace_back();
    s.order = all_.size();
    s.request = std::make_shared<const Request>(request);
    queue.add(s);
    queue.check();
    return s;
  }
  // The payers of the next ones, which begin.
  std::vector<uint32_t> begin(size_t count) {
    std::vector<uint32_t> payers;
    while (payers.size() < count && queue.size() > 0) {
      Sequence& s = *queue.first(1, kAnswer).at(0);
      payers.push_back(s.request->payer.number);
      EXPECT_TRUE(queue.remove(s));
      queue.begun(s, kAnswer);
      s.admitted_before = true;
      queue.check();
    }
    return payers;
  }
  FairQueue queue;

 private:
  std::deque<Sequence> all_;
};

using Payers = std::vector<uint32_t>;

TEST(FairQueue, OfOnePayerTheFirstToComeIsNextAndPriorityGoesBefore) {
  Waiting w;
  w.add({1}), w.add({1}), w.add({1}, 10, 100, 5);
  std::vector<uint64_t> ids;
  for (const Sequence* s : w.queue.first(9, kAnswer)) ids.push_back(s->request->id.sequence);
  EXPECT_EQ(ids, (std::vector<uint64_t>{2, 0, 1}));
}

TEST(FairQueue, WhoeverWaitsGetsAnEqualShareHoweverMuchAnotherAsksFor) {
  Waiting w;
  for (int i = 0; i < 100; ++i) w.add({7});
  for (int i = 0; i < 3; ++i) w.add({8});
  EXPECT_EQ(w.begin(7), (Payers{7, 8, 7, 8, 7, 8, 7}));
}

TEST(FairQueue, AShareIsOfWhatIsComputedAndNotOfRequests) {
  Waiting w;
  for (int i = 0; i < 9; ++i) w.add({1}, 1000, 100);
  for (int i = 0; i < 30; ++i) w.add({2}, 10, 50);  // a tenth of the work each
  const Payers first = w.begin(25);
  EXPECT_EQ(std::count(first.begin(), first.end(), 1u), 3);
}

TEST(FairQueue, AWeightIsHowManySharesAPayerHas) {
  Waiting w;
  for (int i = 0; i < 40; ++i) w.add({1, 3}), w.add({2});
  const Payers next = w.begin(40);
  EXPECT_EQ(std::count(next.begin(), next.end(), 1u), 30);
  EXPECT_EQ(w.queue.ahead_of({2}), 30u + 10u) << "all that are left of the first come before the last of the second";
  EXPECT_EQ(w.queue.ahead_of({1, 3}), 10u + 4u);
  EXPECT_EQ(w.queue.ahead_of({3, 10}), 2u) << "of each one, at most";
}

TEST(FairQueue, AWeightThatIsChangedHoldsFromThenOn) {
  Waiting w;
  for (int i = 0; i < 40; ++i) w.add({1, 3}), w.add({2});
  w.begin(8);
  w.add({1, 1});
  const Payers next = w.begin(20);
  EXPECT_NEAR(std::count(next.begin(), next.end(), 1u), 10, 1);
}

TEST(FairQueue, PriorityIsAmongThoseOfOnePayer) {
  Waiting w;
  w.add({1});
  for (int i = 0; i < 3; ++i) w.add({2}, 10, 100, 1000);
  EXPECT_EQ(w.begin(4), (Payers{1, 2, 2, 2}));
}

TEST(FairQueue, NobodySavesUpWhileHeAsksForNothing) {
  Waiting w;
  for (int i = 0; i < 50; ++i) w.add({1});
  w.begin(40);
  for (int i = 0; i < 10; ++i) w.add({2});
  const Payers next = w.begin(10);
  EXPECT_EQ(std::count(next.begin(), next.end(), 2u), 5) << "as many as the other, from now on";
}

TEST(FairQueue, WhatHadBegunBeforeGoesOnFirstAndIsChargedOnce) {
  Waiting w;
  Sequence& preempted = w.add({1});
  w.begin(1);
  w.add({2});
  w.queue.add(preempted);
  EXPECT_EQ(w.begin(2), (Payers{1, 2}));
  w.add({1}), w.add({2});
  EXPECT_EQ(w.begin(2), (Payers{1, 2})) << "both were charged one";
}

TEST(FairQueue, WhoHasAChanceInPartIsBehindThoseOfHisPriorityWhoHaveAWholeOne) {
  Waiting w;
  for (int i = 0; i < 6; ++i) w.add({1});
  w.add({1}, 10, 100, 1), w.add({2});
  std::vector<Chance> has(8, Chance::kWhole);
  has[0] = Chance::kNone, has[1] = has[2] = has[6] = has[7] = Chance::kPart;
  const auto chance = [&](const Sequence& s) { return has[s.request->id.sequence]; };
  const auto next = [&] {
    std::vector<uint64_t> ids;
    for (const Sequence* s : w.queue.first(9, kAnswer)) ids.push_back(s->request->id.sequence);
    return ids;
  };
  const std::vector<Sequence*> gone = w.queue.sort_out(64, chance);
  w.queue.check();
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone.front()->request->id.sequence, 0u);
  EXPECT_EQ(next(), (std::vector<uint64_t>{6, 7, 3, 4, 5, 1, 2})) << "priority first, and the other payer has his share";
  has[1] = Chance::kNone;
  EXPECT_EQ(w.queue.sort_out(64, chance).size(), 1u) << "also of those that were put behind";
  EXPECT_EQ(w.queue.size(), 6u);
  w.queue.restore_order();
  w.queue.check();
  EXPECT_EQ(next(), (std::vector<uint64_t>{6, 7, 2, 3, 4, 5}));
  has[7] = Chance::kWhole, has[2] = Chance::kPart;
  EXPECT_EQ(w.queue.sort_out(64, chance).size(), 0u);
  EXPECT_EQ(next(), (std::vector<uint64_t>{6, 7, 3, 4, 5, 2})) << "and is put behind again";
  Sequence& behind = *w.queue.first(9, kAnswer).back();
  EXPECT_TRUE(w.queue.remove(behind));
  EXPECT_FALSE(w.queue.remove(behind));
  w.queue.check();
}

TEST(FairQueue, AShortAnswerInFrontHidesNoLongOneThatHasNoWholeChance) {
  Waiting w;
  for (const uint32_t tokens : {4, 100, 4, 100, 100}) w.add({1}, 10, tokens);
  const auto chance = [](const Sequence& s) {  // of the long ones only the last has time enough
    if (s.request->max_tokens == 4 || s.request->id.sequence == 4) return Chance::kWhole;
    return s.request->id.sequence == 1 ? Chance::kPart : Chance::kNone;
  };
  EXPECT_EQ(w.queue.sort_out(64, chance).size(), 1u);
  std::vector<uint64_t> ids;
  for (const Sequence* s : w.queue.first(9, kAnswer)) ids.push_back(s->request->id.sequence);
  EXPECT_EQ(ids, (std::vector<uint64_t>{0, 2, 4, 1}));
  w.queue.check();
}

TEST(FairQueue, HowManyAreLookedAtDependsOnNeitherTheQueueNorItsPayers) {
  for (const uint32_t payers : {1u, 10u, 100u}) {
    Waiting w;
    for (uint32_t i = 0; i < 1000; ++i) w.add({i % payers + 1});
    size_t looks = 0;
    EXPECT_TRUE(w.queue.sort_out(64, [&](const Sequence&) { return ++looks, Chance::kWhole; }).empty());
    EXPECT_EQ(looks, payers * std::max(1u, 64 / payers));
  }
}

TEST(FairQueue, WhoWaitsForNothingTakesNoShareOfTheLooks) {
  Waiting w;
  for (uint32_t i = 0; i < 100; ++i) w.add({1});
  for (const uint32_t payer : {2u, 3u, 4u}) {  // more served than the first one, and nothing waits
    Sequence& s = w.add({payer});
    EXPECT_TRUE(w.queue.remove(s));
    w.queue.begun(s, kAnswer);
  }
  w.queue.check();
  size_t looks = 0;
  EXPECT_TRUE(w.queue.sort_out(64, [&](const Sequence&) { return ++looks, Chance::kWhole; }).empty());
  EXPECT_EQ(looks, 64u);
}

TEST(FairQueue, TheKindsOfThoseThatWaitStandForAllOfThem) {
  Waiting w;
  for (const size_t most : {1u, 4u, 7u, 64u}) {
    size_t seen = 0, all = 0;
    w.queue.for_each_kind(most, [&](const Sequence&, size_t alike) { ++seen, all += alike; });
    EXPECT_EQ(all, w.queue.size());
    EXPECT_LE(seen, most);
    EXPECT_GE(seen, std::min<size_t>(w.queue.size(), (most + 1) / 2));
    for (int i = 0; i < 5; ++i) w.add({1}), w.add({2});
  }
}

TEST(FairQueue, HowManyGoBeforeOneMoreIsKnown) {
  Waiting w;
  for (int i = 0; i < 100; ++i) w.add({1});
  for (int i = 0; i < 2; ++i) w.add({2});
  EXPECT_EQ(w.queue.ahead_of({1}), 102u);
  EXPECT_EQ(w.queue.ahead_of({2}), 5u);
  EXPECT_EQ(w.queue.ahead_of({3}), 2u);
}

TEST(FairQueue, AnEngineAdmitsFairlyAndKeepsPlacesOfItsQueueForOthers) {
  EngineConfig config{.limits = {.sequences_max = 2}, .waiting_max = 16};
  Harness h(64, config);
  uint64_t id = 0, refused = 0;
  const auto of = [](uint32_t payer) { return [payer](Request& r) { r.payer = {payer}; }; };
  while (refused == 0) refused += !h.submit(++id, 5, 3, of(1)).ok();
  EXPECT_EQ(id, 9u) << "half of the queue, and not more";
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(h.submit(++id, 5, 3, of(2)).ok());
  h.step();
  std::set<uint32_t> payers;
  for (const StepSlice& slice : h.last().slices) payers.insert(slice.params->payer.number);
  EXPECT_EQ(payers, (std::set<uint32_t>{1, 2}));
  h.run();
  for (uint64_t i = 1; i <= id; ++i) EXPECT_EQ(h.end(i).has_value(), i != 9) << i;
}

}  // namespace
}  // namespace shoal
