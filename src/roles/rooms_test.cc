// The rooms of a node alone: the load desk, the books of what is handed over, and what models are like.
#include <gtest/gtest.h>

#include "roles/handovers.h"
#include "roles/likeness.h"
#include "roles/load_desk.h"
#include "roles/request_table.h"
#include "roles/test_body.h"

namespace shoal {
namespace {

constexpr TimePoint at(int ms) { return TimePoint(milliseconds(ms)); }

// ---- the load desk --------------------------------------------------------------------------------------------------------------

TEST(LoadDesk, GoesFromMakingRoomOverLoadingToPackingAndBack) {
  LoadDesk desk(1e9);
  EXPECT_FALSE(desk.under_way());
  desk.make_room(ModelId(1));
  desk.make_room(ModelId(2));  // another one comes first
  EXPECT_EQ(desk.making_room(), ModelId(2));
  EXPECT_FALSE(desk.under_way());
  desk.begin(ModelId(2), at(5), 1, at(10));
  EXPECT_EQ(desk.under_way(), ModelId(2));
  EXPECT_FALSE(desk.making_room());
  desk.cancel();
  EXPECT_TRUE(desk.cancelled());
  const LoadDesk::Loading ended = desk.end();
  EXPECT_TRUE(ended.cancelled) << "it ended all the same, well";
  EXPECT_EQ(ended.wanted_since, at(5));
  desk.pack(ModelId(2));
  EXPECT_TRUE(desk.packing(ModelId(2)));
  EXPECT_FALSE(desk.cancelled());
  desk.step_begun(ModelId(2), false, at(20));
  EXPECT_TRUE(desk.packing()->stepped);
  desk.fail_packing(absl::DataLossError("gone"), {});
  EXPECT_EQ(desk.end_packing().failed.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(std::holds_alternative<LoadDesk::Idle>(desk.state()));
}

TEST(LoadDesk, ALoadWithoutAStepBesideItIsWaitedForToItsEnd) {
  LoadDesk desk(1e9);
  EXPECT_DOUBLE_EQ(desk.seconds_for(2'000'000'000), 2.0) << "believed";
  desk.begin(ModelId(1), at(0), 1, at(100));
  const auto cost = desk.measure(desk.end(), 1'000'000, /*stepping=*/false, at(300));
  ASSERT_TRUE(cost.has_value());
  EXPECT_DOUBLE_EQ(cost->seconds, 0.2);
  EXPECT_DOUBLE_EQ(cost->waited_seconds, 0.2);
  EXPECT_DOUBLE_EQ(desk.seconds_for(2'000'000), 0.4) << "measured";
}

TEST(LoadDesk, WhatWasThereIsNoPartOfWhatBytesTake) {
  LoadDesk desk(1e9);
  desk.begin(ModelId(1), at(0), 0.5, at(100));
  const auto half = desk.measure(desk.end(), 1'000'000, /*stepping=*/false, at(300));
  ASSERT_TRUE(half.has_value());
  EXPECT_DOUBLE_EQ(half->copied, 0.5);
  EXPECT_DOUBLE_EQ(desk.seconds_for(1'000'000), 0.4);
  desk.begin(ModelId(1), at(300), 0, at(300));
  EXPECT_TRUE(desk.measure(desk.end(), 1'000'000, /*stepping=*/false, at(301)).has_value());
  EXPECT_DOUBLE_EQ(desk.seconds_for(1'000'000), 0.4) << "a load that copies nothing says nothing of it";
}

TEST(LoadDesk, BesideAStepALoadCostsTheTimeBeforeItAndWhatTheStepTookLonger) {
  LoadDesk desk(1e9);
  desk.begin(ModelId(1), at(0), 1, at(100));
  desk.step_begun(ModelId(0), false, at(150));
  EXPECT_TRUE(desk.step_beside_load());
  EXPECT_FALSE(desk.measure(desk.end(), 1, /*stepping=*/true, at(200)).has_value()) << "the step will tell";
  desk.step_ended(at(250));
  const auto cost = desk.charge(0.03);
  ASSERT_TRUE(cost.has_value());
  EXPECT_DOUBLE_EQ(cost->waited_seconds, 0.05 + 0.03);
  EXPECT_FALSE(desk.charge(0.03).has_value()) << "told once";
}

// ---- hand-overs -----------------------------------------------------------------------------------------------------------------

constexpr NodeId kHere{1}, kThere{2}, kElsewhere{3}, kEdge{9};
constexpr uint64_t kBytes = kPageBytes / 4;

template <typename M>
std::vector<M> sent(const std::vector<Effect>& effects) {
  std::vector<M> out;
  for (const Effect& effect : effects) {
    if (const auto* send = std::get_if<Send>(&effect)) {
      if (const auto* message = std::get_if<M>(&send->message)) out.push_back(*message);
    }
  }
  return out;
}

ClusterState members(std::initializer_list<std::pair<NodeId, uint32_t>> epochs) {
  ClusterState state;
  for (const auto& [id, epoch] : epochs) state.members[id] = {id, Role::kNode, epoch, {}, false};
  return state;
}

class HandoverBooks : public testing::Test {
 protected:
  HandoverBooks() : books_(kHere, seconds(30), tier_) { books_.learn(members({{kHere, 1}, {kThere, 1}, {kEdge, 1}})); }

  KvTicket offer(uint64_t id) {
    HostKv kv{.tokens = 30};
    for (int i = 0; i < 2; ++i) kv.blocks.push_back(*tier_.blocks(kBytes)->allocate());
    return *books_.offer(RequestId(id), 0, ModelId(0), kEdge, 5, std::move(kv), kBytes, at(0), effects_);
  }
  Submit with(const KvTicket& ticket) {
    Submit submit;
    submit.request.id = RequestId(7);
    submit.request.epoch = 1;
    submit.kv = ticket;
    return submit;
  }
  uint32_t blocks_used() const { return tier_.blocks_used(kBytes); }

  HostTier tier_{4};
  Handovers books_;
  std::vector<Effect> effects_;
};

TEST_F(HandoverBooks, AnOfferIsForTheFirstWhoComesAndEndsWhenHeHasIt) {
  EXPECT_EQ(offer(7).weights, 5u);
  books_.on_wanted(kThere, {RequestId(7), 0}, effects_);
  books_.on_wanted(kElsewhere, {RequestId(7), 0}, effects_);
  const auto grants = sent<KvGranted>(effects_);
  ASSERT_EQ(grants.size(), 2u);
  EXPECT_EQ(grants[0].blocks.size(), 2u);
  EXPECT_TRUE(grants[1].blocks.empty());
  books_.on_taken(kElsewhere, {RequestId(7), 0}, at(1));
  EXPECT_EQ(blocks_used(), 2u) << "it is not his";
  books_.on_taken(kThere, {RequestId(7), 0}, at(1));
  EXPECT_EQ(blocks_used(), 0u);
  EXPECT_TRUE(books_.idle());
}

TEST_F(HandoverBooks, AnOfferThatNobodyTakesEndsInTimeAndAGrantIsRepeated) {
  offer(7);
  offer(8);
  books_.on_wanted(kThere, {RequestId(8), 0}, effects_);
  effects_.clear();
  books_.end_due(at(30'000), effects_);
  EXPECT_EQ(blocks_used(), 2u);
  ASSERT_EQ(sent<KvGranted>(effects_).size(), 1u);
  EXPECT_EQ(sent<KvGranted>(effects_)[0].id, RequestId(8));
  books_.end_lives(*books_.learn(members({{kHere, 1}, {kThere, 2}, {kEdge, 1}})), at(31'000));
  EXPECT_EQ(blocks_used(), 0u) << "the taker began anew";
}

TEST_F(HandoverBooks, ATicketOfThisNodeIsTakenBackAtOnce) {
  const Handovers::Claim claim = books_.claim(kEdge, with(offer(7)), /*usable=*/true, at(1), effects_);
  EXPECT_FALSE(claim.waits);
  ASSERT_TRUE(claim.kv.has_value());
  EXPECT_FALSE(claim.kv->remote);
  EXPECT_EQ(blocks_used(), 2u) << "the caller's";
  books_.release(*claim.kv, kBytes);
  EXPECT_EQ(blocks_used(), 0u);
}

TEST_F(HandoverBooks, ARequestWaitsForTheGrantAndComesWithTheTimeItWaited) {
  const Submit submit = with({kThere, 0, 30, kBytes, 5});
  EXPECT_TRUE(books_.claim(kEdge, submit, true, at(100), effects_).waits);
  EXPECT_EQ(sent<KvWanted>(effects_).size(), 1u);
  EXPECT_TRUE(books_.claim(kEdge, submit, true, at(150), effects_).waits) << "said twice";
  EXPECT_FALSE(books_.on_granted(kElsewhere, {RequestId(7), 0, {BlockId(4), BlockId(5)}}, at(200), effects_).has_value());
  const auto arrival = books_.on_granted(kThere, {RequestId(7), 0, {BlockId(4), BlockId(5)}}, at(200), effects_);
  ASSERT_TRUE(arrival.has_value());
  EXPECT_EQ(arrival->submit.waited, milliseconds(100));
  ASSERT_TRUE(arrival->kv.has_value());
  EXPECT_TRUE(arrival->kv->remote);
  books_.fetch(RequestId(7), ModelId(0), *submit.kv);
  EXPECT_EQ(books_.fetched_from(RequestId(7)), kThere);
  effects_.clear();
  books_.end_fetch(RequestId(7), effects_);
  EXPECT_EQ(sent<KvTaken>(effects_).size(), 1u);
}

TEST_F(HandoverBooks, KvThatIsGoneOrOfANodeThatIsLostIsNotWaitedFor) {
  EXPECT_FALSE(books_.claim(kEdge, with({kElsewhere, 0, 30, kBytes, 5}), true, at(0), effects_).waits) << "not a member";
  EXPECT_FALSE(books_.claim(kEdge, with({kThere, 0, 30, kBytes, 5}), /*usable=*/false, at(0), effects_).waits);
  EXPECT_EQ(sent<KvTaken>(effects_).size(), 2u);
  EXPECT_TRUE(books_.claim(kEdge, with({kThere, 0, 30, kBytes, 5}), true, at(0), effects_).waits);
  const auto gone = books_.on_granted(kThere, {RequestId(7), 0, {}}, at(10), effects_);
  ASSERT_TRUE(gone.has_value());
  EXPECT_FALSE(gone->kv.has_value());
  EXPECT_TRUE(books_.claim(kEdge, with({kThere, 0, 30, kBytes, 5}), true, at(20), effects_).waits);
  const auto arrivals = books_.end_lives(*books_.learn(members({{kHere, 1}, {kEdge, 1}})), at(50));
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].submit.waited, milliseconds(30));
  EXPECT_TRUE(books_.idle());
}

TEST_F(HandoverBooks, WithTheGatewayEndsWhatItAskedForAndWhatItHasATicketOf) {
  offer(8);
  books_.claim(kEdge, with({kThere, 0, 30, kBytes, 5}), true, at(0), effects_);
  effects_.clear();
  books_.forget_gateway(kEdge, effects_);
  EXPECT_EQ(blocks_used(), 0u);
  EXPECT_EQ(sent<KvTaken>(effects_).size(), 1u);
  EXPECT_TRUE(books_.idle());
}

// ---- requests -------------------------------------------------------------------------------------------------------------------

// ---- likeness -----------------------------------------------------------------------------------------------------------------

TEST(Likeness, AModelIsLikeTheOthersUntilItsOwnAnswersTellMore) {
  PagePool pages(4);
  BlockPool blocks(pages, kPageBytes / 4);
  HostTier host(0);
  std::map<ModelId, HostedModel> models;
  for (uint32_t id = 0; id < 2; ++id) models[ModelId(id)].engine = std::make_unique<Engine>(blocks, EngineConfig{.max_model_len = 64, .vocab_size = 100}, host.blocks(kPageBytes / 4));
  HostedModel &known = models[ModelId(0)], &fresh = models[ModelId(1)];
  Likeness likeness;
  const auto expected = [&](const HostedModel& model) {
    likeness.expect_answers(models);
    return likeness.answer_tokens(model);
  };
  for (int i = 0; i < 100; ++i) likeness.observe_answer(known, 100, false);
  EXPECT_NEAR(expected(fresh), 100, 1);
  for (int i = 0; i < 3; ++i) likeness.observe_answer(fresh, 2, false);  // the first to end are the short ones
  EXPECT_GT(expected(fresh), 60);
  EXPECT_NEAR(expected(known), 100, 2);
  for (int i = 0; i < 200; ++i) likeness.observe_answer(fresh, 2, false);
  EXPECT_LT(expected(fresh), 6);
  EXPECT_EQ(likeness.filled(fresh), 0);
  EXPECT_NEAR(expected(known), 100, 6);
}

TEST(Likeness, HowManyAnswersAreAsLongAsTheyMayBeIsKnownOfTheOthersAtFirst) {
  HostedModel known, fresh;
  Likeness likeness;
  EXPECT_EQ(likeness.filled(fresh), 0);
  for (int i = 0; i < 100; ++i) likeness.observe_answer(known, 40, true);
  EXPECT_NEAR(likeness.filled(fresh), 1, 0.01);
  EXPECT_NEAR(likeness.filled_tokens(fresh), 40, 1);
  for (int i = 0; i < 100; ++i) likeness.observe_answer(fresh, 10, false);
  EXPECT_LT(likeness.filled(fresh), 0.1);
  EXPECT_GT(likeness.filled(known), 0.9);
}

TEST(RequestTable, FailsTheRequestsOfOneModelInTheOrderOfTheirNames) {
  const NodeConfig c = config(16, {model(0), model(1)});
  Catalogue catalogue(c);
  Handovers handovers(kHere, seconds(30), catalogue.host_tier());
  RequestTable table(catalogue, handovers, c.prompts);
  for (uint64_t id = 1; id <= 5; ++id) {
    Request r;
    r.id = RequestId(6 - id);
    r.model = ModelId(id % 2);
    r.prompt = {1, 2, 3};
    r.max_tokens = 4;
    ASSERT_TRUE(catalogue.at(r.model).engine->submit(r).ok());
    table.add(r.id, {.gateway = kEdge, .model = r.model});
    table.begin_by(r.id, at(static_cast<int>(id)));
    table.queue_prompt({r.id, r.model, 0.1, at(100)}, [](ModelId) { return 0.0; }, at(0));
  }
  EXPECT_EQ(table.overdue(at(1)), RequestId(5));
  EXPECT_FALSE(table.overdue(at(0)).has_value());
  EXPECT_EQ(table.prompts_queued(ModelId(1)), 3u);
  std::vector<Effect> effects;
  table.fail_all_of(ModelId(1), unavailable("its files vanished"), effects);
  const auto ends = sent<Tokens>(effects);
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_EQ(ends[0].id, RequestId(1));
  EXPECT_EQ(ends[2].id, RequestId(5));
  EXPECT_EQ(table.prompts_queued(ModelId(1)), 0u);
  EXPECT_EQ(table.of_gateway(kEdge), (std::vector{RequestId(2), RequestId(4)}));
  EXPECT_EQ(table.next_bound(), at(2));
  table.check();
}

}  // namespace
}  // namespace shoal
