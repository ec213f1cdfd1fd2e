// The two blocks that dense architectures are made of, as weights; each architecture's file says how they are used.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/step.h"
#include "models/weights.h"

namespace shoal {

struct AttentionBlock {
  MatrixPlace q;  // [heads * head_dim, hidden]; with gates after each head's queries, if there are such
  MatrixPlace k;  // [kv_heads * head_dim, hidden]
  MatrixPlace v;  // [kv_heads * value_dim, hidden]
  MatrixPlace o;  // [hidden, heads * value_dim], summed in chunks of whole heads
};

struct HeadNorms {
  VectorPlace q;    // [head_dim], or [heads * head_dim] of all heads as one
  VectorPlace k;    // [head_dim], or [kv_heads * head_dim]
};

struct MlpBlock {
  MatrixPlace gate;  // [intermediate, hidden]
  MatrixPlace up;    // likewise
  MatrixPlace down;  // [hidden, intermediate], summed in chunks
};

// `prefix` is "model.layers.N.", `layer` is N. Separate q_proj, k_proj, v_proj, gate_proj, up_proj ...
StatusOr<AttentionBlock> plan_attention(const ModelConfig& config, WeightLayout& layout, const std::string& prefix, uint32_t layer);
StatusOr<MlpBlock> plan_mlp(const ModelConfig& config, WeightLayout& layout, const std::string& prefix);
// `at` is "...mlp."; an MLP of that width.
StatusOr<MlpBlock> plan_mlp_at(const ModelConfig& config, WeightLayout& layout, const std::string& at, uint32_t width);
// ... without a gate.
StatusOr<MlpBlock> plan_ungated_mlp_at(const ModelConfig& config, WeightLayout& layout, const std::string& at, uint32_t width);
// ... or fused qkv_proj and gate_up_proj, split into the same blocks.
StatusOr<AttentionBlock> plan_fused_attention(const ModelConfig& config, WeightLayout& layout, const std::string& prefix, uint32_t layer);
StatusOr<MlpBlock> plan_fused_mlp(const ModelConfig& config, WeightLayout& layout, const std::string& prefix);
StatusOr<MlpBlock> plan_fused_mlp_at(const ModelConfig& config, WeightLayout& layout, const std::string& at, uint32_t width);

// self_attn.q_norm and k_norm.
StatusOr<HeadNorms> plan_head_norms(const ModelConfig& config, WeightLayout& layout, const std::string& prefix);
// Norms the step's q and k, turns them to their positions and scales q, in place and in the order of the family.
void turn_heads(const Step& step, const ModelConfig& config, uint32_t layer, const std::optional<HeadNorms>& norms);

// x += residual_scale * (matrix x input), where a block ends. `input`: as of Step::linear.
template <typename Input>
void add_product(const Step& step, const ModelConfig& config, const Input& input, const MatrixPlace& matrix) {
  const StepBuffers& b = step.at();
  if (config.scales.residual == 1.0) return step.linear(input, {{&matrix, b.x, true}});
  step.linear(input, {{&matrix, b.y}});
  step.add_scaled(b.y, static_cast<float>(config.scales.residual), b.x);
}

// Window, scale and soft cap of a layer.
AttentionSpec attention_spec(const ModelConfig& config, uint32_t layer);

// Whether nothing is stored after the layer: from there on only rows whose logits are asked for are of use.
bool stores_last(const ModelConfig& config, uint32_t layer);

// Stores k and v and attends with the step's q. In the layer that stores last, x, q and `also` go on with the rows that are asked for.
void attend(const Step& step, const ModelConfig& config, AttentionSpec spec, StepBuffers::Floats k, StepBuffers::Floats v, std::vector<KeptRows> also = {});

// plan(config, layout, "model.layers.N.", N) for every layer.
template <typename Layer, typename Plan>
StatusOr<std::vector<Layer>> plan_each_layer(const ModelConfig& config, WeightLayout& layout, const Plan& plan) {
  std::vector<Layer> layers;
  for (uint32_t i = 0; i < config.layers; ++i) {
    ASSIGN_OR_RETURN(layers.emplace_back(), plan(config, layout, absl::StrCat("model.layers.", i, "."), i));
  }
  return layers;
}

}  // namespace shoal
