// One model's requests, from submit to last token: continuous batching over paged KV. One owner thread.
// Knows token ids and block ids; never tensors, text, sockets or clocks.
//
//   submit ->  waiting  --begin_step: plan, apply-->  running  --finish_step: append, stop?-->  ended
//                 ^-------------- preempted: blocks released, recomputed later ----'|
//                                    parked: blocks are copied to the host tier, and back <-'
//
// The caller runs the StepInput between begin_step() and finish_step(), however long that takes; cancels and new
// requests may come meanwhile.
//
// Four rooms: sequence.h, one request and the stage that it is in; waiting_line.h, those that wait, and who of them can be on time;
// device_kv.h, the blocks and the shared prefixes of those on the device; parking.h, those that are off the device for a while.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "engine/device_kv.h"
#include "engine/parking.h"
#include "engine/sequence.h"
#include "engine/step.h"
#include "engine/waiting_line.h"
#include "memory/block_pool.h"
#include "memory/host_tier.h"
#include "policy/batch.h"
#include "policy/rehearsal.h"
#include "policy/slo.h"

namespace shoal {

struct EngineConfig {
  BatchLimits limits;
  uint32_t waiting_max = 1024;
  uint32_t max_model_len = 0;      // prompt and output together
  uint32_t vocab_size = 0;
  bool prefix_cache = true;
  // Prompts longer than this have a K of their own (dynamic rope): they share blocks with prompts of equal length only.
  uint32_t kv_salt_above = UINT32_MAX;
  uint32_t state_blocks = 0;      // that hold the state of a sequence in layers that keep one; 0: the model has none
  uint32_t states_kept_max = 0;   // of them in the prefix index
  // One that cannot be on time any more and has waited so long has a turn among those that can: each late_every-th step.
  Duration late_wait = std::chrono::minutes(2);
  uint32_t late_every = 8;
};

// New tokens of one request, in order; `finish` exactly once, on its last delta.
struct TokenDelta {
  RequestId request;
  uint32_t first_index = 0;
  std::vector<SampledToken> tokens;
  std::vector<SampledToken> prompt;  // with the first delta, if asked for
  std::optional<FinishReason> finish;
  Status error;                      // with kError
  uint32_t cached_prompt_tokens = 0;
  Duration queued{0};                // from Request::arrival until its first step began
};

struct EngineCounters {
  uint64_t steps = 0;
  std::array<uint64_t, kStepTokenBuckets.size() + 1> steps_by_tokens{};
  uint64_t step_tokens = 0;       // computed in all steps
  uint64_t prompt_tokens = 0;     // of admitted requests, once each
  uint64_t generated_tokens = 0;
  uint64_t prefix_queries = 0;    // tokens looked up
  uint64_t prefix_hits = 0;       // tokens found
  uint64_t preemptions = 0;
  uint64_t parkings = 0;
  uint64_t steps_deferred = 0;    // of the steps
  ExpertCounts experts;

  void count_step(uint32_t tokens);
};

class Engine {
 public:
  using Stage = Sequence::Stage;

  // `blocks` outlives the engine and may be shared with engines of the same shape class; `host_blocks` likewise, null if
  // there is no host tier.
  Engine(BlockPool& blocks, const EngineConfig& config, BlockPool* host_blocks = nullptr);
  ~Engine();  // releases every block

  // ---- requests ---------------------------------------------------------------------------------------------------------

  // InvalidArgument if the request can never run (empty, too long, ids outside the vocabulary, duplicate id);
  // ResourceExhausted if it may not join the line.
  // `kv`: what is computed of it already; with an error it is still the caller's.
  Status submit(Request request, const std::optional<HostKv>& kv = std::nullopt);
  // False for unknown and ended requests. Blocks are free at once, or when the step or the copy under way ends.
  bool cancel(RequestId id);
  // What is computed of it is lost, or of no use: it is computed anew, in its place in the queue. REQUIRES: has(id); it is
  // in no step.
  void restart(RequestId id);
  // It goes on elsewhere: forgotten here, and its KV is the caller's. REQUIRES: stage(id) is kWaiting or kParked.
  HostKv hand_over(RequestId id);

  bool has(RequestId id) const { return sequences_.contains(id); }  // cancelled ones too, until they end
  Stage stage(RequestId id) const { return sequences_.at(id)->stage; }  // REQUIRES: has(id)
  // The request with the output delivered so far. REQUIRES: has(id).
  Request request(RequestId id) const;
  // Its KV is, or is being copied from, another node's tier. False for unknown ids.
  bool kv_is_remote(RequestId id) const;

  // ---- steps ------------------------------------------------------------------------------------------------------------

  // Plans and applies one step of at most tokens_max tokens (and never more than the configured limit); nullopt when
  // nothing can be computed now. REQUIRES: no step in flight; tokens_max > 0.
  std::optional<StepInput> begin_step(TimePoint now, uint32_t tokens_max = UINT32_MAX);
  // Commits the step in flight: at most one new token per sequence, in the order of its slices. A deferred one commits nothing:
  // its sequences are as they were.
  std::vector<TokenDelta> finish_step(const StepResult& result);

