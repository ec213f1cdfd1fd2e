#include "text/grammar/json_schema.h"

#include <algorithm>
#include <array>

#include "text/grammar/schema_lowering.h"

namespace shoal::grammar {
namespace {

constexpr size_t kStepsMax = 20'000;          // schemas looked at, those merged and referred to included
constexpr size_t kGrammarBytesMax = 4u << 20;
constexpr int kDepthMax = 80;
constexpr size_t kEnumMax = 5000;

constexpr std::array kUnderstood = {
    "type", "nullable", "enum", "const", "properties", "required", "additionalProperties", "patternProperties", "minProperties",
    "maxProperties", "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "minLength", "maxLength",
    "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "anyOf", "oneOf", "allOf", "$ref",
    "unevaluatedProperties"};
constexpr std::array kRefused = {
    "not", "if", "then", "else", "dependentSchemas", "dependentRequired", "dependencies", "contains", "minContains", "maxContains",
    "unevaluatedItems", "propertyNames", "$dynamicRef", "$recursiveRef"};

template <size_t N>
bool listed(const std::array<const char*, N>& list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

// Which type a keyword is about.
std::string_view type_of_keyword(std::string_view key) {
  for (const char* k : {"properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties", "unevaluatedProperties"}) if (key == k) return "object";
  for (const char* k : {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"}) if (key == k) return "array";
  for (const char* k : {"minLength", "maxLength", "pattern", "format"}) if (key == k) return "string";
  for (const char* k : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) if (key == k) return "number";
  return "";
}

// One of an enum's values against the keywords about scalars that stand beside it.
bool allows_scalar(const OrderedJson& schema, const OrderedJson& value) {
  const auto number = [&](const char* key) { return schema.contains(key) && schema[key].is_number() && value.is_number(); };
  if (number("minimum") && value.get<double>() < schema["minimum"].get<double>()) return false;
  if (number("maximum") && value.get<double>() > schema["maximum"].get<double>()) return false;
  if (number("exclusiveMinimum") && value.get<double>() <= schema["exclusiveMinimum"].get<double>()) return false;
  if (number("exclusiveMaximum") && value.get<double>() >= schema["exclusiveMaximum"].get<double>()) return false;
  const std::vector<std::string> types = allowed_types(schema);
  const bool typed = !schema.contains("type") || std::any_of(types.begin(), types.end(), [&](const auto& t) { return has_type(value, t); });
  return typed || (value.is_null() && schema.value("nullable", OrderedJson()) == true);
}

}  // namespace

std::string child(const std::string& path, std::string_view key) {
  std::string out = path + "/";
  for (const char c : key) {
    if (c == '~') out += "~0";
    else if (c == '/') out += "~1";
    else out += c;
  }
  return out;
}

std::string parenthesised(const std::vector<std::string>& alternatives) {
  if (alternatives.size() == 1) return alternatives[0];
  std::string out = "(";
  for (const std::string& alternative : alternatives) absl::StrAppend(&out, out.size() > 1 ? " | " : "", alternative);
  return out + ")";
}

bool has_type(const OrderedJson& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "number") return value.is_number();
  return type == "integer" && (value.is_number_integer() || (value.is_number_float() && value.get<double>() == static_cast<double>(static_cast<int64_t>(std::clamp(value.get<double>(), -9e18, 9e18)))));
}

std::vector<std::string> allowed_types(const OrderedJson& schema) {
  std::vector<std::string> types;
  const auto add = [&](std::string type) {
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(std::move(type));
  };
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_string()) add(type->get<std::string>());
    if (type->is_array()) {
      for (const OrderedJson& item : *type) if (item.is_string()) add(item.get<std::string>());
    }
    return types;
  }
  for (const auto& [key, value] : schema.items()) {
    if (const std::string_view type = type_of_keyword(key); !type.empty()) add(std::string(type));
  }
  return types;
}

bool restricts_beyond(const OrderedJson& schema, std::initializer_list<std::string_view> keywords) {
  for (const auto& [key, value] : schema.items()) {
    if ((listed(kUnderstood, key) || listed(kRefused, key)) && std::find(keywords.begin(), keywords.end(), key) == keywords.end()) return true;
  }
  return false;
}

StatusOr<std::optional<uint32_t>> count_keyword(const OrderedJson& schema, const char* key, const std::string& path) {
  const auto value = schema.find(key);
  if (value == schema.end()) return std::optional<uint32_t>();
  const bool whole = value->is_number() && has_type(*value, "integer");
  if (!whole || value->get<double>() < 0 || value->get<double>() > 100'000) {
    return invalid_argument(child(path, key), ": must be an integer from 0 to 100000");
  }
  return std::optional(static_cast<uint32_t>(value->get<double>()));
}

Status SchemaLowering::count_step(const std::string& path) {
  if (++steps_ > kStepsMax) return invalid_argument(path, ": the schema is too large: more than ", kStepsMax, " parts");
  if (out_.bytes() > kGrammarBytesMax) return invalid_argument(path, ": the schema is too large: its grammar has more than ", kGrammarBytesMax, " bytes");
  return OkStatus();
}

Status SchemaLowering::check_keywords(const OrderedJson& schema, const std::string& path) const {
  for (const auto& [key, value] : schema.items()) {
    const auto refuse = [&, key = key] { return invalid_argument(child(path, key), ": the keyword '", key, "' is not supported"); };
    if (listed(kRefused, key)) return refuse();
    if (key == "uniqueItems" && value != false) {
      const auto most = schema.find("maxItems");
      if (most == schema.end() || !most->is_number() || most->get<double>() > 1) return refuse();
    }
    if (key == "multipleOf" && !(value.is_number() && value.get<double>() == 1.0)) {
      return invalid_argument(child(path, key), ": the keyword 'multipleOf' is supported for the value 1 only");
    }
    if (key == "unevaluatedProperties" && value != false) return refuse();
  }
  return OkStatus();
}

StatusOr<std::string> SchemaLowering::expression(const OrderedJson& schema, const std::string& path) {
  RETURN_IF_ERROR(count_step(path));
  if (schema.is_boolean()) {
    if (schema == false) return invalid_argument(path, ": the schema 'false' allows nothing");
    return out_.json_value();
  }
  if (!schema.is_object()) return invalid_argument(path, ": a schema must be an object or a boolean, not ", schema.type_name());
  RETURN_IF_ERROR(check_keywords(schema, path));
  if (depth_ >= kDepthMax) return invalid_argument(path, ": the schema is nested too deeply");
  ++depth_;
  Result result = [&]() -> Result {
    if (schema.contains("$ref") && !restricts_beyond(schema, {"$ref"})) return reference(schema["$ref"], child(path, "$ref"));
    if (schema.contains("$ref") || schema.contains("allOf")) {
      ASSIGN_OR_RETURN(const OrderedJson merged, dereferenced(schema, path));
      return expression(merged, path);
    }
    if (schema.contains("anyOf")) return any_of(schema, "anyOf", path);
    if (schema.contains("oneOf")) return any_of(schema, "oneOf", path);
    return plain(schema, path);
  }();
  --depth_;
  return result;
}

StatusOr<std::string> SchemaLowering::plain(const OrderedJson& schema, const std::string& path) {
  if (schema.contains("const") || schema.contains("enum")) return enumeration(schema, path);
  const std::vector<std::string> types = allowed_types(schema);
  if (types.empty() && schema.contains("type")) return invalid_argument(child(path, "type"), ": must be a type's name or a list of names");
  std::vector<std::string> alternatives;
  for (const std::string& type : types) {
    ASSIGN_OR_RETURN(std::string alternative, of_type(type, schema, path));
    alternatives.push_back(std::move(alternative));
  }
  if (alternatives.empty()) alternatives.push_back(out_.json_value());
  const bool has_null = std::find(types.begin(), types.end(), "null") != types.end();
  if (schema.value("nullable", OrderedJson()) == true && !has_null) alternatives.push_back(out_.shared("null"));
  return parenthesised(alternatives);
}

StatusOr<std::string> SchemaLowering::of_type(std::string_view type, const OrderedJson& schema, const std::string& path) {
  if (type == "string") return string(schema, path);
  if (type == "integer") return number(true, schema, path);
  if (type == "number") return number(schema.contains("multipleOf"), schema, path);
  if (type == "array") return array(schema, path);
  if (type == "object") return object(schema, path);
  if (type == "boolean" || type == "null") return out_.shared(type);
  return invalid_argument(child(path, "type"), ": '", std::string(type), "' is not one of string, integer, number, boolean, null, array, object");
}

StatusOr<std::string> SchemaLowering::enumeration(const OrderedJson& schema, const std::string& path) {
  std::vector<OrderedJson> values;
  if (const auto list = schema.find("enum"); list != schema.end()) {
    if (!list->is_array() || list->empty()) return invalid_argument(child(path, "enum"), ": must be a list of at least one value");
    if (list->size() > kEnumMax) return invalid_argument(child(path, "enum"), ": has ", list->size(), " values; the limit is ", kEnumMax);
    values.assign(list->begin(), list->end());
  }
  if (const auto only = schema.find("const"); only != schema.end()) {
    const bool listed_too = values.empty() || std::find(values.begin(), values.end(), *only) != values.end();
    if (!listed_too) return invalid_argument(path, ": 'const' is not one of 'enum'; nothing is valid");
    values = {*only};
  }
  if (restricts_beyond(schema, {"const", "enum", "type", "nullable", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) {
    return invalid_argument(path, ": 'enum' and 'const' are supported beside 'type' and bounds of numbers only");
  }
  std::vector<std::string> alternatives;
  for (const OrderedJson& value : values) {
    if (allows_scalar(schema, value)) {
      alternatives.push_back(GbnfBuilder::literal(value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)));
    }
  }
  if (alternatives.empty()) return invalid_argument(path, ": none of the values of 'enum' or 'const' is of an allowed type and range");
  return parenthesised(alternatives);
}

// One rule per place that is referred to, made before its body so that it may refer to itself.
StatusOr<std::string> SchemaLowering::reference(const OrderedJson& ref, const std::string& path) {
  ASSIGN_OR_RETURN(const OrderedJson* target, resolve(ref, path));
  const std::string& pointer = ref.get_ref<const std::string&>();
  if (const auto known = refs_.find(pointer); known != refs_.end()) return known->second;
  const std::string rule = out_.reserve(pointer.substr(pointer.rfind('/') + 1));
  refs_.emplace(pointer, rule);
  ASSIGN_OR_RETURN(std::string body, expression(*target, pointer));
  out_.set_rule(rule, std::move(body));
  return rule;
}

StatusOr<std::string> SchemaLowering::any_of(const OrderedJson& schema, const char* keyword, const std::string& path) {
  const OrderedJson list = schema[keyword];
  const std::string here = child(path, keyword);
  if (!list.is_array() || list.empty()) return invalid_argument(here, ": must be a list of at least one schema");
  OrderedJson base = schema;
  base.erase(keyword);
  const bool narrowed = restricts_beyond(base, {});
  for (size_t i = 0; keyword == std::string_view("oneOf") && i < list.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      RETURN_IF_ERROR(count_step(here));
      if (!disjoint(list[k], list[i], 0)) {
        return invalid_argument(here, ": alternatives ", k, " and ", i, " may both be valid for one value; use anyOf if that does not matter");
      }
    }
  }
  std::vector<std::string> alternatives;
  for (size_t i = 0; i < list.size(); ++i) {
    OrderedJson alternative = list[i];
    if (narrowed) {
      ASSIGN_OR_RETURN(alternative, merge(base, list[i], child(here, absl::StrCat(i))));
    }
    if (alternative == false) continue;
    ASSIGN_OR_RETURN(std::string text, expression(alternative, child(here, absl::StrCat(i))));
    alternatives.push_back(std::move(text));
  }
  if (alternatives.empty()) return invalid_argument(here, ": no alternative can be valid");
  return parenthesised(alternatives);
}

StatusOr<std::string> add_json_schema(GbnfBuilder& builder, std::string_view rule_name, const OrderedJson& schema) {
  const std::string rule = builder.reserve(rule_name);
  SchemaLowering lowering(builder, schema);
  ASSIGN_OR_RETURN(std::string body, lowering.expression(schema, "#"));
  builder.set_rule(rule, std::move(body));
  return rule;
}

}  // namespace shoal::grammar
