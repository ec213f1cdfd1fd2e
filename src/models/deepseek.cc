// DeepSeek-V2 (arXiv 2405.04434) and V3 (arXiv 2412.19437): latent attention, whose keys and values are one vector of all heads, and
// experts; GLM-4.7 Flash, which has both; Mistral Small 4, whose queries grow with their position;
// LongCat Flash (arXiv 2509.01322), of whose layers each is two here, with experts beside them that may do nothing.
#include "models/blocks.h"
#include "models/decoder.h"
#include "models/experts.h"

namespace shoal {
namespace {

struct LatentBlock {
  struct CompressedQuery {
    MatrixPlace down;  // [query_rank, hidden]
    VectorPlace norm;  // [query_rank]
  };
  std::optional<CompressedQuery> compressed;
  MatrixPlace q;         // [heads * head_dim, query_rank or hidden]
  MatrixPlace latent;    // [rank + rope.dims, hidden]
  VectorPlace latent_norm;  // [rank]
  LatentPlaces heads;
  MatrixPlace o;         // [hidden, heads * value_dim], summed in chunks of whole heads
};

struct DeepseekLayer {
  VectorPlace attention_norm;  // [hidden]
  LatentBlock attention;
  VectorPlace mlp_norm;        // [hidden]
  MlpBlock mlp;
  std::optional<ExpertBlock> experts;  // instead of mlp, or beside it (LongCat Flash)
};

class DeepseekLayers : public DecoderLayers {
 public:
  DeepseekLayers(const ModelConfig& config, std::vector<DeepseekLayer> layers) : config_(config), layers_(std::move(layers)) {}

  std::optional<Exchange> run(const Step& step, uint32_t index, uint32_t) const override {
    const DeepseekLayer& layer = layers_[index];
    attend(step, layer, index);
    const StepBuffers& b = step.at();
    if (config_.architecture == Architecture::kLongcatFlash) return run_half(step, layer);
    if (layer.experts) {
      step.rms_norm(b.x, layer.mlp_norm, config_.norm_eps, b.h);
      run_experts(step, *layer.experts, Activation::kSilu, b.h, b.x);
      return std::nullopt;
    }
    const MlpBlock& mlp = layer.mlp;
    step.linear({b.x, layer.mlp_norm, config_.norm_eps, b.h}, {{&mlp.gate, b.gate}, {&mlp.up, b.up}});  // [rows, intermediate]
    step.linear({Activation::kSilu, b.gate, b.up, b.gate}, {{&mlp.down, b.x, true}});     // [rows, hidden]
    return std::nullopt;
  }

 private:
  // Of a layer of two halves: what the first's experts give is added where the second ends.
  std::optional<Exchange> run_half(const Step& step, const DeepseekLayer& layer) const {
    const StepBuffers& b = step.at();
    const MlpBlock& mlp = layer.mlp;
    step.rms_norm(b.x, layer.mlp_norm, config_.norm_eps, b.h);
    if (layer.experts) {
      step.scale(b.shortcut, 0);
      run_experts(step, *layer.experts, Activation::kSilu, b.h, b.shortcut);
    }
    step.linear(b.h, {{&mlp.gate, b.gate}, {&mlp.up, b.up}});                              // [rows, intermediate]
    step.linear({Activation::kSilu, b.gate, b.up, b.gate}, {{&mlp.down, b.x, true}});     // [rows, hidden]
    if (!layer.experts) step.add_scaled(b.shortcut, 1.0f, b.x);
    return std::nullopt;
  }

  void attend(const Step& step, const DeepseekLayer& layer, uint32_t index) const {
    const LatentBlock& a = layer.attention;
    const StepBuffers& b = step.at();
    if (a.compressed) {
      step.linear({b.x, layer.attention_norm, config_.norm_eps, b.h}, {{&a.compressed->down, b.latent_a}, {&a.latent, b.k}});
      step.linear({b.latent_a, a.compressed->norm, config_.norm_eps, b.latent_a}, {{&a.q, b.latent_q}});  // [rows, heads, head_dim]
    } else {
      step.linear({b.x, layer.attention_norm, config_.norm_eps, b.h}, {{&a.q, b.latent_q}, {&a.latent, b.k}});
    }
    step.latent_keys(a.heads, a.latent_norm, config_.norm_eps, config_.rope, b.k);           // [rows, rank + rope.dims]
    step.latent_queries(a.heads, config_.rope, b.latent_q, b.q);                             // [rows, heads, rank + rope.dims]
    if (config_.queries.growth) step.grow_queries(b.q, *config_.queries.growth);
    step.attend(b.q, b.k, {}, attention_spec(config_, index), b.attn);                       // [rows, heads, rank]
    step.latent_values(a.heads, b.attn, b.latent_q);                                         // [rows, heads, value_dim]
    step.linear(b.latent_q, {{&a.o, b.x, true}});                                            // [rows, hidden]
  }

