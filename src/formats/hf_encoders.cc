#include "formats/hf_encoders.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "formats/config_checks.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kFileBytesMax = 64u << 20;
constexpr std::string_view kScoreHead = "ForSequenceClassification";

struct EncoderClass {
  std::string_view name;
  Architecture architecture;
  const char* prefix;  // of tensors, where a head stands beside the encoder
};
constexpr EncoderClass kClasses[] = {
    {"Bert", Architecture::kBert, "bert."},
    {"XLMRoberta", Architecture::kRoberta, "roberta."},
    {"Roberta", Architecture::kRoberta, "roberta."},
    {"ModernBert", Architecture::kModernBert, "model."},
};

std::string class_name(const Json& config) {
  const auto list = config.find("architectures");
  const bool named = list != config.end() && list->is_array() && !list->empty() && list->front().is_string();
  return named ? list->front().get<std::string>() : "";
}

const EncoderClass* find_class(const std::string& name) {
  const auto is_it = [&](const EncoderClass& c) { return name == std::string(c.name) + "Model" || name == std::string(c.name) + std::string(kScoreHead); };
  const auto found = std::find_if(std::begin(kClasses), std::end(kClasses), is_it);
  return found == std::end(kClasses) ? nullptr : &*found;
}

StatusOr<uint32_t> label_count(const Json& config) {
  if (const auto labels = config.find("id2label"); labels != config.end() && labels->is_object() && !labels->empty()) {
    if (labels->size() > 4096) return invalid_argument("'id2label' has ", labels->size(), " labels");
    return static_cast<uint32_t>(labels->size());
  }
  return config_uint(config, "num_labels", 2, 1, 4096);
}

Status parse_sizes(const Json& json, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.vocab_size, config_uint(json, "vocab_size", std::nullopt, 1, kVocabMax));
  ASSIGN_OR_RETURN(config.hidden_size, config_uint(json, "hidden_size", std::nullopt, 1, kHiddenMax));
  ASSIGN_OR_RETURN(config.layers, config_uint(json, "num_hidden_layers", std::nullopt, 1, kLayersMax));
  ASSIGN_OR_RETURN(config.heads, config_uint(json, "num_attention_heads", std::nullopt, 1, kHeadsMax));
  ASSIGN_OR_RETURN(config.intermediate_size, config_uint(json, "intermediate_size", std::nullopt, 1, 1u << 20));
  ASSIGN_OR_RETURN(config.context_length, config_uint(json, "max_position_embeddings", 512, 4, kContextMax));
  if (config.hidden_size % config.heads != 0) return invalid_argument(config.heads, " heads do not divide the hidden size of ", config.hidden_size);
  config.kv_heads = config.heads;
  config.head_dim = config.hidden_size / config.heads;
  config.queries.scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  config.layer_norm = true;
  config.rope.dims = config.head_dim;
  return OkStatus();
}

Status expect(const Json& json, const char* key, const char* wanted) {
  ASSIGN_OR_RETURN(const std::string value, json_string(json, key, wanted));
  if (value != wanted) return unimplemented("'", key, "' is '", value, "', which is not served; '", wanted, "' is");
  return OkStatus();
}

// BERT (arXiv 1810.04805) and RoBERTa (arXiv 1907.11692), whose positions are counted from beyond the padding's id.
Status parse_bert(const Json& json, ModelConfig& config) {
  EncoderConfig& encoder = *config.encoder;
  ASSIGN_OR_RETURN(config.norm_eps, json_double(json, "layer_norm_eps", 1e-12));
  RETURN_IF_ERROR(expect(json, "hidden_act", "gelu"));
  RETURN_IF_ERROR(expect(json, "position_embedding_type", "absolute"));
  ASSIGN_OR_RETURN(const bool decoder, json_bool(json, "is_decoder", false));
  if (decoder) return unimplemented("'is_decoder' is set, which is not served for this architecture");
  encoder.positions = config.context_length;
  ASSIGN_OR_RETURN(encoder.token_types, config_uint(json, "type_vocab_size", 2, 1, 4096));
  if (config.architecture == Architecture::kRoberta) {
    ASSIGN_OR_RETURN(const uint32_t padding, config_uint(json, "pad_token_id", 1, 0, config.context_length - 2));
    encoder.first_position = padding + 1;
    config.context_length -= padding + 1;
  }
  config.shapes.rope_layers.assign(config.layers, false);
  config.sliding_layers.assign(config.layers, false);
  config.biases = {.qkv = true, .output = true, .mlp = true};
  return OkStatus();
}

