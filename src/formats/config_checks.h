// Bounds and consistency of a ModelConfig, whatever format it came from.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "formats/model_config.h"

namespace shoal {

// A whole number in [min, max]. Absent or null gives `fallback`, or InvalidArgument if there is none.
StatusOr<uint32_t> config_uint(const Json& json, std::string_view key, std::optional<uint32_t> fallback, uint32_t min,
                               uint32_t max);

// What every architecture relies on: kv heads divide heads, finite positive numbers, rope dimensions within the head,
// factor lists of the right length, products that fit 32 bits.
Status check_config(const ModelConfig& config);

}  // namespace shoal
