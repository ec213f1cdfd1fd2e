#include "gateway/surfaces/ollama_request.h"

#include <algorithm>
#include <array>
#include <deque>

#include "gateway/other_fields.h"
#include "gateway/request_fields.h"
#include "gateway/strings.h"
#include "gateway/surfaces/chat_parts.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kNameBytesMax = 1024;
constexpr size_t kTextBytesMax = 64u << 20;  // the body's own limit is tighter
constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};

// Names of options, and what they are called here. What is not among them sizes memory or is of no effect.
constexpr std::pair<const char*, const char*> kOptions[] = {
    {"temperature", "temperature"}, {"top_k", "top_k"}, {"top_p", "top_p"}, {"min_p", "min_p"}, {"typical_p", "typical_p"},
    {"repeat_penalty", "repetition_penalty"}, {"presence_penalty", "presence_penalty"}, {"frequency_penalty", "frequency_penalty"},
    {"stop", "stop"}, {"mirostat", "mirostat"}, {"mirostat_tau", "mirostat_tau"}, {"mirostat_eta", "mirostat_eta"}};

bool is_negative(const OrderedJson& value) { return value.is_number() && value.get<double>() < 0; }

// `options` and what of the body is common to both requests.
void read_common(Fields& fields, const RequestLimits& limits, GenerationFields& out) {
  fields.text("model", kNameBytesMax, out.model);
  if (fields.ok() && out.model.empty()) fields.refuse("model", "'model' is missing: name one of the models of GET /api/tags.");
  bool stream = true;
  fields.boolean("stream", stream);
  OrderedJson mapped = {{"model", out.model}};
  if (const OrderedJson* options = fields.find("options"); options != nullptr && fields.ok()) {
    if (!options->is_object()) return fields.refuse("options", "'options' must be an object.");
    for (const auto& [theirs, ours] : kOptions) {
      if (options->contains(theirs)) mapped[ours] = (*options)[theirs];
    }
    // Negative numbers stand for "as many as fit" and "another one each time".
    if (options->contains("num_predict") && !is_negative((*options)["num_predict"])) mapped["max_tokens"] = (*options)["num_predict"];
    if (options->contains("seed") && !is_negative((*options)["seed"])) mapped["seed"] = (*options)["seed"];
  }
  Fields sampling(mapped, "options.");
  read_generation_fields(sampling, limits, out);
  if (!sampling.ok()) return fields.refuse(*sampling.error());
  out.stream = stream;
  out.max_tokens_is_bound = true;
  if (out.max_tokens == 0u) out.max_tokens.reset();
  bool logprobs = false;
  uint32_t top = 0;
  fields.boolean("logprobs", logprobs);
  fields.integer("top_logprobs", 0, limits.top_logprobs_max, top);
  if (logprobs) out.logprobs = top;
  for (const char* key : {"keep_alive", "truncate", "shift", "_debug_render_only"}) fields.know(key);
}

void read_format(Fields& fields, GenerationFields& out) {
  const OrderedJson* format = fields.find("format");
  if (format == nullptr || !fields.ok() || *format == "") return;
  if (*format == "json") {
    out.structured = StructuredOutput{StructuredOutput::Kind::kJsonObject, "format", "", {}};
  } else if (format->is_object()) {
    out.structured = StructuredOutput{StructuredOutput::Kind::kSchema, "format", dump_ordered_json(*format), {}};
  } else {
    fields.refuse("format", "'format' must be \"json\" or a JSON schema.");
  }
}

void read_think(Fields& fields, ChatRequest& out) {
  auto variables = std::make_shared<OrderedJson>(OrderedJson::object());
  if (const OrderedJson* think = fields.find("think"); think != nullptr && fields.ok()) {
    if (think->is_boolean()) {
      switch_reasoning(think->get<bool>(), *variables);
      out.include_reasoning = think->get<bool>();
    } else if (*think == "low" || *think == "medium" || *think == "high" || *think == "max") {
      switch_reasoning(true, *variables);
      out.prompt.reasoning_effort = think->get<std::string>();
    } else {
      fields.refuse("think", "'think' must be true, false, \"low\", \"medium\", \"high\" or \"max\".");
    }
  }
  out.prompt.variables = std::move(variables);
}

void refuse_media(Fields& fields) {
  const OrderedJson* images = fields.find("images");
  if (images != nullptr && !images->empty()) {
    fields.refuse(unsupported_value(fields.name("images"), "'" + fields.name("images") + "' is not served; only text is supported."));
  }
}

class MessageReader {
 public:
  void read(Fields& message, Conversation& out) {
    std::string role, content, thinking;
    message.text("role", 64, role);
    if (message.ok() && std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
      return message.refuse("role", "'" + message.name("role") + "' must be system, user, assistant or tool, not '" + role + "'.");
    }
    message.text("content", kTextBytesMax, content);
    message.text("thinking", kTextBytesMax, thinking);
    refuse_media(message);
    if (!message.ok()) return;
    if (role == "tool") return result(message, std::move(content), out);
    out.end_turn();
    if (role != "assistant") return out.say(role, std::move(content));
    if (!thinking.empty()) out.think(std::move(thinking));
    out.say("assistant", std::move(content));
    read_calls(message, out);
  }

