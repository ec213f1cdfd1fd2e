// The description of the public endpoints for programs (OpenAPI 3.1): src/gateway/openapi.json, built in.
#pragma once

#include <string_view>

namespace shoal {

std::string_view openapi_json();

}  // namespace shoal
