// DRY: how long a repetition each token would prolong (p-e-w, text-generation-webui #5677; llama.cpp has the same rules).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/request.h"

namespace shoal {

// Scratch that survives between calls.
class DryRepetitions {
 public:
  // For each token that followed an earlier occurrence of what now stands at the end of prompt and output: the length of
  // the longest such occurrence, where it is at least dry.allowed_length. A sequence of `breakers` ends what is repeated:
  // neither it nor what is before it counts. Takes n log(breakers) steps for n tokens. Valid until the next call.
  std::span<const std::pair<TokenId, uint32_t>> find(std::span<const TokenId> prompt, std::span<const TokenId> output,
                                                     const DryPenalty& dry,
                                                     const std::vector<std::vector<TokenId>>& breakers);

 private:
  uint32_t unbroken(const std::vector<std::vector<TokenId>>& breakers) const;
  void match_lengths();

  std::vector<TokenId> newest_first_;
  std::vector<uint32_t> match_;  // [i]: how many tokens from newest_first_[i] on equal those from newest_first_[0] on
  std::vector<std::pair<TokenId, uint32_t>> found_;
};

// What a token loses that would prolong a repetition of `length` tokens.
float dry_penalty(const DryPenalty& dry, uint32_t length);

}  // namespace shoal
