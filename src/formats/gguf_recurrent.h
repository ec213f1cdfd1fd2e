// The metadata of GGUF files whose layers keep a state.
#pragma once

#include "base/status.h"
#include "formats/gguf_fields.h"
#include "formats/model_config.h"

namespace shoal {

// Whether layers of such files keep a state, and what they attend with stands by layer.
bool has_gguf_state(Architecture architecture);
// Sets config.recurrent, kv_heads and widths. REQUIRES: other sizes and latent attention are set.
Status parse_gguf_recurrent(const GgufFields& fields, ModelConfig& config);

}  // namespace shoal
