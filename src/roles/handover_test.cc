// A request that goes on at another node, message by message. The two nodes' devices answer at once.
#include <gtest/gtest.h>

#include "roles/node.h"
#include "roles/router.h"

namespace shoal {
namespace {

constexpr NodeId kGateway{1000}, kFirst{1}, kSecond{2};
constexpr TimePoint kStart{std::chrono::hours(1)};

template <typename M>
std::vector<M> sent(const std::vector<Effect>& effects) {
  std::vector<M> found;
  for (const Effect& effect : effects) {
    const auto* send = std::get_if<Send>(&effect);
    if (send == nullptr) continue;
    if (const auto* m = std::get_if<M>(&send->message)) found.push_back(*m);
  }
  return found;
}

NodeConfig config(NodeId self, InstanceRole instance_role) {
  NodeConfig config;
  config.self = self;
  config.instance_role = instance_role;
  config.pages = 40;
  config.host_pages = 20;
  config.gateways = {kGateway};
  NodeModel model;
  model.model = ModelId(0);
  model.name = "m";
  model.weight_bytes = 4 * kPageBytes;
  model.kv_block_bytes = kPageBytes / 4;
  model.max_model_len = 256;
  model.vocab_size = 100;
  config.models = {model};
  return config;
}

// A node and its device: loads and steps are done when the next event comes, copies when copy() is called.
struct Body {
  Body(NodeId self, InstanceRole instance_role) : node(config(self, instance_role)) { give(ClusterChanged{cluster({{kFirst, 1}, {kSecond, 1}})}); }

  static ClusterState cluster(const std::map<NodeId, uint32_t>& lives) {
    ClusterState state;
    for (const auto& [id, epoch] : lives) state.members[id] = {.id = id, .role = Role::kNode, .epoch = epoch, .models = {ModelId(0)}};
    return state;
  }

  // What it sends, until it waits for a copy or a message.
  std::vector<Effect> give(const Event& first) {
    std::vector<Effect> out;
    std::vector<Event> events{first};
    while (!events.empty()) {
      const Event event = events.front();
      events.erase(events.begin());
      now += std::chrono::milliseconds(1);
      for (Effect& effect : node.handle(event, now)) {
        if (const auto* load = std::get_if<LoadWeights>(&effect)) events.push_back(WeightsReady{load->model, OkStatus(), {}, weights});
        if (const auto* step = std::get_if<StartStep>(&effect)) events.push_back(StepDone{step->model, result(step->input)});
        if (const auto* copy = std::get_if<CopyKv>(&effect)) copies.push_back(*copy);
        out.push_back(std::move(effect));
      }
      node.check();
    }
    return out;
  }
  std::vector<Effect> say(NodeId from, const Message& message) { return give(MessageFrom{from, message}); }
  std::vector<Effect> copy(bool ok = true) {
    const CopyKv first = copies.front();
    copies.erase(copies.begin());
    return give(KvCopied{first.model, first.move.id, ok});
  }
  static StepResult result(const StepInput& input) {
    StepResult result{input.step, {}};
    for (const StepSlice& slice : input.slices) {
      SliceResult one{.request = slice.request};
      if (slice.sample) one.sampled.push_back({static_cast<TokenId>(40 + slice.output_index), 0, {}});
      result.slices.push_back(std::move(one));
    }
    return result;
  }

