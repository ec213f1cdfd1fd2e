#include "formats/hf_experts.h"

#include <string>

#include "formats/config_checks.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr uint32_t kWidthMax = 1u << 20;

// One number, or one for each layer, all equal.
StatusOr<uint32_t> uniform_uint(const Json& json, const char* key, std::optional<uint32_t> fallback, uint32_t min, uint32_t max) {
  const auto list = json.find(key);
  if (list == json.end() || !list->is_array()) return config_uint(json, key, fallback, min, max);
  if (list->empty()) return invalid_argument("'", key, "' is an empty list");
  for (const Json& value : *list) {
    if (value != list->front()) return unimplemented("'", key, "' differs between layers, which is not served");
  }
  return config_uint(Json{{key, list->front()}}, key, std::nullopt, min, max);
}

// Newer files name the number of experts alike; older ones each in their own way.
StatusOr<uint32_t> expert_count(const Json& json) {
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}) {
    if (json.contains(key) && !json[key].is_null()) return uniform_uint(json, key, std::nullopt, 1, kExpertsMax);
  }
  return invalid_argument("none of 'num_local_experts', 'num_experts', 'n_routed_experts' and 'moe_num_experts' says how many experts there are");
}

// Every `decoder_sparse_step`-th layer but those of `mlp_only_layers`.
Status qwen_layers(const Json& json, ModelConfig& config) {
  ASSIGN_OR_RETURN(const uint32_t step, config_uint(json, "decoder_sparse_step", 1, 1, kLayersMax));
  ExpertConfig& e = *config.experts;
  for (uint32_t i = 0; i < config.layers; ++i) e.layers[i] = (i + 1) % step == 0;
  const auto dense = json.find("mlp_only_layers");
  if (dense == json.end() || dense->is_null()) return OkStatus();
  if (!dense->is_array()) return invalid_argument("'mlp_only_layers' is not a list");
  for (const Json& layer : *dense) {
    if (!layer.is_number_integer() || layer.get<int64_t>() < 0) return invalid_argument("'mlp_only_layers' holds something that is not a layer");
    if (layer.get<int64_t>() < int64_t{config.layers}) e.layers[layer.get<size_t>()] = false;
  }
  return OkStatus();
}

Status qwen_experts(const Json& json, ModelConfig& config) {
  ExpertConfig& e = *config.experts;
  ASSIGN_OR_RETURN(e.intermediate_size, config_uint(json, "moe_intermediate_size", std::nullopt, 1, kWidthMax));
  const bool later = config.architecture == Architecture::kQwen3Next || config.architecture == Architecture::kQwen35Moe;
  ASSIGN_OR_RETURN(e.normalize, json_bool(json, "norm_topk_prob", later));
  const bool shared = config.architecture == Architecture::kQwen2Moe || config.architecture == Architecture::kQwen3Next || config.architecture == Architecture::kQwen35Moe;
  if (shared) {
    ASSIGN_OR_RETURN(e.shared_intermediate_size, config_uint(json, "shared_expert_intermediate_size", std::nullopt, 1, kWidthMax));
    e.shared_gate = true;
  }
  return qwen_layers(json, config);
}

