// OLMo 2 (arXiv 2501.00656): each block's output is normed and not its input; norms of q and of k over all heads at once. OLMo 3: windows
// in three of four layers, which turn by the plain base. EXAONE 4 (arXiv 2507.11407): norms of every head; where there are windows, the
// other layers know no positions.
#include "models/blocks.h"
#include "models/decoder.h"

namespace shoal {
namespace {

struct OlmoLayer {
  AttentionBlock attention;
  std::optional<HeadNorms> head_norms;
  VectorPlace attention_post_norm;  // [hidden]
  MlpBlock mlp;
  VectorPlace mlp_post_norm;  // [hidden]
};

class OlmoLayers : public DecoderLayers {
 public:
  OlmoLayers(const ModelConfig& config, std::vector<OlmoLayer> layers) : config_(config), layers_(std::move(layers)) {}

  std::optional<Exchange> run(const Step& step, uint32_t index, uint32_t) const override {
    const OlmoLayer& layer = layers_[index];
    const AttentionBlock& attention = layer.attention;
    const MlpBlock& mlp = layer.mlp;
    const StepBuffers& b = step.at();
    step.linear(b.x, {{&attention.q, b.q}, {&attention.k, b.k}, {&attention.v, b.v}});    // [rows, heads, head_dim]
    turn_heads(step, config_, index, layer.head_norms);
    attend(step, config_, attention_spec(config_, index), b.k, b.v);                      // attn [rows, heads, head_dim]
    step.linear(b.attn, {{&attention.o, b.y}});                                           // [rows, hidden]
    step.add_normed({b.y, layer.attention_post_norm, config_.norm_eps, b.y}, b.x);
    step.linear(b.x, {{&mlp.gate, b.gate}, {&mlp.up, b.up}});                             // [rows, intermediate]
    step.linear({Activation::kSilu, b.gate, b.up, b.gate}, {{&mlp.down, b.y}});           // [rows, hidden]
    step.add_normed({b.y, layer.mlp_post_norm, config_.norm_eps, b.y}, b.x);
    return std::nullopt;
  }

 private:
  ModelConfig config_;
  std::vector<OlmoLayer> layers_;
};

StatusOr<OlmoLayer> plan_layer(const ModelConfig& config, WeightLayout& layout, const std::string& prefix, uint32_t index) {
  OlmoLayer layer;
  ASSIGN_OR_RETURN(layer.attention, plan_attention(config, layout, prefix, index));
  ASSIGN_OR_RETURN(layer.head_norms, plan_head_norms(config, layout, prefix));
  ASSIGN_OR_RETURN(layer.attention_post_norm, layout.vector(prefix + "post_attention_layernorm.weight", config.hidden_size));
  ASSIGN_OR_RETURN(layer.mlp, plan_mlp(config, layout, prefix));
  ASSIGN_OR_RETURN(layer.mlp_post_norm, layout.vector(prefix + "post_feedforward_layernorm.weight", config.hidden_size));
  return layer;
}

}  // namespace

StatusOr<std::shared_ptr<const DecoderLayers>> plan_olmo_layers(const ModelConfig& config, WeightLayout& layout) {
  ASSIGN_OR_RETURN(auto layers, plan_each_layer<OlmoLayer>(config, layout, plan_layer));
  return std::make_shared<const OlmoLayers>(config, std::move(layers));
}

}  // namespace shoal
