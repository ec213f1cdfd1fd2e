#include "formats/gguf_config.h"

#include <algorithm>
#include <cmath>

#include "formats/config_checks.h"
#include "formats/gguf_encoders.h"
#include "formats/gguf_experts.h"
#include "formats/gguf_fields.h"
#include "formats/gguf_latent.h"
#include "formats/gguf_recurrent.h"
#include "formats/gguf_shapes.h"

namespace shoal {
namespace {

// Mistral and Mixtral files say that they are llama.
constexpr Architecture kServed[] = {
    Architecture::kLlama, Architecture::kQwen2, Architecture::kQwen3, Architecture::kGemma2, Architecture::kGemma3, Architecture::kPhi3,
    Architecture::kQwen2Moe, Architecture::kQwen3Moe, Architecture::kGlm4Moe, Architecture::kOlmoe, Architecture::kErnie45Moe,
    Architecture::kHunyuanMoe, Architecture::kMiniMaxM2, Architecture::kGptOss, Architecture::kLlama4, Architecture::kMiMoV2, Architecture::kGemma4, Architecture::kDeepseekV2, Architecture::kSeedOss,
    Architecture::kSmolLm3,
    Architecture::kErnie45, Architecture::kGranite, Architecture::kHunyuanDense, Architecture::kMinistral3, Architecture::kGlm4,
    Architecture::kOlmo2, Architecture::kExaone4, Architecture::kCohere2, Architecture::kBert, Architecture::kQwen3Next, Architecture::kQwen35,
    Architecture::kQwen35Moe, Architecture::kNemotronH, Architecture::kNemotronHMoe, Architecture::kFalconH1, Architecture::kLfm2,
    Architecture::kLfm2Moe, Architecture::kKimiLinear, Architecture::kGraniteHybrid, Architecture::kDeepseekV32, Architecture::kGlmMoeDsa,
};

// Control tokens that end a turn in published chat formats, whatever the file says about its eos.
constexpr const char* kEndTokens[] = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>",
                                      "<|end_of_text|>", "</s>", "<|end_of_sentence|>", "<|return|>", "<EOT>", "_<EOT>"};

Status parse_sizes(const GgufFields& fields, const GgufTensorNames& names, ModelConfig& c) {
  if (names.vocab_rows == 0 || names.vocab_rows > kVocabMax) return invalid_argument("there is no token embedding ('token_embd.weight') of a size that is served");
  c.vocab_size = static_cast<uint32_t>(names.vocab_rows);
  ASSIGN_OR_RETURN(c.hidden_size, fields.uint("embedding_length", std::nullopt, 1, kHiddenMax));
  ASSIGN_OR_RETURN(c.layers, fields.uint("block_count", std::nullopt, 1, kLayersMax));
  ASSIGN_OR_RETURN(const uint32_t drafts, fields.uint("nextn_predict_layers", 0, 0, kLayersMax));  // for speculation; not used
  if (drafts >= c.layers) return invalid_argument("'nextn_predict_layers' are ", drafts, " of ", c.layers, " blocks");
  c.layers -= drafts;
  ASSIGN_OR_RETURN(c.heads, fields.uint("attention.head_count", std::nullopt, 1, kHeadsMax));
  const bool shaped = has_gguf_shapes(c.architecture);  // it says these by layer
  c.kv_heads = c.heads, c.intermediate_size = 1;
  const bool stated = has_gguf_state(c.architecture);
  if (!shaped && !stated) {
    ASSIGN_OR_RETURN(c.kv_heads, fields.uint("attention.head_count_kv", c.heads, 1, kHeadsMax));
  }
  const bool widths = c.architecture == Architecture::kNemotronH || c.architecture == Architecture::kNemotronHMoe;
  if (!shaped && !widths) {
    const bool experts_alone = c.architecture == Architecture::kQwen35Moe;  // it says no other width
    ASSIGN_OR_RETURN(c.intermediate_size, fields.uint("feed_forward_length", experts_alone ? std::optional<uint32_t>(1) : std::nullopt, 1, 1u << 20));
  }
  ASSIGN_OR_RETURN(c.context_length, fields.uint("context_length", 2048, 1, kContextMax));
  const uint32_t head_dim = std::clamp<uint32_t>(c.hidden_size / c.heads, 1, kConfigHeadDimMax);
  ASSIGN_OR_RETURN(c.head_dim, fields.uint("attention.key_length", head_dim, 1, kLatentMax));
  ASSIGN_OR_RETURN(const uint32_t value_dim, fields.uint("attention.value_length", c.head_dim, 1, kLatentMax));
  const bool latent = c.architecture == Architecture::kDeepseekV2 || c.architecture == Architecture::kKimiLinear || has_gguf_index(c.architecture);  // they say them elsewhere
  if (c.head_dim > kConfigHeadDimMax && !latent) return invalid_argument("'attention.key_length' is above the limit of ", kConfigHeadDimMax);
  if (value_dim != c.head_dim && !latent && !shaped) return unimplemented("'attention.value_length' differs from 'attention.key_length', which is not served");
  const bool layer_norm = c.architecture == Architecture::kCohere2;
  ASSIGN_OR_RETURN(c.norm_eps, fields.number(layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", layer_norm ? 1e-5 : 1e-6));
  c.tied_embeddings = !names.output;
  c.biases.qkv = names.qkv_bias;
  c.biases.output = names.output_bias;
  c.biases.mlp = names.mlp_bias;
  return OkStatus();
}

// Whether q and k rows are stored for pairs (2i, 2i + 1).
bool interleaved(Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama: case Architecture::kSmolLm3: case Architecture::kGranite: case Architecture::kMinistral3:
    case Architecture::kErnie45: case Architecture::kErnie45Moe: case Architecture::kLlama4: case Architecture::kGlm4: case Architecture::kCohere2: case Architecture::kDeepseekV2: case Architecture::kDeepseekV32:
    case Architecture::kGlmMoeDsa:
      return true;
    default: return false;
  }
}

// What the files do not say; only the models with 128 experts do without norms.
void set_llama4_layers(ModelConfig& c) {
  c.shapes.rope_layers.assign(c.layers, true);
  for (uint32_t i = 3; i < c.layers; i += 4) c.shapes.rope_layers[i] = false;
  c.sliding_layers = c.shapes.rope_layers;
  c.queries.chunk = 8192;
  c.queries.growth = {.factor = 0.1, .tokens = 8192, .ahead = 1, .unturned_only = true};
  if (!c.experts || c.experts->count != 128) c.queries.norm = QkNorm::kTurnedUnit;
}

// What of the rotary embedding only some families have.
Status parse_family_rope(const GgufFields& fields, ModelConfig& c) {
  if (c.architecture == Architecture::kGemma3 || (c.architecture == Architecture::kOlmo2 && c.sliding_window > 0)) {
    c.local_rope = c.rope;
    c.local_rope->scaling = RopeScaling::kNone;
    c.local_rope->factor = 1.0;
    ASSIGN_OR_RETURN(c.local_rope->theta, fields.number("rope.freq_base_swa", c.architecture == Architecture::kGemma3 ? 10000.0 : c.rope.theta));
  }
  if (has_gguf_shapes(c.architecture)) {
    c.local_rope = c.rope;
    c.local_rope->frequency_factors = false;
    ASSIGN_OR_RETURN(c.local_rope->theta, fields.number("rope.freq_base_swa", 10000.0));
    ASSIGN_OR_RETURN(c.local_rope->dims, fields.uint("rope.dimension_count_swa", c.rope.dims, 1, kConfigHeadDimMax));
  }
  if (c.architecture == Architecture::kMinistral3) {
    ASSIGN_OR_RETURN(const double growth, fields.number("attention.temperature_scale", 0.0));
    if (growth != 0) c.queries.growth = {growth, c.rope.original_context};
  }
  if (c.architecture == Architecture::kGptOss) c.rope.truncate = false;
  if (c.architecture == Architecture::kGranite || c.architecture == Architecture::kGraniteHybrid) {
    ASSIGN_OR_RETURN(const bool turns, fields.boolean("rope.scaling.finetuned", true));
    if (!turns) c.shapes.rope_layers.assign(c.layers, false);
  }
  if (c.architecture == Architecture::kLlama4) set_llama4_layers(c);
  if (c.architecture == Architecture::kSmolLm3) {  // every fourth layer knows no positions; the files do not say so
    c.shapes.rope_layers.assign(c.layers, true);
    for (uint32_t i = 3; i < c.layers; i += 4) c.shapes.rope_layers[i] = false;
  }
  return OkStatus();
}

Status parse_yarn(const GgufFields& fields, double magnitude, RopeConfig& rope) {
  rope.scaling = RopeScaling::kYarn;
  ASSIGN_OR_RETURN(rope.beta_fast, fields.number("rope.scaling.yarn_beta_fast", 32.0));
  ASSIGN_OR_RETURN(rope.beta_slow, fields.number("rope.scaling.yarn_beta_slow", 1.0));
  ASSIGN_OR_RETURN(rope.mscale_all_dim, fields.number("rope.scaling.yarn_log_multiplier", 0.0));
  if (rope.mscale_all_dim != 0) rope.mscale = 1.0;
  // The default magnitude, 1 + ln(factor) / 10, is left to models/rope; here it comes with a factor.
  if (rope.factor > 1 && magnitude != 1.0) rope.attention_factor = magnitude * (1.0 + 0.1 * std::log(rope.factor));
  return OkStatus();
}

Status parse_rope(const GgufFields& fields, const GgufTensorNames& names, ModelConfig& c) {
  RopeConfig& rope = c.rope;
  rope.interleaved = interleaved(c.architecture);
  ASSIGN_OR_RETURN(rope.theta, fields.number("rope.freq_base", c.architecture == Architecture::kGemma3 ? 1e6 : 10000.0));
  ASSIGN_OR_RETURN(rope.dims, fields.uint("rope.dimension_count", c.head_dim, 1, kConfigHeadDimMax));
  ASSIGN_OR_RETURN(rope.original_context, fields.uint("rope.scaling.original_context_length", c.context_length, 1, kContextMax));
  ASSIGN_OR_RETURN(rope.factor, fields.number("rope.scaling.factor", 1.0));
  ASSIGN_OR_RETURN(const std::string kind, fields.text("rope.scaling.type"));
  ASSIGN_OR_RETURN(const double magnitude, fields.number("rope.scaling.attn_factor", 1.0));
  rope.frequency_factors = names.rope_freqs;
  if (kind == "linear") rope.scaling = RopeScaling::kLinear;
  if (kind == "yarn") RETURN_IF_ERROR(parse_yarn(fields, magnitude, rope));
  if (names.rope_factors) {
    rope.scaling = RopeScaling::kLongRope;
    rope.attention_factor = magnitude;
  } else if (!kind.empty() && kind != "none" && kind != "linear" && kind != "yarn") {
    return unimplemented("rope scaling '", kind, "' is not served; served are none, linear, yarn and longrope");
  }
  return parse_family_rope(fields, c);
}

// All layers but every n-th have windows, where the file does not list them; 0: the family has none.
uint32_t window_period(Architecture architecture) {
  switch (architecture) {
    case Architecture::kPhi3: return kLayersMax + 1;
    case Architecture::kGemma2: case Architecture::kGptOss: return 2;
    case Architecture::kGemma3: return 6;
    case Architecture::kOlmo2: case Architecture::kExaone4: case Architecture::kCohere2: return 4;
    case Architecture::kMiMoV2: case Architecture::kGemma4: return 6;
    default: return 0;
  }
}

Status parse_window(const GgufFields& fields, ModelConfig& c) {
  c.sliding_layers.assign(c.layers, false);
  const uint32_t period = window_period(c.architecture);
  ASSIGN_OR_RETURN(c.sliding_window, fields.uint("attention.sliding_window", c.architecture == Architecture::kGemma2 ? 4096 : 0, 0, kContextMax));
  if (c.sliding_window == 0 || period == 0) return OkStatus();
  for (uint32_t i = 0; i < c.layers; ++i) c.sliding_layers[i] = (i + 1) % period != 0;
  ASSIGN_OR_RETURN(std::vector<bool> listed, fields.layers("attention.sliding_window_pattern", c.layers));
  if (!listed.empty()) c.sliding_layers = std::move(listed);
  return OkStatus();
}

// Granite says the factors of its scores, embeddings, residuals and logits, Command R7B that of its logits.
Status parse_multipliers(const GgufFields& fields, ModelConfig& c) {
  const bool granite = c.architecture == Architecture::kGranite || c.architecture == Architecture::kGraniteHybrid;
  if (!granite && c.architecture != Architecture::kCohere2) return OkStatus();
  ASSIGN_OR_RETURN(c.scales.logits, fields.number("logit_scale", 1.0));
  if (!granite) return OkStatus();
  if (!(c.scales.logits > 0)) return invalid_argument("'granite.logit_scale' is not a positive number");
  c.scales.logits = 1.0 / c.scales.logits;
  ASSIGN_OR_RETURN(c.queries.scale, fields.number("attention.scale", c.queries.scale));
  ASSIGN_OR_RETURN(c.scales.embedding, fields.number("embedding_scale", 1.0));
  ASSIGN_OR_RETURN(c.scales.residual, fields.number("residual_scale", 1.0));
  return OkStatus();
}

Status parse_attention(const GgufFields& fields, ModelConfig& c) {
  const bool gemma2 = c.architecture == Architecture::kGemma2, gemma3 = c.architecture == Architecture::kGemma3;
  const bool gemma4 = c.architecture == Architecture::kGemma4;
  // The 27 B models of Gemma 2 and 3 (46 and 62 layers) scale by hidden / heads; the files do not say so.
  const bool by_hidden = (gemma2 && c.layers == 46) || (gemma3 && c.layers == 62);
  c.queries.scale = 1.0 / std::sqrt(by_hidden ? static_cast<double>(c.hidden_size) / c.heads : c.head_dim);
  if (gemma4) c.queries.scale = 1.0;
  if (gemma2 || gemma3 || gemma4) c.scales.embedding = std::sqrt(static_cast<double>(c.hidden_size));
  ASSIGN_OR_RETURN(c.queries.softcap, fields.number("attn_logit_softcapping", gemma2 ? 50.0 : 0.0));
  ASSIGN_OR_RETURN(c.scales.softcap, fields.number("final_logit_softcapping", gemma2 ? 30.0 : 0.0));
  return OkStatus();
}

Status read_id(const GgufMetadata& metadata, const char* field, std::optional<TokenId>& id) {
  const std::string key = std::string("tokenizer.ggml.") + field;
  if (!metadata.has(key)) return OkStatus();
  ASSIGN_OR_RETURN(const int64_t value, metadata.integer(key, 0, -1, int64_t{UINT32_MAX}));
  if (value >= 0 && value < kVocabMax) id = static_cast<TokenId>(value);  // UINT32_MAX and -1: none
  return OkStatus();
}

Status read_flag(const GgufMetadata& metadata, const char* field, std::optional<bool>& flag) {
  const std::string key = std::string("tokenizer.ggml.") + field;
  if (!metadata.has(key)) return OkStatus();
  ASSIGN_OR_RETURN(flag, metadata.boolean(key, false));
  return OkStatus();
}

Status read_ids(const GgufMetadata& metadata, GgufTokenizer& t) {
  RETURN_IF_ERROR(read_id(metadata, "bos_token_id", t.bos));
  RETURN_IF_ERROR(read_id(metadata, "eos_token_id", t.eos));
  RETURN_IF_ERROR(read_id(metadata, "eot_token_id", t.eot));
  RETURN_IF_ERROR(read_id(metadata, "eom_token_id", t.eom));
  RETURN_IF_ERROR(read_id(metadata, "unknown_token_id", t.unknown));
  RETURN_IF_ERROR(read_id(metadata, "seperator_token_id", t.separator));  // so spelt in the format
  RETURN_IF_ERROR(read_id(metadata, "padding_token_id", t.padding));
  RETURN_IF_ERROR(read_id(metadata, "mask_token_id", t.mask));
  RETURN_IF_ERROR(read_id(metadata, "cls_token_id", t.cls));
  RETURN_IF_ERROR(read_flag(metadata, "add_bos_token", t.add_bos));
  RETURN_IF_ERROR(read_flag(metadata, "add_eos_token", t.add_eos));
  RETURN_IF_ERROR(read_flag(metadata, "add_sep_token", t.add_separator));
  return read_flag(metadata, "add_space_prefix", t.add_space_prefix);
}

Status read_templates(const GgufMetadata& metadata, GgufTokenizer& t) {
  constexpr const char* kKey = "tokenizer.chat_template";
  ASSIGN_OR_RETURN(t.chat_template, metadata.text(kKey, ""));
  for (const auto& [key, value] : metadata.values) {
    const std::string prefix = std::string(kKey) + ".";
    if (key.compare(0, prefix.size(), prefix) != 0) continue;
    ASSIGN_OR_RETURN(t.chat_templates[key.substr(prefix.size())], metadata.text(key, ""));
  }
  return OkStatus();
}

}  // namespace

StatusOr<Architecture> gguf_architecture(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const std::string name, metadata.text("general.architecture", ""));
  if (name.empty()) return invalid_argument("'general.architecture' is missing");
  std::string served;
  for (const Architecture known : kServed) {
    if (name == architecture_name(known)) return known;
    absl::StrAppend(&served, served.empty() ? "" : ", ", architecture_name(known));
  }
  return unimplemented("architecture '", name, "' is not served; served are ", served);
}

