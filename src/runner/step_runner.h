// Does a step: ids in, ids out. Keeps up to four passes of disjoint sequences under way and advances whichever can go on; owns
// the sampler. The model, its KV, the workspace and the threads are the caller's.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/step.h"
#include "models/exchange_partner.h"
#include "models/model.h"
#include "runner/sampler.h"
#include "runner/token_constraints.h"

namespace shoal {

// A StepInput with its block ids turned into addresses, by the thread that owns the KvStore.
struct ResolvedStep {
  StepInput input;
  std::vector<DeviceAddress> blocks;  // of all slices, one after the other: KV, the one to copy from, then the states before, after and kept
};

// A step to be done. All outlive it.
struct RunnerJob {
  Model* model;
  uint32_t vocab_size;
  const ResolvedStep* step;
  TokenConstraints* constraints = nullptr;  // the model's; null: requests with a grammar end in an error
  ExchangePartner* partner = nullptr;       // of a model that asks
};

class StepRunner {
 public:
  struct Options {
    uint32_t lanes = 1;  // passes under way at once of a model that asks, at most kPassesMax; its partner may want fewer
  };
  // `workspace` is workspace_bytes() for every model it will run.
  StepRunner(DeviceSpan workspace, const Options& options) : workspace_(workspace), options_(options) {}
  explicit StepRunner(DeviceSpan workspace) : StepRunner(workspace, Options()) {}

  // For `lanes` passes with so many rows and rows of logits together.
  static uint64_t workspace_bytes(const ModelPlan& plan, uint32_t rows, uint32_t logit_rows, uint32_t lanes = 1);

  // ---- a step, one at a time, that leaves the device to others while it waits ----
  void begin(const RunnerJob& job);
  // Whether go_on() would compute something.
  bool ready();
  enum class Progress : uint8_t { kDone, kWaits, kPaused };
  // Computes until the step is done, waits for answers, or `pause` says so (models/pass.h; a model that takes whole sequences does not
  // pause).
  Progress go_on(const Pass::Pause& pause = {});
  // `alone`: nobody else computed between begin() and now. REQUIRES: it is done.
  StepResult end(bool alone = true);

  // All of it. REQUIRES: the partner, if there is one, answers without being waited for.
  StepResult run(const RunnerJob& job);

 private:
  struct Lane {
    std::vector<size_t> of_step;  // which slices of the step
    std::vector<TokenId> tokens;
    std::vector<SequenceSlice> slices;
    std::vector<LogitsQuery> queries;
    ForwardInput input;
    std::unique_ptr<Pass> pass;
  };

  void lay_out(const ResolvedStep& step, uint32_t lanes_max);
  void run_whole();
  ExpertCounts counts() const;
  Status begin_passes();
  StatusOr<Progress> advance(const Pass::Pause& pause);
  SliceResult pick(const StepSlice& slice, Pass& pass, size_t& query, TokenConstraints* constraints);
  void sample(const StepSlice& slice, const RowLogits& logits, TokenConstraints* constraints, SliceResult& out);

  const DeviceSpan workspace_;
  const Options options_;
  Sampler sampler_;
  std::vector<Lane> lanes_;
  // Of the step under way.
  RunnerJob job_{};
  StepResult result_;
  ExpertCounts before_;         // it
  Status computed_;
  std::deque<uint32_t> ready_;  // lanes that can go on
  size_t asked_ = 0;            // lanes that wait
};

}  // namespace shoal
