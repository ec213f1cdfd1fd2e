// What of the distribution is left to draw from. All sums run over candidates in a fixed order, in double precision.
#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "kernels/scalar_math.h"
#include "runner/sampler.h"
#include "runner/sampler_math.h"

namespace shoal {
namespace {

constexpr uint64_t kXtcStream = 0x787463ull;
constexpr double kLn2 = 0.69314718055994531;
constexpr size_t kMirostatTokens = 100;  // of which version 1 estimates the slope (its authors' value)

struct ById {
  template <typename C>
  bool operator()(const C& a, const C& b) const {
    return a.token < b.token;
  }
};

double bits_of(double probability) { return -portable_log(probability) / kLn2; }

bool draws_nothing(const SamplingParams& p) { return p.temperature < kGreedyBelow; }

// p >= min_p * p_max  <=>  (logit - max) / T >= ln(min_p)
double least_scaled(const SamplingParams& p) { return p.min_p > 0 ? portable_log(double{p.min_p}) : kLogWeightMin; }

}  // namespace

// Ascending by id: the tokens that min_p and top_n_sigma leave; of those that nothing forbids, at least the most likely.
void Sampler::gather(const SamplingParams& p, Scale scale) {
  double least = least_scaled(p);
  if (p.top_n_sigma > 0) {
    double sum = 0, squares = 0;
    size_t n = 0;
    for (const float logit : adjusted_) {
      if (!std::isfinite(logit)) continue;
      sum += logit;
      ++n;
    }
    const double mean = sum / static_cast<double>(n);
    for (const float logit : adjusted_) {
      if (std::isfinite(logit)) squares += (logit - mean) * (logit - mean);
    }
    const double deviation = std::sqrt(squares / static_cast<double>(n));
    least = std::max(least, -double{p.top_n_sigma} * deviation * scale.inverse_temperature);
  }
  candidates_.clear();
  for (size_t i = 0; i < adjusted_.size(); ++i) {
    if (scale(adjusted_[i]) >= least) candidates_.push_back({static_cast<TokenId>(i), adjusted_[i]});
  }
}

void Sampler::filter(const SampleContext& context, Scale scale) {
  const SamplingParams& p = context.params;
  keep_top(p.top_k);
  keep_typical(p.typical_p, scale);
  keep_nucleus(p.top_p, scale);
  exclude_top(context, scale);
}

void Sampler::keep_top(uint32_t k) {
  if (k == 0 || k >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + k - 1, candidates_.end(), MoreLikely());
  candidates_.resize(k);
}

// The fewest candidates, taken in the order `before`, whose probability reaches `mass`. Sorts no more than it needs.
template <typename Before>
void Sampler::keep_mass(float mass, Scale scale, Before before) {
  std::sort(candidates_.begin(), candidates_.end(), ById());
  double total = 0;
  for (const TokenLogit& c : candidates_) total += weight(scale(c.logit));
  size_t sorted = 0;
  double sum = 0;
  for (size_t kept = 0; kept < candidates_.size(); ++kept) {
    if (kept == sorted) {
      sorted = std::min(candidates_.size(), std::max<size_t>(64, sorted * 4));
      std::partial_sort(candidates_.begin() + kept, candidates_.begin() + sorted, candidates_.end(), before);
    }
    sum += weight(scale(candidates_[kept].logit));
    if (sum >= double{mass} * total) {
      candidates_.resize(kept + 1);
      return;
    }
  }
}

void Sampler::keep_nucleus(float top_p, Scale scale) {
  if (top_p < 1.0f) keep_mass(top_p, scale, MoreLikely());
}

// Those whose surprise is nearest to the entropy (Meister et al., arXiv 2202.00666, section 4).
void Sampler::keep_typical(float typical_p, Scale scale) {
  if (typical_p >= 1.0f) return;
  std::sort(candidates_.begin(), candidates_.end(), ById());
  double total = 0, expected = 0;
  for (const TokenLogit& c : candidates_) {
    const double w = weight(scale(c.logit));
    total += w;
    expected += w * scale(c.logit);
  }
  expected /= total;  // surprise less entropy = expected - scaled: the logarithm of the total is in both
  const auto distance = [&](const TokenLogit& c) { return std::fabs(expected - scale(c.logit)); };
  keep_mass(typical_p, scale, [&](const TokenLogit& a, const TokenLogit& b) {
    const double da = distance(a), db = distance(b);
    return da != db ? da < db : MoreLikely()(a, b);
  });
}

// XTC, "exclude top choices" (p-e-w, text-generation-webui #6335).
void Sampler::exclude_top(const SampleContext& context, Scale scale) {
  const SamplingParams& p = context.params;
  if (p.xtc_probability <= 0 || candidates_.size() < 2) return;
  if (unit_interval(counter_bits(p.seed, kXtcStream, context.output_index)) >= double{p.xtc_probability}) return;
  std::sort(candidates_.begin(), candidates_.end(), ById());
  double total = 0;
  for (const TokenLogit& c : candidates_) total += weight(scale(c.logit));
  const auto above = [&](const TokenLogit& c) { return weight(scale(c.logit)) >= double{p.xtc_threshold} * total; };
  const auto end = std::partition(candidates_.begin(), candidates_.end(), above);
  if (end - candidates_.begin() < 2) return;
  const TokenLogit least = *std::max_element(candidates_.begin(), end, MoreLikely());
  candidates_.erase(candidates_.begin(), end);
  candidates_.push_back(least);
}

// Version 1: how many tokens have the surprise mu if the distribution is Zipf's (Basu et al., arXiv 2007.14966, eq. 30).
// candidates_ are sorted, most likely first.
uint32_t Sampler::mirostat_top_k(float mu, Scale scale) const {
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < std::min(kMirostatTokens, candidates_.size()); ++i) {
    const double t = portable_log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    const double b = scale(candidates_[i].logit) - scale(candidates_[i + 1].logit);
    products += t * b;
    squares += t * t;
  }
  const double slope = squares > 0 ? products / squares : 0, excess = slope - 1;
  if (slope < 1e-6 || std::fabs(excess) < 1e-6) return static_cast<uint32_t>(candidates_.size());  // flat: nothing to cut
  const double vocabulary = static_cast<double>(adjusted_.size());
  const double denominator = 1 - portable_exp(std::clamp(-excess * portable_log(vocabulary), -600.0, 600.0));
  const double ratio = excess / denominator;
  const double log_k = (portable_log(ratio) + double{mu} * kLn2) / slope;
  const double k = log_k > 20 ? vocabulary : portable_exp(std::max(log_k, -600.0));
  return static_cast<uint32_t>(std::clamp(k, 1.0, static_cast<double>(candidates_.size())));
}

