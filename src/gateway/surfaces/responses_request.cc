#include "gateway/surfaces/responses_request.h"

#include <algorithm>
#include <array>

#include "absl/strings/numbers.h"
#include "gateway/other_fields.h"
#include "gateway/request_fields.h"
#include "gateway/strings.h"
#include "gateway/surfaces/chat_parts.h"
#include "gateway/surfaces/responses_tools.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kNameBytesMax = 1024;
constexpr size_t kTextBytesMax = 64u << 20;  // the body's own limit is tighter
constexpr std::array<std::string_view, 5> kParts = {"input_text", "output_text", "text", "refusal", "reasoning_text"};
constexpr std::array<std::string_view, 1> kSummary = {"summary_text"};
constexpr std::array<std::string_view, 4> kRoles = {"user", "assistant", "system", "developer"};
constexpr std::string_view kResponse = "resp_";

class InputReader {
 public:
  InputReader(const FindResponse& find, Conversation& out) : find_(find), out_(out) {}

  void read(Fields& item) {
    std::string type;
    item.text("type", kNameBytesMax, type);
    if (!item.ok()) return;
    if (type.empty()) type = item.find("role") != nullptr ? "message" : item.find("id") != nullptr ? "item_reference" : "";
    if (type == "message") return message(item);
    if (type == "reasoning") return reasoning(item);
    if (type == "function_call" || type == "custom_tool_call") return call(item, type == "function_call");
    if (type == "function_call_output" || type == "custom_tool_call_output") return result(item);
    if (type == "item_reference") return reference(item);
    item.refuse(unsupported_value(item.name("type"), "'" + item.name("type") + "' is '" + type + "', which is not served; messages, reasoning, "
                                                     "calls of functions and of custom tools, their outputs and item_reference are."));
  }

 private:
  void message(Fields& item) {
    std::string role, text;
    item.text("role", 64, role);
    if (item.ok() && std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
      item.refuse("role", "'" + item.name("role") + "' must be user, assistant, system or developer, not '" + role + "'.");
    }
    const OrderedJson* content = item.find("content");
    if (content == nullptr) return item.refuse("content", "'" + item.name("content") + "' is missing.");
    read_text_parts(item, *content, "content", kParts, text);
    if (item.ok()) out_.say(role, std::move(text));
  }

  void reasoning(Fields& item) {
    std::string text;
    if (const OrderedJson* content = item.find("content")) read_text_parts(item, *content, "content", kParts, text);
    const OrderedJson* summary = item.find("summary");
    if (summary != nullptr && text.empty()) read_text_parts(item, *summary, "summary", kSummary, text);
    if (item.ok() && !text.empty()) out_.think(std::move(text));
  }

  void call(Fields& item, bool function) {
    std::string id, name, input;
    item.text("call_id", kNameBytesMax, id);
    item.text("name", kNameBytesMax, name);
    if (item.ok() && id.empty()) item.refuse("call_id", "'" + item.name("call_id") + "' is missing.");
    if (item.ok() && name.empty()) item.refuse("name", "'" + item.name("name") + "' is missing.");
    OrderedJson arguments;
    if (function && item.ok()) read_call_arguments(item, "arguments", arguments);
    if (!function) {
      item.text("input", kTextBytesMax, input);
      arguments = {{"input", input}};
    }
    if (item.ok()) out_.call(std::move(id), std::move(name), std::move(arguments));
  }

  void result(Fields& item) {
    std::string id, text;
    item.text("call_id", kNameBytesMax, id);
    if (item.ok() && id.empty()) item.refuse("call_id", "'" + item.name("call_id") + "' is missing.");
    const OrderedJson* output = item.find("output");
    if (output == nullptr) return item.refuse("output", "'" + item.name("output") + "' is missing.");
    read_text_parts(item, *output, "output", kParts, text);
    if (item.ok()) out_.result(std::move(id), std::move(text));
  }

  // "msg_X_1": the second item of the response "resp_X".
  void reference(Fields& item) {
    std::string id;
    item.text("id", kNameBytesMax, id);
    const size_t begin = id.find('_'), end = id.rfind('_');
    uint32_t index = 0;
    const bool named = begin != std::string::npos && begin < end && absl::SimpleAtoi(id.substr(end + 1), &index);
    const auto stored = named ? find_(str(kResponse) + id.substr(begin + 1, end - begin - 1)) : nullptr;
    if (stored == nullptr || index >= stored->body["output"].size()) {
      return item.refuse("id", "'" + item.name("id") + "': there is no item '" + id + "' of a stored response here; send the item itself.");
    }
    const auto parsed = parse_ordered_json(dump_json(stored->body["output"][index]));
    Fields inner(*parsed, item.name(""));
    read(inner);
    if (!inner.ok()) item.refuse(*inner.error());
  }

  const FindResponse& find_;
  Conversation& out_;
};

