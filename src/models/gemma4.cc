// Gemma 4: Gemma 3's norms, with heads of another width in the layers that see everything, values that are normed, and a factor of
// what each layer leaves. Of its variants one has inputs by layer, and last layers that read the keys and values of earlier
// ones; another has no projection of values where all is seen; a third has experts beside the MLP.
#include "models/blocks.h"
#include "models/decoder.h"
#include "models/experts.h"

namespace shoal {
namespace {

struct Gemma4Layer {
  VectorPlace attention_norm;  // [hidden]
  MatrixPlace q;               // [heads * head_dim, hidden]
  std::optional<MatrixPlace> k, v;  // [kv_heads * head_dim, hidden]; no k: it reads another layer's; no v: values are keys
  MatrixPlace o;               // [hidden, heads * head_dim]
  VectorPlace q_norm, k_norm;  // [head_dim]
  VectorPlace attention_post_norm, mlp_norm;  // [hidden]
  MlpBlock mlp;
  VectorPlace mlp_post_norm;   // [hidden]
  VectorPlace factor;          // [1]
  struct Experts {
    ExpertBlock block;
    VectorPlace asked_norm, input_norm, mlp_norm, post_norm;  // [hidden]
  };
  std::optional<Experts> experts;
  struct Input {
    MatrixPlace gate;        // [input width, hidden]
    MatrixPlace projection;  // [hidden, input width]
    VectorPlace post_norm;   // [hidden]
  };
  std::optional<Input> input;
};

class Gemma4Layers : public DecoderLayers {
 public:
  Gemma4Layers(const ModelConfig& config, std::vector<Gemma4Layer> layers, std::optional<LayerInputPlaces> inputs)
      : config_(config), layers_(std::move(layers)), inputs_(std::move(inputs)) {}

  std::optional<Exchange> run(const Step& step, uint32_t index, uint32_t part) const override {
    const Gemma4Layer& layer = layers_[index];
    if (part == 0) {
      if (index == 0 && inputs_) step.embed_layers(*inputs_, step.at().x);
      attend(step, layer, index);
      if (layer.experts) {
        if (const auto exchange = ask_experts(step, *layer.experts)) return exchange;
      }
      run_mlp(step, layer);
    } else {
      step.combine(layer.experts->block.experts, step.at().spare[0], step.at().spare[1]);
    }
    finish(step, layer, index);
    return std::nullopt;
  }

  // Experts and the MLP do not need each other.
  void meanwhile(const Step& step, uint32_t index) const override { run_mlp(step, layers_[index]); }
  std::optional<LayerExperts> experts(uint32_t index) const override {
    const auto& experts = layers_[index].experts;
    return experts ? std::optional(LayerExperts{&experts->block.experts, Activation::kGelu}) : std::nullopt;
  }

 private:
  void attend(const Step& step, const Gemma4Layer& layer, uint32_t index) const {
    const StepBuffers& b = step.at();
    const double eps = config_.norm_eps;
    const HeadShape heads = config_.heads_of(index);
    const bool local = config_.local_rope && config_.sliding_layers[index];
    const StepBuffers::Floats k = layer.k ? b.k : StepBuffers::Floats{};
    step.rms_norm(b.x, layer.attention_norm, eps, b.h);
    step.linear(b.h, {{&layer.q, b.q}});                                                   // [rows, heads, head_dim]
    step.rms_norm(b.q, layer.q_norm, eps, b.q, heads.heads);
    if (layer.k) {
      step.linear(b.h, {{&*layer.k, b.k}});                                                // [rows, kv_heads, head_dim]
      if (layer.v) step.linear(b.h, {{&*layer.v, b.v}});
      step.unit_norm(layer.v ? b.v : b.k, heads.head_dim, eps, b.v, heads.kv_heads);
      step.rms_norm(b.k, layer.k_norm, eps, b.k, heads.kv_heads);
    }
    step.rope(index, b.q, k, local ? *config_.local_rope : config_.rope, local ? 1 : 0);
    shoal::attend(step, config_, attention_spec(config_, index), k, b.v);                  // attn [rows, heads, head_dim]
    step.linear(b.attn, {{&layer.o, b.y}});                                                // [rows, hidden]
    step.add_normed({b.y, layer.attention_post_norm, eps, b.y}, b.x);
  }