// GLM-4.5 chooses as DeepSeek-V3 does; Mistral Small 4 so by a softmax without a bias.
Status deepseek_experts(const Json& json, ModelConfig& config) {
  ExpertConfig& e = *config.experts;
  const bool v2 = config.architecture == Architecture::kDeepseekV2, mistral = config.architecture == Architecture::kMistral4;
  e.sigmoid_scores = e.selection_bias = !v2 && !mistral;
  e.group_by_best_two = !v2;
  ASSIGN_OR_RETURN(e.intermediate_size, config_uint(json, "moe_intermediate_size", std::nullopt, 1, kWidthMax));
  ASSIGN_OR_RETURN(e.normalize, json_bool(json, "norm_topk_prob", !v2));
  ASSIGN_OR_RETURN(e.weight_scale, json_double(json, "routed_scaling_factor", 1.0));
  ASSIGN_OR_RETURN(e.groups, config_uint(json, "n_group", 1, 1, kExpertsMax));
  ASSIGN_OR_RETURN(e.groups_used, config_uint(json, "topk_group", 1, 1, kExpertsMax));
  ASSIGN_OR_RETURN(const uint32_t shared, config_uint(json, "n_shared_experts", 1, 0, 1024));
  if (uint64_t{shared} * e.intermediate_size > kWidthMax) return invalid_argument("'n_shared_experts' of that width are above the limit of ", kWidthMax);
  e.shared_intermediate_size = shared * e.intermediate_size;
  ASSIGN_OR_RETURN(const uint32_t dense, config_uint(json, "first_k_dense_replace", 0, 0, kLayersMax));
  for (uint32_t i = 0; i < config.layers; ++i) e.layers[i] = i >= dense;
  ASSIGN_OR_RETURN(const std::string method, json_string(json, "topk_method", v2 ? "greedy" : "noaux_tc"));
  if (v2 && method == "greedy") e.groups = e.groups_used = 1;
  const bool served = v2 ? method == "greedy" || method == "group_limited_greedy" : method == "noaux_tc";
  if (!served) return unimplemented("'topk_method' is '", method, "', which is not served for this architecture");
  return OkStatus();
}

Status olmoe_experts(const Json& json, ModelConfig& config) {
  ExpertConfig& e = *config.experts;
  e.intermediate_size = config.intermediate_size;
  ASSIGN_OR_RETURN(e.normalize, json_bool(json, "norm_topk_prob", false));
  if (json.contains("clip_qkv") && !json["clip_qkv"].is_null()) return unimplemented("'clip_qkv' is set, which is not served");
  return OkStatus();
}

// Every `moe_layer_interval`-th layer from `moe_layer_start_index` to `moe_layer_end_index`.
Status ernie_experts(const Json& json, ModelConfig& config) {
  ExpertConfig& e = *config.experts;
  e.normalize = e.selection_bias = true;
  ASSIGN_OR_RETURN(e.sum_min, json_double(json, "moe_norm_min", 1e-12));
  ASSIGN_OR_RETURN(e.intermediate_size, config_uint(json, "moe_intermediate_size", std::nullopt, 1, kWidthMax));
  ASSIGN_OR_RETURN(const uint32_t shared, config_uint(json, "moe_num_shared_experts", 2, 0, 1024));
  if (uint64_t{shared} * e.intermediate_size > kWidthMax) return invalid_argument("'moe_num_shared_experts' of that width are above the limit of ", kWidthMax);
  e.shared_intermediate_size = shared * e.intermediate_size;
  ASSIGN_OR_RETURN(const int64_t first, json_int(json, "moe_layer_start_index", 1, 0, kLayersMax));
  ASSIGN_OR_RETURN(const int64_t last, json_int(json, "moe_layer_end_index", -1, -1, kLayersMax));
  ASSIGN_OR_RETURN(const uint32_t interval, config_uint(json, "moe_layer_interval", 1, 1, kLayersMax));
  for (uint32_t i = 0; i < config.layers; ++i) e.layers[i] = (i + 1) % interval == 0 && i >= first && (last < 0 || i <= last);
  return OkStatus();
}

Status hunyuan_experts(const Json& json, ModelConfig& config) {
  ExpertConfig& e = *config.experts;
  e.normalize = true;
  ASSIGN_OR_RETURN(e.intermediate_size, uniform_uint(json, "moe_intermediate_size", config.intermediate_size, 1, kWidthMax));
  ASSIGN_OR_RETURN(const bool mixed, json_bool(json, "use_mixed_mlp_moe", true));
  ASSIGN_OR_RETURN(const uint32_t shared, uniform_uint(json, "num_shared_expert", 1, 0, 1024));
  if (uint64_t{shared} * e.intermediate_size > kWidthMax) return invalid_argument("'num_shared_expert' of that width are above the limit of ", kWidthMax);
  e.shared_intermediate_size = mixed ? shared * e.intermediate_size : 0;
  return OkStatus();
}

