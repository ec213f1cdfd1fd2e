// shoal config check | show | schema: which settings `shoal serve` would run with, and where each comes from.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "apps/cli_docs.h"
#include "apps/serve_flags.h"
#include "apps/table.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "base/json.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  shoal config check                          what `shoal serve` would use, and where it comes from\n"
    "  shoal config check /srv/models --config shoal.yaml\n"
    "  shoal config show > shoal.yaml              all settings as a file to start from\n"
    "  shoal config schema > shoal.schema.json     for editors";

struct ConfigFlags {
  ServeFlags serve;
  bool all = false, as_json = false;
};

// Faults that only show when the values meet.
std::vector<std::string> contradictions(const ServeFlags& flags) {
  std::vector<std::string> out;
  for (const Status& status : {check_serve_flags(flags), api_keys(flags).status(), load_options(flags.engine).status(), device_memory_bytes(flags.engine).status(),
                               host_memory_bytes(flags.engine).status(), weight_cache_bytes(flags.engine).status()}) {
    if (!status.ok()) out.emplace_back(status.message());
  }
  return out;
}

// Of settings that name models, against the models that are there; nothing where there is no such folder.
std::vector<std::string> faults_of_models(const ServeFlags& flags) {
  const auto options = load_options(flags.engine);
  if (!options.ok()) return {};
  auto scan = scan_models(flags.path, *options, flags.engine.max_model_len);
  if (!scan.ok()) return {std::string(scan.status().message())};
  std::vector<std::string> out;
  for (const Unservable& model : scan->unservable) out.push_back(absl::StrCat("not served: ", model.name, ": ", model.reason));
  for (const Status& status : {apply_aliases(flags.aliases, scan->models), apply_parsers(flags, scan->models)}) {
    if (!status.ok()) out.emplace_back(status.message());
  }
  auto absent = apply_model_settings(flags.models, scan->models);
  if (!absent.ok()) out.emplace_back(absent.status().message());
  if (absent.ok()) out.insert(out.end(), absent->begin(), absent->end());
  return out;
}

std::string said_of(const ModelSettings& model) {
  std::vector<std::string> words;
  for (const auto& [field, said] : model.pooling) {
    if (field->is_switch()) words.push_back(absl::StrCat(said != 0 ? "" : "not ", field->adjective));
    else words.push_back(absl::StrFormat("%s %g%s", field->key, said, field->is_time() ? " s" : ""));
  }
  if (model.preload) words.emplace_back(*model.preload ? "preloaded" : "not preloaded");
  if (model.context) words.push_back(absl::StrCat("context ", *model.context));
  if (!model.aliases.empty()) words.push_back("aliases " + absl::StrJoin(model.aliases, " "));
  if (model.tool_call_parser) words.push_back("tool-call-parser " + *model.tool_call_parser);
  if (model.reasoning_parser) words.push_back("reasoning-parser " + *model.reasoning_parser);
  return words.empty() ? "as all models" : absl::StrJoin(words, ", ");
}

Json to_json(const std::string& file, const Explained& explained, const std::vector<ModelSettings>& of_models) {
  Json settings = Json::object(), models = Json::object();
  for (const Setting& s : explained.settings) settings[s.name] = {{"value", s.value}, {"source", s.source}};
  for (const ModelSettings& model : of_models) models[model.model] = {{"settings", said_of(model)}, {"source", model.where}};
  return {{"file", file.empty() ? Json(nullptr) : Json(file)}, {"settings", std::move(settings)}, {"models", std::move(models)},
          {"problems", explained.problems}};
}

// A value that is wider than the terminal goes on in the next line.
void show_table(const Table& table) {
  const size_t width = stdout_columns();
  const Table::Lines lines = table.lines(width);
  show_text(lines.heading + "\n");
  for (const std::string& row : lines.rows) show_text(absl::StrJoin(wrap_text(row, width, 2), "\n") + "\n");
  for (const std::string& line : left_out_lines(lines.left_out, width)) show_text(line + "\n");
}

void show_settings(const std::string& file, const Explained& explained, bool all) {
  const std::string where = file.empty() ? "none (no --config, and no shoal.yaml among the models or above them)" : file;
  show_text(absl::StrJoin(wrap_text("file: " + where, stdout_columns(), 2), "\n") + "\n\n");
  Table table({{"SETTING"}, {"VALUE"}, {"FROM", 1}});
  size_t defaults = 0;
  for (const Setting& s : explained.settings) {
    const bool is_default = s.source == "default";
    defaults += is_default ? 1 : 0;
    if (!is_default || all) table.row({s.name, s.value.empty() ? "-" : s.value, s.source});
  }
  show_table(table);
  if (!all && defaults > 0) show_text(absl::StrCat(defaults, " others have their defaults (--all)\n"));
}

void show_model_settings(const std::vector<ModelSettings>& models) {
  if (models.empty()) return;
  Table table({{"MODEL"}, {"SETTINGS"}, {"FROM", 1}});
  for (const ModelSettings& model : models) table.row({model.model, said_of(model), model.where});
  show_text("\n");
  show_table(table);
}

