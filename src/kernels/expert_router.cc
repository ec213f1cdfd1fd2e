#include "kernels/expert_router.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/scalar_math.h"

namespace shoal {
namespace {

constexpr double kExponentMax = 690.0;  // of portable_exp
constexpr double kNever = -std::numeric_limits<double>::infinity();

// e^x of each.
void exponentiate(std::span<double> x) {
  std::vector<double> powers(x.size());
  for (size_t i = 0; i < x.size(); ++i) powers[i] = std::clamp(x[i], -kExponentMax, kExponentMax);
  portable_exp(powers);
  for (size_t i = 0; i < x.size(); ++i) x[i] = x[i] < -kExponentMax ? 0.0 : powers[i];
}

void softmax(std::span<double> scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& s : scores) s -= largest;
  exponentiate(scores);
  for (const double s : scores) sum += s;
  for (double& s : scores) s /= sum;
}

std::vector<double> scores_of(const RouterRule& rule, std::span<const float> logits) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (rule.scores == RouterRule::Scores::kSoftmaxOfChosen) return scores;
  if (rule.scores == RouterRule::Scores::kSigmoid) {
    for (double& s : scores) s = -s;
    exponentiate(scores);
    for (double& s : scores) s = 1.0 / (1.0 + s);
    return scores;
  }
  softmax(scores);
  return scores;
}

double group_score(const RouterRule& rule, std::span<const double> scores) {
  double best = kNever, second = kNever;
  for (const double s : scores) {
    if (s > best) second = best, best = s;
    else if (s > second) second = s;
  }
  return rule.group_score == RouterRule::GroupScore::kBest || scores.size() < 2 ? best : best + second;
}

// Indices of the `count` largest, the lower of equal ones first.
std::vector<uint32_t> largest(std::span<const double> values, size_t count) {
  std::vector<uint32_t> order(values.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end(),
                    [&](uint32_t a, uint32_t b) { return values[a] != values[b] ? values[a] > values[b] : a < b; });
  order.resize(count);
  return order;
}

void keep_best_groups(const RouterRule& rule, std::vector<double>& selection) {
  const size_t each = rule.experts / rule.groups;
  std::vector<double> groups;
  for (uint32_t g = 0; g < rule.groups; ++g) groups.push_back(group_score(rule, std::span(selection).subspan(g * each, each)));
  std::vector<bool> kept(rule.groups);
  for (const uint32_t g : largest(groups, rule.groups_used)) kept[g] = true;
  for (uint32_t e = 0; e < rule.experts; ++e) {
    if (!kept[e / each]) selection[e] = kNever;
  }
}

}  // namespace

void choose_experts(const RouterRule& rule, std::span<const float> logits, std::span<const float> bias, std::span<ExpertChoice> out) {
  CHECK(logits.size() == rule.experts && out.size() == rule.used);
  const std::vector<double> scores = scores_of(rule, logits);
  std::vector<double> selection = scores;
  for (size_t i = 0; i < bias.size(); ++i) selection[i] += double{bias[i]};
  for (double& s : selection) {
    if (!(s == s)) s = kNever;  // an order is needed all the same
  }
  if (rule.groups_used < rule.groups) keep_best_groups(rule, selection);
  std::vector<uint32_t> chosen = largest(selection, rule.used);
  std::sort(chosen.begin(), chosen.end());
  std::vector<double> weights;
  for (const uint32_t e : chosen) weights.push_back(scores[e]);
  if (rule.scores == RouterRule::Scores::kSoftmaxOfChosen) softmax(weights);
  double sum = 0;
  for (const double w : weights) sum += w;
  const double factor = rule.weight_scale / (rule.normalize ? std::max(sum, rule.sum_min) : 1.0);
  for (size_t i = 0; i < chosen.size(); ++i) out[i] = {chosen[i], static_cast<float>(weights[i] * factor)};
}

}  // namespace shoal
