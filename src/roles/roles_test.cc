#include <gtest/gtest.h>

#include "roles/node.h"
#include "roles/router.h"

namespace shoal {
namespace {

using std::chrono::milliseconds;

template <typename T>
std::vector<T> of_kind(const std::vector<Effect>& effects) {
  std::vector<T> found;
  for (const Effect& effect : effects) {
    if (const auto* e = std::get_if<T>(&effect)) found.push_back(*e);
  }
  return found;
}

template <typename M>
std::vector<M> sent(const std::vector<Effect>& effects) {
  std::vector<M> found;
  for (const Send& send : of_kind<Send>(effects)) {
    if (const auto* m = std::get_if<M>(&send.message)) found.push_back(*m);
  }
  return found;
}

// ---- router ---------------------------------------------------------------------------------------------------------

constexpr NodeId kGateway{1000};

ClusterState cluster(const std::vector<std::pair<uint32_t, uint32_t>>& nodes_and_epochs, uint64_t version = 1) {
  ClusterState state;
  for (const auto& [id, epoch] : nodes_and_epochs) state.members[NodeId(id)] = {NodeId(id), Role::kNode, epoch, {ModelId(0)}, false};
  state.version = version;
  return state;
}

NewRequest request(uint64_t id, TimePoint deadline = kForever) {
  Request r;
  r.id = RequestId(id);
  r.model = ModelId(0);
  r.prompt = {1, 2, 3};
  r.max_tokens = 10;
  return {r, deadline};
}

MessageFrom tokens(uint32_t node, uint64_t id, uint32_t first_index, std::vector<TokenId> ids, uint32_t epoch = 0,
                   std::optional<FinishReason> finish = std::nullopt) {
  Tokens t;
  t.id = RequestId(id);
  t.epoch = epoch;
  t.first_index = first_index;
  for (const TokenId token : ids) t.tokens.push_back({token, 0, {}});
  t.finish = finish;
  t.weights = ids.empty() ? 0 : 99;
  return {NodeId(node), t};
}

TEST(Router, ARequestGoesToANodeAndItsTokensToTheClient) {
  Router router({kGateway});
  router.handle(ClusterChanged{cluster({{1, 1}})}, TimePoint{});
  const auto submitted = sent<Submit>(router.handle(request(5), TimePoint{}));
  ASSERT_EQ(submitted.size(), 1u);
  const auto delivered = of_kind<Deliver>(router.handle(tokens(1, 5, 0, {7, 8}, 0, FinishReason::kStop), TimePoint{}));
  ASSERT_EQ(delivered.size(), 1u);
  EXPECT_EQ(delivered[0].tokens.tokens.size(), 2u);
  EXPECT_EQ(router.live_requests(), 0u);
  router.check();
}

TEST(Router, WithoutANodeARequestIsRefusedWithAHint) {
  Router router({kGateway});
  const auto refused = of_kind<Refuse>(router.handle(request(5), TimePoint{}));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].status.code(), StatusCode::kUnavailable);
  EXPECT_GT(refused[0].retry_after, Duration(0));
}

TEST(Router, SettingsGoToTheNodesThatServeTheModel) {
  Router router({kGateway});
  router.handle(ClusterChanged{cluster({{1, 1}, {2, 1}})}, TimePoint{});
  EXPECT_EQ(sent<Configure>(router.handle(SettingsWanted{{ModelId(0), milliseconds(1), milliseconds(1)}}, TimePoint{})).size(), 2u);
  EXPECT_TRUE(sent<Configure>(router.handle(SettingsWanted{{ModelId(7), milliseconds(1), milliseconds(1)}}, TimePoint{})).empty());
}

TEST(Router, AReportMayNameItsModelsInAnyOrder) {
  Router router({kGateway});
  ClusterState state = cluster({{1, 1}, {2, 1}});
  state.members[NodeId(3)] = {NodeId(3), Role::kNode, 1, {ModelId(9)}, false};  // serves something else
  router.handle(ClusterChanged{state}, TimePoint{});
  const auto report = [](double here) {
    NodeStatus status;
    for (const auto& [model, wait] : {std::pair(4u, 0.0), {0u, here}, {2u, 0.0}}) {
      status.models.emplace_back().model = ModelId(model);
      status.models.back().wait_seconds = wait;
    }
    return status;
  };
  router.handle(MessageFrom{NodeId(1), report(5)}, TimePoint{});
  router.handle(MessageFrom{NodeId(2), report(1)}, TimePoint{});
  const auto sends = of_kind<Send>(router.handle(request(5), TimePoint{}));
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].to, NodeId(2)) << "where it is begun first";
}

