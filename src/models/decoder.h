// A decoder-only transformer around the layers of one architecture: embedding, layers, final norm, output matrix.
#pragma once

#include <memory>

#include "base/status.h"
#include "formats/checkpoint.h"
#include "models/model.h"
#include "models/step.h"
#include "models/weights.h"

namespace shoal {

// The layers of one architecture; immutable, shared by the plan and every model loaded from it.
class DecoderLayers {
 public:
  virtual ~DecoderLayers() = default;
  // Takes the residual stream step.at().x through layer `layer`.
  virtual void run(const Step& step, uint32_t layer) const = 0;
};

// Everything about a model but the bytes.
struct DecoderParts {
  ModelConfig config;
  EmbeddingPlace embedding;
  std::shared_ptr<const DecoderLayers> layers;
  VectorPlace final_norm;
  MatrixPlace head;
};

// One per architecture file. Each asks `layout` for the tensors of its layers.
StatusOr<std::shared_ptr<const DecoderLayers>> plan_llama_layers(const ModelConfig& config, WeightLayout& layout);
StatusOr<std::shared_ptr<const DecoderLayers>> plan_gemma_layers(const ModelConfig& config, WeightLayout& layout);

}  // namespace shoal
