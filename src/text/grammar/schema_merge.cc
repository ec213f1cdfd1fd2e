// allOf, $ref beside other keywords, and whether alternatives can overlap.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "text/grammar/schema_lowering.h"

namespace shoal::grammar {
namespace {

constexpr size_t kProductMax = 64;  // alternatives of two anyOf lists that hold at once
constexpr int kLookMax = 12;
constexpr size_t kLooksMax = 50'000;  // comparisons of alternatives, in all

using Types = std::vector<std::string>;

// The type's name list with null if it is nullable; empty: any type.
Types stated_types(const OrderedJson& schema) {
  if (!schema.contains("type")) return {};
  Types types = allowed_types(schema);
  if (schema.value("nullable", OrderedJson()) == true) types.push_back("null");
  return types;
}

bool same_type(std::string_view a, std::string_view b) {
  return a == b || (a == "number" && b == "integer") || (a == "integer" && b == "number");
}

Types common_types(const Types& a, const Types& b) {
  Types common;
  for (const std::string& x : a) {
    for (const std::string& y : b) {
      if (same_type(x, y)) common.push_back(x == y ? x : "integer");
    }
  }
  return common;
}

std::vector<OrderedJson> listed_values(const OrderedJson& schema) {
  if (schema.contains("const")) return {schema["const"]};
  if (schema.contains("enum") && schema["enum"].is_array()) return {schema["enum"].begin(), schema["enum"].end()};
  return {};
}


std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    uint32_t byte = 0;
    if (text[i] == '%' && i + 2 < text.size() && absl::SimpleHexAtoi(std::string(text.substr(i + 1, 2)), &byte)) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool is_lower_bound(const std::string& key) { return absl::StartsWith(key, "min") || key == "exclusiveMinimum"; }
bool is_bound(const std::string& key) { return is_lower_bound(key) || absl::StartsWith(key, "max") || key == "exclusiveMaximum"; }

}  // namespace

StatusOr<const OrderedJson*> SchemaLowering::resolve(const OrderedJson& ref, const std::string& path) const {
  if (!ref.is_string()) return invalid_argument(path, ": must be a string");
  const std::string& pointer = ref.get_ref<const std::string&>();
  if (pointer.empty() || pointer[0] != '#' || (pointer.size() > 1 && pointer[1] != '/')) {
    return invalid_argument(path, ": '", pointer, "' is not supported; a reference must lead within the schema, as '#/$defs/name' does");
  }
  const OrderedJson* at = &root_;
  std::string_view rest = std::string_view(pointer).substr(1);
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const size_t length = std::min(rest.find('/'), rest.size());
    std::string key = percent_decoded(rest.substr(0, length));
    rest.remove_prefix(length);
    for (const auto& [from, to] : {std::pair<std::string_view, char>{"~1", '/'}, {"~0", '~'}}) {
      for (size_t i = 0; (i = key.find(from, i)) != std::string::npos; ++i) key.replace(i, 2, 1, to);
    }
    size_t index = 0;
    if (at->is_object() && at->contains(key)) {
      at = &(*at)[key];
    } else if (at->is_array() && absl::SimpleAtoi(key, &index) && index < at->size()) {
      at = &(*at)[index];
    } else {
      return invalid_argument(path, ": '", pointer, "' leads nowhere");
    }
  }
  return at;
}

StatusOr<OrderedJson> SchemaLowering::dereferenced(const OrderedJson& schema, const std::string& path) {
  RETURN_IF_ERROR(count_step(path));
  if (!schema.is_object() || !(schema.contains("$ref") || schema.contains("allOf"))) return schema;
  if (depth_ >= 64) return invalid_argument(path, ": references and allOf are nested too deeply");
  ++depth_;
  auto result = [&]() -> StatusOr<OrderedJson> {
    OrderedJson own = schema;
    OrderedJson merged = true;
    if (schema.contains("$ref")) {
      ASSIGN_OR_RETURN(const OrderedJson* target, resolve(schema["$ref"], child(path, "$ref")));
      merged = *target;
      own.erase("$ref");
    }
    if (schema.contains("allOf")) {
      const OrderedJson& list = schema["allOf"];
      if (!list.is_array() || list.empty()) return invalid_argument(child(path, "allOf"), ": must be a list of at least one schema");
      own.erase("allOf");
      for (size_t i = 0; i < list.size(); ++i) {
        ASSIGN_OR_RETURN(merged, merge(merged, list[i], child(child(path, "allOf"), absl::StrCat(i))));
      }
    }
    return merge(merged, own, path);
  }();
  --depth_;
  return result;
}

