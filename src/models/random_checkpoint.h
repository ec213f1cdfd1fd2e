// For tests: a seeded tiny random model, built in memory under the names of a Hugging Face checkpoint.
#pragma once

#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "formats/checkpoint.h"
#include "tensor/half.h"

namespace shoal {

class RandomCheckpoint {
 public:
  // `config` says everything; tensors are bf16 or f32. The checkpoint refers to this object's memory.
  RandomCheckpoint(const ModelConfig& config, DType dtype, uint64_t seed) : rng_(seed), dtype_(dtype) {
    checkpoint_ = std::make_shared<Checkpoint>();
    checkpoint_->path = "random";
    checkpoint_->format = "memory";
    checkpoint_->config = config;
    add("model.embed_tokens.weight", {config.vocab_size, config.hidden_size}, 1.0f);
    if (!config.tied_embeddings) add("lm_head.weight", {config.vocab_size, config.hidden_size}, 0.3f);
    add("model.norm.weight", {config.hidden_size}, 1.0f);
    for (uint32_t i = 0; i < config.layers; ++i) add_layer(config, i, "model.layers." + std::to_string(i) + ".");
    if (config.shapes.input_width > 0) {
      const uint32_t width = config.layers * config.shapes.input_width;
      add("model.embed_tokens_per_layer.weight", {config.vocab_size, width}, 1.0f);
      add("model.per_layer_model_projection.weight", {width, config.hidden_size}, 1.0f);
      add("model.per_layer_projection_norm.weight", {config.shapes.input_width}, 1.0f);
    }
  }

  std::shared_ptr<const Checkpoint> get() const { return checkpoint_; }

  // Adds tensor `name` of uniform numbers in [-range, range].
  void add(const std::string& name, const Shape& shape, float range) {
    auto& tensor = tensors_.emplace_back(*Tensor::allocate(dtype_, shape));
    const uint64_t elements = *shape.elements();
    for (uint64_t i = 0; i < elements; ++i) {
      const float value = static_cast<float>(rng_.uniform() * 2 - 1) * range;
      if (dtype_ == DType::kF32) {
        reinterpret_cast<float*>(tensor.data())[i] = value;
      } else {
        reinterpret_cast<uint16_t*>(tensor.data())[i] = bf16_from_f32(value);
      }
    }
    CHECK(checkpoint_->weights.add(name, tensor.view()));
  }

