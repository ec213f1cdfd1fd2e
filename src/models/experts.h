// A layer's experts as weights: who chooses, and the MLP of each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/expert_router.h"
#include "models/blocks.h"
#include "models/expert_plan.h"
#include "models/step.h"
#include "models/weights.h"

namespace shoal {

struct ExpertBlock {
  ExpertPlaces experts;
  std::optional<MlpBlock> shared;         // of every token
  std::optional<MatrixPlace> shared_gate; // [1, hidden]: its weight is the sigmoid of this
};

// `prefix` is "model.layers.N.". Takes the names of every family, and experts that are tensors of their own or one tensor.
StatusOr<ExpertBlock> plan_experts(const ModelConfig& config, WeightLayout& layout, const std::string& prefix);

inline std::optional<LayerExperts> layer_experts(const std::optional<ExpertBlock>& block, Activation activation) {
  return block ? std::optional(LayerExperts{&block->experts, activation}) : std::nullopt;
}

// x += experts(h), h being the layer's normed input. Uses the step's y, gate and up. Where experts are elsewhere: what they are to be
// asked for; then run_meanwhile(), while they compute, and finish_experts(), of the same h and x.
std::optional<Exchange> run_experts(const Step& step, const ExpertBlock& block, Activation activation, StepBuffers::Floats h, StepBuffers::Floats x);
void run_meanwhile(const Step& step, const ExpertBlock& block, Activation activation, StepBuffers::Floats h);
void finish_experts(const Step& step, const ExpertBlock& block, StepBuffers::Floats h, StepBuffers::Floats x);

}  // namespace shoal
