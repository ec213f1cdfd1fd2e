// The fields of config.json of families whose layers are not alike in their heads: Gemma 4 and MiMo-V2.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "formats/model_config.h"

namespace shoal {

// Sets config.shapes. REQUIRES: sizes and windows are set.
Status parse_hf_shapes(const Json& json, ModelConfig& config);

// Of layers where the last `shared` ones read what the last of their kind before them stores. Unimplemented if there is none.
Status share_last_layers(uint32_t shared, ModelConfig& config);

}  // namespace shoal
