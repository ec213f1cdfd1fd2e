#include "models/decoder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "models/backend.h"
#include "models/expert_cache.h"
#include "models/expert_use.h"
#include "models/rope.h"
#include "models/step.h"
#include "models/unpacked_weights.h"
#include "tensor/tensor.h"

namespace shoal {
namespace {

KvFormat kv_format(KvType type, bool quantized) {
  switch (type) {
    case KvType::kF32: return KvFormat::kF32;
    case KvType::kF16: return KvFormat::kF16;
    case KvType::kBF16: return KvFormat::kBF16;
    case KvType::kQ8_0: return KvFormat::kQ8_0;
    default: return quantized ? KvFormat::kF16 : KvFormat::kF32;
  }
}

KvLayout kv_layout(const ModelConfig& config, KvFormat format) {
  KvLayout kv{format, {}, 0};
  for (uint32_t i = 0; i < config.layers; ++i) {
    const HeadShape heads = config.heads_of(i);
    const uint32_t source = config.kv_source_of(i);
    if (config.recurrent && !config.recurrent->attends(i)) {
      kv.layers.emplace_back();
    } else if (config.latent) {
      const uint32_t rank = config.latent->rank;
      kv.add({.queries = config.heads, .heads = 1, .key_dim = rank + config.rope.dims, .value_dim = rank, .compressed = true,
              .index_dim = config.latent->index && config.latent->index->layers[i] ? config.latent->index->dim : 0});
    } else if (source == i) {
      kv.add({.queries = heads.heads, .heads = heads.kv_heads, .key_dim = heads.head_dim, .value_dim = heads.value_dim});
    } else {
      kv.layers.push_back(kv.layers[source]);
      kv.layers.back().queries = heads.heads;
    }
  }
  return kv;
}

// Sets the places of the state's pieces; a block of KV is at least as large as each of them.
StateLayout state_layout(const ModelConfig& config, KvLayout& kv) {
  StateLayout state;
  if (!config.recurrent) return state;
  const RecurrentConfig& r = *config.recurrent;
  for (uint32_t i = 0; i < config.layers; ++i) {
    StateLayer& layer = state.layers.emplace_back();
    if (!r.recurs(i)) continue;
    const uint32_t values = r.heads * r.value_dim, keys = r.key_heads * r.key_dim;
    layer = {.channels = r.kind == RecurrentKind::kShortConvolution ? config.hidden_size : values + 2 * keys, .taps = r.taps, .heads = r.heads, .key_dim = r.key_dim,
             .value_dim = r.value_dim, .tails = {}, .scans = {}};
  }
  kv.block_bytes = std::max(kv.block_bytes, StateLayout::piece_bytes_max(state.layers));
  state.place(kv.block_bytes);
  return state;
}

StatusOr<std::shared_ptr<const DecoderLayers>> plan_layers(const ModelConfig& config, WeightLayout& layout) {
  if (config.recurrent) return plan_hybrid_layers(config, layout);
  switch (config.architecture) {
    case Architecture::kLlama: case Architecture::kMistral: case Architecture::kQwen2: case Architecture::kQwen3: case Architecture::kPhi3:
    case Architecture::kMixtral: case Architecture::kQwen2Moe: case Architecture::kQwen3Moe: case Architecture::kGlm4Moe:
    case Architecture::kOlmoe: case Architecture::kErnie45Moe: case Architecture::kHunyuanMoe: case Architecture::kMiniMaxM2: case Architecture::kGptOss: case Architecture::kLlama4: case Architecture::kMiMoV2:
    case Architecture::kSeedOss: case Architecture::kSmolLm3: case Architecture::kErnie45: case Architecture::kGranite:
    case Architecture::kGraniteHybrid: case Architecture::kHunyuanDense: case Architecture::kMinistral3:
      return plan_llama_layers(config, layout);
    case Architecture::kDeepseekV2: case Architecture::kDeepseekV3: case Architecture::kGlm4MoeLite:
    case Architecture::kMistral4: case Architecture::kLongcatFlash: case Architecture::kDeepseekV32: case Architecture::kGlmMoeDsa:
      return plan_deepseek_layers(config, layout);
    case Architecture::kGemma2: case Architecture::kGemma3: case Architecture::kGlm4: return plan_gemma_layers(config, layout);
    case Architecture::kGemma4: return plan_gemma4_layers(config, layout);
    case Architecture::kOlmo2: case Architecture::kOlmo3: case Architecture::kExaone4: return plan_olmo_layers(config, layout);
    case Architecture::kCohere2: return plan_cohere_layers(config, layout);
    case Architecture::kBert: case Architecture::kRoberta: case Architecture::kModernBert: return plan_encoder_layers(config, layout);
    default: return unimplemented("this architecture is not served");
  }
}

// What the passes of a model share.
struct DecoderState {
  std::shared_ptr<const DecoderParts> parts;
  StepContext context;
  RopeFrequencies rope;
  std::optional<RopeFrequencies> local_rope;
  std::unique_ptr<ExpertUse> expert_use;      // what the context points to
  std::unique_ptr<ExpertCache> expert_cache;
};

class DecoderPass : public Pass {
 public:
  DecoderPass(const DecoderState& model, const ForwardInput& input, std::unique_ptr<Step> step, std::shared_ptr<const UnpackedWeights> unpacked)
      : model_(model), input_(input), step_(std::move(step)), unpacked_(std::move(unpacked)) {}

