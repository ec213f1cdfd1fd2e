#include "policy/expert_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/rng.h"

namespace shoal {
namespace {

constexpr uint64_t kBytes = 1000;
constexpr ExpertCost kCost{20e-6, 2e-6};

// A model, servers and loads that a seed makes up.
struct Place {
  std::vector<ExpertLayerSpec> layers;
  std::vector<ExpertServerSpec> servers;
  std::vector<std::vector<double>> rows;
  PlacementView view(const ExpertPlacement* current = nullptr) const { return {layers, servers, rows, current, {}}; }
};

double pareto(Rng& rng) { return std::min(500.0, std::pow(1 - rng.uniform(), -1 / 1.2)); }

Place made_up(uint64_t seed) {
  Rng rng(seed);
  Place p;
  const auto layers = static_cast<uint32_t>(1 + rng.below(4)), experts = static_cast<uint32_t>(4 + rng.below(29)), servers = static_cast<uint32_t>(2 + rng.below(9));
  const auto domains = static_cast<uint32_t>(1 + rng.below(servers));
  const double room = 1 + 2 * rng.uniform();  // copies of everything that all servers hold together
  for (uint32_t l = 0; l < layers; ++l) {
    p.layers.push_back({l * 2 + 1, experts, kBytes});
    p.rows.emplace_back();
    for (uint32_t e = 0; e < experts; ++e) p.rows.back().push_back(rng.chance(0.1) ? 0 : pareto(rng));
  }
  for (uint32_t s = 0; s < servers; ++s) {
    const auto slots = static_cast<uint64_t>(std::ceil(room * layers * experts / servers * (0.7 + 0.6 * rng.uniform()))) + 1;
    p.servers.push_back({NodeId(s + 10), slots * kBytes, rng.chance(0.3) ? 0.5 : 1.0, static_cast<uint32_t>(s % domains)});
  }
  return p;
}

uint64_t memory(const Place& p) {
  uint64_t sum = 0;
  for (const auto& s : p.servers) sum += s.draining ? 0 : s.memory_bytes;
  return sum;
}
uint64_t model_bytes(const Place& p) { return p.layers.size() * p.layers[0].experts * kBytes; }

// A plan carried out step by step: memory holds old and new at once.
ExpertPlacement applied(const Place& p, const ExpertPlacement* current, const PlacementPlan& plan) {
  std::map<NodeId, uint64_t> used, limit;
  std::set<std::tuple<uint32_t, uint32_t, NodeId>> held;
  for (const auto& s : p.servers) limit[s.server] = s.memory_bytes;
  for (const auto& l : current == nullptr ? std::vector<LayerPlacement>{} : current->layers) {
    for (uint32_t e = 0; e < l.experts.size(); ++e) {
      for (const auto& c : l.experts[e]) {
        if (limit.contains(c.server)) held.insert({l.layer, e, c.server}), used[c.server] += kBytes;
      }
    }
  }
  for (const auto& move : plan.copies) {
    EXPECT_TRUE(!move.from || held.contains({move.layer, move.expert, *move.from}));
    EXPECT_TRUE(held.insert({move.layer, move.expert, move.server}).second);
    EXPECT_LE(used[move.server] += kBytes, limit[move.server]);
  }
  for (const auto& l : plan.target.layers) {
    for (uint32_t e = 0; e < l.experts.size(); ++e) {
      for (const auto& c : l.experts[e]) EXPECT_TRUE(held.contains({l.layer, e, c.server}));
    }
  }
  for (const auto& move : plan.drops) EXPECT_EQ(held.erase({move.layer, move.expert, move.server}), 1u);
  size_t placed = 0;
  for (const auto& l : plan.target.layers) {
    for (const auto& copies : l.experts) placed += copies.size();
  }
  EXPECT_EQ(held.size(), placed);  // nothing is held that is not published
  EXPECT_TRUE(check_placement(p.view(), plan.target).ok()) << check_placement(p.view(), plan.target);
  return plan.target;
}

// Plans until there is nothing more to do.
StatusOr<ExpertPlacement> settled(const Place& p, const ExpertPlacement* current, const PlacementOptions& options) {
  ExpertPlacement now = current == nullptr ? ExpertPlacement{} : *current;
  for (int round = 0; round < 200; ++round) {
    auto plan = plan_placement(p.view(now.layers.empty() ? nullptr : &now), options);
    if (!plan.ok()) return plan.status();
    now = applied(p, now.layers.empty() ? nullptr : &now, *plan);
    if (!plan->more) return now;
  }
  return Status(StatusCode::kInternal, "plans do not end");
}

uint32_t fewest_copies(const ExpertPlacement& p) {
  uint32_t fewest = UINT32_MAX;
  for (const auto& l : p.layers) {
    for (const auto& copies : l.experts) fewest = std::min(fewest, static_cast<uint32_t>(copies.size()));
  }
  return fewest;
}

TEST(ElasticPlacement, EveryExpertIsPlacedTwiceInDomainsOfItsOwnWhereThereIsRoom) {
  uint32_t roomy = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Place p = made_up(seed);
    const auto placed = settled(p, nullptr, {.cost = kCost});
    if (memory(p) < model_bytes(p)) {
      EXPECT_EQ(placed.status().code(), StatusCode::kResourceExhausted);
      continue;
    }
    ASSERT_TRUE(placed.ok()) << placed.status();
    EXPECT_GE(fewest_copies(*placed), 1u);
    uint64_t slots = 0;
    std::map<uint32_t, uint64_t> of_domain;
    for (const auto& s : p.servers) slots += s.memory_bytes / kBytes, of_domain[s.domain] += s.memory_bytes / kBytes;
    const uint64_t items = p.layers.size() * p.layers[0].experts;
    uint64_t usable = 0, distinct = 0;  // places for two copies of each expert, on servers and in domains of their own
    for (const auto& s : p.servers) usable += std::min(s.memory_bytes / kBytes, items);
    for (const auto& [domain, places] : of_domain) distinct += std::min(places, items);
    if (usable < 2 * items + p.servers.size()) continue;
    ++roomy;
    EXPECT_GE(fewest_copies(*placed), 2u);
    if (of_domain.size() < 2 || distinct < 2 * items + p.servers.size()) continue;
    std::map<NodeId, uint32_t> domain;
    for (const auto& s : p.servers) domain[s.server] = s.domain;
    for (const auto& l : placed->layers) {
      for (const auto& copies : l.experts) {
        std::set<uint32_t> domains;
        for (const auto& c : copies) domains.insert(domain[c.server]);
        EXPECT_GE(domains.size(), 2u);
      }
    }
  }
  EXPECT_GT(roomy, 50u);
}

TEST(ElasticPlacement, LosingAnyOneServerLeavesACopyAndTheNextPlanRestoresTwo) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    Place p = made_up(seed);
    for (auto& s : p.servers) s.memory_bytes = 3 * model_bytes(p);
    if (p.servers.size() < 3) continue;
    const auto before = settled(p, nullptr, {.cost = kCost});
    ASSERT_TRUE(before.ok());
    for (size_t lost = 0; lost < p.servers.size(); ++lost) {
      Place q = p;
      q.servers.erase(q.servers.begin() + static_cast<std::ptrdiff_t>(lost));
      for (const auto& l : before->layers) {
        for (const auto& copies : l.experts) EXPECT_GE(copies.size() - std::count_if(copies.begin(), copies.end(), [&](const auto& c) { return c.server == p.servers[lost].server; }), 1);
      }
      const auto plan = plan_placement(q.view(&*before), {.cost = kCost, .moves_max = 0});
      ASSERT_TRUE(plan.ok());
      const auto after = applied(q, &*before, *plan);
      EXPECT_GE(fewest_copies(after), 2u);
      uint64_t gone = 0;
      for (const auto& l : before->layers) {
        for (const auto& copies : l.experts) gone += std::count_if(copies.begin(), copies.end(), [&](const auto& c) { return c.server == p.servers[lost].server; });
      }
      EXPECT_LE(plan->copies.size(), gone);  // no more is copied than was lost
      EXPECT_TRUE(plan->drops.empty());
    }
  }
}

