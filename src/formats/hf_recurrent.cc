#include "formats/hf_recurrent.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "formats/config_checks.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

using Layer = RecurrentConfig::Layer;

constexpr uint32_t kTapsMax = 64;
constexpr uint32_t kStateHeadsMax = 4096, kStateDimMax = 1024;

// A list of one word per layer at `key`: `state` or `attention`.
Status read_kinds(const Json& json, const char* key, std::initializer_list<const char*> states, ModelConfig& config) {
  const Json& list = json.at(key);
  if (!list.is_array() || list.size() != config.layers) return invalid_argument("'", key, "' is not a list with one entry for each of the ", config.layers, " layers");
  for (uint32_t i = 0; i < config.layers; ++i) {
    if (!list[i].is_string()) return invalid_argument("'", key, "' entry ", i, " is not a word");
    const std::string kind = list[i].get<std::string>();
    const bool state = std::find(states.begin(), states.end(), kind) != states.end();
    if (!state && kind != "attention" && kind != "full_attention") return unimplemented("'", key, "' entry ", i, " is '", kind, "', a kind of layer that is not served");
    config.recurrent->layers.push_back(state ? Layer::kState : Layer::kAttention);
  }
  return OkStatus();
}

// Every n-th layer attends.
void set_interval(uint32_t n, ModelConfig& config) {
  for (uint32_t i = 0; i < config.layers; ++i) config.recurrent->layers.push_back((i + 1) % n == 0 ? Layer::kAttention : Layer::kState);
}

bool listed(const Json& json, const char* key) { return json.contains(key) && !json[key].is_null(); }

Status parse_qwen(const Json& json, ModelConfig& config) {
  RecurrentConfig& r = config.recurrent.emplace();
  r.kind = RecurrentKind::kDeltaNet;
  ASSIGN_OR_RETURN(r.taps, config_uint(json, "linear_conv_kernel_dim", 4, 2, kTapsMax));
  ASSIGN_OR_RETURN(r.heads, config_uint(json, "linear_num_value_heads", 32, 1, kStateHeadsMax));
  ASSIGN_OR_RETURN(r.key_heads, config_uint(json, "linear_num_key_heads", 16, 1, kStateHeadsMax));
  ASSIGN_OR_RETURN(r.key_dim, config_uint(json, "linear_key_head_dim", 128, 1, kStateDimMax));
  ASSIGN_OR_RETURN(r.value_dim, config_uint(json, "linear_value_head_dim", 128, 1, kStateDimMax));
  config.norm_weight_plus_one = true;
  config.queries.norm = QkNorm::kHeads;
  ASSIGN_OR_RETURN(config.queries.gated, json_bool(json, "attn_output_gate", true));
  if (listed(json, "layer_types")) return read_kinds(json, "layer_types", {"linear_attention"}, config);
  ASSIGN_OR_RETURN(const uint32_t interval, config_uint(json, "full_attention_interval", 4, 1, kLayersMax));
  set_interval(interval, config);
  return OkStatus();
}

