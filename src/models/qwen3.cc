// Qwen3 (arXiv 2505.09388): no biases; q and k of every head are normed before they turn.
#include "models/blocks.h"
#include "models/decoder.h"

namespace shoal {
namespace {

struct Qwen3Layer {
  VectorPlace attention_norm;  // [hidden]
  AttentionBlock attention;
  VectorPlace q_norm;  // [head_dim]
  VectorPlace k_norm;  // [head_dim]
  VectorPlace mlp_norm;  // [hidden]
  MlpBlock mlp;
};

class Qwen3Layers : public DecoderLayers {
 public:
  Qwen3Layers(const ModelConfig& config, std::vector<Qwen3Layer> layers) : config_(config), layers_(std::move(layers)) {}

  void run(const Step& step, uint32_t index) const override {
    const Qwen3Layer& layer = layers_[index];
    const AttentionBlock& attention = layer.attention;
    const MlpBlock& mlp = layer.mlp;
    const StepBuffers& b = step.at();
    step.linear({b.x, layer.attention_norm, config_.norm_eps, b.h},
                {{&attention.q, b.q}, {&attention.k, b.k}, {&attention.v, b.v}});           // [rows, heads, head_dim]
    step.rms_norm(b.q, layer.q_norm, config_.norm_eps, b.q, config_.heads);
    step.rms_norm(b.k, layer.k_norm, config_.norm_eps, b.k, config_.kv_heads);
    step.rope(b.q, b.k, config_.rope);
    step.attend(b.q, b.k, b.v, attention_spec(config_, index), b.attn);                   // [rows, heads, head_dim]
    step.linear(b.attn, {{&attention.o, b.x, true}});                                     // [rows, hidden]
    step.linear({b.x, layer.mlp_norm, config_.norm_eps, b.h}, {{&mlp.gate, b.gate}, {&mlp.up, b.up}});  // [rows, intermediate]
    step.linear({Activation::kSilu, b.gate, b.up, b.gate}, {{&mlp.down, b.x, true}});     // [rows, hidden]
  }

 private:
  ModelConfig config_;
  std::vector<Qwen3Layer> layers_;
};

StatusOr<Qwen3Layer> plan_layer(const ModelConfig& config, WeightLayout& layout, const std::string& prefix) {
  Qwen3Layer layer;
  ASSIGN_OR_RETURN(layer.attention_norm, layout.vector(prefix + "input_layernorm.weight", config.hidden_size));
  ASSIGN_OR_RETURN(layer.attention, plan_attention(config, layout, prefix));
  ASSIGN_OR_RETURN(layer.q_norm, layout.vector(prefix + "self_attn.q_norm.weight", config.head_dim));
  ASSIGN_OR_RETURN(layer.k_norm, layout.vector(prefix + "self_attn.k_norm.weight", config.head_dim));
  ASSIGN_OR_RETURN(layer.mlp_norm, layout.vector(prefix + "post_attention_layernorm.weight", config.hidden_size));
  ASSIGN_OR_RETURN(layer.mlp, plan_mlp(config, layout, prefix));
  return layer;
}

}  // namespace

StatusOr<std::shared_ptr<const DecoderLayers>> plan_qwen3_layers(const ModelConfig& config, WeightLayout& layout) {
  ASSIGN_OR_RETURN(auto layers, plan_each_layer<Qwen3Layer>(config, layout, plan_layer));
  return std::make_shared<const Qwen3Layers>(config, std::move(layers));
}

}  // namespace shoal
