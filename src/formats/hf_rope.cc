#include "formats/hf_rope.h"

#include <algorithm>
#include <cmath>

#include "formats/config_checks.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

StatusOr<RopeScaling> parse_kind(const Json& json) {
  ASSIGN_OR_RETURN(const std::string old_key, json_string(json, "type", "default"));
  ASSIGN_OR_RETURN(const std::string kind, json_string(json, "rope_type", old_key));
  if (kind == "default") return RopeScaling::kNone;
  if (kind == "linear") return RopeScaling::kLinear;
  if (kind == "dynamic") return RopeScaling::kDynamic;
  if (kind == "llama3") return RopeScaling::kLlama3;
  if (kind == "yarn") return RopeScaling::kYarn;
  if (kind == "longrope" || kind == "su") return RopeScaling::kLongRope;
  if (kind == "proportional") return RopeScaling::kProportional;
  return unimplemented("rope type '", kind, "' is not served; served are default, linear, dynamic, llama3, yarn, longrope and proportional");
}

Status parse_factors(const Json& json, const char* key, std::vector<float>& factors) {
  const auto list = json.find(key);
  if (list == json.end() || !list->is_array() || list->size() > kConfigHeadDimMax) {
    return invalid_argument("longrope needs the list '", key, "'");
  }
  for (const Json& factor : *list) {
    if (!factor.is_number()) return invalid_argument("'", key, "' holds something that is not a number");
    factors.push_back(static_cast<float>(factor.get<double>()));
  }
  return OkStatus();
}

bool is_hunyuan(Architecture a) { return a == Architecture::kHunyuanDense || a == Architecture::kHunyuanMoe; }

// The share of a head that turns, which MiniMax M2 says as a number of dimensions.
StatusOr<double> rotary_part(const Json& json, const HfFamily& family, const ModelConfig& config) {
  if (family.architecture != Architecture::kMiniMaxM2 || json.contains("partial_rotary_factor")) {
    return json_double(json, "partial_rotary_factor", family.rotary_part);
  }
  ASSIGN_OR_RETURN(const uint32_t dims, config_uint(json, "rotary_dim", config.head_dim, 1, config.head_dim));
  return static_cast<double>(dims) / config.head_dim;
}

// Hunyuan calls it dynamic, but where there is an alpha, that and not the length decides.
Status parse_alpha(const Json& json, RopeConfig& rope) {
  ASSIGN_OR_RETURN(const double alpha, json_double(json, "alpha", 0.0));
  if (alpha == 0) return OkStatus();
  rope.scaling = RopeScaling::kAlpha;
  rope.factor = alpha;
  return OkStatus();
}

// Ministral 3 and Mistral Small 4 turn up their queries beyond the trained length.
Status parse_query_growth(const Json& rope, ModelConfig& config) {
  if (config.architecture != Architecture::kMinistral3 && config.architecture != Architecture::kMistral4) return OkStatus();
  ASSIGN_OR_RETURN(const double factor, json_double(rope, "llama_4_scaling_beta", 0.0));
  if (factor != 0) config.queries.growth = {factor, config.rope.original_context};
  return OkStatus();
}

// Fields of one rope object; `top` is the whole config, where some of them stand in older files.
StatusOr<RopeConfig> parse_rope(const Json& json, const Json& top, const HfFamily& family, const ModelConfig& config, uint32_t head_dim, double theta) {
  RopeConfig rope;
  rope.interleaved = family.interleaved_rope;
  ASSIGN_OR_RETURN(rope.scaling, parse_kind(json));
  ASSIGN_OR_RETURN(rope.theta, json_double(json, "rope_theta", theta));
  ASSIGN_OR_RETURN(double partial, rotary_part(top, family, config));
  ASSIGN_OR_RETURN(partial, json_double(json, "partial_rotary_factor", partial));
  if (!(partial > 0 && partial <= 1)) return invalid_argument("'partial_rotary_factor' is not in (0, 1]");
  rope.dims = static_cast<uint32_t>(head_dim * partial);
  if (rope.scaling == RopeScaling::kProportional) {  // of the whole head, whose last pairs stand
    rope.dims = head_dim;
    rope.turning_pairs = static_cast<uint32_t>(partial * head_dim / 2);
  }
  ASSIGN_OR_RETURN(rope.factor, json_double(json, "factor", 1.0));
  ASSIGN_OR_RETURN(uint32_t original, config_uint(top, "original_max_position_embeddings", config.context_length, 1, kContextMax));
  ASSIGN_OR_RETURN(rope.original_context, config_uint(json, "original_max_position_embeddings", original, 1, kContextMax));
  if (rope.scaling == RopeScaling::kDynamic && is_hunyuan(family.architecture)) RETURN_IF_ERROR(parse_alpha(json, rope));
  if (rope.scaling == RopeScaling::kDynamic) rope.original_context = config.context_length;
  ASSIGN_OR_RETURN(rope.low_freq_factor, json_double(json, "low_freq_factor", 1.0));
  ASSIGN_OR_RETURN(rope.high_freq_factor, json_double(json, "high_freq_factor", 4.0));
  ASSIGN_OR_RETURN(rope.beta_fast, json_double(json, "beta_fast", 32.0));
  ASSIGN_OR_RETURN(rope.beta_slow, json_double(json, "beta_slow", 1.0));
  ASSIGN_OR_RETURN(rope.truncate, json_bool(json, "truncate", true));
  ASSIGN_OR_RETURN(rope.mscale, json_double(json, "mscale", 0.0));
  ASSIGN_OR_RETURN(rope.mscale_all_dim, json_double(json, "mscale_all_dim", 0.0));
  if (json.contains("attention_factor") && !json["attention_factor"].is_null()) {
    ASSIGN_OR_RETURN(rope.attention_factor, json_double(json, "attention_factor", 1.0));
  }
  if (rope.scaling == RopeScaling::kLongRope) {
    RETURN_IF_ERROR(parse_factors(json, "short_factor", rope.short_factor));
    RETURN_IF_ERROR(parse_factors(json, "long_factor", rope.long_factor));
    if (!json.contains("factor")) rope.factor = static_cast<double>(config.context_length) / rope.original_context;
  }
  return rope;
}