StatusOr<double> modern_theta(const Json& json, const char* kind, const char* old_key, double fallback) {
  const auto parameters = json.find("rope_parameters");
  if (parameters != json.end() && parameters->is_object() && parameters->contains(kind) && (*parameters)[kind].is_object()) {
    RETURN_IF_ERROR(expect((*parameters)[kind], "rope_type", "default"));
    return json_double((*parameters)[kind], "rope_theta", fallback);
  }
  return json_double(json, old_key, fallback);
}

// ModernBERT (arXiv 2412.13663): rotary positions, and attention to the neighbours alone in two of three layers.
Status parse_modern_bert(const Json& json, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.norm_eps, json_double(json, "norm_eps", 1e-5));
  RETURN_IF_ERROR(expect(json, "hidden_activation", "gelu"));
  ASSIGN_OR_RETURN(config.encoder->norm_biases, json_bool(json, "norm_bias", false));
  ASSIGN_OR_RETURN(const bool attention_bias, json_bool(json, "attention_bias", false));
  ASSIGN_OR_RETURN(const bool mlp_bias, json_bool(json, "mlp_bias", false));
  if (attention_bias || mlp_bias) return unimplemented("'attention_bias' or 'mlp_bias' is set, which is not served for this architecture");
  ASSIGN_OR_RETURN(const uint32_t local, config_uint(json, "local_attention", 128, 2, kContextMax));
  ASSIGN_OR_RETURN(const uint32_t every, config_uint(json, "global_attn_every_n_layers", 3, 1, kLayersMax));
  config.sliding_window = local / 2 + 1;  // to either side, itself included
  for (uint32_t i = 0; i < config.layers; ++i) config.sliding_layers.push_back(i % every != 0);
  if (const auto types = json.find("layer_types"); types != json.end() && types->is_array()) {
    if (types->size() != config.layers) return invalid_argument("'layer_types' has ", types->size(), " entries for ", config.layers, " layers");
    for (uint32_t i = 0; i < config.layers; ++i) config.sliding_layers[i] = (*types)[i] == "sliding_attention";
  }
  ASSIGN_OR_RETURN(config.rope.theta, modern_theta(json, "full_attention", "global_rope_theta", 160'000.0));
  config.local_rope = config.rope;
  ASSIGN_OR_RETURN(config.local_rope->theta, modern_theta(json, "sliding_attention", "local_rope_theta", 10'000.0));
  return OkStatus();
}

StatusOr<std::optional<Json>> json_at(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<Json>();
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kFileBytesMax));
  auto json = parse_json(text);
  if (!json.ok()) return annotate(json.status(), path);
  return std::optional<Json>(*std::move(json));
}

// Of 1_Pooling/config.json: one of its modes.
StatusOr<Pooling> pooling_of(const Json& json) {
  if (json.contains("pooling_mode") && json["pooling_mode"].is_string()) {
    const std::string mode = json["pooling_mode"].get<std::string>();
    if (mode == "cls") return Pooling::kFirst;
    if (mode == "mean") return Pooling::kMean;
    if (mode == "lasttoken") return Pooling::kLast;
    return unimplemented("the pooling '", mode, "' is not served; cls, mean and lasttoken are");
  }
  constexpr std::pair<const char*, Pooling> kServed[] = {
      {"pooling_mode_cls_token", Pooling::kFirst}, {"pooling_mode_mean_tokens", Pooling::kMean}, {"pooling_mode_lasttoken", Pooling::kLast}};
  std::optional<Pooling> found;
  for (const auto& [key, value] : json.items()) {
    if (!key.starts_with("pooling_mode_") || value != true) continue;
    const auto* mode = std::find_if(std::begin(kServed), std::end(kServed), [&key = key](const auto& m) { return key == m.first; });
    if (mode == std::end(kServed)) return unimplemented("'", key, "' is not served; cls, mean and last token are");
    if (found) return unimplemented("two poolings that are joined are not served");
    found = mode->second;
  }
  if (!found) return invalid_argument("names no pooling");
  return *found;
}

Status read_modules(const std::string& folder, const Json& modules, ModelConfig& config) {
  if (!modules.is_array()) return invalid_argument("is not a list of modules");
  PooledConfig pooled{.normalize = false};
  for (const Json& module : modules) {
    ASSIGN_OR_RETURN(const std::string type, json_string(module, "type", ""));
    ASSIGN_OR_RETURN(const std::string path, json_string(module, "path", ""));
    const std::string kind = type.substr(type.rfind('.') + 1);
    if (kind == "Transformer") continue;
    if (kind == "Normalize") {
      pooled.normalize = true;
    } else if (kind == "Pooling" && path.find("..") == std::string::npos) {
      const std::string at = folder + "/" + path + "/config.json";
      ASSIGN_OR_RETURN(const auto json, json_at(at));
      if (!json) return not_found(at, " is missing");
      const auto pooling = pooling_of(*json);
      if (!pooling.ok()) return annotate(pooling.status(), at);
      pooled.pooling = *pooling;
    } else {
      return unimplemented("the module '", type, "' is not served; Transformer, Pooling and Normalize are");
    }
  }
  config.pooled = pooled;
  return OkStatus();
}

// The id of "[SEP]" in tokenizer.json or vocab.txt: where the second of two texts begins, for those who tell them apart.
StatusOr<std::optional<TokenId>> separator_of(const std::string& folder) {
  ASSIGN_OR_RETURN(const auto tokenizer, json_at(folder + "/tokenizer.json"));
  if (!tokenizer || !tokenizer->is_object() || !tokenizer->contains("added_tokens") || !(*tokenizer)["added_tokens"].is_array()) return std::optional<TokenId>();
  for (const Json& token : (*tokenizer)["added_tokens"]) {
    if (!token.is_object() || token.value("content", Json()) != "[SEP]") continue;
    ASSIGN_OR_RETURN(const int64_t id, json_int(token, "id", 0, 0, kVocabMax - 1));
    return std::optional<TokenId>(static_cast<TokenId>(id));
  }
  return std::optional<TokenId>();
}

}  // namespace

