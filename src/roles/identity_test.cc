// Names that hold outside one process: what two gateways, or two lives of one, ask of a node never meets.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "roles/node.h"
#include "roles/router.h"
#include "wire/message.h"
#include "wire/model_names.h"

namespace shoal {
namespace {

constexpr NodeId kFirst{1000}, kSecond{1001}, kNode{1};

NodeConfig node_config(NodeId self) {
  NodeModel m;
  m.name = "m";
  m.weight_bytes = 2 * kPageBytes;
  m.kv_block_bytes = kPageBytes / 4;
  m.max_model_len = 64;
  m.vocab_size = 100;
  NodeConfig config;
  config.self = self;
  config.pages = 16;
  config.models = {m};
  config.gateways = {kFirst, kSecond};
  return config;
}

Request request(RequestId id, TokenId token, uint32_t max_tokens) {
  Request r;
  r.id = id;
  r.prompt = {token};
  r.max_tokens = max_tokens;
  return r;
}

// A node to which gateways speak in bytes, as from other processes. The token that follows is the prompt's first.
class NodeBehindWire {
 public:
  explicit NodeBehindWire(ModelDigest weights = {}, NodeId self = kNode) : weights_(weights), node_(node_config(self)) {}

  void say(NodeId from, const Message& message) {
    const auto heard = decode(encode(message));
    ASSERT_TRUE(heard.ok()) << heard.status();
    give(MessageFrom{from, *heard});
  }
  void give(const Event& event) {
    for (Effect& effect : node_.handle(event, TimePoint{})) todo_.push_back(std::move(effect));
    node_.check();
  }
  // What each gateway was told, by request, when nothing is left to do.
  std::map<std::pair<NodeId, RequestId>, std::vector<TokenId>> answers() {
    while (!todo_.empty()) {
      const Effect effect = std::move(todo_.front());
      todo_.erase(todo_.begin());
      perform(effect);
    }
    return std::exchange(answers_, {});
  }
  bool idle() const { return node_.idle(); }
  const Tokens& told(RequestId id) const { return told_.at(id); }  // the last of it

 private:
  void perform(const Effect& effect) {
    if (const auto* load = std::get_if<LoadWeights>(&effect)) give(WeightsReady{load->model, OkStatus(), {}, weights_});
    if (const auto* start = std::get_if<StartStep>(&effect)) {
      StepResult result{start->input.step, {}};
      for (const StepSlice& slice : start->input.slices) {
        SliceResult& out = result.slices.emplace_back();
        out.request = slice.request;
        if (slice.sample) out.sampled.push_back({slice.params->prompt.front(), 0, {}});
      }
      give(StepDone{start->model, result});
    }
    if (const auto* send = std::get_if<Send>(&effect)) {
      const auto heard = decode(encode(send->message));
      const auto* tokens = heard.ok() ? std::get_if<Tokens>(&*heard) : nullptr;
      if (tokens == nullptr) return;
      told_[tokens->id] = *tokens;
      for (const SampledToken& token : tokens->tokens) answers_[{send->to, tokens->id}].push_back(token.token);
    }
  }

