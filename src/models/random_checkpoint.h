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
    for (uint32_t i = 0; i < config.layers; ++i) add_layer(config, "model.layers." + std::to_string(i) + ".");
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
    CHECK(checkpoint_->weights.add(name, tensor.view()).ok());
  }

 private:
  void add_layer(const ModelConfig& c, const std::string& prefix) {
    const uint32_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
    const float range = 2.0f / std::sqrt(static_cast<float>(c.hidden_size));
    const auto linear = [&](const std::string& name, uint32_t rows, uint32_t columns, bool bias) {
      add(prefix + name + ".weight", {rows, columns}, range);
      if (bias) add(prefix + name + ".bias", {rows}, 0.1f);
    };
    for (const char* norm : {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
      add(prefix + norm + ".weight", {c.hidden_size}, 1.0f);
    }
    const bool whole = c.queries.norm == QkNorm::kWidth;
    add(prefix + "self_attn.q_norm.weight", {whole ? q : c.head_dim}, 1.0f);
    add(prefix + "self_attn.k_norm.weight", {whole ? kv : c.head_dim}, 1.0f);
    if (c.architecture == Architecture::kPhi3) {
      linear("self_attn.qkv_proj", q + 2 * kv, c.hidden_size, false);
      linear("mlp.gate_up_proj", 2 * c.intermediate_size, c.hidden_size, false);
    } else {
      linear("self_attn.q_proj", q, c.hidden_size, c.biases.qkv);
      linear("self_attn.k_proj", kv, c.hidden_size, c.biases.qkv);
      linear("self_attn.v_proj", kv, c.hidden_size, c.biases.qkv);
      if (c.architecture == Architecture::kGlm4 || c.architecture == Architecture::kGraniteHybrid) {
        linear("mlp.gate_up_proj", 2 * c.intermediate_size, c.hidden_size, false);
      } else {
        linear("mlp.gate_proj", c.intermediate_size, c.hidden_size, c.biases.mlp);
        linear("mlp.up_proj", c.intermediate_size, c.hidden_size, c.biases.mlp);
      }
    }
    if (c.queries.sinks) add(prefix + "self_attn.sinks", {c.heads}, 2.0f);
    if (c.latent) add_latent(c, *c.latent, prefix + "self_attn.");
    linear("self_attn.o_proj", c.hidden_size, c.latent ? c.heads * c.latent->value_dim : q, c.biases.output);
    linear("mlp.down_proj", c.hidden_size, c.intermediate_size, c.biases.mlp);
    if (c.experts) add_experts(c, *c.experts, prefix + "mlp.");
  }

  void add_latent(const ModelConfig& c, const LatentConfig& latent, const std::string& prefix) {
    const float range = 2.0f / std::sqrt(static_cast<float>(c.hidden_size));
    add(prefix + "q_a_proj.weight", {latent.query_rank, c.hidden_size}, range);
    add(prefix + "q_a_layernorm.weight", {latent.query_rank}, 1.0f);
    add(prefix + "q_b_proj.weight", {c.heads * c.head_dim, latent.query_rank}, range);
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

// What a family has that others have not.
inline void set_small_facts(ModelConfig& c) {
  switch (c.architecture) {
    case Architecture::kDeepseekV3: case Architecture::kLongcatFlash:
      c.latent = {.query_rank = 64, .rank = 72, .key_dim = 32, .value_dim = 40};
      c.rope.dims = 16;
      c.rope.interleaved = true;
      c.head_dim = 48;
      c.kv_heads = c.heads;
      return;
    case Architecture::kGemma3:
      c.local_rope = c.rope;
      c.rope.theta = 1e6;
      return;
    case Architecture::kSmolLm3: c.rope_layers = {true, false}; return;
    case Architecture::kErnie45: c.rope.interleaved = c.biases.output = c.biases.qkv = c.biases.mlp = true; return;
    case Architecture::kErnie45Moe: c.rope.interleaved = true; return;
    case Architecture::kMiniMaxM2: c.rope.dims = 16; return;
    case Architecture::kLlama4:
      c.rope.interleaved = true;
      c.rope_layers = c.sliding_layers = {true, false};
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
  const bool sigmoid = architecture != Architecture::kQwen2Moe;
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
  if (architecture == Architecture::kGemma2) c.queries.softcap = 50, c.final_softcap = 30;
  if (architecture == Architecture::kQwen2Moe || architecture == Architecture::kGlm4Moe || architecture == Architecture::kDeepseekV3 ||
      architecture == Architecture::kErnie45Moe || architecture == Architecture::kMiniMaxM2 || architecture == Architecture::kGptOss ||
      architecture == Architecture::kLlama4 || architecture == Architecture::kLongcatFlash) {
    c.experts = small_experts(architecture);
  }
  set_small_facts(c);
  set_family_facts(c);
  return c;
}

}  // namespace shoal