TEST(ElasticPlacement, AnExpertThatNobodyHoldsTakesThePlaceOfAColdSecondCopy) {
  uint32_t made_room = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Place p = made_up(seed);
    const auto before = settled(p, nullptr, {.cost = kCost});
    ASSERT_TRUE(before.ok());
    while (p.servers.size() > 1 && memory(p) - p.servers.back().memory_bytes >= model_bytes(p)) {
      p.servers.pop_back();
      const auto plan = plan_placement(p.view(&*before), {.cost = kCost});
      ASSERT_TRUE(plan.ok()) << plan.status();
      made_room += plan->more;
      const auto after = settled(p, &*before, {.cost = kCost});
      ASSERT_TRUE(after.ok()) << after.status();
      EXPECT_GE(fewest_copies(*after), 1u);
    }
  }
  EXPECT_GT(made_room, 0u);
}

TEST(ElasticPlacement, ADrainCopiesFirstWhatOnlyThatServerHoldsAndLeavesItEmpty) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Place p = made_up(seed);
    const auto before = settled(p, nullptr, {.cost = kCost});
    ASSERT_TRUE(before.ok());
    p.servers[0].draining = true;
    const auto after = settled(p, &*before, {.cost = kCost});
    if (memory(p) < model_bytes(p)) {
      EXPECT_EQ(after.status().code(), StatusCode::kFailedPrecondition);
      EXPECT_NE(std::string(after.status().message()).find("server 10 holds the last copy of expert "), std::string::npos) << after.status();
      continue;
    }
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_GE(fewest_copies(*after), 1u);
    for (const auto& l : after->layers) {
      for (const auto& copies : l.experts) EXPECT_TRUE(std::none_of(copies.begin(), copies.end(), [](const auto& c) { return c.server == NodeId(10); }));
    }
  }
}

