#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/rng.h"
#include "runner/dry.h"
#include "runner/sampler.h"

namespace shoal {
namespace {

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

SampledToken sample(const std::vector<float>& logits, const SamplingParams& params, uint32_t index = 0, std::vector<TokenId> prompt = {},
                    std::vector<TokenId> output = {}, std::optional<float> mu = {}) {
  Sampler sampler;
  SampledToken token;
  EXPECT_EQ(sampler.sample(logits, {params, index, prompt, output, {}, {}, mu}, token), SampleOutcome::kToken);
  return token;
}

// Which tokens appear among the first `draws` output indices.
std::set<TokenId> drawn(const std::vector<float>& logits, const SamplingParams& params, uint32_t draws = 3000) {
  std::set<TokenId> seen;
  for (uint32_t i = 0; i < draws; ++i) seen.insert(sample(logits, params, i).token);
  return seen;
}

TEST(SamplerFilters, TypicalKeepsThoseWhoseSurpriseIsNearTheEntropy) {
  // Entropy 1.168 nats; surprises 0.693, 1.386, 2.079, 2.526, 3.219: token 1 is the nearest, then 0, then 2.
  const std::vector<float> logits = logits_of({0.5, 0.25, 0.125, 0.08, 0.045});
  SamplingParams p;
  p.typical_p = 0.2f;
  EXPECT_EQ(drawn(logits, p), (std::set<TokenId>{1}));
  p.typical_p = 0.6f;
  EXPECT_EQ(drawn(logits, p), (std::set<TokenId>{0, 1}));
  p.typical_p = 0.8f;
  EXPECT_EQ(drawn(logits, p), (std::set<TokenId>{0, 1, 2}));
  p.temperature = 0;
  p.typical_p = 0.2f;
  EXPECT_EQ(sample(logits, p).token, 1) << "greedy takes the best of what is left";
}

TEST(SamplerFilters, XtcLeavesOnlyTheLeastLikelyOfTheTopChoices) {
  const std::vector<float> logits = logits_of({0.4, 0.3, 0.15, 0.1, 0.05});
  SamplingParams p;
  p.xtc_probability = 1;
  p.xtc_threshold = 0.12f;
  EXPECT_EQ(drawn(logits, p), (std::set<TokenId>{2, 3, 4}));
  p.xtc_threshold = 0.35f;  // one alone is above it: nothing to exclude
  EXPECT_EQ(drawn(logits, p), (std::set<TokenId>{0, 1, 2, 3, 4}));
  p.temperature = 0;
  p.xtc_threshold = 0.12f;
  EXPECT_EQ(sample(logits, p).token, 2);
}

TEST(SamplerFilters, XtcActsAsOftenAsItsProbabilitySays) {
  const std::vector<float> logits = logits_of({0.5, 0.5});
  SamplingParams p;
  p.temperature = 0;
  p.xtc_probability = 0.25f;
  int excluded = 0;
  for (uint32_t i = 0; i < 4000; ++i) excluded += sample(logits, p, i).token == 1;
  EXPECT_NEAR(excluded / 4000.0, 0.25, 4 * std::sqrt(0.25 * 0.75 / 4000));
}

TEST(SamplerFilters, TopNSigmaCutsBelowDeviationsOfTheLogits) {
  const std::vector<float> logits = {10, 9, 0, 0, 0, 0, 0, 0};  // deviation 4.14: one of them reaches down to 5.86
  SamplingParams p;
  p.temperature = 50;  // nearly flat: without the cut all would be drawn
  p.top_n_sigma = 1;
  EXPECT_EQ(drawn(logits, p), (std::set<TokenId>{0, 1}));
  p.top_n_sigma = 0.1f;
  EXPECT_EQ(drawn(logits, p), (std::set<TokenId>{0}));
}

TEST(SamplerFilters, MirostatTwoCutsWhatSurprisesMoreThanMu) {
  const std::vector<float> logits = logits_of({0.5, 0.25, 0.125, 0.125});
  SamplingParams p;
  p.mirostat = {2, 3.0f, 0.1f};
  for (uint32_t i = 0; i < 200; ++i) {
    const SampledToken token = sample(logits, p, i, {}, {}, 2.5f);
    ASSERT_LE(token.token, 1) << "3 bits are more than 2.5";
    const double surprise = token.token == 0 ? std::log2(1.5) : std::log2(3.0);  // of what is left: 2/3, 1/3
    EXPECT_NEAR(*token.mirostat_mu, 2.5 - 0.1 * (surprise - 3.0), 1e-5);
  }
  EXPECT_NEAR(*sample(logits, p).mirostat_mu, 6.0, 0.5) << "begins at 2 tau";
}

TEST(SamplerFilters, MirostatHoldsTheSurpriseNearTau) {
  for (const uint32_t version : {1u, 2u}) {
    std::vector<double> zipf;
    for (int i = 1; i <= 2000; ++i) zipf.push_back(1.0 / std::pow(i, 1.1));
    const std::vector<float> logits = logits_of(zipf);
    SamplingParams p;
    p.mirostat = {version, 3.0f, 0.1f};
    float mu = 6.0f;
    double surprise = 0;  // of each token among those that were left, told by what it did to mu
    for (uint32_t i = 0; i < 3000; ++i) {
      const float after = *sample(logits, p, i, {}, {}, mu).mirostat_mu;
      if (i >= 1000) surprise += (3.0 - (after - mu) / 0.1) / 2000;
      mu = after;
    }
    EXPECT_NEAR(surprise, 3.0, 0.1) << "version " << version;
    EXPECT_NEAR(mu, 4.5, 2.5) << "version " << version;
  }
}

TEST(SamplerFilters, BadWordsAreNeverCompleted) {
  SamplingParams p;
  p.temperature = 0;
  p.rules = TokenRules{{}, {{3}, {1, 2}}, {}};
  EXPECT_EQ(sample({0, 1, 5, 9}, p).token, 2) << "a word of one token never";
  EXPECT_EQ(sample({0, 1, 5, 9}, p, 1, {}, {1}).token, 1) << "its end not after its beginning";
  EXPECT_EQ(sample({0, 1, 5, 9}, p, 1, {1}, {}).token, 2) << "the prompt is not the answer";
}

TEST(SamplerFilters, OnlyWhatIsAllowedIsSampled) {
  SamplingParams p;
  p.temperature = 5;
  p.rules = TokenRules{{1, 3}, {}, {}};
  EXPECT_EQ(drawn({9, 0, 9, 0, 9}, p), (std::set<TokenId>{1, 3}));
  p.rules = TokenRules{{1}, {{1}}, {}};
  Sampler sampler;
  SampledToken token;
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 2, 3}, {p, 0, {}, {}, {}, {}, {}}, token), SampleOutcome::kNothingLeft);
}

