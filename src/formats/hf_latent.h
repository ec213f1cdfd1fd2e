// The fields of config.json that describe multi-head latent attention.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "formats/model_config.h"

namespace shoal {

// Sets config.latent, head_dim and queries.scale for architectures that have it. REQUIRES: heads are set.
Status parse_hf_latent(const Json& json, ModelConfig& config);

// With yarn and mscale_all_dim, scores are scaled by the square of yarn's magnitude (arXiv 2309.00071, section 3.4, as DeepSeek
// applies it). Nothing for other models. REQUIRES: rope is set.
void scale_latent_queries(ModelConfig& config);

}  // namespace shoal