TEST(ElasticPlacement, WhatIsSettledStays) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    const Place p = made_up(seed);
    const auto first = plan_placement(p.view(), {.cost = kCost}), again = plan_placement(p.view(), {.cost = kCost});
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(first->target, again->target);
    EXPECT_EQ(first->copies, again->copies);
    auto now = first->target;
    size_t moved = 0;
    for (int round = 0; round < 10; ++round) {
      const auto plan = plan_placement(p.view(&now), {.cost = kCost});
      ASSERT_TRUE(plan.ok());
      now = applied(p, &now, *plan);
      moved = plan->copies.size();
    }
    EXPECT_EQ(moved, 0u);
  }
}

TEST(ElasticPlacement, AJoiningServerIsGivenWorkAndOnlyThatIsCopied) {
  Rng rng(7);
  Place p;
  p.layers = {{3, 64, kBytes}, {4, 64, kBytes}};
  for (int l = 0; l < 2; ++l) {
    p.rows.emplace_back();
    for (int e = 0; e < 64; ++e) p.rows.back().push_back(1 + 10 * rng.uniform());
  }
  for (uint32_t s = 0; s < 8; ++s) p.servers.push_back({NodeId(s), 48 * kBytes, 1, s});
  const auto before = settled(p, nullptr, {.cost = kCost});
  ASSERT_TRUE(before.ok());
  const double balance = imbalance(p.view(), *before, kCost);
  p.servers.push_back({NodeId(8), 48 * kBytes, 1, 8});
  const auto plan = plan_placement(p.view(&*before), {.cost = kCost});
  ASSERT_TRUE(plan.ok());
  const auto after = applied(p, &*before, *plan);
  size_t to_new = 0;
  for (const auto& move : plan->copies) to_new += move.server == NodeId(8);
  EXPECT_GE(to_new * 10, plan->copies.size() * 8) << plan->copies.size();
  EXPECT_LE(plan->copies.size(), 64u);  // of 256 copies, where a ninth is the least
  EXPECT_LT(imbalance(p.view(), after, kCost), balance * 1.05);
}

