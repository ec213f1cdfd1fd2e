// BERT (arXiv 1810.04805) and RoBERTa (arXiv 1907.11692; XLM-RoBERTa, arXiv 1911.02116): learned positions, norms after each block.
// ModernBERT (arXiv 2412.13663): rotary positions, norms before each block, gated MLPs, neighbours alone in two of three layers.
#include "models/encoder.h"

#include "models/blocks.h"
#include "models/decoder.h"

namespace shoal {
namespace {

struct NormPlaces {
  VectorPlace weight;
  std::optional<VectorPlace> bias;

  const VectorPlace* bias_or_null() const { return bias ? &*bias : nullptr; }
};

StatusOr<NormPlaces> plan_norm(const ModelConfig& config, WeightLayout& layout, const std::string& name) {
  NormPlaces norm;
  ASSIGN_OR_RETURN(norm.weight, layout.vector(name + ".weight", config.hidden_size));
  if (config.encoder->norm_biases) {
    ASSIGN_OR_RETURN(norm.bias, layout.vector(name + ".bias", config.hidden_size));
  }
  return norm;
}

// Rows see all of their text, or their neighbours to either side.
AttentionSpec encoder_attention(const ModelConfig& config, uint32_t layer) {
  AttentionSpec spec = attention_spec(config, layer);
  spec.ahead = spec.window == 0 ? kContextMax : spec.window - 1;
  return spec;
}

struct BertLayer {
  AttentionBlock attention;
  NormPlaces attention_norm;
  MatrixPlace up;    // [intermediate, hidden]
  MatrixPlace down;  // [hidden, intermediate]
  NormPlaces output_norm;
};

class BertLayers : public DecoderLayers {
 public:
  BertLayers(const ModelConfig& config, std::vector<BertLayer> layers) : config_(config), layers_(std::move(layers)) {}

  std::optional<Exchange> run(const Step& step, uint32_t index, uint32_t) const override {
    const BertLayer& layer = layers_[index];
    const StepBuffers& b = step.at();
    step.linear(b.x, {{&layer.attention.q, b.q}, {&layer.attention.k, b.k}, {&layer.attention.v, b.v}});  // [rows, heads, head_dim]
    step.attend(b.q, b.k, b.v, encoder_attention(config_, index), b.attn);                                // [rows, heads, head_dim]
    step.linear(b.attn, {{&layer.attention.o, b.x, true}});                                               // [rows, hidden]
    norm(step, layer.attention_norm);
    step.linear(b.x, {{&layer.up, b.gate}});                                                              // [rows, intermediate]
    step.linear(Step::Gated{Activation::kGeluErf, b.gate, {}, b.gate}, {{&layer.down, b.x, true}});       // [rows, hidden]
    norm(step, layer.output_norm);
    return std::nullopt;
  }

 private:
  void norm(const Step& step, const NormPlaces& places) const {
    step.normalize({step.at().x, places.weight, config_.norm_eps, step.at().x, NormKind::kLayer, places.bias_or_null()});
  }

  ModelConfig config_;
  std::vector<BertLayer> layers_;
};

StatusOr<BertLayer> plan_bert_layer(const ModelConfig& config, WeightLayout& layout, uint32_t index) {
  const std::string prefix = absl::StrCat(config.encoder->prefix, "encoder.layer.", index, ".");
  const uint32_t hidden = config.hidden_size, width = config.intermediate_size;
  const auto square = [&](const char* name) { return MatrixSpec{.name = prefix + name, .outputs = hidden, .columns = hidden, .bias = true}; };
  BertLayer layer;
  ASSIGN_OR_RETURN(layer.attention.q, layout.matrix(square("attention.self.query")));
  ASSIGN_OR_RETURN(layer.attention.k, layout.matrix(square("attention.self.key")));
  ASSIGN_OR_RETURN(layer.attention.v, layout.matrix(square("attention.self.value")));
  MatrixSpec output = square("attention.output.dense");
  output.chunk_unit = config.head_dim;
  ASSIGN_OR_RETURN(layer.attention.o, layout.matrix(output));
  ASSIGN_OR_RETURN(layer.attention_norm, plan_norm(config, layout, prefix + "attention.output.LayerNorm"));
  ASSIGN_OR_RETURN(layer.up, layout.matrix({.name = prefix + "intermediate.dense", .outputs = width, .columns = hidden, .bias = true}));
  ASSIGN_OR_RETURN(layer.down, layout.matrix({.name = prefix + "output.dense", .outputs = hidden, .columns = width, .bias = true, .chunk_unit = width % kQuantBlock == 0 ? kQuantBlock : 1}));
  ASSIGN_OR_RETURN(layer.output_norm, plan_norm(config, layout, prefix + "output.LayerNorm"));
  return layer;
}

struct ModernBertLayer {
  std::optional<NormPlaces> attention_norm;  // none in the first layer: the embeddings are normed
  AttentionBlock attention;
  NormPlaces mlp_norm;
  MlpBlock mlp;
};

class ModernBertLayers : public DecoderLayers {
 public:
  ModernBertLayers(const ModelConfig& config, std::vector<ModernBertLayer> layers) : config_(config), layers_(std::move(layers)) {}

