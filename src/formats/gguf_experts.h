// The metadata of a GGUF file that says how a layer's experts are chosen.
#pragma once

#include <cstdint>
#include <set>

#include "base/status.h"
#include "formats/gguf_fields.h"
#include "formats/model_config.h"

namespace shoal {

// Sets config.experts if the file counts some. REQUIRES: architecture, layers and intermediate_size are set.
Status parse_gguf_experts(const GgufFields& fields, const std::set<uint32_t>& routers, ModelConfig& config);

}  // namespace shoal