// Granite 4: softmax of the logits of those chosen.
Status granite_experts(const Json& json, ModelConfig& config) {
  ExpertConfig& e = *config.experts;
  e.softmax_of_chosen = true;
  e.shared_intermediate_size = config.intermediate_size;
  ASSIGN_OR_RETURN(e.intermediate_size, config_uint(json, "intermediate_size", std::nullopt, 1, kWidthMax));
  return OkStatus();
}

// As DeepSeek-V3, with a width of its own for the shared ones.
Status nemotron_experts(const Json& json, ModelConfig& config) {
  RETURN_IF_ERROR(deepseek_experts(json, config));
  ExpertConfig& e = *config.experts;
  ASSIGN_OR_RETURN(const uint32_t shared, config_uint(json, "n_shared_experts", 1, 0, 1024));
  ASSIGN_OR_RETURN(const uint32_t width, config_uint(json, "moe_shared_expert_intermediate_size", e.intermediate_size, 1, kWidthMax));
  e.shared_intermediate_size = shared > 0 ? width : 0;
  if (json.contains("moe_latent_size") && !json["moe_latent_size"].is_null()) return unimplemented("'moe_latent_size' is set, which is not served");
  return OkStatus();
}

Status lfm2_experts(const Json& json, ModelConfig& config) {
  ExpertConfig& e = *config.experts;
  e.sigmoid_scores = true;
  e.sum_min = 1e-6;
  ASSIGN_OR_RETURN(e.selection_bias, json_bool(json, "use_expert_bias", true));
  ASSIGN_OR_RETURN(e.normalize, json_bool(json, "norm_topk_prob", true));
  ASSIGN_OR_RETURN(e.weight_scale, json_double(json, "routed_scaling_factor", 1.0));
  ASSIGN_OR_RETURN(e.intermediate_size, config_uint(json, "moe_intermediate_size", std::nullopt, 1, kWidthMax));
  ASSIGN_OR_RETURN(const uint32_t dense, config_uint(json, "num_dense_layers", 2, 0, kLayersMax));
  for (uint32_t i = 0; i < config.layers; ++i) e.layers[i] = i >= dense;
  return OkStatus();
}

// As DeepSeek-V3 by other names.
Status kimi_experts(const Json& json, ModelConfig& config) {
  Json own = json;
  for (const auto& [key, theirs] : {std::pair{"n_group", "num_expert_group"}, {"n_shared_experts", "num_shared_experts"}, {"norm_topk_prob", "moe_renormalize"}}) {
    if (json.contains(theirs)) own[key] = json[theirs];
  }
  RETURN_IF_ERROR(deepseek_experts(own, config));
  ASSIGN_OR_RETURN(const std::string scores, json_string(json, "moe_router_activation_func", "sigmoid"));
  if (scores != "sigmoid") return unimplemented("'moe_router_activation_func' is '", scores, "', which is not served for this architecture");
  ASSIGN_OR_RETURN(const uint32_t frequency, config_uint(json, "moe_layer_freq", 1, 1, kLayersMax));
  for (uint32_t i = 0; i < config.layers; ++i) config.experts->layers[i] = config.experts->layers[i] && i % frequency == 0;
  return OkStatus();
}

Status gemma4_experts(const Json& json, ModelConfig& config) {
  ExpertConfig& e = *config.experts;
  e.normalize = e.weight_scales = true;
  ASSIGN_OR_RETURN(e.used, config_uint(json, "top_k_experts", std::nullopt, 1, kExpertsMax));
  ASSIGN_OR_RETURN(e.intermediate_size, config_uint(json, "moe_intermediate_size", std::nullopt, 1, kWidthMax));
  return OkStatus();
}

