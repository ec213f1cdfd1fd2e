#include "gateway/surfaces/messages_request.h"

#include <array>

#include "gateway/other_fields.h"
#include "gateway/request_fields.h"
#include "gateway/strings.h"
#include "gateway/surfaces/chat_parts.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kNameBytesMax = 1024;
constexpr size_t kTextBytesMax = 64u << 20;  // the body's own limit is tighter
constexpr std::array<std::string_view, 1> kText = {"text"};
constexpr std::string_view kBilling = "x-anthropic-billing-header:";

bool is_billing(std::string_view text) { return trimmed(text).starts_with(kBilling); }

// The text of `system`: a string or blocks.
void read_system(Fields& fields, const OrderedJson& value, const std::string& where, std::string& out) {
  if (!value.is_array()) {
    read_text_parts(fields, value, where, kText, out);
    if (is_billing(out)) out.erase(0, std::min(out.find('\n'), out.size() - 1) + 1);
    return;
  }
  OrderedJson kept = OrderedJson::array();
  for (const OrderedJson& block : value) {
    const bool text = block.is_object() && block.contains("text") && block["text"].is_string();
    if (!text || !is_billing(block["text"].get_ref<const std::string&>())) kept.push_back(block);
  }
  read_text_parts(fields, kept, where, kText, out);
}

// A document of plain text is text; every other source is refused by name.
void read_document(Fields& block, std::string& out) {
  const OrderedJson* source = block.find("source");
  const bool text = source != nullptr && source->is_object() && source->value("type", OrderedJson()) == "text" && source->contains("data") &&
                    (*source)["data"].is_string();
  if (!text) return block.refuse(unsupported_value(block.name("source"), "'" + block.name("source") + "': only documents of plain text are served ({\"type\": \"text\"})."));
  std::string title;
  block.text("title", kNameBytesMax, title);
  if (!title.empty()) out += title + "\n";
  out += (*source)["data"].get<std::string>();
}

void read_tool_result(Fields& block, Conversation& out) {
  std::string id, text;
  block.text("tool_use_id", kNameBytesMax, id);
  if (block.ok() && id.empty()) return block.refuse("tool_use_id", "'" + block.name("tool_use_id") + "' is missing.");
  if (const OrderedJson* content = block.find("content")) read_text_parts(block, *content, "content", kText, text);
  bool failed = false;
  block.boolean("is_error", failed);
  if (failed) text = "Error: " + text;
  if (block.ok()) out.result(std::move(id), std::move(text));
}

void read_tool_use(Fields& block, Conversation& out) {
  std::string id, name;
  block.text("id", kNameBytesMax, id);
  block.text("name", kNameBytesMax, name);
  if (block.ok() && name.empty()) block.refuse("name", "'" + block.name("name") + "' is missing.");
  OrderedJson input;
  if (block.ok() && read_call_arguments(block, "input", input)) out.call(std::move(id), std::move(name), std::move(input));
}

// One block of a message. Texts of a user are collected in `said`, which the caller puts in its place.
void read_block(Fields& block, const std::string& type, bool assistant, std::string& said, Conversation& out) {
  std::string text;
  if (type == "text" || type == "document") {
    if (type == "text") {
      if (block.find("text") == nullptr) block.refuse("text", "'" + block.name("text") + "' is missing.");
      block.text("text", kTextBytesMax, text);
    } else {
      read_document(block, text);
    }
    if (assistant && block.ok()) return out.say("assistant", std::move(text));
    if (!said.empty()) said += '\n';
    said += text;
  } else if (type == "thinking" && assistant) {
    block.text("thinking", kTextBytesMax, text);
    if (block.ok() && !text.empty()) out.think(std::move(text));
  } else if (type == "redacted_thinking" && assistant) {
    return;  // nothing that could be read
  } else if (type == "tool_use" && assistant) {
    read_tool_use(block, out);
  } else if (type == "tool_result" && !assistant) {
    if (!said.empty()) out.say("user", std::exchange(said, ""));
    read_tool_result(block, out);
  } else {
    block.refuse(unsupported_value(block.name("type"), "'" + block.name("type") + "' is '" + type + "', which is not served " +
                                                           (type == "image" ? "here: only text is." : assistant ? "in a message of the assistant." : "in a message of a user.")));
  }
}