bool is_hf_encoder(const Json& config) { return config.is_object() && find_class(class_name(config)) != nullptr; }

StatusOr<ModelConfig> parse_hf_encoder(const Json& json) {
  const std::string name = class_name(json);
  const EncoderClass* known = find_class(name);
  if (known == nullptr) return unimplemented("architecture '", name, "' is no encoder that is served");
  ModelConfig config;
  config.architecture = known->architecture;
  config.encoder.emplace();
  config.pooled.emplace();
  RETURN_IF_ERROR(parse_sizes(json, config));
  RETURN_IF_ERROR(known->architecture == Architecture::kModernBert ? parse_modern_bert(json, config) : parse_bert(json, config));
  if (name.ends_with(kScoreHead)) {
    ASSIGN_OR_RETURN(config.pooled->labels, label_count(json));
    config.pooled->normalize = false;
    config.pooled->pooling = Pooling::kFirst;
    ASSIGN_OR_RETURN(const std::string pooling, json_string(json, "classifier_pooling", "cls"));
    if (known->architecture == Architecture::kModernBert && pooling == "mean") config.pooled->pooling = Pooling::kMean;
    config.encoder->prefix = known->prefix;
  }
  RETURN_IF_ERROR(check_config(config));
  return config;
}

Json without_score_head(const Json& config) {
  const std::string name = config.is_object() ? class_name(config) : "";
  if (!name.ends_with(kScoreHead)) return config;
  Json decoder = config;
  decoder["architectures"] = {name.substr(0, name.size() - kScoreHead.size()) + "ForCausalLM"};
  return decoder;
}

Status read_pooling_files(const std::string& folder, const Json& config_json, ModelConfig& config) {
  if (!config.encoder && config_json.is_object() && class_name(config_json).ends_with(kScoreHead)) {
    ASSIGN_OR_RETURN(const uint32_t labels, label_count(config_json));
    config.pooled = PooledConfig{Pooling::kLast, false, labels};
  }
  ASSIGN_OR_RETURN(const auto modules, json_at(folder + "/modules.json"));
  const bool scored = config.pooled && config.pooled->labels > 0;
  if (modules && !scored) {
    const Status read = read_modules(folder, *modules, config);
    if (!read.ok()) return annotate(read, folder + "/modules.json");
  }
  if (!config.pooled) return OkStatus();
  if (!config.encoder && config.pooled->pooling != Pooling::kLast) {
    return unimplemented(folder, ": pooling '", pooling_name(config.pooled->pooling), "' of a decoder is not served; of the last token it is");
  }
  ASSIGN_OR_RETURN(const auto limits, json_at(folder + "/sentence_bert_config.json"));
  if (limits && limits->is_object()) {
    ASSIGN_OR_RETURN(const uint32_t most, config_uint(*limits, "max_seq_length", config.context_length, 1, kContextMax));
    config.context_length = std::min(config.context_length, most);
  }
  if (config.encoder && config.encoder->token_types > 1) {
    ASSIGN_OR_RETURN(config.encoder->separator, separator_of(folder));
  }
  return OkStatus();
}

}  // namespace shoal