// Chosen as DeepSeek-V3 does, without a shared one; `moe_layer_freq` says in which layers.
Status mimo_experts(const Json& json, ModelConfig& config) {
  Json own = json;
  own["n_shared_experts"] = 0;
  RETURN_IF_ERROR(deepseek_experts(own, config));
  ExpertConfig& e = *config.experts;
  for (uint32_t i = 0; i < config.layers; ++i) e.layers[i] = i > 0;
  const bool typed = json.contains("mlp_layer_types") && !json["mlp_layer_types"].is_null();
  const char* key = typed ? "mlp_layer_types" : "moe_layer_freq";
  const auto list = json.find(key);
  if (list == json.end() || list->is_null()) return OkStatus();
  if (!list->is_array() || list->size() != config.layers) return invalid_argument("'", key, "' is not a list with one entry for each of the ", config.layers, " layers");
  for (uint32_t i = 0; i < config.layers; ++i) {
    const Json& kind = (*list)[i];
    const bool sparse = kind == 1 || kind == "sparse";
    if (!sparse && kind != 0 && kind != "dense") return unimplemented("'", key, "' entry ", i, " is a kind of layer that is not served");
    e.layers[i] = sparse;
  }
  return OkStatus();
}

Status minimax_experts(const Json& json, ModelConfig& config) {
  ExpertConfig& e = *config.experts;
  e.intermediate_size = config.intermediate_size;
  e.sigmoid_scores = e.normalize = true;
  ASSIGN_OR_RETURN(e.selection_bias, json_bool(json, "use_routing_bias", true));
  ASSIGN_OR_RETURN(const std::string scores, json_string(json, "scoring_func", "sigmoid"));
  if (scores != "sigmoid") return unimplemented("'scoring_func' is '", scores, "', which is not served for this architecture");
  return OkStatus();
}

Status gpt_oss_experts(const Json& json, ModelConfig& config) {
  ExpertConfig& e = *config.experts;
  e.intermediate_size = config.intermediate_size;
  e.softmax_of_chosen = e.router_bias = e.biases = true;
  ASSIGN_OR_RETURN(e.gate_alpha, json_double(json, "swiglu_alpha", 1.702));
  ASSIGN_OR_RETURN(e.gate_limit, json_double(json, "swiglu_limit", 7.0));
  if (!(e.gate_limit > 0)) return invalid_argument("'swiglu_limit' is not a positive number");
  return OkStatus();
}

// Every `interleave_moe_layer_step`-th layer, or those of `moe_layers`.
Status llama4_experts(const Json& json, ModelConfig& config) {
  ExpertConfig& e = *config.experts;
  e.sigmoid_scores = e.weigh_input = true;
  ASSIGN_OR_RETURN(e.intermediate_size, config_uint(json, "intermediate_size", std::nullopt, 1, kWidthMax));
  e.shared_intermediate_size = e.intermediate_size;
  ASSIGN_OR_RETURN(const uint32_t step, config_uint(json, "interleave_moe_layer_step", 1, 1, kLayersMax));
  for (uint32_t i = 0; i < config.layers; ++i) e.layers[i] = (i + 1) % step == 0;
  const auto list = json.find("moe_layers");
  if (list == json.end() || list->is_null()) return OkStatus();
  if (!list->is_array()) return invalid_argument("'moe_layers' is not a list");
  e.layers.assign(config.layers, false);
  for (const Json& layer : *list) {
    if (!layer.is_number_integer() || layer.get<int64_t>() < 0 || layer.get<int64_t>() >= int64_t{config.layers}) {
      return invalid_argument("'moe_layers' holds something that is not one of the ", config.layers, " layers");
    }
    e.layers[layer.get<size_t>()] = true;
  }
  return OkStatus();
}

Status longcat_experts(const Json& json, ModelConfig& config) {
  ExpertConfig& e = *config.experts;
  e.selection_bias = true;
  ASSIGN_OR_RETURN(e.router_bias, json_bool(json, "router_bias", false));
  ASSIGN_OR_RETURN(e.normalize, json_bool(json, "norm_topk_prob", false));
  ASSIGN_OR_RETURN(e.weight_scale, json_double(json, "routed_scaling_factor", 1.0));
  ASSIGN_OR_RETURN(e.intermediate_size, config_uint(json, "expert_ffn_hidden_size", std::nullopt, 1, kWidthMax));
  ASSIGN_OR_RETURN(e.zero, config_uint(json, "zero_expert_num", 0, 0, kExpertsMax));
  ASSIGN_OR_RETURN(const std::string kind, json_string(json, "zero_expert_type", "identity"));
  if (kind != "identity") return unimplemented("'zero_expert_type' is '", kind, "'; only 'identity' is served");
  for (uint32_t i = 0; i < config.layers; ++i) e.layers[i] = i % 2 == 0;
  return OkStatus();
}

