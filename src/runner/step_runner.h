// Does a step: ids in, ids out. Keeps up to four passes of disjoint sequences under way and advances whichever can go on; owns
// the sampler. The model, its KV, the workspace and the threads are the caller's.
#pragma once

#include <cstdint>
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
  std::vector<DeviceAddress> blocks;  // of all slices, one after the other: KV, then the states before, after and kept
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

  // `constraints` are the model's; null: requests with a grammar end in an error. `partner`: of a model that asks.
  StepResult run(Model& model, uint32_t vocab_size, const ResolvedStep& step, TokenConstraints* constraints = nullptr, ExchangePartner* partner = nullptr);

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
  StepResult run_whole(Model& model, const ResolvedStep& step);
  Status compute(Model& model, ExchangePartner* partner);
  SliceResult pick(const StepSlice& slice, Pass& pass, size_t& query, TokenConstraints* constraints);
  void sample(const StepSlice& slice, const RowLogits& logits, TokenConstraints* constraints, SliceResult& out);

  const DeviceSpan workspace_;
  const Options options_;
  Sampler sampler_;
  std::vector<Lane> lanes_;
};

}  // namespace shoal
