// Llama (arXiv 2302.13971, 2307.09288), Mistral (arXiv 2310.06825), which adds a sliding window, and Qwen2 and Qwen2.5
// (arXiv 2407.10671), which add biases on q, k and v: window and biases are facts of the config.
#include "models/blocks.h"
#include "models/decoder.h"

namespace shoal {
namespace {

struct LlamaLayer {
  VectorPlace attention_norm;  // [hidden]
  AttentionBlock attention;
  VectorPlace mlp_norm;  // [hidden]
  MlpBlock mlp;
};

class LlamaLayers : public DecoderLayers {
 public:
  LlamaLayers(const ModelConfig& config, std::vector<LlamaLayer> layers) : config_(config), layers_(std::move(layers)) {}

  void run(const Step& step, uint32_t index) const override {
    const LlamaLayer& layer = layers_[index];
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
  std::vector<LlamaLayer> layers_;
};

StatusOr<LlamaLayer> plan_layer(const ModelConfig& config, WeightLayout& layout, const std::string& prefix) {
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.attention_norm, layout.vector(prefix + "input_layernorm.weight", config.hidden_size));
  ASSIGN_OR_RETURN(layer.attention, plan_attention(config, layout, prefix));
  ASSIGN_OR_RETURN(layer.mlp_norm, layout.vector(prefix + "post_attention_layernorm.weight", config.hidden_size));
  ASSIGN_OR_RETURN(layer.mlp, plan_mlp(config, layout, prefix));
  return layer;
}

}  // namespace

StatusOr<std::shared_ptr<const DecoderLayers>> plan_llama_layers(const ModelConfig& config, WeightLayout& layout) {
  ASSIGN_OR_RETURN(auto layers, plan_each_layer<LlamaLayer>(config, layout, plan_layer));
  return std::make_shared<const LlamaLayers>(config, std::move(layers));
}

}  // namespace shoal
