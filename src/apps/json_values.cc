#include "apps/json_values.h"

#include "nlohmann/json.hpp"

namespace shoal {

std::string text_at(const Json& object, const char* key) {
  const Json value = member(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

double number_at(const Json& object, const char* key, double fallback) {
  const Json value = member(object, key);
  return value.is_number() ? value.get<double>() : fallback;
}

Json member(const Json& object, const char* key) { return object.is_object() && object.contains(key) ? object[key] : Json::object(); }

Json list_at(const Json& object, const char* key) {
  const Json list = member(object, key);
  return list.is_array() ? list : Json::array();
}

}  // namespace shoal
