// shoal render: what a chat template makes of messages.
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "apps/json_lines.h"
#include "apps/model_scan.h"
#include "apps/model_text.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kTemplateBytesMax = 4u << 20;
constexpr size_t kInputBytesMax = 256u << 20;

struct RenderFlags {
  std::string model;
  std::string models_dir = "models";
  std::string template_file;
  std::string now;
  bool jsonl = false;
};

// "2026-01-15", "2026-01-15T12:30:00", with or without "Z" or "+hh:mm".
std::optional<int64_t> parse_time(const std::string& text) {
  std::tm parts{};
  const char* rest = nullptr;
  for (const char* format : {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"}) {
    parts = {};
    if ((rest = strptime(text.c_str(), format, &parts)) != nullptr) break;
  }
  if (rest == nullptr) return std::nullopt;
  if (*rest == '.') rest += 1 + std::strspn(rest + 1, "0123456789");
  if (*rest == 'Z') ++rest;
  long offset_s = 0;
  if (*rest == '+' || *rest == '-') {
    std::tm offset{};
    const char* end = strptime(rest + 1, "%H:%M", &offset);
    if (end == nullptr) return std::nullopt;
    offset_s = (*rest == '+' ? 1 : -1) * (offset.tm_hour * 3600L + offset.tm_min * 60L);
    rest = end;
  }
  if (*rest != '\0') return std::nullopt;
  return timegm(&parts) - offset_s;
}

StatusOr<Json> render_line(const ChatTemplate& chat_template, const OrderedJson& defaults, const OrderedJson& line,
                           int64_t now) {
  OrderedJson variables = defaults;
  variables.update(line);
  ASSIGN_OR_RETURN(const std::vector<TextPart> parts, chat_template.render_ordered(variables, {.now_unix_seconds = now}));
  return Json{{"text", join(parts)}};
}

// The template, and the variables that the model itself gives (bos_token ...).
StatusOr<std::pair<std::string, OrderedJson>> template_of(const RenderFlags& flags) {
  if (!flags.template_file.empty()) {
    ASSIGN_OR_RETURN(std::string source, read_file(flags.template_file, kTemplateBytesMax));
    return std::pair(std::move(source), OrderedJson::object());
  }
  ASSIGN_OR_RETURN(const std::string path, model_path(flags.model, flags.models_dir));
  ASSIGN_OR_RETURN(std::string source, load_chat_template_source(path));
  ASSIGN_OR_RETURN(const auto text, load_model_text(path));
  return std::pair(std::move(source), OrderedJson(text->template_variables));
}

StatusOr<int> render(const RenderFlags& flags) {
  const auto now = flags.now.empty() ? std::optional<int64_t>(std::time(nullptr)) : parse_time(flags.now);
  if (!now) return invalid_argument("--now ", flags.now, ": is not an ISO 8601 time such as 2026-01-15T12:30:00");
  ASSIGN_OR_RETURN(const auto source, template_of(flags));
  ASSIGN_OR_RETURN(const auto chat_template, ChatTemplate::parse(source.first));
  if (flags.jsonl) {
    return each_json_line([&](const OrderedJson& line) { return render_line(*chat_template, source.second, line, *now); });
  }
  ASSIGN_OR_RETURN(const OrderedJson variables, parse_ordered_json(read_all_stdin(kInputBytesMax)));
  if (!variables.is_object()) return invalid_argument("stdin must be a JSON object of template variables");
  ASSIGN_OR_RETURN(const Json row, render_line(*chat_template, source.second, variables, *now));
  show_text(row["text"].get<std::string>());
  return kExitOk;
}

}  // namespace

RunVerb add_render(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("render", "Render a chat template with variables from stdin");
  auto flags = std::make_shared<RenderFlags>();
  auto* model = verb->add_option("--model", flags->model, "Model whose template is rendered");
  verb->add_option("--models-dir", flags->models_dir, "Where names of models are looked up")->capture_default_str();
  auto* file = verb->add_option("--template", flags->template_file, "Template file");
  model->excludes(file);
  verb->add_flag("--jsonl", flags->jsonl, "Lines of variables in, lines {\"text\"} or {\"error\"} out");
  verb->add_option("--now", flags->now, "Time for strftime_now(), ISO 8601, UTC");
  verb->footer("Examples:\n  echo '{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}' | shoal render --model models/tiny-llama\n"
               "  shoal render --template chat_template.jinja --jsonl --now 2026-01-15 < variables.jsonl");
  return [flags] {
    if (flags->model.empty() && flags->template_file.empty()) {
      fail("give --model PATH or --template FILE");
      return kExitUsage;
    }
    const auto result = render(*flags);
    return result.ok() ? *result : fail(std::string(result.status().message()));
  };
}

}  // namespace shoal
