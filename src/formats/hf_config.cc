#include "formats/hf_config.h"

#include <cmath>

#include "formats/config_checks.h"
#include "formats/hf_experts.h"
#include "formats/hf_rope.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

struct KnownArchitecture {
  const char* name;        // architectures[0]
  const char* model_type;
  Architecture architecture;
};
constexpr KnownArchitecture kKnown[] = {
    {"LlamaForCausalLM", "llama", Architecture::kLlama},       {"MistralForCausalLM", "mistral", Architecture::kMistral},
    {"Qwen2ForCausalLM", "qwen2", Architecture::kQwen2},       {"Qwen3ForCausalLM", "qwen3", Architecture::kQwen3},
    {"Gemma2ForCausalLM", "gemma2", Architecture::kGemma2},    {"Gemma3ForCausalLM", "gemma3_text", Architecture::kGemma3},
    {"Phi3ForCausalLM", "phi3", Architecture::kPhi3},
    {"MixtralForCausalLM", "mixtral", Architecture::kMixtral},     {"Qwen2MoeForCausalLM", "qwen2_moe", Architecture::kQwen2Moe},
    {"Qwen3MoeForCausalLM", "qwen3_moe", Architecture::kQwen3Moe}, {"Glm4MoeForCausalLM", "glm4_moe", Architecture::kGlm4Moe},
};
constexpr const char* kExperts[] = {"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"};

// The class name, or the model type where a config has none.
StatusOr<std::string> class_name(const Json& config) {
  const auto list = config.find("architectures");
  if (list != config.end() && list->is_array() && !list->empty() && list->front().is_string()) {
    return list->front().get<std::string>();
  }
  ASSIGN_OR_RETURN(const std::string type, json_string(config, "model_type", ""));
  for (const KnownArchitecture& known : kKnown) {
    if (type == known.model_type) return std::string(known.name);
  }
  if (type.empty()) return invalid_argument("neither 'architectures' nor 'model_type' says what the model is");
  return unimplemented("model_type '", type, "' is not served; served are Llama, Mistral, Mixtral, Qwen2, Qwen3 (both with experts too), GLM-4.5, Gemma 2, Gemma 3 and Phi-3");
}

StatusOr<Architecture> parse_architecture(const Json& config) {
  ASSIGN_OR_RETURN(const std::string name, class_name(config));
  for (const KnownArchitecture& known : kKnown) {
    if (name == known.name) return known.architecture;
  }
  for (const char* experts : kExperts) {
    if (name == experts) return unimplemented("architecture '", name, "' is a mixture of experts, which is not served yet");
  }
  return unimplemented("architecture '", name, "' is not served; served are Llama, Mistral, Mixtral, Qwen2, Qwen3 (both with experts too), GLM-4.5, Gemma 2, Gemma 3 and Phi-3");
}

Status parse_sizes(const Json& json, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.vocab_size, config_uint(json, "vocab_size", std::nullopt, 1, kVocabMax));
  ASSIGN_OR_RETURN(config.hidden_size, config_uint(json, "hidden_size", std::nullopt, 1, kHiddenMax));
  ASSIGN_OR_RETURN(config.layers, config_uint(json, "num_hidden_layers", std::nullopt, 1, kLayersMax));
  ASSIGN_OR_RETURN(config.heads, config_uint(json, "num_attention_heads", std::nullopt, 1, kHeadsMax));
  ASSIGN_OR_RETURN(config.kv_heads, config_uint(json, "num_key_value_heads", config.heads, 1, kHeadsMax));
  ASSIGN_OR_RETURN(config.intermediate_size, config_uint(json, "intermediate_size", std::nullopt, 1, 1u << 20));
  ASSIGN_OR_RETURN(config.context_length, config_uint(json, "max_position_embeddings", 2048, 1, kContextMax));
  const bool gemma = config.architecture == Architecture::kGemma2 || config.architecture == Architecture::kGemma3;
  const uint32_t head_dim = gemma ? 256 : std::max<uint32_t>(1, config.hidden_size / config.heads);
  ASSIGN_OR_RETURN(config.head_dim, config_uint(json, "head_dim", head_dim, 1, kConfigHeadDimMax));
  ASSIGN_OR_RETURN(config.norm_eps, json_double(json, "rms_norm_eps", 1e-6));
  ASSIGN_OR_RETURN(config.tied_embeddings, json_bool(json, "tie_word_embeddings", gemma));
  return OkStatus();
}

Status parse_activation(const Json& json, Architecture architecture) {
  const bool gemma = architecture == Architecture::kGemma2 || architecture == Architecture::kGemma3;
  const char* want = gemma ? "gelu_pytorch_tanh" : "silu";
  ASSIGN_OR_RETURN(const std::string act, json_string(json, "hidden_act", want));
  ASSIGN_OR_RETURN(const std::string activation, json_string(json, "hidden_activation", gemma ? want : act));
  if (activation != want) return unimplemented("hidden_act '", activation, "' is not served for this architecture; only '", want, "' is");
  return OkStatus();
}

