#include "base/json.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

// The value of `key`, new or there already, and whether it is new. `places` are those of the object's keys so far: an
// ordered object would find one by scanning.
using Places = std::unordered_map<std::string, size_t>;

std::pair<Json*, bool> slot_of(Json& object, const std::string& key, Places&) {
  auto [it, is_new] = object.get_ref<Json::object_t&>().try_emplace(key);
  return {&it->second, is_new};
}

std::pair<OrderedJson*, bool> slot_of(OrderedJson& object, const std::string& key, Places& places) {
  OrderedJson::object_t::Container& members = object.get_ref<OrderedJson::object_t&>();
  const auto [it, is_new] = places.emplace(key, members.size());
  if (is_new) members.emplace_back(key, nullptr);
  return {&members[it->second].second, is_new};
}

// Builds the DOM through SAX so that depth and counts are bounded before memory is spent on them.
template <typename J>
class BoundedDom : public nlohmann::json_sax<J> {
 public:
  explicit BoundedDom(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(int64_t v) override { return put(v); }
  bool number_unsigned(uint64_t v) override { return put(v); }
  bool number_float(double v, const std::string&) override { return put(v); }
  bool string(std::string& v) override { return put(std::move(v)); }
  bool binary(typename J::binary_t&) override { return fail("binary value"); }
  bool start_object(size_t) override { return open(J::object()); }
  bool start_array(size_t) override { return open(J::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& k) override {
    if (!count()) return false;
    Open& object = stack_.back();
    bool is_new = false;
    std::tie(object.slot, is_new) = slot_of(*object.value, k, object.places);
    return is_new || !limits_.refuse_duplicate_keys || fail(absl::StrCat("duplicate key '", k, "'"));
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    std::string cause = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: <cause>"
    if (const size_t at = cause.find("] "); at != std::string::npos) cause = cause.substr(at + 2);
    error_ = absl::StrCat(cause, " (byte ", position, ")");
    return false;
  }

  J root;
  const std::string& error() const { return error_; }

 private:
  struct Open {
    J* value;
    J* slot;  // in an object: where the next value goes
    Places places;
  };
  bool fail(std::string cause) {
    error_ = std::move(cause);
    return false;
  }
  bool count() {
    return ++values_ <= limits_.values_max || fail(absl::StrCat("more than ", limits_.values_max, " values"));
  }
  template <typename T>
  bool put(T&& value) {
    return count() && (place(J(std::forward<T>(value))), true);
  }
  J* place(J value) {
    if (stack_.empty()) return &(root = std::move(value));
    Open& parent = stack_.back();
    if (!parent.value->is_array()) return &(*parent.slot = std::move(value));
    parent.value->push_back(std::move(value));
    return &parent.value->back();
  }
  bool open(J container) {
    if (!count()) return false;
    if (stack_.size() >= limits_.depth_max) return fail(absl::StrCat("nested deeper than ", limits_.depth_max));
    stack_.push_back({place(std::move(container)), nullptr, {}});
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  std::vector<Open> stack_;  // pointers stay valid: a container grows only while it is the innermost open one
  size_t values_ = 0;
  std::string error_;
};

template <typename J>
StatusOr<J> parse_bounded(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return invalid_argument("JSON of ", format_bytes(text.size()), "; the limit is ", format_bytes(limits.bytes_max));
  }
  BoundedDom<J> dom(limits);
  if (!J::sax_parse(text.begin(), text.end(), &dom)) {
    const size_t zero = text.find('\0');
    if (zero == std::string_view::npos) return invalid_argument("invalid JSON: ", dom.error());
    return invalid_argument("invalid JSON: byte ", zero + 1, " is zero, as in a file that was not written or downloaded to its end");
  }
  return std::move(dom.root);
}

const Json* find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Status wrong_type(std::string_view key, const char* wanted, const Json& value) {
  return invalid_argument("'", std::string(key), "' must be ", wanted, ", not ", value.type_name());
}

}  // namespace

StatusOr<Json> parse_json(std::string_view text, const JsonLimits& limits) { return parse_bounded<Json>(text, limits); }

StatusOr<OrderedJson> parse_ordered_json(std::string_view text, const JsonLimits& limits) {
  return parse_bounded<OrderedJson>(text, limits);
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string dump_ordered_json(const OrderedJson& value, int indent) {
  return value.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
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