// A node that has only seen short answers of a model has no shorter ones to give.
TEST(Router, HowLongAnAnswerWillBeDoesNotDependOnTheNode) {
  Router router({kGateway});
  router.handle(ClusterChanged{cluster({{1, 1}, {2, 1}})}, TimePoint{});
  const auto report = [](double pressure, double answer_tokens, uint64_t seen) {
    NodeStatus status;
    status.decode_pressure = pressure;
    ModelStatus& m = status.models.emplace_back();
    m.model = ModelId(0);
    m.answer_tokens = answer_tokens;
    m.generated_tokens = seen;
    return status;
  };
  router.handle(MessageFrom{NodeId(1), report(0.8, 100, 1000)}, TimePoint{});
  router.handle(MessageFrom{NodeId(2), report(0.4, 300, 100'000)}, TimePoint{});
  const auto sends = of_kind<Send>(router.handle(request(5), TimePoint{}));
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].to, NodeId(2)) << "which has more time";
}

TEST(Router, OverItsLimitItRefuses) {
  Router router({kGateway, 1});
  router.handle(ClusterChanged{cluster({{1, 1}})}, TimePoint{});
  router.handle(request(1), TimePoint{});
  EXPECT_EQ(of_kind<Refuse>(router.handle(request(2), TimePoint{})).size(), 1u);
}

// The operator took the model away meanwhile: it is on no list any more.
TEST(Router, WhoHasTheRequestServesItsModelToTheEnd) {
  Router router({kGateway});
  router.handle(ClusterChanged{cluster({{1, 1}, {2, 1}})}, TimePoint{});
  router.handle(request(5), TimePoint{});
  ClusterState without = cluster({{1, 1}, {2, 1}}, 2);
  for (auto& [id, member] : without.members) member.models.clear();
  EXPECT_TRUE(router.handle(ClusterChanged{without}, TimePoint{}).empty());
  EXPECT_EQ(of_kind<Refuse>(router.handle(request(6), TimePoint{})).size(), 1u);
  const KvTicket ticket{NodeId(1), 0, 2, 64, 0};
  const auto effects = router.handle(MessageFrom{NodeId(1), Handover{RequestId(5), 0, ticket}}, TimePoint{});
  const auto again = sent<Submit>(effects);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(of_kind<Send>(effects).at(0).to, NodeId(1));
  EXPECT_EQ(again[0].request.epoch, 1u);
  EXPECT_EQ(again[0].kv, ticket);
  for (auto& [id, member] : without.members) member.epoch = 2;  // a new life has nothing
  without.version = 3;
  EXPECT_TRUE(sent<Submit>(router.handle(ClusterChanged{without}, TimePoint{})).empty());
  router.check();
}

TEST(Router, ALostNodeIsReplacedFromTheTokensDelivered) {
  Router router({kGateway});
  router.handle(ClusterChanged{cluster({{1, 1}, {2, 1}})}, TimePoint{});
  router.handle(request(5), TimePoint{});
  router.handle(tokens(1, 5, 0, {7, 8}), TimePoint{});
  const auto replayed = sent<Submit>(router.handle(ClusterChanged{cluster({{2, 1}}, 2)}, TimePoint{}));
  ASSERT_EQ(replayed.size(), 1u);
  EXPECT_EQ(replayed[0].request.output, (std::vector<TokenId>{7, 8}));
  EXPECT_EQ(replayed[0].request.weights, 99u);
  EXPECT_EQ(replayed[0].request.epoch, 1u);
  // What the old owner still says is of a lower epoch, and not shown.
  EXPECT_TRUE(of_kind<Deliver>(router.handle(tokens(1, 5, 2, {9}), TimePoint{})).empty());
  EXPECT_EQ(of_kind<Deliver>(router.handle(tokens(2, 5, 2, {9}, 1), TimePoint{})).size(), 1u);
  router.check();
}

// It lives, and is in the cluster; what was sent to it, or by it, did not arrive.
TEST(Router, WhatANodeThatLostMessagesHadIsPlacedThereAnewWhenItIsHeardOfWithTheSettings) {
  Router router({kGateway});
  router.handle(ClusterChanged{cluster({{1, 1}})}, TimePoint{});
  router.handle(SettingsWanted{{ModelId(0), {}}}, TimePoint{});
  router.handle(request(5), TimePoint{});
  router.handle(tokens(1, 5, 0, {7}), TimePoint{});
  const auto effects = router.handle(PeerLost{NodeId(1)}, TimePoint{});
  EXPECT_TRUE(sent<Submit>(effects).empty()) << "nobody listens there";
  EXPECT_TRUE(sent<Configure>(effects).empty()) << "or it would be told for ever";
  EXPECT_TRUE(of_kind<Deliver>(router.handle(tokens(1, 5, 1, {8}), TimePoint{})).empty()) << "of the epoch before";
  EXPECT_TRUE(of_kind<Refuse>(router.handle(request(6), TimePoint{})).empty()) << "its node is only out of reach";
  NodeStatus status;
  status.version = 1;
  const auto heard = router.handle(MessageFrom{NodeId(1), status}, TimePoint{});
  EXPECT_EQ(sent<Configure>(heard).size(), 1u);
  const auto again = sent<Submit>(heard);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].request.epoch, 1u);
  EXPECT_EQ(again[0].request.output, (std::vector<TokenId>{7}));
  EXPECT_EQ(again[1].request.id, RequestId(6));
  EXPECT_TRUE(sent<Configure>(router.handle(MessageFrom{NodeId(1), status}, TimePoint{})).empty());
  router.check();
}

