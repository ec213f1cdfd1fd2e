#include "policy/expert_calls.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/rng.h"

namespace shoal {
namespace {

// 16 experts of layer 3, each on two of four servers.
ExpertPlacement placement() {
  ExpertPlacement out{1, {{3, {}}}};
  for (uint32_t e = 0; e < 16; ++e) out.layers[0].experts.push_back({{NodeId(e % 4), kWholeShare / 2}, {NodeId((e + 1 + e / 4 % 3) % 4), kWholeShare / 2}});
  return out;
}

std::vector<ExpertRow> rows(uint64_t seed, uint32_t tokens) {
  Rng rng(seed);
  std::vector<ExpertRow> out;
  for (uint32_t t = 0; t < tokens; ++t) {
    for (int k = 0; k < 4; ++k) out.push_back({t, static_cast<uint32_t>(rng.below(16))});
  }
  return out;
}

TEST(ExpertCall, EveryRowIsAskedOnceOfOneWhoHoldsItsExpert) {
  const auto where = placement();
  const auto all = rows(1, 64);
  ExpertCall call;
  std::set<uint32_t> asked;
  for (const auto& ask : call.begin({where}, 3, all, 5)) {
    for (const uint32_t row : ask.rows) {
      EXPECT_TRUE(asked.insert(row).second);
      const auto copies = where.of(3, all[row].expert);
      EXPECT_TRUE(copies[0].server == ask.server || copies[1].server == ask.server);
    }
  }
  EXPECT_EQ(asked.size(), all.size());
  EXPECT_FALSE(call.done());
  EXPECT_FALSE(call.deferred());
}

// Answers, losses, late and repeated answers in any order: each row is answered once, by one that holds its expert.
TEST(ExpertCall, WhoeverIsLostEveryRowHasOneAnswerInTheEnd) {
  const auto where = placement();
  uint32_t deferred = 0, done = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Rng rng(seed);
    const auto all = rows(seed, 1 + static_cast<uint32_t>(rng.below(20)));
    ExpertCall call;
    std::vector<ExpertAsk> open = call.begin({where}, 3, all, seed), late;
    std::vector<NodeId> suspected;
    std::map<uint32_t, int> answers;
    while (!call.done() && !call.deferred()) {
      const size_t at = rng.below(open.size());
      const ExpertAsk ask = open[at];
      if (rng.chance(0.2)) {
        suspected.push_back(ask.server);
        for (const auto& again : call.give_up(ask.server, {where, suspected})) open.push_back(again);
        std::erase_if(open, [&](const ExpertAsk& a) {
          if (a.server != ask.server) return false;
          late.push_back(a);
          return true;
        });
        continue;
      }
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
      ASSERT_TRUE(call.answered(ask.server, ask.rows)) << seed;
      for (const uint32_t row : ask.rows) ++answers[row];
      EXPECT_FALSE(call.answered(ask.server, ask.rows));  // twice
      if (!late.empty()) { EXPECT_FALSE(call.answered(late.back().server, late.back().rows)); }
    }
    done += call.done(), deferred += call.deferred();
    EXPECT_EQ(answers.size() + call.missing().size(), all.size());
    for (const auto& [row, count] : answers) EXPECT_EQ(count, 1);
    for (const uint32_t row : call.missing()) {
      for (const auto& copy : where.of(3, all[row].expert)) EXPECT_TRUE(std::find(suspected.begin(), suspected.end(), copy.server) != suspected.end());
    }
  }
  EXPECT_GT(done, 500u);
  EXPECT_GT(deferred, 50u);
}

TEST(ExpertCall, AnswersOfOthersAreKept) {
  const auto where = placement();
  const auto all = rows(1, 32);
  ExpertCall call;
  const auto asks = call.begin({where}, 3, all, 5);
  ASSERT_EQ(asks.size(), 4u);
  EXPECT_TRUE(call.answered(asks[0].server, asks[0].rows));
  size_t again = 0;
  for (const auto& ask : call.give_up(asks[1].server, {where})) {
    EXPECT_NE(ask.server, asks[1].server);
    again += ask.rows.size();
  }
  EXPECT_EQ(again, asks[1].rows.size());
  EXPECT_FALSE(call.awaits(asks[1].server));
}

TEST(ExpertCall, AnExpertThatIsBackIsAskedForTheRowsThatWaited) {
  auto where = placement();
  where.layers[0].experts[2].clear();
  const std::vector<ExpertRow> all{{0, 1}, {0, 2}, {1, 2}};
  ExpertCall call;
  const auto asks = call.begin({where}, 3, all, 5);
  ASSERT_EQ(asks.size(), 1u);
  EXPECT_FALSE(call.deferred());  // an answer is still awaited
  EXPECT_TRUE(call.answered(asks[0].server, asks[0].rows));
  EXPECT_TRUE(call.deferred());
  EXPECT_EQ(call.missing(), (std::vector<uint32_t>{1, 2}));
  where.layers[0].experts[2] = {{NodeId(9), kWholeShare}};
  EXPECT_EQ(call.retry({where}), (std::vector<ExpertAsk>{{NodeId(9), {1, 2}}}));
  EXPECT_TRUE(call.answered(NodeId(9), std::vector<uint32_t>{1, 2}));
  EXPECT_TRUE(call.done());
}

TEST(ExpertCall, RowsOfNoLayerAreMissing) {
  ExpertCall call;
  EXPECT_TRUE(call.begin({placement()}, 4, rows(1, 2), 0).empty());
  EXPECT_TRUE(call.deferred());
  EXPECT_TRUE(call.begin({placement()}, 3, {}, 0).empty());
  EXPECT_TRUE(call.done());
}

// Three servers that hold everything: whoever has less to do already gets less.
TEST(ExpertCall, WorkIsEvenAndTheRowsOfAnExpertStayTogether) {
  ExpertPlacement everywhere{1, {{3, {}}}};
  for (uint32_t e = 0; e < 16; ++e) everywhere.layers[0].experts.push_back({{NodeId(0), 1}, {NodeId(1), 1}, {NodeId(2), kWholeShare - 2}});
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const auto all = rows(seed, 1 + static_cast<uint32_t>(seed % 8));
    std::vector<ExpertServerWork> work{{NodeId(0), 0}, {NodeId(1), 6}, {NodeId(2), 0}};
    ExpertCall call;
    std::map<uint32_t, std::set<uint32_t>> servers_of;
    std::map<uint32_t, uint32_t> rows_of;
    for (const ExpertRow& row : all) ++rows_of[row.expert];
    for (const auto& ask : call.begin({everywhere, {}, work}, 3, all, seed)) {
      EXPECT_TRUE(std::is_sorted(ask.rows.begin(), ask.rows.end()));
      std::set<uint32_t> experts;
      for (const uint32_t row : ask.rows) experts.insert(all[row].expert), servers_of[all[row].expert].insert(ask.server.value);
      work[ask.server.value].work += expert_work(ask.rows.size(), experts.size());
    }
    double most = 0, least = 1e9, heaviest = 0;
    for (const auto& w : work) most = std::max(most, w.work), least = std::min(least, w.work);
    for (const auto& [expert, count] : rows_of) heaviest = std::max(heaviest, expert_work(count, 1));
    EXPECT_LE(most - least, std::max(heaviest, 6.0)) << seed;
    const double part = expert_work(all.size(), rows_of.size()) / 3;
    for (const auto& [expert, at] : servers_of) EXPECT_TRUE(at.size() == 1 || expert_work(rows_of[expert], 1) > part) << seed;
  }
}

