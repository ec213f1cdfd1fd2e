#include "runner/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "kernels/scalar_math.h"

namespace shoal {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kGreedyBelow = 1e-5f;  // temperatures under this are greedy: the scaled logits would overflow
constexpr uint64_t kSamplingStream = 0x73616d706c65ull;

// More likely first; equal logits by ascending id, so that the order is total.
struct MoreLikely {
  template <typename C>
  bool operator()(const C& a, const C& b) const {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }
};

// e^x for x <= 0, 0 where a double of any sum would not notice it.
double weight(double x) { return x < -690.0 ? 0.0 : portable_exp(x); }

double log_sum_exp(std::span<const float> logits) {
  const float max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) {
    if (logit > max - 40.0f) sum += weight(double{logit} - max);  // the rest is below the precision of the sum
  }
  return double{max} + portable_log(sum);
}

bool all_sound(std::span<const float> logits) {
  float max = kMinusInfinity;
  for (const float logit : logits) {
    if (std::isnan(logit)) return false;
    max = std::max(max, logit);
  }
  return std::isfinite(max);
}

}  // namespace

bool Sampler::adjust(std::span<const float> logits, const SampleContext& context) {
  const SamplingParams& p = context.params;
  adjusted_.assign(logits.begin(), logits.end());
  const auto known = [&](TokenId token) { return token >= 0 && static_cast<size_t>(token) < adjusted_.size(); };
  if (p.uses_history()) {
    counts_.resize(std::max(counts_.size(), adjusted_.size()));
    for (const TokenId token : context.output) ++counts_[token];
    for (const TokenId token : context.output) {
      if (counts_[token] == 0) continue;
      float& logit = adjusted_[token];
      if (p.repetition_penalty != 1.0f) logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
      logit -= p.frequency_penalty * static_cast<float>(counts_[token]);
      logit -= p.presence_penalty;
      counts_[token] = 0;
    }
    if (p.repetition_penalty != 1.0f) {
      for (const TokenId token : context.output) counts_[token] = 1;  // penalised above
      for (const TokenId token : context.prompt) {
        if (counts_[token]++ > 0) continue;
        float& logit = adjusted_[token];
        logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
      }
      for (const TokenId token : context.output) counts_[token] = 0;
      for (const TokenId token : context.prompt) counts_[token] = 0;
    }
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (known(token)) adjusted_[token] += bias;
  }
  for (const TokenId token : context.banned) {
    if (known(token)) adjusted_[token] = kMinusInfinity;
  }
  forbid_others(context.allowed);
  return all_sound(adjusted_);
}

void Sampler::forbid_others(std::span<const uint64_t> allowed) {
  if (allowed.empty()) return;
  const auto all = [&](size_t i) { return i / 64 < allowed.size() ? allowed[i / 64] : 0; };
  for (size_t i = 0; i < adjusted_.size(); i += 64) {
    const uint64_t word = all(i);
    if (word == ~uint64_t{0}) continue;
    const size_t end = std::min(i + 64, adjusted_.size());
    for (size_t k = i; k < end; ++k) adjusted_[k] = (word >> (k - i) & 1) != 0 ? adjusted_[k] : kMinusInfinity;
  }
}

TokenId Sampler::greedy() const {
  return static_cast<TokenId>(std::max_element(adjusted_.begin(), adjusted_.end()) - adjusted_.begin());
}

void Sampler::keep_top(uint32_t k) {
  if (k == 0 || k >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + k - 1, candidates_.end(), MoreLikely());
  candidates_.resize(k);
}

// The fewest most likely candidates whose probability reaches top_p. Sorts no more of them than it needs.
void Sampler::keep_nucleus(float top_p, double max_scaled, double inverse_temperature) {
  if (top_p >= 1.0f) return;
  const auto weight_of = [&](const Candidate& c) { return weight(double{c.logit} * inverse_temperature - max_scaled); };
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  double total = 0;
  for (const Candidate& c : candidates_) total += weight_of(c);
  size_t sorted = 0;
  double sum = 0;
  for (size_t kept = 0; kept < candidates_.size(); ++kept) {
    if (kept == sorted) {
      sorted = std::min(candidates_.size(), std::max<size_t>(64, sorted * 4));
      std::partial_sort(candidates_.begin() + kept, candidates_.begin() + sorted, candidates_.end(), MoreLikely());
    }
    sum += weight_of(candidates_[kept]);
    if (sum >= double{top_p} * total) {
      candidates_.resize(kept + 1);
      return;
    }
  }
}

TokenId Sampler::draw(const SampleContext& context) {
  const SamplingParams& p = context.params;
  const double inverse_temperature = 1.0 / double{p.temperature};
  const float max = *std::max_element(adjusted_.begin(), adjusted_.end());
  const double max_scaled = double{max} * inverse_temperature;
  // p >= min_p * p_max  <=>  (logit - max) / T >= ln(min_p)
  const double least = p.min_p > 0 ? portable_log(double{p.min_p}) : -690.0;
  candidates_.clear();
  for (size_t i = 0; i < adjusted_.size(); ++i) {
    if (double{adjusted_[i]} * inverse_temperature - max_scaled >= least) {
      candidates_.push_back({adjusted_[i], static_cast<TokenId>(i)});
    }
  }
  keep_top(p.top_k);
  keep_nucleus(p.top_p, max_scaled, inverse_temperature);
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  weights_.clear();
  double total = 0;
  for (const Candidate& c : candidates_) weights_.push_back(total += weight(double{c.logit} * inverse_temperature - max_scaled));
  const double target = unit_interval(counter_bits(p.seed, kSamplingStream, context.output_index)) * total;
  const auto chosen = std::upper_bound(weights_.begin(), weights_.end(), target) - weights_.begin();
  return candidates_[std::min<size_t>(static_cast<size_t>(chosen), candidates_.size() - 1)].token;
}

SampleOutcome Sampler::sample(std::span<const float> logits, const SampleContext& context, SampledToken& out) {
  if (!all_sound(logits)) return SampleOutcome::kNotFinite;
  const SamplingParams& p = context.params;
  const bool plain = p.logit_bias.empty() && context.banned.empty() && context.allowed.empty() && !p.uses_history();
  if (plain && p.temperature < kGreedyBelow) {  // the common greedy case copies nothing
    out.token = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  } else {
    if (!adjust(logits, context)) return SampleOutcome::kNothingLeft;
    out.token = p.temperature < kGreedyBelow ? greedy() : draw(context);
  }
  if (p.logprobs) score(logits, out.token, *p.logprobs, out);
  return SampleOutcome::kToken;
}

bool Sampler::score(std::span<const float> logits, TokenId token, uint32_t alternatives, SampledToken& out) {
  if (!all_sound(logits)) return false;
  const double total = log_sum_exp(logits);
  out.token = token;
  out.logprob = static_cast<float>(double{logits[token]} - total);
  out.top.clear();
  if (alternatives == 0) return true;
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) candidates_.push_back({logits[i], static_cast<TokenId>(i)});
  const size_t k = std::min<size_t>(alternatives, candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + k, candidates_.end(), MoreLikely());
  for (size_t i = 0; i < k; ++i) {
    out.top.push_back({candidates_[i].token, static_cast<float>(double{candidates_[i].logit} - total)});
  }
  return true;
}

}  // namespace shoal