  // Their sum comes to spare[1].
  std::optional<Exchange> ask_experts(const Step& step, const Gemma4Layer::Experts& experts) const {
    const StepBuffers& b = step.at();
    step.rms_norm(b.x, experts.asked_norm, config_.norm_eps, b.h);
    step.rms_norm(b.x, experts.input_norm, config_.norm_eps, b.spare[0]);
    step.scale(b.spare[1], 0);
    return step.experts(experts.block.experts, Activation::kGelu, b.h, b.spare[0], b.spare[1]);  // [rows, hidden]
  }

  void run_mlp(const Step& step, const Gemma4Layer& layer) const {
    const StepBuffers& b = step.at();
    const MlpBlock& mlp = layer.mlp;
    step.linear({b.x, layer.mlp_norm, config_.norm_eps, b.h}, {{&mlp.gate, b.gate}, {&mlp.up, b.up}});  // [rows, intermediate]
    step.linear({Activation::kGelu, b.gate, b.up, b.gate}, {{&mlp.down, b.y}});                         // [rows, hidden]
  }

  // Of the MLP's output y, and what the experts gave.
  void finish(const Step& step, const Gemma4Layer& layer, uint32_t index) const {
    const StepBuffers& b = step.at();
    const double eps = config_.norm_eps;
    if (layer.experts) {
      step.rms_norm(b.y, layer.experts->mlp_norm, eps, b.y);
      step.add_normed({b.spare[1], layer.experts->post_norm, eps, b.spare[1]}, b.y);
    }
    step.add_normed({b.y, layer.mlp_post_norm, eps, b.y}, b.x);
    if (layer.input) {
      const uint64_t width = config_.shapes.input_width;
      step.linear(b.x, {{&layer.input->gate, b.gate}});                                    // [rows, input width]
      step.linear({Activation::kGelu, b.gate, b.embedded + index * step.rows() * width, b.gate}, {{&layer.input->projection, b.y}});
      step.add_normed({b.y, layer.input->post_norm, eps, b.y}, b.x);
    }
    step.scale(b.x, layer.factor);
  }

  ModelConfig config_;
  std::vector<Gemma4Layer> layers_;
  std::optional<LayerInputPlaces> inputs_;
};

Status plan_heads(const ModelConfig& c, WeightLayout& layout, const std::string& at, uint32_t index, Gemma4Layer& layer) {
  const HeadShape heads = c.heads_of(index);
  const uint32_t kv = heads.kv_heads * heads.head_dim;
  ASSIGN_OR_RETURN(layer.q, layout.matrix({.name = at + "q_proj", .outputs = heads.heads * heads.head_dim, .columns = c.hidden_size, .bias = c.biases.qkv}));
  ASSIGN_OR_RETURN(layer.q_norm, layout.vector(at + "q_norm.weight", heads.head_dim));
  ASSIGN_OR_RETURN(layer.o, layout.matrix({.name = at + "o_proj", .outputs = c.hidden_size, .columns = heads.heads * heads.head_dim, .bias = c.biases.output,
                                           .chunk_unit = heads.head_dim}));
  if (c.kv_source_of(index) != index) return OkStatus();
  ASSIGN_OR_RETURN(layer.k, layout.matrix({.name = at + "k_proj", .outputs = kv, .columns = c.hidden_size, .bias = c.biases.qkv}));
  ASSIGN_OR_RETURN(layer.k_norm, layout.vector(at + "k_norm.weight", heads.head_dim));
  if (c.shapes.values_from_keys && !c.sliding_layers[index] && !layout.has(at + "v_proj.weight")) return OkStatus();
  ASSIGN_OR_RETURN(layer.v, layout.matrix({.name = at + "v_proj", .outputs = kv, .columns = c.hidden_size, .bias = c.biases.qkv}));
  return OkStatus();
}

StatusOr<Gemma4Layer::Experts> plan_gemma_experts(const ModelConfig& c, WeightLayout& layout, const std::string& prefix) {
  Gemma4Layer::Experts experts;
  ASSIGN_OR_RETURN(experts.block, plan_experts(c, layout, prefix));
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.hidden_size)));
  ASSIGN_OR_RETURN(experts.asked_norm, layout.vector({.name = prefix + "mlp.gate.scale", .size = c.hidden_size, .stored = c.hidden_size, .factor = factor}));
  layout.require_finite(prefix + "mlp.gate.scale");
  ASSIGN_OR_RETURN(experts.input_norm, layout.vector(prefix + "pre_feedforward_layernorm_2.weight", c.hidden_size));
  ASSIGN_OR_RETURN(experts.mlp_norm, layout.vector(prefix + "post_feedforward_layernorm_1.weight", c.hidden_size));
  ASSIGN_OR_RETURN(experts.post_norm, layout.vector(prefix + "post_feedforward_layernorm_2.weight", c.hidden_size));
  return experts;
}