TEST(Router, ARequestOutlivesAnyNumberOfLosses) {
  Router router({kGateway});
  router.handle(ClusterChanged{cluster({{1, 1}, {2, 1}})}, TimePoint{});
  ASSERT_EQ(sent<Submit>(router.handle(request(5), TimePoint{})).size(), 1u);
  uint64_t version = 0;
  for (uint32_t loss = 0; loss < 100; ++loss) {
    NodeStatus status;
    status.version = ++version;
    for (const uint32_t node : {1u, 2u}) {
      router.handle(PeerLost{NodeId(node)}, TimePoint{});
      router.handle(MessageFrom{NodeId(node), status}, TimePoint{});
    }
    ASSERT_EQ(router.live_requests(), 1u);
  }
  router.check();
}

TEST(Router, NothingIsPlacedOnANodeThatIsOutOfReachWhileAnotherServesTheModel) {
  Router router({kGateway});
  router.handle(ClusterChanged{cluster({{1, 1}, {2, 1}})}, TimePoint{});
  router.handle(PeerLost{NodeId(1)}, TimePoint{});
  for (uint64_t id = 5; id < 15; ++id) {
    for (const Effect& effect : router.handle(request(id), TimePoint{})) {
      if (const auto* send = std::get_if<Send>(&effect)) {
        EXPECT_EQ(send->to, NodeId(2));
      }
    }
  }
}

TEST(Router, ARestartedNodeHasForgottenItsRequests) {
  Router router({kGateway});
  router.handle(ClusterChanged{cluster({{1, 1}})}, TimePoint{});
  router.handle(request(5), TimePoint{});
  const auto replayed = sent<Submit>(router.handle(ClusterChanged{cluster({{1, 2}}, 2)}, TimePoint{}));
  EXPECT_EQ(replayed.size(), 1u);
}

TEST(Router, AGapIsNeverShownButReplayed) {
  Router router({kGateway});
  router.handle(ClusterChanged{cluster({{1, 1}})}, TimePoint{});
  router.handle(request(5), TimePoint{});
  router.handle(tokens(1, 5, 0, {7}), TimePoint{});
  const auto effects = router.handle(tokens(1, 5, 3, {9}), TimePoint{});
  EXPECT_TRUE(of_kind<Deliver>(effects).empty());
  EXPECT_EQ(sent<Cancel>(effects).size(), 1u);
  ASSERT_EQ(sent<Submit>(effects).size(), 1u);
  EXPECT_EQ(sent<Submit>(effects)[0].request.output, std::vector<TokenId>{7});
}