StatusOr<OrderedJson> SchemaLowering::merge(const OrderedJson& left, const OrderedJson& right, const std::string& path) {
  RETURN_IF_ERROR(count_step(path));
  for (const OrderedJson* side : {&left, &right}) {
    if (!side->is_object() && !side->is_boolean()) return invalid_argument(path, ": a schema must be an object or a boolean, not ", side->type_name());
  }
  if (left == false || right == false) return OrderedJson(false);
  ASSIGN_OR_RETURN(const OrderedJson a, dereferenced(left, path));
  ASSIGN_OR_RETURN(const OrderedJson b, dereferenced(right, path));
  if (a.is_boolean()) return a == true ? b : a;
  if (b.is_boolean()) return b == true ? a : b;
  OrderedJson out = a;
  RETURN_IF_ERROR(merge_objects(a, b, out, path));
  if (const Types ta = stated_types(a), tb = stated_types(b); !ta.empty() && !tb.empty()) {
    const Types common = common_types(ta, tb);
    if (common.empty()) return OrderedJson(false);
    out["type"] = common;
    out.erase("nullable");
  } else if (!tb.empty()) {
    out["type"] = tb;
    out.erase("nullable");
  }
  for (const auto& [key, value] : b.items()) {
    if (key == "type" || key == "nullable" || key == "properties" || key == "required" || key == "additionalProperties") continue;
    if (!a.contains(key)) {
      out[key] = value;
      continue;
    }
    ASSIGN_OR_RETURN(out[key], merge_value(key, a[key], value, path));
    if (key == "enum" && out[key].empty()) return OrderedJson(false);
  }
  if (a.contains("const") && b.contains("const") && a["const"] != b["const"]) return OrderedJson(false);
  return out;
}

// Of a keyword that both have. Annotations keep the first one's value.
StatusOr<OrderedJson> SchemaLowering::merge_value(const std::string& key, const OrderedJson& a, const OrderedJson& b, const std::string& path) {
  if (a == b) return a;
  OrderedJson annotation = OrderedJson::object();
  annotation[key] = a;
  if (!restricts_beyond(annotation, {}) || key == "const") return a;
  if (is_bound(key) && a.is_number() && b.is_number()) {
    return is_lower_bound(key) == (a.get<double>() > b.get<double>()) ? a : b;
  }
  if (key == "enum" && a.is_array() && b.is_array()) {
    OrderedJson common = OrderedJson::array();
    for (const OrderedJson& value : a) {
      if (std::find(b.begin(), b.end(), value) != b.end()) common.push_back(value);
    }
    return common;
  }
  if (key == "items" && !a.is_array() && !b.is_array()) return merge(a, b, child(path, key));
  if (key == "uniqueItems") return OrderedJson(true);
  if ((key == "anyOf" || key == "oneOf") && a.is_array() && b.is_array()) {
    if (a.size() * b.size() > kProductMax) return invalid_argument(child(path, key), ": too many combinations of alternatives");
    OrderedJson product = OrderedJson::array();
    for (const OrderedJson& x : a) {
      for (const OrderedJson& y : b) {
        ASSIGN_OR_RETURN(OrderedJson both, merge(x, y, child(path, key)));
        product.push_back(std::move(both));
      }
    }
    return product;
  }
  return invalid_argument(child(path, key), ": two different values of '", key, "' hold at once (through allOf, anyOf or $ref); that is not supported");
}

