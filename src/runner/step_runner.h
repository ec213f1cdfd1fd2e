// Does a step: ids in, ids out. Owns the workspace and the sampler; the model, its KV and the threads are the caller's.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/step.h"
#include "models/model.h"
#include "runner/sampler.h"
#include "runner/token_constraints.h"

namespace shoal {

// A StepInput with its block ids turned into addresses, by the thread that owns the KvStore.
struct ResolvedStep {
  StepInput input;
  std::vector<std::byte*> blocks;      // of all slices, one after the other
};

class StepRunner {
 public:
  // `workspace` is enough for every model it will run; it outlives the runner.
  explicit StepRunner(std::span<std::byte> workspace) : workspace_(workspace) {}

  // `constraints` are the model's; null: requests with a grammar end in an error.
  StepResult run(Model& model, uint32_t vocab_size, const ResolvedStep& step, TokenConstraints* constraints = nullptr);

 private:
  SliceResult pick(const StepSlice& slice, uint32_t vocab_size, const float*& row, TokenConstraints* constraints);
  void sample(const StepSlice& slice, std::span<const float> logits, TokenConstraints* constraints, SliceResult& out);

  std::span<std::byte> workspace_;
  Sampler sampler_;
  std::vector<TokenId> tokens_;
  std::vector<SequenceSlice> slices_;
  std::vector<uint32_t> logit_rows_;
  std::vector<float> logits_;
};

}  // namespace shoal