TEST(ExpertCall, AnExpertWithMostOfTheRowsIsSplitOverItsCopies) {
  const ExpertPlacement where{1, {{3, {{{NodeId(0), 1}, {NodeId(1), kWholeShare - 1}}}}}};
  const std::vector<ExpertServerWork> work{{NodeId(0), 0}, {NodeId(1), 0}};
  std::vector<ExpertRow> all;
  for (uint32_t t = 0; t < 64; ++t) all.push_back({t, 0});
  ExpertCall call;
  const auto asks = call.begin({where, {}, work}, 3, all, 1);
  ASSERT_EQ(asks.size(), 2u);
  EXPECT_EQ(asks[0].rows.size(), 32u);
  const std::vector<NodeId> suspected{NodeId(1)};
  const auto again = call.give_up(NodeId(1), {where, suspected, work});
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].server, NodeId(0));
  EXPECT_EQ(again[0].rows, asks[1].rows);
}

TEST(ExpertAnswerTimes, ATimeoutIsFiveTimesWhatNearlyAllTakeAndNeverUnderTwoMilliseconds) {
  ExpertAnswerTimes times;
  EXPECT_EQ(times.timeout(), ExpertAnswerTimes::kUnknown);
  for (int i = 0; i < 500; ++i) times.add(std::chrono::microseconds(200));
  EXPECT_EQ(times.timeout(), ExpertAnswerTimes::kLeast);
  for (int i = 0; i < 500; ++i) times.add(std::chrono::microseconds(4000));
  EXPECT_GE(times.timeout(), std::chrono::microseconds(20'000));
  EXPECT_LE(times.timeout(), std::chrono::microseconds(26'000));
  for (int i = 0; i < 20'000; ++i) times.add(std::chrono::microseconds(100));  // what was is forgotten
  EXPECT_EQ(times.timeout(), ExpertAnswerTimes::kLeast);
}

}  // namespace
}  // namespace shoal
