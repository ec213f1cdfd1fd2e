#include "models/blocks.h"

namespace shoal {
namespace {

uint32_t q_width(const ModelConfig& c) { return c.heads * c.head_dim; }
uint32_t kv_width(const ModelConfig& c) { return c.kv_heads * c.head_dim; }

StatusOr<MatrixPlace> plan_output(const ModelConfig& c, WeightLayout& layout, const std::string& prefix, const HeadShape& heads) {
  return layout.matrix({.name = prefix + "self_attn.o_proj", .outputs = c.hidden_size, .columns = heads.heads * heads.value_dim,
                        .bias = c.biases.output, .chunk_unit = heads.value_dim});
}

StatusOr<MatrixPlace> plan_down(const ModelConfig& c, WeightLayout& layout, const std::string& at, uint32_t width) {
  const uint32_t unit = width % kQuantBlock == 0 ? kQuantBlock : 1;  // channels, in whole blocks
  return layout.matrix({.name = at + "down_proj", .outputs = c.hidden_size, .columns = width, .bias = c.biases.mlp, .chunk_unit = unit});
}

}  // namespace

StatusOr<AttentionBlock> plan_attention(const ModelConfig& c, WeightLayout& layout, const std::string& prefix, uint32_t layer) {
  const std::string at = prefix + "self_attn.";
  const HeadShape heads = c.heads_of(layer);
  const auto projection = [&](const char* name, uint32_t outputs) {
    return layout.matrix({.name = at + name, .outputs = outputs, .columns = c.hidden_size, .bias = c.biases.qkv});
  };
  AttentionBlock block;
  ASSIGN_OR_RETURN(block.q, projection("q_proj", (c.queries.gated ? 2 : 1) * heads.heads * heads.head_dim));
  ASSIGN_OR_RETURN(block.k, projection("k_proj", heads.kv_heads * heads.head_dim));
  ASSIGN_OR_RETURN(block.v, projection("v_proj", heads.kv_heads * heads.value_dim));
  ASSIGN_OR_RETURN(block.o, plan_output(c, layout, prefix, heads));
  return block;
}

StatusOr<AttentionBlock> plan_fused_attention(const ModelConfig& c, WeightLayout& layout, const std::string& prefix, uint32_t layer) {
  const uint32_t q = q_width(c), kv = kv_width(c);
  MatrixSpec part{.name = prefix + "self_attn.qkv_proj", .outputs = q, .columns = c.hidden_size, .stored_rows = q + 2 * kv};
  AttentionBlock block;
  ASSIGN_OR_RETURN(block.q, layout.matrix(part));
  part.outputs = kv;
  part.first_row = q;
  ASSIGN_OR_RETURN(block.k, layout.matrix(part));
  part.first_row = q + kv;
  ASSIGN_OR_RETURN(block.v, layout.matrix(part));
  ASSIGN_OR_RETURN(block.o, plan_output(c, layout, prefix, c.heads_of(layer)));
  return block;
}

StatusOr<MlpBlock> plan_mlp(const ModelConfig& c, WeightLayout& layout, const std::string& prefix) {
  return plan_mlp_at(c, layout, prefix + "mlp.", c.intermediate_size);
}

StatusOr<MlpBlock> plan_mlp_at(const ModelConfig& c, WeightLayout& layout, const std::string& at, uint32_t width) {
  MlpBlock block;
  ASSIGN_OR_RETURN(block.gate, layout.matrix({.name = at + "gate_proj", .outputs = width, .columns = c.hidden_size, .bias = c.biases.mlp}));
  ASSIGN_OR_RETURN(block.up, layout.matrix({.name = at + "up_proj", .outputs = width, .columns = c.hidden_size, .bias = c.biases.mlp}));
  ASSIGN_OR_RETURN(block.down, plan_down(c, layout, at, width));
  return block;
}

StatusOr<MlpBlock> plan_ungated_mlp_at(const ModelConfig& c, WeightLayout& layout, const std::string& at, uint32_t width) {
  MlpBlock block;
  ASSIGN_OR_RETURN(block.up, layout.matrix({.name = at + "up_proj", .outputs = width, .columns = c.hidden_size, .bias = c.biases.mlp}));
  ASSIGN_OR_RETURN(block.down, plan_down(c, layout, at, width));
  return block;
}

StatusOr<MlpBlock> plan_fused_mlp(const ModelConfig& c, WeightLayout& layout, const std::string& prefix) {
  return plan_fused_mlp_at(c, layout, prefix + "mlp.", c.intermediate_size);
}

StatusOr<MlpBlock> plan_fused_mlp_at(const ModelConfig& c, WeightLayout& layout, const std::string& at, uint32_t width) {
  MatrixSpec part{.name = at + "gate_up_proj", .outputs = width, .columns = c.hidden_size, .stored_rows = 2 * width};
  MlpBlock block;
  ASSIGN_OR_RETURN(block.gate, layout.matrix(part));
  part.first_row = width;
  ASSIGN_OR_RETURN(block.up, layout.matrix(part));
  ASSIGN_OR_RETURN(block.down, plan_down(c, layout, at, width));
  return block;
}

StatusOr<HeadNorms> plan_head_norms(const ModelConfig& c, WeightLayout& layout, const std::string& prefix) {
  const bool whole = c.queries.norm == QkNorm::kWidth;
  HeadNorms norms;
  ASSIGN_OR_RETURN(norms.q, layout.vector(prefix + "self_attn.q_norm.weight", whole ? q_width(c) : c.head_dim, c.norm_weight_plus_one));
  ASSIGN_OR_RETURN(norms.k, layout.vector(prefix + "self_attn.k_norm.weight", whole ? kv_width(c) : c.head_dim, c.norm_weight_plus_one));
  return norms;
}

void turn_heads(const Step& step, const ModelConfig& c, uint32_t layer, const std::optional<HeadNorms>& norms) {
  const StepBuffers& b = step.at();
  const auto norm = [&] {
    step.rms_norm(b.q, norms->q, c.norm_eps, b.q, q_width(c) / norms->q.size);
    step.rms_norm(b.k, norms->k, c.norm_eps, b.k, kv_width(c) / norms->k.size);
  };
  const bool after = c.queries.norm == QkNorm::kTurnedHeads;
  if (norms && !after) norm();
  const bool local = c.local_rope && c.sliding_layers[layer];
  if (c.turns(layer)) step.rope(layer, b.q, b.k, local ? *c.local_rope : c.rope, local ? 1 : 0);
  if (norms && after) norm();
  if (c.queries.norm == QkNorm::kTurnedUnit && c.turns(layer)) {
    step.unit_norm(b.q, c.head_dim, c.norm_eps, b.q, c.heads);
    step.unit_norm(b.k, c.head_dim, c.norm_eps, b.k, c.kv_heads);
  }
  if (c.queries.growth && !(c.queries.growth->unturned_only && c.turns(layer))) step.grow_queries(layer, b.q, *c.queries.growth);
}

AttentionSpec attention_spec(const ModelConfig& config, uint32_t layer) {
  return {.layer = layer,
          .window = config.sliding_layers[layer] ? config.sliding_window : 0,
          .chunk = config.sliding_layers[layer] ? config.queries.chunk : 0,
          .scale = static_cast<float>(config.queries.scale),
          .softcap = static_cast<float>(config.queries.softcap)};
}

bool stores_last(const ModelConfig& config, uint32_t layer) {
  if (config.pooled || config.encoder || !config.stores(layer)) return false;
  for (uint32_t later = config.layers; --later > layer;) {
    if (config.stores(later)) return false;
  }
  return true;
}

void attend(const Step& step, const ModelConfig& config, AttentionSpec spec, StepBuffers::Floats k, StepBuffers::Floats v, std::vector<KeptRows> also) {
  const StepBuffers& b = step.at();
  if (stores_last(config, spec.layer)) {
    also.push_back({b.x, config.hidden_size});
    spec.keep = &also;
  }
  step.attend(b.q, k, v, spec, b.attn);
}

}  // namespace shoal
