// The rules of synchronisation of pooling, in every order: two models that take turns, two sequences each, and each order
// in which steps, loads, copies and withdrawals can end. Production nodes over the strict device, whose blocks hold tokens:
// a sequence that steps before its KV is back (1), a copy back before the copy out (2), a block given away under a copy (3)
// or pages unmapped under one (4) is a broken CHECK or another token.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

#include "sim/device.h"

namespace shoal {
namespace {

constexpr NodeId kGateway{9};
constexpr uint32_t kEventsMax = 2000;
constexpr Duration kPerEvent = std::chrono::milliseconds(10);

struct Case {
  uint32_t pages = 0, host_pages = 0;
  uint32_t prompt = 0;
  std::array<uint32_t, 4> tokens{};  // of each answer; requests 0 and 2 are of one model, 1 and 3 of the other
  std::vector<uint32_t> cancels;  // of these requests, in this order, at any moment
  bool narrow = false;  // turns are as long as a rehearsal finds best: fewer switches
};

NodeConfig node_config(const Case& c) {
  NodeConfig config;
  config.self = NodeId(1);
  config.gateways = {kGateway};
  config.pages = c.pages;
  config.host_pages = c.host_pages;
  config.limits = {64, 2, 2, true};
  config.prefix_cache = false;
  config.load_bytes_per_second = 3 * kPageBytes / 0.01;
  config.turns.quota_max_seconds = 0.02;  // two events
  config.turns.narrow = c.narrow;
  for (uint32_t i = 0; i < 2; ++i) {
    NodeModel m;
    m.model = ModelId(i);
    m.name = "m" + std::to_string(i);
    m.weight_bytes = 3 * kPageBytes;
    m.kv_block_bytes = kPageBytes;
    m.max_model_len = 48;
    m.vocab_size = 100;
    config.models.push_back(m);
  }
  return config;
}

// One run. The path says which of the events that may come next comes, at each point where there are several.
class Run {
 public:
  Run(const Case& c, const std::vector<uint32_t>& path) : case_(c), path_(path), node_(node_config(c)), device_(node_config(c)) {
    for (uint32_t i = 0; i < 4; ++i) {
      Request r;
      r.id = RequestId(i);
      r.model = ModelId(i % 2);
      for (uint32_t t = 0; t < c.prompt; ++t) r.prompt.push_back(static_cast<TokenId>((t * 7 + i * 13) % 100));
      r.max_tokens = c.tokens[i];
      requests_.push_back(r);
      give(MessageFrom{kGateway, Submit{r}});
    }
    while (next() && events < kEventsMax) ++events;
    EXPECT_LT(events, kEventsMax);
    for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(ended_.contains(i) || withdrawn_.contains(i)) << "request " << i << " never ended";
    EXPECT_TRUE(node_.idle());
    for (const ModelStatus& m : node_.status().models) EXPECT_EQ(m.kv_bytes_used, 0u);
  }

  const std::vector<uint32_t>& options() const { return options_; }  // at each point
  uint32_t events = 0, parked = 0, returned = 0, cancelled_loads = 0, loads = 0;

 private:
  bool next() {
    const bool may_cancel = cancels_ < case_.cancels.size();
    const auto count = static_cast<uint32_t>(pending_.size()) + (may_cancel ? 1 : 0);
    now_ += kPerEvent;
    if (count == 0) return wake();
    const size_t point = options_.size();
    const uint32_t choice = count > 1 && point < path_.size() ? path_[point] : 0;
    if (count > 1) options_.push_back(count);
    if (choice == pending_.size()) {
      const uint32_t request = case_.cancels[cancels_++];
      withdrawn_.insert(request);
      give(MessageFrom{kGateway, Cancel{RequestId(request), 0}});
      return true;
    }
    const Event event = pending_[choice];
    pending_.erase(pending_.begin() + choice);
    if (const auto* ready = std::get_if<WeightsReady>(&event)) device_.end_load(ready->model, ready->status.ok(), ready->whole);
    if (const auto* copied = std::get_if<KvCopied>(&event)) device_.end_copy(copies_.at({copied->model, copied->move}), nullptr);
    give(event);
    return true;
  }

