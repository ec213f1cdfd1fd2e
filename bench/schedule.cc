// Cost of scheduling: one begin_step + finish_step of an engine with 32 running sequences, as the queue behind them
// grows; one Router round trip as live requests grow; one step of a Node, events in and effects out, as the models that it
// could serve grow. Flat is the goal: the work of a step must not depend on who waits.
#include <benchmark/benchmark.h>

#include "engine/engine.h"
#include "roles/node.h"
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

// One step of a node that serves 32 requests for one model and has any number of others, idle, in its catalogue.
class NodeUnderLoad {
 public:
  explicit NodeUnderLoad(uint32_t models) : node_(config(models)) {
    perform(node_.handle(Tick{}, now_));
    for (uint64_t id = 1; id <= 32; ++id) perform(node_.handle(MessageFrom{NodeId(9), Submit{request(id, 64)}}, now_));
    while (!step_) perform(node_.handle(WeightsReady{ModelId(0), OkStatus()}, now_));
    for (int i = 0; i < 64; ++i) step();
  }

  void step() {
    now_ += std::chrono::milliseconds(20);
    const StepResult result = answer(step_->input);
    step_.reset();
    perform(node_.handle(StepDone{ModelId(0), result}, now_));
  }

 private:
  static NodeConfig config(uint32_t models) {
    NodeConfig c;
    c.self = NodeId(1);
    c.pages = 1u << 16;
    c.gateways = {NodeId(9)};
    c.limits.sequences_max = 32;
    for (uint32_t id = 0; id < models; ++id) {
      NodeModel m;
      m.model = ModelId(id);
      m.name = "m" + std::to_string(id);
      m.weight_bytes = 100 * kPageBytes;
      m.kv_block_bytes = kPageBytes / 64;
      m.max_model_len = 1u << 20;
      m.vocab_size = 1000;
      c.models.push_back(m);
    }
    return c;
  }

  void perform(std::vector<Effect> effects) {
    for (Effect& effect : effects) {
      if (auto* start = std::get_if<StartStep>(&effect)) step_ = std::move(*start);
    }
  }

  TimePoint now_{};
  Node node_;
  std::optional<StartStep> step_;
};

void NodeStep(benchmark::State& state) {
  NodeUnderLoad node(static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) node.step();
}
BENCHMARK(NodeStep)->Arg(1)->Arg(10)->Arg(100)->Arg(1000);

}  // namespace
}  // namespace shoal

BENCHMARK_MAIN();
