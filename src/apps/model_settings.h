// The `models:` section of shoal.yaml: what one model gets that others do not.
//
//   models:
//     tiny-llama:
//       ttft: 500ms          # the keys of base/pooling_settings.h: seconds, or a number with ms, s, m or h
//       pin: true
//       max-wait: 30         # max_wait is the same
//       preload: true
//       aliases: [small, gpt-4o]
//       context: 4096
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/model_scan.h"
#include "base/json.h"
#include "base/pooling_settings.h"
#include "base/status.h"

namespace shoal {

// What is not said stays as it is for all models.
struct ModelSettings {
  std::string model;      // its name, as clients call it
  std::string where;      // "shoal.yaml:12"
  std::map<const PoolingField*, double> pooling;  // as set_said() takes them, in the order of their table
  std::optional<bool> preload;
  std::optional<uint32_t> context;
  std::vector<std::string> aliases;
  std::optional<std::string> tool_call_parser, reasoning_parser;
};

// Of the file's section; none without one, or without a file ("").  Every fault is added to `problems` and names the place,
// the model, the key and the nearest key there is.
std::vector<ModelSettings> read_model_settings(const std::string& config_path, std::vector<std::string>& problems);

// Gives the models what the file says of them. Returns what it says of models that are not there: no fault, they may come.
// InvalidArgument for an alias that is taken.
StatusOr<std::vector<std::string>> apply_model_settings(const std::vector<ModelSettings>& settings, std::vector<FoundModel>& models);

// The section as a file would have it, read back to the same; "" without settings.
std::string models_yaml(const std::vector<ModelSettings>& settings);

// The JSON schema of the section.
Json models_schema();

// What a text says of a setting that is no switch; InvalidArgument outside the range of its row.
StatusOr<double> parse_setting(const PoolingField& field, const std::string& text);

// "2.5", "500ms", "10s", "5m", "1h" in seconds; InvalidArgument outside [min, max].
StatusOr<double> parse_seconds(const std::string& text, double min, double max);

}  // namespace shoal