  std::optional<Exchange> run(const Step& step, uint32_t index, uint32_t) const override {
    const ModernBertLayer& layer = layers_[index];
    const AttentionBlock& attention = layer.attention;
    const StepBuffers& b = step.at();
    const Step::Outputs qkv = {{&attention.q, b.q}, {&attention.k, b.k}, {&attention.v, b.v}};  // [rows, heads, head_dim]
    if (layer.attention_norm) {
      step.linear(normed(b, *layer.attention_norm), qkv);
    } else {
      step.linear(b.x, qkv);
    }
    turn_heads(step, config_, index, std::nullopt);
    step.attend(b.q, b.k, b.v, encoder_attention(config_, index), b.attn);                      // [rows, heads, head_dim]
    step.linear(b.attn, {{&attention.o, b.x, true}});                                           // [rows, hidden]
    step.linear(normed(b, layer.mlp_norm), {{&layer.mlp.gate, b.gate}, {&layer.mlp.up, b.up}}); // [rows, intermediate]
    step.linear(Step::Gated{Activation::kGeluErf, b.gate, b.up, b.gate}, {{&layer.mlp.down, b.x, true}});  // [rows, hidden]
    return std::nullopt;
  }

 private:
  Step::Normed normed(const StepBuffers& b, const NormPlaces& places) const {
    return {b.x, places.weight, config_.norm_eps, b.h, NormKind::kLayer, places.bias_or_null()};
  }