  bool done() const override { return done_; }

  StatusOr<std::optional<Exchange>> advance(const Pause& pause) override {
    const uint32_t layers = model_.parts->config.layers;
    CHECK(!done_);
    if (!std::exchange(begun_, true)) begin();
    meanwhile();
    for (const uint32_t first = layer_; layer_ < layers; ++layer_, part_ = 0) {
      if (layer_ > first && pause && pause()) return std::nullopt;
      if (const std::optional<Exchange> exchange = model_.parts->layers->run(*step_, layer_, part_++)) {
        asked_ = exchange->routes != nullptr;
        return exchange;
      }
    }
    end();
    if (unpacked_ != nullptr) RETURN_IF_ERROR(unpacked_->check());
    if (model_.context.expert_cache != nullptr) RETURN_IF_ERROR(model_.context.expert_cache->check());
    return std::nullopt;
  }

  void meanwhile() override {
    if (std::exchange(asked_, false)) model_.parts->layers->meanwhile(*step_, layer_);
  }

  RowLogits logits(size_t i) override {
    CHECK(done_);
    return step_->logits_of(i);
  }

 private:
  void begin() {
    const ModelConfig& config = model_.parts->config;
    if (model_.parts->encoder) {
      embed_text(*step_, config, *model_.parts->encoder, model_.parts->embedding, input_);
    } else {
      step_->embed(model_.parts->embedding, step_->at().x);  // [rows, hidden]
    }
    if (config.scales.embedding != 1.0) step_->scale(step_->at().x, static_cast<float>(config.scales.embedding));
    step_->rope_table(model_.rope, 0);
    if (model_.local_rope) step_->rope_table(*model_.local_rope, 1);
  }

  void end() {
    const ModelConfig& config = model_.parts->config;
    done_ = true;
    if (model_.parts->pooled) return pool();
    step_->logits(step_->at().x, {model_.parts->final_norm, config.norm_eps, config.layer_norm ? NormKind::kLayer : NormKind::kRms,
                                  model_.parts->head, static_cast<float>(config.scales.logits), static_cast<float>(config.scales.softcap)});
  }

  void pool() {
    const ModelConfig& config = model_.parts->config;
    const StepBuffers& b = step_->at();
    const Step::Normed norm{b.x, model_.parts->final_norm, config.norm_eps, b.h, config.layer_norm ? NormKind::kLayer : NormKind::kRms};
    step_->pool(b.x, config.pooled->pooling, model_.parts->final_norm.size == 0 ? nullptr : &norm);
    run_pooled_head(*step_, config, *model_.parts->pooled);
  }

  const DecoderState& model_;
  const ForwardInput& input_;
  const std::unique_ptr<Step> step_;
  const std::shared_ptr<const UnpackedWeights> unpacked_;
  uint32_t layer_ = 0, part_ = 0;  // what comes next
  bool begun_ = false;
  bool asked_ = false;             // for experts, and what can be computed meanwhile is not
  bool done_ = false;
};

class DecoderModel : public Model {
 public:
  // `pending`: the load that is still to put the matrices in their places, or null.
  DecoderModel(DecoderState state, Backend& backend, std::shared_ptr<const PendingLoad> pending)
      : state_(std::move(state)), backend_(backend), pending_(std::move(pending)) {}

  StatusOr<std::unique_ptr<Pass>> begin(const ForwardInput& input, DeviceSpan workspace) override {
    std::shared_ptr<const UnpackedWeights> unpacked;
    if (pending_ != nullptr) {
      ASSIGN_OR_RETURN(unpacked, pending_->weights());
      if (unpacked == nullptr) pending_.reset();
    }
    const uint32_t vocab_size = state_.parts->config.vocab_size;
    for (const TokenId token : input.tokens) CHECK(token >= 0 && static_cast<uint32_t>(token) < vocab_size);
    auto step = backend_.begin(state_.context, input, workspace, unpacked.get());
    return std::make_unique<DecoderPass>(state_, input, std::move(step), std::move(unpacked));
  }

