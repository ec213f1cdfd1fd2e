#include "runner/token_constraints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "runner/sampler.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

constexpr TokenId kEos = 260;

// Bytes, "ab", "cd", and control tokens.
std::shared_ptr<const TokenVocabulary> vocabulary(TokenId without = -1) {
  std::vector<TokenVocabulary::Token> tokens;
  for (int b = 0; b < 256; ++b) {
    if (b != without) tokens.push_back({b, std::string(1, static_cast<char>(b)), false});
  }
  tokens.push_back({256, "ab", false});
  tokens.push_back({257, "cd", false});
  tokens.push_back({kEos, "</s>", true});
  return std::make_shared<const TokenVocabulary>(std::move(tokens), 261);
}

TokenConstraints constraints(TokenId without = -1) {
  return TokenConstraints([without]() -> StatusOr<std::shared_ptr<const TokenVocabulary>> { return vocabulary(without); });
}

Request request(const std::string& gbnf, uint64_t id = 1, std::vector<TokenId> stop_ids = {kEos}) {
  Request r;
  r.id = RequestId(id);
  r.sampling.grammar = Grammar{gbnf, {}};
  r.stop_ids = std::move(stop_ids);
  return r;
}

std::vector<TokenId> allowed_ids(std::span<const uint64_t> words) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < words.size() * 64; ++i) {
    if (words[i / 64] >> (i % 64) & 1) ids.push_back(static_cast<TokenId>(i));
  }
  return ids;
}

TEST(TokenConstraints, StopIdsAreAllowedExactlyWhereTheGrammarCanEnd) {
  auto c = constraints();
  const Request plain = request("root ::= \"ab\"{1,2}", 3);
  EXPECT_EQ(allowed_ids(c.next(plain, {}, false)->allowed), (std::vector<TokenId>{'a', 256}));
  const std::vector<TokenId> one = {256}, two = {256, 'a', 'b'};
  EXPECT_EQ(allowed_ids(c.next(plain, one, false)->allowed), (std::vector<TokenId>{'a', 256, kEos}));
  EXPECT_EQ(allowed_ids(c.next(plain, one, true)->allowed), (std::vector<TokenId>{'a', 256})) << "min_tokens";
  EXPECT_TRUE(c.next(plain, two, true)->over);
  // an ordinary token that is a stop id as well: within the answer it may not come, at its end it may
  const Request own = request("root ::= \"b\" \"a\"? \"b\"", 4, {'a'});
  const std::vector<TokenId> b = {'b'}, bb = {'b', 'b'};
  EXPECT_EQ(allowed_ids(c.next(own, b, false)->allowed), (std::vector<TokenId>{'b', 256}));
  EXPECT_TRUE(c.next(own, bb, false)->over);
}

TEST(TokenConstraints, AnAnswerIsOverWithTheTokenThatCompletesIt) {
  auto c = constraints();
  const Request r = request("root ::= \"abcd\"");
  std::vector<TokenId> output;
  ASSERT_TRUE(c.next(r, output, false).ok());
  EXPECT_FALSE(c.took(256));
  output.push_back(256);
  ASSERT_TRUE(c.next(r, output, false).ok());
  EXPECT_TRUE(c.took(257));
}

TEST(TokenConstraints, WhatIsRememberedNeverMattersToWhatIsAllowed) {
  const std::string gbnf = "root ::= \"{\" item (\",\" item)* \"}\"\nitem ::= [a-d]{1,3} (\":\" root)?";
  auto busy = constraints();
  Rng rng(5);
  std::vector<std::vector<TokenId>> outputs(20);
  for (int step = 0; step < 600; ++step) {
    const size_t i = rng.below(outputs.size());
    const Request r = request(gbnf, i);
    if (rng.below(10) == 0) outputs[i].resize(rng.below(outputs[i].size() + 1));  // goes back, as after a fail-over
    const auto next = busy.next(r, outputs[i], false);
    ASSERT_TRUE(next.ok()) << next.status();
    auto fresh = constraints();
    const auto again = fresh.next(r, outputs[i], false);
    ASSERT_TRUE(again.ok());
    ASSERT_EQ(next->over, again->over);
    if (next->over) {
      outputs[i].clear();
      continue;
    }
    const auto ids = allowed_ids(next->allowed);
    ASSERT_EQ(ids, allowed_ids(again->allowed));
    const TokenId token = ids[rng.below(ids.size())];
    if (rng.below(3) != 0) busy.took(token);  // else the step's result was lost
    if (token != kEos) outputs[i].push_back(token);
  }
}

TEST(TokenConstraints, DeadEndsAndForeignTokensAreErrors) {
  auto c = constraints('z');
  const auto dead = c.next(request("root ::= \"z\""), {}, false);
  EXPECT_EQ(dead.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(dead.status().message()), HasSubstr("no token"));
  const std::vector<TokenId> wrong = {'q'};
  EXPECT_FALSE(c.next(request("root ::= \"a\"", 2), wrong, false).ok());
  EXPECT_FALSE(c.next(request("root ::= ", 3), {}, false).ok() && c.next(request("root ::= root", 4), {}, false).ok());
  TokenConstraints none{nullptr};
  EXPECT_EQ(none.next(request("root ::= \"a\""), {}, false).status().code(), StatusCode::kUnimplemented);
}

TEST(TokenConstraints, BeforeATriggerEveryTokenMayCome) {
  auto c = constraints();
  Request r = request("unused");
  r.sampling.grammar = Grammar{"root ::= \"x\"", {"ab"}};
  EXPECT_TRUE(c.next(r, {}, false)->free);
  EXPECT_FALSE(c.took(kEos));
  const std::vector<TokenId> after = {'q', 'a', 'b'};
  EXPECT_EQ(allowed_ids(c.next(r, after, false)->allowed), (std::vector<TokenId>{'x'}));
}

TEST(Sampler, OnlyWhatIsAllowedIsDrawnAndLogprobsStayThoseOfTheModel) {
  const std::vector<float> logits = {5.0f, 1.0f, 4.0f, 0.0f};
  const std::vector<uint64_t> allowed = {0b1010};
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingParams p;
    p.temperature = temperature;
    p.logprobs = 1;
    Sampler sampler;
    SampledToken free, bound;
    for (uint32_t i = 0; i < 200; ++i) {
      ASSERT_EQ(sampler.sample(logits, {p, i, {}, {}, {}, allowed}, bound), SampleOutcome::kToken);
      ASSERT_TRUE(bound.token == 1 || bound.token == 3);
      ASSERT_TRUE(sampler.score(logits, bound.token, 1, free));
      ASSERT_EQ(bound.logprob, free.logprob);
      ASSERT_EQ(bound.top, free.top) << "the likeliest token is reported although it was not allowed";
    }
  }
  SamplingParams p;
  SampledToken token;
  Sampler sampler;
  const std::vector<uint64_t> nothing = {0b10000};
  EXPECT_EQ(sampler.sample(logits, {p, 0, {}, {}, {}, nothing}, token), SampleOutcome::kNothingLeft);
  const std::vector<TokenId> banned = {1};
  ASSERT_EQ(sampler.sample(logits, {p, 0, {}, {}, banned, allowed}, token), SampleOutcome::kToken);
  EXPECT_EQ(token.token, 3);
}

}  // namespace
}  // namespace shoal
