// Who leaves or runs out of time, in every stage that a request goes through: the real router and two real nodes, one for
// prompts and one for the rest, that switch between two models. Steps, loads, copies and messages take time.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "roles/router.h"
#include "roles/test_body.h"

namespace shoal {
namespace {

constexpr NodeId kFirst{1}, kSecond{2};
constexpr uint32_t kTokens = 40;

enum class Stage { kQueued, kDraining, kLoading, kMapped, kSwapIn, kFirstStep, kSteps, kSwapOut, kHandingOver, kTicket, kFetch, kOver };

const std::vector<std::pair<Stage, const char*>>& stages() {
  static const std::vector<std::pair<Stage, const char*>> all = {
      {Stage::kQueued, "Queued"},       {Stage::kDraining, "Draining"}, {Stage::kLoading, "Loading"}, {Stage::kMapped, "Mapped"},
      {Stage::kSwapIn, "SwapIn"},       {Stage::kFirstStep, "FirstStep"}, {Stage::kSteps, "Steps"},   {Stage::kSwapOut, "SwapOut"},
      {Stage::kHandingOver, "HandingOver"}, {Stage::kTicket, "Ticket"}, {Stage::kFetch, "Fetch"}};
  return all;
}

// Weights of one model and KV of both; with `roomy` weights of both, so that one waits for the other's step.
NodeConfig node_config(NodeId self, InstanceRole instance_role, bool roomy) {
  NodeConfig config;
  config.self = self;
  config.instance_role = instance_role;
  config.pages = roomy ? 24 : 11;
  config.host_pages = 60;
  config.gateways = {kGateway};
  config.load_bytes_per_second = 4 * kPageBytes / 0.2;
  config.models = {model(0), model(1)};
  for (NodeModel& m : config.models) m.pooling.slo.ttft = milliseconds(500);  // so that nobody can wait until the other's answers have ended
  return config;
}

Request request_of(uint64_t id) {
  Request r;
  r.id = RequestId(id);
  r.model = ModelId(static_cast<uint32_t>(id % 2));
  for (uint32_t i = 0; i < (id < 3 ? 120u : 50u); ++i) r.prompt.push_back(static_cast<TokenId>((i + id) % 90));
  r.max_tokens = kTokens;
  return r;
}

class Cluster {
 public:
  struct Answer {
    uint32_t tokens = 0;
    std::optional<FinishReason> finish;
    Status refused;
    uint32_t ends = 0;
  };

  // Four requests for two models. The first one is looked at, and has this deadline.
  explicit Cluster(bool roomy, TimePoint deadline = kForever) : router_(RouterConfig{kGateway}) {
    nodes_.emplace(kFirst, node_config(kFirst, InstanceRole::kPrefill, roomy));
    nodes_.emplace(kSecond, node_config(kSecond, InstanceRole::kDecode, roomy));
    ClusterState state{.version = 1};
    for (const NodeId id : {kFirst, kSecond}) state.members[id] = {.id = id, .epoch = 1, .models = {ModelId(0), ModelId(1)}};
    for (const NodeId id : {kGateway, kFirst, kSecond}) give(id, ClusterChanged{state});
    for (const NodeId id : {kFirst, kSecond}) give(id, Tick{});
    run_until(TimePoint(milliseconds(10)));
    for (uint64_t id = 1; id <= 4; ++id) give(kGateway, NewRequest{request_of(id), id == kWatched.sequence ? deadline : kForever});
  }

  static constexpr RequestId kWatched{1};

  TimePoint now() const { return now_; }
  bool over() const { return pending_.empty() || answers_finished() == 4; }
  // The next event.
  void step() {
    const auto next = pending_.begin();
    now_ = std::max(now_, next->first);
    const auto [to, event] = std::move(next->second);
    pending_.erase(next);
    give(to, event);
  }
  void run_until(TimePoint until) {
    while (!pending_.empty() && pending_.begin()->first <= until) step();
    now_ = std::max(now_, until);
  }
  void leave() { give(kGateway, ClientGone{kWatched}); }
  const Answer& answer(uint64_t id) { return answers_[RequestId(id)]; }

