// Reading a peer's JSON: what it left out or wrote otherwise is shown as nothing, never an exception.
#pragma once

#include <string>

#include "base/json.h"

namespace shoal {

std::string text_at(const Json& object, const char* key);
double number_at(const Json& object, const char* key, double fallback = 0);
Json member(const Json& object, const char* key);   // an empty object if there is none
Json list_at(const Json& object, const char* key);  // an empty list if there is none

}  // namespace shoal