TEST(Router, ARequestThatNodesGiveUpIsPlacedSoManyTimes) {
  Router router({kGateway, 10, 2});
  router.handle(ClusterChanged{cluster({{1, 1}})}, TimePoint{});
  router.handle(request(5), TimePoint{});
  size_t refused = 0;
  for (uint32_t epoch = 0; epoch <= 2; ++epoch) {
    Tokens gave_up;
    gave_up.id = RequestId(5);
    gave_up.epoch = epoch;
    gave_up.finish = FinishReason::kError;
    gave_up.error_code = StatusCode::kUnavailable;
    gave_up.error = "no room";
    refused += of_kind<Refuse>(router.handle(MessageFrom{NodeId(1), gave_up}, TimePoint{})).size();
  }
  EXPECT_EQ(refused, 1u);
  EXPECT_EQ(router.live_requests(), 0u);
}

TEST(Router, WhatANodeSaysOfComingBackReachesTheClient) {
  Router router({kGateway, 10, 0});
  router.handle(ClusterChanged{cluster({{1, 1}})}, TimePoint{});
  router.handle(request(5), TimePoint{});
  MessageFrom full = tokens(1, 5, 0, {}, 0, FinishReason::kError);
  std::get<Tokens>(full.message).error_code = StatusCode::kUnavailable;
  std::get<Tokens>(full.message).retry_after = std::chrono::seconds(7);
  const auto refused = of_kind<Refuse>(router.handle(full, TimePoint{}));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].retry_after, std::chrono::seconds(7));
}

TEST(Router, AClientThatLeavesCancelsItsWork) {
  Router router({kGateway});
  router.handle(ClusterChanged{cluster({{1, 1}})}, TimePoint{});
  router.handle(request(5), TimePoint{});
  EXPECT_EQ(sent<Cancel>(router.handle(ClientGone{RequestId(5)}, TimePoint{})).size(), 1u);
  EXPECT_TRUE(router.handle(ClientGone{RequestId(5)}, TimePoint{}).empty());
  EXPECT_TRUE(of_kind<Deliver>(router.handle(tokens(1, 5, 0, {7}), TimePoint{})).empty());
}

TEST(Router, ADeadlineEndsARequestOnce) {
  Router router({kGateway});
  router.handle(ClusterChanged{cluster({{1, 1}})}, TimePoint{});
  const auto wakes = of_kind<WakeAt>(router.handle(request(5, TimePoint(milliseconds(10))), TimePoint{}));
  ASSERT_EQ(wakes.size(), 1u);
  EXPECT_EQ(wakes[0].at, TimePoint(milliseconds(10)));
  const auto effects = router.handle(Tick{}, TimePoint(milliseconds(10)));
  EXPECT_EQ(sent<Cancel>(effects).size(), 1u);
  ASSERT_EQ(of_kind<Refuse>(effects).size(), 1u);
  EXPECT_EQ(of_kind<Refuse>(effects)[0].status.code(), StatusCode::kDeadlineExceeded);
}

TEST(Router, DrainingRefusesTheNewAndFinishesTheOld) {
  Router router({kGateway});
  router.handle(ClusterChanged{cluster({{1, 1}})}, TimePoint{});
  router.handle(request(5), TimePoint{});
  router.handle(DrainRequested{}, TimePoint{});
  EXPECT_EQ(of_kind<Refuse>(router.handle(request(6), TimePoint{})).size(), 1u);
  EXPECT_EQ(of_kind<Deliver>(router.handle(tokens(1, 5, 0, {7}, 0, FinishReason::kStop), TimePoint{})).size(), 1u);
}

// ---- node -----------------------------------------------------------------------------------------------------------

NodeModel model(uint32_t id, uint32_t pages) {
  NodeModel m;
  m.model = ModelId(id);
  m.name = "m" + std::to_string(id);
  m.weight_bytes = pages * kPageBytes;
  m.kv_block_bytes = kPageBytes / 4;
  m.max_model_len = 64;
  m.vocab_size = 100;
  return m;
}

