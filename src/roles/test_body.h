// A body for a node in tests: steps, loads and copies take time, and are checked for sense.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "roles/node.h"

namespace shoal {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr NodeId kGateway{1000};

inline NodeModel model(uint32_t id, uint32_t pages = 4) {
  NodeModel m;
  m.model = ModelId(id);
  m.name = "m" + std::to_string(id);
  m.weight_bytes = pages * kPageBytes;
  m.kv_block_bytes = kPageBytes / 4;
  m.max_model_len = 256;
  m.vocab_size = 100;
  m.pooling.ttft_loads = 0;
  return m;
}

// Steps take 20 ms, loads 200 ms, or the share of it that they copy.
class Body {
 public:
  explicit Body(NodeConfig config) {
    config.self = NodeId(1);
    config.gateways = {kGateway};
    config.load_bytes_per_second = 4 * kPageBytes / 0.2;
    steps_max_ = config.steps_max;
    for (const NodeModel& model : config.models) asks_[model.model.value] = model.experts_elsewhere;
    node_ = std::make_unique<Node>(config);
    give(Tick{});
  }

  RequestId submit(uint32_t model_id, uint32_t max_tokens, uint32_t prompt = 8, Duration tbt_max = Duration::max(), Duration waited = Duration(0)) {
    Request r;
    r.id = RequestId(++next_id_);
    r.model = ModelId(model_id);
    for (uint32_t i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<TokenId>((i + next_id_) % 90));
    r.max_tokens = max_tokens;
    r.tbt_max = tbt_max;
    give(MessageFrom{kGateway, Submit{r, waited, std::nullopt}});
    return r.id;
  }
  void cancel(RequestId id) { give(MessageFrom{kGateway, Cancel{id, 0}}); }
  void set_resident(uint32_t model_id, bool resident) { give(MessageFrom{kGateway, SetResident{ModelId(model_id), resident}}); }
  void give(const Event& event) {
    for (Effect& effect : node_->handle(event, now_)) perform(effect);
    node_->check();
  }
  // Until nothing is under way, or `until`.
  void run(TimePoint until = TimePoint(std::chrono::hours(1))) {
    while (!pending_.empty() && pending_.begin()->first <= until) {
      now_ = std::max(now_, pending_.begin()->first);
      const Event event = std::move(pending_.begin()->second);
      if (const auto* done = std::get_if<StepDone>(&event)) stepping_.erase(done->model.value);
      if (load_ == pending_.begin()) load_.reset();
      if (packed_ == pending_.begin()) packed_.reset();
      pending_.erase(pending_.begin());
      give(event);
    }
    now_ = std::max(now_, std::min(until, now_ + seconds(1)));
  }

  struct Answer {
    uint32_t tokens = 0;
    std::optional<FinishReason> finish;
    std::string error;
    Duration retry_after{0};
    TimePoint first{}, last{};
  };
  const Answer& answer(RequestId id) { return answers_[id]; }
  ModelState state(uint32_t id) { return node_->status().models[id].state; }
  Node& node() { return *node_; }
  TimePoint now() const { return now_; }
  std::vector<uint32_t> loads, drops, steps;  // model by model, in order
  std::vector<uint32_t> rows;                 // of each step
  Duration row_time{0};                       // of a step, beside its 20 ms
  Duration away{0};                           // of a step whose experts are elsewhere: it waits so long in between
  size_t most_in_flight = 0;
  Duration load_drag{0};                      // of a step that begins beside a load, beside its own time
  Duration load_time = milliseconds(200);
  // If not 0: a model that comes while nobody computes computes after 10 ms, and its weights are packed so much later.
  Duration packing_time{0};
  Status packing_status;                      // how that ends
  Duration copy_time = milliseconds(30);      // of one move of KV
  std::set<uint32_t> deferring;               // models whose steps are
  std::map<uint32_t, Status> load_status;     // how loads of a model end, if not well
  uint64_t weights = 1;                       // which those are that a load finds
  std::vector<SwitchRecord> switches;         // as reported
  size_t copies = 0, cancels = 0;
  std::vector<uint32_t> read_ahead;

 private:
  void receive(const Tokens& tokens) {
    Answer& a = answers_[tokens.id];
    EXPECT_EQ(tokens.first_index, a.tokens);
    if (a.tokens == 0) a.first = now_;
    a.tokens += static_cast<uint32_t>(tokens.tokens.size());
    a.finish = tokens.finish;
    a.error = tokens.error;
    a.retry_after = tokens.retry_after;
    a.last = now_;
  }