StatusOr<uint32_t> experts_used(const Json& json) {
  for (const char* key : {"moe_k", "moe_topk", "num_experts_per_token"}) {
    if (json.contains(key) && !json[key].is_null()) return uniform_uint(json, key, std::nullopt, 1, kExpertsMax);
  }
  return config_uint(json, "num_experts_per_tok", 2, 1, kExpertsMax);
}

// Whether layers have experts at all, which some families leave to a number or a flag.
StatusOr<bool> has_experts(const Json& json, const ModelConfig& config) {
  switch (config.architecture) {
    case Architecture::kMixtral: case Architecture::kQwen2Moe: case Architecture::kQwen3Moe: case Architecture::kGlm4Moe:
    case Architecture::kDeepseekV2: case Architecture::kDeepseekV3: case Architecture::kGlm4MoeLite: case Architecture::kOlmoe:
    case Architecture::kErnie45Moe: case Architecture::kHunyuanMoe: case Architecture::kMiniMaxM2:
    case Architecture::kGptOss: case Architecture::kLlama4: case Architecture::kMistral4:
    case Architecture::kLongcatFlash: case Architecture::kMiMoV2: case Architecture::kQwen3Next: case Architecture::kQwen35Moe:
    case Architecture::kLfm2Moe: case Architecture::kKimiLinear: case Architecture::kDeepseekV32: case Architecture::kGlmMoeDsa:
      return true;
    case Architecture::kGraniteHybrid: case Architecture::kNemotronH: {
      const char* key = config.architecture == Architecture::kNemotronH ? "n_routed_experts" : "num_local_experts";
      ASSIGN_OR_RETURN(const uint32_t some, config_uint(json, key, 0, 0, kExpertsMax));
      return some > 0;
    }
    case Architecture::kGemma4: return json_bool(json, "enable_moe_block", false);
    default: return false;
  }
}

}  // namespace

Status parse_hf_experts(const Json& json, ModelConfig& config) {
  ASSIGN_OR_RETURN(const bool some, has_experts(json, config));
  if (!some) return OkStatus();
  ExpertConfig& e = config.experts.emplace();
  ASSIGN_OR_RETURN(e.count, expert_count(json));
  ASSIGN_OR_RETURN(e.used, experts_used(json));
  e.layers.assign(config.layers, true);
  switch (config.architecture) {
    case Architecture::kQwen2Moe: case Architecture::kQwen3Moe: case Architecture::kQwen3Next: case Architecture::kQwen35Moe: return qwen_experts(json, config);
    case Architecture::kGraniteHybrid: return granite_experts(json, config);
    case Architecture::kNemotronH: return nemotron_experts(json, config);
    case Architecture::kLfm2Moe: return lfm2_experts(json, config);
    case Architecture::kKimiLinear: return kimi_experts(json, config);
    case Architecture::kGlm4Moe: case Architecture::kDeepseekV2: case Architecture::kDeepseekV3: case Architecture::kGlm4MoeLite:
    case Architecture::kMistral4: case Architecture::kDeepseekV32: case Architecture::kGlmMoeDsa:
      return deepseek_experts(json, config);
    case Architecture::kOlmoe: return olmoe_experts(json, config);
    case Architecture::kErnie45Moe: return ernie_experts(json, config);
    case Architecture::kHunyuanMoe: return hunyuan_experts(json, config);
    case Architecture::kGemma4: return gemma4_experts(json, config);
    case Architecture::kMiMoV2: return mimo_experts(json, config);
    case Architecture::kMiniMaxM2: return minimax_experts(json, config);
    case Architecture::kGptOss: return gpt_oss_experts(json, config);
    case Architecture::kLlama4: return llama4_experts(json, config);
    case Architecture::kLongcatFlash: return longcat_experts(json, config);
    default:  // Mixtral
      e.intermediate_size = config.intermediate_size;
      e.normalize = true;
      return OkStatus();
  }
}

}  // namespace shoal
