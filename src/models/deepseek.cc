// DeepSeek-V2 (arXiv 2405.04434) and V3 (arXiv 2412.19437): latent attention, whose keys and values are one vector of all heads, and
// experts; GLM-4.7 Flash, which has both; Mistral Small 4, whose queries grow with their position;
// LongCat Flash (arXiv 2509.01322), of whose layers each is two here, with experts beside them that may do nothing.
#include "models/blocks.h"
#include "models/decoder.h"
#include "models/experts.h"
#include "models/latent.h"

namespace shoal {
namespace {

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

  std::optional<Exchange> run(const Step& step, uint32_t index, uint32_t part) const override {
    const DeepseekLayer& layer = layers_[index];
    const StepBuffers& b = step.at();
    const bool halves = config_.architecture == Architecture::kLongcatFlash;
    if (part > 0) {
      finish_experts(step, *layer.experts, b.h, halves ? b.spare[0] : b.x);
      if (halves) end_half(step, layer);
      return std::nullopt;
    }
    step.rms_norm(b.x, layer.attention_norm, config_.norm_eps, b.h);
    std::vector<KeptRows> also;
    if (halves) also.push_back({b.spare[0], config_.hidden_size});
    run_latent(step, config_, layer.attention, index, std::move(also));
    if (halves) return run_half(step, layer);
    if (layer.experts) {
      step.rms_norm(b.x, layer.mlp_norm, config_.norm_eps, b.h);
      return run_experts(step, *layer.experts, Activation::kSilu, b.h, b.x);
    }
    const MlpBlock& mlp = layer.mlp;
    step.linear({b.x, layer.mlp_norm, config_.norm_eps, b.h}, {{&mlp.gate, b.gate}, {&mlp.up, b.up}});  // [rows, intermediate]
    step.linear({Activation::kSilu, b.gate, b.up, b.gate}, {{&mlp.down, b.x, true}});     // [rows, hidden]
    return std::nullopt;
  }

  void meanwhile(const Step& step, uint32_t index) const override { run_meanwhile(step, *layers_[index].experts, Activation::kSilu, step.at().h); }
  std::optional<LayerExperts> experts(uint32_t index) const override { return layer_experts(layers_[index].experts, Activation::kSilu); }

 private:
  // Of a layer of two halves: what the first's experts give is added where the second ends.
  std::optional<Exchange> run_half(const Step& step, const DeepseekLayer& layer) const {
    const StepBuffers& b = step.at();
    step.rms_norm(b.x, layer.mlp_norm, config_.norm_eps, b.h);
    if (layer.experts) {
      step.scale(b.spare[0], 0);
      if (const auto exchange = run_experts(step, *layer.experts, Activation::kSilu, b.h, b.spare[0])) return exchange;
    }
    end_half(step, layer);
    return std::nullopt;
  }
  void end_half(const Step& step, const DeepseekLayer& layer) const {
    const StepBuffers& b = step.at();
    const MlpBlock& mlp = layer.mlp;
    step.linear(b.h, {{&mlp.gate, b.gate}, {&mlp.up, b.up}});                              // [rows, intermediate]
    step.linear({Activation::kSilu, b.gate, b.up, b.gate}, {{&mlp.down, b.x, true}});     // [rows, hidden]
    if (!layer.experts) step.add_scaled(b.spare[0], 1.0f, b.x);
  }

  ModelConfig config_;
  std::vector<DeepseekLayer> layers_;
};

StatusOr<DeepseekLayer> plan_layer(const ModelConfig& config, WeightLayout& layout, const std::string& prefix, uint32_t index) {
  DeepseekLayer layer;
  ASSIGN_OR_RETURN(layer.attention_norm, layout.vector(prefix + "input_layernorm.weight", config.hidden_size));
  ASSIGN_OR_RETURN(layer.attention, plan_latent(config, layout, prefix + "self_attn.", index));
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