void read_input(Fields& fields, const RequestLimits& limits, const FindResponse& find, Conversation& conversation, Json& items) {
  const OrderedJson* input = fields.find("input");
  if (input == nullptr) return fields.refuse("input", "'input' is missing.");
  items = Json::array();
  if (input->is_string()) {
    conversation.say("user", input->get<std::string>());
    const Json part = {{"type", "input_text"}, {"text", input->get<std::string>()}};
    items.push_back({{"type", "message"}, {"role", "user"}, {"content", Json::array({part})}});
    return;
  }
  if (!input->is_array() || input->empty()) return fields.refuse("input", "'input' must be a text or a list of at least one item.");
  if (input->size() > limits.messages_max) {
    return fields.refuse("input", absl::StrCat("'input' has ", input->size(), " items; the limit is ", limits.messages_max, "."));
  }
  InputReader reader(find, conversation);
  for (size_t i = 0; i < input->size() && fields.ok(); ++i) {
    const std::string where = absl::StrCat("input.[", i, "]");
    if (!(*input)[i].is_object()) return fields.refuse(where, "'" + where + "' must be an object.");
    Fields item((*input)[i], where + ".");
    reader.read(item);
    if (!item.ok()) return fields.refuse(*item.error());
    items.push_back(*parse_json(dump_ordered_json((*input)[i])));
  }
}

void read_conversation(Fields& fields, const RequestLimits& limits, const FindResponse& find, ResponsesRequest& out) {
  std::string previous, instructions;
  fields.text("previous_response_id", kNameBytesMax, previous);
  fields.text("instructions", kTextBytesMax, instructions);
  OrderedJson before = OrderedJson::array();
  if (fields.ok() && !previous.empty()) {
    const auto stored = find(previous);
    if (stored == nullptr) {
      ApiError error = response_not_found(previous);
      error.http_status = 400;
      error.type = "invalid_request_error";
      error.param = "previous_response_id";
      error.code = "previous_response_not_found";
      return fields.refuse(std::move(error));
    }
    before = stored->messages;
  }
  Conversation turns(std::move(before));
  read_input(fields, limits, find, turns, out.input);
  if (!fields.ok()) return;
  out.turns = turns.messages();
  if (out.turns.empty()) return fields.refuse("input", "'input' holds nothing that the model could read.");
  OrderedJson all = OrderedJson::array();
  if (!instructions.empty()) all.push_back({{"role", "system"}, {"content", instructions}});
  for (const OrderedJson& message : out.turns) all.push_back(message);
  out.chat.prompt.messages = std::make_shared<OrderedJson>(Conversation(std::move(all)).finish());
  out.echo["instructions"] = instructions.empty() ? Json(nullptr) : Json(instructions);
  out.echo["previous_response_id"] = previous.empty() ? Json(nullptr) : Json(previous);
}

void read_text_format(Fields& fields, ResponsesRequest& out) {
  Json format = {{"type", "text"}};
  if (const OrderedJson* text = fields.find("text"); text != nullptr && fields.ok()) {
    if (!text->is_object()) return fields.refuse("text", "'text' must be an object.");
    Fields inner(*text, "text.");
    std::string verbosity = "medium";
    inner.text("verbosity", 64, verbosity);
    if (inner.ok() && verbosity != "medium") {
      inner.refuse(unsupported_value("text.verbosity", "'text.verbosity' is not served; say in the prompt how long an answer should be."));
    }
    if (const OrderedJson* wanted = inner.find("format")) {
      const std::string type = wanted->is_object() && wanted->contains("type") && (*wanted)["type"].is_string() ? (*wanted)["type"].get<std::string>() : "";
      if (type == "json_schema" && wanted->contains("schema") && (*wanted)["schema"].is_object()) {
        out.chat.common.structured = StructuredOutput{StructuredOutput::Kind::kSchema, "text.format", dump_ordered_json((*wanted)["schema"]), {}};
      } else if (type == "json_object") {
        out.chat.common.structured = StructuredOutput{StructuredOutput::Kind::kJsonObject, "text.format", "", {}};
      } else if (type != "text") {
        inner.refuse("format", "'text.format' must be of type text, json_object or json_schema with a 'schema'.");
      }
      if (inner.ok()) format = *parse_json(dump_ordered_json(*wanted));
    }
    if (!inner.ok()) return fields.refuse(*inner.error());
  }
  out.echo["text"] = {{"format", std::move(format)}};
}