  void perform(const StartStep& start) {
    EXPECT_TRUE(resident_.contains(start.model.value));
    steps.push_back(start.model.value);
    StepResult result{start.input.step, {}};
    const bool early = packed_ && start.model.value == loads.back();
    EXPECT_FALSE(early && std::exchange(stepped_while_packing_, true)) << "one step before it is packed";
    for (const StepSlice& slice : start.input.slices) {
      SliceResult out;
      out.request = slice.request;
      if (slice.sample) out.sampled.push_back({5, 0, {}});
      result.slices.push_back(out);
    }
    if (deferring.contains(start.model.value)) result = {result.step, {}, unavailable("who computes a part of it is away")};
    rows.push_back(start.input.rows());
    const Duration drag = load_ ? load_drag : Duration(0);
    // Beside another step, which has the device first, it is computed when that waits.
    if (asks_[start.model.value]) result.away = away;
    if (!stepping_.empty()) result.away += milliseconds(20);
    for (const uint32_t other : stepping_) EXPECT_TRUE(asks_[other]) << "only steps that wait for experts have others beside them";
    EXPECT_TRUE(stepping_.insert(start.model.value).second);
    most_in_flight = std::max(most_in_flight, stepping_.size());
    EXPECT_LE(stepping_.size(), steps_max_);
    pending_.emplace(now_ + milliseconds(20) + row_time * rows.back() + drag + result.away, StepDone{start.model, result});
  }

  void perform(const LoadWeights& load) {
    loads.push_back(load.model.value);
    resident_.insert(load.model.value);
    EXPECT_FALSE(load_.has_value() || packed_.has_value());
    if (packing_time > Duration(0) && load.alone) {
      stepped_while_packing_ = false;
      pending_.emplace(now_ + milliseconds(10), WeightsReady{load.model, OkStatus(), LoadStages{}, weights, /*packing=*/true});
      packed_ = pending_.emplace(now_ + milliseconds(10) + packing_time, WeightsPacked{load.model, packing_status, LoadStages{.repack_seconds = 0.2}});
      return;
    }
    const double copied = 1 - static_cast<double>(page_count(load.whole)) / page_count(load.pages);
    load_ = pending_.emplace(now_ + std::max(from_seconds(to_seconds(load_time) * copied), Duration(milliseconds(1))), WeightsReady{load.model, load_status[load.model.value], LoadStages{.repack_seconds = 0.2}, weights});
  }

  void perform(const CancelLoad& cancel) {
    ++cancels;
    EXPECT_EQ(loads.back(), cancel.model.value);
    if (packed_) {
      pending_.erase(*packed_);
      packed_ = pending_.emplace(now_ + milliseconds(1), WeightsPacked{cancel.model, absl::CancelledError("called off"), {}});
    }
    if (!load_) return;
    pending_.erase(*load_);
    load_ = pending_.emplace(now_ + milliseconds(1), WeightsReady{cancel.model, absl::CancelledError("called off"), {}});
  }

  void perform(Effect& effect) {
    if (const auto* send = std::get_if<Send>(&effect)) {
      if (const auto* status = std::get_if<NodeStatus>(&send->message)) {
        switches.insert(switches.end(), status->switches.begin(), status->switches.end());
      }
      if (const auto* tokens = std::get_if<Tokens>(&send->message)) receive(*tokens);
    } else if (const auto* start = std::get_if<StartStep>(&effect)) {
      perform(*start);
    } else if (const auto* load = std::get_if<LoadWeights>(&effect)) {
      perform(*load);
    } else if (const auto* cancel = std::get_if<CancelLoad>(&effect)) {
      perform(*cancel);
    } else if (const auto* next = std::get_if<ReadAhead>(&effect)) {
      read_ahead.push_back(next->model.value);
    } else if (const auto* drop = std::get_if<DropWeights>(&effect)) {
      EXPECT_FALSE(packed_.has_value()) << "its pages are being written to";
      drops.push_back(drop->model.value);
      resident_.erase(drop->model.value);
    } else if (const auto* copy = std::get_if<CopyKv>(&effect)) {
      ++copies;
      copied_ = std::max(copied_, now_) + copy_time;
      pending_.emplace(copied_, KvCopied{copy->model, copy->move.id});
    } else if (const auto* wake = std::get_if<WakeAt>(&effect)) {
      if (wakes_.insert(wake->at).second) pending_.emplace(std::max(now_, wake->at), Tick{});
    }
  }

  std::unique_ptr<Node> node_;
  TimePoint now_{};
  std::multimap<TimePoint, Event> pending_;
  std::optional<std::multimap<TimePoint, Event>::iterator> load_, packed_;  // under way
  bool stepped_while_packing_ = false;
  TimePoint copied_{};                                             // of those asked for so far
  std::set<TimePoint> wakes_;
  std::set<uint32_t> resident_, stepping_;
  std::map<uint32_t, bool> asks_;
  size_t steps_max_ = 1;
  std::map<RequestId, Answer> answers_;
  uint64_t next_id_ = 0;
};

inline NodeConfig config(uint32_t pages, std::vector<NodeModel> models) {
  NodeConfig c;
  c.pages = pages;
  c.models = std::move(models);
  return c;
}

// Room for one of so many models, and nobody said by when. Whoever left is not back at once.
inline NodeConfig unsaid(uint32_t of_models, Duration dark_max = TurnOptions().dark_max) {
  std::vector<NodeModel> models;
  for (uint32_t i = 0; i < of_models; ++i) models.push_back(model(i)), models.back().pooling.ttft_loads = PoolingSettings().ttft_loads;
  NodeConfig c = config(9, models);
  c.adopt_weights = false;
  c.turns.dark_max = dark_max;
  return c;
}

}  // namespace shoal
