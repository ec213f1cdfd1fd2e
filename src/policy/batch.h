// What the next step of an engine computes. Pure: same arguments, same plan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"

namespace shoal {

// A sequence's tokens, as half-open ranges:   [0, computed) in KV blocks | [computed, known) to compute | next: sampled
struct SequenceView {
  RequestId request;
  uint32_t known = 0;         // prompt and output so far
  uint32_t computed = 0;      // for a waiting one: what the prefix index would give it
  uint32_t blocks_held = 0;   // for a waiting one: blocks of that prefix (shared, nothing to allocate)
  uint32_t blocks_freed = 0;  // blocks that come free if it is preempted (those nobody else shares)
  uint32_t prefix_evictable = 0;  // of the prefix of a waiting one: blocks now counted in blocks_available
  uint32_t state_blocks = 0;      // blocks that a waiting one needs for its states, whatever its length
  bool scores_prompt = false;     // every row it computes costs a logit row
  bool passed_over = false;       // of a running one: it keeps its blocks, and has no slice and no place in this step
};

// Everything the policy may know. Spans are valid during the call only.
struct EngineView {
  std::span<const SequenceView> running;  // in order of admission, oldest first, and behind them likewise those that are passed over
  std::span<const SequenceView> waiting;  // in the order they are to be admitted
  uint32_t blocks_available = 0;          // free, evictable and obtainable from the device's pages
  uint32_t tokens_per_block = 16;
};

struct BatchLimits {
  uint32_t tokens_per_step = 512;
  uint32_t sequences_max = 128;    // at once in a step, and running, those apart that are passed over
  uint32_t logit_rows_max = 128;
  bool admit = true;               // false: finish what runs, take nothing new
  uint32_t admissions_max = UINT32_MAX;  // taken anew in one step
};

// Compute tokens [begin, end). A decode is a slice of length 1.
struct Slice {
  RequestId request;
  uint32_t begin = 0;
  uint32_t end = 0;
  friend bool operator==(const Slice&, const Slice&) = default;
};

struct BatchPlan {
  std::vector<RequestId> preempt;  // released first, youngest first; their KV is recomputed later
  std::vector<RequestId> admit;    // leave the waiting queue, in its order
  std::vector<Slice> slices;       // running and admitted sequences, each at most once
  friend bool operator==(const BatchPlan&, const BatchPlan&) = default;
};

// Decodes first, then prefill chunks of running sequences, then new sequences, within the step's budgets. When blocks
// run out the last running sequence is preempted: who is passed over, then the youngest; the first never is, so there is always progress if one
// sequence alone fits. Nothing is admitted in a step that preempts, nor unless all its known tokens fit.
BatchPlan plan_batch(const EngineView& view, const BatchLimits& limits);

// CHECKs that the plan keeps the promises above.
void check_plan(const BatchPlan& plan, const EngineView& view, const BatchLimits& limits);

std::string to_string(const BatchPlan& plan);

}  // namespace shoal
