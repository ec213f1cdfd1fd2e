#include "formats/gguf_recurrent.h"

#include <algorithm>

namespace shoal {
namespace {

using Layer = RecurrentConfig::Layer;

constexpr uint32_t kTapsMax = 64;
constexpr uint32_t kStateHeadsMax = 4096, kStateDimMax = 1024;

// Layers without heads of keys keep a state.
Status set_layers(const GgufFields& fields, ModelConfig& c) {
  ASSIGN_OR_RETURN(const std::vector<uint32_t> kv_heads, fields.uints("attention.head_count_kv", c.layers, c.heads, 0, kHeadsMax));
  c.kv_heads = std::max(1u, *std::max_element(kv_heads.begin(), kv_heads.end()));
  for (const uint32_t heads : kv_heads) {
    if (heads != 0 && heads != c.kv_heads) return unimplemented("'attention.head_count_kv' differs between layers that attend, which is not served for this architecture");
    c.recurrent->layers.push_back(heads == 0 ? Layer::kState : Layer::kAttention);
  }
  return OkStatus();
}

Status parse_qwen(const GgufFields& fields, ModelConfig& c) {
  RecurrentConfig& r = *c.recurrent;
  r.kind = RecurrentKind::kDeltaNet;
  c.queries.gated = true;
  c.queries.norm = QkNorm::kHeads;
  r.tiled_keys = c.architecture != Architecture::kQwen3Next;
  ASSIGN_OR_RETURN(r.heads, fields.uint("ssm.time_step_rank", std::nullopt, 1, kStateHeadsMax));
  ASSIGN_OR_RETURN(r.key_heads, fields.uint("ssm.group_count", std::nullopt, 1, kStateHeadsMax));
  ASSIGN_OR_RETURN(r.key_dim, fields.uint("ssm.state_size", std::nullopt, 1, kStateDimMax));
  ASSIGN_OR_RETURN(const uint32_t inner, fields.uint("ssm.inner_size", std::nullopt, 1, kHiddenMax));
  if (inner % r.heads != 0) return invalid_argument("'ssm.inner_size' is ", inner, ", not whole heads of ", r.heads);
  r.value_dim = inner / r.heads;
  ASSIGN_OR_RETURN(const uint32_t interval, fields.uint("full_attention_interval", 4, 1, kLayersMax));
  for (uint32_t i = 0; i < c.layers; ++i) r.layers.push_back((i + 1) % interval == 0 ? Layer::kAttention : Layer::kState);
  ASSIGN_OR_RETURN(c.kv_heads, fields.uint("attention.head_count_kv", c.heads, 1, kHeadsMax));
  return OkStatus();
}

Status parse_mamba(const GgufFields& fields, ModelConfig& c) {
  RecurrentConfig& r = *c.recurrent;
  r.kind = RecurrentKind::kMamba;
  r.convolution_bias = true;
  ASSIGN_OR_RETURN(r.heads, fields.uint("ssm.time_step_rank", std::nullopt, 1, kStateHeadsMax));
  ASSIGN_OR_RETURN(r.key_heads, fields.uint("ssm.group_count", 1, 1, kStateHeadsMax));
  ASSIGN_OR_RETURN(r.key_dim, fields.uint("ssm.state_size", std::nullopt, 1, kStateDimMax));
  ASSIGN_OR_RETURN(const uint32_t inner, fields.uint("ssm.inner_size", std::nullopt, 1, kHiddenMax));
  if (inner % r.heads != 0) return invalid_argument("'ssm.inner_size' is ", inner, ", not whole heads of ", r.heads);
  r.value_dim = inner / r.heads;
  if (c.architecture == Architecture::kFalconH1) {
    r.normed = false;
    r.layers.assign(c.layers, Layer::kBoth);
    ASSIGN_OR_RETURN(c.kv_heads, fields.uint("attention.head_count_kv", c.heads, 1, kHeadsMax));
    return OkStatus();
  }
  RETURN_IF_ERROR(set_layers(fields, c));
  if (c.architecture == Architecture::kGraniteHybrid) return OkStatus();
  r.single_blocks = r.squared_relu = true;
  c.shapes.rope_layers.assign(c.layers, false);
  ASSIGN_OR_RETURN(c.shapes.mlp_width, fields.uints("feed_forward_length", c.layers, std::nullopt, 0, 1u << 20));
  for (uint32_t i = 0; i < c.layers; ++i) {
    if (c.shapes.mlp_width[i] > 0) r.layers[i] = Layer::kNeither;
  }
  c.intermediate_size = std::max(1u, *std::max_element(c.shapes.mlp_width.begin(), c.shapes.mlp_width.end()));
  return OkStatus();
}

Status parse_kimi(const GgufFields& fields, ModelConfig& c) {
  RecurrentConfig& r = *c.recurrent;
  r.kind = RecurrentKind::kKimiDelta;
  r.heads = r.key_heads = c.heads;
  ASSIGN_OR_RETURN(r.key_dim, fields.uint("kda.head_dim", std::nullopt, 1, kStateDimMax));
  r.value_dim = r.key_dim;
  RETURN_IF_ERROR(set_layers(fields, c));
  if (c.latent) c.latent->turns = false;
  c.kv_heads = c.heads;
  return OkStatus();
}

}  // namespace

bool has_gguf_state(Architecture architecture) {
  switch (architecture) {
    case Architecture::kQwen3Next: case Architecture::kQwen35: case Architecture::kQwen35Moe: case Architecture::kNemotronH: case Architecture::kNemotronHMoe:
    case Architecture::kFalconH1: case Architecture::kLfm2: case Architecture::kLfm2Moe: case Architecture::kKimiLinear: case Architecture::kGraniteHybrid:
      return true;
    default: return false;
  }
}

Status parse_gguf_recurrent(const GgufFields& fields, ModelConfig& c) {
  if (!has_gguf_state(c.architecture)) return OkStatus();
  RecurrentConfig& r = c.recurrent.emplace();
  r.rates_stored = true;
  if (c.architecture == Architecture::kLfm2 || c.architecture == Architecture::kLfm2Moe) {
    r.kind = RecurrentKind::kShortConvolution;
    c.queries.norm = QkNorm::kHeads;
    ASSIGN_OR_RETURN(r.taps, fields.uint("shortconv.l_cache", 3, 2, kTapsMax));
    return set_layers(fields, c);
  }
  ASSIGN_OR_RETURN(r.taps, fields.uint("ssm.conv_kernel", 4, 2, kTapsMax));
  if (c.architecture == Architecture::kKimiLinear) return parse_kimi(fields, c);
  const bool qwen = c.architecture == Architecture::kQwen3Next || c.architecture == Architecture::kQwen35 || c.architecture == Architecture::kQwen35Moe;
  return qwen ? parse_qwen(fields, c) : parse_mamba(fields, c);
}

}  // namespace shoal
