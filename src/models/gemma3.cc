// Gemma 3 (arXiv 2503.19786): as Gemma 2 with normed q and k instead of soft caps; sliding layers turn by a base of their own.
#include "models/blocks.h"
#include "models/decoder.h"

namespace shoal {
namespace {

struct Gemma3Layer {
  VectorPlace attention_norm;  // [hidden]
  AttentionBlock attention;
  VectorPlace q_norm;  // [head_dim]
  VectorPlace k_norm;  // [head_dim]
  VectorPlace attention_post_norm;  // [hidden]
  VectorPlace mlp_norm;  // [hidden]
  MlpBlock mlp;
  VectorPlace mlp_post_norm;  // [hidden]
};

class Gemma3Layers : public DecoderLayers {
 public:
  Gemma3Layers(const ModelConfig& config, std::vector<Gemma3Layer> layers) : config_(config), layers_(std::move(layers)) {}

  void run(const Step& step, uint32_t index) const override {
    const Gemma3Layer& layer = layers_[index];
    const AttentionBlock& attention = layer.attention;
    const MlpBlock& mlp = layer.mlp;
    const StepBuffers& b = step.at();
    step.linear({b.x, layer.attention_norm, config_.norm_eps, b.h},
                {{&attention.q, b.q}, {&attention.k, b.k}, {&attention.v, b.v}});           // [rows, heads, head_dim]
    step.rms_norm(b.q, layer.q_norm, config_.norm_eps, b.q, config_.heads);
    step.rms_norm(b.k, layer.k_norm, config_.norm_eps, b.k, config_.kv_heads);
    step.rope(b.q, b.k, rope_of(index), config_.sliding_layers[index] ? 1 : 0);
    step.attend(b.q, b.k, b.v, attention_spec(config_, index), b.attn);                   // [rows, heads, head_dim]
    step.linear(b.attn, {{&attention.o, b.y}});                                           // [rows, hidden]
    step.add_normed({b.y, layer.attention_post_norm, config_.norm_eps, b.y}, b.x);
    step.linear({b.x, layer.mlp_norm, config_.norm_eps, b.h}, {{&mlp.gate, b.gate}, {&mlp.up, b.up}});  // [rows, intermediate]
    step.linear({Activation::kGelu, b.gate, b.up, b.gate}, {{&mlp.down, b.y}});           // [rows, hidden]
    step.add_normed({b.y, layer.mlp_post_norm, config_.norm_eps, b.y}, b.x);
  }

 private:
  const RopeConfig& rope_of(uint32_t index) const {
    return config_.sliding_layers[index] ? *config_.local_rope : config_.rope;
  }

  ModelConfig config_;
  std::vector<Gemma3Layer> layers_;
};

StatusOr<Gemma3Layer> plan_layer(const ModelConfig& config, WeightLayout& layout, const std::string& prefix) {
  Gemma3Layer layer;
  ASSIGN_OR_RETURN(layer.attention_norm, layout.vector(prefix + "input_layernorm.weight", config.hidden_size, config.norm_weight_plus_one));
  ASSIGN_OR_RETURN(layer.attention, plan_attention(config, layout, prefix));
  ASSIGN_OR_RETURN(layer.q_norm, layout.vector(prefix + "self_attn.q_norm.weight", config.head_dim, config.norm_weight_plus_one));
  ASSIGN_OR_RETURN(layer.k_norm, layout.vector(prefix + "self_attn.k_norm.weight", config.head_dim, config.norm_weight_plus_one));
  ASSIGN_OR_RETURN(layer.attention_post_norm, layout.vector(prefix + "post_attention_layernorm.weight", config.hidden_size, config.norm_weight_plus_one));
  ASSIGN_OR_RETURN(layer.mlp_norm, layout.vector(prefix + "pre_feedforward_layernorm.weight", config.hidden_size, config.norm_weight_plus_one));
  ASSIGN_OR_RETURN(layer.mlp, plan_mlp(config, layout, prefix));
  ASSIGN_OR_RETURN(layer.mlp_post_norm, layout.vector(prefix + "post_feedforward_layernorm.weight", config.hidden_size, config.norm_weight_plus_one));
  return layer;
}

}  // namespace

StatusOr<std::shared_ptr<const DecoderLayers>> plan_gemma3_layers(const ModelConfig& config, WeightLayout& layout) {
  ASSIGN_OR_RETURN(auto layers, plan_each_layer<Gemma3Layer>(config, layout, plan_layer));
  return std::make_shared<const Gemma3Layers>(config, std::move(layers));
}

}  // namespace shoal
