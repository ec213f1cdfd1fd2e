// The fields of config.json that say how a layer's experts are chosen.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "formats/model_config.h"

namespace shoal {

// Sets config.experts for architectures that have some. REQUIRES: architecture, layers and intermediate_size are set.
Status parse_hf_experts(const Json& json, ModelConfig& config);

}  // namespace shoal
