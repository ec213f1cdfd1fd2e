// Llama (arXiv 2302.13971, 2307.09288) and those that differ from it in facts of the config: Mistral (arXiv 2310.06825), which
// adds a sliding window; Qwen2 and Qwen2.5 (arXiv 2407.10671), biases on q, k and v; Qwen3 (arXiv 2505.09388), norms of q and k
// of every head before they turn; Phi-3 (arXiv 2404.14219), fused projections and longrope; Seed-OSS; SmolLM3, layers without
// positions (arXiv 2501.18795); ERNIE 4.5; Granite 3 and 4, scaled embeddings, residuals and logits; Hunyuan, norms of heads that
// have turned; Ministral 3, queries that grow with their position; and those of them with experts: OLMoE, ERNIE 4.5, Hunyuan, MiniMax M2;
// gpt-oss (arXiv 2508.10925): sinks, windows in every second layer, experts with biases and a clamped gate;
// Llama 4: chunks in layers that turn, growing queries in the others, weights of experts' inputs; MiMo-V2-Flash: layers with
// windows have other heads and sinks, values are narrower than keys.
#include "models/blocks.h"
#include "models/decoder.h"
#include "models/experts.h"

namespace shoal {
namespace {

struct LlamaLayer {
  VectorPlace attention_norm;  // [hidden]
  AttentionBlock attention;
  std::optional<HeadNorms> head_norms;
  std::optional<VectorPlace> sinks;  // [heads]
  VectorPlace mlp_norm;  // [hidden]
  MlpBlock mlp;
  std::optional<ExpertBlock> experts;  // instead of mlp
};

class LlamaLayers : public DecoderLayers {
 public:
  LlamaLayers(const ModelConfig& config, std::vector<LlamaLayer> layers) : config_(config), layers_(std::move(layers)) {}

  std::optional<Exchange> run(const Step& step, uint32_t index, uint32_t part) const override {
    const LlamaLayer& layer = layers_[index];
    const AttentionBlock& attention = layer.attention;
    const StepBuffers& b = step.at();
    if (part > 0) return finish_experts(step, *layer.experts, b.h, b.x), std::nullopt;
    step.linear({b.x, layer.attention_norm, config_.norm_eps, b.h},
                {{&attention.q, b.q}, {&attention.k, b.k}, {&attention.v, b.v}});           // [rows, heads, head_dim]
    turn_heads(step, config_, index, layer.head_norms);
    AttentionSpec spec = attention_spec(config_, index);
    if (layer.sinks) spec.sinks = &*layer.sinks;
    if (config_.queries.value_scale != 1.0) step.scale(b.v, static_cast<float>(config_.queries.value_scale), attention.v.matrix.rows);
    attend(step, config_, spec, b.k, b.v);                                                // attn [rows, heads, head_dim]
    add_product(step, config_, b.attn, attention.o);                                      // [rows, hidden]
    if (layer.experts) {
      step.rms_norm(b.x, layer.mlp_norm, config_.norm_eps, b.h);
      return run_experts(step, *layer.experts, Activation::kSilu, b.h, b.x);
    }
    const MlpBlock& mlp = layer.mlp;
    step.linear({b.x, layer.mlp_norm, config_.norm_eps, b.h}, {{&mlp.gate, b.gate}, {&mlp.up, b.up}});  // [rows, intermediate]
    add_product(step, config_, Step::Gated{Activation::kSilu, b.gate, b.up, b.gate}, mlp.down);         // [rows, hidden]
    return std::nullopt;
  }

  void meanwhile(const Step& step, uint32_t index) const override { run_meanwhile(step, *layers_[index].experts, Activation::kSilu, step.at().h); }
  std::optional<LayerExperts> experts(uint32_t index) const override { return layer_experts(layers_[index].experts, Activation::kSilu); }

 private:
  ModelConfig config_;
  std::vector<LlamaLayer> layers_;
};

StatusOr<LlamaLayer> plan_layer(const ModelConfig& config, WeightLayout& layout, const std::string& prefix, uint32_t index) {
  const bool fused = config.architecture == Architecture::kPhi3;
  const bool fused_mlp = fused || layout.has(prefix + "mlp.gate_up_proj.weight");
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.attention_norm, layout.vector(prefix + "input_layernorm.weight", config.hidden_size));
  ASSIGN_OR_RETURN(layer.attention, (fused ? plan_fused_attention : plan_attention)(config, layout, prefix, index));
  const bool as_stored = config.architecture == Architecture::kGlm4Moe && layout.has(prefix + "self_attn.q_norm.weight");
  const bool weighted = config.queries.norm != QkNorm::kNone && config.queries.norm != QkNorm::kTurnedUnit;
  if (weighted || as_stored) {
    ASSIGN_OR_RETURN(layer.head_norms, plan_head_norms(config, layout, prefix));
  }
  if (config.queries.sinks && (!config.queries.sliding_sinks_only || config.sliding_layers[index])) {
    ASSIGN_OR_RETURN(layer.sinks, layout.vector(prefix + "self_attn.sinks", config.heads));
  }
  ASSIGN_OR_RETURN(layer.mlp_norm, layout.vector(prefix + "post_attention_layernorm.weight", config.hidden_size));
  if (config.experts && config.experts->layers[index]) {
    ASSIGN_OR_RETURN(layer.experts, plan_experts(config, layout, prefix));
    return layer;
  }
  ASSIGN_OR_RETURN(layer.mlp, (fused_mlp ? plan_fused_mlp : plan_mlp)(config, layout, prefix));
  return layer;
}

}  // namespace

StatusOr<std::shared_ptr<const DecoderLayers>> plan_llama_layers(const ModelConfig& config, WeightLayout& layout) {
  ASSIGN_OR_RETURN(auto layers, plan_each_layer<LlamaLayer>(config, layout, plan_layer));
  return std::make_shared<const LlamaLayers>(config, std::move(layers));
}

}  // namespace shoal