NodeConfig node_config(uint32_t pages) {
  NodeConfig config;
  config.self = NodeId(1);
  config.pages = pages;
  config.models = {model(0, 2), model(1, 2)};
  config.gateways = {kGateway};
  return config;
}

MessageFrom submit(uint64_t id, uint32_t model_id, uint32_t epoch = 0) {
  Request r;
  r.id = RequestId(id);
  r.model = ModelId(model_id);
  r.epoch = epoch;
  r.prompt = {1, 2, 3};
  r.max_tokens = 2;
  return {kGateway, Submit{r}};
}

StepDone done(const StartStep& start) {
  StepResult result{start.input.step, {}};
  for (const StepSlice& slice : start.input.slices) {
    SliceResult out;
    out.request = slice.request;
    if (slice.sample) out.sampled.push_back({5, 0, {}});
    result.slices.push_back(out);
  }
  return {start.model, result};
}

// Performs effects until nothing is left to do; returns the tokens sent.
std::vector<Tokens> run(Node& node, std::vector<Effect> effects, TimePoint now, Status load_status = OkStatus()) {
  std::vector<Tokens> out;
  while (true) {
    for (const Tokens& t : sent<Tokens>(effects)) out.push_back(t);
    const auto loads = of_kind<LoadWeights>(effects);
    const auto steps = of_kind<StartStep>(effects);
    if (loads.empty() && steps.empty()) return out;
    std::vector<Effect> next;
    for (const auto& load : loads) {
      for (Effect& e : node.handle(WeightsReady{load.model, load_status}, now)) next.push_back(std::move(e));
    }
    for (const auto& step : steps) {
      for (Effect& e : node.handle(done(step), now)) next.push_back(std::move(e));
    }
    node.check();
    effects = std::move(next);
  }
}

TEST(Node, ARequestLoadsItsModelAndRunsToItsEnd) {
  Node node(node_config(8));
  const auto effects = node.handle(submit(1, 0), TimePoint{});
  ASSERT_EQ(of_kind<LoadWeights>(effects).size(), 1u);
  const auto out = run(node, effects, TimePoint{});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[1].finish, FinishReason::kLength);
  EXPECT_TRUE(node.idle());
}

// It was there when the request was placed: to be asked for again, by its name.
TEST(Node, AnUnknownModelIsRefused) {
  Node node(node_config(8));
  const auto out = sent<Tokens>(node.handle(submit(1, 7), TimePoint{}));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].error_code, StatusCode::kUnavailable);
}

TEST(Node, AFailedLoadFailsItsRequestsWithTheReasonAndTheNextTriesAgain) {
  Node node(node_config(8));
  const auto out = run(node, node.handle(submit(1, 0), TimePoint{}), TimePoint{}, data_loss("bad file"));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_NE(out[0].error.find("bad file"), std::string::npos);
  EXPECT_NE(out[0].error.find("m0"), std::string::npos);
  EXPECT_EQ(out[0].error_code, StatusCode::kFailedPrecondition);  // to the client: 503 model_load_failed
  EXPECT_TRUE(node.idle());
  EXPECT_EQ(node.status().models[0].state, ModelState::kFailed);
  EXPECT_EQ(run(node, node.handle(submit(2, 0), TimePoint{}), TimePoint{}).size(), 2u);
}

TEST(Node, TheLeastRecentlyUsedModelMakesRoom) {
  Node node(node_config(4));
  run(node, node.handle(submit(1, 0), TimePoint{}), TimePoint{});
  const auto effects = node.handle(submit(2, 1), TimePoint(milliseconds(1)));
  ASSERT_EQ(of_kind<DropWeights>(effects).size(), 1u);
  EXPECT_EQ(of_kind<DropWeights>(effects)[0].model, ModelId(0));
  EXPECT_EQ(run(node, effects, TimePoint(milliseconds(1))).size(), 2u);
}

