// What encoders and other pooled models have around their layers.
#pragma once

#include <optional>
#include <vector>

#include "base/status.h"
#include "formats/model_config.h"
#include "models/step.h"
#include "models/weights.h"

namespace shoal {

// Embeddings beside those of tokens.
struct EncoderParts {
  std::optional<EmbeddingPlace> positions;   // [positions, hidden]
  std::optional<EmbeddingPlace> types;       // [token_types, hidden]
  VectorPlace norm;                          // of the sum, [hidden]
  std::optional<VectorPlace> norm_bias;
};

// From a pooled vector to what the model gives.
struct PooledParts {
  struct Dense {
    VectorPlace matrix;                      // [outputs, inputs] as one vector
    std::optional<VectorPlace> bias;
    Step::HeadActivation activation = Step::HeadActivation::kNone;
  };
  std::vector<Dense> dense;                  // one after the other
  std::optional<VectorPlace> norm;           // after the first of them
};

StatusOr<EmbeddingPlace> plan_encoder_embedding(const ModelConfig& config, WeightLayout& layout);
StatusOr<EncoderParts> plan_encoder_parts(const ModelConfig& config, WeightLayout& layout);
// The norm of the last layer; size 0: there is none.
StatusOr<VectorPlace> plan_encoder_final_norm(const ModelConfig& config, WeightLayout& layout);
StatusOr<PooledParts> plan_pooled_parts(const ModelConfig& config, WeightLayout& layout);

// x = the sum of the embeddings, normed. `input`: as of the pass.
void embed_text(const Step& step, const ModelConfig& config, const EncoderParts& parts, const EmbeddingPlace& tokens, const ForwardInput& input);
void run_pooled_head(Step& step, const ModelConfig& config, const PooledParts& parts);

}  // namespace shoal
