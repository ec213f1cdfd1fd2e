// Phi-3 (arXiv 2404.14219): Llama with fused projections; longrope in the long-context variants.
#include "models/blocks.h"
#include "models/decoder.h"

namespace shoal {
namespace {

struct Phi3Layer {
  VectorPlace attention_norm;  // [hidden]
  AttentionBlock attention;
  VectorPlace mlp_norm;  // [hidden]
  MlpBlock mlp;
};

class Phi3Layers : public DecoderLayers {
 public:
  Phi3Layers(const ModelConfig& config, std::vector<Phi3Layer> layers) : config_(config), layers_(std::move(layers)) {}

  void run(const Step& step, uint32_t index) const override {
    const Phi3Layer& layer = layers_[index];
    const AttentionBlock& attention = layer.attention;
    const MlpBlock& mlp = layer.mlp;
    const StepBuffers& b = step.at();
    step.linear({b.x, layer.attention_norm, config_.norm_eps, b.h},
                {{&attention.q, b.q}, {&attention.k, b.k}, {&attention.v, b.v}});           // [rows, heads, head_dim]
    step.rope(b.q, b.k, config_.rope);
    step.attend(b.q, b.k, b.v, attention_spec(config_, index), b.attn);                   // [rows, heads, head_dim]
    step.linear(b.attn, {{&attention.o, b.x, true}});                                     // [rows, hidden]
    step.linear({b.x, layer.mlp_norm, config_.norm_eps, b.h}, {{&mlp.gate, b.gate}, {&mlp.up, b.up}});  // [rows, intermediate]
    step.linear({Activation::kSilu, b.gate, b.up, b.gate}, {{&mlp.down, b.x, true}});     // [rows, hidden]
  }

 private:
  ModelConfig config_;
  std::vector<Phi3Layer> layers_;
};

StatusOr<Phi3Layer> plan_layer(const ModelConfig& config, WeightLayout& layout, const std::string& prefix) {
  Phi3Layer layer;
  ASSIGN_OR_RETURN(layer.attention_norm, layout.vector(prefix + "input_layernorm.weight", config.hidden_size));
  ASSIGN_OR_RETURN(layer.attention, plan_fused_attention(config, layout, prefix));
  ASSIGN_OR_RETURN(layer.mlp_norm, layout.vector(prefix + "post_attention_layernorm.weight", config.hidden_size));
  ASSIGN_OR_RETURN(layer.mlp, plan_fused_mlp(config, layout, prefix));
  return layer;
}

}  // namespace

StatusOr<std::shared_ptr<const DecoderLayers>> plan_phi3_layers(const ModelConfig& config, WeightLayout& layout) {
  ASSIGN_OR_RETURN(auto layers, plan_each_layer<Phi3Layer>(config, layout, plan_layer));
  return std::make_shared<const Phi3Layers>(config, std::move(layers));
}

}  // namespace shoal