// What families call the numbers of Mamba 2.
struct MambaKeys {
  const char *taps, *heads, *head_dim, *groups, *state, *bias, *projection_bias;
};
constexpr MambaKeys kMambaKeys = {"mamba_d_conv", "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_conv_bias", "mamba_proj_bias"};
constexpr MambaKeys kNemotronKeys = {"conv_kernel", "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "use_conv_bias", "use_bias"};

Status parse_mamba(const Json& json, const MambaKeys& keys, ModelConfig& config) {
  RecurrentConfig& r = config.recurrent.emplace();
  r.kind = RecurrentKind::kMamba;
  ASSIGN_OR_RETURN(r.taps, config_uint(json, keys.taps, 4, 2, kTapsMax));
  ASSIGN_OR_RETURN(r.heads, config_uint(json, keys.heads, 128, 1, kStateHeadsMax));
  ASSIGN_OR_RETURN(r.key_heads, config_uint(json, keys.groups, 1, 1, kStateHeadsMax));
  ASSIGN_OR_RETURN(r.key_dim, config_uint(json, keys.state, 128, 1, kStateDimMax));
  ASSIGN_OR_RETURN(r.convolution_bias, json_bool(json, keys.bias, true));
  ASSIGN_OR_RETURN(const bool projected, json_bool(json, keys.projection_bias, false));
  if (projected) return unimplemented("'", keys.projection_bias, "' is set, which is not served");
  const bool stated = json.contains(keys.head_dim) && json[keys.head_dim].is_number();  // or "auto"
  ASSIGN_OR_RETURN(const uint32_t expand, config_uint(json, json.contains("mamba_expand") ? "mamba_expand" : "expand", 2, 1, 64));
  const uint32_t inner = expand * config.hidden_size;
  ASSIGN_OR_RETURN(r.value_dim, config_uint(stated ? json : Json::object(), keys.head_dim, std::max(1u, inner / r.heads), 1, kStateDimMax));
  const auto limit = json.find("time_step_limit");
  if (limit == json.end() || limit->is_null()) return OkStatus();
  if (!limit->is_array() || limit->size() != 2 || !(*limit)[0].is_number()) return invalid_argument("'time_step_limit' is not a pair of numbers");
  r.time_min = (*limit)[0].get<double>();
  if ((*limit)[1].is_number()) r.time_max = std::min((*limit)[1].get<double>(), r.time_max);
  if (!(r.time_min >= 0 && r.time_max > r.time_min)) return invalid_argument("'time_step_limit' is not an ascending pair of numbers");
  return OkStatus();
}

Status parse_granite(const Json& json, ModelConfig& config) {
  const char* key = listed(json, "layers_block_type") ? "layers_block_type" : "layer_types";
  if (!listed(json, key)) return invalid_argument("'layer_types' does not say which layers are attention and which are not");
  RETURN_IF_ERROR(parse_mamba(json, kMambaKeys, config));
  RETURN_IF_ERROR(read_kinds(json, key, {"mamba", "linear_attention"}, config));
  for (const Layer layer : config.recurrent->layers) {
    if (layer == Layer::kState) return OkStatus();
  }
  if (!config.experts) config.recurrent.reset();  // a decoder as any other
  return OkStatus();
}

// "M*-E" by layer, or a list of words.
Status parse_nemotron(const Json& json, ModelConfig& config) {
  RETURN_IF_ERROR(parse_mamba(json, kNemotronKeys, config));
  RecurrentConfig& r = *config.recurrent;
  r.single_blocks = r.squared_relu = true;
  config.shapes.rope_layers.assign(config.layers, false);
  std::string pattern;
  if (listed(json, "hybrid_override_pattern")) {
    ASSIGN_OR_RETURN(pattern, json_string(json, "hybrid_override_pattern", ""));
  } else if (listed(json, "layers_block_type")) {
    for (const Json& kind : json["layers_block_type"]) pattern += kind == "mamba" ? 'M' : kind == "attention" ? '*' : kind == "moe" ? 'E' : kind == "mlp" ? '-' : '?';
  }
  if (pattern.size() != config.layers) return invalid_argument("'hybrid_override_pattern' has ", pattern.size(), " letters for ", config.layers, " layers");
  if (config.experts) config.experts->layers.assign(config.layers, false);
  for (uint32_t i = 0; i < config.layers; ++i) {
    switch (pattern[i]) {
      case 'M': r.layers.push_back(Layer::kState); break;
      case '*': r.layers.push_back(Layer::kAttention); break;
      case '-': r.layers.push_back(Layer::kNeither); break;
      case 'E':
        r.layers.push_back(Layer::kNeither);
        if (!config.experts) return invalid_argument("layer ", i, " has experts ('hybrid_override_pattern'), and 'n_routed_experts' does not say how many");
        config.experts->layers[i] = true;
        break;
      default: return unimplemented("'hybrid_override_pattern' letter ", i, " is '", std::string(1, pattern[i]), "', a kind of layer that is not served");
    }
  }
  return OkStatus();
}

StatusOr<std::vector<double>> factors(const Json& json, const char* key, size_t count) {
  std::vector<double> result(count, 1.0);
  if (!listed(json, key)) return result;
  const Json& list = json[key];
  if (!list.is_array() || list.size() != count) return invalid_argument("'", key, "' is not a list of ", count, " numbers");
  for (size_t i = 0; i < count; ++i) {
    if (!list[i].is_number() || !std::isfinite(list[i].get<double>())) return invalid_argument("'", key, "' entry ", i, " is not a number");
    result[i] = list[i].get<double>();
  }
  return result;
}

Status parse_falcon(const Json& json, ModelConfig& config) {
  RETURN_IF_ERROR(parse_mamba(json, kMambaKeys, config));
  RecurrentConfig& r = *config.recurrent;
  r.layers.assign(config.layers, Layer::kBoth);
  ASSIGN_OR_RETURN(const uint32_t inner, config_uint(json, "mamba_d_ssm", r.heads * r.value_dim, 1, kHiddenMax));
  if (inner != r.heads * r.value_dim) return invalid_argument("'mamba_d_ssm' is ", inner, " where ", r.heads, " heads of ", r.value_dim, " are stated");
  ASSIGN_OR_RETURN(r.normed, json_bool(json, "mamba_rms_norm", false));
  ASSIGN_OR_RETURN(const bool before, json_bool(json, "mamba_norm_before_gate", false));
  if (before && r.normed) return unimplemented("'mamba_norm_before_gate' is set, which is not served");
  ASSIGN_OR_RETURN(const std::vector<double> parts, factors(json, "ssm_multipliers", 5));
  ASSIGN_OR_RETURN(const std::vector<double> mlp, factors(json, "mlp_multipliers", 2));
  r.scales.gate = parts[0], r.scales.values = parts[1], r.scales.keys = parts[2], r.scales.queries = parts[3], r.scales.times = parts[4];
  config.scales.mlp_gate = mlp[0], config.scales.mlp_out = mlp[1];
  ASSIGN_OR_RETURN(r.scales.in, json_double(json, "ssm_in_multiplier", 1.0));
  ASSIGN_OR_RETURN(r.scales.out, json_double(json, "ssm_out_multiplier", 1.0));
  ASSIGN_OR_RETURN(config.queries.factors.in, json_double(json, "attention_in_multiplier", 1.0));
  ASSIGN_OR_RETURN(config.queries.factors.keys, json_double(json, "key_multiplier", 1.0));
  ASSIGN_OR_RETURN(config.queries.factors.out, json_double(json, "attention_out_multiplier", 1.0));
  ASSIGN_OR_RETURN(config.scales.embedding, json_double(json, "embedding_multiplier", 1.0));
  ASSIGN_OR_RETURN(config.scales.logits, json_double(json, "lm_head_multiplier", 1.0));
  return OkStatus();
}

Status parse_lfm2(const Json& json, ModelConfig& config) {
  RecurrentConfig& r = config.recurrent.emplace();
  r.kind = RecurrentKind::kShortConvolution;
  ASSIGN_OR_RETURN(r.taps, config_uint(json, "conv_L_cache", 3, 2, kTapsMax));
  ASSIGN_OR_RETURN(const bool bias, json_bool(json, "conv_bias", false));
  if (bias) return unimplemented("'conv_bias' is set, which is not served");
  config.queries.norm = QkNorm::kHeads;
  if (config.architecture == Architecture::kLfm2) {
    ASSIGN_OR_RETURN(const bool adjusted, json_bool(json, "block_auto_adjust_ff_dim", true));
    if (adjusted) {
      ASSIGN_OR_RETURN(const double factor, json_double(json, "block_ffn_dim_multiplier", 1.0));
      ASSIGN_OR_RETURN(const uint32_t multiple, config_uint(json, "block_multiple_of", 256, 1, kHiddenMax));
      if (!(factor > 0 && factor < 100)) return invalid_argument("'block_ffn_dim_multiplier' is not a positive number");
      const auto width = static_cast<uint32_t>(factor * (2 * config.intermediate_size / 3));
      const bool rounded = !json.contains("block_ffn_dim_multiplier") || listed(json, "block_ffn_dim_multiplier");
      config.intermediate_size = rounded ? multiple * ((width + multiple - 1) / multiple) : width;
      if (config.intermediate_size == 0) return invalid_argument("'intermediate_size' leaves no width");
    }
  }
  if (listed(json, "layer_types")) return read_kinds(json, "layer_types", {"conv"}, config);
  if (!listed(json, "full_attn_idxs") || !json["full_attn_idxs"].is_array()) return invalid_argument("neither 'layer_types' nor 'full_attn_idxs' says which layers attend");
  r.layers.assign(config.layers, Layer::kState);
  for (const Json& layer : json["full_attn_idxs"]) {
    if (!layer.is_number_unsigned() || layer.get<uint64_t>() >= config.layers) return invalid_argument("'full_attn_idxs' holds something that is not one of the ", config.layers, " layers");
    r.layers[layer.get<size_t>()] = Layer::kAttention;
  }
  return OkStatus();
}

// Lists of layers from 1.
Status parse_kimi(const Json& json, ModelConfig& config) {
  RecurrentConfig& r = config.recurrent.emplace();
  r.kind = RecurrentKind::kKimiDelta;
  const auto linear = json.find("linear_attn_config");
  if (linear == json.end() || !linear->is_object()) return invalid_argument("'linear_attn_config' is missing");
  ASSIGN_OR_RETURN(r.taps, config_uint(*linear, "short_conv_kernel_size", 4, 2, kTapsMax));
  ASSIGN_OR_RETURN(r.heads, config_uint(*linear, "num_heads", std::nullopt, 1, kStateHeadsMax));
  ASSIGN_OR_RETURN(r.key_dim, config_uint(*linear, "head_dim", std::nullopt, 1, kStateDimMax));
  r.key_heads = r.heads;
  r.value_dim = r.key_dim;
  r.layers.assign(config.layers, Layer::kNeither);
  for (const auto& [key, kind] : {std::pair{"kda_layers", Layer::kState}, {"full_attn_layers", Layer::kAttention}}) {
    const auto list = linear->find(key);
    if (list == linear->end() || !list->is_array()) return invalid_argument("'linear_attn_config.", key, "' is not a list");
    for (const Json& layer : *list) {
      if (!layer.is_number_unsigned() || layer.get<uint64_t>() < 1 || layer.get<uint64_t>() > config.layers) {
        return invalid_argument("'linear_attn_config.", key, "' holds something that is not one of the layers 1 to ", config.layers);
      }
      r.layers[layer.get<size_t>() - 1] = kind;
    }
  }
  for (uint32_t i = 0; i < config.layers; ++i) {
    if (r.layers[i] == Layer::kNeither) return invalid_argument("'linear_attn_config' does not say what layer ", i + 1, " is");
  }
  ASSIGN_OR_RETURN(const bool still, json_bool(json, "mla_use_nope", false));
  config.latent->turns = !still;
  return OkStatus();
}

}  // namespace

Status parse_hf_recurrent(const Json& json, ModelConfig& config) {
  switch (config.architecture) {
    case Architecture::kQwen3Next: case Architecture::kQwen35: case Architecture::kQwen35Moe: return parse_qwen(json, config);
    case Architecture::kGraniteHybrid: return parse_granite(json, config);
    case Architecture::kNemotronH: return parse_nemotron(json, config);
    case Architecture::kFalconH1: return parse_falcon(json, config);
    case Architecture::kLfm2: case Architecture::kLfm2Moe: return parse_lfm2(json, config);
    case Architecture::kKimiLinear: return parse_kimi(json, config);
    default: return OkStatus();
  }
}

}  // namespace shoal
