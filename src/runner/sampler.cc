#include "runner/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/scalar_math.h"
#include "runner/sampler_math.h"

namespace shoal {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
double log_sum_exp(std::span<const float> logits) {
  const float max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) {
    if (logit > max - 40.0f) sum += weight(double{logit} - max);  // the rest is below the precision of the sum
  }
  return double{max} + portable_log(sum);
}

bool is_plain(const SamplingParams& p) { return p.logit_bias.empty() && !p.uses_history() && !p.rules; }

bool is_greedy(const SamplingParams& p) {
  const bool filtered = p.typical_p < 1.0f || p.xtc_probability > 0.0f || p.mirostat.version != 0;
  return p.temperature < kGreedyBelow && !filtered;
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

// Presence, frequency and repetition, of what was said and what was asked.
void Sampler::penalise(const SampleContext& context) {
  const SamplingParams& p = context.params;
  const auto repeated = [&](float logit) { return logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty; };
  counts_.resize(std::max(counts_.size(), adjusted_.size()));
  for (const TokenId token : context.output) ++counts_[token];
  for (const TokenId token : context.output) {
    if (counts_[token] == 0) continue;
    float& logit = adjusted_[token];
    if (p.repetition_penalty != 1.0f) logit = repeated(logit);
    logit -= p.frequency_penalty * static_cast<float>(counts_[token]);
    logit -= p.presence_penalty;
    counts_[token] = 0;
  }
  if (p.repetition_penalty == 1.0f) return;
  for (const TokenId token : context.output) counts_[token] = 1;  // penalised above
  for (const TokenId token : context.prompt) {
    if (counts_[token]++ == 0) adjusted_[token] = repeated(adjusted_[token]);
  }
  for (const TokenId token : context.output) counts_[token] = 0;
  for (const TokenId token : context.prompt) counts_[token] = 0;
}

bool Sampler::adjust(std::span<const float> logits, const SampleContext& context) {
  const SamplingParams& p = context.params;
  static const TokenRules no_rules;
  const TokenRules& rules = p.rules ? *p.rules : no_rules;
  adjusted_.assign(logits.begin(), logits.end());
  if (p.penalises()) penalise(context);
  if (p.dry.multiplier != 0.0f) {
    for (const auto& [token, length] : repetitions_.find(context.prompt, context.output, p.dry, rules.dry_breakers)) {
      adjusted_[token] -= dry_penalty(p.dry, length);
    }
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (token >= 0 && static_cast<size_t>(token) < adjusted_.size()) adjusted_[token] += bias;
  }
  for (const TokenId token : context.banned) forbid(token);
  for (const std::vector<TokenId>& word : rules.bad_words) {
    const size_t before = word.size() - 1;
    if (before <= context.output.size() && std::equal(word.begin(), word.end() - 1, context.output.end() - before)) forbid(word.back());
  }
  if (!rules.allowed.empty()) forbid_others(rules.allowed);
  forbid_others(context.allowed);
  return all_sound(adjusted_);
}

void Sampler::forbid(TokenId token) {
  if (token >= 0 && static_cast<size_t>(token) < adjusted_.size()) adjusted_[token] = kMinusInfinity;
}

// Both ascend.
void Sampler::forbid_others(const std::vector<TokenId>& allowed) {
  auto next = allowed.begin();
  for (size_t i = 0; i < adjusted_.size(); ++i) {
    while (next != allowed.end() && *next < static_cast<TokenId>(i)) ++next;
    if (next == allowed.end() || *next != static_cast<TokenId>(i)) adjusted_[i] = kMinusInfinity;
  }
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

LogitsQuery Sampler::query(const SamplingParams& p, uint32_t row) {
  if (!is_plain(p) || p.logprobs) return {row};
  if (is_greedy(p)) return {row, LogitsWanted::kBest};
  const bool by_rank = p.top_k > 0 && p.top_k <= kTopLogitsMax && p.mirostat.version == 0 && p.top_n_sigma <= 0;
  return by_rank ? LogitsQuery{row, LogitsWanted::kTop, static_cast<uint32_t>(p.top_k)} : LogitsQuery{row};
}

SampleOutcome Sampler::sample(const RowLogits& logits, const SampleContext& context, SampledToken& out) {
  if (!logits.sound) return SampleOutcome::kNotFinite;
  if (!logits.all.empty()) return sample(logits.all, context, out);
  if (!logits.top.empty()) return draw_of(logits.top, context, out);
  out.token = logits.best;
  return SampleOutcome::kToken;
}

SampleOutcome Sampler::sample(std::span<const float> logits, const SampleContext& context, SampledToken& out) {
  if (!all_sound(logits)) return SampleOutcome::kNotFinite;
  const SamplingParams& p = context.params;
  const auto most_likely = [](std::span<const float> of) { return static_cast<TokenId>(std::max_element(of.begin(), of.end()) - of.begin()); };
  const bool plain = is_plain(p) && context.banned.empty() && context.allowed.empty();
  const bool greedy = is_greedy(p);
  if (plain && greedy) {  // the common greedy case copies nothing
    out.token = most_likely(logits);
  } else {
    if (!adjust(logits, context)) return SampleOutcome::kNothingLeft;
    if (greedy) {
      out.token = most_likely(adjusted_);
    } else {
      draw(context, out);
    }
  }
  if (p.logprobs) score(logits, out.token, *p.logprobs, out);
  return SampleOutcome::kToken;
}

bool Sampler::score(std::span<const float> logits, TokenId token, uint32_t alternatives, SampledToken& out) {
  if (!all_sound(logits)) return false;
  const double total = log_sum_exp(logits);
  out.token = token;
  out.logprob = static_cast<float>(double{logits[token]} - total);
  out.rank = 1 + static_cast<uint32_t>(std::count_if(logits.begin(), logits.end(), [&](float logit) { return logit > logits[token]; }));
  out.top.clear();
  if (alternatives == 0) return true;
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) candidates_.push_back({static_cast<TokenId>(i), logits[i]});
  const size_t k = std::min<size_t>(alternatives, candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + k, candidates_.end(), MoreLikely());
  for (size_t i = 0; i < k; ++i) {
    out.top.push_back({candidates_[i].token, static_cast<float>(double{candidates_[i].logit} - total)});
  }
  return true;
}

}  // namespace shoal
