// The fields of config.json of families whose layers keep a state.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "formats/model_config.h"

namespace shoal {

// Sets config.recurrent, and what else only these families have, where the config says that layers keep a state. REQUIRES: sizes,
// experts and latent attention are set.
Status parse_hf_recurrent(const Json& json, ModelConfig& config);

}  // namespace shoal