// The definition, by trying every earlier place.
std::map<TokenId, uint32_t> repetitions(const std::vector<TokenId>& tokens, uint32_t allowed, uint32_t limit) {
  std::map<TokenId, uint32_t> found;
  const size_t n = tokens.size();
  for (size_t next = 1; next < n; ++next) {
    uint32_t length = 0;
    while (length < std::min<size_t>(next, limit) && tokens[next - 1 - length] == tokens[n - 1 - length]) ++length;
    if (length >= allowed) found[tokens[next]] = std::max(found[tokens[next]], length);
  }
  return found;
}

TEST(SamplerFilters, WhatIsDrawnFromTheMostLikelyIsWhatIsDrawnFromAll) {
  Rng rng(11);
  Sampler sampler;
  for (uint32_t round = 0; round < 500; ++round) {
    std::vector<float> logits(200);
    for (float& logit : logits) logit = static_cast<float>(rng.below(40)) * 0.25f;  // with ties
    SamplingParams p;
    p.seed = round;
    p.top_k = 1 + static_cast<uint32_t>(rng.below(60));
    p.temperature = round % 5 == 0 ? 0.0f : 0.3f + 0.1f * static_cast<float>(rng.below(20));
    p.top_p = round % 2 == 0 ? 1.0f : 0.7f;
    p.min_p = round % 3 == 0 ? 0.1f : 0.0f;
    p.typical_p = round % 4 == 0 ? 0.8f : 1.0f;
    p.xtc_probability = round % 7 == 0 ? 0.9f : 0.0f;
    p.xtc_threshold = 0.05f;
    const LogitsQuery query = Sampler::query(p, 0);
    std::vector<TokenLogit> top;
    for (TokenId token = 0; token < 200; ++token) top.push_back({token, logits[static_cast<size_t>(token)]});
    std::sort(top.begin(), top.end(), [](const TokenLogit& a, const TokenLogit& b) { return a.logit != b.logit ? a.logit > b.logit : a.token < b.token; });
    RowLogits row;
    if (query.wanted == LogitsWanted::kTop) {
      ASSERT_EQ(query.top, p.top_k);
      row.top = std::span(top).first(query.top);
    } else {
      ASSERT_EQ(query.wanted, LogitsWanted::kBest);
      row.best = top.front().token;
    }
    SampledToken token;
    ASSERT_EQ(sampler.sample(row, {p, round, {}, {}, {}, {}, {}}, token), SampleOutcome::kToken);
    EXPECT_EQ(token.token, sample(logits, p, round).token) << "round " << round;
  }
}