int check(CLI::App& verb, ConfigFlags& flags) {
  const auto file = config_of(verb);
  if (!file.ok()) return fail(std::string(file.status().message()));
  Explained explained = explain_settings(verb, *file);
  flags.serve.models = read_model_settings(*file, explained.problems);
  if (explained.problems.empty()) explained.problems = contradictions(flags.serve);
  if (explained.problems.empty()) explained.problems = faults_of_models(flags.serve);
  if (flags.as_json) {
    show_text(dump_json(to_json(*file, explained, flags.serve.models), 2) + "\n");
  } else {
    show_settings(*file, explained, flags.all);
    show_model_settings(flags.serve.models);
    for (const std::string& problem : explained.problems) fail(problem);
    if (explained.problems.empty()) show_text("\nno problem found\n");
  }
  return explained.problems.empty() ? kExitOk : kExitFailed;
}

// Quoted where YAML would read something else.
std::string yaml_value(const Setting& s) {
  const bool plain = !s.value.empty() && std::all_of(s.value.begin(), s.value.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '/' || c == '_' || c == '-'; });
  return plain && s.value.front() != '-' ? s.value : dump_json(s.value);
}

int show(CLI::App& verb, const ConfigFlags& flags) {
  const auto file = config_of(verb);
  if (!file.ok()) return fail(std::string(file.status().message()));
  Explained explained = explain_settings(verb, *file);
  const std::vector<ModelSettings> models = read_model_settings(*file, explained.problems);
  for (const std::string& problem : explained.problems) fail(problem);
  if (flags.as_json) {
    show_text(dump_json(to_json(*file, explained, models), 2) + "\n");
    return explained.problems.empty() ? kExitOk : kExitFailed;
  }
  for (const Setting& s : explained.settings) {
    std::printf("# %s\n", s.help.c_str());
    // What has no value, or must not be shown, stays a comment.
    if (s.value.empty() || is_secret(s.name)) std::printf("# %s:%s\n\n", s.name.c_str(), s.value.empty() ? "" : (" " + s.value).c_str());
    else std::printf("%s: %s\n\n", s.name.c_str(), yaml_value(s).c_str());
  }
  if (!models.empty()) std::printf("# What one model gets that others do not\n%s", models_yaml(models).c_str());
  return explained.problems.empty() ? kExitOk : kExitFailed;
}

Json schema_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const bool flag = option.get_items_expected_max() == 0;
  Json one = flag ? Json{{"type", {"boolean", "string"}}} : type.starts_with("UINT") || type.starts_with("INT") ? Json{{"type", "integer"}}
             : type.starts_with("FLOAT") ? Json{{"type", "number"}} : Json{{"type", {"string", "number"}}};
  if (const auto choices = option_choices(option); !choices.empty()) one = {{"enum", choices}};
  if (option.get_items_expected_max() > 1) one = {{"anyOf", Json::array({one, {{"type", "array"}, {"items", one}}})}};
  one["description"] = option.get_description();
  if (!option.get_default_str().empty()) one["default"] = option.get_default_str();
  return one;
}

int schema() {
  CLI::App verb;
  ServeFlags flags;
  add_serve_flags(verb, flags);
  Json properties = Json::object();
  for (const CLI::Option* option : verb.get_options()) {
    const std::vector<std::string> names = option->get_lnames().empty() ? std::vector<std::string>{option->get_single_name()} : option->get_lnames();
    for (const std::string& name : names) {
      if (name != "help" && name != "config") properties[name] = schema_of(*option);
    }
  }
  properties[kModelsKey] = models_schema();
  show_text(dump_json({{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "shoal.yaml"}, {"type", "object"},
                       {"additionalProperties", false}, {"properties", std::move(properties)}}, 2) + "\n");
  return kExitOk;
}

}  // namespace

RunVerb add_config(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("config", "Explain the settings of `shoal serve`");
  verb->require_subcommand(1);
  verb->footer(kExamples);
  const auto add = [&](const char* name, const char* help) {
    CLI::App* sub = verb->add_subcommand(name, help);
    auto flags = std::make_shared<ConfigFlags>();
    add_serve_flags(*sub, flags->serve);
    sub->add_flag("--json", flags->as_json, "Print a JSON object");
    return std::pair(sub, flags);
  };
  const auto [check_verb, check_flags] = add("check", "Each setting that is not the default, where it comes from, and what is wrong; takes the flags of serve");
  check_verb->add_flag("--all", check_flags->all, "Also what has its default");
  const auto [show_verb, show_flags] = add("show", "All settings as a file");
  verb->add_subcommand("schema", "JSON schema of shoal.yaml");
  return [check_verb = check_verb, check_flags = check_flags, show_verb = show_verb, show_flags = show_flags] {
    if (check_verb->parsed()) return check(*check_verb, *check_flags);
    return show_verb->parsed() ? show(*show_verb, *show_flags) : schema();
  };
}

}  // namespace shoal