void read_reasoning(Fields& fields, ResponsesRequest& out) {
  std::string effort, summary;
  auto variables = std::make_shared<OrderedJson>(OrderedJson::object());
  if (const OrderedJson* reasoning = fields.find("reasoning"); reasoning != nullptr && fields.ok()) {
    if (!reasoning->is_object()) return fields.refuse("reasoning", "'reasoning' must be an object.");
    Fields inner(*reasoning, "reasoning.");
    inner.text("effort", 64, effort);
    inner.text("summary", 64, summary);  // the reasoning itself is given, as content
    if (!inner.ok()) return fields.refuse(*inner.error());
  }
  constexpr std::array<std::string_view, 8> kEfforts = {"", "none", "minimal", "low", "medium", "high", "xhigh", "max"};
  if (std::find(kEfforts.begin(), kEfforts.end(), effort) == kEfforts.end()) {
    return fields.refuse("reasoning.effort", "'reasoning.effort' must be none, minimal, low, medium, high, xhigh or max, not '" + effort + "'.");
  }
  if (effort == "none") switch_reasoning(false, *variables);
  out.chat.prompt.reasoning_effort = effort;
  out.chat.prompt.variables = std::move(variables);
  out.echo["reasoning"] = {{"effort", effort.empty() ? Json(nullptr) : Json(effort)}, {"summary", summary.empty() ? Json(nullptr) : Json(summary)}};
}

void read_include(Fields& fields, const RequestLimits& limits, GenerationFields& out) {
  std::vector<std::string> include;
  fields.texts("include", 64, kNameBytesMax, include);
  uint32_t top = 0;
  fields.integer("top_logprobs", 0, limits.top_logprobs_max, top);
  for (const std::string& what : include) {
    if (what == "message.output_text.logprobs") out.logprobs = top;
  }
  if (top > 0 && !out.logprobs) out.logprobs = top;
}

void read_unserved(Fields& fields) {
  for (const char* key : {"metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "service_tier",
                          "max_tool_calls", "client_metadata", "moderation", "access_programs", "background_options"}) {
    fields.know(key);  // whose, how fast, what is cached: none changes an answer
  }
  bool background = false;
  fields.boolean("background", background);
  if (background) fields.refuse(unsupported_value("background", "'background' is not served; stream the answer, or wait for it."));
  for (const char* key : {"conversation", "prompt", "context_management", "image"}) {
    const OrderedJson* value = fields.find(key);
    if (value != nullptr && !value->empty()) fields.refuse(unsupported_value(key, absl::StrCat("'", key, "' is not served; leave it out.")));
  }
  std::string truncation = "disabled";
  fields.text("truncation", 64, truncation);  // nothing is ever cut: what does not fit is refused, whatever it says
  if (fields.ok() && truncation != "auto" && truncation != "disabled") fields.refuse("truncation", "'truncation' must be auto or disabled, not '" + truncation + "'.");
}

void echo_request(Fields& fields, ResponsesRequest& out) {
  const GenerationFields& common = out.chat.common;
  const auto given = [&](const char* key, Json fallback) {
    const OrderedJson* value = fields.find(key);
    out.echo[key] = value == nullptr ? std::move(fallback) : *parse_json(dump_ordered_json(*value));
  };
  out.echo["model"] = common.model;
  out.echo["max_output_tokens"] = common.max_tokens ? Json(*common.max_tokens) : Json(nullptr);
  out.echo["temperature"] = common.temperature ? Json(*common.temperature) : Json(1.0);
  out.echo["top_p"] = common.top_p ? Json(*common.top_p) : Json(1.0);
  out.echo["parallel_tool_calls"] = out.chat.prompt.tools.parallel;
  out.echo["store"] = out.store;
  out.echo["truncation"] = "disabled";
  out.echo["background"] = false;
  out.echo["service_tier"] = "default";
  given("tool_choice", "auto");
  given("metadata", Json::object());
  for (const char* key : {"user", "prompt_cache_key", "safety_identifier", "max_tool_calls"}) given(key, nullptr);
  out.echo["top_logprobs"] = common.logprobs.value_or(0);
}

}  // namespace

ApiError response_not_found(const std::string& id) {
  return {.http_status = 404, .type = "not_found_error", .message = "Response with id '" + id + "' not found: it was not stored, is gone by now, or is another key's.",
          .param = std::nullopt, .code = "response_not_found"};
}

std::string item_id(std::string_view prefix, std::string_view response_id, uint32_t index) {
  return absl::StrCat(str(prefix), "_", str(response_id.substr(kResponse.size())), "_", index);
}

ApiResult<ResponsesRequest> parse_responses_request(std::string_view body, const RequestLimits& limits, const FindResponse& find) {
  auto json = parse_body(body);
  if (!json.ok()) return json.error();
  Fields fields(*json);
  ResponsesRequest out;
  GenerationFields& common = out.chat.common;
  read_unserved(fields);
  fields.boolean("store", out.store);
  read_generation_fields(fields, limits, common);
  if (fields.ok() && common.n != 1) fields.refuse("n", "'n' is not served here: a response is one answer.");
  int64_t most = -1;
  fields.integer("max_output_tokens", 1, INT32_MAX, most);
  if (most > 0) common.max_tokens = static_cast<uint32_t>(most);
  read_include(fields, limits, common);
  read_conversation(fields, limits, find, out);
  read_response_tools(fields, limits, out);
  read_text_format(fields, out);
  read_reasoning(fields, out);
  if (fields.ok()) echo_request(fields, out);
  check_other_fields(fields);
  if (!fields.ok()) return *fields.error();
  return out;
}

}  // namespace shoal