  uint64_t workspace_bytes(uint32_t rows, uint32_t logit_rows) const override { return state_.context.shape.bytes(rows, logit_rows); }

  bool whole_sequences() const override { return state_.parts->config.encoder.has_value(); }

  ExpertCounts expert_counts() const override {
    ExpertCounts counts;
    if (state_.expert_cache != nullptr) counts = state_.expert_cache->counts();
    if (state_.expert_use != nullptr) counts.skew = state_.expert_use->skew();
    return counts;
  }

  std::shared_ptr<const ExpertSlots> expert_slots() const override {
    return state_.expert_cache == nullptr ? nullptr : std::make_shared<const ExpertSlots>(state_.expert_cache->slots());
  }

 private:
  const DecoderState state_;
  Backend& backend_;
  std::shared_ptr<const PendingLoad> pending_;
};

class DecoderPlan : public ModelPlan {
 public:
  DecoderPlan(std::shared_ptr<const Checkpoint> checkpoint, const LoadOptions& options)
      : checkpoint_(checkpoint), layout_(std::make_shared<WeightLayout>(std::move(checkpoint), options)) {}

  Status plan(const LoadOptions& options, const WrapLayers& wrap);

  uint64_t weight_bytes() const override { return elsewhere_ ? layout_->experts_at() : layout_->bytes(); }
  uint64_t least_weight_bytes() const override {
    if (layout_->experts().empty() || elsewhere_) return weight_bytes();
    return std::min(weight_bytes(), ExpertCache::least_bytes(*layout_, parts_->config.experts->count));
  }
  uint64_t kv_block_bytes() const override { return kv_.block_bytes; }
  uint32_t state_blocks() const override { return state_.blocks; }
  uint64_t state_bytes() const override { return state_.bytes; }
  uint64_t workspace_bytes(uint32_t rows, uint32_t logit_rows) const override {
    if (parts_->config.encoder) rows = std::max(rows, parts_->config.context_length);  // the longest sequence, which is never cut
    return shape_.bytes(rows, logit_rows);
  }
  uint32_t vocab_size() const override { return parts_->config.vocab_size; }
  // Engines keep room for a token to be generated, also where none is.
  uint32_t context_length() const override { return parts_->config.context_length + (parts_->config.pooled ? 1 : 0); }
  uint64_t parameter_count() const override { return layout_->parameters(); }
  uint32_t kv_salt_above() const override {
    if (parts_->config.encoder) return 0;
    const auto above = [](const RopeConfig& rope) {
      const bool by_length = rope.scaling == RopeScaling::kDynamic || rope.scaling == RopeScaling::kLongRope;
      return by_length ? rope.original_context : UINT32_MAX;
    };
    const ModelConfig& config = parts_->config;
    return std::min(above(config.rope), config.local_rope ? above(*config.local_rope) : UINT32_MAX);
  }

  Status read_ahead(ThreadPool& threads, LoadControl& control) const override { 
    return layout_->load_matrices(nullptr, loaded_experts(weight_bytes()), threads, control, nullptr);
  }

  std::shared_ptr<const ExpertPlan> expert_plan() const override {
    std::vector<LayerExperts> layers;
    std::vector<uint32_t> numbers;
    for (uint32_t layer = 0; layer < parts_->config.layers; ++layer) {
      const std::optional<LayerExperts> experts = parts_->layers->experts(layer);
      if (!experts) continue;
      layers.push_back(*experts);
      numbers.push_back(layer);
    }
    if (layers.empty()) return nullptr;
    return std::make_shared<const ExpertPlan>(layout_, parts_, std::move(layers), std::move(numbers), shape_.hidden, parts_->config.experts->used);
  }

