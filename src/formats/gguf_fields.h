// The metadata of a GGUF file's architecture, by field.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "formats/gguf.h"
#include "formats/model_config.h"

namespace shoal {

// Reads "<architecture>.<field>".
class GgufFields {
 public:
  GgufFields(const GgufMetadata& metadata, Architecture architecture)
      : metadata_(metadata), prefix_(std::string(architecture_name(architecture)) + ".") {}

  StatusOr<uint32_t> uint(const char* field, std::optional<uint32_t> fallback, uint32_t min, uint32_t max) const {
    const std::string key = prefix_ + field;
    const GgufValue* value = metadata_.find(key);
    if (value == nullptr && !fallback) return invalid_argument("'", key, "' is missing");
    if (value != nullptr && std::holds_alternative<GgufArray>(*value)) return uniform(key, min, max);
    ASSIGN_OR_RETURN(const int64_t result, metadata_.integer(key, fallback.value_or(min), min, max));
    return static_cast<uint32_t>(result);
  }
  StatusOr<double> number(const char* field, double fallback) const { return metadata_.number(prefix_ + field, fallback); }
  StatusOr<std::string> text(const char* field) const { return metadata_.text(prefix_ + field, ""); }
  StatusOr<bool> boolean(const char* field, bool fallback) const { return metadata_.boolean(prefix_ + field, fallback); }
  bool has(const char* field) const { return metadata_.has(prefix_ + field); }

  // Of each layer, from a list or one number for all. A list may go on with layers that are not used.
  StatusOr<std::vector<uint32_t>> uints(const char* field, uint32_t count, std::optional<uint32_t> fallback, uint32_t min, uint32_t max) const {
    const std::string key = prefix_ + field;
    const GgufValue* value = metadata_.find(key);
    if (value == nullptr || !std::holds_alternative<GgufArray>(*value)) {
      ASSIGN_OR_RETURN(const uint32_t all, uint(field, fallback, min, max));
      return std::vector<uint32_t>(count, all);
    }
    ASSIGN_OR_RETURN(const std::vector<double> values, metadata_.numbers(key));
    if (!fits(values.size(), count)) return invalid_argument("'", key, "' has ", values.size(), " entries for ", count, " layers");
    std::vector<uint32_t> result;
    for (uint32_t i = 0; i < count; ++i) {
      if (!(values[i] >= min && values[i] <= max)) return invalid_argument("'", key, "' is outside of ", min, " to ", max, " for layer ", i);
      result.push_back(static_cast<uint32_t>(values[i]));
    }
    return result;
  }

  // Of each layer; the value may be a list, or n: all but every n-th. Empty if absent.
  StatusOr<std::vector<bool>> layers(const char* field, uint32_t count) const {
    const std::string key = prefix_ + field;
    const GgufValue* value = metadata_.find(key);
    if (value == nullptr) return std::vector<bool>();
    std::vector<bool> result(count);
    if (!std::holds_alternative<GgufArray>(*value)) {
      ASSIGN_OR_RETURN(const int64_t n, metadata_.integer(key, 1, 1, kLayersMax));
      for (uint32_t i = 0; i < count; ++i) result[i] = (i + 1) % n != 0;
      return result;
    }
    ASSIGN_OR_RETURN(const std::vector<double> values, metadata_.numbers(key));
    if (!fits(values.size(), count)) return invalid_argument("'", key, "' has ", values.size(), " entries for ", count, " layers");
    for (uint32_t i = 0; i < count; ++i) result[i] = values[i] != 0;
    return result;
  }

 private:
  // A list is of all blocks, of which the last may be there for speculation.
  bool fits(size_t entries, uint32_t layers) const {
    if (entries == layers) return true;
    const StatusOr<int64_t> blocks = metadata_.integer(prefix_ + "block_count", 0, 0, kLayersMax);
    return entries > layers && blocks.ok() && entries == static_cast<size_t>(*blocks);
  }
  // A value per layer is served where all are equal.
  StatusOr<uint32_t> uniform(const std::string& key, uint32_t min, uint32_t max) const {
    ASSIGN_OR_RETURN(const std::vector<double> values, metadata_.numbers(key));
    if (values.empty() || std::any_of(values.begin(), values.end(), [&](double v) { return v != values.front(); })) {
      return unimplemented("'", key, "' differs between layers, which is not served");
    }
    if (!(values.front() >= min && values.front() <= max)) return invalid_argument("'", key, "' is outside of ", min, " to ", max);
    return static_cast<uint32_t>(values.front());
  }

  const GgufMetadata& metadata_;
  std::string prefix_;
};

}  // namespace shoal
