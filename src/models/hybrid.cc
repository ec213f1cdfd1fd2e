// Decoders of which most layers keep a state instead of keys and values. Qwen3-Next and Qwen3.5: gated delta nets, and attention whose
// output is gated. Kimi Linear: delta attention with a decay per channel, and latent attention without positions. Granite 4 H and
// Nemotron-H: Mamba 2. Falcon-H1: Mamba 2 beside attention, both from one norm. LFM2 (arXiv 2511.23404): short convolutions.
#include "models/decoder.h"
#include "models/experts.h"
#include "models/latent.h"
#include "models/mixers.h"

namespace shoal {
namespace {

struct HybridLayer {
  VectorPlace norm;  // [hidden]
  // Before the MLP: one of these, attention and mamba together, or none of them where the layer is an MLP alone.
  std::optional<AttentionBlock> attention;
  std::optional<HeadNorms> head_norms;
  std::optional<LatentBlock> latent;
  std::optional<DeltaNet> delta_net;
  std::optional<KimiDelta> kimi_delta;
  std::optional<Mamba> mamba;
  std::optional<ShortConvolution> short_convolution;
  // The MLP, normed for itself where something comes before it.
  std::optional<VectorPlace> mlp_norm;  // [hidden]
  std::optional<MlpBlock> mlp;
  std::optional<ExpertBlock> experts;
};

class HybridLayers : public DecoderLayers {
 public:
  HybridLayers(const ModelConfig& config, std::vector<HybridLayer> layers) : config_(config), layers_(std::move(layers)) {}

  std::optional<Exchange> run(const Step& step, uint32_t index, uint32_t part) const override {
    const HybridLayer& layer = layers_[index];
    const StepBuffers& b = step.at();
    if (part > 0) return finish_scaled_experts(step, *layer.experts), std::nullopt;
    const double residual = config_.scales.residual;
    step.rms_norm(b.x, layer.norm, config_.norm_eps, b.h);
    if (layer.mamba) run_mamba(step, config_, *layer.mamba, residual * config_.recurrent->scales.out);
    if (layer.delta_net) run_delta_net(step, config_, *layer.delta_net);
    if (layer.kimi_delta) run_kimi_delta(step, config_, *layer.kimi_delta);
    if (layer.short_convolution) run_short_convolution(step, config_, *layer.short_convolution);
    if (layer.latent) run_latent(step, config_, *layer.latent, index);
    if (layer.attention) attend(step, layer, index);
    if (!layer.attention && !layer.latent && stores_last(config_, index)) step.keep_asked({{b.x, config_.hidden_size}});
    if (layer.mlp_norm) step.rms_norm(b.x, *layer.mlp_norm, config_.norm_eps, b.h);
    if (layer.experts) return run_scaled_experts(step, *layer.experts);
    if (layer.mlp) run_mlp(step, *layer.mlp);
    return std::nullopt;
  }

  void meanwhile(const Step& step, uint32_t index) const override { run_meanwhile(step, *layers_[index].experts, activation(), step.at().h); }
  std::optional<LayerExperts> experts(uint32_t index) const override { return layer_experts(layers_[index].experts, activation()); }

 private:
  Activation activation() const { return config_.recurrent->squared_relu ? Activation::kSquaredRelu : Activation::kSilu; }

  void attend(const Step& step, const HybridLayer& layer, uint32_t index) const {
    const AttentionBlock& attention = *layer.attention;
    const StepBuffers& b = step.at();
    const auto& s = config_.queries.factors;
    const uint32_t queries = config_.heads * config_.head_dim, keys = config_.kv_heads * config_.head_dim;
    std::vector<KeptRows> gates;
    if (config_.queries.gated) {
      gates.push_back({b.query_gate, queries});
      step.linear(b.h, {{&attention.q, b.raw}, {&attention.k, b.k}, {&attention.v, b.v}});    // [rows, heads, q gate]
      step.split(b.raw, config_.heads, {{config_.head_dim, b.q, queries, 0}, {config_.head_dim, b.query_gate, queries, 0}});
    } else {
      step.linear(b.h, {{&attention.q, b.q}, {&attention.k, b.k}, {&attention.v, b.v}});      // [rows, heads, head_dim]
    }
    if (s.in != 1.0) {
      step.scale(b.q, static_cast<float>(s.in), queries);
      step.scale(b.v, static_cast<float>(s.in), keys);
    }
    if (s.in * s.keys != 1.0) step.scale(b.k, static_cast<float>(s.in * s.keys), keys);
    turn_heads(step, config_, index, layer.head_norms);
    shoal::attend(step, config_, attention_spec(config_, index), b.k, b.v, gates);            // attn [rows, heads, head_dim]
    if (config_.queries.gated) return step.linear({Activation::kSigmoid, b.query_gate, b.attn, b.attn}, {{&attention.o, b.x, true}});
    step.linear(b.attn, {{&attention.o, b.y}});                                               // [rows, hidden]
    step.add_scaled(b.y, static_cast<float>(config_.scales.residual * s.out), b.x);
  }

