// The rotary embedding part of config.json.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "formats/hf_families.h"

namespace shoal {

// Sets config.rope, config.local_rope, config.queries.growth and, where a scaling lengthens it, config.context_length.
Status parse_hf_rope(const Json& json, const HfFamily& family, ModelConfig& config);

}  // namespace shoal