TEST(Node, ACopyOfARequestIsIgnoredAndAHigherEpochTakesOver) {
  Node node(node_config(8));
  run(node, node.handle(MessageFrom{kGateway, SetResident{ModelId(0), true}}, TimePoint{}), TimePoint{});
  const auto first = node.handle(submit(1, 0), TimePoint{});
  ASSERT_EQ(of_kind<StartStep>(first).size(), 1u);
  EXPECT_TRUE(of_kind<StartStep>(node.handle(submit(1, 0), TimePoint{})).empty());
  EXPECT_TRUE(sent<Tokens>(node.handle(submit(1, 0, 1), TimePoint{})).empty());  // withheld: the step still writes for it
  EXPECT_TRUE(sent<Tokens>(node.handle(submit(1, 0, 0), TimePoint{})).empty());
  node.check();
  const auto answer = run(node, first, TimePoint{});
  ASSERT_EQ(answer.size(), 2u);
  EXPECT_EQ(answer[0].epoch, 1u);
  EXPECT_EQ(answer[0].error_code, StatusCode::kOk);
  EXPECT_TRUE(node.idle());
}

TEST(Node, ARequestThatWaitsForItsWithdrawnSelfCanBeWithdrawnToo) {
  Node node(node_config(8));
  run(node, node.handle(MessageFrom{kGateway, SetResident{ModelId(0), true}}, TimePoint{}), TimePoint{});
  const auto first = node.handle(submit(1, 0), TimePoint{});
  node.handle(submit(1, 0, 1), TimePoint{});
  node.handle(MessageFrom{kGateway, Cancel{RequestId(1), 0}}, TimePoint{});  // of the one before: came late
  EXPECT_FALSE(node.idle());
  node.handle(submit(1, 0, 2), TimePoint{});
  node.handle(MessageFrom{kGateway, Cancel{RequestId(1), 2}}, TimePoint{});
  EXPECT_TRUE(run(node, first, TimePoint{}).empty());
  EXPECT_TRUE(node.idle());
}

TEST(Node, WhatALostGatewayAskedForEnds) {
  Node node(node_config(8));
  const auto members = [](uint32_t gateway_epoch) {
    ClusterState state;
    state.members[kGateway] = {.id = kGateway, .role = Role::kGateway, .epoch = gateway_epoch};
    return ClusterChanged{state};
  };
  node.handle(members(1), TimePoint{});
  run(node, node.handle(MessageFrom{kGateway, SetResident{ModelId(0), true}}, TimePoint{}), TimePoint{});
  const auto stepping = node.handle(submit(1, 0), TimePoint{});
  node.handle(submit(2, 1), TimePoint{});  // waits for its load
  node.handle(members(2), TimePoint{});    // the gateway has come back, with another life
  node.check();
  EXPECT_TRUE(run(node, stepping, TimePoint{}).empty());
  EXPECT_EQ(node.status().models[1].waiting, 0u);
}

TEST(Node, WhatAGatewayAsksInANewLifeOutlivesTheNewsOfThatLife) {
  Node node(node_config(8));
  const auto picture = [](uint64_t version, uint32_t life) {
    ClusterState state{.version = version};
    state.members[kGateway] = {kGateway, Role::kGateway, life, {}, false};
    return ClusterChanged{state};
  };
  const auto asked = [](uint64_t id, uint32_t life) {
    MessageFrom message = submit(id, 0);
    message.life = life;
    return message;
  };
  node.handle(picture(1, 5), TimePoint{});
  auto effects = node.handle(asked(1, 5), TimePoint{});
  for (Effect& effect : node.handle(asked(2, 6), TimePoint{})) effects.push_back(std::move(effect));
  node.handle(picture(2, 5), TimePoint{});  // from before
  node.handle(picture(3, 6), TimePoint{});
  const auto out = run(node, effects, TimePoint{});
  ASSERT_FALSE(out.empty());
  for (const Tokens& tokens : out) EXPECT_EQ(tokens.id, RequestId(2)) << "the first one ended with the life that asked";
  EXPECT_TRUE(out.back().finish.has_value());
}