  void run_mlp(const Step& step, const MlpBlock& mlp) const {
    const StepBuffers& b = step.at();
    const auto factor = static_cast<float>(config_.scales.residual * config_.scales.mlp_out);
    if (config_.recurrent->squared_relu) {
      step.linear(b.h, {{&mlp.up, b.gate}});                                                  // [rows, intermediate]
    } else {
      step.linear(b.h, {{&mlp.gate, b.gate}, {&mlp.up, b.up}});
    }
    if (config_.scales.mlp_gate != 1.0) step.scale(b.gate, static_cast<float>(config_.scales.mlp_gate), config_.intermediate_size);
    if (factor == 1) return step.linear({activation(), b.gate, b.up, b.gate}, {{&mlp.down, b.x, true}});
    step.linear({activation(), b.gate, b.up, b.gate}, {{&mlp.down, b.y}});
    step.add_scaled(b.y, factor, b.x);
  }

  // Where what they give is scaled, it is summed by itself first.
  std::optional<Exchange> run_scaled_experts(const Step& step, const ExpertBlock& experts) const {
    const StepBuffers& b = step.at();
    if (config_.scales.residual == 1.0) return run_experts(step, experts, activation(), b.h, b.x);
    step.scale(b.spare[0], 0);
    if (const auto exchange = run_experts(step, experts, activation(), b.h, b.spare[0])) return exchange;
    step.add_scaled(b.spare[0], static_cast<float>(config_.scales.residual), b.x);
    return std::nullopt;
  }

  void finish_scaled_experts(const Step& step, const ExpertBlock& experts) const {
    const StepBuffers& b = step.at();
    if (config_.scales.residual == 1.0) return finish_experts(step, experts, b.h, b.x);
    finish_experts(step, experts, b.h, b.spare[0]);
    step.add_scaled(b.spare[0], static_cast<float>(config_.scales.residual), b.x);
  }

  ModelConfig config_;
  std::vector<HybridLayer> layers_;
};

// How families call the parts of a layer that they have in common; folders and GGUF files come by these names (formats/hf_names.h).
Status plan_mixer(const ModelConfig& c, WeightLayout& layout, const std::string& prefix, uint32_t index, HybridLayer& layer) {
  const RecurrentConfig& r = *c.recurrent;
  if (r.attends(index)) {
    if (c.latent) {
      ASSIGN_OR_RETURN(layer.latent, plan_latent(c, layout, prefix + "self_attn.", index));
    } else {
      ASSIGN_OR_RETURN(layer.attention, plan_attention(c, layout, prefix, index));
      if (c.queries.norm != QkNorm::kNone) {
        ASSIGN_OR_RETURN(layer.head_norms, plan_head_norms(c, layout, prefix));
      }
    }
  }
  if (!r.recurs(index)) return OkStatus();
  switch (r.kind) {
    case RecurrentKind::kDeltaNet: {
      ASSIGN_OR_RETURN(layer.delta_net, plan_delta_net(c, layout, prefix + "linear_attn.", index));
      return OkStatus();
    }
    case RecurrentKind::kKimiDelta: {
      ASSIGN_OR_RETURN(layer.kimi_delta, plan_kimi_delta(c, layout, prefix + "self_attn.", index));
      return OkStatus();
    }
    case RecurrentKind::kMamba: {
      ASSIGN_OR_RETURN(layer.mamba, plan_mamba(c, layout, prefix + "mamba.", index));
      return OkStatus();
    }
    case RecurrentKind::kShortConvolution: {
      ASSIGN_OR_RETURN(layer.short_convolution, plan_short_convolution(c, layout, prefix + "conv.", index));
      return OkStatus();
    }
  }
  return OkStatus();
}

StatusOr<HybridLayer> plan_layer(const ModelConfig& c, WeightLayout& layout, const std::string& prefix, uint32_t index) {
  HybridLayer layer;
  ASSIGN_OR_RETURN(layer.norm, layout.vector(prefix + "input_layernorm.weight", c.hidden_size, c.norm_weight_plus_one));
  RETURN_IF_ERROR(plan_mixer(c, layout, prefix, index, layer));
  const bool alone = c.recurrent->single_blocks;  // a layer is one block
  if (alone && (c.recurrent->attends(index) || c.recurrent->recurs(index))) return layer;
  if (!alone) {
    ASSIGN_OR_RETURN(layer.mlp_norm, layout.vector(prefix + "post_attention_layernorm.weight", c.hidden_size, c.norm_weight_plus_one));
  }
  if (c.experts && c.experts->layers[index]) {
    ASSIGN_OR_RETURN(layer.experts, plan_experts(c, layout, prefix));
    return layer;
  }
  if (c.recurrent->squared_relu) {
    ASSIGN_OR_RETURN(layer.mlp, plan_ungated_mlp_at(c, layout, prefix + "mlp.", c.mlp_width_of(index)));
  } else if (layout.has(prefix + "mlp.gate_up_proj.weight")) {
    ASSIGN_OR_RETURN(layer.mlp, plan_fused_mlp(c, layout, prefix));
  } else {
    ASSIGN_OR_RETURN(layer.mlp, plan_mlp(c, layout, prefix));
  }
  return layer;
}

}  // namespace

StatusOr<std::shared_ptr<const DecoderLayers>> plan_hybrid_layers(const ModelConfig& config, WeightLayout& layout) {
  ASSIGN_OR_RETURN(auto layers, plan_each_layer<HybridLayer>(config, layout, plan_layer));
  return std::make_shared<const HybridLayers>(config, std::move(layers));
}

}  // namespace shoal
