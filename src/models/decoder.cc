#include "models/decoder.h"

#include <utility>

#include "base/check.h"
#include "models/rope.h"
#include "models/unpacked_weights.h"

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

StatusOr<std::shared_ptr<const DecoderLayers>> plan_layers(const ModelConfig& config, WeightLayout& layout) {
  switch (config.architecture) {
    case Architecture::kLlama: case Architecture::kMistral: case Architecture::kQwen2: case Architecture::kQwen3: case Architecture::kPhi3:
      return plan_llama_layers(config, layout);
    case Architecture::kGemma2: case Architecture::kGemma3: return plan_gemma_layers(config, layout);
  }
  return unimplemented("this architecture is not served");
}

class DecoderModel : public Model {
 public:
  // `pending`: the load that is still to put the matrices in their places, or null.
  DecoderModel(std::shared_ptr<const DecoderParts> parts, StepContext context, std::span<const float> divisors,
               std::shared_ptr<const PendingLoad> pending)
      : parts_(std::move(parts)), context_(std::move(context)), rope_(parts_->config.rope, divisors), pending_(std::move(pending)) {
    if (parts_->config.local_rope) local_rope_.emplace(*parts_->config.local_rope);
  }

  Status forward(const ForwardInput& input, std::span<std::byte> workspace, std::span<float> logits) override {
    std::shared_ptr<const UnpackedWeights> unpacked;
    if (pending_ != nullptr) {
      ASSIGN_OR_RETURN(unpacked, pending_->weights());
      if (unpacked == nullptr) pending_.reset();
    }
    const ModelConfig& config = parts_->config;
    CHECK_GE(logits.size(), input.logit_rows.size() * config.vocab_size);
    for (TokenId token : input.tokens) CHECK(token >= 0 && static_cast<uint32_t>(token) < config.vocab_size);
    const Step step(context_, input, workspace, unpacked.get());
    float* x = step.at().x;  // [rows, hidden]
    step.embed(parts_->embedding, x);
    if (config.embedding_scale != 1.0) step.scale(x, static_cast<float>(config.embedding_scale));
    step.rope_table(rope_, 0);
    if (local_rope_) step.rope_table(*local_rope_, 1);
    for (uint32_t layer = 0; layer < config.layers; ++layer) parts_->layers->run(step, layer);
    step.logits(x, parts_->final_norm, config.norm_eps, parts_->head, static_cast<float>(config.final_softcap), logits.data());
    return unpacked == nullptr ? OkStatus() : unpacked->check();
  }

 private:
  std::shared_ptr<const DecoderParts> parts_;
  StepContext context_;
  RopeFrequencies rope_;
  std::optional<RopeFrequencies> local_rope_;
  std::shared_ptr<const PendingLoad> pending_;
};

class DecoderPlan : public ModelPlan {
 public:
  DecoderPlan(std::shared_ptr<const Checkpoint> checkpoint, const LoadOptions& options)
      : checkpoint_(checkpoint), layout_(std::make_shared<WeightLayout>(std::move(checkpoint), options)) {}

  Status plan(const LoadOptions& options);

  uint64_t weight_bytes() const override { return layout_->bytes(); }
  uint64_t kv_block_bytes() const override { return kv_.block_bytes(); }
  uint64_t workspace_bytes(uint32_t rows, uint32_t logit_rows) const override { return shape_.bytes(rows, logit_rows); }
  uint32_t vocab_size() const override { return parts_->config.vocab_size; }
  uint32_t context_length() const override { return parts_->config.context_length; }
  uint64_t parameter_count() const override { return layout_->parameters(); }
  uint32_t kv_salt_above() const override {
    const RopeConfig& rope = parts_->config.rope;
    const bool by_length = rope.scaling == RopeScaling::kDynamic || rope.scaling == RopeScaling::kLongRope;
    return by_length ? rope.original_context : UINT32_MAX;
  }

  Status read_ahead(ThreadPool& threads, LoadControl& control) const override { return layout_->load_matrices({}, threads, control, nullptr); }

  StatusOr<std::unique_ptr<Model>> load(std::span<std::byte> memory, ThreadPool& load_threads, ThreadPool& step_threads,
                                        LoadControl& control) const override {
    layout_->load_vectors(memory);
    if (!control.early || !UnpackedWeights::can_serve(*layout_)) {
      RETURN_IF_ERROR(layout_->load_matrices(memory, load_threads, control, nullptr));
      return model_at(memory, step_threads, nullptr);
    }
    auto unpacked = std::make_shared<UnpackedWeights>(layout_);
    const auto pending = std::make_shared<PendingLoad>(unpacked);
    control.early(model_at(memory, step_threads, pending));
    const Status loaded = layout_->load_matrices(memory, load_threads, control, unpacked.get());
    pending->end(loaded);
    RETURN_IF_ERROR(loaded);
    return nullptr;
  }

 private:
  std::unique_ptr<Model> model_at(std::span<std::byte> memory, ThreadPool& step_threads, std::shared_ptr<const PendingLoad> pending) const {
    const WeightMemory weights = layout_->in(memory.data());
    std::span<const float> divisors;
    if (divisors_) divisors = {divisors_->at(weights), divisors_->size};
    return std::make_unique<DecoderModel>(parts_, StepContext{best_kernels(), step_threads, weights, kv_, shape_}, divisors, std::move(pending));
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<WeightLayout> layout_;
  std::shared_ptr<const DecoderParts> parts_;
  std::optional<VectorPlace> divisors_;  // of the rotary frequencies
  KvLayout kv_;
  StepShape shape_;
};

Status DecoderPlan::plan(const LoadOptions& options) {
  auto parts = std::make_shared<DecoderParts>();
  const ModelConfig& config = parts->config = checkpoint_->config;
  ASSIGN_OR_RETURN(parts->head, layout_->head("lm_head", "model.embed_tokens", config.vocab_size, config.hidden_size,
                                             config.tied_embeddings, parts->embedding));
  ASSIGN_OR_RETURN(parts->final_norm, layout_->vector("model.norm.weight", config.hidden_size, config.norm_weight_plus_one));
  if (config.rope.frequency_factors) {
    ASSIGN_OR_RETURN(divisors_, layout_->vector("rope_freqs.weight", config.rope.dims / 2));
  }
  ASSIGN_OR_RETURN(parts->layers, plan_layers(config, *layout_));
  kv_ = {kv_format(options.kv_type, layout_->quantized()), config.layers, config.kv_heads, config.head_dim};
  shape_.hidden = config.hidden_size;
  shape_.q_width = config.heads * config.head_dim;
  shape_.kv_width = config.kv_heads * config.head_dim;
  shape_.mlp_width = config.intermediate_size;
  shape_.rope_half = config.rope.dims / 2;
  shape_.head_dim = config.head_dim;
  shape_.context = config.context_length;
  shape_.local_rope = config.local_rope.has_value();
  shape_.quantized = layout_->quantized();
  parts_ = std::move(parts);
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<ModelPlan>> plan_model(std::shared_ptr<const Checkpoint> checkpoint, const LoadOptions& options) {
  auto plan = std::make_unique<DecoderPlan>(std::move(checkpoint), options);
  RETURN_IF_ERROR(plan->plan(options));
  return plan;
}

}  // namespace shoal
