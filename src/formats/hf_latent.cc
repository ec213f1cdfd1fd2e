#include "formats/hf_latent.h"

#include <cmath>

#include "formats/config_checks.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

Status parse_index(const Json& json, ModelConfig& config) {
  IndexConfig& index = config.latent->index.emplace();
  index.interleaved = config.architecture == Architecture::kGlmMoeDsa;
  ASSIGN_OR_RETURN(index.heads, config_uint(json, "index_n_heads", std::nullopt, 1, kHeadsMax));
  ASSIGN_OR_RETURN(index.dim, config_uint(json, "index_head_dim", std::nullopt, 1, kConfigHeadDimMax));
  ASSIGN_OR_RETURN(index.top, config_uint(json, "index_topk", std::nullopt, 1, kContextMax));
  index.layers.assign(config.layers, true);
  const auto list = json.find("indexer_types");
  if (list == json.end() || list->is_null()) return OkStatus();
  if (!list->is_array() || list->size() != config.layers) return invalid_argument("'indexer_types' is not a list with one entry for each of the ", config.layers, " layers");
  for (uint32_t i = 0; i < config.layers; ++i) {
    const Json& type = (*list)[i];
    if (type != "full" && type != "shared") return unimplemented("'indexer_types' entry ", i, " is neither 'full' nor 'shared'");
    index.layers[i] = type == "full";
  }
  return OkStatus();
}

}  // namespace


Status parse_hf_latent(const Json& json, ModelConfig& config) {
  switch (config.architecture) {
    case Architecture::kDeepseekV2: case Architecture::kDeepseekV3: case Architecture::kGlm4MoeLite: case Architecture::kMistral4:
    case Architecture::kLongcatFlash: case Architecture::kKimiLinear: case Architecture::kDeepseekV32: case Architecture::kGlmMoeDsa:
      break;
    default: return OkStatus();
  }
  LatentConfig& latent = config.latent.emplace();
  ASSIGN_OR_RETURN(latent.query_rank, config_uint(json, "q_lora_rank", 0, 0, kHiddenMax));
  ASSIGN_OR_RETURN(latent.rank, config_uint(json, "kv_lora_rank", std::nullopt, 1, kLatentMax));
  ASSIGN_OR_RETURN(latent.key_dim, config_uint(json, "qk_nope_head_dim", std::nullopt, 1, kConfigHeadDimMax));
  ASSIGN_OR_RETURN(latent.value_dim, config_uint(json, "v_head_dim", std::nullopt, 1, kConfigHeadDimMax));
  ASSIGN_OR_RETURN(const uint32_t rope_dims, config_uint(json, "qk_rope_head_dim", std::nullopt, 2, kConfigHeadDimMax));
  config.head_dim = rope_dims;  // what parse_hf_rope takes for the width that turns
  config.kv_heads = config.heads;
  config.queries.scale = 1.0 / std::sqrt(static_cast<double>(latent.key_dim + rope_dims));
  if (config.architecture == Architecture::kDeepseekV32 || config.architecture == Architecture::kGlmMoeDsa) return parse_index(json, config);
  if (config.architecture != Architecture::kLongcatFlash) return OkStatus();
  if (latent.query_rank == 0) return unimplemented("queries that are not compressed ('q_lora_rank') are not served for this architecture");
  config.queries.scale *= std::sqrt(static_cast<double>(config.hidden_size) / latent.query_rank);
  latent.scale = std::sqrt(static_cast<double>(config.hidden_size) / latent.rank);
  return OkStatus();
}

void scale_latent_queries(ModelConfig& config) {
  if (!config.latent) return;
  RopeConfig& rope = config.rope;
  rope.dims = config.head_dim;  // a partial factor counts from the whole head, and names these
  rope.interleaved = true;
  config.head_dim += config.latent->key_dim;
  if (rope.scaling != RopeScaling::kYarn || rope.mscale_all_dim == 0 || !(rope.factor > 1)) return;
  const double magnitude = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1.0;
  config.queries.scale *= magnitude * magnitude;
}

}  // namespace shoal
