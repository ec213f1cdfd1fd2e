#include "formats/hf_config.h"

#include <cmath>

#include "formats/config_checks.h"
#include "formats/hf_experts.h"
#include "formats/hf_families.h"
#include "formats/hf_latent.h"
#include "formats/hf_layers.h"
#include "formats/hf_recurrent.h"
#include "formats/hf_rope.h"
#include "formats/hf_shapes.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

uint32_t or_else(uint32_t stated, uint32_t other) { return stated != 0 ? stated : other; }

std::optional<uint32_t> if_stated(uint32_t value) { return value == 0 ? std::nullopt : std::optional(value); }

Status parse_sizes(const Json& json, const HfFamily& family, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.vocab_size, config_uint(json, "vocab_size", if_stated(family.vocab_size), 1, kVocabMax));
  ASSIGN_OR_RETURN(config.hidden_size, config_uint(json, "hidden_size", std::nullopt, 1, kHiddenMax));
  ASSIGN_OR_RETURN(config.layers, config_uint(json, config.architecture == Architecture::kLongcatFlash ? "num_layers" : "num_hidden_layers", std::nullopt, 1, kLayersMax));
  ASSIGN_OR_RETURN(config.heads, config_uint(json, "num_attention_heads", if_stated(family.heads), 1, kHeadsMax));
  const bool alike = json.contains("num_key_value_heads");  // null: as many as heads
  ASSIGN_OR_RETURN(config.kv_heads, config_uint(json, "num_key_value_heads", alike ? config.heads : or_else(family.kv_heads, config.heads), 1, kHeadsMax));
  if (config.architecture == Architecture::kLongcatFlash) config.layers *= 2;  // each is two of everything but of its experts
  const char* width = config.architecture == Architecture::kGraniteHybrid ? "shared_intermediate_size"
                      : config.architecture == Architecture::kLlama4      ? "intermediate_size_mlp"
                      : config.architecture == Architecture::kLongcatFlash ? "ffn_hidden_size"
                                                                          : "intermediate_size";
  const bool experts_alone = config.architecture == Architecture::kQwen35Moe;  // it says no other width
  ASSIGN_OR_RETURN(config.intermediate_size, config_uint(json, width, experts_alone ? std::optional<uint32_t>(1) : std::nullopt, 1, 1u << 20));
  ASSIGN_OR_RETURN(config.context_length, config_uint(json, config.architecture == Architecture::kKimiLinear ? "model_max_length" : "max_position_embeddings", family.context_length, 1, kContextMax));
  const uint32_t head_dim = or_else(family.head_dim, std::max<uint32_t>(1, config.hidden_size / config.heads));
  ASSIGN_OR_RETURN(config.head_dim, config_uint(json, "head_dim", head_dim, 1, kConfigHeadDimMax));
  ASSIGN_OR_RETURN(config.norm_eps, json_double(json, family.norm_eps_key, family.norm_eps));
  ASSIGN_OR_RETURN(config.tied_embeddings, json_bool(json, "tie_word_embeddings", family.tied));
  return OkStatus();
}

Status parse_activation(const Json& json, const HfFamily& family) {
  const std::string want = family.activation;
  const bool gemma = want.starts_with("gelu");  // it has two fields, of which the newer one holds
  ASSIGN_OR_RETURN(const std::string act, json_string(json, family.activation_key, want));
  ASSIGN_OR_RETURN(const std::string activation, json_string(json, "hidden_activation", gemma ? want : act));
  if (activation != want) return unimplemented("hidden_act '", activation, "' is not served for this architecture; only '", want, "' is");
  return OkStatus();
}

StatusOr<bool> flag_at(const Json& json, const char* key, bool fallback) {
  return key == nullptr ? StatusOr<bool>(fallback) : json_bool(json, key, fallback);
}

Status parse_biases(const Json& json, const HfFamily& family, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.biases.qkv, flag_at(json, family.qkv_bias_key, family.qkv_bias));
  ASSIGN_OR_RETURN(config.biases.output, flag_at(json, family.output_bias_key, false));
  ASSIGN_OR_RETURN(config.biases.mlp, flag_at(json, family.mlp_bias_key, false));
  return OkStatus();
}

