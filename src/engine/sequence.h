// One request inside an engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/request.h"
#include "memory/prefix_index.h"

namespace shoal {

// K and V of the first tokens of a sequence, on a host tier; then its state, of a model that keeps one.
struct HostKv {
  uint32_t tokens = 0;          // covered by the blocks
  std::vector<BlockId> blocks;  // whoever has this value owns one count of each
  bool remote = false;          // of another node's tier
};

// The state of a sequence in layers that keep one: each list is as many KV blocks as hold one, or empty. A step reads one state and
// writes another, so that a step that counts for nothing loses nothing, and a state can be kept in the prefix index as it is.
struct SequenceState {
  std::vector<BlockId> now;    // after [0, computed); empty: nothing is computed. The index may hold it too
  std::vector<BlockId> next;   // the step writes it; nobody else holds it
  std::vector<BlockId> spare;  // takes its place when the index holds the one that `next` would be; likewise
  std::vector<BlockId> kept;   // a step writes it when tokens [0, kept_at) are computed; for the index, when that has their blocks
  uint32_t kept_at = 0;
  std::optional<BlockId> tail; // a block of the index: the first tokens of its own are to be copied from there by the next step
  uint32_t last_kept = 0;      // tokens before the last state of it that the index was given
  PrefixEntry rolling = 0;     // where that of its answer is; 0: nowhere
};

// Half-open ranges of its tokens:
//
//   [0, computed)          K and V are in `blocks`, or on the host tier
//   [computed, known)      to compute: the rest of the prompt, or the token sampled last
//   known                  the token that the step which computes known - 1 samples
struct Sequence {
  // Where it is. It ends from any stage but those in which a step or a copy writes for it: then when that is over.
  //
  //                .-- preempted ---.     .-- finish_step --.
  //   submit       v                |     v                 |
  //   -----> waiting --admitted--> running --begin_step--> stepping
  //                                 |    ^
  //                              parking  '------ unparking <--.
  //                                 '--finish_move--> parked ---'
  enum class Stage : uint8_t {
    kWaiting,    // in the queue; holds nothing
    kRunning,    // on the device, in no step
    kStepping,   // on the device, in the step in flight
    kParking,    // its blocks are copied to the host tier
    kParked,     // its blocks are on the host tier
    kUnparking,  // its blocks are copied back to the device
  };
  // What becomes of it when the step or the copy that writes for it is over.
  enum class Next : uint8_t { kGoOn, kRestart, kEnd };

  std::shared_ptr<const Request> request;
  Stage stage = Stage::kWaiting;
  Next next = Next::kGoOn;
  uint64_t order = 0;                // of submission: keeps its place in the queue when it is preempted
  std::vector<TokenId> tokens;       // prompt, then output
  uint32_t computed = 0;
  std::vector<BlockId> blocks;       // of the device: cover [0, computed) and what the step in flight adds
  uint32_t published = 0;            // blocks [0, published) are in the prefix index
  PrefixEntry entry = 0;             // chain entry of block published - 1, or the root
  SequenceState state;               // of a model whose layers keep one
  std::vector<BlockId> host_blocks;  // of the host tier: cover [0, computed) while it is parked or on its way, then the state
  bool remote = false;               // ... of another node's, and not this engine's
  uint32_t cached_prompt_tokens = 0; // found in the prefix index at the first admission
  bool admitted_before = false;
  Duration queued{0};                // from arrival to the first admission
  std::optional<float> mirostat_mu;  // after the last token
  uint32_t delivered = 0;            // output tokens handed out, those of the request included
  std::vector<SampledToken> scored;  // prompt tokens 1.. scored so far
  bool scores_sent = false;

  uint32_t known() const { return static_cast<uint32_t>(tokens.size()); }
  uint32_t prompt_length() const { return static_cast<uint32_t>(request->prompt.size()); }
  uint32_t output_length() const { return known() - prompt_length(); }
  bool scores_prompt() const { return request->prompt_logprobs && scored.size() + 1 < request->prompt.size(); }
  bool moving() const { return stage == Stage::kParking || stage == Stage::kUnparking; }
};

constexpr uint32_t blocks_for(uint32_t tokens) { return (tokens + kTokensPerBlock - 1) / kTokensPerBlock; }

}  // namespace shoal
