#include "apps/model_settings.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "apps/settings.h"
#include "base/json.h"
#include "base/nearest.h"
#include "nlohmann/json.hpp"
#include "yaml-cpp/yaml.h"

namespace shoal {
namespace {

constexpr size_t kAliasBytesMax = 256;

// Reads one value into a model's settings.
using Reader = std::function<Status(const YAML::Node&, ModelSettings&)>;

StatusOr<std::string> scalar(const YAML::Node& value) {
  if (!value.IsScalar()) return invalid_argument("must be one value");
  return value.Scalar();
}

StatusOr<bool> boolean(const YAML::Node& value) {
  bool flag = false;
  if (!value.IsScalar() || !YAML::convert<bool>::decode(value, flag)) return invalid_argument("must be true or false");
  return flag;
}

StatusOr<int64_t> parse_whole(const std::string& text, int64_t min, int64_t max) {
  int64_t number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= min && number <= max) return number;
  return invalid_argument("'", text, "' must be a whole number from ", min, " to ", max);
}

Reader pooling(const PoolingField& field) {
  return [&field](const YAML::Node& value, ModelSettings& out) -> Status {
    if (field.is_switch()) {
      ASSIGN_OR_RETURN(const bool on, boolean(value));
      out.pooling[&field] = on ? 1 : 0;
      return OkStatus();
    }
    ASSIGN_OR_RETURN(const std::string text, scalar(value));
    ASSIGN_OR_RETURN(out.pooling[&field], parse_setting(field, text));
    return OkStatus();
  };
}

Status read_preload(const YAML::Node& value, ModelSettings& out) {
  ASSIGN_OR_RETURN(out.preload, boolean(value));
  return OkStatus();
}

Status read_context(const YAML::Node& value, ModelSettings& out) {
  ASSIGN_OR_RETURN(const std::string text, scalar(value));
  ASSIGN_OR_RETURN(out.context, parse_whole(text, 1, INT32_MAX));
  return OkStatus();
}

Reader text(std::optional<std::string> ModelSettings::*field) {
  return [=](const YAML::Node& value, ModelSettings& out) -> Status {
    ASSIGN_OR_RETURN(out.*field, scalar(value));
    return OkStatus();
  };
}

Status read_aliases(const YAML::Node& value, ModelSettings& out) {
  const auto add = [&](const YAML::Node& item) -> Status {
    ASSIGN_OR_RETURN(const std::string alias, scalar(item));
    if (alias.empty() || alias.size() > kAliasBytesMax) return invalid_argument("a name must have 1 to ", kAliasBytesMax, " bytes");
    out.aliases.push_back(alias);
    return OkStatus();
  };
  if (!value.IsSequence()) return add(value);
  for (const YAML::Node& item : value) RETURN_IF_ERROR(add(item));
  return OkStatus();
}

const std::map<std::string, Reader>& readers() {
  static const std::map<std::string, Reader> table = [] {
    std::map<std::string, Reader> rows = {
        {"preload", read_preload},
        {"context", read_context},
        {"max-model-len", read_context},
        {"alias", read_aliases},
        {"aliases", read_aliases},
        {"tool-call-parser", text(&ModelSettings::tool_call_parser)},
        {"reasoning-parser", text(&ModelSettings::reasoning_parser)},
    };
    for (const PoolingField& field : pooling_fields()) rows.emplace(field.key, pooling(field));
    return rows;
  }();
  return table;
}

std::vector<std::string> known_keys() {
  std::vector<std::string> keys;
  for (const auto& [key, reader] : readers()) keys.push_back(key);
  return keys;
}

std::string place(const std::string& path, const YAML::Node& node) { return absl::StrCat(path, ":", node.Mark().line + 1); }

ModelSettings read_model(const std::string& path, const YAML::Node& name, const YAML::Node& keys, std::vector<std::string>& problems) {
  ModelSettings out{.model = name.Scalar(), .where = place(path, name)};
  const auto problem = [&](const YAML::Node& where, const auto&... what) {
    problems.push_back(absl::StrCat(place(path, where), ": model '", out.model, "': ", what...));
  };
  if (keys.IsNull()) return out;
  if (!keys.IsMap()) {
    problem(name, "must be a map of settings, such as 'ttft: 2'");
    return out;
  }
  std::set<std::string> seen;
  for (const auto& entry : keys) {
    std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    std::replace(key.begin(), key.end(), '_', '-');
    const auto reader = readers().find(key);
    if (reader == readers().end()) {
      problem(entry.first, "key '", key, "' is unknown", did_you_mean(key, known_keys()));
    } else if (!seen.insert(key).second) {
      problem(entry.first, "the key '", key, "' is there twice");
    } else if (const Status status = reader->second(entry.second, out); !status.ok()) {
      problem(entry.first, "key '", key, "': ", status.message());
    }
  }
  return out;
}

std::vector<std::string> names_of(const std::vector<FoundModel>& models) {
  std::vector<std::string> names;
  for (const FoundModel& model : models) names.push_back(model.entry.name);
  return names;
}

void apply_one(const ModelSettings& from, FoundModel& to) {
  for (const auto& [field, said] : from.pooling) set_said(*field, said, to.pooling);
  if (from.preload) to.preload = from.preload;
  if (from.context) {
    to.context = *from.context;
    to.entry.max_model_len = std::min(to.entry.trained_len, to.context);
  }
  if (from.tool_call_parser) to.entry.tool_call_parser = *from.tool_call_parser;
  if (from.reasoning_parser) to.entry.reasoning_parser = *from.reasoning_parser;
}

}  // namespace