void Sampler::keep_surprising(const SampleContext& context, float mu, Scale scale) {
  const Mirostat& mirostat = context.params.mirostat;
  std::sort(candidates_.begin(), candidates_.end(), MoreLikely());
  if (mirostat.version == 1) {
    candidates_.resize(mirostat_top_k(mu, scale));
    return;
  }
  double total = 0;
  for (const TokenLogit& c : candidates_) total += weight(scale(c.logit));
  size_t kept = 1;
  while (kept < candidates_.size() && bits_of(weight(scale(candidates_[kept].logit)) / total) <= double{mu}) ++kept;
  candidates_.resize(kept);
}

void Sampler::draw(const SampleContext& context, SampledToken& out) {
  const SamplingParams& p = context.params;
  const bool greedy = draws_nothing(p);
  Scale scale{greedy ? 1.0 : 1.0 / double{p.temperature}, 0};
  scale.max_scaled = double{*std::max_element(adjusted_.begin(), adjusted_.end())} * scale.inverse_temperature;
  const float mu = context.mirostat_mu.value_or(2 * p.mirostat.tau);
  if (p.mirostat.version != 0) {
    gather(SamplingParams(), scale);
    if (!greedy) keep_surprising(context, mu, scale);
  } else {
    gather(p, scale);
    filter(context, scale);
  }
  choose(context, scale, mu, out);
}

// The same from the top_k most likely tokens, of logits that nothing adjusts.
SampleOutcome Sampler::draw_of(std::span<const TokenLogit> top, const SampleContext& context, SampledToken& out) {
  const SamplingParams& p = context.params;
  Scale scale{draws_nothing(p) ? 1.0 : 1.0 / double{p.temperature}, 0};
  scale.max_scaled = double{top.front().logit} * scale.inverse_temperature;
  const double least = least_scaled(p);
  candidates_.clear();
  for (const TokenLogit& c : top) {
    if (scale(c.logit) >= least) candidates_.push_back(c);
  }
  filter(context, scale);
  choose(context, scale, 0, out);
  return SampleOutcome::kToken;
}

// What is left is drawn from as it is, in the order of ids.
void Sampler::choose(const SampleContext& context, Scale scale, float mu, SampledToken& out) {
  const SamplingParams& p = context.params;
  const bool greedy = draws_nothing(p);
  std::sort(candidates_.begin(), candidates_.end(), ById());
  weights_.clear();
  double total = 0;
  for (const TokenLogit& c : candidates_) weights_.push_back(total += weight(scale(c.logit)));
  const double target = unit_interval(counter_bits(p.seed, kSamplingStream, context.output_index)) * total;
  const auto drawn = std::upper_bound(weights_.begin(), weights_.end(), target) - weights_.begin();
  const size_t index = std::min<size_t>(static_cast<size_t>(drawn), candidates_.size() - 1);
  const TokenLogit& chosen = greedy ? *std::min_element(candidates_.begin(), candidates_.end(), MoreLikely()) : candidates_[index];
  out.token = chosen.token;
  if (p.mirostat.version == 0) return;
  const double surprise = greedy ? 0.0 : bits_of(weight(scale(chosen.logit)) / total);
  out.mirostat_mu = static_cast<float>(double{mu} - double{p.mirostat.eta} * (surprise - double{p.mirostat.tau}));
}

}  // namespace shoal