StatusOr<Gemma4Layer> plan_layer(const ModelConfig& c, WeightLayout& layout, const std::string& prefix, uint32_t index) {
  Gemma4Layer layer;
  ASSIGN_OR_RETURN(layer.attention_norm, layout.vector(prefix + "input_layernorm.weight", c.hidden_size));
  RETURN_IF_ERROR(plan_heads(c, layout, prefix + "self_attn.", index, layer));
  ASSIGN_OR_RETURN(layer.attention_post_norm, layout.vector(prefix + "post_attention_layernorm.weight", c.hidden_size));
  ASSIGN_OR_RETURN(layer.mlp_norm, layout.vector(prefix + "pre_feedforward_layernorm.weight", c.hidden_size));
  ASSIGN_OR_RETURN(layer.mlp, plan_mlp_at(c, layout, prefix + "mlp.", c.mlp_width_of(index)));
  ASSIGN_OR_RETURN(layer.mlp_post_norm, layout.vector(prefix + "post_feedforward_layernorm.weight", c.hidden_size));
  ASSIGN_OR_RETURN(layer.factor, layout.vector(prefix + "layer_scalar", 1));
  if (c.experts) {
    ASSIGN_OR_RETURN(layer.experts, plan_gemma_experts(c, layout, prefix));
  }
  if (const uint32_t width = c.shapes.input_width; width > 0) {
    Gemma4Layer::Input& input = layer.input.emplace();
    ASSIGN_OR_RETURN(input.gate, layout.matrix({.name = prefix + "per_layer_input_gate", .outputs = width, .columns = c.hidden_size}));
    ASSIGN_OR_RETURN(input.projection, layout.matrix({.name = prefix + "per_layer_projection", .outputs = c.hidden_size, .columns = width}));
    ASSIGN_OR_RETURN(input.post_norm, layout.vector(prefix + "post_per_layer_input_norm.weight", c.hidden_size));
  }
  return layer;
}

StatusOr<LayerInputPlaces> plan_inputs(const ModelConfig& c, WeightLayout& layout) {
  LayerInputPlaces places;
  places.layers = c.layers;
  places.width = c.shapes.input_width;
  places.eps = c.norm_eps;
  places.table_scale = static_cast<float>(std::sqrt(static_cast<double>(places.width)));
  places.projection_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.hidden_size)));
  const uint32_t all = c.layers * places.width;
  ASSIGN_OR_RETURN(places.table, layout.embedding("model.embed_tokens_per_layer", c.vocab_size, all));
  ASSIGN_OR_RETURN(places.projection, layout.matrix({.name = "model.per_layer_model_projection", .outputs = all, .columns = c.hidden_size}));
  ASSIGN_OR_RETURN(places.norm, layout.vector("model.per_layer_projection_norm.weight", places.width));
  return places;
}

}  // namespace

StatusOr<std::shared_ptr<const DecoderLayers>> plan_gemma4_layers(const ModelConfig& config, WeightLayout& layout) {
  std::optional<LayerInputPlaces> inputs;
  if (config.shapes.input_width > 0) {
    ASSIGN_OR_RETURN(inputs, plan_inputs(config, layout));
  }
  ASSIGN_OR_RETURN(auto layers, plan_each_layer<Gemma4Layer>(config, layout, plan_layer));
  return std::make_shared<const Gemma4Layers>(config, std::move(layers), std::move(inputs));
}

}  // namespace shoal