  StatusOr<std::unique_ptr<Model>> load(DeviceSpan memory, Backend& backend, ThreadPool& load_threads, LoadControl& control) const override {
    CHECK_GE(memory.bytes, least_weight_bytes());
    const auto experts = loaded_experts(memory.bytes);
    CHECK_EQ(memory.begin.address % kTensorAlignment, 0u);
    const uint64_t bytes = experts == WeightLayout::Experts::kLoaded ? layout_->bytes() : layout_->experts_at();
    if (covers(control.present, 0, bytes)) {  // that load has checked it
      control.bytes_done = bytes;
      return model_at(memory, backend, nullptr, control);
    }
    RETURN_IF_ERROR(layout_->check_finite());
    const std::unique_ptr<WeightSink> sink = backend.sink(memory);
    layout_->load_vectors(*sink, control);
    if (!control.early || !UnpackedWeights::can_serve(*layout_)) {
      RETURN_IF_ERROR(layout_->load_matrices(sink.get(), experts, load_threads, control, nullptr));
      return model_at(memory, backend, nullptr, control);
    }
    sink->finish();
    auto unpacked = std::make_shared<UnpackedWeights>(layout_, experts);
    const auto pending = std::make_shared<PendingLoad>(unpacked);
    control.early(model_at(memory, backend, pending, control));
    const Status loaded = layout_->load_matrices(sink.get(), experts, load_threads, control, unpacked.get());
    pending->end(loaded);
    RETURN_IF_ERROR(loaded);
    return nullptr;
  }

 private:
  Status plan_ends(DecoderParts& parts);
  void set_shape(const ModelConfig& config);
  WeightLayout::Experts loaded_experts(uint64_t memory_bytes) const {
    return elsewhere_ || memory_bytes < weight_bytes() ? WeightLayout::Experts::kLeft : WeightLayout::Experts::kLoaded;
  }
  void hold_experts(DeviceSpan memory, Backend& backend, const LoadControl& control, DecoderState& state) const {
    const auto count = static_cast<uint32_t>(layout_->experts().size());
    if (count == 0) return;
    const uint32_t per_layer = parts_->config.experts->count;
    state.expert_use = std::make_unique<ExpertUse>(count, per_layer);
    if (memory.bytes < weight_bytes()) state.expert_cache = std::make_unique<ExpertCache>(layout_, per_layer, memory.begin, memory.bytes, backend.sink(memory));
    if (state.expert_cache != nullptr && control.slots != nullptr) state.expert_cache->adopt(*control.slots, control.present);
    state.context.experts_elsewhere = elsewhere_;
    state.context.expert_use = state.expert_use.get();
    state.context.expert_cache = state.expert_cache.get();
  }

