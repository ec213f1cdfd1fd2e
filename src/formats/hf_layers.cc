#include "formats/hf_layers.h"

#include <string>

#include "formats/config_checks.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

// The list of one entry per layer at `key`; null if there is none.
StatusOr<const Json*> layer_list(const Json& json, const char* key, uint32_t layers) {
  const auto list = json.find(key);
  if (list == json.end() || list->is_null()) return nullptr;
  if (!list->is_array() || list->size() != layers) {
    return invalid_argument("'", key, "' is not a list with one entry for each of the ", layers, " layers");
  }
  return &*list;
}

std::vector<bool> all_but_every(uint32_t n, uint32_t layers) {
  std::vector<bool> result(layers);
  for (uint32_t i = 0; i < layers; ++i) result[i] = (i + 1) % n != 0;
  return result;
}

StatusOr<std::vector<bool>> all_but_every(const Json& json, const char* key, uint32_t fallback, uint32_t layers) {
  ASSIGN_OR_RETURN(const uint32_t n, config_uint(json, key, fallback, 1, kLayersMax));
  return all_but_every(n, layers);
}

// Which layers see only the window, where the config does not list layer_types.
StatusOr<std::vector<bool>> default_sliding_layers(const Json& json, const ModelConfig& config) {
  std::vector<bool> sliding(config.layers, true);
  switch (config.architecture) {
    case Architecture::kQwen2: case Architecture::kQwen3: case Architecture::kQwen2Moe: case Architecture::kQwen3Moe: {
      ASSIGN_OR_RETURN(const uint32_t full, config_uint(json, "max_window_layers", 28, 0, kLayersMax));
      for (uint32_t i = 0; i < config.layers; ++i) sliding[i] = i >= full;
      return sliding;
    }
    case Architecture::kGemma2: case Architecture::kGptOss:
      for (uint32_t i = 0; i < config.layers; ++i) sliding[i] = i % 2 == 0;
      return sliding;
    case Architecture::kGemma3: {
      const char* key = json.contains("_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern";
      return all_but_every(json, key, 6, config.layers);
    }
    case Architecture::kGemma4: return all_but_every(6, config.layers);
    case Architecture::kMiMoV2: {
      sliding = all_but_every(6, config.layers);
      sliding[0] = false;
      return sliding;
    }
    case Architecture::kExaone4: case Architecture::kCohere2: return all_but_every(json, "sliding_window_pattern", 4, config.layers);
    case Architecture::kOlmo3: return all_but_every(4, config.layers);
    case Architecture::kSmolLm3:  // those without positions
      for (uint32_t i = 0; i < config.layers; ++i) sliding[i] = !config.turns(i);
      return sliding;
    default: return sliding;
  }
}

Status parse_window(const Json& json, const HfFamily& family, ModelConfig& config) {
  const bool stated_none = json.contains("sliding_window") && json["sliding_window"].is_null();
  ASSIGN_OR_RETURN(config.sliding_window, config_uint(json, "sliding_window", stated_none ? 0 : family.window, 0, kContextMax));
  ASSIGN_OR_RETURN(const bool used, json_bool(json, "use_sliding_window", family.windows != HfWindows::kIfUsed));
  if (!used || family.windows == HfWindows::kNone) config.sliding_window = 0;
  config.sliding_layers.assign(config.layers, false);
  if (config.architecture == Architecture::kMiMoV2 && json.contains("sliding_window_size")) {  // without the token itself
    ASSIGN_OR_RETURN(const uint32_t before, config_uint(json, "sliding_window_size", 128, 0, kContextMax - 1));
    config.sliding_window = before + 1;
  }
  if (config.sliding_window == 0) return OkStatus();
  ASSIGN_OR_RETURN(const Json* types, layer_list(json, "layer_types", config.layers));
  if (types == nullptr && config.architecture == Architecture::kMiMoV2) {
    ASSIGN_OR_RETURN(const Json* pattern, layer_list(json, "hybrid_layer_pattern", config.layers));
    for (uint32_t i = 0; pattern != nullptr && i < config.layers; ++i) config.sliding_layers[i] = (*pattern)[i] == 1;
    if (pattern != nullptr) return OkStatus();
  }
  if (types == nullptr) {
    ASSIGN_OR_RETURN(config.sliding_layers, default_sliding_layers(json, config));
    return OkStatus();
  }
  for (uint32_t i = 0; i < config.layers; ++i) {
    const Json& type = (*types)[i];
    if (type != "sliding_attention" && type != "full_attention") {
      return unimplemented("'layer_types' entry ", i, " is neither 'full_attention' nor 'sliding_attention'");
    }
    config.sliding_layers[i] = type == "sliding_attention";
  }
  if (config.architecture == Architecture::kGemma4) config.sliding_layers.back() = false;  // whatever the list says
  return OkStatus();
}

Status parse_turning_layers(const Json& json, ModelConfig& config) {
  const auto list = json.find("no_rope_layers");
  const bool none = list != json.end() && list->is_array() && list->empty();
  const Json* turns = nullptr;
  if (!none) {
    ASSIGN_OR_RETURN(turns, layer_list(json, "no_rope_layers", config.layers));
  }
  if (turns == nullptr) {
    ASSIGN_OR_RETURN(config.shapes.rope_layers, all_but_every(json, "no_rope_layer_interval", 4, config.layers));
    return OkStatus();
  }
  config.shapes.rope_layers.assign(config.layers, true);
  for (uint32_t i = 0; i < config.layers; ++i) {
    const Json& turn = (*turns)[i];
    if (turn != 0 && turn != 1) return invalid_argument("'no_rope_layers' entry ", i, " is neither 0 nor 1");
    config.shapes.rope_layers[i] = turn == 1;
  }
  return OkStatus();
}

// Llama 4: layers that turn see their chunk, the others everything, with queries that grow.
Status parse_llama4_layers(const Json& json, ModelConfig& config) {
  RETURN_IF_ERROR(parse_turning_layers(json, config));
  ASSIGN_OR_RETURN(config.queries.chunk, config_uint(json, "attention_chunk_size", 8192, 0, kContextMax));
  config.sliding_layers = config.shapes.rope_layers;
  ASSIGN_OR_RETURN(const bool normed, json_bool(json, "use_qk_norm", true));
  if (normed) config.queries.norm = QkNorm::kTurnedUnit;
  ASSIGN_OR_RETURN(const bool grows, json_bool(json, "attn_temperature_tuning", true));
  if (!grows) return OkStatus();
  ASSIGN_OR_RETURN(const double factor, json_double(json, "attn_scale", 0.1));
  ASSIGN_OR_RETURN(const uint32_t tokens, config_uint(json, "floor_scale", 8192, 1, kContextMax));
  config.queries.growth = {.factor = factor, .tokens = tokens, .ahead = 1, .unturned_only = true};
  return OkStatus();
}

Status parse_granite_hybrid(const Json& json, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::string positions, json_string(json, "position_embedding_type", ""));
  if (positions != "rope") config.shapes.rope_layers.assign(config.layers, false);
  return OkStatus();
}

}  // namespace

Status parse_hf_layers(const Json& json, const HfFamily& family, ModelConfig& config) {
  if (config.architecture == Architecture::kSmolLm3) RETURN_IF_ERROR(parse_turning_layers(json, config));
  if (config.architecture == Architecture::kLlama4) return parse_llama4_layers(json, config);
  if (config.architecture == Architecture::kGraniteHybrid) RETURN_IF_ERROR(parse_granite_hybrid(json, config));
  return parse_window(json, family, config);
}

}  // namespace shoal
