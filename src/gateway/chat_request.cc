// Chat bodies: the messages of a conversation, checked and brought into the form that chat templates expect.
#include <array>

#include "gateway/fields.h"
#include "gateway/openai_request.h"
#include "gateway/request_fields.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr std::array<std::string_view, 6> kRoles = {"system", "developer", "user", "assistant", "tool", "function"};

// A list of parts becomes their texts, one per line; parts that are not text are refused.
void flatten_parts(Fields& message, const OrderedJson& parts, std::string& out) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string where = absl::StrCat("content[", i, "]");
    const OrderedJson& part = parts[i];
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string()) {
      return message.refuse(where, "'" + message.name(where) + "' must be an object with a 'type'.");
    }
    const std::string& kind = type->get_ref<const std::string&>();
    if (kind != "text" && kind != "input_text" && kind != "refusal") {
      return message.refuse(unsupported_value(message.name(where), "'" + message.name(where) + "' is of type '" + kind +
                                                                       "'; only text is supported."));
    }
    const auto text = part.find(kind == "refusal" ? "refusal" : "text");
    if (text == part.end() || !text->is_string()) {
      return message.refuse(where, "'" + message.name(where) + "' has no 'text' string.");
    }
    if (i > 0) out += '\n';
    out += text->get_ref<const std::string&>();
  }
}

void check_content(Fields& fields, OrderedJson& message) {
  const OrderedJson* content = fields.find("content");
  const std::string& role = message["role"].get_ref<const std::string&>();
  if (content == nullptr) {
    if (role != "assistant") return fields.refuse("content", "'" + fields.name("content") + "' is missing.");
    message["content"] = "";  // an assistant turn that only called tools
  } else if (content->is_array()) {
    std::string text;
    flatten_parts(fields, *content, text);
    message["content"] = std::move(text);
  } else if (!content->is_string()) {
    fields.refuse("content", absl::StrCat("'", fields.name("content"), "' must be a string or a list of parts, not ",
                                          content->type_name(), "."));
  }
}

// Clients send a call's arguments as JSON text, templates print them as an object.
void open_tool_arguments(Fields& fields, OrderedJson& message) {
  const OrderedJson* calls = fields.find("tool_calls");
  if (calls == nullptr || !fields.ok()) return;
  if (!calls->is_array()) return fields.refuse("tool_calls", "'" + fields.name("tool_calls") + "' must be a list.");
  for (OrderedJson& call : message["tool_calls"]) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) {
      return fields.refuse("tool_calls", "'" + fields.name("tool_calls") + "' must hold objects with a 'function'.");
    }
    OrderedJson& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    auto parsed = parse_ordered_json(arguments->get_ref<const std::string&>());
    if (parsed.ok() && parsed->is_object()) *arguments = *std::move(parsed);
  }
}

void check_message(Fields& fields, OrderedJson& message) {
  std::string role;
  fields.text("role", 64, role);
  if (!fields.ok()) return;
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    return fields.refuse("role", "'" + fields.name("role") + "' must be one of system, developer, user, assistant, tool, "
                                 "function, not '" + role + "'.");
  }
  std::string name;
  fields.text("name", 1024, name);
  check_content(fields, message);
  open_tool_arguments(fields, message);
}

void check_prompt_flags(Fields& fields, ChatPrompt& out) {
  fields.boolean("add_generation_prompt", out.add_generation_prompt);
  fields.boolean("continue_final_message", out.continue_final_message);
  if (!out.continue_final_message) return;
  if (fields.find("add_generation_prompt") == nullptr) out.add_generation_prompt = false;
  if (fields.ok() && out.add_generation_prompt) {
    fields.refuse("continue_final_message",
                  "'continue_final_message' and 'add_generation_prompt' exclude each other; set one to false.");
  }
}

}  // namespace

void read_chat_prompt(Fields& fields, const RequestLimits& limits, ChatPrompt& out) {
  const OrderedJson* messages = fields.find("messages");
  if (messages == nullptr) return fields.refuse("messages", "'messages' is missing.");
  if (!messages->is_array() || messages->empty()) {
    return fields.refuse("messages", "'messages' must be a list of at least one message.");
  }
  if (messages->size() > limits.messages_max) {
    return fields.refuse("messages", absl::StrCat("'messages' has ", messages->size(), " entries; the limit is ",
                                                  limits.messages_max, "."));
  }
  auto checked = std::make_shared<OrderedJson>(OrderedJson::array());
  for (size_t i = 0; i < messages->size() && fields.ok(); ++i) {
    OrderedJson message = (*messages)[i];
    const std::string where = absl::StrCat("messages[", i, "]");
    if (!message.is_object()) return fields.refuse(where, "'" + where + "' must be an object.");
    Fields inner((*messages)[i], where + ".");
    check_message(inner, message);
    if (!inner.ok()) return fields.refuse(*inner.error());
    checked->push_back(std::move(message));
  }
  out.messages = std::move(checked);
  check_prompt_flags(fields, out);
  auto variables = std::make_shared<OrderedJson>(OrderedJson::object());
  if (const OrderedJson* given = fields.find("chat_template_kwargs")) {
    if (!given->is_object()) return fields.refuse("chat_template_kwargs", "'chat_template_kwargs' must be an object.");
    *variables = *given;
  }
  out.variables = std::move(variables);
}

ApiResult<ChatRequest> parse_chat_request(std::string_view body, const RequestLimits& limits) {
  auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  ChatRequest request;
  read_generation_fields(fields, limits, request.common);
  read_chat_prompt(fields, limits, request.prompt);
  bool logprobs = false;
  fields.boolean("logprobs", logprobs);
  uint32_t top = 0;
  fields.integer("top_logprobs", 0, limits.top_logprobs_max, top);
  if (fields.ok() && top > 0 && !logprobs) {
    fields.refuse("top_logprobs", "'top_logprobs' needs 'logprobs' to be true.");
  }
  if (logprobs) request.common.logprobs = top;
  if (const OrderedJson* modalities = fields.find("modalities"); modalities != nullptr && modalities->is_array()) {
    for (const OrderedJson& kind : *modalities) {
      if (kind != "text") fields.refuse(unsupported_value("modalities", "'modalities' other than text are not supported."));
    }
  }
  if (!fields.ok()) return *fields.error();
  return request;
}

}  // namespace shoal
