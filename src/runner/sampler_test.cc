#include "runner/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "base/rng.h"

namespace shoal {
namespace {

TokenId sample(const std::vector<float>& logits, const SamplingParams& params, uint32_t index = 0, std::vector<TokenId> prompt = {},
               std::vector<TokenId> output = {}, std::vector<TokenId> banned = {}) {
  Sampler sampler;
  SampledToken token;
  EXPECT_EQ(sampler.sample(logits, {params, index, prompt, output, banned}, token), SampleOutcome::kToken);
  return token.token;
}

// How often each token is drawn over the first `draws` output indices.
std::map<TokenId, double> frequencies(const std::vector<float>& logits, const SamplingParams& params, uint32_t draws = 20000) {
  std::map<TokenId, double> counts;
  Sampler sampler;
  for (uint32_t i = 0; i < draws; ++i) {
    SampledToken token;
    EXPECT_EQ(sampler.sample(logits, {params, i, {}, {}, {}}, token), SampleOutcome::kToken);
    counts[token.token] += 1.0 / draws;
  }
  return counts;
}

SamplingParams greedy() {
  SamplingParams p;
  p.temperature = 0;
  return p;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOfATie) {
  EXPECT_EQ(sample({0, 3, 1, 3}, greedy()), 1);
  SamplingParams nearly;
  nearly.temperature = 1e-7f;
  EXPECT_EQ(sample({0, 3, 1, 3}, nearly), 1);
}

TEST(Sampler, DrawsFollowTheSoftmaxAtTheTemperature) {
  const std::vector<float> logits = {1.0f, 2.0f, 0.0f, -1.0f};
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    SamplingParams p;
    p.temperature = temperature;
    p.seed = 5;
    double total = 0;
    for (const float l : logits) total += std::exp(l / temperature);
    const auto got = frequencies(logits, p);
    for (TokenId t = 0; t < 4; ++t) {
      const double expected = std::exp(logits[t] / temperature) / total;
      // four standard deviations of a binomial
      EXPECT_NEAR(got.contains(t) ? got.at(t) : 0, expected, 4 * std::sqrt(expected * (1 - expected) / 20000) + 1e-4);
    }
  }
}

TEST(Sampler, TheDrawIsAFunctionOfSeedAndIndex) {
  const std::vector<float> logits(100, 0.0f);
  SamplingParams p;
  p.seed = 9;
  EXPECT_EQ(sample(logits, p, 7), sample(logits, p, 7));
  std::map<TokenId, int> distinct;
  for (uint32_t i = 0; i < 50; ++i) ++distinct[sample(logits, p, i)];
  EXPECT_GT(distinct.size(), 25u);
}

TEST(Sampler, TopKKeepsTheKMostLikely) {
  SamplingParams p;
  p.top_k = 2;
  const auto got = frequencies({1, 5, 4, 4, 0}, p, 5000);
  EXPECT_EQ(got.size(), 2u);
  EXPECT_TRUE(got.contains(1) && got.contains(2));  // of the tie, the lower id
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  // probabilities 0.5, 0.3, 0.15, 0.05
  const std::vector<float> logits = {std::log(0.15f), std::log(0.5f), std::log(0.05f), std::log(0.3f)};
  SamplingParams p;
  p.top_p = 0.75f;
  const auto got = frequencies(logits, p, 5000);
  EXPECT_EQ(got.size(), 2u);
  EXPECT_NEAR(got.at(1), 0.5 / 0.8, 0.03);
  p.top_p = 1e-6f;
  EXPECT_EQ(frequencies(logits, p, 100).size(), 1u);
}

TEST(Sampler, TopPOverManyTokensAgreesWithAFullSort) {
  Rng rng(2);
  std::vector<float> logits(5000);
  for (float& l : logits) l = static_cast<float>(rng.uniform() * 2);
  SamplingParams p;
  p.top_p = 0.3f;
  std::vector<float> sorted = logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double total = 0, sum = 0;
  for (const float l : sorted) total += std::exp(l);
  size_t kept = 0;
  while (sum < 0.3 * total) sum += std::exp(sorted[kept++]);
  for (const auto& [token, frequency] : frequencies(logits, p, 3000)) EXPECT_GE(logits[token], sorted[kept - 1]);
}

TEST(Sampler, MinPIsRelativeToTheMostLikely) {
  const std::vector<float> logits = {0.0f, std::log(0.5f), std::log(0.2f)};
  SamplingParams p;
  p.min_p = 0.4f;
  EXPECT_EQ(frequencies(logits, p, 3000).size(), 2u);
}

TEST(Sampler, PenaltiesLowerWhatWasSaid) {
  SamplingParams p = greedy();
  p.frequency_penalty = 0.6f;
  EXPECT_EQ(sample({2.0f, 1.5f}, p, 2, {}, {0}), 1);
  EXPECT_EQ(sample({2.0f, 1.5f}, p, 2, {0, 0, 0}, {}), 0);  // the prompt does not count
  p = greedy();
  p.presence_penalty = 0.6f;
  EXPECT_EQ(sample({2.0f, 1.5f}, p, 2, {}, {0, 0}), 1);
  p = greedy();
  p.repetition_penalty = 2.0f;
  EXPECT_EQ(sample({2.0f, 1.5f}, p, 0, {0}, {}), 1);  // here the prompt counts
  EXPECT_EQ(sample({2.0f, 1.5f}, p, 0, {0}, {0}), 1);
  EXPECT_EQ(sample({-1.0f, -1.5f}, p, 0, {0}, {}), 1);  // negative logits go down, too
}

TEST(Sampler, PenaltiesAreAppliedOncePerTokenInPromptAndOutput) {
  SamplingParams p = greedy();
  p.repetition_penalty = 2.0f;
  // 4 / 2 = 2 stays above 1.5; dividing twice would give 1
  EXPECT_EQ(sample({4.0f, 1.5f}, p, 0, {0, 0}, {0, 0}), 0);
}

TEST(Sampler, BiasAndBansDecide) {
  SamplingParams p = greedy();
  p.logit_bias = {{2, 100.0f}, {999, 5.0f}, {-4, 5.0f}};
  EXPECT_EQ(sample({1, 2, 0}, p), 2);
  EXPECT_EQ(sample({1, 2, 0}, greedy(), 0, {}, {}, {1}), 0);
}

TEST(Sampler, LogprobsAreThoseOfTheUnmodifiedDistribution) {
  SamplingParams p = greedy();
  p.logit_bias = {{0, 100.0f}};
  p.logprobs = 2;
  Sampler sampler;
  SampledToken token;
  ASSERT_TRUE(sampler.sample(std::vector<float>{0.0f, std::log(3.0f)}, {p, 0, {}, {}, {}}, token) == SampleOutcome::kToken);
  EXPECT_EQ(token.token, 0);
  EXPECT_NEAR(token.logprob, std::log(0.25f), 1e-5);
  ASSERT_EQ(token.top.size(), 2u);
  EXPECT_EQ(token.top[0].token, 1);
  EXPECT_NEAR(token.top[0].logprob, std::log(0.75f), 1e-5);
}

TEST(Sampler, LogitsThatAreNoNumbersAreReported) {
  Sampler sampler;
  SampledToken token;
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const SamplingParams p;
  EXPECT_EQ(sampler.sample(std::vector<float>{0, nan}, {p, 0, {}, {}, {}}, token), SampleOutcome::kNotFinite);
  EXPECT_EQ(sampler.sample(std::vector<float>{0, inf}, {p, 0, {}, {}, {}}, token), SampleOutcome::kNotFinite);
  EXPECT_EQ(sampler.sample(std::vector<float>{-inf, -inf}, {p, 0, {}, {}, {}}, token), SampleOutcome::kNotFinite);
  EXPECT_EQ(sampler.sample(std::vector<float>{-inf, 0}, {p, 0, {}, {}, {}}, token), SampleOutcome::kToken);
  const std::vector<TokenId> all = {0, 1};
  EXPECT_EQ(sampler.sample(std::vector<float>{0, 0}, {p, 0, {}, {}, all}, token), SampleOutcome::kNothingLeft);
}

}  // namespace
}  // namespace shoal
