// One request inside an engine.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/request.h"
#include "memory/prefix_index.h"

namespace shoal {

// Half-open ranges of its tokens:
//
//   [0, computed)          K and V are in `blocks`
//   [computed, known)      to compute: the rest of the prompt, or the token sampled last
//   known                  the token that the step which computes known - 1 samples
struct Sequence {
  std::shared_ptr<const Request> request;
  uint64_t order = 0;                // of submission: keeps its place in the queue when it is preempted
  std::vector<TokenId> tokens;       // prompt, then output
  uint32_t computed = 0;
  std::vector<BlockId> blocks;       // cover [0, computed) and what the step in flight adds
  uint32_t published = 0;            // blocks [0, published) are in the prefix index
  PrefixEntry entry = 0;             // chain entry of block published - 1, or the root
  uint32_t cached_prompt_tokens = 0; // found in the prefix index at the first admission
  bool admitted_before = false;
  Duration queued{0};                // from arrival to the first admission
  std::optional<float> mirostat_mu;  // after the last token
  uint32_t delivered = 0;            // output tokens handed out, those of the request included
  std::vector<SampledToken> scored;  // prompt tokens 1.. scored so far
  bool scores_sent = false;
  std::vector<BlockId> parked;       // on the host tier: they cover [0, computed) instead of `blocks`
  bool remote = false;               // ... on that of another node, and not this engine's
  bool moving = false;               // blocks are copied between the tiers
  bool outdated = false;             // what is copied is of no use
  bool in_flight = false;
  bool cancelled = false;            // while in flight or moving; reaped when that ends

  uint32_t known() const { return static_cast<uint32_t>(tokens.size()); }
  uint32_t prompt_length() const { return static_cast<uint32_t>(request->prompt.size()); }
  uint32_t output_length() const { return known() - prompt_length(); }
  bool scores_prompt() const { return request->prompt_logprobs && scored.size() + 1 < request->prompt.size(); }
};

}  // namespace shoal