  const ModelDigest weights_;
  Node node_;
  std::vector<Effect> todo_;
  std::map<RequestId, Tokens> told_;
  std::map<std::pair<NodeId, RequestId>, std::vector<TokenId>> answers_;
};

TEST(Identity, TwoGatewaysCountTheirRequestsAlikeAndEachGetsItsOwnAnswers) {
  NodeBehindWire node;
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    node.say(kFirst, Submit{request({kFirst, 1, sequence}, 10 + static_cast<TokenId>(sequence), 2)});
    node.say(kSecond, Submit{request({kSecond, 1, sequence}, 20 + static_cast<TokenId>(sequence), 2)});
  }
  const auto answers = node.answers();
  ASSERT_EQ(answers.size(), 6u);
  for (TokenId i = 1; i <= 3; ++i) {
    EXPECT_EQ(answers.at({kFirst, {kFirst, 1, static_cast<uint64_t>(i)}}), (std::vector<TokenId>{10 + i, 10 + i}));
    EXPECT_EQ(answers.at({kSecond, {kSecond, 1, static_cast<uint64_t>(i)}}), (std::vector<TokenId>{20 + i, 20 + i}));
  }
  EXPECT_TRUE(node.idle());
}

TEST(Identity, WhatOneGatewayCancelsLeavesTheOthersRequestOfTheSameNumber) {
  NodeBehindWire node;
  node.say(kFirst, Submit{request({kFirst, 1, 7}, 11, 2)});
  node.say(kSecond, Submit{request({kSecond, 1, 7}, 22, 2)});
  node.say(kFirst, Cancel{{kFirst, 1, 7}, 0});
  const auto answers = node.answers();
  EXPECT_EQ(answers.at({kSecond, {kSecond, 1, 7}}), (std::vector<TokenId>{22, 22}));
  EXPECT_FALSE(answers.contains({kFirst, {kFirst, 1, 7}}) && answers.at({kFirst, {kFirst, 1, 7}}).size() == 2);
  EXPECT_TRUE(node.idle());
}

TEST(Identity, AGatewayThatBeganAnewMayCountFromOneAgain) {
  NodeBehindWire node;
  node.say(kFirst, Submit{request({kFirst, 1, 1}, 11, 2)});
  node.say(kFirst, Submit{request({kFirst, 2, 1}, 12, 2)});  // not a repetition of the one before
  const auto answers = node.answers();
  EXPECT_EQ(answers.at({kFirst, {kFirst, 2, 1}}), (std::vector<TokenId>{12, 12}));
}

TEST(Identity, ARouterDropsTokensOfARequestOfItsFormerLife) {
  Router router({.self = kFirst, .life = 2});
  ClusterState state;
  state.members[kNode] = {kNode, Role::kNode, 1, {ModelId(0)}, false};
  state.version = 1;
  router.handle(ClusterChanged{state}, TimePoint{});
  router.handle(NewRequest{request({kFirst, 2, 1}, 5, 4), kForever}, TimePoint{});
  const auto shown = [&](RequestId id) {
    Tokens tokens;
    tokens.id = id;
    tokens.tokens = {{9, 0, {}}};
    size_t count = 0;
    for (const Effect& effect : router.handle(MessageFrom{kNode, *decode(encode(tokens))}, TimePoint{})) count += std::holds_alternative<Deliver>(effect);
    return count;
  };
  EXPECT_EQ(shown({kFirst, 1, 1}), 0u);
  EXPECT_EQ(shown({kFirst, 2, 1}), 1u);
}

// What was on its way when its sender's life ended is of nobody, on whichever side it arrives.
TEST(Identity, AMessageOfALifeThatEndedIsDroppedWhereItArrives) {
  ClusterState state;
  state.version = 1;
  state.members[kNode] = {kNode, Role::kNode, 3, {ModelId(0)}, false};
  state.members[kFirst] = {kFirst, Role::kGateway, 5, {}, false};

  Router router({.self = kFirst, .life = 5});
  router.handle(ClusterChanged{state}, TimePoint{});
  router.handle(NewRequest{request({kFirst, 5, 1}, 5, 4), kForever}, TimePoint{});
  const auto shown = [&](uint32_t life) {
    Tokens tokens;
    tokens.id = {kFirst, 5, 1};
    tokens.tokens = {{9, 0, {}}};
    size_t count = 0;
    for (const Effect& effect : router.handle(MessageFrom{kNode, tokens, life}, TimePoint{})) count += std::holds_alternative<Deliver>(effect);
    return count;
  };
  EXPECT_EQ(shown(2), 0u);
  EXPECT_EQ(shown(3), 1u);

  NodeBehindWire node;
  node.give(ClusterChanged{state});
  const auto answered = [&](uint32_t life, uint64_t sequence) {
    const RequestId id{kFirst, 5, sequence};
    node.give(MessageFrom{kFirst, Submit{request(id, 11, 1)}, life});
    return node.answers().contains({kFirst, id});
  };
  EXPECT_FALSE(answered(4, 1));
  EXPECT_TRUE(answered(5, 1));
  EXPECT_TRUE(answered(6, 2)) << "one that the membership has not told of yet";
  EXPECT_TRUE(answered(0, 3)) << "it does not say";
}

// What a gateway knows of an answer whose node is gone: it goes on elsewhere.
Submit continued(Request request, const Tokens& told) {
  request.epoch = 1;
  for (const SampledToken& token : told.tokens) request.output.push_back(token.token);
  request.weights = told.weights;
  return {request};
}

// Two gateways, and nodes of two processes, each of which stamped its copy of the files by itself.
TEST(Identity, AnAnswerGoesOnInAnotherProcessIfItsWeightsHoldTheSame) {
  constexpr ModelDigest kHere(5, {1, 2, 3}), kThere(6, {1, 2, 3}), kUnread(6), kOthers(6, {1, 2, 4});
  const RequestId ids[] = {{kFirst, 1, 7}, {kSecond, 1, 7}};  // alike but for whose they are
  NodeBehindWire here(kHere);
  for (const RequestId& id : ids) here.say(id.gateway, Submit{request(id, 30 + static_cast<TokenId>(id.gateway.value % 2), 1)});
  here.answers();
  for (const ModelDigest& weights : {kThere, kHere, kUnread, kOthers}) {
    const bool same = weights.content == kHere.content;
    NodeBehindWire there(weights, NodeId(2));
    for (const RequestId& id : ids) there.say(id.gateway, continued(request(id, 30 + static_cast<TokenId>(id.gateway.value % 2), 3), here.told(id)));
    const auto answers = there.answers();
    for (const RequestId& id : ids) {
      const TokenId token = 30 + static_cast<TokenId>(id.gateway.value % 2);
      if (same) {
        EXPECT_EQ(answers.at({id.gateway, id}), (std::vector<TokenId>{token, token})) << id;
      }
      EXPECT_EQ(answers.contains({id.gateway, id}), same) << id;
      EXPECT_EQ(there.told(id).error_code, same ? StatusCode::kOk : StatusCode::kFailedPrecondition) << there.told(id).error;
    }
    EXPECT_TRUE(there.idle());
  }
}

// A process with a folder of models: its router or its node, which number them in the order of that folder.
NodeConfig folder(const std::vector<ModelName>& models, ModelNames& names) {
  NodeConfig config = node_config(kNode);
  const NodeModel facts = config.models.front();
  config.models.clear();
  for (const ModelName& model : models) {
    config.models.push_back(facts);
    config.models.back().model = ModelId(static_cast<uint32_t>(config.models.size() - 1));
    config.models.back().name = model.name;
    names.add(config.models.back().model, model);
  }
  return config;
}

// A gateway and a node whose folders list their models in another order, each has one that the other has not, and the files of
// one differ.
TEST(Identity, ProcessesWithOtherFoldersUnderstandEachOtherByNameAndRefuseOtherFiles) {
  ModelNames at_gateway, at_node;
  for (const ModelName& model : {ModelName{"a", 1}, {"b", 2}, {"c", 3}, {"mine", 4}}) at_gateway.add(ModelId(model.name == "mine" ? 3 : model.name[0] - 'a'), model);
  Node node(folder({{"yours", 5}, {"c", 30}, {"b", 2}, {"a", 1}}, at_node));
  Router router({.self = kFirst, .life = 1});
  ClusterState state;
  state.members[kNode] = {kNode, Role::kNode, 1, {ModelId(0), ModelId(1), ModelId(2), ModelId(3)}, false};
  state.members[kFirst] = {kFirst, Role::kGateway, 1, {}, false};
  state.version = 1;

  std::vector<std::string> loaded;
  std::map<uint64_t, size_t> tokens;
  std::map<uint64_t, Status> refused;
  std::vector<std::pair<bool, Event>> todo;  // of the node, or of the router
  const auto perform = [&](const Effect& effect, bool of_node) {
    if (const auto* load = std::get_if<LoadWeights>(&effect)) {
      loaded.push_back(at_node.find(load->model)->name);
      todo.push_back({true, WeightsReady{load->model, OkStatus(), {}, ModelDigest(at_node.find(load->model)->stamp)}});
    } else if (const auto* start = std::get_if<StartStep>(&effect)) {
      StepResult result{start->input.step, {}};
      for (const StepSlice& slice : start->input.slices) {
        SliceResult& out = result.slices.emplace_back();
        out.request = slice.request;
        if (slice.sample) out.sampled.push_back({slice.params->prompt.front(), 0, {}});
      }
      todo.push_back({true, StepDone{start->model, result}});
    } else if (const auto* send = std::get_if<Send>(&effect); send != nullptr && send->to != kSecond) {
      Arrival arrival = *decode(encode(send->message, 1, of_node ? at_node : at_gateway), of_node ? at_gateway : at_node);
      todo.push_back({!of_node, MessageFrom{of_node ? kNode : kFirst, std::move(arrival.message), arrival.life, std::move(arrival.unknown_model)}});
    } else if (const auto* deliver = std::get_if<Deliver>(&effect)) {
      tokens[deliver->tokens.id.sequence] += deliver->tokens.tokens.size();
    } else if (const auto* refuse = std::get_if<Refuse>(&effect)) {
      refused[refuse->id.sequence] = refuse->status;
    }
  };
  todo.push_back({true, ClusterChanged{state}});
  todo.push_back({false, ClusterChanged{state}});
  for (uint32_t model = 0; model < 4; ++model) {
    Request r = request({kFirst, 1, model}, 7, 3);
    r.model = ModelId(model);
    todo.push_back({false, NewRequest{r, kForever}});
  }
  while (!todo.empty()) {
    const auto [to_node, event] = std::move(todo.front());
    todo.erase(todo.begin());
    for (const Effect& effect : to_node ? node.handle(event, TimePoint{}) : router.handle(event, TimePoint{})) perform(effect, to_node);
    node.check();
    router.check();
  }
  EXPECT_EQ(tokens, (std::map<uint64_t, size_t>{{0, 3}, {1, 3}}));
  EXPECT_EQ(std::set<std::string>(loaded.begin(), loaded.end()), (std::set<std::string>{"a", "b"}));
  ASSERT_EQ(refused.size(), 2u);
  for (const char* said : {"'c'", "000000000000001e", "0000000000000003"}) EXPECT_NE(refused[2].message().find(said), absl::string_view::npos) << refused[2];
  EXPECT_NE(refused[3].message().find("'mine'"), absl::string_view::npos) << refused[3];
  EXPECT_TRUE(node.idle());
  EXPECT_EQ(router.live_requests(), 0u);
}

// Mirostat's memory is a part of where an answer stands.
TEST(Identity, WhatTheSamplerRemembersGoesAlongWithTheAnswer) {
  Router router({.self = kFirst, .life = 1});
  ClusterState state;
  state.members[kNode] = {kNode, Role::kNode, 1, {ModelId(0)}, false};
  state.version = 1;
  router.handle(ClusterChanged{state}, TimePoint{});
  router.handle(NewRequest{request({kFirst, 1, 1}, 5, 4), kForever}, TimePoint{});
  Tokens tokens;
  tokens.id = {kFirst, 1, 1};
  tokens.tokens = {{9, 0, {}, 0, 7.5f}};
  router.handle(MessageFrom{kNode, *decode(encode(tokens))}, TimePoint{});
  state.members = {{NodeId(2), {NodeId(2), Role::kNode, 1, {ModelId(0)}, false}}};
  state.version = 2;
  std::optional<float> mu;
  for (const Effect& effect : router.handle(ClusterChanged{state}, TimePoint{})) {
    const auto* send = std::get_if<Send>(&effect);
    const auto* submit = send == nullptr ? nullptr : std::get_if<Submit>(&send->message);
    if (submit != nullptr) mu = submit->request.mirostat_mu;
  }
  EXPECT_EQ(mu, 7.5f);
}

}  // namespace
}  // namespace shoal
