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
#include "base/time.h"

namespace shoal {

// What an answer must look like, as GBNF text (text/grammar). With triggers the grammar holds right after the first
// occurrence of one of them in the answer, and what comes before is free; without, it holds from the first token.
struct Grammar {
  std::string gbnf;  // not empty
  std::vector<std::string> triggers;
  friend bool operator==(const Grammar&, const Grammar&) = default;
};

// A shared, immutable Grammar or none: parameters are copied for every choice. Equal if the contents are.
class GrammarRef {
 public:
  GrammarRef() = default;
  GrammarRef(Grammar grammar) : grammar_(std::make_shared<const Grammar>(std::move(grammar))) {}  // NOLINT
  explicit operator bool() const { return grammar_ != nullptr; }
  const Grammar& operator*() const { return *grammar_; }
  const Grammar* operator->() const { return grammar_.get(); }
  friend bool operator==(const GrammarRef& a, const GrammarRef& b) {
    return a.grammar_ == b.grammar_ || (a.grammar_ && b.grammar_ && *a.grammar_ == *b.grammar_);
  }

 private:
  std::shared_ptr<const Grammar> grammar_;
};

// Everything that decides which token follows. Ranges are checked at the edge; here they are facts.
struct SamplingParams {
  float temperature = 1.0f;        // 0: greedy, the least token id wins a tie
  uint32_t top_k = 0;              // 0: all
  float top_p = 1.0f;              // (0, 1]
  float min_p = 0.0f;              // [0, 1], relative to the most likely token
  float presence_penalty = 0.0f;   // once per distinct output token
  float frequency_penalty = 0.0f;  // per occurrence in the output
  float repetition_penalty = 1.0f; // > 0; divides positive and multiplies negative logits of prompt and output tokens
  std::vector<std::pair<TokenId, float>> logit_bias;
  uint64_t seed = 0;               // draw of output index i is a function of (seed, i)
  std::optional<uint32_t> logprobs;  // how many alternatives to report beside the sampled token; of the raw logits
  GrammarRef grammar;

  bool uses_history() const {
    return presence_penalty != 0.0f || frequency_penalty != 0.0f || repetition_penalty != 1.0f;
  }
  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

struct Request {
  RequestId id;
  ModelId model;
  uint32_t epoch = 0;             // owner epoch: raised with each re-placement, lower ones are refused (I3)
  std::vector<TokenId> prompt;    // at least one token
  std::vector<TokenId> output;    // tokens already delivered before this placement; generation continues after them
  SamplingParams sampling;
  uint32_t max_tokens = 0;        // generated in all, `output` included
  uint32_t min_tokens = 0;        // stop ids cannot be sampled before
  std::vector<TokenId> stop_ids;  // end of sequence and the user's own; the stop token itself is delivered
  std::optional<uint32_t> prompt_logprobs;  // also score the prompt, with so many alternatives
  int32_t priority = 0;           // higher runs first among the waiting
  // What this client expects, where that is more than the model promises: seconds to the first token, and between two.
  Duration ttft_max = Duration::max();
  Duration tbt_max = Duration::max();
  TimePoint arrival{};
  uint64_t weights = 0;           // which `output` was computed with (WeightsReady); 0: not known, or there is none

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
  std::vector<TokenLogprob> top;  // most likely first
  friend bool operator==(const SampledToken&, const SampledToken&) = default;
};

// Steps are counted by how many tokens they computed: in bucket i those of at most kStepTokenBuckets[i], in one more the
// rest. The boundaries are those of vLLM's boards.
constexpr std::array<uint32_t, 13> kStepTokenBuckets = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16'384};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kError };

std::string_view finish_reason_name(FinishReason reason);

}  // namespace shoal
