#include "formats/gguf_latent.h"

#include <cmath>

namespace shoal {

bool has_gguf_index(Architecture architecture) { return architecture == Architecture::kDeepseekV32 || architecture == Architecture::kGlmMoeDsa; }

Status parse_gguf_latent(const GgufFields& fields, ModelConfig& config) {
  if (config.architecture != Architecture::kDeepseekV2 && config.architecture != Architecture::kKimiLinear && !has_gguf_index(config.architecture)) return OkStatus();
  if (!fields.has("attention.key_length_mla") || !fields.has("attention.value_length_mla")) {
    return unimplemented("it holds keys and values of all heads in one projection (attn_kv_b), as older converters wrote it; only files with "
                         "'attention.key_length_mla' are served, convert it again");
  }
  LatentConfig& latent = config.latent.emplace();
  ASSIGN_OR_RETURN(latent.query_rank, fields.uint("attention.q_lora_rank", 0, 0, kHiddenMax));
  ASSIGN_OR_RETURN(latent.rank, fields.uint("attention.kv_lora_rank", std::nullopt, 1, kLatentMax));
  ASSIGN_OR_RETURN(const uint32_t whole, fields.uint("attention.key_length_mla", std::nullopt, 3, kConfigHeadDimMax));
  ASSIGN_OR_RETURN(latent.value_dim, fields.uint("attention.value_length_mla", std::nullopt, 1, kConfigHeadDimMax));
  ASSIGN_OR_RETURN(const uint32_t rope_dims, fields.uint("rope.dimension_count", std::nullopt, 2, kConfigHeadDimMax));
  if (rope_dims >= whole) return invalid_argument("'rope.dimension_count' is not a part of the keys' ", whole, " dimensions");
  latent.key_dim = whole - rope_dims;
  config.head_dim = whole;
  config.kv_heads = config.heads;
  config.queries.scale = 1.0 / std::sqrt(static_cast<double>(whole));
  if (!has_gguf_index(config.architecture)) return OkStatus();
  IndexConfig& index = latent.index.emplace();
  index.interleaved = config.architecture == Architecture::kGlmMoeDsa;
  ASSIGN_OR_RETURN(index.heads, fields.uint("attention.indexer.head_count", std::nullopt, 1, kHeadsMax));
  ASSIGN_OR_RETURN(index.dim, fields.uint("attention.indexer.key_length", std::nullopt, 1, kConfigHeadDimMax));
  ASSIGN_OR_RETURN(index.top, fields.uint("attention.indexer.top_k", std::nullopt, 1, kContextMax));
  index.layers.assign(config.layers, true);
  if (!fields.has("attention.indexer.types")) return OkStatus();
  ASSIGN_OR_RETURN(index.layers, fields.layers("attention.indexer.types", config.layers));
  return OkStatus();
}

Status scale_gguf_latent(const GgufFields& fields, ModelConfig& config) {
  if (!config.latent || config.rope.scaling != RopeScaling::kYarn || !(config.rope.factor > 1)) return OkStatus();
  ASSIGN_OR_RETURN(const double log_multiplier, fields.number("rope.scaling.yarn_log_multiplier", 0.0));  // 0.1 mscale_all_dim
  if (log_multiplier == 0) return OkStatus();
  const double magnitude = 1.0 + log_multiplier * std::log(config.rope.factor);
  config.queries.scale *= magnitude * magnitude;
  config.rope.attention_factor = 1.0;  // cosines and sines stay as they are
  return OkStatus();
}

}  // namespace shoal
