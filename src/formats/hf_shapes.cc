#include "formats/hf_shapes.h"

#include <algorithm>
#include <string>

#include "formats/config_checks.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr uint32_t kWidthMax = 1u << 20;

// What `per_layer_config` says of layer i instead of the whole config, if it does.
StatusOr<Json> overrides_of(const Json& json, uint32_t layer) {
  const auto all = json.find("per_layer_config");
  if (all == json.end() || all->is_null()) return Json::object();
  if (!all->is_object()) return invalid_argument("'per_layer_config' is not an object");
  const auto own = all->find(std::to_string(layer));
  if (own == all->end()) return Json::object();
  if (!own->is_object()) return invalid_argument("'per_layer_config' of layer ", layer, " is not an object");
  return *own;
}

Status gemma4_heads(const Json& json, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.shapes.values_from_keys, json_bool(json, "attention_k_eq_v", false));
  const bool listed = json.contains("per_layer_config") && !json["per_layer_config"].is_null();
  uint32_t width = config.head_dim, kv_heads = config.kv_heads;  // of layers that see everything
  if (!listed) {
    ASSIGN_OR_RETURN(width, config_uint(json, "global_head_dim", 512, 1, kConfigHeadDimMax));
    ASSIGN_OR_RETURN(const uint32_t global, config_uint(json, "num_global_key_value_heads", kv_heads, 1, kHeadsMax));
    if (config.shapes.values_from_keys) kv_heads = global;
  }
  for (uint32_t i = 0; i < config.layers; ++i) {
    const bool full = !config.sliding_layers[i];
    HeadShape heads{config.heads, full ? kv_heads : config.kv_heads, full ? width : config.head_dim, 0};
    ASSIGN_OR_RETURN(const Json own, overrides_of(json, i));
    ASSIGN_OR_RETURN(heads.head_dim, config_uint(own, "head_dim", heads.head_dim, 1, kConfigHeadDimMax));
    ASSIGN_OR_RETURN(heads.kv_heads, config_uint(own, "num_key_value_heads", heads.kv_heads, 1, kHeadsMax));
    heads.value_dim = heads.head_dim;
    config.shapes.heads.push_back(heads);
  }
  return OkStatus();
}

Status parse_gemma4(const Json& json, ModelConfig& config) {
  RETURN_IF_ERROR(gemma4_heads(json, config));
  ASSIGN_OR_RETURN(const uint32_t shared, config_uint(json, "num_kv_shared_layers", 0, 0, kLayersMax));
  RETURN_IF_ERROR(share_last_layers(shared, config));
  ASSIGN_OR_RETURN(const bool wide, json_bool(json, "use_double_wide_mlp", false));
  for (uint32_t i = 0; i < config.layers; ++i) {
    const bool doubled = wide && config.kv_source_of(i) != i;
    config.shapes.mlp_width.push_back(config.intermediate_size * (doubled ? 2 : 1));
  }
  ASSIGN_OR_RETURN(config.shapes.input_width, config_uint(json, "hidden_size_per_layer_input", 256, 0, kHiddenMax));
  if (uint64_t{config.shapes.input_width} * config.layers > kWidthMax) return invalid_argument("'hidden_size_per_layer_input' of all layers is above the limit of ", kWidthMax);
  return OkStatus();
}

Status parse_mimo(const Json& json, ModelConfig& config) {
  HeadShape full{config.heads, config.kv_heads, config.head_dim, config.head_dim}, sliding = full;
  ASSIGN_OR_RETURN(full.value_dim, config_uint(json, "v_head_dim", 128, 1, kConfigHeadDimMax));
  ASSIGN_OR_RETURN(sliding.heads, config_uint(json, "swa_num_attention_heads", full.heads, 1, kHeadsMax));
  ASSIGN_OR_RETURN(sliding.kv_heads, config_uint(json, "swa_num_key_value_heads", 2 * full.kv_heads, 1, kHeadsMax));
  ASSIGN_OR_RETURN(sliding.head_dim, config_uint(json, "swa_head_dim", full.head_dim, 1, kConfigHeadDimMax));
  ASSIGN_OR_RETURN(sliding.value_dim, config_uint(json, "swa_v_head_dim", full.value_dim, 1, kConfigHeadDimMax));
  for (const bool windowed : config.sliding_layers) config.shapes.heads.push_back(windowed ? sliding : full);
  ASSIGN_OR_RETURN(config.queries.value_scale, json_double(json, "attention_value_scale", 1.0));
  ASSIGN_OR_RETURN(const bool sinks, json_bool(json, "add_swa_attention_sink_bias", true));
  ASSIGN_OR_RETURN(const bool full_sinks, json_bool(json, "add_full_attention_sink_bias", false));
  if (!sinks || full_sinks) return unimplemented("sinks in other layers than those with windows are not served for this architecture");
  return OkStatus();
}

}  // namespace

Status share_last_layers(uint32_t shared, ModelConfig& config) {
  if (shared >= config.layers) return invalid_argument(shared, " of ", config.layers, " layers are to read the keys and values of others");
  const uint32_t own = config.layers - shared;
  for (uint32_t i = 0; i < config.layers; ++i) {
    uint32_t source = i;
    if (i >= own) {
      for (source = own; source > 0 && config.sliding_layers[source - 1] != config.sliding_layers[i];) --source;
      if (source == 0) return invalid_argument("layer ", i, " is to read keys and values of an earlier layer of its kind, and there is none");
      --source;
    }
    config.shapes.kv_source.push_back(source);
  }
  return OkStatus();
}

Status parse_hf_shapes(const Json& json, ModelConfig& config) {
  if (config.architecture == Architecture::kGemma4) return parse_gemma4(json, config);
  if (config.architecture == Architecture::kMiMoV2) return parse_mimo(json, config);
  return OkStatus();
}

}  // namespace shoal
