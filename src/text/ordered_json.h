// JSON whose objects keep the order of their keys: templates print tools in the order in which the client wrote them.
#pragma once

#include <string_view>

#include "base/json.h"

namespace shoal {

using OrderedJson = nlohmann::ordered_json;

// As parse_json(): the same bounds, the same errors. Time is linear in the size, also for objects of many keys.
StatusOr<OrderedJson> parse_ordered_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace shoal