TEST(ElasticPlacement, AMoveThatDoesNotPayForItsBytesIsNotMade) {
  Place p;
  p.layers = {{0, 4, 1'000'000'000}};
  p.rows = {{10, 10, 1, 1}};
  for (uint32_t s = 0; s < 2; ++s) p.servers.push_back({NodeId(s), 4'000'000'000, 1, s});
  ExpertPlacement now{1, {{0, {{{NodeId(0), kWholeShare}}, {{NodeId(0), kWholeShare}}, {{NodeId(1), kWholeShare}}, {{NodeId(1), kWholeShare}}}}}};
  PlacementOptions options{.copies_min = 1, .cost = {0, 1e-6}, .passes = 20'000, .copy_bytes_per_second = 10e9};
  // A move saves 9 rows of 20 in each pass: 9 us x 20,000 = 0.18 s, and costs 0.1 s, twice for caution.
  EXPECT_TRUE(plan_placement(p.view(&now), options)->copies.empty());
  options.passes = 40'000;
  EXPECT_EQ(plan_placement(p.view(&now), options)->copies.size(), 1u);
}

TEST(ElasticPlacement, SlowServersGetLess) {
  Place p;
  p.layers = {{0, 256, kBytes}};
  Rng rng(3);
  p.rows.emplace_back();
  for (int e = 0; e < 256; ++e) p.rows[0].push_back(1 + rng.uniform());
  for (uint32_t s = 0; s < 12; ++s) p.servers.push_back({NodeId(s), 48 * kBytes, s < 8 ? 1.0 : 0.5, s});
  const ExpertCost cost{0, 1e-6};
  const auto placed = *settled(p, nullptr, {.cost = cost});
  EXPECT_LT(imbalance(p.view(), placed, cost), 1.03);
  EXPECT_GT(imbalance(p.view(), *place_eplb(p.view(), 288, 1, 1), cost), 1.5);
}

TEST(ElasticPlacement, AnyNumberOfServersWillDo) {
  Place p;
  p.layers = {{0, 256, kBytes}};
  Rng rng(4);
  p.rows.emplace_back();
  for (int e = 0; e < 256; ++e) p.rows[0].push_back(pareto(rng));
  for (uint32_t s = 0; s < 31; ++s) p.servers.push_back({NodeId(s), 20 * kBytes, 1, s});
  const ExpertCost cost{0, 1e-6};
  EXPECT_FALSE(place_eplb(p.view(), 310, 1, 2).ok());
  EXPECT_LT(imbalance(p.view(), *settled(p, nullptr, {.copy_above = 0, .cost = cost}), cost), 1.1);
}

// A server that is lost leaves its rows to all others, not to one that holds the same experts.
TEST(ElasticPlacement, SecondCopiesAreSpreadOverAllOtherServers) {
  Place p;
  p.layers = {{0, 64, kBytes}, {1, 64, kBytes}, {2, 64, kBytes}};
  p.rows.assign(3, std::vector<double>(64, 4));
  for (uint32_t s = 0; s < 8; ++s) p.servers.push_back({NodeId(s), 64 * kBytes, 1, s});
  const auto placed = *settled(p, nullptr, {.cost = kCost});
  std::map<std::pair<NodeId, NodeId>, int> together;
  for (const auto& l : placed.layers) {
    for (const auto& copies : l.experts) ++together[{copies[0].server, copies[1].server}];
  }
  EXPECT_EQ(together.size(), 28u);
  for (const auto& [pair, experts] : together) EXPECT_LE(experts, 2 * 192 / 28) << pair.first << " " << pair.second;
}

// With few rows what counts is how many experts are active: a second active copy would be read from memory as well.
TEST(ElasticPlacement, FewRowsAreNotSplit) {
  Place p;
  p.layers = {{0, 8, kBytes}};
  p.rows = {std::vector<double>(8, 0.5)};
  for (uint32_t s = 0; s < 2; ++s) p.servers.push_back({NodeId(s), 8 * kBytes, 1, s});
  const auto placed = *settled(p, nullptr, {.cost = {100e-6, 1e-6}});
  for (const auto& copies : placed.layers[0].experts) EXPECT_EQ(std::max(copies[0].share, copies[1].share), kWholeShare);
}

TEST(ElasticPlacement, CopiesAskedForAreMadeAndTakenBack) {
  Place p;
  p.layers = {{5, 8, kBytes}};
  for (uint32_t s = 0; s < 4; ++s) p.servers.push_back({NodeId(s), 8 * kBytes, 1, s});
  const auto before = *settled(p, nullptr, {});
  PlacementView view = p.view(&before);
  const std::vector<ExpertCopies> more{{5, 2, 3}}, fewer{{5, 2, 2}}, none{{5, 2, 0}}, unknown{{5, 8, 2}}, no_layer{{4, 0, 2}};
  view.copies = more;
  const auto plan = *plan_placement(view, {});
  EXPECT_EQ(plan.copies.size(), 1u);
  EXPECT_TRUE(plan.copies[0].from.has_value());
  EXPECT_EQ(plan.target.of(5, 2).size(), 3u);
  view.current = &plan.target;
  view.copies = fewer;
  EXPECT_EQ(plan_placement(view, {})->drops.size(), 1u);
  view.copies = none;
  EXPECT_EQ(plan_placement(view, {}).status().message(), "expert 2 of layer 5 cannot do without a copy");
  view.copies = unknown;
  EXPECT_EQ(plan_placement(view, {}).status().message(), "layer 5 has no expert 8; it has 8");
  view.copies = no_layer;
  EXPECT_EQ(plan_placement(view, {}).status().message(), "layer 4 has no experts");
}

TEST(ElasticPlacement, TheImpossibleIsNamed) {
  Place p;
  p.layers = {{5, 8, kBytes}};
  EXPECT_EQ(plan_placement(p.view(), {}).status().code(), StatusCode::kResourceExhausted);
  for (uint32_t s = 0; s < 2; ++s) p.servers.push_back({NodeId(s), 3 * kBytes, 1, s});
  EXPECT_EQ(plan_placement(p.view(), {}).status().message(),
            "expert 6 of layer 5 has no room: one copy of every expert takes 8000 bytes, 2 servers have 6000; add a server or memory");
  p.servers[1].server = NodeId(0);
  EXPECT_EQ(plan_placement(p.view(), {}).status().message(), "expert placement: two servers have the name 0");
  p.servers[1] = {NodeId(1), 9 * kBytes, 0};
  EXPECT_EQ(plan_placement(p.view(), {}).status().code(), StatusCode::kInvalidArgument);
}

TEST(ExpertMovePlan, MovesOneExpertOrSaysWhyNot) {
  Place p;
  p.layers = {{5, 4, kBytes}};
  for (uint32_t s = 0; s < 3; ++s) p.servers.push_back({NodeId(s), (s < 2 ? 4 : 1) * kBytes, 1, s});
  ExpertPlacement now{3, {{5, std::vector<std::vector<ExpertShare>>(4, {{NodeId(0), 40000}, {NodeId(1), kWholeShare - 40000}})}}};
  const auto plan = *plan_expert_move(p.view(&now), 5, 1, NodeId(0), NodeId(2));
  EXPECT_EQ(plan.target.version, 4u);
  now = applied(p, &now, plan);
  EXPECT_EQ(now.of(5, 1)[1], (ExpertShare{NodeId(2), 40000}));
  const auto why = [&](uint32_t layer, uint32_t expert, uint32_t from, uint32_t to) { return std::string(plan_expert_move(p.view(&now), layer, expert, NodeId(from), NodeId(to)).status().message()); };
  EXPECT_EQ(why(5, 2, 0, 2), "server 2 has no room for expert 2 of layer 5: it holds 1000 of 1000 bytes");
  EXPECT_EQ(why(5, 4, 0, 2), "expert 4 of layer 5 is held by nobody");
  EXPECT_EQ(why(5, 1, 0, 2), "server 0 does not hold expert 1 of layer 5");
  EXPECT_EQ(why(5, 0, 0, 1), "server 1 holds expert 0 of layer 5 already");
  EXPECT_EQ(why(5, 0, 0, 7), "there is no server 7");
}

TEST(ChooseCopy, FollowsTheSharesAndPassesOverTheSuspected) {
  const std::vector<ExpertShare> copies{{NodeId(1), kWholeShare / 4}, {NodeId(2), kWholeShare / 4 * 3}, {NodeId(3), 0}};
  std::map<NodeId, uint32_t> rows;
  for (uint64_t key = 0; key < 4000; ++key) ++rows[choose_copy(copies, key)->server];
  EXPECT_NEAR(rows[NodeId(1)], 1000, 100);
  EXPECT_EQ(rows.count(NodeId(3)), 0u);
  const std::vector<NodeId> two{NodeId(1), NodeId(2)}, all{NodeId(1), NodeId(2), NodeId(3)};
  EXPECT_EQ(choose_copy(copies, 5, two)->server, NodeId(3));
  EXPECT_EQ(choose_copy(copies, 5, all), nullptr);
  EXPECT_EQ(choose_copy({}, 5), nullptr);
}

TEST(FitExpertCost, FindsWhatATableWasMadeFrom) {
  std::vector<ExpertSample> table;
  for (const double rows : {1.0, 8.0, 64.0, 512.0}) {
    for (const double active : {1.0, 4.0, 16.0}) table.push_back({rows, active, 30e-6 + active * 12e-6 + rows * 0.5e-6});
  }
  const auto cost = fit_expert_cost(table);
  ASSERT_TRUE(cost.ok());
  EXPECT_NEAR(cost->active_s, 12e-6, 1e-9);
  EXPECT_NEAR(cost->row_s, 0.5e-6, 1e-10);
  EXPECT_FALSE(fit_expert_cost(std::vector<ExpertSample>{{1, 1, 1}, {2, 2, 2}, {3, 3, 3}}).ok());
  EXPECT_FALSE(fit_expert_cost(std::vector<ExpertSample>{{1, 1, NAN}, {2, 1, 2}, {3, 3, 3}}).ok());
}

}  // namespace
}  // namespace shoal