  Stage stage() const {
    const auto found = answers_.find(kWatched);
    if (found != answers_.end() && found->second.ends > 0) return Stage::kOver;
    const auto pending = [&](const auto& holds) {
      return std::any_of(pending_.begin(), pending_.end(), [&](const auto& p) { return holds(p.second.first, p.second.second); });
    };
    const ModelId model = request_of(kWatched.sequence).model;
    if (pending([&](NodeId, const Event& e) { return steps_it(e); })) return steps_since_load_ == 1 ? Stage::kFirstStep : Stage::kSteps;
    if (copy_) return *copy_;
    if (pending([&](NodeId, const Event& e) { return about_its_kv(e); })) return Stage::kTicket;
    const auto at_holder = [&](const auto& holds) { return pending([&](NodeId to, const Event& e) { return to == holder_ && holds(e); }); };
    if (at_holder([&](const Event& e) { const auto* ready = std::get_if<WeightsReady>(&e); return ready != nullptr && ready->model == model; })) {
      return Stage::kLoading;
    }
    const auto status = holder_ == kGateway ? NodeStatus() : nodes_.at(holder_).status();
    for (const ModelStatus& m : status.models) {
      if (m.model == model && m.state == ModelState::kLoaded) return Stage::kMapped;
    }
    return at_holder([](const Event& e) { return std::holds_alternative<KvCopied>(e); }) ? Stage::kDraining : Stage::kQueued;
  }

  // Nobody holds anything any more.
  void expect_clean() {
    EXPECT_EQ(router_.live_requests(), 0u);
    for (const auto& [id, node] : nodes_) {
      EXPECT_TRUE(node.idle()) << "node " << id.value;
      for (const ModelStatus& m : node.status().models) {
        EXPECT_EQ(m.kv_bytes_active, 0u);
        EXPECT_EQ(m.kv_bytes_host, 0u);
      }
    }
  }

 private:
  using Pending = std::multimap<TimePoint, std::pair<NodeId, Event>>;

  size_t answers_finished() const {
    return static_cast<size_t>(std::count_if(answers_.begin(), answers_.end(), [](const auto& a) { return a.second.ends > 0; }));
  }
  static bool steps_it(const Event& event) {
    const auto* done = std::get_if<StepDone>(&event);
    return done != nullptr && std::any_of(done->result.slices.begin(), done->result.slices.end(), [](const SliceResult& s) { return s.request == kWatched; });
  }
  static bool about_its_kv(const Event& event) {
    const auto* message = std::get_if<MessageFrom>(&event);
    if (message == nullptr) return false;
    if (const auto* m = std::get_if<Handover>(&message->message)) return m->id == kWatched;
    if (const auto* m = std::get_if<KvWanted>(&message->message)) return m->id == kWatched;
    if (const auto* m = std::get_if<KvGranted>(&message->message)) return m->id == kWatched;
    const auto* submit = std::get_if<Submit>(&message->message);
    return submit != nullptr && submit->request.id == kWatched && submit->kv.has_value();
  }

  void after(Duration duration, NodeId to, Event event) { pending_.emplace(now_ + duration, std::pair(to, std::move(event))); }

  void give(NodeId to, const Event& event) {
    if (const auto* copied = std::get_if<KvCopied>(&event)) {
      if (its_copy_ == std::tuple(to, copied->model, copied->move)) copy_.reset();
    }
    if (to == kGateway) {
      for (Effect& effect : router_.handle(event, now_)) perform(to, effect);
      router_.check();
      return;
    }
    Node& node = nodes_.at(to);
    for (Effect& effect : node.handle(event, now_)) perform(to, effect);
    node.check();
  }

  void perform(NodeId self, Effect& effect) {
    if (auto* send = std::get_if<Send>(&effect)) {
      if (const auto* submit = std::get_if<Submit>(&send->message); submit != nullptr && submit->request.id == kWatched) holder_ = send->to;
      after(milliseconds(1), send->to, MessageFrom{self, std::move(send->message)});
    } else if (const auto* start = std::get_if<StartStep>(&effect)) {
      step_of(self, *start);
    } else if (const auto* load = std::get_if<LoadWeights>(&effect)) {
      after(milliseconds(200), self, WeightsReady{load->model, OkStatus(), {}, 1});
      if (load->model == request_of(kWatched.sequence).model) steps_since_load_ = 0;
    } else if (const auto* cancel = std::get_if<CancelLoad>(&effect)) {
      std::erase_if(pending_, [&](const auto& p) { return p.second.first == self && std::holds_alternative<WeightsReady>(p.second.second); });
      after(milliseconds(1), self, WeightsReady{cancel->model, absl::CancelledError("called off"), {}});
    } else if (const auto* copy = std::get_if<CopyKv>(&effect)) {
      after(milliseconds(30), self, KvCopied{copy->model, copy->move.id});
      if (copy->move.request == kWatched) {
        its_copy_ = std::tuple(self, copy->model, copy->move.id);
        copy_ = copy->move.remote ? Stage::kFetch : copy->move.to == Tier::kDevice ? Stage::kSwapIn : self == kFirst ? Stage::kHandingOver : Stage::kSwapOut;
      }
    } else if (const auto* wake = std::get_if<WakeAt>(&effect)) {
      if (wakes_.emplace(self, wake->at).second) pending_.emplace(std::max(now_, wake->at), std::pair(self, Tick{}));
    } else if (const auto* deliver = std::get_if<Deliver>(&effect)) {
      Answer& answer = answers_[deliver->tokens.id];
      EXPECT_EQ(answer.ends, 0u);
      EXPECT_EQ(deliver->tokens.first_index, answer.tokens);
      answer.tokens += static_cast<uint32_t>(deliver->tokens.tokens.size());
      answer.finish = deliver->tokens.finish;
      answer.ends += deliver->tokens.finish.has_value();
    } else if (const auto* refuse = std::get_if<Refuse>(&effect)) {
      answers_[refuse->id].refused = refuse->status;
      ++answers_[refuse->id].ends;
    }
  }

