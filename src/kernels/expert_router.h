// Which experts a token goes to, and with which weights: a function of the router's logits.
#pragma once

#include <cstdint>
#include <span>

namespace shoal {

// scores: softmax or sigmoid of the logits; or the logits, of which those chosen make a softmax (gpt-oss). The `used` experts with the largest score + bias are chosen, the lower index of equal
// ones, from the `groups_used` groups whose best are largest. Their weights are their scores without the bias.
// Sources: Mixtral (arXiv 2401.04088), DeepSeekMoE (arXiv 2401.06066), DeepSeek-V2 (arXiv 2405.04434, groups by their best score),
// DeepSeek-V3 (arXiv 2412.19437: sigmoid, bias, groups by the sum of their best two).
struct RouterRule {
  enum class Scores : uint8_t { kSoftmax, kSigmoid, kSoftmaxOfChosen };
  enum class GroupScore : uint8_t { kBest, kBestTwo };

  uint32_t experts = 0, used = 0;  // used <= experts
  Scores scores = Scores::kSoftmax;
  uint32_t groups = 1, groups_used = 1;  // groups divides experts; those used hold enough experts
  GroupScore group_score = GroupScore::kBest;
  bool normalize = false;      // weights divided by their sum, or by sum_min if that is more
  double sum_min = 1e-20;
  double weight_scale = 1.0;
};

struct ExpertChoice {
  uint32_t expert;
  float weight;
};

// logits [experts]; bias [experts] or empty; out [used], ascending by expert. All arithmetic is in double precision, so that a
// choice is the same on every machine. Logits that are not numbers choose the first experts with weights that are not.
void choose_experts(const RouterRule& rule, std::span<const float> logits, std::span<const float> bias, std::span<ExpertChoice> out);

// The group of the sum of outputs that an expert belongs to: a token's sum runs within a group by ascending expert, with FMA from
// 0, and then over the groups' sums c0..c7 as ((c0 + c1) + (c2 + c3)) + ((c4 + c5) + (c6 + c7)).
constexpr uint32_t kExpertGroups = 8;
constexpr uint32_t expert_group(uint32_t expert, uint32_t experts) { return static_cast<uint32_t>(uint64_t{expert} * kExpertGroups / experts); }

}  // namespace shoal