TEST(SamplerFilters, AllLogitsAreAskedForWhereTheMostLikelyAreNotEnough) {
  const auto wanted = [](auto change) {
    SamplingParams p;
    p.top_k = 20;
    change(p);
    return Sampler::query(p, 3).wanted;
  };
  EXPECT_EQ(wanted([](SamplingParams&) {}), LogitsWanted::kTop);
  EXPECT_EQ(wanted([](SamplingParams& p) { p.temperature = 0; }), LogitsWanted::kBest);
  EXPECT_EQ(wanted([](SamplingParams& p) { p.top_k = 0; }), LogitsWanted::kAll);
  EXPECT_EQ(wanted([](SamplingParams& p) { p.top_k = 5000; }), LogitsWanted::kAll);
  EXPECT_EQ(wanted([](SamplingParams& p) { p.logprobs = 0; }), LogitsWanted::kAll);
  EXPECT_EQ(wanted([](SamplingParams& p) { p.top_n_sigma = 1; }), LogitsWanted::kAll);
  EXPECT_EQ(wanted([](SamplingParams& p) { p.mirostat.version = 2; }), LogitsWanted::kAll);
  EXPECT_EQ(wanted([](SamplingParams& p) { p.frequency_penalty = 1; }), LogitsWanted::kAll);
  EXPECT_EQ(wanted([](SamplingParams& p) { p.logit_bias = {{3, 1.0f}}; }), LogitsWanted::kAll);
}

TEST(Dry, FindsEveryTokenThatWouldProlongARepetition) {
  Rng rng(7);
  DryRepetitions dry;
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> tokens(rng.below(24));
    for (TokenId& token : tokens) token = static_cast<TokenId>(rng.below(3));
    const size_t cut = rng.below(tokens.size() + 1);
    const std::vector<TokenId> prompt(tokens.begin(), tokens.begin() + cut), output(tokens.begin() + cut, tokens.end());
    DryPenalty params{1, 2, 1 + static_cast<uint32_t>(rng.below(3))};
    params.window = round % 3 == 0 ? 10 : UINT32_MAX;
    const std::vector<TokenId> seen(tokens.end() - std::min<size_t>(tokens.size(), params.window), tokens.end());
    uint32_t limit = UINT32_MAX;
    std::vector<std::vector<TokenId>> breakers;
    if (round % 2 == 0) {
      breakers = {{1, 0}, {2}};
      limit = 0;
      for (size_t i = seen.size(); i > 0 && seen[i - 1] != 2 && !(i >= 2 && seen[i - 2] == 1 && seen[i - 1] == 0); --i) ++limit;
    }
    const auto expected = limit < params.allowed_length ? std::map<TokenId, uint32_t>{} : repetitions(seen, params.allowed_length, limit);
    const auto got = dry.find(prompt, output, params, breakers);
    EXPECT_EQ((std::map<TokenId, uint32_t>(got.begin(), got.end())), expected);
  }
}

TEST(Dry, ThePenaltyGrowsWithTheLengthAndStaysFinite) {
  const DryPenalty dry{0.5f, 2, 2};
  EXPECT_FLOAT_EQ(dry_penalty(dry, 2), 0.5f);
  EXPECT_FLOAT_EQ(dry_penalty(dry, 5), 4.0f);
  EXPECT_TRUE(std::isfinite(dry_penalty(dry, 100'000)));
  SamplingParams p;
  p.temperature = 0;
  p.dry = dry;
  const std::vector<TokenId> prompt = {0, 1, 2, 0, 1};
  EXPECT_EQ(sample({0, 0, 1, 0.75f}, p, 0, prompt).token, 3) << "2 would follow 0 1 once more";
}

TEST(SamplerFilters, TheRankOfAScoredTokenCountsTheMoreLikely) {
  Sampler sampler;
  SampledToken token;
  ASSERT_TRUE(sampler.score(std::vector<float>{1, 4, 2, 4}, 2, 0, token));
  EXPECT_EQ(token.rank, 3u);
  ASSERT_TRUE(sampler.score(std::vector<float>{1, 4, 2, 4}, 3, 0, token));
  EXPECT_EQ(token.rank, 1u);
}

}  // namespace
}  // namespace shoal