std::string models_yaml(const std::vector<ModelSettings>& settings) {
  if (settings.empty()) return "";
  YAML::Emitter out;
  const auto write = [&](const char* key, const auto& value) {
    if (value) out << YAML::Key << key << YAML::Value << *value;
  };
  out << YAML::BeginMap << YAML::Key << kModelsKey << YAML::Value << YAML::BeginMap;
  for (const ModelSettings& model : settings) {
    out << YAML::Key << model.model << YAML::Value << YAML::BeginMap;
    for (const auto& [field, said] : model.pooling) {
      if (field->is_switch()) write(field->key, std::optional(said != 0));
      else write(field->key, std::optional(said));
    }
    write("preload", model.preload);
    write("context", model.context);
    if (!model.aliases.empty()) out << YAML::Key << "aliases" << YAML::Value << YAML::Flow << model.aliases;
    write("tool-call-parser", model.tool_call_parser);
    write("reasoning-parser", model.reasoning_parser);
    out << YAML::EndMap;
  }
  out << YAML::EndMap << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

Json models_schema() {
  const Json time = {{"type", {"number", "string"}}, {"description", "Seconds, or a number with ms, s, m or h."}};
  const Json flag = {{"type", "boolean"}}, word = {{"type", "string"}}, count = {{"type", "integer"}, {"minimum", 1}};
  Json properties = {{"preload", flag}, {"context", count}, {"max-model-len", count}, {"tool-call-parser", word}, {"reasoning-parser", word}};
  properties["alias"] = properties["aliases"] = {{"anyOf", Json::array({word, {{"type", "array"}, {"items", word}}})}};
  for (const PoolingField& field : pooling_fields()) {
    const Json number = {{"type", "integer"}, {"minimum", static_cast<int64_t>(field.min)}, {"maximum", static_cast<int64_t>(field.max)}};
    std::string spelling = field.key;
    properties[spelling] = field.is_switch() ? flag : field.is_time() ? time : number;
    std::replace(spelling.begin(), spelling.end(), '-', '_');
    properties[spelling] = properties[field.key];
  }
  return {{"type", "object"}, {"description", "What one model gets that others do not, by its name."},
          {"additionalProperties", {{"type", {"object", "null"}}, {"additionalProperties", false}, {"properties", std::move(properties)}}}};
}

StatusOr<double> parse_setting(const PoolingField& field, const std::string& text) {
  if (field.is_time()) return parse_seconds(text, field.min, field.max);
  return parse_whole(text, static_cast<int64_t>(field.min), static_cast<int64_t>(field.max));
}

StatusOr<double> parse_seconds(const std::string& text, double min, double max) {
  constexpr std::pair<const char*, double> kUnits[] = {{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
  const size_t end = text.find_first_not_of("0123456789.+-eE");
  const std::string unit = end == std::string::npos ? "s" : text.substr(text.find_first_not_of(' ', end) == std::string::npos ? end : text.find_first_not_of(' ', end));
  const auto known = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const auto& u) { return unit == u.first; });
  double number = 0;
  if (known == std::end(kUnits) || !absl::SimpleAtod(text.substr(0, end), &number) || !(number * known->second >= min && number * known->second <= max)) {
    return invalid_argument("'", text, "' must be seconds from ", min, " to ", max, ", such as 2.5, 500ms or 10m");
  }
  return number * known->second;
}

std::vector<ModelSettings> read_model_settings(const std::string& config_path, std::vector<std::string>& problems) {
  std::vector<ModelSettings> out;
  if (config_path.empty()) return out;
  const auto file = read_file(config_path, kConfigBytesMax);
  if (!file.ok()) {
    problems.emplace_back(file.status().message());
    return out;
  }
  try {
    const YAML::Node root = YAML::Load(*file);
    const YAML::Node section = root.IsMap() ? root[kModelsKey] : YAML::Node();
    if (!section || section.IsNull()) return out;
    if (!section.IsMap()) {
      problems.push_back(absl::StrCat(place(config_path, section), ": 'models' must be a map from a model's name to its settings"));
      return out;
    }
    std::set<std::string> seen;
    for (const auto& entry : section) {
      if (!entry.first.IsScalar()) {
        problems.push_back(absl::StrCat(place(config_path, entry.first), ": the name of a model must be a word"));
      } else if (!seen.insert(entry.first.Scalar()).second) {
        problems.push_back(absl::StrCat(place(config_path, entry.first), ": the model '", entry.first.Scalar(), "' is there twice"));
      } else {
        out.push_back(read_model(config_path, entry.first, entry.second, problems));
      }
    }
  } catch (const YAML::Exception& error) {
    problems.push_back(absl::StrCat(config_path, ":", error.mark.line + 1, ": ", error.msg));
  }
  return out;
}

StatusOr<std::vector<std::string>> apply_model_settings(const std::vector<ModelSettings>& settings, std::vector<FoundModel>& models) {
  std::set<std::string> taken;
  for (const FoundModel& model : models) {
    taken.insert(model.entry.name);
    taken.insert(model.entry.aliases.begin(), model.entry.aliases.end());
  }
  std::vector<std::string> absent;
  for (const ModelSettings& one : settings) {
    const auto model = std::find_if(models.begin(), models.end(), [&](const FoundModel& m) { return m.entry.name == one.model; });
    if (model == models.end()) {
      absent.push_back(absl::StrCat(one.where, ": there is no model '", one.model, "'", did_you_mean(one.model, names_of(models))));
      continue;
    }
    apply_one(one, *model);
    for (const std::string& alias : one.aliases) {
      if (!taken.insert(alias).second) return invalid_argument(one.where, ": model '", one.model, "': the alias '", alias, "' is taken");
      model->entry.aliases.push_back(alias);
    }
  }
  return absent;
}

}  // namespace shoal
