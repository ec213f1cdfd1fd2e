#include "text/tokenizer/json_fields.h"

#include "nlohmann/json.hpp"

namespace shoal {

StatusOr<std::string> component_type(const Json& component) {
  if (!component.is_object()) return invalid_argument("must be an object with a 'type', not ", component.type_name());
  ASSIGN_OR_RETURN(std::string type, json_string(component, "type", ""));
  if (type.empty()) return invalid_argument("has no 'type'");
  return type;
}

const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

StatusOr<const Json*> array_member(const Json& object, std::string_view key) {
  const Json* value = member(object, key);
  if (value == nullptr || !value->is_array()) return invalid_argument("'", std::string(key), "' must be an array");
  return value;
}

StatusOr<Pattern> pattern_member(const Json& object) {
  const Json* pattern = member(object, "pattern");
  if (pattern == nullptr) return invalid_argument("has no 'pattern'");
  std::string literal, source;
  bool is_literal = false;
  if (pattern->is_string()) {
    literal = pattern->get<std::string>(), is_literal = true;
  } else {
    ASSIGN_OR_RETURN(literal, json_string(*pattern, "String", ""));
    ASSIGN_OR_RETURN(source, json_string(*pattern, "Regex", ""));
    is_literal = !literal.empty();
  }
  if (literal.empty() && source.empty()) return invalid_argument("'pattern' must be a non-empty String or Regex");
  if (is_literal) {
    for (const char c : literal) {
      if (static_cast<unsigned char>(c) < 0x80 && !isalnum(static_cast<unsigned char>(c)) && c >= ' ') source += '\\';
      source += c;
    }
  }
  auto regex = Regex::compile(source);
  if (!regex.ok()) return annotate(regex.status(), "'pattern'");
  return Pattern{std::move(literal), is_literal, *std::move(regex)};
}

Status check_sequence_depth(int depth) {
  if (depth < kSequenceDepthMax) return OkStatus();
  return invalid_argument("Sequences nested deeper than ", kSequenceDepthMax, "; flatten them");
}

}  // namespace shoal