  std::unique_ptr<Model> model_at(DeviceSpan memory, Backend& backend, std::shared_ptr<const PendingLoad> pending, const LoadControl& control) const {
    const ModelConfig& config = parts_->config;
    std::vector<float> divisors;
    if (divisors_) divisors = layout_->read(*divisors_);
    DecoderState state{parts_, {layout_->in(memory.begin), kv_, shape_, state_}, RopeFrequencies(config.rope, divisors), std::nullopt, nullptr, nullptr};
    hold_experts(memory, backend, control, state);
    if (config.local_rope) state.local_rope.emplace(*config.local_rope);
    return std::make_unique<DecoderModel>(std::move(state), backend, std::move(pending));
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<WeightLayout> layout_;
  bool elsewhere_ = false;  // experts are
  std::shared_ptr<const DecoderParts> parts_;
  std::optional<VectorPlace> divisors_;  // of the rotary frequencies
  KvLayout kv_;
  StateLayout state_;
  StepShape shape_;
};

// What is before the first layer and after the last.
Status DecoderPlan::plan_ends(DecoderParts& parts) {
  const ModelConfig& config = parts.config;
  if (config.pooled && config.recurrent) return unimplemented("vectors of a model whose layers keep a state are not served");
  if (config.encoder) {
    ASSIGN_OR_RETURN(parts.embedding, plan_encoder_embedding(config, *layout_));
    ASSIGN_OR_RETURN(parts.encoder, plan_encoder_parts(config, *layout_));
    ASSIGN_OR_RETURN(parts.final_norm, plan_encoder_final_norm(config, *layout_));
  } else {
    if (config.pooled) {
      ASSIGN_OR_RETURN(parts.embedding, layout_->embedding("model.embed_tokens", config.vocab_size, config.hidden_size));
    } else {
      ASSIGN_OR_RETURN(parts.head, layout_->head("lm_head", "model.embed_tokens", config.vocab_size, config.hidden_size, config.tied_embeddings, parts.embedding));
    }
    ASSIGN_OR_RETURN(parts.final_norm, layout_->vector("model.norm.weight", config.hidden_size, config.norm_weight_plus_one));
  }
  if (config.pooled) {
    ASSIGN_OR_RETURN(parts.pooled, plan_pooled_parts(config, *layout_));
  }
  return OkStatus();
}

Status DecoderPlan::plan(const LoadOptions& options, const WrapLayers& wrap) {
  auto parts = std::make_shared<DecoderParts>();
  const ModelConfig& config = parts->config = checkpoint_->config;
  RETURN_IF_ERROR(plan_ends(*parts));
  if (config.rope.frequency_factors) {
    ASSIGN_OR_RETURN(divisors_, layout_->vector("rope_freqs.weight", config.rope.dims / 2));
  }
  ASSIGN_OR_RETURN(parts->layers, plan_layers(config, *layout_));
  // Where the family's layers can ask for them.
  for (uint32_t layer = 0; options.experts_elsewhere && layer < config.layers; ++layer) elsewhere_ |= parts->layers->experts(layer).has_value();
  if (wrap) parts->layers = wrap(std::move(parts->layers));
  kv_ = kv_layout(config, kv_format(options.kv_type, layout_->quantized()));
  state_ = state_layout(config, kv_);
  set_shape(config);
  parts_ = std::move(parts);
  return OkStatus();
}

void DecoderPlan::set_shape(const ModelConfig& config) {
  shape_.hidden = config.hidden_size;
  for (const KvLayer& layer : kv_.layers) {
    shape_.q_width = std::max({shape_.q_width, layer.query_width(), layer.out_width()});
    shape_.kv_width = std::max({shape_.kv_width, layer.key_width(), layer.value_width()});
    shape_.state_floats = std::max(shape_.state_floats, static_cast<uint32_t>(layer.queries * attention_state_floats(layer.value_dim)));
  }
  if (config.latent) {
    const LatentConfig& latent = *config.latent;
    shape_.latent_heads = config.heads;
    if (config.latent->index) shape_.index_heads = config.latent->index->heads, shape_.index_width = shape_.index_heads * config.latent->index->dim;
    shape_.latent_width = std::max(latent.rank, latent.key_dim);
    shape_.latent_query = std::max(config.heads * std::max(config.head_dim, latent.value_dim), latent.query_rank);
  }
  for (uint32_t i = 0; i < config.layers; ++i) shape_.mlp_width = std::max(shape_.mlp_width, config.mlp_width_of(i));
  if (config.shapes.input_width > 0) {
    shape_.embedded.layers = config.layers;
    shape_.embedded.width = config.shapes.input_width;
  }
  if (config.experts) {
    shape_.mlp_width = std::max(shape_.mlp_width, config.experts->shared_intermediate_size);
    shape_.experts = config.experts->count + config.experts->zero;
    shape_.spare = config.architecture == Architecture::kLongcatFlash ? 1 : config.architecture == Architecture::kGemma4 ? 2 : 0;
    shape_.experts_used = config.experts->used;
    shape_.expert_width = config.experts->intermediate_size;
  }
  if (config.recurrent) {
    const RecurrentConfig& r = *config.recurrent;
    const uint32_t values = r.heads * r.value_dim, keys = r.key_heads * r.key_dim;
    const bool convolution = r.kind == RecurrentKind::kShortConvolution, delta = r.kind == RecurrentKind::kDeltaNet;
    shape_.mixed = convolution ? config.hidden_size : values + 2 * keys;
    shape_.mixer_values = convolution ? config.hidden_size : values;
    shape_.mixer_times = r.kind == RecurrentKind::kKimiDelta ? r.heads * r.key_dim : r.heads;
    shape_.mixer_heads = r.heads;
    shape_.raw = std::max(delta ? 2 * values + 2 * keys : r.kind == RecurrentKind::kKimiDelta ? r.value_dim : 0, config.queries.gated ? 2 * config.heads * config.head_dim : 0);
    if (config.scales.residual != 1.0) shape_.spare = std::max(shape_.spare, 1u);
  }
  shape_.rope_half = std::max(config.rope.dims, config.local_rope ? config.local_rope->dims : 0) / 2;
  shape_.context = config.context_length;
  shape_.local_rope = config.local_rope.has_value();
  shape_.quantized = layout_->quantized();
  shape_.ahead = config.encoder.has_value();
}

}  // namespace

StatusOr<std::unique_ptr<ModelPlan>> plan_decoder(std::shared_ptr<const Checkpoint> checkpoint, const LoadOptions& options, const WrapLayers& wrap) {
  auto plan = std::make_unique<DecoderPlan>(std::move(checkpoint), options);
  RETURN_IF_ERROR(plan->plan(options, wrap));
  return plan;
}

StatusOr<std::unique_ptr<ModelPlan>> plan_model(std::shared_ptr<const Checkpoint> checkpoint, const LoadOptions& options) {
  return plan_decoder(std::move(checkpoint), options, nullptr);
}

}  // namespace shoal
