// JSON as Python writes it: transformers saves infinite fields of a config as the bare word Infinity.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace shoal {

// parse_json, taking besides `Infinity` and `-Infinity`, read as the largest double of that sign, and `NaN`, read as null.
StatusOr<Json> parse_python_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace shoal
