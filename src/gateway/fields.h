// Reads the fields of a client's JSON object by type and range. The first fault is kept and names the field; after it
// every call is without effect, so a parser is a list of lines and one look at error() at its end.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "gateway/api_error.h"

namespace shoal {

class Fields {
 public:
  // `prefix` goes before the names in errors ("messages[2]."). `object` is a JSON object and outlives this.
  explicit Fields(const OrderedJson& object, std::string prefix = "") : object_(object), prefix_(std::move(prefix)) {}

  // Each leaves `out` alone when the field is absent or null.
  void boolean(std::string_view key, bool& out);
  void number(std::string_view key, double min, double max, float& out);
  void text(std::string_view key, size_t bytes_max, std::string& out);
  template <typename Int>
  void integer(std::string_view key, int64_t min, int64_t max, Int& out) {
    if (const auto value = whole(key, min, max)) out = static_cast<Int>(*value);
  }
  template <typename T>
  void number(std::string_view key, double min, double max, std::optional<T>& out) {
    float value = std::numeric_limits<float>::quiet_NaN();
    number(key, min, max, value);
    if (value == value) out = value;
  }
  // One string or a list of at most count_max strings.
  void texts(std::string_view key, size_t count_max, size_t bytes_max, std::vector<std::string>& out);
  // A list of at most count_max integers in [0, max].
  void ids(std::string_view key, size_t count_max, int64_t max, std::vector<int32_t>& out);

  // The value, or nullptr when absent or null.
  const OrderedJson* find(std::string_view key) const;
  const OrderedJson& object() const { return object_; }
  // The names of all that was asked for by now, which is all that the caller knows.
  const std::vector<std::string>& known() const { return known_; }
  void know(std::string_view key) const { known_.emplace_back(key); }
  void refuse(std::string_view key, std::string message);  // invalid_value
  void refuse(ApiError error);
  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  const std::optional<ApiError>& error() const { return error_; }
  bool ok() const { return !error_.has_value(); }

 private:
  std::optional<int64_t> whole(std::string_view key, int64_t min, int64_t max);
  void wrong_type(std::string_view key, std::string_view wanted, const OrderedJson& value);

  const OrderedJson& object_;
  const std::string prefix_;
  std::optional<ApiError> error_;
  mutable std::vector<std::string> known_;
};

// A JSON number that is an integer in [min, max] (2.0 counts, 2.5 does not).
std::optional<int64_t> as_integer(const OrderedJson& value, int64_t min, int64_t max);

// The body of a request: an object, within the limits of base/json.h.
ApiResult<OrderedJson> parse_body(std::string_view body);

}  // namespace shoal