  ModelConfig config_;
  std::vector<DeepseekLayer> layers_;
};

// Of one head, from a projection of keys and one of values, or from rows of both of all heads.
Status plan_head(const ModelConfig& c, WeightLayout& layout, const std::string& at, uint32_t head, LatentPlaces& out) {
  const uint32_t key = out.key_dim, value = out.value_dim, rank = out.rank;
  if (layout.has(at + "k_b_proj.weight")) {
    ASSIGN_OR_RETURN(out.absorb.emplace_back(), layout.matrix({.name = at + "k_b_proj", .outputs = rank, .columns = key, .first_row = head * rank,
                                                               .stored_rows = c.heads * rank, .any_rank = true}));
    ASSIGN_OR_RETURN(out.values.emplace_back(), layout.matrix({.name = at + "v_b_proj", .outputs = value, .columns = rank, .first_row = head * value,
                                                               .stored_rows = c.heads * value, .any_rank = true}));
    return OkStatus();
  }
  MatrixSpec part{.name = at + "kv_b_proj", .outputs = rank, .columns = key, .first_row = head * (key + value), .stored_rows = c.heads * (key + value)};
  part.transposed = true;
  ASSIGN_OR_RETURN(out.absorb.emplace_back(), layout.matrix(part));
  part.transposed = false;
  part.outputs = value;
  part.columns = rank;
  part.first_row += key;
  ASSIGN_OR_RETURN(out.values.emplace_back(), layout.matrix(part));
  return OkStatus();
}

StatusOr<LatentBlock> plan_latent(const ModelConfig& c, WeightLayout& layout, const std::string& at) {
  const LatentConfig& latent = *c.latent;
  const uint32_t q_width = c.heads * c.head_dim;
  LatentBlock block;
  if (latent.query_rank > 0) {
    LatentBlock::CompressedQuery& compressed = block.compressed.emplace();
    ASSIGN_OR_RETURN(compressed.down, layout.matrix({.name = at + "q_a_proj", .outputs = latent.query_rank, .columns = c.hidden_size, .bias = c.biases.qkv}));
    ASSIGN_OR_RETURN(compressed.norm, layout.vector(at + "q_a_layernorm.weight", latent.query_rank));
    ASSIGN_OR_RETURN(block.q, layout.matrix({.name = at + "q_b_proj", .outputs = q_width, .columns = latent.query_rank}));
  } else {
    ASSIGN_OR_RETURN(block.q, layout.matrix({.name = at + "q_proj", .outputs = q_width, .columns = c.hidden_size}));
  }
  ASSIGN_OR_RETURN(block.latent, layout.matrix({.name = at + "kv_a_proj_with_mqa", .outputs = latent.rank + c.rope.dims, .columns = c.hidden_size, .bias = c.biases.qkv}));
  ASSIGN_OR_RETURN(block.latent_norm, layout.vector(at + "kv_a_layernorm.weight", latent.rank));
  block.heads.rank = latent.rank;
  block.heads.scale = static_cast<float>(latent.scale);
  block.heads.key_dim = latent.key_dim;
  block.heads.rope_dims = c.rope.dims;
  block.heads.value_dim = latent.value_dim;
  for (uint32_t head = 0; head < c.heads; ++head) RETURN_IF_ERROR(plan_head(c, layout, at, head, block.heads));
  ASSIGN_OR_RETURN(block.o, layout.matrix({.name = at + "o_proj", .outputs = c.hidden_size, .columns = c.heads * latent.value_dim, .bias = c.biases.output,
                                           .chunk_unit = latent.value_dim}));
  return block;
}

StatusOr<DeepseekLayer> plan_layer(const ModelConfig& config, WeightLayout& layout, const std::string& prefix, uint32_t index) {
  DeepseekLayer layer;
  ASSIGN_OR_RETURN(layer.attention_norm, layout.vector(prefix + "input_layernorm.weight", config.hidden_size));
  ASSIGN_OR_RETURN(layer.attention, plan_latent(config, layout, prefix + "self_attn."));
  ASSIGN_OR_RETURN(layer.mlp_norm, layout.vector(prefix + "post_attention_layernorm.weight", config.hidden_size));
  if (config.experts && config.experts->layers[index]) {
    ASSIGN_OR_RETURN(layer.experts, plan_experts(config, layout, prefix));
    if (config.architecture != Architecture::kLongcatFlash) return layer;
  }
  ASSIGN_OR_RETURN(layer.mlp, plan_mlp(config, layout, prefix));
  return layer;
}

}  // namespace

StatusOr<std::shared_ptr<const DecoderLayers>> plan_deepseek_layers(const ModelConfig& config, WeightLayout& layout) {
  ASSIGN_OR_RETURN(auto layers, plan_each_layer<DeepseekLayer>(config, layout, plan_layer));
  return std::make_shared<const DeepseekLayers>(config, std::move(layers));
}

}  // namespace shoal
