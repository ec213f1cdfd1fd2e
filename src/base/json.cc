#include "base/json.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <unordered_set>
#include <vector>

#include "base/bytes.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

// Builds the DOM through SAX so that depth and counts are bounded before memory is spent on them.
class BoundedDom : public nlohmann::json_sax<Json> {
 public:
  explicit BoundedDom(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(int64_t v) override { return put(v); }
  bool number_unsigned(uint64_t v) override { return put(v); }
  bool number_float(double v, const std::string&) override { return put(v); }
  bool string(std::string& v) override { return put(std::move(v)); }
  bool binary(Json::binary_t&) override { return fail("binary value"); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& k) override {
    if (!count()) return false;
    Json& object = *stack_.back();
    if (limits_.refuse_duplicate_keys && object.contains(k)) return fail(absl::StrCat("duplicate key '", k, "'"));
    slot_ = &object[k];
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception& e) override {
    std::string cause = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: <cause>"
    if (const size_t at = cause.find("] "); at != std::string::npos) cause = cause.substr(at + 2);
    error_ = absl::StrCat(cause, " (byte ", position, ")");
    return false;
  }

  Json root;
  std::string error() const { return error_; }

 private:
  bool fail(std::string cause) {
    error_ = std::move(cause);
    return false;
  }
  bool count() {
    return ++values_ <= limits_.values_max || fail(absl::StrCat("more than ", limits_.values_max, " values"));
  }
  template <typename T>
  bool put(T&& value) {
    return count() && (place(Json(std::forward<T>(value))), true);
  }
  Json* place(Json value) {
    if (stack_.empty()) {
      root = std::move(value);
      return &root;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    *slot_ = std::move(value);
    return slot_;
  }
  bool open(Json container) {
    if (!count()) return false;
    if (stack_.size() >= limits_.depth_max) return fail(absl::StrCat("nested deeper than ", limits_.depth_max));
    stack_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  std::vector<Json*> stack_;  // stays valid: a container grows only while it is the innermost open one
  Json* slot_ = nullptr;
  size_t values_ = 0;
  std::string error_;
};

const Json* find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Status wrong_type(std::string_view key, const char* wanted, const Json& value) {
  return invalid_argument("'", std::string(key), "' must be ", wanted, ", not ", value.type_name());
}

}  // namespace

StatusOr<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return invalid_argument("JSON of ", format_bytes(text.size()), "; the limit is ", format_bytes(limits.bytes_max));
  }
  BoundedDom dom(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &dom)) return invalid_argument("invalid JSON: ", dom.error());
  return std::move(dom.root);
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

StatusOr<int64_t> json_int(const Json& object, std::string_view key, int64_t fallback, int64_t min, int64_t max) {
  const Json* value = find(object, key);
  if (value == nullptr) return fallback;
  int64_t number = 0;
  if (value->is_number_unsigned()) {
    const uint64_t wide = value->get<uint64_t>();
    number = wide > static_cast<uint64_t>(INT64_MAX) ? INT64_MAX : static_cast<int64_t>(wide);
  } else if (value->is_number_integer()) {
    number = value->get<int64_t>();
  } else {
    const double real = value->is_number_float() ? value->get<double>() : 0.5;
    if (real != std::floor(real) || std::abs(real) > 9e15) return wrong_type(key, "an integer", *value);
    number = static_cast<int64_t>(real);
  }
  if (number < min || number > max) {
    return invalid_argument("'", std::string(key), "' is ", number, ", outside ", min, "..", max);
  }
  return number;
}

StatusOr<double> json_double(const Json& object, std::string_view key, double fallback) {
  const Json* value = find(object, key);
  if (value == nullptr) return fallback;
  if (!value->is_number()) return wrong_type(key, "a number", *value);
  return value->get<double>();
}

StatusOr<bool> json_bool(const Json& object, std::string_view key, bool fallback) {
  const Json* value = find(object, key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return wrong_type(key, "true or false", *value);
  return value->get<bool>();
}

StatusOr<std::string> json_string(const Json& object, std::string_view key, std::string_view fallback) {
  const Json* value = find(object, key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) return wrong_type(key, "a string", *value);
  return value->get<std::string>();
}

StatusOr<std::string> read_file(const std::string& path, size_t bytes_max) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return not_found(path, ": no such file");
  if (!std::filesystem::is_regular_file(status)) return invalid_argument(path, ": not a regular file");
  std::ifstream in(path, std::ios::binary);
  if (!in) return data_loss(path, ": cannot be opened; check its permissions");
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error || size > bytes_max) {
    return invalid_argument(path, ": ", format_bytes(size), "; the limit for this kind of file is ", format_bytes(bytes_max));
  }
  std::string text(size, '\0');
  in.read(text.data(), static_cast<std::streamsize>(size));
  if (static_cast<uint64_t>(in.gcount()) != size) return data_loss(path, ": could not be read to its end");
  return text;
}

}  // namespace shoal
