// The vocabulary every role shares: one request in token ids, how to sample it, and the tokens that come back.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/model_digest.h"
#include "base/time.h"

namespace shoal {

// What an answer must look like, as GBNF text (text/grammar). With triggers the grammar holds right after the first
// occurrence of one of them in the answer, and what comes before is free; without, it holds from the first token.
struct Grammar {
  std::string gbnf;  // not empty
  std::vector<std::string> triggers;
  friend bool operator==(const Grammar&, const Grammar&) = default;
};

// A shared, immutable T or none: parameters are copied for every choice. Equal if the contents are.
template <typename T>
class SharedValue {
 public:
  SharedValue() = default;
  SharedValue(T value) : value_(std::make_shared<const T>(std::move(value))) {}  // NOLINT
  explicit operator bool() const { return value_ != nullptr; }
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  friend bool operator==(const SharedValue& a, const SharedValue& b) {
    return a.value_ == b.value_ || (a.value_ && b.value_ && *a.value_ == *b.value_);
  }

 private:
  std::shared_ptr<const T> value_;
};

using GrammarRef = SharedValue<Grammar>;

// What a request asks of single tokens and short sequences of them.
struct TokenRules {
  std::vector<TokenId> allowed;                    // ascending; nothing else is sampled; empty: every token
  std::vector<std::vector<TokenId>> bad_words;     // none of them appears in the output; none is empty
  std::vector<std::vector<TokenId>> dry_breakers;  // no repetition reaches across one; none is empty; ascending by their last token
  friend bool operator==(const TokenRules&, const TokenRules&) = default;
};

// "Don't repeat yourself" (p-e-w, text-generation-webui #5677): a token that would prolong a repetition of n >= allowed_length
// tokens of prompt and output loses multiplier * base^(n - allowed_length).
struct DryPenalty {
  float multiplier = 0.0f;                         // 0: off
  float base = 1.75f;                              // >= 1
  uint32_t allowed_length = 2;
  uint32_t window = UINT32_MAX;                    // how many of the last tokens are looked at
  friend bool operator==(const DryPenalty&, const DryPenalty&) = default;
};

// Mirostat (arXiv 2007.14966) keeps the surprise of tokens, in bits, near tau.
struct Mirostat {
  uint32_t version = 0;                            // 1 or 2; 0: off
  float tau = 5.0f;
  float eta = 0.1f;                                // how fast it follows
  friend bool operator==(const Mirostat&, const Mirostat&) = default;
};

// Everything that decides which token follows. Ranges are checked at the edge; here they are facts.
struct SamplingParams {
  float temperature = 1.0f;        // 0: greedy, the least token id wins a tie
  uint32_t top_k = 0;              // 0: all
  float top_p = 1.0f;              // (0, 1]
  float min_p = 0.0f;              // [0, 1], relative to the most likely token
  float typical_p = 1.0f;          // (0, 1], the mass of the tokens nearest to the expected surprise (arXiv 2202.00666)
  float top_n_sigma = 0.0f;        // > 0: logits of at least max - n standard deviations (arXiv 2411.07641); 0: all
  float xtc_probability = 0.0f;    // [0, 1], with which all but the least likely of the tokens above the threshold go
  float xtc_threshold = 0.1f;      // [0, 1]
  float presence_penalty = 0.0f;   // once per distinct output token
  float frequency_penalty = 0.0f;  // per occurrence in the output
  float repetition_penalty = 1.0f; // > 0; divides positive and multiplies negative logits of prompt and output tokens
  DryPenalty dry;
  Mirostat mirostat;               // instead of top_k, top_p, min_p, typical_p, top_n_sigma and xtc
  std::vector<std::pair<TokenId, float>> logit_bias;
  SharedValue<TokenRules> rules;
  uint64_t seed = 0;               // draw of output index i is a function of (seed, i)
  std::optional<uint32_t> logprobs;  // how many alternatives to report beside the sampled token; of the raw logits
  GrammarRef grammar;

  bool penalises() const { return presence_penalty != 0.0f || frequency_penalty != 0.0f || repetition_penalty != 1.0f; }
  // Does the next token depend on the ids of those before it, other than through the model?
  bool uses_history() const { return penalises() || dry.multiplier != 0.0f || (rules && !rules->bad_words.empty()); }
  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

// Whose requests have a fair share of what is short.
struct Payer {
  static constexpr uint32_t kWeightMax = 1000;
  uint32_t number = 0;  // 0: of nobody in particular
  uint32_t weight = 1;  // of its share beside the others', 1 to kWeightMax
  friend bool operator==(const Payer&, const Payer&) = default;
};

struct Request {
  RequestId id;
  ModelId model;
  uint32_t epoch = 0;             // owner epoch: raised with each re-placement, lower ones are refused (I3)
  std::vector<TokenId> prompt;    // at least one token
  std::vector<TokenId> output;    // tokens already delivered before this placement; generation continues after them
  SamplingParams sampling;
  uint32_t max_tokens = 0;        // generated in all, `output` included; 0: none, what the model makes of the prompt is the answer
  uint32_t min_tokens = 0;        // stop ids cannot be sampled before
  std::vector<TokenId> stop_ids;  // end of sequence and the user's own; the stop token itself is delivered
  std::optional<uint32_t> prompt_logprobs;  // also score the prompt, with so many alternatives
  int32_t priority = 0;           // higher runs first among the waiting of one payer
  Payer payer;
  // What this client expects, where that is more than the model promises: seconds to the first token, and between two.
  Duration ttft_max = Duration::max();
  Duration tbt_max = Duration::max();
  TimePoint arrival{};
  std::optional<float> mirostat_mu;  // after `output`; none: it begins
  ModelDigest weights;            // which `output` was computed with (WeightsReady); none: not known, or there is no output

  friend bool operator==(const Request&, const Request&) = default;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0f;
  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

// One generated (or scored) token with what was asked about it.
struct SampledToken {
  TokenId token = 0;
  float logprob = 0.0f;           // 0 unless asked for
  std::vector<TokenLogprob> top;  // most likely first; of a request for no tokens: its vector by channel, or the logits of its allowed tokens
  uint32_t rank = 0;              // 1: no token was more likely; 0 unless asked for
  std::optional<float> mirostat_mu;  // what the sampler goes on with after this token
  friend bool operator==(const SampledToken&, const SampledToken&) = default;
};

// Steps are counted by how many tokens they computed: in bucket i those of at most kStepTokenBuckets[i], in one more the
// rest. The boundaries are those of vLLM's boards.
constexpr std::array<uint32_t, 13> kStepTokenBuckets = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16'384};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kError };

std::string_view finish_reason_name(FinishReason reason);

}  // namespace shoal
