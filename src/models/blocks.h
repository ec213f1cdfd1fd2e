// The two blocks that dense architectures are made of, as weights; each architecture's file says how they are used.
#pragma once

#include <optional>
#include <string>

#include "models/step.h"
#include "models/weights.h"

namespace shoal {

struct AttentionBlock {
  MatrixPlace q;  // [heads * head_dim, hidden]
  MatrixPlace k;  // [kv_heads * head_dim, hidden]
  MatrixPlace v;  // likewise
  MatrixPlace o;  // [hidden, heads * head_dim], summed in chunks of whole heads
};

struct HeadNorms {  // of every head, before it turns
  VectorPlace q;    // [head_dim]
  VectorPlace k;    // likewise
};

struct MlpBlock {
  MatrixPlace gate;  // [intermediate, hidden]
  MatrixPlace up;    // likewise
  MatrixPlace down;  // [hidden, intermediate], summed in chunks
};

// `prefix` is "model.layers.N.". Separate q_proj, k_proj, v_proj, gate_proj, up_proj ...
StatusOr<AttentionBlock> plan_attention(const ModelConfig& config, WeightLayout& layout, const std::string& prefix);
StatusOr<MlpBlock> plan_mlp(const ModelConfig& config, WeightLayout& layout, const std::string& prefix);
// `at` is "...mlp."; an MLP of that width.
StatusOr<MlpBlock> plan_mlp_at(const ModelConfig& config, WeightLayout& layout, const std::string& at, uint32_t width);
// ... or fused qkv_proj and gate_up_proj, split into the same blocks.
StatusOr<AttentionBlock> plan_fused_attention(const ModelConfig& config, WeightLayout& layout, const std::string& prefix);
StatusOr<MlpBlock> plan_fused_mlp(const ModelConfig& config, WeightLayout& layout, const std::string& prefix);

// self_attn.q_norm and k_norm.
StatusOr<HeadNorms> plan_head_norms(const ModelConfig& config, WeightLayout& layout, const std::string& prefix);
// Norms the step's q and k in place.
void norm_heads(const Step& step, const ModelConfig& config, const HeadNorms& norms);

// Window, scale and soft cap of a layer.
AttentionSpec attention_spec(const ModelConfig& config, uint32_t layer);

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
