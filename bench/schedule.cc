// Cost of scheduling: one begin_step + finish_step of an engine with 32 running sequences, as the queue behind them
// grows; one Router round trip as live requests grow; one step of a Node, events in and effects out, as the models that it
// could serve grow; and one event of a Node whose models take turns, as the models that wait for the device and the requests
// grow, with everything that is decided then: whose step is next, triage, quotas, who comes and who goes, and four times a second
// of the node's time the rehearsal. Flat is the goal: the work of a step must not depend on who waits.
#include <benchmark/benchmark.h>

#include <map>
#include <set>

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

// A node of so many models of the same size.
NodeConfig node_of(uint32_t models, uint32_t max_model_len) {
  NodeConfig config;
  config.self = NodeId(1);
  config.gateways = {NodeId(9)};
  for (uint32_t id = 0; id < models; ++id) {
    NodeModel m;
    m.model = ModelId(id);
    m.name = "m" + std::to_string(id);
    m.weight_bytes = 100 * kPageBytes;
    m.kv_block_bytes = kPageBytes / 64;
    m.max_model_len = max_model_len;
    m.vocab_size = 1000;
    m.pooling.ttft_loads = 0;  // deadlines are meant, and rehearsed
    config.models.push_back(m);
  }
  return config;
}

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
    NodeConfig c = node_of(models, 1u << 20);
    c.pages = 1u << 16;
    c.limits.sequences_max = 32;
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

// Room for four of its models, all of which have requests, of so many payers each. Steps take 20 ms, loads 200 ms.
class ContendedNode {
 public:
  ContendedNode(uint32_t models, uint32_t requests, uint32_t payers) : models_(models), payers_(payers), node_(config(models)) {
    give(Tick{});
    for (; last_ < requests;) give(ask(ModelId(static_cast<uint32_t>(++last_ % models))));
    for (int i = 0; i < 200; ++i) next();
  }

  // The next event, and what the node decides then.
  void next() {
    const auto first = pending_.begin();
    now_ = std::max(now_, first->first);
    const Event event = std::move(first->second);
    pending_.erase(first);
    give(event);
  }
  void give(const Event& event) {
    for (Effect& effect : node_.handle(event, now_)) perform(effect);
  }
  uint64_t loads() const { return loads_; }

 private:
  static NodeConfig config(uint32_t models) {
    NodeConfig c = node_of(models, 1u << 13);
    c.pages = 4 * 110;
    c.waiting_max = 1u << 20;
    return c;
  }

  MessageFrom ask(ModelId model) const {
    Request r = request(last_, 64);
    r.model = model;
    r.max_tokens = 1u << 12;
    r.payer.number = static_cast<uint32_t>(last_ / models_ % payers_);
    return {NodeId(9), Submit{r}};
  }

  void perform(Effect& effect) {
    if (const auto* send = std::get_if<Send>(&effect)) {  // whoever has his answer asks anew
      const auto* tokens = std::get_if<Tokens>(&send->message);
      if (tokens == nullptr || !tokens->finish) return;
      const ModelId model(static_cast<uint32_t>(tokens->id.sequence % models_));
      last_ += models_ - last_ % models_ + model.value;
      pending_.emplace(now_, ask(model));
    } else if (const auto* start = std::get_if<StartStep>(&effect)) {
      pending_.emplace(now_ + std::chrono::milliseconds(20), StepDone{start->model, answer(start->input)});
    } else if (const auto* load = std::get_if<LoadWeights>(&effect)) {
      ++loads_;
      pending_.emplace(now_ + std::chrono::milliseconds(200), WeightsReady{load->model, OkStatus()});
    } else if (const auto* wake = std::get_if<WakeAt>(&effect)) {
      if (wakes_.insert(wake->at).second) pending_.emplace(std::max(now_, wake->at), Tick{});
    }
  }

  const uint32_t models_, payers_;
  TimePoint now_{};
  uint64_t last_ = 0;  // id
  Node node_;
  std::multimap<TimePoint, Event> pending_;
  std::set<TimePoint> wakes_;
  uint64_t loads_ = 0;
};

void NodeInTurns(benchmark::State& state) {
  ContendedNode node(static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(1)), static_cast<uint32_t>(state.range(2)));
  for (auto _ : state) node.next();
  state.counters["loads"] = static_cast<double>(node.loads());
}
BENCHMARK(NodeInTurns)
    ->ArgNames({"models", "requests", "payers"})
    ->Args({10, 10, 1})
    ->Args({10, 100, 1})
    ->Args({10, 1000, 1})
    ->Args({10, 10000, 1})
    ->Args({10, 10000, 100})
    ->Args({100, 100, 1})
    ->Args({100, 1000, 1})
    ->Args({100, 10000, 1})
    ->Args({1000, 1000, 1})
    ->Args({1000, 10000, 1});

}  // namespace
}  // namespace shoal

BENCHMARK_MAIN();
