// The `models:` section of shoal.yaml: what one model gets that others do not.
//
//   models:
//     tiny-llama:
//       ttft: 500ms          # seconds, or a number with ms, s, m or h
//       tbt: 0.05
//       priority: 3
//       pin: true
//       max-wait: 30         # max_wait is the same
//       idle-ttl: 10m
//       preload: true
//       aliases: [small, gpt-4o]
//       context: 4096
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/model_scan.h"
#include "base/json.h"
#include "base/status.h"

namespace shoal {

// What is not said stays as it is for all models.
struct ModelSettings {
  std::string model;      // its name, as clients call it
  std::string where;      // "shoal.yaml:12"
  std::optional<double> ttft, tbt, max_wait, idle_ttl;  // seconds
  std::optional<int32_t> priority;
  std::optional<bool> pin, preload;
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

// "2.5", "500ms", "10s", "5m", "1h" in seconds; InvalidArgument outside [min, max].
StatusOr<double> parse_seconds(const std::string& text, double min, double max);

// Ranges of what files and flags may say, in seconds.
constexpr double kTtftMin = 0.001, kTbtMin = 0.0001, kMaxWaitMin = 0.000001, kDeadlineMax = 86400, kIdleTtlMax = 365 * 86400.0;
constexpr int32_t kPriorityMax = 1000;

}  // namespace shoal