// max_position_embeddings is the trained length for linear and dynamic scaling. For YaRN publishers write either the
// trained or the scaled one; the trained one is named apart, so the longer reading is right. The others state the scaled one.
void lengthen_context(ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  if (config.architecture == Architecture::kGemma3 || !(rope.factor > 1)) return;  // it states the scaled one
  double longer = config.context_length;
  if (rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kDynamic) longer *= rope.factor;
  if (rope.scaling == RopeScaling::kYarn) longer = std::max(longer, rope.original_context * rope.factor);
  config.context_length = static_cast<uint32_t>(std::min<double>(std::floor(longer), kContextMax));
}

const Json* object_at(const Json& json, const char* key) {
  const auto field = json.find(key);
  return field != json.end() && field->is_object() ? &*field : nullptr;
}

bool has_local_rope(Architecture a) {
  return a == Architecture::kGemma3 || a == Architecture::kGemma4 || a == Architecture::kMiMoV2 || a == Architecture::kOlmo3;
}

// Of the layers with windows.
StatusOr<double> local_base(const Json& json, Architecture architecture, double theta) {
  if (architecture == Architecture::kMiMoV2) return json_double(json, "swa_rope_theta", 10000.0);
  if (architecture == Architecture::kGemma3) return json_double(json, "rope_local_base_freq", 10000.0);
  return architecture == Architecture::kGemma4 ? 10000.0 : theta;
}

// Of the layers with windows, or of the others.
uint32_t head_dim_of(const ModelConfig& config, bool sliding) {
  for (uint32_t i = 0; i < config.layers && !config.shapes.heads.empty(); ++i) {
    if (config.sliding_layers[i] == sliding) return config.shapes.heads[i].head_dim;
  }
  return config.head_dim;
}

}  // namespace

Status parse_hf_rope(const Json& json, const HfFamily& family, ModelConfig& config) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (json.contains(key) && !json[key].is_null() && !json[key].is_object()) {
      return invalid_argument("'", key, "' is not an object");
    }
  }
  const Json none = Json::object();
  const Json* rope = object_at(json, "rope_parameters");
  if (rope == nullptr) rope = object_at(json, "rope_scaling");
  if (rope == nullptr) rope = &none;
  ASSIGN_OR_RETURN(const double theta, json_double(json, "rope_theta", family.theta));
  ASSIGN_OR_RETURN(const double local_theta, local_base(json, config.architecture, theta));
  const Json* full = object_at(*rope, "full_attention");
  const Json* sliding = object_at(*rope, "sliding_attention");
  const Json quarter = {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}};
  if (full == nullptr && config.architecture == Architecture::kGemma4) full = &quarter;
  ASSIGN_OR_RETURN(config.rope, parse_rope(full != nullptr ? *full : *rope, json, family, config, head_dim_of(config, false), theta));
  if (sliding != nullptr || has_local_rope(config.architecture)) {
    ASSIGN_OR_RETURN(config.local_rope, parse_rope(sliding != nullptr ? *sliding : none, json, family, config, head_dim_of(config, true), local_theta));
  }
  RETURN_IF_ERROR(parse_query_growth(*rope, config));
  lengthen_context(config);
  return OkStatus();
}

}  // namespace shoal