  bool wake() {
    if (wakes_.empty()) return false;
    now_ = std::max(now_, *wakes_.begin());
    wakes_.erase(wakes_.begin());
    give(Tick{});
    return !wakes_.empty() || !pending_.empty();
  }

  void give(const Event& event) {
    for (const Effect& effect : node_.handle(event, now_)) perform(effect);
    node_.check();
  }

  void perform(const Effect& effect) {
    if (const auto* send = std::get_if<Send>(&effect)) {
      if (const auto* tokens = std::get_if<Tokens>(&send->message)) receive(*tokens);
    } else if (const auto* start = std::get_if<StartStep>(&effect)) {
      pending_.push_back(StepDone{start->model, device_.run(start->model, start->input)});
    } else if (const auto* load = std::get_if<LoadWeights>(&effect)) {
      ++loads;
      device_.begin_load(*load);
      pending_.push_back(WeightsReady{load->model, OkStatus(), {}});
      pages_ = page_count(load->pages);
    } else if (std::holds_alternative<CancelLoad>(effect)) {
      ++cancelled_loads;
      for (Event& event : pending_) {
        if (auto* ready = std::get_if<WeightsReady>(&event)) called_off(*ready);
      }
    } else if (const auto* drop = std::get_if<DropWeights>(&effect)) {
      device_.drop(*drop);
    } else if (const auto* pages = std::get_if<ReturnPages>(&effect)) {
      device_.return_pages(*pages);
    } else if (const auto* remap = std::get_if<RemapSlabs>(&effect)) {
      device_.remap(*remap);
    } else if (const auto* copy = std::get_if<CopyKv>(&effect)) {
      ++(copy->move.to == Tier::kHost ? parked : returned);
      device_.begin_copy(*copy);
      copies_[{copy->model, copy->move.id}] = *copy;
      pending_.push_back(KvCopied{copy->model, copy->move.id});
    } else if (const auto* at = std::get_if<WakeAt>(&effect)) {
      wakes_.insert(at->at);
    }
  }

  // Its second half had come.
  void called_off(WeightsReady& ready) {
    ready.status = absl::CancelledError("called off");
    ready.whole = {{pages_ / 2, pages_ - pages_ / 2}};
  }

  void receive(const Tokens& tokens) {
    const auto id = static_cast<uint32_t>(tokens.id.sequence);
    const Request& request = requests_[id];
    EXPECT_FALSE(withdrawn_.contains(id));
    EXPECT_NE(tokens.finish, FinishReason::kError) << tokens.error;
    std::vector<TokenId>& output = outputs_[id];
    EXPECT_EQ(tokens.first_index, output.size());
    for (const SampledToken& token : tokens.tokens) {
      uint64_t context = kEmptyContext;
      for (const TokenId t : request.prompt) context = extend_context(context, t);
      for (const TokenId t : output) context = extend_context(context, t);
      EXPECT_EQ(token.token, simulated_token(request.model, context, request.sampling.seed, static_cast<uint32_t>(output.size()), 100));
      output.push_back(token.token);
    }
    if (!tokens.finish) return;
    EXPECT_TRUE(ended_.insert(id).second);
  }

