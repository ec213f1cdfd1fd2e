// Experts as services under faults: at every event of a layer, two at once, and by seeds.
#include "sim/expert_world.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

std::string seen(const ExpertWorldOutcome& o) { return o.violations.empty() ? "" : o.violations.front(); }

constexpr uint32_t kPasses = 30;

ExpertWorldSetup small() {
  ExpertWorldSetup s;
  s.clients = 2, s.servers = 3, s.lanes = 2, s.layers = 2, s.experts = 6, s.tokens = 2, s.passes = kPasses;
  s.torn = true;
  return s;
}

TEST(ExpertWorld, WithoutFaultsEveryPassEndsAndNothingIsAskedTwice) {
  const auto o = run_experts(small());
  EXPECT_EQ(seen(o), "");
  EXPECT_EQ(o.passes, 2u * 2 * kPasses);
  EXPECT_EQ(o.rows, 2u * 2 * kPasses * 2 * 2 * 2);
  EXPECT_EQ(o.resent_rows + o.deferred + o.given_up + o.late_answers, 0u);
}

TEST(ExpertWorld, TheSameSetupGivesTheSameTrace) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto setup = random_expert_world(seed);
    EXPECT_EQ(run_experts(setup).trace_hash, run_experts(setup).trace_hash) << seed;
  }
}

// After every single event of the first layers, each kind of fault, on each server: whatever is under way then (a request half
// written, a batch computed, an answer half written), every pass ends and every row has its one answer.
TEST(ExpertWorld, AFaultAfterAnyEventOfALayerLosesNothing) {
  using Kind = ExpertFault::Kind;
  uint64_t resent = 0, late = 0;
  const uint64_t whole = run_experts(small()).events, first = whole / 2, last = first + whole / kPasses;  // answers were seen before: a time-out is 2 ms
  for (const Kind kind : {Kind::kKillServer, Kind::kStopServer, Kind::kCutLink, Kind::kLoseWrites, Kind::kKillClient}) {
    for (uint64_t event = first; event < last; ++event) {
      ExpertWorldSetup s = small();
      s.faults = {{.kind = kind, .after_event = event, .server = static_cast<uint32_t>(event % 3), .client = static_cast<uint32_t>(event / 3 % 2), .lasts = std::chrono::milliseconds(5)}};
      const auto o = run_experts(s);
      ASSERT_EQ(seen(o), "") << static_cast<int>(kind) << " after event " << event;
      ASSERT_EQ(o.passes, 2u * 2 * kPasses);
      resent += o.resent_rows, late += o.late_answers;
    }
  }
  EXPECT_GT(resent, 100u);
  EXPECT_GT(late, 10u);
}

TEST(ExpertWorld, TwoServersKilledAtOnceAndTheMonitorWithThem) {
  for (uint64_t event = 200; event < 260; ++event) {
    ExpertWorldSetup s = small();
    s.servers = 4;
    s.faults = {{.kind = ExpertFault::Kind::kKillServer, .after_event = event, .server = 0}, {.kind = ExpertFault::Kind::kKillServer, .after_event = event + event % 5, .server = 1},
                {.kind = ExpertFault::Kind::kKillMonitor, .after_event = event, .lasts = std::chrono::milliseconds(100)}};
    const auto o = run_experts(s);
    ASSERT_EQ(seen(o), "") << event;
    EXPECT_EQ(o.passes, 2u * 2 * kPasses);
  }
}

// Twenty experts with two copies on four servers, one server gone for good: the others take its rows within a moment, and its copies
// are made elsewhere.
TEST(ExpertWorld, ALossIsANotchAndTheMonitorMakesNewCopies) {
  ExpertWorldSetup s;
  s.passes = 1500;
  s.experts = 20;
  s.faults = {{.kind = ExpertFault::Kind::kKillServer, .at = TimePoint(std::chrono::milliseconds(500)), .server = 2, .lasts = Duration::max()}};
  const auto o = run_experts(s);
  EXPECT_EQ(seen(o), "");
  EXPECT_GT(o.resent_rows, 0u);
  EXPECT_EQ(o.deferred, 0u);
  EXPECT_GT(o.copies, 0u);
  EXPECT_EQ(o.versions, 1u);
  EXPECT_LT(o.longest(0.4, 1.5), 0.1);
}

TEST(ExpertWorld, WithoutACopyItsRowsWaitUntilTheExpertIsLoadedElsewhere) {
  ExpertWorldSetup s;
  s.passes = 600;
  s.copies_room = 1.5;
  s.placement.copies_min = 1;
  s.faults = {{.kind = ExpertFault::Kind::kKillServer, .at = TimePoint(std::chrono::milliseconds(200)), .server = 2, .lasts = Duration::max()}};
  const auto o = run_experts(s);
  EXPECT_EQ(seen(o), "");
  EXPECT_GT(o.deferred, 0u);
  EXPECT_GT(o.copies, 0u);
  EXPECT_GT(o.longest(0.2, 2), 0.15);  // the lease, and the load
}

TEST(ExpertWorld, AServerThatJoinsIsGivenWork) {
  ExpertWorldSetup s;
  s.passes = 800;
  s.experts = 32, s.skew = 0.5, s.tokens = 16;
  s.joins = {0.1};
  s.placement.cost = {16e-6, 0.06e-6};
  s.placement.passes = 1e9;
  const auto o = run_experts(s);
  EXPECT_EQ(seen(o), "");
  EXPECT_GE(o.versions, 1u);
  EXPECT_GT(o.copies, 0u);
  EXPECT_EQ(o.resent_rows, 0u);
}

// The published rule is a barrier: while a client is gone and not detached, nobody is served. Ours loses nothing but its part.
TEST(ExpertWorld, AClientThatIsSilentHoldsTheBarrierAndNobodyElse) {
  const auto passes_while_silent = [](BatchRule rule) {
    ExpertWorldSetup s;
    s.passes = 300;
    s.batch.rule = rule;
    for (uint32_t server = 0; server < s.servers; ++server) s.faults.push_back({.kind = ExpertFault::Kind::kLoseWrites, .at = TimePoint(std::chrono::milliseconds(100)), .server = server, .client = 0, .lasts = std::chrono::milliseconds(40)});
    const auto o = run_experts(s);
    EXPECT_EQ(seen(o).empty(), rule != BatchRule::kAll) << seen(o);  // and whoever has asked elsewhere meanwhile is waited for for ever
    return o.rate(0.105, 0.14);
  };
  const double all = passes_while_silent(BatchRule::kAll), adaptive = passes_while_silent(BatchRule::kAdaptive);
  EXPECT_LT(all, 0.3 * adaptive);
}

TEST(ExpertWorld, AWrongAnswerIsSeen) {
  ExpertWorldSetup s = small();
  s.wrong_answer = 100;
  EXPECT_NE(seen(run_experts(s)).find("has the answer of another"), std::string::npos);
}

TEST(ExpertWorld, AHundredSeedsOfEverything) {
  ExpertWorldOutcome sum;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const auto o = run_experts(random_expert_world(seed));
    ASSERT_EQ(seen(o), "") << seed;
    sum.resent_rows += o.resent_rows, sum.deferred += o.deferred, sum.late_answers += o.late_answers, sum.torn += o.torn, sum.not_hosted += o.not_hosted, sum.copies += o.copies;
  }
  EXPECT_GT(sum.resent_rows, 100u);
  EXPECT_GT(sum.deferred, 10u);
  EXPECT_GT(sum.late_answers, 10u);
  EXPECT_GT(sum.torn, 1000u);
  EXPECT_GT(sum.copies, 50u);
}

}  // namespace
}  // namespace shoal