 private:
  // Ollama's calls need no ids; templates do.
  void read_calls(Fields& message, Conversation& out) {
    const OrderedJson* calls = message.find("tool_calls");
    if (calls == nullptr || !message.ok()) return;
    if (!calls->is_array()) return message.refuse("tool_calls", "'" + message.name("tool_calls") + "' must be a list.");
    for (size_t i = 0; i < calls->size() && message.ok(); ++i) {
      const std::string where = absl::StrCat("tool_calls.[", i, "].function");
      const OrderedJson& call = (*calls)[i];
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) {
        return message.refuse(where, "'" + message.name(where) + "' must be an object with 'name' and 'arguments'.");
      }
      Fields function(call["function"], message.name(where + "."));
      std::string name;
      OrderedJson arguments;
      function.text("name", kNameBytesMax, name);
      if (function.ok() && name.empty()) function.refuse("name", "'" + function.name("name") + "' is missing.");
      if (function.ok()) read_call_arguments(function, "arguments", arguments);
      if (!function.ok()) return message.refuse(*function.error());
      std::string id = call.contains("id") && call["id"].is_string() ? call["id"].get<std::string>() : absl::StrCat("call_", next_++);
      open_.push_back({name, id});
      out.call(std::move(id), std::move(name), std::move(arguments));
    }
  }

  // Answers the call with that id, or else the first open one of that name, or else the first.
  void result(Fields& message, std::string text, Conversation& out) {
    std::string id, name;
    message.text("tool_call_id", kNameBytesMax, id);
    message.text("tool_name", kNameBytesMax, name);
    if (!message.ok()) return;
    auto open = std::find_if(open_.begin(), open_.end(), [&](const Call& call) { return id.empty() ? call.name == name : call.id == id; });
    if (open == open_.end() && id.empty()) open = open_.begin();
    if (open != open_.end()) {
      id = open->id;
      open_.erase(open);
    }
    out.result(id.empty() ? "call_0" : std::move(id), std::move(text));
  }

  struct Call {
    std::string name, id;
  };
  std::deque<Call> open_;
  uint32_t next_ = 0;
};

void read_messages(Fields& fields, const RequestLimits& limits, OllamaRequest& out) {
  const OrderedJson* messages = fields.find("messages");
  if (!fields.ok()) return;
  out.only_load = messages == nullptr || (messages->is_array() && messages->empty());
  if (out.only_load) return;
  if (!messages->is_array()) return fields.refuse("messages", "'messages' must be a list.");
  if (messages->size() > limits.messages_max) {
    return fields.refuse("messages", absl::StrCat("'messages' has ", messages->size(), " entries; the limit is ", limits.messages_max, "."));
  }
  Conversation conversation;
  MessageReader reader;
  for (size_t i = 0; i < messages->size() && fields.ok(); ++i) {
    const std::string where = absl::StrCat("messages.[", i, "]");
    if (!(*messages)[i].is_object()) return fields.refuse(where, "'" + where + "' must be an object.");
    Fields message((*messages)[i], where + ".");
    reader.read(message, conversation);
    if (!message.ok()) return fields.refuse(*message.error());
  }
  std::get<ChatRequest>(out.request).prompt.messages = std::make_shared<OrderedJson>(conversation.finish());
}

}  // namespace

ApiResult<OllamaRequest> parse_ollama_chat(std::string_view body, const RequestLimits& limits) {
  auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  OllamaRequest out;
  ChatRequest& chat = out.request.emplace<ChatRequest>();
  read_common(fields, limits, chat.common);
  read_messages(fields, limits, out);
  read_format(fields, chat.common);
  read_think(fields, chat);
  read_tools(fields, limits, chat.prompt.tools);
  check_misspelt_fields(fields);
  if (!fields.ok()) return *fields.error();
  return out;
}

ApiResult<OllamaRequest> parse_ollama_generate(std::string_view body, const RequestLimits& limits) {
  auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  OllamaRequest out;
  out.generate = true;
  ChatRequest chat;
  std::string prompt, system;
  bool raw = false;
  fields.text("prompt", kTextBytesMax, prompt);
  fields.text("system", kTextBytesMax, system);
  fields.text("suffix", kTextBytesMax, out.suffix);
  fields.boolean("raw", raw);
  refuse_media(fields);
  if (fields.find("messages") != nullptr) fields.refuse(unsupported_value("messages", "'messages' belong to /api/chat."));
  for (const char* key : {"template", "context"}) {
    const OrderedJson* value = fields.find(key);
    if (value == nullptr || value->empty() || *value == "") continue;
    fields.refuse(unsupported_value(key, absl::StrCat("'", key, "' is not served; use the messages of /api/chat, or 'raw' with the whole prompt.")));
  }
  read_common(fields, limits, chat.common);
  read_format(fields, chat.common);
  read_think(fields, chat);
  check_misspelt_fields(fields);
  if (!fields.ok()) return *fields.error();
  out.only_load = prompt.empty() && out.suffix.empty();
  if (raw || !out.suffix.empty()) {
    CompletionRequest completion;
    completion.common = std::move(chat.common);
    completion.prompts.emplace_back(std::move(prompt));
    out.request = std::move(completion);
    return out;
  }
  Conversation conversation;
  if (!system.empty()) conversation.say("system", std::move(system));
  conversation.say("user", std::move(prompt));
  chat.prompt.messages = std::make_shared<OrderedJson>(conversation.finish());
  out.request = std::move(chat);
  return out;
}

ApiResult<std::string> parse_ollama_name(std::string_view body) {
  auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  std::string name;
  fields.text("name", kNameBytesMax, name);
  fields.text("model", kNameBytesMax, name);
  if (fields.ok() && name.empty()) fields.refuse("model", "'model' is missing: name one of the models of GET /api/tags.");
  if (!fields.ok()) return *fields.error();
  return name;
}

}  // namespace shoal