  const Case& case_;
  const std::vector<uint32_t>& path_;
  Node node_;
  StrictDevice device_;
  uint32_t pages_ = 0;  // of the load under way
  TimePoint now_{};
  std::vector<Event> pending_;
  std::map<std::pair<ModelId, uint64_t>, CopyKv> copies_;
  std::set<TimePoint> wakes_;
  std::vector<Request> requests_;
  std::map<uint32_t, std::vector<TokenId>> outputs_;
  std::set<uint32_t> ended_, withdrawn_;
  size_t cancels_ = 0;
  std::vector<uint32_t> options_;
};

struct Sum {
  uint64_t runs = 0, parked = 0, returned = 0, cancelled_loads = 0, loads = 0;
};

// Depth first, with replay: the last point that has an option left takes it, what follows begins with the first.
Sum every_order(const Case& c, uint64_t runs_max) {
  Sum sum;
  std::vector<uint32_t> path;
  while (true) {
    const Run run(c, path);
    ++sum.runs;
    sum.parked += run.parked;
    sum.returned += run.returned;
    sum.cancelled_loads += run.cancelled_loads;
    sum.loads += run.loads;
    std::vector<uint32_t> next = path;
    next.resize(run.options().size(), 0);
    while (!next.empty() && next.back() + 1 >= run.options()[next.size() - 1]) next.pop_back();
    if (next.empty() || ::testing::Test::HasFailure()) return sum;
    ++next.back();
    path = std::move(next);
    EXPECT_LT(sum.runs, runs_max) << "not a small case";
    if (sum.runs >= runs_max) return sum;
  }
}

Sum every_order_of(const std::vector<Case>& cases) {
  Sum all;
  for (const Case& c : cases) {
    const Sum sum = every_order(c, 20'000);
    all.runs += sum.runs;
    all.parked += sum.parked;
    all.returned += sum.returned;
    all.loads += sum.loads;
    all.cancelled_loads += sum.cancelled_loads;
  }
  return all;
}

TEST(EveryOrderOfEvents, OfTurnsWithKvOnBothTiersKeepsTheRules) {
  const Sum sum = every_order_of({{8, 12, 30, {4, 3, 4, 3}, {}}, {8, 4, 30, {4, 4, 4, 4}, {}}, {9, 12, 30, {4, 4, 4, 4}, {}}});
  EXPECT_GT(sum.runs, 10'000u);
  EXPECT_GT(sum.parked, 4 * sum.runs);
  EXPECT_EQ(sum.returned, sum.parked);
}

TEST(EveryOrderOfEvents, OfRehearsedTurnsKeepsTheRules) {
  const Sum sum = every_order_of({{8, 12, 30, {4, 3, 4, 3}, {}, true}, {8, 4, 30, {4, 4, 4, 4}, {}, true}, {9, 12, 30, {4, 4, 4, 4}, {}, true}, {8, 12, 30, {3, 3, 3, 3}, {0, 2}, true}, {8, 0, 30, {3, 3, 3, 3}, {0, 3}, true},
                                  {8, 12, 30, {3, 3, 3, 3}, {1, 3}, true}});
  EXPECT_GT(sum.runs, 3000u);
  EXPECT_GT(sum.parked, sum.runs);
}

TEST(EveryOrderOfEvents, WithWithdrawalsAtAnyMomentKeepsTheRules) {
  const Sum sum = every_order_of({{8, 12, 30, {3, 3, 3, 3}, {0, 2}}, {8, 12, 30, {3, 3, 3, 3}, {1, 3}}, {8, 12, 30, {3, 3, 3, 3}, {0, 1}}, {12, 12, 30, {3, 3, 3, 3}, {1, 3}}});
  EXPECT_GT(sum.runs, 3000u);
  EXPECT_GT(sum.parked, sum.returned);  // some were withdrawn there
  EXPECT_GT(sum.cancelled_loads, 50u);
}

TEST(EveryOrderOfEvents, WithoutAHostTierKeepsTheRules) {
  const Sum sum = every_order_of({{8, 0, 30, {3, 3, 3, 3}, {0, 3}}, {8, 0, 30, {4, 4, 4, 4}, {0, 3}}, {8, 0, 30, {4, 4, 4, 4}, {0}}});
  EXPECT_GT(sum.runs, 200u);
  EXPECT_GT(sum.loads, 3 * sum.runs);
}

}  // namespace
}  // namespace shoal
