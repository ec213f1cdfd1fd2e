// A transformer around the layers of one architecture: embedding, layers, final norm, and the output matrix of a decoder or the
// pooling of a model that gives vectors.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/status.h"
#include "formats/checkpoint.h"
#include "models/encoder.h"
#include "models/expert_plan.h"
#include "models/model.h"
#include "models/step.h"
#include "models/weights.h"

namespace shoal {

// The layers of one architecture; immutable, shared by the plan and every model loaded from it.
class DecoderLayers {
 public:
  virtual ~DecoderLayers() = default;
  // Takes the residual stream step.at().x through layer `layer`, from one exchange to the next: part 0 is the layer's
  // begin, part n what follows the n-th exchange. Returns what the layer waits for; nullopt: it is done.
  virtual std::optional<Exchange> run(const Step& step, uint32_t layer, uint32_t part) const = 0;
  // After an exchange that was asked for: what needs no answer to it.
  virtual void meanwhile(const Step&, uint32_t) const {}
  // Of a layer with experts.
  virtual std::optional<LayerExperts> experts(uint32_t) const { return std::nullopt; }
};

// Everything about a model but the bytes.
struct DecoderParts {
  ModelConfig config;
  EmbeddingPlace embedding;
  std::shared_ptr<const DecoderLayers> layers;
  VectorPlace final_norm;               // size 0: none
  MatrixPlace head;                     // of generative models
  std::optional<EncoderParts> encoder;
  std::optional<PooledParts> pooled;
};

// `wrap`, if any, is given the layers of the architecture and returns those that the model has: a part of them may be computed
// elsewhere. Else as plan_model().
using WrapLayers = std::function<std::shared_ptr<const DecoderLayers>(std::shared_ptr<const DecoderLayers>)>;
StatusOr<std::unique_ptr<ModelPlan>> plan_decoder(std::shared_ptr<const Checkpoint> checkpoint, const LoadOptions& options, const WrapLayers& wrap);

// One per architecture file. Each asks `layout` for the tensors of its layers.
StatusOr<std::shared_ptr<const DecoderLayers>> plan_llama_layers(const ModelConfig& config, WeightLayout& layout);
StatusOr<std::shared_ptr<const DecoderLayers>> plan_deepseek_layers(const ModelConfig& config, WeightLayout& layout);
StatusOr<std::shared_ptr<const DecoderLayers>> plan_gemma_layers(const ModelConfig& config, WeightLayout& layout);
StatusOr<std::shared_ptr<const DecoderLayers>> plan_gemma4_layers(const ModelConfig& config, WeightLayout& layout);
StatusOr<std::shared_ptr<const DecoderLayers>> plan_hybrid_layers(const ModelConfig& config, WeightLayout& layout);
StatusOr<std::shared_ptr<const DecoderLayers>> plan_olmo_layers(const ModelConfig& config, WeightLayout& layout);
StatusOr<std::shared_ptr<const DecoderLayers>> plan_encoder_layers(const ModelConfig& config, WeightLayout& layout);
StatusOr<std::shared_ptr<const DecoderLayers>> plan_cohere_layers(const ModelConfig& config, WeightLayout& layout);

}  // namespace shoal
