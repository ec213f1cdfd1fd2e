// Logits -> token. The same logits, parameters and output index give the same token anywhere: the draw is a function of
// (seed, index), sums run over ascending token ids in double precision, ties go to the lowest id.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/request.h"

namespace shoal {

struct SampleContext {
  const SamplingParams& params;
  uint32_t output_index = 0;
  std::span<const TokenId> prompt;       // both only read if the penalties need them
  std::span<const TokenId> output;
  std::span<const TokenId> banned;       // cannot be sampled
  std::span<const uint64_t> allowed;     // one bit per token id, those beyond it are 0; empty: every token
};

enum class SampleOutcome : uint8_t {
  kToken,
  kNotFinite,     // the logits hold NaN, +inf or nothing finite
  kNothingLeft,   // every token that is allowed has the probability 0
};

// Scratch that survives between calls, so that sampling allocates nothing in the long run.
class Sampler {
 public:
  // Filters in this order: bias and penalties, bans, what is allowed, temperature, min-p, top-k, top-p.
  // Log-probabilities are those of the unmodified logits.
  SampleOutcome sample(std::span<const float> logits, const SampleContext& context, SampledToken& out);

  // False for kNotFinite. How likely `token` was, with the `alternatives` most likely ones.
  bool score(std::span<const float> logits, TokenId token, uint32_t alternatives, SampledToken& out);

 private:
  struct Candidate {
    float logit;
    TokenId token;
  };
  bool adjust(std::span<const float> logits, const SampleContext& context);  // false: no token is left
  void forbid_others(std::span<const uint64_t> allowed);
  TokenId greedy() const;
  TokenId draw(const SampleContext& context);
  void keep_top(uint32_t k);
  void keep_nucleus(float top_p, double max_scaled, double inverse_temperature);

  std::vector<float> adjusted_;         // [vocab]
  std::vector<Candidate> candidates_;   // what the filters left
  std::vector<double> weights_;
  std::vector<uint32_t> counts_;        // [vocab] of the output, zero between calls
};

}  // namespace shoal