StatusOr<GgufTokenizer> read_gguf_tokenizer(const GgufMetadata& metadata) {
  GgufTokenizer t;
  ASSIGN_OR_RETURN(t.model, metadata.text("tokenizer.ggml.model", ""));
  ASSIGN_OR_RETURN(t.pre, metadata.text("tokenizer.ggml.pre", ""));
  ASSIGN_OR_RETURN(t.tokens, metadata.texts("tokenizer.ggml.tokens"));
  ASSIGN_OR_RETURN(t.merges, metadata.texts("tokenizer.ggml.merges"));
  ASSIGN_OR_RETURN(const std::vector<double> scores, metadata.numbers("tokenizer.ggml.scores"));
  ASSIGN_OR_RETURN(const std::vector<double> types, metadata.numbers("tokenizer.ggml.token_type"));
  if (t.tokens.size() > kVocabMax) return invalid_argument("'tokenizer.ggml.tokens' has more than ", kVocabMax, " entries");
  for (const auto& [name, size] : {std::pair{"scores", scores.size()}, std::pair{"token_type", types.size()}}) {
    if (size != 0 && size != t.tokens.size()) {
      return invalid_argument("'tokenizer.ggml.", name, "' has ", size, " entries for ", t.tokens.size(), " tokens");
    }
  }
  t.scores.assign(scores.begin(), scores.end());
  for (double type : types) t.token_types.push_back(type >= 0 && type < 100 ? static_cast<int32_t>(type) : 0);
  RETURN_IF_ERROR(read_ids(metadata, t));
  RETURN_IF_ERROR(read_templates(metadata, t));
  return t;
}

