// A step in ids: what the engine asks a runner to compute, and what comes back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/expert_counts.h"
#include "base/request.h"
#include "base/status.h"
#include "memory/block_pool.h"

namespace shoal {

// Compute tokens [begin, begin + tokens.size()) of one sequence.
struct StepSlice {
  RequestId request;
  uint32_t begin = 0;                    // position of the first token; those before it are in the blocks
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;           // cover [0, begin + tokens.size())
  std::vector<BlockId> tail_from;        // one: the tokens of the block of `begin` that are before it are to be copied from there first
  std::vector<BlockId> state_before;     // of a model with a state: after [0, begin); empty if begin is 0
  std::vector<BlockId> state_after;      // after all tokens
  std::vector<BlockId> state_kept;       // also after the first `kept_tokens` of them, fewer than all; empty: nothing is kept
  uint32_t kept_tokens = 0;
  uint32_t prompt_length = 0;            // of the request: fixes the base of dynamic rope

  // The token after the slice's last one is sampled iff the slice reaches the end of what is known.
  bool sample = false;
  uint32_t output_index = 0;             // index of that token in the output: the counter of the draw
  bool ban_stop_ids = false;             // fewer than min_tokens so far
  std::shared_ptr<const Request> params; // sampling parameters and stop ids; shared, immutable
  std::vector<TokenId> output;           // tokens generated so far, only if the sampling or a grammar needs them
  std::optional<float> mirostat_mu;      // after the output so far

  // Score prompt tokens [score_begin, score_end): the logits of position p - 1 judge token p.
  uint32_t score_begin = 0;
  uint32_t score_end = 0;
};

struct StepInput {
  uint64_t step = 0;  // rises by one per step of an engine
  std::vector<StepSlice> slices;

  uint32_t rows() const {
    uint32_t n = 0;
    for (const StepSlice& slice : slices) n += static_cast<uint32_t>(slice.tokens.size());
    return n;
  }
};

struct SliceResult {
  RequestId request;
  std::vector<SampledToken> sampled;  // one, if the slice asked for it
  std::vector<SampledToken> scored;   // score_end - score_begin
  bool finite = true;                 // false: the logits hold NaN or no number at all; nothing was sampled
  bool complete = false;              // the grammar lets nothing follow: the answer ends with what was sampled, maybe nothing
  // Not OK: nothing was sampled. InvalidArgument: the grammar cannot be followed, and why. DataLoss: the model's files
  // changed before its weights were packed.
  Status error;
};

struct StepResult {
  uint64_t step = 0;
  std::vector<SliceResult> slices;  // in the order of StepInput::slices
  // Not OK, naming who is away: nothing of the step counts, and there are no slices. Its sequences wait and lose nothing else.
  Status deferred;
  ExpertCounts experts = {};  // of this step; empty of a model without experts
  Duration away{0};           // of its time: when the device computed nothing of it, but waited for others, or computed another model's step
};

}  // namespace shoal
