#include "gateway/fields.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "gateway/strings.h"
#include "nlohmann/json.hpp"

namespace shoal {

const OrderedJson* Fields::find(std::string_view key) const {
  know(key);
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void Fields::refuse(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::refuse(std::string_view key, std::string message) { refuse(invalid_value(name(key), std::move(message))); }

void Fields::wrong_type(std::string_view key, std::string_view wanted, const OrderedJson& value) {
  refuse(key, absl::StrCat("'", name(key), "' must be ", str(wanted), ", not ", value.type_name(), "."));
}

void Fields::boolean(std::string_view key, bool& out) {
  const OrderedJson* value = find(key);
  if (!ok() || value == nullptr) return;
  if (!value->is_boolean()) return wrong_type(key, "true or false", *value);
  out = value->get<bool>();
}

void Fields::number(std::string_view key, double min, double max, float& out) {
  const OrderedJson* value = find(key);
  if (!ok() || value == nullptr) return;
  if (!value->is_number()) return wrong_type(key, "a number", *value);
  const double number = value->get<double>();
  if (!(number >= min && number <= max)) {
    return refuse(key, absl::StrFormat("'%s' is %g, outside %g to %g.", name(key), number, min, max));
  }
  out = static_cast<float>(number);
}

void Fields::text(std::string_view key, size_t bytes_max, std::string& out) {
  const OrderedJson* value = find(key);
  if (!ok() || value == nullptr) return;
  if (!value->is_string()) return wrong_type(key, "a string", *value);
  const std::string& text = value->get_ref<const std::string&>();
  if (text.size() > bytes_max) {
    return refuse(key, absl::StrCat("'", name(key), "' has ", text.size(), " bytes; the limit is ", bytes_max, "."));
  }
  out = text;
}

std::optional<int64_t> Fields::whole(std::string_view key, int64_t min, int64_t max) {
  const OrderedJson* value = find(key);
  if (!ok() || value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    wrong_type(key, "an integer", *value);
    return std::nullopt;
  }
  const auto number = as_integer(*value, min, max);
  if (!number) {
    refuse(key, absl::StrCat("'", name(key), "' is ", dump_ordered_json(*value), "; it must be an integer from ", min, " to ",
                             max, "."));
  }
  return number;
}

void Fields::texts(std::string_view key, size_t count_max, size_t bytes_max, std::vector<std::string>& out) {
  const OrderedJson* value = find(key);
  if (!ok() || value == nullptr) return;
  const auto take = [&](const OrderedJson& item) {
    if (!item.is_string()) return wrong_type(key, "a string or a list of strings", item);
    const std::string& text = item.get_ref<const std::string&>();
    if (text.size() > bytes_max) {
      return refuse(key, absl::StrCat("a string of '", name(key), "' has ", text.size(), " bytes; the limit is ",
                                      bytes_max, "."));
    }
    out.push_back(text);
  };
  if (!value->is_array()) return take(*value);
  if (value->size() > count_max) {
    return refuse(key, absl::StrCat("'", name(key), "' has ", value->size(), " strings; the limit is ", count_max, "."));
  }
  for (const OrderedJson& item : *value) {
    if (ok()) take(item);
  }
}

void Fields::ids(std::string_view key, size_t count_max, int64_t max, std::vector<int32_t>& out) {
  const OrderedJson* value = find(key);
  if (!ok() || value == nullptr) return;
  if (!value->is_array()) return wrong_type(key, "a list of integers", *value);
  if (value->size() > count_max) {
    return refuse(key, absl::StrCat("'", name(key), "' has ", value->size(), " ids; the limit is ", count_max, "."));
  }
  for (const OrderedJson& item : *value) {
    const auto id = as_integer(item, 0, max);
    if (!id) {
      return refuse(key, absl::StrCat("'", name(key), "' holds ", dump_ordered_json(item), "; ids are integers from 0 to ", max,
                                      "."));
    }
    out.push_back(static_cast<int32_t>(*id));
  }
}

std::optional<int64_t> as_integer(const OrderedJson& value, int64_t min, int64_t max) {
  int64_t number = 0;
  if (value.is_number_unsigned()) {
    const uint64_t wide = value.get<uint64_t>();
    if (wide > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    number = static_cast<int64_t>(wide);
  } else if (value.is_number_integer()) {
    number = value.get<int64_t>();
  } else if (value.is_number_float()) {
    const double real = value.get<double>();
    if (real != std::floor(real) || std::abs(real) > 9e15) return std::nullopt;
    number = static_cast<int64_t>(real);
  } else {
    return std::nullopt;
  }
  if (number < min || number > max) return std::nullopt;
  return number;
}

ApiResult<OrderedJson> parse_body(std::string_view body) {
  auto parsed = parse_ordered_json(body);
  if (!parsed.ok()) {
    ApiError error = invalid_value("", "The request body is not usable: " + std::string(parsed.status().message()) + ".");
    error.param.reset();
    error.code = "invalid_json";
    return error;
  }
  if (!parsed->is_object()) {
    ApiError error = invalid_value("", absl::StrCat("The request body must be a JSON object, not ", parsed->type_name(), "."));
    error.param.reset();
    error.code = "invalid_json";
    return error;
  }
  return *std::move(parsed);
}

}  // namespace shoal
