#include "kernels/expert_router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace shoal {
namespace {

struct Chosen {
  std::vector<uint32_t> experts;
  std::vector<double> weights;
};

Chosen choose(const RouterRule& rule, const std::vector<float>& logits, const std::vector<float>& bias = {}) {
  std::vector<ExpertChoice> out(rule.used);
  choose_experts(rule, logits, bias, out);
  Chosen chosen;
  for (const ExpertChoice& c : out) chosen.experts.push_back(c.expert), chosen.weights.push_back(c.weight);
  return chosen;
}

TEST(ExpertRouter, SoftmaxWeightsAreThoseOfAllExpertsOrSumToOne) {
  RouterRule rule{.experts = 4, .used = 2};
  const std::vector<float> logits = {1.0f, 3.0f, 0.0f, 2.0f};
  double total = 0;
  for (const float l : logits) total += std::exp(l);
  const Chosen plain = choose(rule, logits);
  EXPECT_EQ(plain.experts, (std::vector<uint32_t>{1, 3})) << "ascending, whatever their weights";
  EXPECT_NEAR(plain.weights[0], std::exp(3.0) / total, 1e-6);
  EXPECT_NEAR(plain.weights[1], std::exp(2.0) / total, 1e-6);
  rule.normalize = true;
  const Chosen normal = choose(rule, logits);
  EXPECT_NEAR(normal.weights[0] + normal.weights[1], 1.0, 1e-6);
  EXPECT_NEAR(normal.weights[0] / normal.weights[1], std::exp(1.0), 1e-5);
}

TEST(ExpertRouter, ASoftmaxOfThoseChosenSumsToOne) {
  const RouterRule rule{.experts = 4, .used = 2, .scores = RouterRule::Scores::kSoftmaxOfChosen};
  const Chosen chosen = choose(rule, {-5.0f, -1.0f, -9.0f, -3.0f});
  EXPECT_EQ(chosen.experts, (std::vector<uint32_t>{1, 3}));
  EXPECT_NEAR(chosen.weights[0], 1 / (1 + std::exp(-2.0)), 1e-6);
  EXPECT_NEAR(chosen.weights[0] + chosen.weights[1], 1.0, 1e-6);
}

TEST(ExpertRouter, OfEqualOnesTheLowerIndexIsChosen) {
  EXPECT_EQ(choose({.experts = 6, .used = 3}, {2, 5, 2, 2, 2, 2}).experts, (std::vector<uint32_t>{0, 1, 2}));
}

TEST(ExpertRouter, ABiasChangesWhoIsChosenAndNotTheWeight) {
  RouterRule rule{.experts = 3, .used = 1, .scores = RouterRule::Scores::kSigmoid};
  const Chosen chosen = choose(rule, {0.0f, 1.0f, -1.0f}, {0.0f, 0.0f, 0.9f});
  EXPECT_EQ(chosen.experts, (std::vector<uint32_t>{2}));
  EXPECT_NEAR(chosen.weights[0], 1 / (1 + std::exp(1.0)), 1e-6);
  rule.weight_scale = 2.5;
  EXPECT_NEAR(choose(rule, {0.0f, 1.0f, -1.0f}).weights[0], 2.5 / (1 + std::exp(-1.0)), 1e-6);
}

TEST(ExpertRouter, OnlyTheBestGroupsAreChosenFrom) {
  RouterRule rule{.experts = 6, .used = 2, .groups = 3, .groups_used = 1};
  const std::vector<float> logits = {5, -9, 4, 4, 3, 3};  // groups (5, -9), (4, 4), (3, 3)
  EXPECT_EQ(choose(rule, logits).experts, (std::vector<uint32_t>{0, 1})) << "by the best of each";
  rule.scores = RouterRule::Scores::kSigmoid;
  rule.group_score = RouterRule::GroupScore::kBestTwo;
  EXPECT_EQ(choose(rule, logits).experts, (std::vector<uint32_t>{2, 3})) << "by the best two";
}

TEST(ExpertRouter, LogitsThatAreNoNumbersOrFarOutStillChoose) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const auto scores : {RouterRule::Scores::kSoftmax, RouterRule::Scores::kSigmoid}) {
    const RouterRule rule{.experts = 4, .used = 2, .scores = scores, .normalize = true};
    EXPECT_EQ(choose(rule, {nan, nan, nan, nan}).experts, (std::vector<uint32_t>{0, 1}));
    EXPECT_EQ(choose(rule, {-1e30f, 1e30f, -1e30f, -1e30f}).experts.size(), 2u);
    EXPECT_EQ(choose(rule, {-inf, 3.0f, 2.0f, -inf}).experts, (std::vector<uint32_t>{1, 2}));
  }
}

TEST(ExpertRouter, EightGroupsShareTheExpertsInOrder) {
  EXPECT_EQ(expert_group(0, 256), 0u);
  EXPECT_EQ(expert_group(31, 256), 0u);
  EXPECT_EQ(expert_group(32, 256), 1u);
  EXPECT_EQ(expert_group(255, 256), 7u);
  EXPECT_EQ(expert_group(1, 4), 2u) << "some stay empty";
}

}  // namespace
}  // namespace shoal