Status parse_attention(const Json& json, ModelConfig& config) {
  const bool gemma2 = config.architecture == Architecture::kGemma2, gemma3 = config.architecture == Architecture::kGemma3;
  const bool gemma4 = config.architecture == Architecture::kGemma4;
  double scalar = config.head_dim;
  if (gemma2 || gemma3) {
    ASSIGN_OR_RETURN(scalar, json_double(json, "query_pre_attn_scalar", 256));
    if (!(scalar > 0 && scalar < 1e9)) return invalid_argument("'query_pre_attn_scalar' is not a positive number");
    config.norm_weight_plus_one = true;
    config.scales.embedding = std::sqrt(static_cast<double>(config.hidden_size));
  }
  config.queries.scale = gemma4 ? 1.0 : 1.0 / std::sqrt(scalar);
  if (gemma4) config.scales.embedding = std::sqrt(static_cast<double>(config.hidden_size));
  ASSIGN_OR_RETURN(config.queries.softcap, json_double(json, "attn_logit_softcapping", gemma2 ? 50.0 : 0.0));
  ASSIGN_OR_RETURN(config.scales.softcap, json_double(json, "final_logit_softcapping", gemma2 ? 30.0 : 0.0));
  const auto null_cap = [&](const char* key) { return json.contains(key) && json[key].is_null(); };
  if (null_cap("attn_logit_softcapping")) config.queries.softcap = 0;
  if (null_cap("final_logit_softcapping")) config.scales.softcap = 0;
  if (gemma4) {  // it says of what; of images is no matter
    ASSIGN_OR_RETURN(const std::string of, json_string(json, "use_bidirectional_attention", "vision"));
    return of == "vision" ? OkStatus() : unimplemented("'use_bidirectional_attention' is '", of, "'; only causal attention is served");
  }
  ASSIGN_OR_RETURN(const bool bidirectional, json_bool(json, "use_bidirectional_attention", false));
  if (bidirectional) return unimplemented("'use_bidirectional_attention' is set; only causal attention is served");
  return OkStatus();
}

// Granite and Command R multiply what others leave as it is.
Status parse_multipliers(const Json& json, ModelConfig& config) {
  if (config.architecture == Architecture::kCohere2) {
    ASSIGN_OR_RETURN(config.scales.logits, json_double(json, "logit_scale", 0.0625));
    ASSIGN_OR_RETURN(const bool normed, json_bool(json, "use_qk_norm", false));
    if (normed) return unimplemented("'use_qk_norm' is set, which is not served for this architecture");
  }
  if (config.architecture != Architecture::kGranite && config.architecture != Architecture::kGraniteHybrid) return OkStatus();
  ASSIGN_OR_RETURN(config.scales.embedding, json_double(json, "embedding_multiplier", 1.0));
  ASSIGN_OR_RETURN(config.scales.residual, json_double(json, "residual_multiplier", 1.0));
  ASSIGN_OR_RETURN(config.queries.scale, json_double(json, "attention_multiplier", 1.0));
  ASSIGN_OR_RETURN(const double logits, json_double(json, "logits_scaling", 1.0));
  if (!(logits > 0)) return invalid_argument("'logits_scaling' is not a positive number");
  config.scales.logits = 1.0 / logits;
  return OkStatus();
}

// Weights that were quantised by their publisher: FP8 with block scales, and MXFP4 of gpt-oss.
Status parse_quantization(const Json& json, ModelConfig& config) {
  const auto field = json.find("quantization_config");
  if (field == json.end() || field->is_null()) return OkStatus();
  if (!field->is_object()) return invalid_argument("'quantization_config' is not an object");
  ASSIGN_OR_RETURN(const std::string method, json_string(*field, "quant_method", ""));
  if (method == "mxfp4" && config.architecture == Architecture::kGptOss) return OkStatus();  // its experts; tensors say so too
  const auto block = field->find("weight_block_size");
  const bool pair = block != field->end() && block->is_array() && block->size() == 2;
  if (method != "fp8" || !pair) {
    return unimplemented("quantization_config.quant_method '", method,
                         "' is not served; served are 'fp8' with weight_block_size, unquantised weights and GGUF files");
  }
  for (size_t i = 0; i < 2; ++i) {
    const Json& size = (*block)[i];
    if (!size.is_number_integer() || size.get<int64_t>() < 1 || size.get<int64_t>() > kHiddenMax) {
      return invalid_argument("'weight_block_size' is not a pair of sizes");
    }
    config.fp8_block[i] = static_cast<uint32_t>(size.get<int64_t>());
  }
  return OkStatus();
}

