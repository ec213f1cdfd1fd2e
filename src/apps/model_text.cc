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

// The object in `file`, or an empty one if there is no such file.
StatusOr<Json> object_in(const std::string& folder, const char* file) {
  const std::string path = (fs::path(folder) / file).string();
  if (!fs::exists(path)) return Json::object();
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kConfigBytesMax));
  auto json = parse_json(text);
  if (!json.ok()) return annotate(json.status(), path);
  if (!json->is_object()) return invalid_argument(path, ": must be a JSON object");
  return *std::move(json);
}

StatusOr<Json> tokenizer_config(const std::string& folder) { return object_in(folder, "tokenizer_config.json"); }

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

TemplateTraits traits_of(const ChatTemplate& chat_template, const ModelText& text) {
  return probe_template([&](const OrderedJson& variables) { return text_or_nothing(chat_template, variables); }, text.template_variables);
}

void attach_template(const StatusOr<std::string>& source, ModelText& text) {
  if (!source.ok()) {
    if (source.status().code() != StatusCode::kNotFound) text.chat_template_problem = std::string(source.status().message());
    return;
  }
  auto parsed = ChatTemplate::parse(*source);
  if (parsed.ok()) {
    text.chat_template = *std::move(parsed);
    text.traits = traits_of(*text.chat_template, text);
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
  text.tool_traits = traits_of(*text.tool_template, text);
}

// chat_template.jinja is the default one; further ones are in a folder beside it, or listed in tokenizer_config.json. Some multimodal
// folders have theirs in chat_template.json.
StatusOr<std::string> folder_template(const std::string& folder, const StatusOr<Json>& config, const char* file, const char* name) {
  const std::string own_file = (fs::path(folder) / file).string();
  if (fs::exists(own_file)) return read_file(own_file, kTemplateBytesMax);
  RETURN_IF_ERROR(config.status());
  StatusOr<std::string> found = template_in(*config, name);
  if (found.status().code() != StatusCode::kNotFound) return found;
  ASSIGN_OR_RETURN(const Json apart, object_in(folder, "chat_template.json"));
  return apart.contains("chat_template") ? template_in(apart, name) : found;
}
constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kToolTemplateFile = "additional_chat_templates/tool_use.jinja";

// What a model's files say of its text.
struct Sources {
  std::unique_ptr<Tokenizer> tokenizer;
  std::map<std::string, std::string> variables;  // bos_token and its like, by the names that templates use
  StatusOr<std::string> chat_template, tool_template;
  Json tokenizer_config = Json::object();
};

StatusOr<Sources> read_gguf(const std::string& path) {
  ASSIGN_OR_RETURN(GgufText file, load_gguf_text(path));
  Sources sources{std::move(file.tokenizer), std::move(file.variables), not_found(path, ": the model has no chat template"),
                  not_found("GGUF files have one chat template")};
  if (!file.chat_template.empty()) sources.chat_template = std::move(file.chat_template);
  return sources;
}

StatusOr<Sources> read_folder(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, load_hf_tokenizer(path));
  ASSIGN_OR_RETURN(const Json config, tokenizer_config(path));
  Sources sources{std::move(tokenizer), {}, folder_template(path, config, kTemplateFile, kDefaultTemplate),
                  folder_template(path, config, kToolTemplateFile, kToolTemplate)};
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) add_token_variable(config, name, sources.variables);
  if (config.is_object()) sources.tokenizer_config = config;
  return sources;
}

// tokenizer_config.json as transformers would write it: tokens as texts, and the chat template beside them.
std::string tokenizer_info(const Sources& sources) {
  Json info = sources.tokenizer_config;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) info[name] = nullptr;
  for (const auto& [name, value] : sources.variables) info[name] = value;
  if (!info.contains("tokenizer_class")) info["tokenizer_class"] = "PreTrainedTokenizerFast";
  info["chat_template"] = sources.chat_template.ok() ? Json(*sources.chat_template) : Json(nullptr);
  return dump_json(info);
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& path) {
  if (!is_gguf(path)) return load_hf_tokenizer(path);
  ASSIGN_OR_RETURN(GgufText file, load_gguf_text(path));
  return std::move(file.tokenizer);
}

StatusOr<std::string> load_chat_template_source(const std::string& path) {
  if (is_gguf(path)) return load_gguf_template_source(path);
  return folder_template(path, tokenizer_config(path), kTemplateFile, kDefaultTemplate);
}

StatusOr<std::shared_ptr<const ModelText>> load_model_text(const std::string& path, const std::string& tool_call_parser,
                                                           const std::string& reasoning_parser) {
  ASSIGN_OR_RETURN(Sources sources, is_gguf(path) ? read_gguf(path) : read_folder(path));
  auto text = std::make_shared<ModelText>();
  text->tokenizer_info = tokenizer_info(sources);
  text->tokenizer = std::move(sources.tokenizer);
  text->template_variables = std::move(sources.variables);
  if (const auto eos = text->template_variables.find("eos_token"); eos != text->template_variables.end()) {
    text->eos_id = text->tokenizer->token_id(eos->second);
  }
  attach_template(sources.chat_template, *text);
  attach_tool_template(sources.tool_template, *text);
  const std::string known = sources.chat_template.value_or("") + sources.tool_template.value_or("");
  ASSIGN_OR_RETURN(text->format, choose_format(known, tool_call_parser, reasoning_parser));
  return std::shared_ptr<const ModelText>(text);
}

}  // namespace shoal
