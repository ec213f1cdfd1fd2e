// The metadata of a GGUF file that describes multi-head latent attention.
#pragma once

#include "base/status.h"
#include "formats/gguf_fields.h"
#include "formats/model_config.h"

namespace shoal {

// Sets config.latent, head_dim and queries.scale for architectures that have it. Nothing for others.
bool has_gguf_index(Architecture architecture);  // with latent attention
Status parse_gguf_latent(const GgufFields& fields, ModelConfig& config);

// With yarn: the magnitude goes into the scale of the scores. REQUIRES: rope is set.
Status scale_gguf_latent(const GgufFields& fields, ModelConfig& config);

}  // namespace shoal