Status append_ids(const Json& json, const char* key, std::vector<TokenId>& ids) {
  const auto field = json.find(key);
  if (field == json.end() || field->is_null()) return OkStatus();
  const Json list = field->is_array() ? *field : Json::array({*field});
  if (list.size() > 1000) return invalid_argument("'", key, "' lists more than 1000 ids");
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kVocabMax) {
      return invalid_argument("'", key, "' is not a token id or a list of them");
    }
    ids.push_back(static_cast<TokenId>(id.get<int64_t>()));
  }
  return OkStatus();
}

StatusOr<std::optional<double>> optional_double(const Json& json, const char* key) {
  if (!json.contains(key) || json[key].is_null()) return std::optional<double>();
  ASSIGN_OR_RETURN(const double value, json_double(json, key, 0));
  return std::optional<double>(value);
}

StatusOr<std::optional<int64_t>> optional_int(const Json& json, const char* key) {
  if (!json.contains(key) || json[key].is_null()) return std::optional<int64_t>();
  ASSIGN_OR_RETURN(const int64_t value, json_int(json, key, 0, -1, int64_t{1} << 40));
  return std::optional<int64_t>(value);
}

Status parse_sampling(const Json& json, GenerationConfig& result) {
  if (json.contains("do_sample") && !json["do_sample"].is_null()) {
    ASSIGN_OR_RETURN(result.do_sample, json_bool(json, "do_sample", false));
  }
  ASSIGN_OR_RETURN(result.temperature, optional_double(json, "temperature"));
  ASSIGN_OR_RETURN(result.top_p, optional_double(json, "top_p"));
  ASSIGN_OR_RETURN(result.min_p, optional_double(json, "min_p"));
  ASSIGN_OR_RETURN(result.repetition_penalty, optional_double(json, "repetition_penalty"));
  ASSIGN_OR_RETURN(result.top_k, optional_int(json, "top_k"));
  ASSIGN_OR_RETURN(result.max_new_tokens, optional_int(json, "max_new_tokens"));
  return OkStatus();
}

}  // namespace

StatusOr<ModelConfig> parse_hf_config(const Json& whole) {
  if (!whole.is_object()) return invalid_argument("is not a JSON object");
  ASSIGN_OR_RETURN(const HfFamily* family, find_hf_family(whole));
  const Json json = hf_text_config(whole);
  ModelConfig config;
  config.architecture = family->architecture;
  RETURN_IF_ERROR(parse_sizes(json, *family, config));
  RETURN_IF_ERROR(parse_activation(json, *family));
  RETURN_IF_ERROR(parse_biases(json, *family, config));
  RETURN_IF_ERROR(parse_hf_layers(json, *family, config));
  RETURN_IF_ERROR(parse_hf_shapes(json, config));
  RETURN_IF_ERROR(parse_attention(json, config));
  RETURN_IF_ERROR(parse_multipliers(json, config));
  RETURN_IF_ERROR(parse_quantization(json, config));
  RETURN_IF_ERROR(parse_hf_experts(json, config));
  RETURN_IF_ERROR(parse_hf_latent(json, config));
  RETURN_IF_ERROR(parse_hf_recurrent(json, config));
  RETURN_IF_ERROR(parse_hf_rope(json, *family, config));
  scale_latent_queries(config);
  set_family_facts(config);
  RETURN_IF_ERROR(check_config(config));
  return config;
}

StatusOr<GenerationConfig> parse_generation_config(const Json& whole, const Json& generation) {
  GenerationConfig result;
  const Json config = whole.is_object() ? hf_text_config(whole) : Json();
  const bool given = generation.is_object();
  const auto ids_of = [&](const char* key) -> StatusOr<std::vector<TokenId>> {
    std::vector<TokenId> ids;
    if (given) RETURN_IF_ERROR(append_ids(generation, key, ids));
    if (ids.empty() && config.is_object()) RETURN_IF_ERROR(append_ids(config, key, ids));
    return ids;
  };
  ASSIGN_OR_RETURN(result.eos, ids_of("eos_token_id"));
  ASSIGN_OR_RETURN(const std::vector<TokenId> bos, ids_of("bos_token_id"));
  ASSIGN_OR_RETURN(const std::vector<TokenId> pad, ids_of("pad_token_id"));
  if (!bos.empty()) result.bos = bos.front();
  if (!pad.empty()) result.pad = pad.front();
  if (given) RETURN_IF_ERROR(parse_sampling(generation, result));
  return result;
}

}  // namespace shoal
