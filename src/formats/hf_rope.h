// The rotary embedding part of config.json.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "formats/model_config.h"

namespace shoal {

// Sets config.rope, config.local_rope and, where a scaling lengthens it, config.context_length.
Status parse_hf_rope(const Json& json, ModelConfig& config);

}  // namespace shoal
