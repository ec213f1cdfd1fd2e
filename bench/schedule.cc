// Cost of scheduling: one begin_step + finish_step of an engine with 32 running sequences, as the queue behind them
// grows, and one Router round trip as live requests grow. Flat is the goal: the work of a step must not depend on who
// waits.
#include <benchmark/benchmark.h>

#include "engine/engine.h"
#include "roles/router.h"

namespace shoal {
namespace {

Request request(uint64_t id, uint32_t length) {
  Request r;
  r.id = RequestId(id);
  r.prompt.assign(length, static_cast<TokenId>(id % 1000));
  r.max_tokens = 1u << 30;
  return r;
}

StepResult answer(const StepInput& input) {
  StepResult result{input.step, {}};
  for (const StepSlice& slice : input.slices) {
    SliceResult out;
    out.request = slice.request;
    if (slice.sample) out.sampled.push_back({7, 0.0f, {}});
    result.slices.push_back(std::move(out));
  }
  return result;
}

void EngineStep(benchmark::State& state) {
  PagePool pages(1u << 16);
  BlockPool blocks(pages, kPageBytes / 64);
  EngineConfig config;
  config.limits.sequences_max = 32;
  config.waiting_max = 1u << 20;
  config.max_model_len = 1u << 20;
  config.vocab_size = 1000;
  Engine engine(blocks, config);
  for (int64_t i = 0; i < 32 + state.range(0); ++i) (void)engine.submit(request(static_cast<uint64_t>(i + 1), 64));
  for (int i = 0; i < 32; ++i) engine.finish_step(answer(*engine.begin_step(TimePoint())));
  for (auto _ : state) benchmark::DoNotOptimize(engine.finish_step(answer(*engine.begin_step(TimePoint()))));
  state.counters["waiting"] = static_cast<double>(engine.waiting());
}
BENCHMARK(EngineStep)->Arg(0)->Arg(10)->Arg(100)->Arg(1000)->Arg(10000);

void RouterRoundTrip(benchmark::State& state) {
  Router router({NodeId(0), 1u << 20});
  ClusterState cluster;
  cluster.version = 1;
  cluster.members[NodeId(1)] = {NodeId(1), Role::kNode, 1, {ModelId(0)}, false};
  router.handle(ClusterChanged{cluster}, TimePoint{});
  uint64_t id = 0;
  for (int64_t i = 0; i < state.range(0); ++i) router.handle(NewRequest{request(++id, 64)}, TimePoint{});
  for (auto _ : state) {
    router.handle(NewRequest{request(++id, 64)}, TimePoint{});
    Tokens end;
    end.id = RequestId(id);
    end.finish = FinishReason::kStop;
    benchmark::DoNotOptimize(router.handle(MessageFrom{NodeId(1), end}, TimePoint{}));
  }
}
BENCHMARK(RouterRoundTrip)->Arg(10)->Arg(100)->Arg(1000)->Arg(10000);

}  // namespace
}  // namespace shoal

BENCHMARK_MAIN();
