// Chat bodies: the messages of a conversation, checked and brought into the form that chat templates expect.
#include <array>

#include "gateway/fields.h"
#include "gateway/openai_request.h"
#include "gateway/other_fields.h"
#include "gateway/request_fields.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr std::array<std::string_view, 6> kRoles = {"system", "developer", "user", "assistant", "tool", "function"};

constexpr std::array<std::string_view, 7> kEfforts = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
constexpr size_t kNameBytesMax = 1024;
constexpr size_t kTextBytesMax = 64u << 20;  // the body's own limit is tighter

// A list of parts becomes their texts, one per line; parts that are not text are refused.
void flatten_parts(Fields& message, const OrderedJson& parts, std::string& out) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string where = absl::StrCat("content.[", i, "]");
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
    message["content"] = nullptr;
    if (!message.contains("tool_calls")) message["content"] = "";
  } else if (content->is_array()) {
    std::string text;
    flatten_parts(fields, *content, text);
    message["content"] = std::move(text);
  } else if (!content->is_string()) {
    fields.refuse("content", absl::StrCat("'", fields.name("content"), "' must be a string or a list of parts, not ",
                                          content->type_name(), "."));
  }
}

// Clients send a call's arguments as JSON text, some as an object, which is what most templates print.
void check_arguments(Fields& function, OrderedJson& out) {
  const OrderedJson* given = function.find("arguments");
  OrderedJson arguments = given == nullptr || *given == "" ? OrderedJson::object() : *given;
  if (arguments.is_string()) {
    auto parsed = parse_ordered_json(arguments.get_ref<const std::string&>(), {.refuse_duplicate_keys = false});
    if (!parsed.ok()) {
      return function.refuse("arguments", "'" + function.name("arguments") + "' must be the text of a JSON object: " +
                                              std::string(parsed.status().message()) + ".");
    }
    arguments = *std::move(parsed);
  }
  if (!arguments.is_object()) {
    return function.refuse("arguments", absl::StrCat("'", function.name("arguments"), "' must be a JSON object, not ",
                                                     arguments.type_name(), "."));
  }
  out["arguments"] = std::move(arguments);
}

void check_call(Fields& message, OrderedJson& call, const std::string& where) {
  if (!call.is_object()) return message.refuse(where, "'" + message.name(where) + "' must be an object.");
  Fields fields(call, message.name(where + "."));
  std::string id, type = "function", name;
  fields.text("id", kNameBytesMax, id);
  fields.text("type", kNameBytesMax, type);
  if (fields.ok() && type != "function") {
    fields.refuse(unsupported_value(fields.name("type"), "'" + fields.name("type") + "' must be \"function\", not '" + type + "'."));
  }
  const OrderedJson* given = fields.find("function");
  if (given == nullptr || !given->is_object()) {
    fields.refuse("function", "'" + fields.name("function") + "' must be an object with 'name' and 'arguments'.");
  }
  if (fields.ok()) {
    OrderedJson function = *given;
    Fields inner(*given, fields.name("function."));
    inner.text("name", kNameBytesMax, name);
    if (inner.ok() && name.empty()) inner.refuse("name", "'" + inner.name("name") + "' is missing.");
    check_arguments(inner, function);
    if (!inner.ok()) return message.refuse(*inner.error());
    call["type"] = "function";  // templates ask for it
    call["function"] = std::move(function);
  }
  if (!fields.ok()) message.refuse(*fields.error());
}

void check_calls(Fields& fields, OrderedJson& message) {
  const OrderedJson* calls = fields.find("tool_calls");
  const bool none = calls == nullptr || (calls->is_array() && calls->empty());
  if (none) message.erase("tool_calls");  // templates ask whether it is there
  if (none || !fields.ok()) return;
  if (!calls->is_array()) return fields.refuse("tool_calls", "'" + fields.name("tool_calls") + "' must be a list.");
  if (message["role"] != "assistant") {
    return fields.refuse("tool_calls", "'" + fields.name("tool_calls") + "': only messages of the assistant have calls.");
  }
  OrderedJson checked = *calls;
  for (size_t i = 0; i < checked.size() && fields.ok(); ++i) check_call(fields, checked[i], absl::StrCat("tool_calls.[", i, "]"));
  message["tool_calls"] = std::move(checked);
}

// What an assistant thought in an earlier turn, under the name that most templates know.
void check_reasoning(Fields& fields, OrderedJson& message) {
  std::string text;
  fields.text("reasoning", kTextBytesMax, text);
  fields.text("reasoning_content", kTextBytesMax, text);
  message.erase("reasoning");
  message.erase("reasoning_content");
  if (!text.empty()) message["reasoning_content"] = std::move(text);
}

void check_message(Fields& fields, OrderedJson& message) {
  std::string role;
  fields.text("role", 64, role);
  if (!fields.ok()) return;
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    return fields.refuse("role", "'" + fields.name("role") + "' must be one of system, developer, user, assistant, tool, "
                                 "function, not '" + role + "'.");
  }
  for (const char* key : {"images", "audio", "videos"}) {  // Ollama's way to attach them
    const OrderedJson* media = fields.find(key);
    if (media == nullptr || media->empty()) continue;
    fields.refuse(unsupported_value(fields.name(key), "'" + fields.name(key) + "' is not served; only text is supported."));
  }
  std::string name, id;
  fields.text("name", kNameBytesMax, name);
  fields.text("tool_call_id", kNameBytesMax, id);
  if (fields.find("function_call") != nullptr) {
    fields.refuse(unsupported_value(fields.name("function_call"),
                                    "'" + fields.name("function_call") + "' is the old spelling; use 'tool_calls'."));
  }
  check_calls(fields, message);
  check_content(fields, message);
  check_reasoning(fields, message);
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

void read_effort(Fields& fields, std::string& out) {
  fields.text("reasoning_effort", 64, out);
  if (!fields.ok() || out.empty() || std::find(kEfforts.begin(), kEfforts.end(), out) != kEfforts.end()) return;
  fields.refuse("reasoning_effort", "'reasoning_effort' must be none, minimal, low, medium, high, xhigh or max, not '" + out + "'.");
}

// vLLM's include_reasoning, llama.cpp's reasoning_format.
void read_reasoning(Fields& fields, ChatRequest& out) {
  fields.boolean("include_reasoning", out.include_reasoning);
  std::string format = "auto";
  fields.text("reasoning_format", 64, format);
  if (fields.ok() && format != "auto" && format != "deepseek" && format != "none") {
    fields.refuse("reasoning_format", "'reasoning_format' must be auto, deepseek or none, not '" + format + "'.");
  }
  out.parse_reasoning = format != "none";
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
    const std::string where = absl::StrCat("messages.[", i, "]");
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
  if (const OrderedJson* documents = fields.find("documents")) {  // of templates for retrieval
    if (!documents->is_array()) return fields.refuse("documents", "'documents' must be a list.");
    (*variables)["documents"] = *documents;
  }
  out.variables = std::move(variables);
  read_tools(fields, limits, out.tools);
  read_effort(fields, out.reasoning_effort);
}

ApiResult<ChatRequest> parse_chat_request(std::string_view body, const RequestLimits& limits) {
  auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  ChatRequest request;
  read_generation_fields(fields, limits, request.common);
  read_chat_prompt(fields, limits, request.prompt);
  read_reasoning(fields, request);
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
  check_other_fields(fields);
  if (!fields.ok()) return *fields.error();
  return request;
}

}  // namespace shoal
