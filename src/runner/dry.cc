#include "runner/dry.h"

#include <algorithm>

#include "kernels/scalar_math.h"

namespace shoal {
namespace {

constexpr double kExponentMax = 88.7;  // e to it is the largest float

}  // namespace

// How many of the newest tokens come after the last breaker.
uint32_t DryRepetitions::unbroken(const std::vector<std::vector<TokenId>>& breakers) const {
  const auto n = static_cast<uint32_t>(newest_first_.size());
  for (uint32_t after = 0; after < n; ++after) {
    const TokenId last = newest_first_[after];
    auto breaker = std::lower_bound(breakers.begin(), breakers.end(), last, [](const auto& b, TokenId token) { return b.back() < token; });
    for (; breaker != breakers.end() && breaker->back() == last; ++breaker) {
      const bool fits = breaker->size() <= n - after;
      if (fits && std::equal(breaker->rbegin(), breaker->rend(), newest_first_.begin() + after)) return after;
    }
  }
  return n;
}

// The Z-function (Gusfield 1997, section 1.4).
void DryRepetitions::match_lengths() {
  const auto n = static_cast<uint32_t>(newest_first_.size());
  match_.assign(n, 0);
  for (uint32_t i = 1, left = 0, right = 0; i < n; ++i) {
    if (i < right) match_[i] = std::min(right - i, match_[i - left]);
    while (i + match_[i] < n && newest_first_[match_[i]] == newest_first_[i + match_[i]]) ++match_[i];
    if (i + match_[i] > right) left = i, right = i + match_[i];
  }
}

std::span<const std::pair<TokenId, uint32_t>> DryRepetitions::find(std::span<const TokenId> prompt, std::span<const TokenId> output,
                                                                   const DryPenalty& dry,
                                                                   const std::vector<std::vector<TokenId>>& breakers) {
  const size_t n = std::min<size_t>(dry.window, prompt.size() + output.size());
  const size_t of_output = std::min(n, output.size());
  newest_first_.assign(output.rbegin(), output.rbegin() + of_output);
  newest_first_.insert(newest_first_.end(), prompt.rbegin(), prompt.rbegin() + (n - of_output));
  found_.clear();
  const uint32_t limit = unbroken(breakers);
  if (limit < std::max(dry.allowed_length, 1u)) return found_;
  match_lengths();
  for (uint32_t i = 1; i < n; ++i) {
    const uint32_t length = std::min(match_[i], limit);
    if (length >= std::max(dry.allowed_length, 1u)) found_.emplace_back(newest_first_[i - 1], length);
  }
  // One entry per token, with its longest repetition.
  std::sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) { return a.first != b.first ? a.first < b.first : a.second > b.second; });
  found_.erase(std::unique(found_.begin(), found_.end(), [](const auto& a, const auto& b) { return a.first == b.first; }), found_.end());
  return found_;
}

float dry_penalty(const DryPenalty& dry, uint32_t length) {
  const double exponent = std::min((length - dry.allowed_length) * portable_log(double{dry.base}), kExponentMax);
  return static_cast<float>(std::min(double{dry.multiplier} * portable_exp(exponent), 3e38));
}

}  // namespace shoal
