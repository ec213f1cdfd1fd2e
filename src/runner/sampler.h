// Logits -> token. The same logits, parameters and output index give the same token anywhere: the draw is a function of
// (seed, index), sums run over ascending token ids in double precision, ties go to the lowest id.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/request.h"
#include "models/pass.h"
#include "runner/dry.h"

namespace shoal {

struct SampleContext {
  const SamplingParams& params;
  uint32_t output_index = 0;
  std::span<const TokenId> prompt;       // both only read if the penalties need them
  std::span<const TokenId> output;
  std::span<const TokenId> banned;       // cannot be sampled
  std::span<const uint64_t> allowed;     // one bit per token id, those beyond it are 0; empty: every token
  std::optional<float> mirostat_mu;      // what the token before left
};

enum class SampleOutcome : uint8_t {
  kToken,
  kNotFinite,     // the logits hold NaN, +inf or nothing finite
  kNothingLeft,   // every token that is allowed has the probability 0
};

// Scratch that survives between calls, so that sampling allocates nothing in the long run.
class Sampler {
 public:
  // Filters in this order: penalties, DRY, bias, bans, bad words, what is allowed, temperature, top-n-sigma, min-p, top-k,
  // typical-p, top-p, XTC. Mirostat takes the place of those after the temperature. Greedy is the most likely token that
  // typical-p and XTC leave. Log-probabilities are those of the unmodified logits.
  // REQUIRES: `logits` answer query(), or all of them are there.
  SampleOutcome sample(const RowLogits& logits, const SampleContext& context, SampledToken& out);
  SampleOutcome sample(std::span<const float> logits, const SampleContext& context, SampledToken& out);

  // What sampling like this needs to know of the logits of a row, if nothing is banned and no grammar holds.
  static LogitsQuery query(const SamplingParams& params, uint32_t row);

  // False for kNotFinite. How likely `token` was, with the `alternatives` most likely ones.
  bool score(std::span<const float> logits, TokenId token, uint32_t alternatives, SampledToken& out);

 private:
  // A logit in units of the temperature, less the largest one.
  struct Scale {
    double inverse_temperature, max_scaled;
    double operator()(float logit) const { return double{logit} * inverse_temperature - max_scaled; }
  };

  bool adjust(std::span<const float> logits, const SampleContext& context);  // false: no token is left
  void penalise(const SampleContext& context);
  void forbid(TokenId token);
  void forbid_others(std::span<const uint64_t> allowed);
  void forbid_others(const std::vector<TokenId>& allowed);
  void draw(const SampleContext& context, SampledToken& out);
  SampleOutcome draw_of(std::span<const TokenLogit> top, const SampleContext& context, SampledToken& out);
  void choose(const SampleContext& context, Scale scale, float mu, SampledToken& out);

  // sampler_filters.cc, on candidates_.
  void gather(const SamplingParams& params, Scale scale);
  void filter(const SampleContext& context, Scale scale);
  void keep_top(uint32_t k);
  void keep_nucleus(float top_p, Scale scale);
  void keep_typical(float typical_p, Scale scale);
  template <typename Before>
  void keep_mass(float mass, Scale scale, Before before);
  void exclude_top(const SampleContext& context, Scale scale);
  void keep_surprising(const SampleContext& context, float mu, Scale scale);
  uint32_t mirostat_top_k(float mu, Scale scale) const;

  std::vector<float> adjusted_;         // [vocab]
  DryRepetitions repetitions_;
  std::vector<TokenLogit> candidates_;   // what the filters left
  std::vector<double> weights_;
  std::vector<uint32_t> counts_;        // [vocab] of the output, zero between calls
};

}  // namespace shoal