StatusOr<ModelConfig> parse_gguf_config(const GgufMetadata& metadata, const GgufTensorNames& names) {
  ModelConfig config;
  ASSIGN_OR_RETURN(config.architecture, gguf_architecture(metadata));
  if (config.architecture == Architecture::kBert) return parse_gguf_encoder(metadata, names);
  const GgufFields fields(metadata, config.architecture);
  RETURN_IF_ERROR(parse_sizes(fields, names, config));
  RETURN_IF_ERROR(parse_gguf_experts(fields, names.routers, config));
  RETURN_IF_ERROR(parse_window(fields, config));
  RETURN_IF_ERROR(parse_gguf_shapes(fields, config));
  RETURN_IF_ERROR(parse_attention(fields, config));
  RETURN_IF_ERROR(parse_multipliers(fields, config));
  RETURN_IF_ERROR(parse_gguf_latent(fields, config));
  RETURN_IF_ERROR(parse_gguf_recurrent(fields, config));
  RETURN_IF_ERROR(parse_rope(fields, names, config));
  RETURN_IF_ERROR(scale_gguf_latent(fields, config));
  set_family_facts(config);
  RETURN_IF_ERROR(parse_gguf_pooling(metadata, config));
  return config;
}

GenerationConfig gguf_generation(const GgufTokenizer& tokenizer) {
  GenerationConfig result;
  result.bos = tokenizer.bos;
  result.pad = tokenizer.padding;
  const auto add = [&](TokenId id) {
    if (std::find(result.eos.begin(), result.eos.end(), id) == result.eos.end()) result.eos.push_back(id);
  };
  for (const auto& id : {tokenizer.eos, tokenizer.eot, tokenizer.eom}) {
    if (id) add(*id);
  }
  for (size_t i = 0; i < tokenizer.token_types.size(); ++i) {
    if (tokenizer.token_types[i] != 3 && tokenizer.token_types[i] != 4) continue;  // control, user-defined
    for (const char* end : kEndTokens) {
      if (tokenizer.tokens[i] == end) add(static_cast<TokenId>(i));
    }
  }
  return result;
}

}  // namespace shoal