 private:
  void add_layer(const ModelConfig& c, uint32_t index, const std::string& prefix) {
    const HeadShape heads = c.heads_of(index);
    const uint32_t q = heads.heads * heads.head_dim, kv = heads.kv_heads * heads.head_dim;
    const float range = 2.0f / std::sqrt(static_cast<float>(c.hidden_size));
    const auto linear = [&](const std::string& name, uint32_t rows, uint32_t columns, bool bias) {
      add(prefix + name + ".weight", {rows, columns}, range);
      if (bias) add(prefix + name + ".bias", {rows}, 0.1f);
    };
    for (const char* norm : {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
      add(prefix + norm + ".weight", {c.hidden_size}, 1.0f);
    }
    if (c.recurrent && c.recurrent->recurs(index)) add_mixer(c, *c.recurrent, prefix);
    const bool attends = !c.recurrent || c.recurrent->attends(index);
    const bool whole = c.queries.norm == QkNorm::kWidth;
    if (attends) add(prefix + "self_attn.q_norm.weight", {whole ? q : heads.head_dim}, 1.0f);
    if (attends) add(prefix + "self_attn.k_norm.weight", {whole ? kv : heads.head_dim}, 1.0f);
    if (c.architecture == Architecture::kPhi3) {
      linear("self_attn.qkv_proj", q + 2 * kv, c.hidden_size, false);
      linear("mlp.gate_up_proj", 2 * c.intermediate_size, c.hidden_size, false);
    } else {
      if (attends) linear("self_attn.q_proj", c.queries.gated ? 2 * q : q, c.hidden_size, c.biases.qkv);
      if (attends) linear("self_attn.k_proj", kv, c.hidden_size, c.biases.qkv);
      const bool keys_alone = c.shapes.values_from_keys && !c.sliding_layers[index];
      if (attends && !keys_alone) linear("self_attn.v_proj", heads.kv_heads * heads.value_dim, c.hidden_size, c.biases.qkv);
      if (c.architecture == Architecture::kGlm4 || c.architecture == Architecture::kGraniteHybrid) {
        linear("mlp.gate_up_proj", 2 * c.intermediate_size, c.hidden_size, false);
      } else {
        linear("mlp.gate_proj", c.mlp_width_of(index), c.hidden_size, c.biases.mlp);
        linear("mlp.up_proj", c.mlp_width_of(index), c.hidden_size, c.biases.mlp);
      }
    }
    if (c.queries.sinks) add(prefix + "self_attn.sinks", {c.heads}, 2.0f);
    if (c.latent && attends) add_latent(c, *c.latent, prefix + "self_attn.");
    if (attends) linear("self_attn.o_proj", c.hidden_size, c.latent ? c.heads * c.latent->value_dim : heads.heads * heads.value_dim, c.biases.output);
    linear("mlp.down_proj", c.hidden_size, c.mlp_width_of(index), c.biases.mlp);
    if (c.experts) add_experts(c, *c.experts, prefix + "mlp.");
    if (c.architecture == Architecture::kGemma4) add_gemma4(c, prefix);
  }

  void add_recurrence(const RecurrentConfig& r, const std::string& at, uint32_t times) {
    add(at + "A_log", {r.heads}, 1.0f);
    add(at + "dt_bias", {times}, 1.0f);
  }

  void add_mixer(const ModelConfig& c, const RecurrentConfig& r, const std::string& prefix) {
    const uint32_t keys = r.key_heads * r.key_dim, values = r.heads * r.value_dim, hidden = c.hidden_size;
    const float range = 2.0f / std::sqrt(static_cast<float>(hidden));
    const auto matrix = [&](const std::string& name, uint32_t rows, uint32_t columns) { add(prefix + name + ".weight", {rows, columns}, range); };
    const auto convolution = [&](const std::string& name, uint32_t channels) { add(prefix + name + ".weight", {channels, 1, r.taps}, 0.6f); };
    switch (r.kind) {
      case RecurrentKind::kDeltaNet:
        matrix("linear_attn.in_proj_qkvz", 2 * keys + 2 * values, hidden);
        matrix("linear_attn.in_proj_ba", 2 * r.heads, hidden);
        convolution("linear_attn.conv1d", 2 * keys + values);
        add_recurrence(r, prefix + "linear_attn.", r.heads);
        add(prefix + "linear_attn.norm.weight", {r.value_dim}, 1.0f);
        return matrix("linear_attn.out_proj", hidden, values);
      case RecurrentKind::kKimiDelta:
        for (const char* name : {"q", "k", "v"}) matrix(std::string("self_attn.") + name + "_proj", values, hidden), convolution(std::string("self_attn.") + name + "_conv1d", values);
        for (const char* name : {"f", "g"}) matrix(std::string("self_attn.") + name + "_a_proj", r.value_dim, hidden), matrix(std::string("self_attn.") + name + "_b_proj", values, r.value_dim);
        matrix("self_attn.b_proj", r.heads, hidden);
        add_recurrence(r, prefix + "self_attn.", values);
        add(prefix + "self_attn.o_norm.weight", {r.value_dim}, 1.0f);
        return matrix("self_attn.o_proj", hidden, values);
      case RecurrentKind::kMamba:
        matrix("mamba.in_proj", 2 * values + 2 * keys + r.heads, hidden);
        convolution("mamba.conv1d", values + 2 * keys);
        add(prefix + "mamba.conv1d.bias", {values + 2 * keys}, 0.2f);
        add_recurrence(r, prefix + "mamba.", r.heads);
        add(prefix + "mamba.D", {r.heads}, 1.0f);
        add(prefix + "mamba.norm.weight", {values}, 1.0f);
        return matrix("mamba.out_proj", hidden, values);
      case RecurrentKind::kShortConvolution:
        matrix("conv.in_proj", 3 * hidden, hidden);
        convolution("conv.conv", hidden);
        return matrix("conv.out_proj", hidden, hidden);
    }
  }

  void add_gemma4(const ModelConfig& c, const std::string& prefix) {
    add(prefix + "layer_scalar", {1}, 1.0f);
    add(prefix + "per_layer_input_gate.weight", {c.shapes.input_width, c.hidden_size}, 0.2f);
    add(prefix + "per_layer_projection.weight", {c.hidden_size, c.shapes.input_width}, 0.2f);
    add(prefix + "mlp.gate.scale", {c.hidden_size}, 4.0f);
    add(prefix + "mlp.gate.per_expert_scale", {c.experts->count}, 1.0f);
    for (const char* norm : {"post_per_layer_input_norm", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2"}) {
      add(prefix + norm + ".weight", {c.hidden_size}, 1.0f);
    }
  }

  void add_latent(const ModelConfig& c, const LatentConfig& latent, const std::string& prefix) {
    const float range = 2.0f / std::sqrt(static_cast<float>(c.hidden_size));
    if (latent.query_rank > 0) {
      add(prefix + "q_a_proj.weight", {latent.query_rank, c.hidden_size}, range);
      add(prefix + "q_a_layernorm.weight", {latent.query_rank}, 1.0f);
      add(prefix + "q_b_proj.weight", {c.heads * c.head_dim, latent.query_rank}, range);
    }
    if (latent.index) {
      add(prefix + "indexer.wq_b.weight", {latent.index->heads * latent.index->dim, latent.query_rank}, range);
      add(prefix + "indexer.wk.weight", {latent.index->dim, c.hidden_size}, range);
      add(prefix + "indexer.weights_proj.weight", {latent.index->heads, c.hidden_size}, range);
      add(prefix + "indexer.k_norm.weight", {latent.index->dim}, 1.0f);
      add(prefix + "indexer.k_norm.bias", {latent.index->dim}, 0.2f);
    }
    add(prefix + "kv_a_proj_with_mqa.weight", {latent.rank + c.rope.dims, c.hidden_size}, range);
    add(prefix + "kv_a_layernorm.weight", {latent.rank}, 1.0f);
    add(prefix + "kv_b_proj.weight", {c.heads * (latent.key_dim + latent.value_dim), latent.rank}, range);
  }

  void add_experts(const ModelConfig& c, const ExpertConfig& e, const std::string& prefix) {
    const float range = 2.0f / std::sqrt(static_cast<float>(c.hidden_size));
    const auto mlp = [&](const std::string& at, uint32_t width) {
      add(at + "gate_proj.weight", {width, c.hidden_size}, range);
      add(at + "up_proj.weight", {width, c.hidden_size}, range);
      add(at + "down_proj.weight", {c.hidden_size, width}, range);
    };
    add(prefix + "gate.weight", {e.count + e.zero, c.hidden_size}, range);
    if (e.selection_bias) add(prefix + "gate.e_score_correction_bias", {e.count + e.zero}, 0.1f);
    if (e.router_bias) add(prefix + "gate.bias", {e.count}, 0.5f);
    if (e.weigh_input) {
      add(prefix + "experts.gate_up_proj", {e.count, c.hidden_size, 2 * e.intermediate_size}, range);
      add(prefix + "experts.down_proj", {e.count, e.intermediate_size, c.hidden_size}, range);
      mlp(prefix + "shared_expert.", e.shared_intermediate_size);
      return;
    }
    if (e.biases) {
      add(prefix + "experts.gate_up_proj", {e.count, c.hidden_size, 2 * e.intermediate_size}, range);
      add(prefix + "experts.gate_up_proj_bias", {e.count, 2 * e.intermediate_size}, 0.5f);
      add(prefix + "experts.down_proj", {e.count, e.intermediate_size, c.hidden_size}, range);
      add(prefix + "experts.down_proj_bias", {e.count, c.hidden_size}, 0.5f);
      return;
    }
    for (uint32_t i = 0; i < e.count; ++i) mlp(prefix + "experts." + std::to_string(i) + ".", e.intermediate_size);
    if (e.shared_intermediate_size > 0) mlp(prefix + "shared_expert.", e.shared_intermediate_size);
    if (e.shared_gate) add(prefix + "shared_expert_gate.weight", {1, c.hidden_size}, range);
  }

  Rng rng_;
  DType dtype_;
  std::deque<Tensor> tensors_;
  std::shared_ptr<Checkpoint> checkpoint_;
};

// Of families whose layers are not alike in their heads.
inline void set_small_shapes(ModelConfig& c) {
  switch (c.architecture) {
    case Architecture::kGemma4:  // the last layer reads what the first stores; values of the second are its keys
      c.layers = 3;
      c.sliding_window = 20;
      c.sliding_layers = {true, false, true};
      c.shapes = {.heads = {{6, 2, 16, 16}, {6, 1, 32, 32}, {6, 2, 16, 16}}, .kv_source = {0, 1, 0}, .mlp_width = {160, 160, 320}, .values_from_keys = true,
                  .input_width = 32};
      c.queries.scale = 1.0, c.scales.softcap = 30;
      c.local_rope = c.rope;
      c.local_rope->dims = 16;
      c.rope.scaling = RopeScaling::kProportional, c.rope.turning_pairs = 4;
      c.experts->layers = {true, true, true};
      return;
    case Architecture::kMiMoV2:
      c.sliding_window = 20;
      c.sliding_layers[1] = true;
      c.shapes.heads = {{6, 2, 32, 24}, {6, 3, 40, 16}};
      c.rope.dims = 10;
      c.local_rope = c.rope;
      c.local_rope->theta = 500;
      c.queries.value_scale = 0.7;
      return;
    default: return;
  }
}

// Of families whose layers keep a state. Odd sizes: heads of values that are no whole lanes, and channels over several stretches.
inline void set_small_states(ModelConfig& c) {
  using Layer = RecurrentConfig::Layer;
  const auto with = [&](RecurrentKind kind, std::vector<Layer> layers) -> RecurrentConfig& {
    c.layers = static_cast<uint32_t>(layers.size());
    c.sliding_layers.assign(c.layers, false);
    return c.recurrent.emplace(RecurrentConfig{.kind = kind, .layers = std::move(layers), .taps = 4, .heads = 6, .key_heads = 3, .key_dim = 16, .value_dim = 24});
  };
  switch (c.architecture) {
    case Architecture::kQwen3Next: case Architecture::kQwen35:
      with(RecurrentKind::kDeltaNet, {Layer::kState, Layer::kAttention}).tiled_keys = c.architecture == Architecture::kQwen35;
      c.queries.gated = c.norm_weight_plus_one = true;
      c.queries.norm = QkNorm::kHeads;
      c.rope.dims = 8;
      return;
    case Architecture::kNemotronH: {
      RecurrentConfig& r = with(RecurrentKind::kMamba, {Layer::kState, Layer::kNeither, Layer::kAttention, Layer::kNeither});
      r.convolution_bias = r.single_blocks = r.squared_relu = true;
      c.shapes.rope_layers.assign(4, false);
      c.experts->layers = {false, false, false, true};
      return;
    }
    case Architecture::kFalconH1: {
      RecurrentConfig& r = with(RecurrentKind::kMamba, {Layer::kBoth, Layer::kBoth});
      r.value_dim = 80;
      r.convolution_bias = true;
      r.normed = false;
      r.scales = {1.25, 0.7, 0.5, 0.35, 0.9, 0.8, 0.6};
      c.scales.mlp_gate = 0.9, c.scales.mlp_out = 0.6, c.queries.factors = {1.2, 0.4, 0.9};
      return;
    }
    case Architecture::kLfm2Moe: with(RecurrentKind::kShortConvolution, {Layer::kState, Layer::kAttention}).heads = 0; return;
    case Architecture::kKimiLinear: {
      RecurrentConfig& r = with(RecurrentKind::kKimiDelta, {Layer::kState, Layer::kAttention});
      r.key_heads = r.heads, r.key_dim = r.value_dim;
      c.latent = {.rank = 72, .key_dim = 32, .value_dim = 40, .turns = false};
      c.rope.dims = 16, c.head_dim = 48, c.kv_heads = c.heads;
      return;
    }
    default: return;
  }
}

// What a family has that others have not.
inline void set_small_facts(ModelConfig& c) {
  switch (c.architecture) {
    case Architecture::kDeepseekV3: case Architecture::kLongcatFlash: case Architecture::kDeepseekV32:
      c.latent = {.query_rank = 64, .rank = 72, .key_dim = 32, .value_dim = 40};
      c.rope.dims = 16;
      c.rope.interleaved = true;
      c.head_dim = 48;
      c.kv_heads = c.heads;
      if (c.architecture == Architecture::kDeepseekV32) c.latent->index = {.heads = 5, .dim = 24, .top = 37, .layers = {true, false}};
      return;
    case Architecture::kGemma3:
      c.local_rope = c.rope;
      c.rope.theta = 1e6;
      return;
    case Architecture::kSmolLm3: c.shapes.rope_layers = {true, false}; return;
    case Architecture::kErnie45: c.rope.interleaved = c.biases.output = c.biases.qkv = c.biases.mlp = true; return;
    case Architecture::kErnie45Moe: c.rope.interleaved = true; return;
    case Architecture::kMiniMaxM2: c.rope.dims = 16; return;
    case Architecture::kLlama4:
      c.rope.interleaved = true;
      c.shapes.rope_layers = c.sliding_layers = {true, false};
      c.queries.chunk = 24, c.queries.norm = QkNorm::kTurnedUnit, c.queries.growth = {0.1, 16, 1, true};
      return;
    case Architecture::kGptOss:
      c.biases.qkv = c.biases.output = true;
      c.sliding_window = 20;
      c.sliding_layers[0] = true;
      return;
    case Architecture::kGraniteHybrid:
      c.scales.embedding = 4, c.scales.residual = 0.25, c.scales.logits = 1.0 / 3.0;
      return;
    case Architecture::kHunyuanDense: c.rope.scaling = RopeScaling::kAlpha, c.rope.factor = 1000; return;
    case Architecture::kMinistral3: c.queries.growth = {0.1, 24}; return;
    case Architecture::kGlm4: c.rope.interleaved = c.biases.qkv = true, c.rope.dims = 16; return;
    case Architecture::kOlmo3: case Architecture::kExaone4: case Architecture::kCohere2:
      c.sliding_window = 20;
      c.sliding_layers[0] = true;
      if (c.architecture == Architecture::kCohere2) c.scales.logits = 0.25, c.rope.interleaved = true;
      if (c.architecture != Architecture::kOlmo3) return;
      c.local_rope = c.rope;
      c.rope.scaling = RopeScaling::kYarn, c.rope.factor = 8, c.rope.original_context = 64;
      return;
    default: return;
  }
}

inline ExpertConfig small_experts(Architecture architecture) {
  ExpertConfig e;
  const bool sigmoid = architecture != Architecture::kQwen2Moe && architecture != Architecture::kQwen3Next;
  e.count = 12;
  e.used = 3;
  e.intermediate_size = 64;
  e.shared_intermediate_size = 96;
  e.shared_gate = !sigmoid;
  e.sigmoid_scores = e.selection_bias = e.normalize = e.group_by_best_two = sigmoid;
  e.groups = sigmoid ? 4 : 1;
  e.groups_used = sigmoid ? 2 : 1;
  e.layers = {!sigmoid, true};
  if (architecture == Architecture::kLongcatFlash) {
    e = {.count = 12, .used = 5, .zero = 6, .intermediate_size = 64, .selection_bias = true, .weight_scale = 6, .layers = {true, false}};
  }
  if (architecture == Architecture::kGemma4) e = {.count = 12, .used = 3, .intermediate_size = 64, .weight_scales = true, .normalize = true};
  if (architecture == Architecture::kLlama4) {
    e = {.count = 12, .used = 2, .intermediate_size = 64, .shared_intermediate_size = 64, .sigmoid_scores = true, .weigh_input = true, .layers = {false, true}};
  }
  if (architecture == Architecture::kGptOss) {
    e = {.count = 12, .used = 3, .intermediate_size = 64, .softmax_of_chosen = true, .router_bias = true, .biases = true, .gate_alpha = 1.702,
         .gate_limit = 1.0, .layers = {true, true}};
  }
  return e;
}

// A small config of that architecture with everything switched on that it has.
inline ModelConfig small_config(Architecture architecture) {
  ModelConfig c;
  c.architecture = architecture;
  c.vocab_size = 211;
  c.hidden_size = 96;
  c.layers = 2;
  c.heads = 6;
  c.kv_heads = 2;
  c.head_dim = 32;
  c.intermediate_size = 160;
  c.context_length = 2048;
  c.norm_eps = 1e-5;
  c.queries.scale = 1.0 / std::sqrt(32.0);
  c.rope.dims = 32;
  c.rope.original_context = 2048;
  c.sliding_layers.assign(c.layers, false);
  const bool gemma = architecture == Architecture::kGemma2 || architecture == Architecture::kGemma3;
  c.biases.qkv = architecture == Architecture::kQwen2;
  c.norm_weight_plus_one = c.tied_embeddings = gemma;
  if (gemma || architecture == Architecture::kMistral) {
    c.sliding_window = 20;
    c.sliding_layers[0] = true;
  }
  if (gemma) c.scales.embedding = std::sqrt(96.0);
  if (architecture == Architecture::kGemma2) c.queries.softcap = 50, c.scales.softcap = 30;
  if (architecture == Architecture::kQwen2Moe || architecture == Architecture::kGlm4Moe || architecture == Architecture::kDeepseekV3 || architecture == Architecture::kDeepseekV32 ||
      architecture == Architecture::kErnie45Moe || architecture == Architecture::kMiniMaxM2 || architecture == Architecture::kGptOss ||
      architecture == Architecture::kLlama4 || architecture == Architecture::kLongcatFlash || architecture == Architecture::kGemma4 ||
      architecture == Architecture::kMiMoV2 || architecture == Architecture::kQwen3Next || architecture == Architecture::kNemotronH ||
      architecture == Architecture::kLfm2Moe || architecture == Architecture::kKimiLinear) {
    c.experts = small_experts(architecture);
  }
  set_small_shapes(c);
  set_small_states(c);
  set_small_facts(c);
  set_family_facts(c);
  return c;
}

// The layers of `c` so many times over.
inline ModelConfig repeated(ModelConfig c, uint32_t times) {
  const uint32_t layers = c.layers;
  const auto repeat = [&](auto& of_each) {
    const auto once = of_each;
    for (uint32_t i = 1; i < times; ++i) of_each.insert(of_each.end(), once.begin(), once.end());
  };
  c.layers *= times;
  repeat(c.sliding_layers);
  repeat(c.shapes.rope_layers), repeat(c.shapes.heads), repeat(c.shapes.kv_source), repeat(c.shapes.mlp_width);
  for (uint32_t i = 0; i < c.shapes.kv_source.size(); ++i) c.shapes.kv_source[i] += i / layers * layers;
  if (c.experts) repeat(c.experts->layers);
  if (c.recurrent) repeat(c.recurrent->layers);
  if (c.latent && c.latent->index) repeat(c.latent->index->layers);
  return c;
}

}  // namespace shoal
