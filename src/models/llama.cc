// Llama (arXiv 2302.13971, 2307.09288) and Mistral (arXiv 2310.06825), which adds a sliding window.
#include "models/decoder.h"

namespace shoal {
namespace {

struct LlamaLayer {
  VectorPlace attention_norm;  // [hidden]
  MatrixPlace q, k, v, o;
  VectorPlace mlp_norm;        // [hidden]
  MatrixPlace gate, up, down;
};

class LlamaLayers : public DecoderLayers {
 public:
  LlamaLayers(const ModelConfig& config, std::vector<LlamaLayer> layers) : config_(config), layers_(std::move(layers)) {}

  void run(const Step& step, uint32_t index) const override {
    const LlamaLayer& layer = layers_[index];
    const StepBuffers& b = step.at();
    step.rms_norm(b.x, layer.attention_norm, config_.norm_eps, b.h);                // [rows, hidden]
    step.linear(b.h, {{&layer.q, b.q}, {&layer.k, b.k}, {&layer.v, b.v}});          // [rows, heads, head_dim]
    step.rope(b.q, b.k, config_.rope);
    step.attend(b.q, b.k, b.v, attention(index), b.attn);                           // [rows, heads, head_dim]
    step.linear(b.attn, {{&layer.o, b.y}});                                         // [rows, hidden]
    step.add(b.x, b.y);
    step.rms_norm(b.x, layer.mlp_norm, config_.norm_eps, b.h);
    step.linear(b.h, {{&layer.gate, b.gate}, {&layer.up, b.up}});                   // [rows, intermediate]
    step.silu_mul(b.gate, b.up, b.gate);
    step.linear(b.gate, {{&layer.down, b.y}});                                      // [rows, hidden]
    step.add(b.x, b.y);
  }

 private:
  AttentionSpec attention(uint32_t index) const {
    const uint32_t window = config_.sliding_layers[index] ? config_.sliding_window : 0;
    return {index, window, static_cast<float>(config_.query_scale)};
  }

  ModelConfig config_;
  std::vector<LlamaLayer> layers_;
};

StatusOr<LlamaLayer> plan_layer(const ModelConfig& c, WeightLayout& layout, const std::string& prefix) {
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  const uint32_t q_width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
  const uint32_t unit = c.intermediate_size % kQuantBlock == 0 ? kQuantBlock : 1;
  LlamaLayer l;
  ASSIGN_OR_RETURN(l.attention_norm, layout.vector(prefix + "input_layernorm.weight", c.hidden_size));
  ASSIGN_OR_RETURN(l.q, layout.matrix({attention + "q_proj", q_width, c.hidden_size, c.qkv_bias}));
  ASSIGN_OR_RETURN(l.k, layout.matrix({attention + "k_proj", kv_width, c.hidden_size, c.qkv_bias}));
  ASSIGN_OR_RETURN(l.v, layout.matrix({attention + "v_proj", kv_width, c.hidden_size, c.qkv_bias}));
  ASSIGN_OR_RETURN(l.o, layout.matrix({attention + "o_proj", c.hidden_size, q_width, c.output_bias, c.head_dim}));
  ASSIGN_OR_RETURN(l.mlp_norm, layout.vector(prefix + "post_attention_layernorm.weight", c.hidden_size));
  ASSIGN_OR_RETURN(l.gate, layout.matrix({mlp + "gate_proj", c.intermediate_size, c.hidden_size, c.mlp_bias}));
  ASSIGN_OR_RETURN(l.up, layout.matrix({mlp + "up_proj", c.intermediate_size, c.hidden_size, c.mlp_bias}));
  ASSIGN_OR_RETURN(l.down, layout.matrix({mlp + "down_proj", c.hidden_size, c.intermediate_size, c.mlp_bias, unit}));
  return l;
}

}  // namespace

StatusOr<std::shared_ptr<const DecoderLayers>> plan_llama_layers(const ModelConfig& config, WeightLayout& layout) {
  std::vector<LlamaLayer> layers;
  for (uint32_t i = 0; i < config.layers; ++i) {
    ASSIGN_OR_RETURN(layers.emplace_back(), plan_layer(config, layout, absl::StrCat("model.layers.", i, ".")));
  }
  return std::make_shared<const LlamaLayers>(config, std::move(layers));
}

}  // namespace shoal