  void step_of(NodeId self, const StartStep& start) {
    StepResult result{start.input.step, {}};
    for (const StepSlice& slice : start.input.slices) {
      SliceResult one{.request = slice.request};
      if (slice.sample) one.sampled.push_back({5, 0, {}});
      result.slices.push_back(std::move(one));
    }
    StepDone done{start.model, std::move(result)};
    if (self == holder_ && steps_it(done)) ++steps_since_load_;
    after(milliseconds(20), self, std::move(done));
  }

  Router router_;
  std::map<NodeId, Node> nodes_;
  TimePoint now_{};
  Pending pending_;
  std::set<std::pair<NodeId, TimePoint>> wakes_;
  std::map<RequestId, Answer> answers_;
  NodeId holder_ = kGateway;                             // of the watched request
  uint32_t steps_since_load_ = 0;                        // of it
  std::optional<Stage> copy_;                            // of its KV under way
  std::tuple<NodeId, ModelId, uint64_t> its_copy_{};
};

// Instants of a run that nobody disturbs at which the watched request is in this stage, at most so many, spread evenly.
std::vector<TimePoint> moments(Stage stage, size_t most) {
  Cluster cluster(stage == Stage::kMapped);
  std::vector<TimePoint> all;
  while (!cluster.over()) {
    cluster.step();
    if (cluster.stage() == stage && (all.empty() || all.back() != cluster.now())) all.push_back(cluster.now());
  }
  std::vector<TimePoint> some;
  for (size_t i = 0; i < std::min(most, all.size()); ++i) some.push_back(all[i * all.size() / std::min(most, all.size())]);
  return some;
}

class InEveryStage : public testing::TestWithParam<size_t> {
 protected:
  const Stage stage_ = stages()[GetParam()].first;
  static void expect_others_whole(Cluster& cluster) {
    for (uint64_t id = 2; id <= 4; ++id) {
      EXPECT_EQ(cluster.answer(id).tokens, kTokens) << "request " << id;
      EXPECT_EQ(cluster.answer(id).finish, FinishReason::kLength);
    }
    cluster.expect_clean();
  }
};

TEST_P(InEveryStage, WhoLeavesLeavesNothingBehind) {
  const auto when = moments(stage_, 25);
  ASSERT_FALSE(when.empty()) << "the run never comes to this stage";
  for (const TimePoint moment : when) {
    SCOPED_TRACE(to_seconds(moment.time_since_epoch()));
    Cluster cluster(stage_ == Stage::kMapped);
    cluster.run_until(moment);
    const uint32_t before = cluster.answer(1).tokens;
    cluster.leave();
    cluster.run_until(TimePoint(std::chrono::minutes(2)));
    EXPECT_EQ(cluster.answer(1).tokens, before);
    EXPECT_EQ(cluster.answer(1).ends, 0u);
    expect_others_whole(cluster);
  }
}

TEST_P(InEveryStage, WhoIsOutOfTimeHearsSoOnceAndTheOthersGoOn) {
  for (const TimePoint moment : moments(stage_, 25)) {
    SCOPED_TRACE(to_seconds(moment.time_since_epoch()));
    Cluster cluster(stage_ == Stage::kMapped, moment);
    cluster.run_until(TimePoint(std::chrono::minutes(2)));
    EXPECT_EQ(cluster.answer(1).refused.code(), StatusCode::kDeadlineExceeded);
    EXPECT_LT(cluster.answer(1).tokens, kTokens);
    EXPECT_EQ(cluster.answer(1).ends, 1u);
    expect_others_whole(cluster);
  }
}

INSTANTIATE_TEST_SUITE_P(OfASwitch, InEveryStage, testing::Range<size_t>(0, stages().size()),
                         [](const auto& info) { return std::string(stages()[info.param].second); });

}  // namespace
}  // namespace shoal
