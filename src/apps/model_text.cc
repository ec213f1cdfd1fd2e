#include "apps/model_text.h"

#include <filesystem>

#include "apps/gguf_text.h"
#include "base/json.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

namespace fs = std::filesystem;
constexpr size_t kConfigBytesMax = 64u << 20;
constexpr size_t kTemplateBytesMax = 4u << 20;
constexpr const char* kDefaultTemplate = "default";
constexpr const char* kToolTemplate = "tool_use";

bool is_gguf(const std::string& path) { return fs::path(path).extension() == ".gguf"; }

// tokenizer_config.json, or an empty object if there is none.
StatusOr<Json> tokenizer_config(const std::string& folder) {
  const std::string path = (fs::path(folder) / "tokenizer_config.json").string();
  if (!fs::exists(path)) return Json::object();
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kConfigBytesMax));
  auto json = parse_json(text);
  if (!json.ok()) return annotate(json.status(), path);
  if (!json->is_object()) return invalid_argument(path, ": must be a JSON object");
  return *std::move(json);
}

// A special token is written as text or as {"content": text, ...}.
void add_token_variable(const Json& config, const char* name, std::map<std::string, std::string>& out) {
  const auto it = config.find(name);
  if (it == config.end()) return;
  if (it->is_string()) out[name] = it->get<std::string>();
  if (it->is_object() && it->contains("content") && (*it)["content"].is_string()) {
    out[name] = (*it)["content"].get<std::string>();
  }
}

// chat_template: a text, or a list of {"name", "template"} of which "default" is the one for chats, and "tool_use", if
// there is one, that for chats with tools.
StatusOr<std::string> template_in(const Json& config, const char* name) {
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) return not_found("the model has no chat template");
  if (it->is_string() && std::string_view(name) == kDefaultTemplate) return it->get<std::string>();
  if (it->is_array()) {
    for (const Json& item : *it) {
      if (item.is_object() && item.value("name", Json()) == name && item.contains("template") && item["template"].is_string()) {
        return item["template"].get<std::string>();
      }
    }
  }
  return not_found("tokenizer_config.json: 'chat_template' is neither a text nor a list with a '", name, "'");
}

void attach_template(const StatusOr<std::string>& source, ModelText& text) {
  if (!source.ok()) {
    if (source.status().code() != StatusCode::kNotFound) text.chat_template_problem = std::string(source.status().message());
    return;
  }
  auto parsed = ChatTemplate::parse(*source);
  if (parsed.ok()) {
    text.chat_template = *std::move(parsed);
    text.traits = probe_template(*text.chat_template, text.template_variables);
    text.knows_developer_role = source->find("developer") != std::string::npos;
  } else {
    text.chat_template_problem = std::string(parsed.status().message());
  }
}

// The template for chats with tools; one that cannot be used is as none.
void attach_tool_template(const StatusOr<std::string>& source, ModelText& text) {
  if (!source.ok()) return;
  auto parsed = ChatTemplate::parse(*source);
  if (!parsed.ok()) return;
  text.tool_template = *std::move(parsed);
  text.tool_traits = probe_template(*text.tool_template, text.template_variables);
}

// bos_token and its like, by the names that templates use.
StatusOr<std::map<std::string, std::string>> template_variables(const std::string& path) {
  if (is_gguf(path)) return load_gguf_template_variables(path);
  ASSIGN_OR_RETURN(const Json config, tokenizer_config(path));
  std::map<std::string, std::string> variables;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) add_token_variable(config, name, variables);
  return variables;
}

// chat_template.jinja is the default one; further ones are in a folder beside it, or listed in tokenizer_config.json.
StatusOr<std::string> load_tool_template_source(const std::string& path) {
  if (is_gguf(path)) return not_found("GGUF files have one chat template");
  const std::string own_file = (fs::path(path) / "additional_chat_templates" / "tool_use.jinja").string();
  if (fs::exists(own_file)) return read_file(own_file, kTemplateBytesMax);
  ASSIGN_OR_RETURN(const Json config, tokenizer_config(path));
  return template_in(config, kToolTemplate);
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& path) {
  return is_gguf(path) ? load_gguf_tokenizer(path) : load_hf_tokenizer(path);
}

StatusOr<std::string> load_chat_template_source(const std::string& path) {
  if (is_gguf(path)) return load_gguf_template_source(path);
  const std::string own_file = (fs::path(path) / "chat_template.jinja").string();
  if (fs::exists(own_file)) return read_file(own_file, kTemplateBytesMax);
  ASSIGN_OR_RETURN(const Json config, tokenizer_config(path));
  return template_in(config, kDefaultTemplate);
}

StatusOr<std::shared_ptr<const ModelText>> load_model_text(const std::string& path, const std::string& tool_call_parser,
                                                           const std::string& reasoning_parser) {
  auto text = std::make_shared<ModelText>();
  ASSIGN_OR_RETURN(text->tokenizer, load_tokenizer(path));
  ASSIGN_OR_RETURN(text->template_variables, template_variables(path));
  if (const auto eos = text->template_variables.find("eos_token"); eos != text->template_variables.end()) {
    text->eos_id = text->tokenizer->token_id(eos->second);
  }
  const StatusOr<std::string> source = load_chat_template_source(path);
  const StatusOr<std::string> tool_source = load_tool_template_source(path);
  attach_template(source, *text);
  attach_tool_template(tool_source, *text);
  const std::string known = source.value_or("") + tool_source.value_or("");
  ASSIGN_OR_RETURN(text->format, choose_format(known, tool_call_parser, reasoning_parser));
  return std::shared_ptr<const ModelText>(text);
}

}  // namespace shoal
