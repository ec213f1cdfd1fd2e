// JSON from outside, parsed with bounds; nlohmann::json is the value type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace shoal {

using Json = nlohmann::json;                 // objects sort their keys
using OrderedJson = nlohmann::ordered_json;  // objects keep the order in which the keys were written

struct JsonLimits {
  size_t bytes_max = 64u << 20;
  size_t depth_max = 64;
  size_t values_max = 16u << 20;      // scalars, keys and containers together
  bool refuse_duplicate_keys = true;  // contradictory files are refused, not resolved
};

// InvalidArgument with byte offset and cause: syntax, invalid UTF-8, depth, size, number out of range, duplicate key.
StatusOr<Json> parse_json(std::string_view text, const JsonLimits& limits = {});
// The same with the order of keys kept. Time is linear in the size, also for objects of many keys.
StatusOr<OrderedJson> parse_ordered_json(std::string_view text, const JsonLimits& limits = {});

// Serialises; bytes that are not UTF-8 become U+FFFD instead of an exception.
std::string dump_json(const Json& value, int indent = -1);
std::string dump_ordered_json(const OrderedJson& value, int indent = -1);

// Typed look-ups in an object. Absent or null gives the default; a wrong type or range is InvalidArgument naming the
// key ("config.json" etc. is added by the caller through annotate()).
StatusOr<int64_t> json_int(const Json& object, std::string_view key, int64_t fallback, int64_t min, int64_t max);
StatusOr<double> json_double(const Json& object, std::string_view key, double fallback);
StatusOr<bool> json_bool(const Json& object, std::string_view key, bool fallback);
StatusOr<std::string> json_string(const Json& object, std::string_view key, std::string_view fallback);

// Reads a whole file of at most bytes_max bytes. NotFound, InvalidArgument (a directory, too large) or DataLoss.
StatusOr<std::string> read_file(const std::string& path, size_t bytes_max);

}  // namespace shoal
