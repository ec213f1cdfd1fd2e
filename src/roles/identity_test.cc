// Names that hold outside one process: what two gateways, or two lives of one, ask of a node never meets.
#include <gtest/gtest.h>

#include <map>

#include "roles/node.h"
#include "roles/router.h"
#include "wire/message.h"

namespace shoal {
namespace {

constexpr NodeId kFirst{1000}, kSecond{1001}, kNode{1};

NodeConfig node_config() {
  NodeModel m;
  m.name = "m";
  m.weight_bytes = 2 * kPageBytes;
  m.kv_block_bytes = kPageBytes / 4;
  m.max_model_len = 64;
  m.vocab_size = 100;
  NodeConfig config;
  config.self = kNode;
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
  NodeBehindWire() : node_(node_config()) {}

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

 private:
  void perform(const Effect& effect) {
    if (const auto* load = std::get_if<LoadWeights>(&effect)) give(WeightsReady{load->model, OkStatus()});
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
      for (const SampledToken& token : tokens->tokens) answers_[{send->to, tokens->id}].push_back(token.token);
    }
  }

  Node node_;
  std::vector<Effect> todo_;
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
