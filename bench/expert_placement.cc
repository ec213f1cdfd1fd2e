// What one decision of the expert planners costs, and how even it is: 256 experts a layer, loads of a Pareto law, on 32 servers.
// The counter `slowest_over_mean` is 1 where every server takes the same time.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "policy/expert_placement.h"

namespace shoal {
namespace {

constexpr ExpertCost kCost{16.4e-6, 0.0636e-6};

struct Model {
  std::vector<ExpertLayerSpec> layers;
  std::vector<std::vector<double>> rows;
  std::vector<ExpertServerSpec> servers;
  PlacementView view(const ExpertPlacement* current = nullptr) const { return {layers, servers, rows, current, {}}; }
};

Model skewed(int64_t layers, int64_t servers, uint64_t slots) {
  Model m;
  Rng rng(1);
  for (int64_t l = 0; l < layers; ++l) {
    m.layers.push_back({static_cast<uint32_t>(l), 256, 44'000'000});
    m.rows.emplace_back();
    for (int e = 0; e < 256; ++e) m.rows.back().push_back(16 * std::min(50.0, std::pow(1 - rng.uniform(), -1 / 1.2)));
  }
  for (int64_t s = 0; s < servers; ++s) m.servers.push_back({NodeId(static_cast<uint32_t>(s)), slots * static_cast<uint64_t>(layers) * 44'000'000, 1, static_cast<uint32_t>(s / 8)});
  return m;
}

void RoundRobin(benchmark::State& state) {
  const Model m = skewed(state.range(0), 32, 9);
  ExpertPlacement placed;
  for (auto _ : state) {
    placed = {1, {}};
    for (const auto& layer : m.layers) {
      placed.layers.push_back({layer.layer, {}});
      for (uint32_t e = 0; e < 256; ++e) placed.layers.back().experts.push_back({{NodeId(e % 32), kWholeShare}});
    }
    benchmark::DoNotOptimize(placed);
  }
  state.counters["slowest_over_mean"] = imbalance(m.view(), placed, kCost);
}
BENCHMARK(RoundRobin)->Arg(1)->Arg(8)->Unit(benchmark::kMicrosecond);

void Eplb(benchmark::State& state) {
  const Model m = skewed(state.range(0), 32, 9);
  StatusOr<ExpertPlacement> placed = place_eplb(m.view(), 288, 1, 1);
  for (auto _ : state) placed = place_eplb(m.view(), 288, 1, 1);
  state.counters["slowest_over_mean"] = imbalance(m.view(), *placed, kCost);
}
BENCHMARK(Eplb)->Arg(1)->Arg(8)->Arg(58)->Unit(benchmark::kMicrosecond);

// From nothing; `copies`: of every expert at least, memory for that and an eighth more.
void Elastic(benchmark::State& state) {
  const auto copies = static_cast<uint32_t>(state.range(1));
  const Model m = skewed(state.range(0), 32, 9 * copies);
  const PlacementOptions options{.copies_min = copies, .copy_above = 0.5, .cost = kCost};
  StatusOr<PlacementPlan> plan = plan_placement(m.view(), options);
  for (auto _ : state) plan = plan_placement(m.view(), options);
  state.counters["slowest_over_mean"] = imbalance(m.view(), plan->target, kCost);
}
BENCHMARK(Elastic)->Args({1, 1})->Args({8, 1})->Args({1, 2})->Args({8, 2})->Unit(benchmark::kMicrosecond);

// One server of 32 was lost, or one joined: only what that changes.
void ElasticOneServer(benchmark::State& state) {
  Model m = skewed(state.range(0), 32, 20);
  const PlacementOptions options{.cost = kCost};
  const ExpertPlacement before = plan_placement(m.view(), options)->target;
  if (state.range(1) < 0) m.servers.pop_back();
  else m.servers.push_back({NodeId(32), m.servers[0].memory_bytes, 1, 4});
  StatusOr<PlacementPlan> plan = plan_placement(m.view(&before), options);
  for (auto _ : state) plan = plan_placement(m.view(&before), options);
  state.counters["copies"] = static_cast<double>(plan->copies.size());
  state.counters["slowest_over_mean"] = imbalance(m.view(), plan->target, kCost);
}
BENCHMARK(ElasticOneServer)->ArgNames({"layers", "change"})->Args({8, -1})->Args({8, 1})->Unit(benchmark::kMicrosecond);

void ChooseCopy(benchmark::State& state) {
  const std::vector<ExpertShare> copies{{NodeId(1), kWholeShare / 2}, {NodeId(2), kWholeShare / 2}};
  uint64_t key = 0;
  for (auto _ : state) benchmark::DoNotOptimize(choose_copy(copies, ++key));
}
BENCHMARK(ChooseCopy);

}  // namespace
}  // namespace shoal

BENCHMARK_MAIN();
