// Gemma 2 (arXiv 2408.00118): norms before and after each block, windows in some layers, soft-capped scores. Gemma 3
// (arXiv 2503.19786): normed q and k instead of soft caps; sliding layers turn by a base of their own.
// GLM-4 (0414): the same norms, SiLU, one matrix for gate and up.
#include "models/blocks.h"
#include "models/decoder.h"

namespace shoal {
namespace {

struct GemmaLayer {
  VectorPlace attention_norm;  // [hidden]
  AttentionBlock attention;
  std::optional<HeadNorms> head_norms;
  VectorPlace attention_post_norm;  // [hidden]
  VectorPlace mlp_norm;  // [hidden]
  MlpBlock mlp;
  VectorPlace mlp_post_norm;  // [hidden]
};

class GemmaLayers : public DecoderLayers {
 public:
  GemmaLayers(const ModelConfig& config, std::vector<GemmaLayer> layers) : config_(config), layers_(std::move(layers)) {}

  std::optional<Exchange> run(const Step& step, uint32_t index, uint32_t) const override {
    const GemmaLayer& layer = layers_[index];
    const AttentionBlock& attention = layer.attention;
    const MlpBlock& mlp = layer.mlp;
    const StepBuffers& b = step.at();
    step.linear({b.x, layer.attention_norm, config_.norm_eps, b.h},
                {{&attention.q, b.q}, {&attention.k, b.k}, {&attention.v, b.v}});           // [rows, heads, head_dim]
    turn_heads(step, config_, index, layer.head_norms);
    attend(step, config_, attention_spec(config_, index), b.k, b.v);                      // attn [rows, heads, head_dim]
    step.linear(b.attn, {{&attention.o, b.y}});                                           // [rows, hidden]
    step.add_normed({b.y, layer.attention_post_norm, config_.norm_eps, b.y}, b.x);
    step.linear({b.x, layer.mlp_norm, config_.norm_eps, b.h}, {{&mlp.gate, b.gate}, {&mlp.up, b.up}});  // [rows, intermediate]
    const Activation activation = config_.architecture == Architecture::kGlm4 ? Activation::kSilu : Activation::kGelu;
    step.linear({activation, b.gate, b.up, b.gate}, {{&mlp.down, b.y}});           // [rows, hidden]
    step.add_normed({b.y, layer.mlp_post_norm, config_.norm_eps, b.y}, b.x);
    return std::nullopt;
  }

 private:
  ModelConfig config_;
  std::vector<GemmaLayer> layers_;
};

StatusOr<GemmaLayer> plan_layer(const ModelConfig& config, WeightLayout& layout, const std::string& prefix, uint32_t index) {
  GemmaLayer layer;
  ASSIGN_OR_RETURN(layer.attention_norm, layout.vector(prefix + "input_layernorm.weight", config.hidden_size, config.norm_weight_plus_one));
  ASSIGN_OR_RETURN(layer.attention, plan_attention(config, layout, prefix, index));
  if (config.queries.norm != QkNorm::kNone) {
    ASSIGN_OR_RETURN(layer.head_norms, plan_head_norms(config, layout, prefix));
  }
  ASSIGN_OR_RETURN(layer.attention_post_norm, layout.vector(prefix + "post_attention_layernorm.weight", config.hidden_size, config.norm_weight_plus_one));
  ASSIGN_OR_RETURN(layer.mlp_norm, layout.vector(prefix + "pre_feedforward_layernorm.weight", config.hidden_size, config.norm_weight_plus_one));
  ASSIGN_OR_RETURN(layer.mlp, (config.architecture == Architecture::kGlm4 ? plan_fused_mlp : plan_mlp)(config, layout, prefix));
  ASSIGN_OR_RETURN(layer.mlp_post_norm, layout.vector(prefix + "post_feedforward_layernorm.weight", config.hidden_size, config.norm_weight_plus_one));
  return layer;
}

}  // namespace

StatusOr<std::shared_ptr<const DecoderLayers>> plan_gemma_layers(const ModelConfig& config, WeightLayout& layout) {
  ASSIGN_OR_RETURN(auto layers, plan_each_layer<GemmaLayer>(config, layout, plan_layer));
  return std::make_shared<const GemmaLayers>(config, std::move(layers));
}

}  // namespace shoal