  ModelConfig config_;
  std::vector<ModernBertLayer> layers_;
};

StatusOr<ModernBertLayer> plan_modern_bert_layer(const ModelConfig& config, WeightLayout& layout, uint32_t index) {
  const std::string prefix = absl::StrCat(config.encoder->prefix, "layers.", index, ".");
  const uint32_t hidden = config.hidden_size, width = config.intermediate_size;
  ModernBertLayer layer;
  if (index > 0) {
    ASSIGN_OR_RETURN(layer.attention_norm, plan_norm(config, layout, prefix + "attn_norm"));
  }
  MatrixPlace* const parts[] = {&layer.attention.q, &layer.attention.k, &layer.attention.v};
  for (uint32_t i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(*parts[i], layout.matrix({.name = prefix + "attn.Wqkv", .outputs = hidden, .columns = hidden, .first_row = i * hidden, .stored_rows = 3 * hidden}));
  }
  ASSIGN_OR_RETURN(layer.attention.o, layout.matrix({.name = prefix + "attn.Wo", .outputs = hidden, .columns = hidden, .chunk_unit = config.head_dim}));
  ASSIGN_OR_RETURN(layer.mlp_norm, plan_norm(config, layout, prefix + "mlp_norm"));
  ASSIGN_OR_RETURN(layer.mlp.gate, layout.matrix({.name = prefix + "mlp.Wi", .outputs = width, .columns = hidden, .stored_rows = 2 * width}));
  ASSIGN_OR_RETURN(layer.mlp.up, layout.matrix({.name = prefix + "mlp.Wi", .outputs = width, .columns = hidden, .first_row = width, .stored_rows = 2 * width}));
  ASSIGN_OR_RETURN(layer.mlp.down, layout.matrix({.name = prefix + "mlp.Wo", .outputs = hidden, .columns = width, .chunk_unit = width % kQuantBlock == 0 ? kQuantBlock : 1}));
  return layer;
}

bool is_modern(const ModelConfig& config) { return config.architecture == Architecture::kModernBert; }

StatusOr<PooledParts::Dense> plan_dense(const ModelConfig& config, WeightLayout& layout, const std::string& name, uint32_t outputs, bool bias,
                                        Step::HeadActivation activation) {
  const uint32_t numbers = outputs * config.hidden_size;
  PooledParts::Dense dense{.activation = activation};
  ASSIGN_OR_RETURN(dense.matrix, layout.vector(WeightLayout::VectorPart{.name = name + ".weight", .size = numbers, .stored = numbers}));
  if (bias) {
    ASSIGN_OR_RETURN(dense.bias, layout.vector(name + ".bias", outputs));
  }
  return dense;
}

}  // namespace

StatusOr<std::shared_ptr<const DecoderLayers>> plan_encoder_layers(const ModelConfig& config, WeightLayout& layout) {
  if (is_modern(config)) {
    std::vector<ModernBertLayer> layers;
    for (uint32_t i = 0; i < config.layers; ++i) {
      ASSIGN_OR_RETURN(layers.emplace_back(), plan_modern_bert_layer(config, layout, i));
    }
    return std::make_shared<const ModernBertLayers>(config, std::move(layers));
  }
  std::vector<BertLayer> layers;
  for (uint32_t i = 0; i < config.layers; ++i) {
    ASSIGN_OR_RETURN(layers.emplace_back(), plan_bert_layer(config, layout, i));
  }
  return std::make_shared<const BertLayers>(config, std::move(layers));
}

StatusOr<EmbeddingPlace> plan_encoder_embedding(const ModelConfig& config, WeightLayout& layout) {
  const char* name = is_modern(config) ? "embeddings.tok_embeddings" : "embeddings.word_embeddings";
  return layout.embedding(config.encoder->prefix + name, config.vocab_size, config.hidden_size);
}

StatusOr<EncoderParts> plan_encoder_parts(const ModelConfig& config, WeightLayout& layout) {
  const EncoderConfig& encoder = *config.encoder;
  const std::string at = encoder.prefix + "embeddings.";
  EncoderParts parts;
  if (encoder.positions > 0) {
    ASSIGN_OR_RETURN(parts.positions, layout.embedding(at + "position_embeddings", encoder.positions, config.hidden_size));
  }
  if (encoder.token_types > 0) {
    ASSIGN_OR_RETURN(parts.types, layout.embedding(at + "token_type_embeddings", encoder.token_types, config.hidden_size));
  }
  ASSIGN_OR_RETURN(const NormPlaces norm, plan_norm(config, layout, at + (is_modern(config) ? "norm" : "LayerNorm")));
  parts.norm = norm.weight;
  parts.norm_bias = norm.bias;
  return parts;
}

StatusOr<VectorPlace> plan_encoder_final_norm(const ModelConfig& config, WeightLayout& layout) {
  if (!is_modern(config)) return VectorPlace();
  if (config.encoder->norm_biases) return unimplemented("'norm_bias' is set, which is not served for this architecture");
  return layout.vector(config.encoder->prefix + "final_norm.weight", config.hidden_size);
}

StatusOr<PooledParts> plan_pooled_parts(const ModelConfig& config, WeightLayout& layout) {
  using Kind = Step::HeadActivation;
  PooledParts parts;
  const uint32_t labels = config.pooled->labels, hidden = config.hidden_size;
  if (labels == 0) return parts;
  const auto add = [&](const std::string& name, uint32_t outputs, bool bias, Kind activation) -> Status {
    ASSIGN_OR_RETURN(parts.dense.emplace_back(), plan_dense(config, layout, name, outputs, bias, activation));
    return OkStatus();
  };
  switch (config.architecture) {
    case Architecture::kBert:
      RETURN_IF_ERROR(add(config.encoder->prefix + "pooler.dense", hidden, true, Kind::kTanh));
      RETURN_IF_ERROR(add("classifier", labels, true, Kind::kNone));
      break;
    case Architecture::kRoberta:
      RETURN_IF_ERROR(add("classifier.dense", hidden, true, Kind::kTanh));
      RETURN_IF_ERROR(add("classifier.out_proj", labels, true, Kind::kNone));
      break;
    case Architecture::kModernBert: {
      RETURN_IF_ERROR(add("head.dense", hidden, layout.has("head.dense.bias"), Kind::kGeluErf));
      ASSIGN_OR_RETURN(parts.norm, layout.vector("head.norm.weight", hidden));
      RETURN_IF_ERROR(add("classifier", labels, true, Kind::kNone));
      break;
    }
    default: RETURN_IF_ERROR(add("score", labels, false, Kind::kNone));
  }
  return parts;
}

void embed_text(const Step& step, const ModelConfig& config, const EncoderParts& parts, const EmbeddingPlace& tokens, const ForwardInput& input) {
  const StepBuffers& b = step.at();
  const EncoderConfig& encoder = *config.encoder;
  step.embed(tokens, b.x);  // [rows, hidden]
  std::vector<uint32_t> positions, types;
  size_t row = 0;
  for (const SequenceSlice& slice : input.slices) {
    bool second = false;
    for (uint32_t i = 0; i < slice.rows; ++i, ++row) {
      positions.push_back(encoder.first_position + slice.position + i);
      types.push_back(second && encoder.token_types > 1 ? 1 : 0);
      second |= encoder.separator && input.tokens[row] == *encoder.separator;
    }
  }
  if (parts.positions) step.add_rows(*parts.positions, positions, b.x);
  if (parts.types) step.add_rows(*parts.types, types, b.x);
  step.normalize({b.x, parts.norm, config.norm_eps, b.x, NormKind::kLayer, parts.norm_bias ? &*parts.norm_bias : nullptr});
}

void run_pooled_head(Step& step, const ModelConfig& config, const PooledParts& parts) {
  for (size_t i = 0; i < parts.dense.size(); ++i) {
    const PooledParts::Dense& dense = parts.dense[i];
    step.pooled_dense(dense.matrix, dense.bias ? &*dense.bias : nullptr, dense.activation);
    if (i == 0 && parts.norm) step.pooled_norm(*parts.norm, nullptr, config.norm_eps);
  }
}

}  // namespace shoal