Status parse_biases(const Json& json, ModelConfig& config) {
  ASSIGN_OR_RETURN(const bool attention, json_bool(json, "attention_bias", false));
  const bool qwen2 = config.architecture == Architecture::kQwen2 || config.architecture == Architecture::kQwen2Moe;
  config.qkv_bias = attention || qwen2;
  config.output_bias = attention && !qwen2 && config.architecture != Architecture::kGlm4Moe;
  ASSIGN_OR_RETURN(config.mlp_bias, json_bool(json, "mlp_bias", false));
  return OkStatus();
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
    case Architecture::kGemma2:
      for (uint32_t i = 0; i < config.layers; ++i) sliding[i] = i % 2 == 0;
      return sliding;
    case Architecture::kGemma3: {
      ASSIGN_OR_RETURN(const uint32_t old_key, config_uint(json, "sliding_window_pattern", 6, 1, kLayersMax));
      ASSIGN_OR_RETURN(const uint32_t pattern, config_uint(json, "_sliding_window_pattern", old_key, 1, kLayersMax));
      for (uint32_t i = 0; i < config.layers; ++i) sliding[i] = (i + 1) % pattern != 0;
      return sliding;
    }
    default: return sliding;
  }
}

Status parse_window(const Json& json, ModelConfig& config) {
  const bool qwen = config.architecture == Architecture::kQwen2 || config.architecture == Architecture::kQwen3 ||
                    config.architecture == Architecture::kQwen2Moe || config.architecture == Architecture::kQwen3Moe;
  const bool gemma = config.architecture == Architecture::kGemma2 || config.architecture == Architecture::kGemma3;
  ASSIGN_OR_RETURN(config.sliding_window, config_uint(json, "sliding_window", gemma ? 4096 : 0, 0, kContextMax));
  ASSIGN_OR_RETURN(const bool used, json_bool(json, "use_sliding_window", !qwen));
  const bool windowed = config.architecture != Architecture::kLlama && config.architecture != Architecture::kGlm4Moe;  // they have no such field
  if (!used || !windowed) config.sliding_window = 0;
  config.sliding_layers.assign(config.layers, false);
  if (config.sliding_window == 0) return OkStatus();
  const auto types = json.find("layer_types");
  if (types == json.end() || types->is_null()) {
    ASSIGN_OR_RETURN(config.sliding_layers, default_sliding_layers(json, config));
    return OkStatus();
  }
  if (!types->is_array() || types->size() != config.layers) {
    return invalid_argument("'layer_types' is not a list with one entry for each of the ", config.layers, " layers");
  }
  for (uint32_t i = 0; i < config.layers; ++i) {
    const Json& type = (*types)[i];
    if (type != "sliding_attention" && type != "full_attention") {
      return unimplemented("'layer_types' entry ", i, " is neither 'full_attention' nor 'sliding_attention'");
    }
    config.sliding_layers[i] = type == "sliding_attention";
  }
  return OkStatus();
}

Status parse_attention(const Json& json, ModelConfig& config) {
  const bool gemma2 = config.architecture == Architecture::kGemma2, gemma3 = config.architecture == Architecture::kGemma3;
  double scalar = config.head_dim;
  if (gemma2 || gemma3) {
    ASSIGN_OR_RETURN(scalar, json_double(json, "query_pre_attn_scalar", 256));
    if (!(scalar > 0 && scalar < 1e9)) return invalid_argument("'query_pre_attn_scalar' is not a positive number");
    config.norm_weight_plus_one = true;
    config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  }
  config.query_scale = 1.0 / std::sqrt(scalar);
  ASSIGN_OR_RETURN(config.attention_softcap, json_double(json, "attn_logit_softcapping", gemma2 ? 50.0 : 0.0));
  ASSIGN_OR_RETURN(config.final_softcap, json_double(json, "final_logit_softcapping", gemma2 ? 30.0 : 0.0));
  const auto null_cap = [&](const char* key) { return json.contains(key) && json[key].is_null(); };
  if (null_cap("attn_logit_softcapping")) config.attention_softcap = 0;
  if (null_cap("final_logit_softcapping")) config.final_softcap = 0;
  ASSIGN_OR_RETURN(const bool bidirectional, json_bool(json, "use_bidirectional_attention", false));
  if (bidirectional) return unimplemented("'use_bidirectional_attention' is set; only causal attention is served");
  return OkStatus();
}

// Weights that were quantised by their publisher: only FP8 with block scales is served.
Status parse_quantization(const Json& json, ModelConfig& config) {
  const auto field = json.find("quantization_config");
  if (field == json.end() || field->is_null()) return OkStatus();
  if (!field->is_object()) return invalid_argument("'quantization_config' is not an object");
  ASSIGN_OR_RETURN(const std::string method, json_string(*field, "quant_method", ""));
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

StatusOr<ModelConfig> parse_hf_config(const Json& json) {
  if (!json.is_object()) return invalid_argument("is not a JSON object");
  ModelConfig config;
  ASSIGN_OR_RETURN(config.architecture, parse_architecture(json));
  RETURN_IF_ERROR(parse_sizes(json, config));
  RETURN_IF_ERROR(parse_activation(json, config.architecture));
  RETURN_IF_ERROR(parse_biases(json, config));
  RETURN_IF_ERROR(parse_window(json, config));
  RETURN_IF_ERROR(parse_attention(json, config));
  RETURN_IF_ERROR(parse_quantization(json, config));
  RETURN_IF_ERROR(parse_hf_experts(json, config));
  RETURN_IF_ERROR(parse_hf_rope(json, config));
  RETURN_IF_ERROR(check_config(config));
  return config;
}

StatusOr<GenerationConfig> parse_generation_config(const Json& config, const Json& generation) {
  GenerationConfig result;
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
