// The fields of config.json that tell layers apart: windows, and layers that know no positions.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "formats/hf_families.h"

namespace shoal {

// Sets the window, sliding_layers and rope_layers. REQUIRES: architecture and layers are set.
Status parse_hf_layers(const Json& json, const HfFamily& family, ModelConfig& config);

}  // namespace shoal