TEST(Node, ResidentOnRequestAndGoneOnRequest) {
  Node node(node_config(8));
  run(node, node.handle(MessageFrom{kGateway, SetResident{ModelId(1), true}}, TimePoint{}), TimePoint{});
  EXPECT_EQ(node.status().models[1].state, ModelState::kLoaded);
  const auto effects = node.handle(MessageFrom{kGateway, SetResident{ModelId(1), false}}, TimePoint{});
  EXPECT_EQ(of_kind<DropWeights>(effects).size(), 1u);
  EXPECT_EQ(node.status().models[1].state, ModelState::kUnloaded);
  EXPECT_EQ(node.status().device_bytes_free, node.status().device_bytes);
}

Configure settings_of(const NodeModel& m) { return {m.model, m.pooling}; }

TEST(Node, NewSettingsHoldFromNowOn) {
  Node node(node_config(8));
  Configure settings = settings_of(model(0, 2));
  settings.settings.pinned = true;  // loaded at once
  const auto pinned = node.handle(MessageFrom{kGateway, settings}, TimePoint{});
  ASSERT_EQ(of_kind<LoadWeights>(pinned).size(), 1u);
  const TimePoint loaded{milliseconds(50)};  // so long do loads take here
  run(node, pinned, loaded);
  settings.settings.pinned = false;
  settings.settings.idle_ttl = std::chrono::seconds(5);
  node.handle(MessageFrom{kGateway, settings}, loaded);
  EXPECT_TRUE(of_kind<DropWeights>(node.handle(Tick{}, TimePoint(std::chrono::seconds(4)))).empty());
  EXPECT_EQ(of_kind<DropWeights>(node.handle(Tick{}, loaded + std::chrono::seconds(5))).size(), 1u);
  settings = settings_of(model(1, 2));
  settings.settings.max_wait = milliseconds(1);  // less than a load
  node.handle(MessageFrom{kGateway, settings}, TimePoint(std::chrono::seconds(6)));
  const auto refused = sent<Tokens>(node.handle(submit(1, 1), TimePoint(std::chrono::seconds(6))));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_NE(refused[0].error.find("max_wait"), std::string::npos);
  settings.model = ModelId(9);  // of somebody else
  EXPECT_TRUE(of_kind<LoadWeights>(node.handle(MessageFrom{kGateway, settings}, TimePoint(std::chrono::seconds(6)))).empty());
  node.check();
}

TEST(Node, AModelComesAndLeavesWhenItsRequestsHaveEnded) {
  Node node(node_config(8));
  node.handle(ModelAdded{model(7, 2)}, TimePoint{});
  EXPECT_EQ(run(node, node.handle(submit(1, 7), TimePoint{}), TimePoint{}).size(), 2u);
  const auto running = node.handle(submit(2, 7), TimePoint{});
  ASSERT_EQ(of_kind<StartStep>(running).size(), 1u);
  node.handle(ModelRetired{ModelId(7)}, TimePoint{});
  EXPECT_TRUE(sent<Tokens>(node.handle(submit(3, 7), TimePoint{})).empty()) << "was on its way";
  EXPECT_EQ(run(node, running, TimePoint{}).size(), 4u) << "those that were accepted are served to their end";
  const auto late = sent<Tokens>(node.handle(submit(4, 7), TimePoint{}));
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].error_code, StatusCode::kUnavailable) << "to be asked again, by its name";
  EXPECT_EQ(node.status().models.size(), 2u);
  EXPECT_EQ(node.status().device_bytes_free, node.status().device_bytes);
  EXPECT_FALSE(node.costs().contains(ModelId(7)));
  node.handle(ModelRetired{ModelId(7)}, TimePoint{});  // nobody knows it any more
  node.check();
}

TEST(Node, RequestsOfAPeerWhoseMessagesWereLostEndAsIfItHadEnded) {
  Node node(node_config(8));
  const auto loading = node.handle(submit(1, 0), TimePoint{});
  ASSERT_EQ(of_kind<LoadWeights>(loading).size(), 1u);
  node.handle(PeerLost{NodeId(77)}, TimePoint{});  // of no concern
  EXPECT_EQ(node.status().models[0].waiting, 1u);
  EXPECT_TRUE(sent<Tokens>(node.handle(PeerLost{kGateway}, TimePoint{})).empty());
  EXPECT_EQ(node.status().models[0].waiting, 0u);
  node.handle(submit(2, 0), TimePoint{});
  EXPECT_EQ(node.status().models[0].waiting, 1u) << "it goes on with what comes next";
  node.check();
}