Status SchemaLowering::merge_objects(const OrderedJson& a, const OrderedJson& b, OrderedJson& out, const std::string& path) {
  OrderedJson properties = OrderedJson::object();
  const auto declared = [](const OrderedJson& s) { return s.contains("properties") && s["properties"].is_object() ? s["properties"] : OrderedJson::object(); };
  const auto others = [](const OrderedJson& s) { return s.contains("additionalProperties") ? s["additionalProperties"] : OrderedJson(true); };
  const OrderedJson of_a = declared(a), of_b = declared(b);
  for (const auto& [name, value] : of_a.items()) {
    ASSIGN_OR_RETURN(properties[name], merge(value, of_b.contains(name) ? of_b[name] : others(b), child(path, name)));
  }
  for (const auto& [name, value] : of_b.items()) {
    if (of_a.contains(name)) continue;
    ASSIGN_OR_RETURN(properties[name], merge(others(a), value, child(path, name)));
  }
  if (!properties.empty()) out["properties"] = std::move(properties);
  if (a.contains("additionalProperties") || b.contains("additionalProperties")) {
    ASSIGN_OR_RETURN(out["additionalProperties"], merge(others(a), others(b), child(path, "additionalProperties")));
  }
  if (b.contains("required")) {
    OrderedJson required = a.contains("required") && a["required"].is_array() ? a["required"] : OrderedJson::array();
    if (!b["required"].is_array()) return invalid_argument(child(path, "required"), ": must be a list of names");
    for (const OrderedJson& name : b["required"]) {
      if (std::find(required.begin(), required.end(), name) == required.end()) required.push_back(name);
    }
    out["required"] = std::move(required);
  }
  return OkStatus();
}

bool SchemaLowering::disjoint(const OrderedJson& a, const OrderedJson& b, int depth) const {
  if (depth > kLookMax || ++looks_ > kLooksMax) return false;
  if (a == false || b == false) return true;
  if (!a.is_object() || !b.is_object()) return false;
  for (const auto& [x, y] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    if (x->contains("$ref")) {
      const auto target = resolve((*x)["$ref"], "");
      if (target.ok() && disjoint(**target, *y, depth + 1)) return true;
    }
    for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
      const auto list = x->find(keyword);
      if (list == x->end() || !list->is_array() || list->empty()) continue;
      const auto apart = [&, other = y](const OrderedJson& item) { return disjoint(item, *other, depth + 1); };
      const bool all = keyword != std::string_view("allOf");
      if (all ? std::all_of(list->begin(), list->end(), apart) : std::any_of(list->begin(), list->end(), apart)) return true;
    }
  }
  const Types types_a = stated_types(a), types_b = stated_types(b);
  const std::vector<OrderedJson> values_a = listed_values(a), values_b = listed_values(b);
  const auto has_value = [](const std::vector<OrderedJson>& values, const OrderedJson& v) { return std::find(values.begin(), values.end(), v) != values.end(); };
  const auto typed = [](const Types& types, const OrderedJson& v) { return types.empty() || std::any_of(types.begin(), types.end(), [&](const auto& t) { return has_type(v, t); }); };
  if (!values_a.empty()) return std::none_of(values_a.begin(), values_a.end(), [&](const auto& v) { return typed(types_b, v) && (values_b.empty() || has_value(values_b, v)); });
  if (!values_b.empty()) return std::none_of(values_b.begin(), values_b.end(), [&](const auto& v) { return typed(types_a, v); });
  if (types_a.empty() || types_b.empty()) return false;
  const Types common = common_types(types_a, types_b);
  if (common.empty()) return true;
  if (common != Types{"object"}) return false;
  for (const auto& [x, y] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    const auto list = x->find("required");
    if (list == x->end() || !list->is_array()) continue;
    for (const OrderedJson& name : *list) {
      if (!name.is_string()) continue;
      const std::string& key = name.get_ref<const std::string&>();
      const bool in_x = x->contains("properties") && (*x)["properties"].contains(key);
      const bool in_y = y->contains("properties") && (*y)["properties"].contains(key);
      if (in_x && in_y && disjoint((*x)["properties"][key], (*y)["properties"][key], depth + 1)) return true;
      if (!in_y && y->value("additionalProperties", OrderedJson(true)) == false) return true;
    }
  }
  return false;
}

}  // namespace shoal::grammar
