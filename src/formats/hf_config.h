// config.json and generation_config.json of a Hugging Face folder.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "formats/model_config.h"

namespace shoal {

// Both published forms are read: rope_theta / rope_scaling / torch_dtype at the top, and rope_parameters / dtype.
// InvalidArgument for a field that is missing, of the wrong type or out of bounds; Unimplemented for an architecture or
// feature that is not served; both name the field.
StatusOr<ModelConfig> parse_hf_config(const Json& config);

// `generation` may be null (no such file); ids then come from `config`.
StatusOr<GenerationConfig> parse_generation_config(const Json& config, const Json& generation);

}  // namespace shoal