TEST(Node, TellsWhatItsDeviceDidAndWhoComesNext) {
  Node node(node_config(4));  // room for one of the two
  NodeStatus last;
  const auto note = [&](const std::vector<Effect>& effects) {
    for (const NodeStatus& status : sent<NodeStatus>(effects)) {
      for (const DeviceEvent& event : status.events) last.events.push_back(event);
      last.next = status.next;
    }
    return effects;
  };
  const auto loading = note(node.handle(submit(1, 0), TimePoint(milliseconds(1))));
  note(node.handle(submit(2, 1), TimePoint(milliseconds(2))));
  const auto stepping = note(node.handle(WeightsReady{ModelId(0), OkStatus()}, TimePoint(milliseconds(10))));
  ASSERT_EQ(of_kind<StartStep>(stepping).size(), 1u);
  EXPECT_EQ(last.next, std::vector<ModelId>{ModelId(1)});
  const auto second = node.handle(done(of_kind<StartStep>(stepping)[0]), TimePoint(milliseconds(30)));
  note(second);
  ASSERT_EQ(of_kind<StartStep>(second).size(), 1u);
  note(node.handle(done(of_kind<StartStep>(second)[0]), TimePoint(milliseconds(40))));
  note(node.handle(Tick{}, TimePoint(std::chrono::seconds(1))));
  ASSERT_GE(last.events.size(), 2u);
  EXPECT_EQ(last.events[0], (DeviceEvent{DeviceAct::kPrefill, ModelId(0), TimePoint(milliseconds(10)), TimePoint(milliseconds(30)), 1, 3}));
  const auto has = [&](DeviceAct act) { return std::any_of(last.events.begin(), last.events.end(), [&](const DeviceEvent& e) { return e.act == act; }); };
  EXPECT_TRUE(has(DeviceAct::kDecode));
  EXPECT_TRUE(has(DeviceAct::kDrop));
}

TEST(Node, ReportsResidencyAtOnceAndTheRestAtIntervals) {
  Node node(node_config(8));
  EXPECT_EQ(sent<NodeStatus>(node.handle(submit(1, 0), TimePoint{})).size(), 1u);
  const auto ready = node.handle(WeightsReady{ModelId(0), OkStatus()}, TimePoint(milliseconds(1)));
  EXPECT_EQ(sent<NodeStatus>(ready).size(), 1u);
  const auto stepped = node.handle(done(of_kind<StartStep>(ready)[0]), TimePoint(milliseconds(2)));
  EXPECT_TRUE(sent<NodeStatus>(stepped).empty());
  ASSERT_FALSE(of_kind<WakeAt>(stepped).empty());
  EXPECT_EQ(sent<NodeStatus>(node.handle(Tick{}, of_kind<WakeAt>(stepped)[0].at)).size(), 1u);
}

TEST(Node, InALargeClusterItReportsLessOften) {
  Node node(node_config(8));
  ClusterState state{.version = 1};
  state.members[kGateway] = {kGateway, Role::kGateway, 1, {}, false};
  for (uint32_t i = 1; i <= 500; ++i) state.members[NodeId(i)] = {NodeId(i), Role::kNode, 1, {}, false};
  node.handle(ClusterChanged{state}, TimePoint{});
  node.handle(submit(1, 0), TimePoint{});
  const auto ready = node.handle(WeightsReady{ModelId(0), OkStatus()}, TimePoint(milliseconds(1)));
  const auto stepped = of_kind<WakeAt>(node.handle(done(of_kind<StartStep>(ready)[0]), TimePoint(milliseconds(2))));
  ASSERT_FALSE(stepped.empty());
  EXPECT_EQ(stepped[0].at, TimePoint(milliseconds(501)));
}

TEST(Node, FittingLengthCountsWholeSlabs) {
  const NodeModel m = model(0, 2);  // 4 blocks of 16 tokens per page
  EXPECT_EQ(fitting_model_len(m, 2, 1000), 0u);
  EXPECT_EQ(fitting_model_len(m, 3, 1000), 64u);
  EXPECT_EQ(fitting_model_len(m, 100, 1000), 1000u);
}

}  // namespace
}  // namespace shoal