  // false: what runs goes on, nothing new is admitted. Else at most so many a step.
  void set_admitting(bool admit, uint32_t admissions_max = UINT32_MAX);
  // Who waits, and who of them and of those that run is to be passed over.
  WaitingLine& line() { return line_; }
  // Whether begin_step() has anything to look at: something runs, or waits and may be admitted.
  bool runnable() const {
    return !running_.empty() || parking_.any_parked() || (config_.limits.admit && line_.any_next());
  }
  // Of requests that came until then.
  bool has_work(TimePoint came_by = TimePoint::max()) const {
    return std::any_of(sequences_.begin(), sequences_.end(), [came_by](const auto& s) { return s.second->request->arrival <= came_by; });
  }
  bool step_in_flight() const { return in_flight_step_ != 0; }

  // ---- memory -----------------------------------------------------------------------------------------------------------

  // Preempts the youngest running sequence, so that another engine can use its blocks. REQUIRES: no step in flight.
  bool preempt_youngest();
  // Takes a running sequence, the youngest or this one, off the device: its blocks are to be copied to the host tier, and come free
  // when they are there. nullopt if none runs or the tier has no room. REQUIRES: no step in flight; stage(*id) is kRunning.
  std::optional<KvMove> park(std::optional<RequestId> id = std::nullopt);
  // Brings the parked sequence that came first back; it runs when its blocks are there. nullopt if there is none, or no
  // room for it and its next token. While one is parked, nothing new is admitted.
  std::optional<KvMove> unpark_oldest();
  // The copies of a move are done; a remote one may have failed, and its sequence is computed anew. REQUIRES: it was
  // handed out and not finished. Returns whose it was.
  RequestId finish_move(uint64_t move, bool ok = true);
  // Gives up indexed blocks that no sequence uses.
  void drop_cached() { device_.drop_cached(); }
  // What is computed so far is of other weights than what will be: sequences that are admitted from now on find none of it.
  void forget_prefixes() { device_.forget_prefixes(); }

  // ---- what the node decides by -----------------------------------------------------------------------------------------

  // What the requests under way and waiting want next; of those that can still be on time, as far as line() knows.
  struct Demand {
    Duration slack = Duration::max();  // the least of those that run or would be admitted next, until its next token is due
    uint64_t promising = 0;            // of them all
    uint32_t computed = 0;             // of the tokens of the one with the least slack,
    uint32_t known = 0;                // of which all must be computed for that token
    uint64_t sequences = 0;            // running
    uint64_t decoding = 0;             // of those, with one token to compute
    uint64_t context_tokens = 0;       // of those, together
    Duration tbt = Duration::max();    // of those, the shortest between two of their tokens
    uint64_t blocks = 0;               // held by those, shared ones as often as they are held
  };
  Demand demand(const SloTarget& target, TimePoint now) const;
  // All but those that wait and cannot be on time any more, about equal ones together; of many that wait some stand for those about them.
  Cohorts cohorts(TimePoint now) const;
  // The running sequence that is never preempted for others of this engine; nullopt when none runs.
  std::optional<RequestId> oldest_running() const;
  size_t waiting() const { return line_.size() + parking_.parked(); }
  size_t running() const { return running_.size(); }
  uint32_t blocks_wanted() const;  // for one more token of everything that runs, beyond what it holds
  uint32_t blocks_active() const;  // held by sequences or moves, shared ones once
  uint32_t blocks_cached() const { return device_.cached(); }
  const Parking& parking() const { return parking_; }
  const EngineCounters& counters() const { return counters_; }

  // Ranges ordered, blocks cover what is computed, queues and table agree, counts match the pool's.
  void check() const;

 private:
  friend struct LongAnswers;

  // What finish_step() must know of a slice.
  struct InFlight {
    RequestId request;
    uint32_t end;     // tokens [0, end) are computed when the step is done
    bool sample;
    uint32_t scores;  // prompt tokens it scores
  };

  BatchPlan make_plan(TimePoint now, uint32_t tokens_max, bool pass_over);
  void admit(Sequence& s, TimePoint now);
  void wait_again(Sequence& s);  // released, to be computed anew
  StepSlice make_slice(Sequence& s, const Slice& slice);
  void commit(Sequence& s, const InFlight& slice, const SliceResult& result, std::vector<TokenDelta>& deltas);
  void erase(Sequence& s);

  EngineConfig config_;
  DeviceKv device_;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  WaitingLine line_;
  std::vector<Sequence*> running_;  // in order of admission
  Parking parking_;
  uint64_t next_order_ = 1;
  uint64_t next_step_ = 1;
  uint64_t in_flight_step_ = 0;
  std::vector<InFlight> in_flight_;
  EngineCounters counters_;
};

// Answers under way that have more than so many tokens already, and what they will have together as far as line() knows.
struct LongAnswers {
  double count = 0;
  double tokens = 0;
  static LongAnswers of(const Engine& engine, double beyond);
};

}  // namespace shoal
