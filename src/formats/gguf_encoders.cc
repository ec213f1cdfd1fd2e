#include "formats/gguf_encoders.h"

#include <cmath>

#include "formats/gguf_fields.h"

namespace shoal {
namespace {

// Values of pooling_type.
enum : uint32_t { kPoolingNone = 0, kPoolingMean = 1, kPoolingFirst = 2, kPoolingLast = 3, kPoolingRank = 4 };

struct NamePair {
  std::string_view gguf, hf;
};
constexpr NamePair kTop[] = {{"token_embd.", "embeddings.word_embeddings."}, {"position_embd.", "embeddings.position_embeddings."},
                             {"token_types.", "embeddings.token_type_embeddings."}, {"token_embd_norm.", "embeddings.LayerNorm."}};
constexpr NamePair kLayer[] = {{"attn_q.", "attention.self.query."}, {"attn_k.", "attention.self.key."}, {"attn_v.", "attention.self.value."},
                               {"attn_output.", "attention.output.dense."}, {"attn_output_norm.", "attention.output.LayerNorm."},
                               {"ffn_up.", "intermediate.dense."}, {"ffn_down.", "output.dense."}, {"layer_output_norm.", "output.LayerNorm."}};
constexpr NamePair kBertHead[] = {{"cls.output.", "classifier."}, {"cls.", "pooler.dense."}};
constexpr NamePair kRobertaHead[] = {{"cls.output.", "classifier.out_proj."}, {"cls.", "classifier.dense."}};

std::optional<std::string> translate(std::span<const NamePair> pairs, const std::string& name) {
  for (const NamePair& pair : pairs) {
    if (name.starts_with(pair.gguf)) return std::string(pair.hf) + name.substr(pair.gguf.size());
  }
  return std::nullopt;
}

}  // namespace

Status parse_gguf_pooling(const GgufMetadata& metadata, ModelConfig& config) {
  const GgufFields fields(metadata, config.encoder ? Architecture::kBert : config.architecture);
  ASSIGN_OR_RETURN(const uint32_t type, fields.uint("pooling_type", config.encoder ? kPoolingMean : kPoolingNone, 0, 100));
  if (type == kPoolingNone && !config.encoder) return OkStatus();
  PooledConfig pooled;
  switch (type) {
    case kPoolingNone:
    case kPoolingMean: pooled.pooling = Pooling::kMean; break;
    case kPoolingFirst: pooled.pooling = Pooling::kFirst; break;
    case kPoolingLast: pooled.pooling = Pooling::kLast; break;
    case kPoolingRank: pooled = {Pooling::kFirst, false, 1}; break;
    default: return unimplemented("'pooling_type' is ", type, ", which is not served; mean, cls, last and rank are");
  }
  if (!config.encoder && type != kPoolingLast) {
    if (type == kPoolingRank) return OkStatus();  // a generative reranker, which is asked for two logits
    return unimplemented("'pooling_type' ", type, " of a decoder is not served; of the last token it is");
  }
  config.pooled = pooled;
  return OkStatus();
}

StatusOr<ModelConfig> parse_gguf_encoder(const GgufMetadata& metadata, const GgufTensorNames& names) {
  ModelConfig c;
  const GgufFields fields(metadata, Architecture::kBert);
  if (names.vocab_rows == 0 || names.vocab_rows > kVocabMax) return invalid_argument("there is no token embedding ('token_embd.weight') of a size that is served");
  c.vocab_size = static_cast<uint32_t>(names.vocab_rows);
  ASSIGN_OR_RETURN(const std::string tokenizer, metadata.text("tokenizer.ggml.model", ""));
  c.architecture = tokenizer == "bert" ? Architecture::kBert : Architecture::kRoberta;  // files of RoBERTa say that they are bert
  ASSIGN_OR_RETURN(c.hidden_size, fields.uint("embedding_length", std::nullopt, 1, kHiddenMax));
  ASSIGN_OR_RETURN(c.layers, fields.uint("block_count", std::nullopt, 1, kLayersMax));
  ASSIGN_OR_RETURN(c.heads, fields.uint("attention.head_count", std::nullopt, 1, kHeadsMax));
  ASSIGN_OR_RETURN(c.intermediate_size, fields.uint("feed_forward_length", std::nullopt, 1, 1u << 20));
  ASSIGN_OR_RETURN(c.context_length, fields.uint("context_length", 512, 4, kContextMax));
  ASSIGN_OR_RETURN(c.norm_eps, fields.number("attention.layer_norm_epsilon", 1e-12));
  if (c.hidden_size % c.heads != 0) return invalid_argument(c.heads, " heads do not divide the hidden size of ", c.hidden_size);
  c.kv_heads = c.heads;
  c.head_dim = c.hidden_size / c.heads;
  c.queries.scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim));
  c.layer_norm = true;
  c.rope.dims = c.head_dim;
  c.shapes.rope_layers.assign(c.layers, false);
  c.sliding_layers.assign(c.layers, false);
  c.biases = {.qkv = true, .output = true, .mlp = true};
  EncoderConfig& encoder = c.encoder.emplace();
  encoder.positions = names.position_rows;
  if (encoder.positions == 0) return unimplemented("there is no table of positions ('position_embd.weight'), which this architecture needs");
  c.context_length = std::min(c.context_length, encoder.positions);
  encoder.token_types = names.type_rows;
  if (encoder.token_types > 1) {
    ASSIGN_OR_RETURN(const int64_t separator, metadata.integer("tokenizer.ggml.seperator_token_id", -1, -1, kVocabMax - 1));
    if (separator >= 0) encoder.separator = static_cast<TokenId>(separator);
  }
  RETURN_IF_ERROR(parse_gguf_pooling(metadata, c));
  return c;
}

std::string encoder_tensor_name(Architecture architecture, const std::string& name) {
  if (name.starts_with("cls.")) return translate(architecture == Architecture::kBert ? std::span<const NamePair>(kBertHead) : kRobertaHead, name).value_or(name);
  if (!name.starts_with("blk.")) return translate(kTop, name).value_or(name);
  const size_t dot = name.find('.', 4);
  if (dot == std::string::npos) return name;
  const auto rest = translate(kLayer, name.substr(dot + 1));
  return rest ? "encoder.layer." + name.substr(4, dot - 4) + "." + *rest : name;
}

}  // namespace shoal
