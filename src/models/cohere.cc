// Command R7B and Command A (arXiv 2504.00698): attention and MLP both begin from one norm, which subtracts the mean, and are added
// together; layers with windows turn, the others know no positions.
#include "models/blocks.h"
#include "models/decoder.h"

namespace shoal {
namespace {

struct CohereLayer {
  VectorPlace norm;  // [hidden]
  AttentionBlock attention;
  MlpBlock mlp;
};

class CohereLayers : public DecoderLayers {
 public:
  CohereLayers(const ModelConfig& config, std::vector<CohereLayer> layers) : config_(config), layers_(std::move(layers)) {}

  std::optional<Exchange> run(const Step& step, uint32_t index, uint32_t) const override {
    const CohereLayer& layer = layers_[index];
    const AttentionBlock& attention = layer.attention;
    const MlpBlock& mlp = layer.mlp;
    const StepBuffers& b = step.at();
    step.linear({b.x, layer.norm, config_.norm_eps, b.h, NormKind::kLayer},
                {{&attention.q, b.q}, {&attention.k, b.k}, {&attention.v, b.v},            // [rows, heads, head_dim]
                 {&mlp.gate, b.gate}, {&mlp.up, b.up}});                                   // [rows, intermediate]
    turn_heads(step, config_, index, std::nullopt);
    attend(step, config_, attention_spec(config_, index), b.k, b.v,                       // attn [rows, heads, head_dim]
           {{b.gate, config_.intermediate_size}, {b.up, config_.intermediate_size}});
    step.linear(b.attn, {{&attention.o, b.x, true}});                                     // [rows, hidden]
    step.linear({Activation::kSilu, b.gate, b.up, b.gate}, {{&mlp.down, b.x, true}});     // [rows, hidden]
    return std::nullopt;
  }

 private:
  ModelConfig config_;
  std::vector<CohereLayer> layers_;
};

StatusOr<CohereLayer> plan_layer(const ModelConfig& config, WeightLayout& layout, const std::string& prefix, uint32_t index) {
  CohereLayer layer;
  ASSIGN_OR_RETURN(layer.norm, layout.vector(prefix + "input_layernorm.weight", config.hidden_size));
  ASSIGN_OR_RETURN(layer.attention, plan_attention(config, layout, prefix, index));
  ASSIGN_OR_RETURN(layer.mlp, plan_mlp(config, layout, prefix));
  return layer;
}

}  // namespace

StatusOr<std::shared_ptr<const DecoderLayers>> plan_cohere_layers(const ModelConfig& config, WeightLayout& layout) {
  ASSIGN_OR_RETURN(auto layers, plan_each_layer<CohereLayer>(config, layout, plan_layer));
  return std::make_shared<const CohereLayers>(config, std::move(layers));
}

}  // namespace shoal