  Node node;
  TimePoint now = kStart;
  ModelDigest weights = 5;  // that its loads find
  std::vector<CopyKv> copies;
};

Request request(uint32_t max_tokens = 4) {
  Request r;
  r.id = RequestId(7);
  r.model = ModelId(0);
  for (TokenId i = 0; i < 20; ++i) r.prompt.push_back(i);
  r.max_tokens = max_tokens;
  return r;
}

// The first node has computed the prompt and handed over: the ticket.
KvTicket handed_over(Body& first) {
  EXPECT_EQ(sent<Tokens>(first.say(kGateway, Submit{request()})).size(), 1u);
  const auto handover = sent<Handover>(first.copy());
  EXPECT_EQ(handover.size(), 1u);
  EXPECT_TRUE(handover.at(0).kv.has_value());
  EXPECT_FALSE(first.node.idle());  // its host tier holds the blocks
  return *handover.at(0).kv;
}

Submit resubmitted(const KvTicket& ticket) {
  Submit submit{request(), std::chrono::milliseconds(50), ticket};
  submit.request.epoch = 1;
  submit.request.output = {40};
  submit.request.weights = ticket.weights;
  return submit;
}

TEST(Handover, ThePromptIsComputedHereAndTheRestThere) {
  Body first(kFirst, InstanceRole::kPrefill), second(kSecond, InstanceRole::kDecode);
  const KvTicket ticket = handed_over(first);
  EXPECT_EQ(ticket, (KvTicket{kFirst, 0, 20, kPageBytes / 4, 5}));
  const auto wanted = sent<KvWanted>(second.say(kGateway, resubmitted(ticket)));
  ASSERT_EQ(wanted.size(), 1u);
  const auto granted = sent<KvGranted>(first.say(kSecond, wanted[0]));
  ASSERT_EQ(granted.size(), 1u);
  EXPECT_EQ(granted[0].blocks.size(), 2u);
  second.say(kFirst, granted[0]);
  ASSERT_EQ(second.copies.size(), 1u);
  EXPECT_TRUE(second.copies[0].move.remote);
  EXPECT_EQ(second.copies[0].from, kFirst);
  const auto effects = second.copy();
  std::vector<TokenId> tokens;
  for (const Tokens& t : sent<Tokens>(effects)) tokens.push_back(t.tokens.at(0).token);
  EXPECT_EQ(tokens, (std::vector<TokenId>{41, 42, 43}));
  const auto taken = sent<KvTaken>(effects);
  ASSERT_EQ(taken.size(), 1u);
  first.say(kSecond, taken[0]);
  EXPECT_TRUE(first.node.idle());
  EXPECT_TRUE(second.node.idle());
}

// Nobody has seen anything of it: a part of its prompt, computed with weights that are no more, is computed anew.
TEST(Handover, APromptBegunWithOtherWeightsIsComputedAnew) {
  Body second(kSecond, InstanceRole::kBoth);
  second.weights = 6;
  const KvTicket ticket{kFirst, 0, 16, kPageBytes / 4, 5};
  ASSERT_EQ(sent<KvWanted>(second.say(kGateway, Submit{request(), std::chrono::milliseconds(50), ticket})).size(), 1u);
  auto effects = second.say(kFirst, KvGranted{RequestId(7), 0, {BlockId(3)}});
  while (!second.copies.empty()) {
    for (Effect& effect : second.copy()) effects.push_back(std::move(effect));
  }
  std::vector<TokenId> tokens;
  for (const Tokens& t : sent<Tokens>(effects)) {
    EXPECT_TRUE(t.error.empty()) << t.error;
    EXPECT_EQ(t.weights, 6u);
    for (const SampledToken& token : t.tokens) tokens.push_back(token.token);
  }
  EXPECT_EQ(tokens, (std::vector<TokenId>{40, 41, 42, 43}));
  EXPECT_EQ(sent<KvTaken>(effects).size(), 1u);
  EXPECT_TRUE(second.node.idle());
}

// F16 and BF16 have equally many bytes, and what one holds means nothing as the other.
TEST(Handover, KvOfAnotherTypeIsRefusedThoughItsBlocksHaveAsManyBytes) {
  const ModelDigest f16(5, {0xf1, 6}), bf16(7, {0xbf, 16});
  Body first(kFirst, InstanceRole::kPrefill), second(kSecond, InstanceRole::kDecode);
  first.weights = f16;
  second.weights = bf16;
  second.say(kGateway, SetResident{ModelId(0), true});
  const KvTicket ticket = handed_over(first);
  EXPECT_EQ(ticket.weights, f16);
  EXPECT_EQ(ticket.block_bytes, kPageBytes / 4);
  const auto wanted = sent<KvWanted>(second.say(kGateway, resubmitted(ticket)));
  ASSERT_EQ(wanted.size(), 1u);
  const auto effects = second.say(kFirst, sent<KvGranted>(first.say(kSecond, wanted[0])).at(0));
  EXPECT_TRUE(second.copies.empty());
  EXPECT_EQ(sent<Tokens>(effects).at(0).error_code, StatusCode::kFailedPrecondition);
}

TEST(Handover, WhatAnotherMachineStampedOtherwiseIsTakenByItsContent) {
  Body first(kFirst, InstanceRole::kPrefill), second(kSecond, InstanceRole::kDecode);
  first.weights = ModelDigest(5, {1});
  second.weights = 6;  // not read yet
  second.say(kGateway, SetResident{ModelId(0), true});
  second.give(DigestKnown{ModelId(0), ModelDigest(4, {9})});  // of files that were replaced since
  second.give(DigestKnown{ModelId(0), ModelDigest(6, {1})});
  const KvTicket ticket = handed_over(first);
  const auto wanted = sent<KvWanted>(second.say(kGateway, resubmitted(ticket)));
  second.say(kFirst, sent<KvGranted>(first.say(kSecond, wanted.at(0))).at(0));
  const auto tokens = sent<Tokens>(second.copy());
  ASSERT_FALSE(tokens.empty());
  EXPECT_TRUE(tokens[0].error.empty()) << tokens[0].error;
  EXPECT_EQ(tokens[0].weights, ModelDigest(6, {1}));
}

// The others may have dropped the model already.
TEST(Handover, RequestsOfAModelThatGoesEndWhereTheyAre) {
  Body first(kFirst, InstanceRole::kPrefill);
  auto effects = first.say(kGateway, Submit{request()});
  for (Effect& effect : first.give(ModelRetired{ModelId(0)})) effects.push_back(std::move(effect));
  while (!first.copies.empty()) {
    for (Effect& effect : first.copy()) effects.push_back(std::move(effect));
  }
  size_t tokens = 0;
  for (const Tokens& t : sent<Tokens>(effects)) tokens += t.tokens.size();
  EXPECT_EQ(tokens, 4u);
  EXPECT_TRUE(sent<Handover>(effects).empty());
  EXPECT_TRUE(first.node.idle());
  EXPECT_EQ(first.node.model(ModelId(0)), nullptr);
}

// The model's files were replaced between the loads of the two nodes; the second has its weights already, or loads them now.
TEST(Handover, AnAnswerBegunWithOtherWeightsEndsWithTheReason) {
  for (const bool there : {false, true}) {
    Body first(kFirst, InstanceRole::kPrefill), second(kSecond, InstanceRole::kDecode);
    second.weights = 6;
    if (there) second.say(kGateway, SetResident{ModelId(0), true});
    const KvTicket ticket = handed_over(first);
    EXPECT_EQ(ticket.weights, 5u);
    const auto wanted = sent<KvWanted>(second.say(kGateway, resubmitted(ticket)));
    ASSERT_EQ(wanted.size(), 1u);
    const auto effects = second.say(kFirst, sent<KvGranted>(first.say(kSecond, wanted[0])).at(0));
    const auto ends = sent<Tokens>(effects);
    ASSERT_EQ(ends.size(), 1u) << there;
    EXPECT_EQ(ends[0].error_code, StatusCode::kFailedPrecondition);
    EXPECT_NE(ends[0].error.find("were replaced while this answer was being written"), std::string::npos) << ends[0].error;
    auto taken = sent<KvTaken>(effects);
    if (taken.empty()) taken = sent<KvTaken>(second.copy());  // it was being fetched beside the load
    ASSERT_EQ(taken.size(), 1u);
    first.say(kSecond, taken[0]);
    EXPECT_TRUE(first.node.idle());
    EXPECT_TRUE(second.node.idle());
    // Without its KV it is the same answer still.
    Submit anew = resubmitted(ticket);
    anew.request.epoch = 2;
    anew.kv.reset();
    EXPECT_EQ(sent<Tokens>(second.say(kGateway, anew)).at(0).error_code, StatusCode::kFailedPrecondition);
    // What has no token yet may be computed with any.
    anew.request.epoch = 3;
    anew.request.output.clear();
    EXPECT_EQ(sent<Tokens>(second.say(kGateway, anew)).at(0).tokens.size(), 1u);
  }
}

TEST(Handover, APromptComputedWithOtherWeightsIsComputedAnew) {
  Body second(kSecond, InstanceRole::kDecode);
  second.say(kGateway, SetResident{ModelId(0), true});
  Submit submit = resubmitted({kFirst, 0, 16, kPageBytes / 4, 4});
  submit.request.output.clear();
  second.say(kGateway, submit);
  const auto effects = second.say(kFirst, KvGranted{request().id, 0, {BlockId(0)}});
  EXPECT_EQ(sent<Tokens>(effects).at(0).error_code, StatusCode::kUnavailable);  // the gateway places it anew
  EXPECT_EQ(sent<KvTaken>(effects).size(), 1u);
  EXPECT_TRUE(second.node.idle());
}

TEST(Handover, WhatIsGrantedToOneNodeIsNobodyElses) {
  Body first(kFirst, InstanceRole::kPrefill);
  handed_over(first);
  EXPECT_FALSE(sent<KvGranted>(first.say(kSecond, KvWanted{request().id, 0}))[0].blocks.empty());
  EXPECT_TRUE(sent<KvGranted>(first.say(NodeId(3), KvWanted{request().id, 0}))[0].blocks.empty());
  first.say(kGateway, KvTaken{request().id, 0});  // the gateway does not know that the second node reads
  EXPECT_FALSE(first.node.idle());
  first.give(ClusterChanged{Body::cluster({{kFirst, 1}})});  // the second node is gone
  EXPECT_TRUE(first.node.idle());
}

TEST(Handover, ATicketThatNobodyWantsIsGivenUpByTheGateway) {
  Body first(kFirst, InstanceRole::kPrefill);
  handed_over(first);
  first.say(kGateway, KvTaken{request().id, 0});
  EXPECT_TRUE(first.node.idle());
}

TEST(Handover, WhenTheKvIsGoneThePromptIsComputedAnew) {
  Body first(kFirst, InstanceRole::kPrefill), second(kSecond, InstanceRole::kDecode);
  const KvTicket ticket = handed_over(first);
  second.say(kGateway, resubmitted(ticket));
  const auto tokens = sent<Tokens>(second.say(kFirst, KvGranted{request().id, 0, {}}));
  EXPECT_EQ(tokens.size(), 3u);
  EXPECT_TRUE(second.node.idle());
}

TEST(Handover, ACopyThatFailsIsAsIfTheKvWereGone) {
  Body second(kSecond, InstanceRole::kDecode);
  second.say(kGateway, resubmitted({kFirst, 0, 20, kPageBytes / 4}));
  second.say(kFirst, KvGranted{request().id, 0, {BlockId(0), BlockId(1)}});
  EXPECT_EQ(sent<Tokens>(second.copy(/*ok=*/false)).size(), 3u);
  EXPECT_TRUE(second.node.idle());
}

TEST(Handover, ANodeThatIsLostBeforeItGrantsIsNotWaitedFor) {
  Body second(kSecond, InstanceRole::kDecode);
  second.say(kGateway, resubmitted({kFirst, 0, 20, kPageBytes / 4}));
  EXPECT_FALSE(second.node.idle());
  EXPECT_EQ(sent<Tokens>(second.give(ClusterChanged{Body::cluster({{kFirst, 2}, {kSecond, 1}})})).size(), 3u);
  EXPECT_TRUE(second.node.idle());
}

TEST(Handover, ACancelAtAnyMomentGivesTheBlocksBack) {
  const auto cancel = [](Body& body) { return sent<KvTaken>(body.say(kGateway, Cancel{request().id, 1})); };
  Body awaiting(kSecond, InstanceRole::kDecode);
  const Submit submit = resubmitted({kFirst, 0, 20, kPageBytes / 4});
  awaiting.say(kGateway, submit);
  EXPECT_EQ(cancel(awaiting).size(), 1u);
  EXPECT_EQ(sent<KvTaken>(awaiting.say(kFirst, KvGranted{request().id, 0, {BlockId(0), BlockId(1)}})).size(), 1u);  // crossed the cancel
  EXPECT_TRUE(awaiting.node.idle());

  Body copying(kSecond, InstanceRole::kDecode);
  copying.say(kGateway, submit);
  copying.say(kFirst, KvGranted{request().id, 0, {BlockId(0), BlockId(1)}});
  EXPECT_EQ(cancel(copying).size(), 0u);  // still being read
  EXPECT_EQ(sent<KvTaken>(copying.copy()).size(), 1u);
  EXPECT_TRUE(copying.node.idle());
}

TEST(Handover, WhatComesBackToItsNodeIsNotHandedOverAgain) {
  Body first(kFirst, InstanceRole::kPrefill);
  const KvTicket ticket = handed_over(first);
  first.say(kGateway, resubmitted(ticket));
  ASSERT_EQ(first.copies.size(), 1u);
  EXPECT_FALSE(first.copies[0].move.remote);
  const auto effects = first.copy();
  EXPECT_EQ(sent<Tokens>(effects).size(), 3u);
  EXPECT_EQ(sent<Handover>(effects).size(), 0u);
  EXPECT_TRUE(first.node.idle());
}

TEST(Handover, AModelThatIsShedGoesWithWhatIsComputedOfIt) {
  Node node(config(kFirst, InstanceRole::kBoth));
  Request waiting = request();
  node.handle(MessageFrom{kGateway, Submit{waiting}}, kStart);  // its model is being loaded
  const auto at_once = sent<Handover>(node.handle(MessageFrom{kGateway, MigrateRequests{ModelId(0)}}, kStart));
  ASSERT_EQ(at_once.size(), 1u);
  EXPECT_FALSE(at_once[0].kv.has_value());

  waiting.epoch = 1;
  node.handle(MessageFrom{kGateway, Submit{waiting}}, kStart);
  const auto effects = node.handle(WeightsReady{ModelId(0), OkStatus(), {}}, kStart);
  StepInput input;
  for (const Effect& effect : effects) {
    if (const auto* step = std::get_if<StartStep>(&effect)) input = step->input;
  }
  EXPECT_EQ(sent<Handover>(node.handle(MessageFrom{kGateway, MigrateRequests{ModelId(0)}}, kStart)).size(), 0u);  // after the step
  CopyKv copy;
  for (const Effect& effect : node.handle(StepDone{ModelId(0), Body::result(input)}, kStart)) {
    if (const auto* e = std::get_if<CopyKv>(&effect)) copy = *e;
  }
  const auto with_kv = sent<Handover>(node.handle(KvCopied{ModelId(0), copy.move.id}, kStart));
  ASSERT_EQ(with_kv.size(), 1u);
  EXPECT_EQ(with_kv[0].kv, (KvTicket{kFirst, 1, 20, kPageBytes / 4}));
  node.check();
}

TEST(Handover, WhatNobodyComesForEndsInTimeOrWithItsGateway) {
  Body late(kFirst, InstanceRole::kPrefill);
  handed_over(late);
  late.now += std::chrono::seconds(31);
  late.give(Tick{});
  EXPECT_TRUE(late.node.idle());

  Body first(kFirst, InstanceRole::kPrefill);
  const auto members = Body::cluster({{kFirst, 1}, {kSecond, 1}});
  ClusterState with_gateway = members;
  with_gateway.members[kGateway] = {.id = kGateway, .role = Role::kGateway, .epoch = 1};
  first.give(ClusterChanged{with_gateway});
  handed_over(first);
  first.give(ClusterChanged{with_gateway});
  EXPECT_FALSE(first.node.idle());
  first.give(ClusterChanged{members});
  EXPECT_TRUE(first.node.idle());
}

TEST(Handover, AGrantThatLastsLongIsRepeatedAndEndsWhenNobodyKnowsOfIt) {
  Body first(kFirst, InstanceRole::kPrefill), second(kSecond, InstanceRole::kDecode);
  const KvTicket ticket = handed_over(first);
  const auto granted = sent<KvGranted>(first.say(kSecond, sent<KvWanted>(second.say(kGateway, resubmitted(ticket))).at(0)));
  second.say(kFirst, granted.at(0));
  ASSERT_EQ(second.copies.size(), 1u);  // being fetched
  first.now += std::chrono::seconds(31);
  const auto repeated = sent<KvGranted>(first.give(Tick{}));
  EXPECT_EQ(repeated, granted);
  EXPECT_TRUE(sent<KvTaken>(second.say(kFirst, repeated.at(0))).empty());
  const auto taken = sent<KvTaken>(second.copy());
  ASSERT_EQ(taken.size(), 1u);  // and lost on its way
  EXPECT_FALSE(first.node.idle());
  first.now += std::chrono::seconds(31);
  const auto once_more = sent<KvGranted>(first.give(Tick{}));
  const auto unknown = sent<KvTaken>(second.say(kFirst, once_more.at(0)));
  ASSERT_EQ(unknown.size(), 1u);
  first.say(kSecond, unknown[0]);
  EXPECT_TRUE(first.node.idle());
}

TEST(Handover, WhatWasNotFetchedYetGoesOnWithItsTicket) {
  Body first(kFirst, InstanceRole::kPrefill), third(NodeId(3), InstanceRole::kDecode);
  const KvTicket ticket = handed_over(first);
  NodeConfig by_request = config(kSecond, InstanceRole::kBoth);
  by_request.scheduling = Scheduling::kRequest;  // fetches nothing before its weights are there
  Node second(by_request);
  const auto wanted = sent<KvWanted>(second.handle(MessageFrom{kGateway, resubmitted(ticket)}, kStart));
  const auto granted = sent<KvGranted>(first.say(kSecond, wanted.at(0)));
  second.handle(MessageFrom{kFirst, granted.at(0)}, kStart);
  const auto effects = second.handle(MessageFrom{kGateway, MigrateRequests{ModelId(0)}}, kStart);
  second.check();
  const auto passed = sent<KvTaken>(effects);
  const auto handover = sent<Handover>(effects);
  ASSERT_EQ(passed.size(), 1u);
  ASSERT_EQ(handover.size(), 1u);
  EXPECT_EQ(handover[0].kv, ticket);
  EXPECT_TRUE(passed[0].passed_on);
  first.say(kSecond, passed[0]);
  EXPECT_FALSE(first.node.idle());
  Submit again = resubmitted(*handover[0].kv);
  again.request.epoch = 2;
  const auto wanted_again = sent<KvWanted>(third.say(kGateway, again));
  const auto granted_again = sent<KvGranted>(first.say(NodeId(3), wanted_again.at(0)));
  EXPECT_EQ(granted_again.at(0).blocks, granted[0].blocks);
  third.say(kFirst, granted_again[0]);
  const auto taken = sent<KvTaken>(third.copy());
  first.say(NodeId(3), taken.at(0));
  EXPECT_TRUE(first.node.idle());
}

// ---- the router -----------------------------------------------------------------------------------------------------------

struct Gateway {
  Gateway() : router(RouterConfig{kGateway}) {
    router.handle(ClusterChanged{Body::cluster({{kFirst, 1}, {kSecond, 1}})}, kStart);
    for (const auto& [node, instance_role] : {std::pair(kFirst, InstanceRole::kPrefill), std::pair(kSecond, InstanceRole::kDecode)}) {
      NodeStatus status;
      status.version = 1;
      status.instance_role = instance_role;
      router.handle(MessageFrom{node, status}, kStart);
    }
  }
  std::vector<Effect> first_token() {
    EXPECT_EQ(to<Submit>(router.handle(NewRequest{request()}, kStart)), kFirst);
    Tokens tokens{.id = request().id, .first_index = 0, .tokens = {{40, 0, {}}}};
    return router.handle(MessageFrom{kFirst, tokens}, kStart);
  }
  template <typename M>
  static std::optional<NodeId> to(const std::vector<Effect>& effects) {
    for (const Effect& effect : effects) {
      const auto* send = std::get_if<Send>(&effect);
      if (send != nullptr && std::holds_alternative<M>(send->message)) return send->to;
    }
    return std::nullopt;
  }
  const KvTicket ticket{kFirst, 0, 20, kPageBytes / 4};
  Router router;
};

TEST(Router, ANodeIsAskedToHelpTheOtherSideUnlessNothingIsEverBalanced) {
  for (const Duration interval : {Duration(std::chrono::seconds(2)), Duration::max()}) {
    RouterConfig config{kGateway};
    config.balance_interval = interval;
    Router router(config);
    router.handle(ClusterChanged{Body::cluster({{kFirst, 1}, {kSecond, 1}})}, kStart);
    std::vector<Effect> effects;
    for (const auto& [node, instance_role, pressure] : {std::tuple(kSecond, InstanceRole::kDecode, 0.1), std::tuple(kFirst, InstanceRole::kPrefill, 3.0)}) {
      NodeStatus status;
      status.version = 1;
      status.instance_role = instance_role;
      status.prompt_pressure = pressure;
      effects = router.handle(MessageFrom{node, status}, kStart);
    }
    EXPECT_EQ(Gateway::to<SetInstanceRole>(effects), interval == Duration::max() ? std::nullopt : std::optional(kSecond));
  }
}

TEST(Router, AHandoverGoesToANodeThatDecodesWithItsTicketAndItsAge) {
  Gateway g;
  g.first_token();
  const auto effects = g.router.handle(MessageFrom{kFirst, Handover{request().id, 0, g.ticket}}, kStart + std::chrono::seconds(3));
  EXPECT_EQ(Gateway::to<Submit>(effects), kSecond);
  const Submit submit = sent<Submit>(effects).at(0);
  EXPECT_EQ(submit.kv, g.ticket);
  EXPECT_EQ(submit.request.epoch, 1u);
  EXPECT_EQ(submit.request.output, (std::vector<TokenId>{40}));
  EXPECT_EQ(submit.waited, Duration(std::chrono::seconds(3)));
}

TEST(Router, ATicketThatCannotBeUsedIsGivenUp) {
  Gateway g;
  g.first_token();
  g.router.handle(ClientGone{request().id}, kStart);
  EXPECT_EQ(Gateway::to<KvTaken>(g.router.handle(MessageFrom{kFirst, Handover{request().id, 0, g.ticket}}, kStart)), kFirst);
}

TEST(Router, WhenTheNodeWithATicketIsLostTheRequestIsComputedAnew) {
  Gateway g;
  g.first_token();
  g.router.handle(MessageFrom{kFirst, Handover{request().id, 0, g.ticket}}, kStart);
  const auto effects = g.router.handle(ClusterChanged{Body::cluster({{kFirst, 1}})}, kStart);
  EXPECT_EQ(Gateway::to<KvTaken>(effects), kFirst);
  EXPECT_EQ(Gateway::to<Submit>(effects), kFirst);
  EXPECT_FALSE(sent<Submit>(effects).at(0).kv.has_value());
}

TEST(Router, AnAcceptedRequestWaitsForANodeToComeBackButNotForEver) {
  for (const bool comes : {true, false}) {
    Gateway g;
    g.first_token();
    EXPECT_TRUE(g.router.handle(ClusterChanged{Body::cluster({})}, kStart).size() <= 1);  // a wake-up
    EXPECT_EQ(g.router.live_requests(), 1u);
    g.router.check();
    if (comes) {
      const auto effects = g.router.handle(ClusterChanged{Body::cluster({{kSecond, 2}})}, kStart + std::chrono::seconds(2));
      EXPECT_EQ(Gateway::to<Submit>(effects), kSecond);
      EXPECT_EQ(sent<Submit>(effects).at(0).request.output, (std::vector<TokenId>{40}));
    } else {
      const auto effects = g.router.handle(Tick{}, kStart + std::chrono::seconds(31));
      ASSERT_TRUE(!effects.empty() && std::holds_alternative<Refuse>(effects[0]));
      EXPECT_EQ(g.router.live_requests(), 0u);
    }
    g.router.check();
  }
}

}  // namespace
}  // namespace shoal