void read_message(Fields& message, Conversation& out) {
  std::string role;
  message.text("role", 64, role);
  if (!message.ok()) return;
  const bool system = role == "system", assistant = role == "assistant";
  if (!system && !assistant && role != "user") {
    return message.refuse("role", "'" + message.name("role") + "' must be user, assistant or system, not '" + role + "'.");
  }
  const OrderedJson* content = message.find("content");
  if (content == nullptr) return message.refuse("content", "'" + message.name("content") + "' is missing.");
  std::string said;
  bool results = false;
  if (system) {
    read_system(message, *content, "content", said);
    return out.say("system", std::move(said));
  }
  out.end_turn();
  if (!content->is_array()) {
    read_text_parts(message, *content, "content", kText, said);
    return out.say(role, std::move(said));
  }
  for (size_t i = 0; i < content->size() && message.ok(); ++i) {
    const std::string where = absl::StrCat("content.[", i, "]");
    const OrderedJson& block = (*content)[i];
    if (!block.is_object() || !block.contains("type") || !block["type"].is_string()) {
      return message.refuse(where, "'" + message.name(where) + "' must be an object with a 'type'.");
    }
    Fields fields(block, message.name(where + "."));
    const std::string type = block["type"].get<std::string>();
    results |= type == "tool_result";
    read_block(fields, type, assistant, said, out);
    if (!fields.ok()) message.refuse(*fields.error());
  }
  if (!assistant && (!said.empty() || !results)) out.say("user", std::move(said));
  if (assistant && content->empty()) out.say("assistant", "");
}

void read_conversation(Fields& fields, const RequestLimits& limits, ChatPrompt& out) {
  const OrderedJson* messages = fields.find("messages");
  if (messages == nullptr) return fields.refuse("messages", "'messages' is missing.");
  if (!messages->is_array() || messages->empty()) return fields.refuse("messages", "'messages' must be a list of at least one message.");
  if (messages->size() > limits.messages_max) {
    return fields.refuse("messages", absl::StrCat("'messages' has ", messages->size(), " entries; the limit is ", limits.messages_max, "."));
  }
  Conversation conversation;
  if (const OrderedJson* system = fields.find("system")) {
    std::string text;
    read_system(fields, *system, "system", text);
    if (!text.empty()) conversation.say("system", std::move(text));
  }
  for (size_t i = 0; i < messages->size() && fields.ok(); ++i) {
    const std::string where = absl::StrCat("messages.[", i, "]");
    if (!(*messages)[i].is_object()) return fields.refuse(where, "'" + where + "' must be an object.");
    Fields message((*messages)[i], where + ".");
    read_message(message, conversation);
    if (!message.ok()) return fields.refuse(*message.error());
  }
  OrderedJson turns = conversation.finish();
  if (!fields.ok()) return;
  if (turns.empty()) return fields.refuse("messages", "'messages' hold nothing that the model could read.");
  const OrderedJson& last = turns.back();
  out.continue_final_message = last["role"] == "assistant" && last["content"].is_string() && last["content"] != "";
  out.add_generation_prompt = !out.continue_final_message;
  out.messages = std::make_shared<OrderedJson>(std::move(turns));
}

// Tools with a schema are functions; the others are the vendor's own, which nobody here could run.
void read_offered(Fields& fields, const RequestLimits& limits, MessagesRequest& out) {
  const OrderedJson* tools = fields.find("tools");
  if (tools == nullptr || !fields.ok()) return;
  if (!tools->is_array()) return fields.refuse("tools", "'tools' must be a list.");
  if (tools->size() > limits.tools_max) {
    return fields.refuse("tools", absl::StrCat("'tools' has ", tools->size(), " entries; the limit is ", limits.tools_max, "."));
  }
  std::vector<OfferedTool> offered;
  for (size_t i = 0; i < tools->size() && fields.ok(); ++i) {
    OfferedTool tool{.where = absl::StrCat("tools.[", i, "]")};
    if (!(*tools)[i].is_object()) return fields.refuse(tool.where, "'" + tool.where + "' must be an object.");
    Fields inner((*tools)[i], tool.where + ".");
    std::string type = "custom";
    inner.text("type", kNameBytesMax, type);
    inner.text("name", kNameBytesMax, tool.name);
    inner.text("description", 1u << 20, tool.description);
    inner.boolean("strict", tool.strict);
    const OrderedJson* schema = inner.find("input_schema");
    if (inner.ok() && type != "custom") {
      out.skipped_tools.push_back(type);
      continue;
    }
    if (inner.ok() && schema == nullptr) inner.refuse("input_schema", "'" + inner.name("input_schema") + "' is missing.");
    if (!inner.ok()) return fields.refuse(*inner.error());
    tool.parameters = *schema;
    offered.push_back(std::move(tool));
  }
  take_tools(fields, offered, limits, out.chat.prompt.tools);
}

