// The metadata of GGUF files whose layers are not alike in their heads: Gemma 4 and MiMo-V2.
#pragma once

#include "base/status.h"
#include "formats/gguf_fields.h"
#include "formats/model_config.h"

namespace shoal {

bool has_gguf_shapes(Architecture architecture);
// Sets config.shapes, kv_heads and widths. REQUIRES: other sizes and windows are set.
Status parse_gguf_shapes(const GgufFields& fields, ModelConfig& config);

}  // namespace shoal