void read_choice(Fields& fields, ToolFields& out) {
  const OrderedJson* choice = fields.find("tool_choice");
  if (choice == nullptr || !fields.ok()) return;
  if (!choice->is_object()) return fields.refuse("tool_choice", "'tool_choice' must be an object with a 'type'.");
  using Kind = ToolChoice::Kind;
  Fields inner(*choice, "tool_choice.");
  std::string type;
  bool single = false;
  inner.text("type", 64, type);
  inner.boolean("disable_parallel_tool_use", single);
  out.parallel = !single;
  if (type == "tool") {
    out.choice.kind = Kind::kNamed;
    inner.text("name", kNameBytesMax, out.choice.name);
  } else if (type == "any" || type == "none" || type == "auto") {
    out.choice.kind = type == "any" ? Kind::kRequired : type == "none" ? Kind::kNone : Kind::kAuto;
  } else {
    inner.refuse("type", "'tool_choice.type' must be auto, any, tool or none, not '" + type + "'.");
  }
  if (!inner.ok()) return fields.refuse(*inner.error());
  check_choice(fields, "tool_choice", out);
}

void read_thinking(Fields& fields, ChatRequest& out, OrderedJson& variables) {
  const OrderedJson* thinking = fields.find("thinking");
  if (thinking == nullptr || !fields.ok()) return;
  if (!thinking->is_object()) return fields.refuse("thinking", "'thinking' must be an object with a 'type'.");
  Fields inner(*thinking, "thinking.");
  std::string type, display;
  uint32_t budget = 0;
  inner.text("type", 64, type);
  inner.integer("budget_tokens", 0, INT32_MAX, budget);
  inner.text("display", 64, display);
  if (inner.ok() && type != "enabled" && type != "adaptive" && type != "between_tools" && type != "disabled") {
    inner.refuse("type", "'thinking.type' must be enabled, adaptive, between_tools or disabled, not '" + type + "'.");
  }
  if (!inner.ok()) return fields.refuse(*inner.error());
  switch_reasoning(type != "disabled", variables);
  out.include_reasoning = type != "disabled" && display != "omitted";
}

// Of `output_config`, and the older `output_format`.
void read_output(Fields& fields, ChatRequest& out) {
  const auto format = [&](const OrderedJson& value, const std::string& where) {
    const bool schema = value.is_object() && value.value("type", OrderedJson()) == "json_schema" && value.contains("schema") && value["schema"].is_object();
    if (!schema) return fields.refuse(where, "'" + where + "' must be {\"type\": \"json_schema\", \"schema\": {...}}.");
    out.common.structured = StructuredOutput{StructuredOutput::Kind::kSchema, where, dump_ordered_json(value["schema"]), {}};
  };
  if (const OrderedJson* value = fields.find("output_format")) format(*value, "output_format");
  const OrderedJson* config = fields.find("output_config");
  if (config == nullptr || !fields.ok()) return;
  if (!config->is_object()) return fields.refuse("output_config", "'output_config' must be an object.");
  Fields inner(*config, "output_config.");
  inner.text("effort", 64, out.prompt.reasoning_effort);
  if (const OrderedJson* value = inner.find("format")) format(*value, "output_config.format");
  if (!inner.ok()) fields.refuse(*inner.error());
}

void read_unserved(Fields& fields) {
  for (const char* key : {"cache_control", "metadata", "service_tier", "inference_geo", "diagnostics", "speed", "betas", "context_management",
                          "user_profile_id", "workspace_id"}) {
    fields.know(key);  // who pays, how fast, what is cached: none changes an answer
  }
  for (const char* key : {"container", "mcp_servers"}) {
    const OrderedJson* value = fields.find(key);
    if (value != nullptr && !value->empty()) fields.refuse(unsupported_value(key, absl::StrCat("'", key, "' is not served; leave it out.")));
  }
}

}  // namespace

ApiResult<MessagesRequest> parse_messages_request(std::string_view body, const RequestLimits& limits, bool counting) {
  auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  MessagesRequest out;
  ChatRequest& chat = out.chat;
  if (!counting && fields.find("max_tokens") == nullptr) fields.refuse("max_tokens", "'max_tokens' is missing.");
  read_unserved(fields);
  read_generation_fields(fields, limits, chat.common);
  if (fields.ok() && chat.common.max_tokens == 0u) fields.refuse("max_tokens", "'max_tokens' is 0; it must be at least 1.");
  if (fields.ok() && chat.common.n != 1) fields.refuse("n", "'n' is not served here: a message is one answer.");
  chat.common.max_tokens_is_bound = true;
  fields.texts("stop_sequences", limits.stop_strings_max, limits.stop_string_bytes_max, chat.common.stop);
  std::erase(chat.common.stop, std::string());
  auto variables = std::make_shared<OrderedJson>(OrderedJson::object());
  read_conversation(fields, limits, chat.prompt);
  read_offered(fields, limits, out);
  read_choice(fields, chat.prompt.tools);
  read_thinking(fields, chat, *variables);
  read_output(fields, chat);
  chat.prompt.variables = std::move(variables);
  check_other_fields(fields);
  if (!fields.ok()) return *fields.error();
  return out;
}

}  // namespace shoal
