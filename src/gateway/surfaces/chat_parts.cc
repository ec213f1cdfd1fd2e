#include "gateway/surfaces/chat_parts.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "gateway/strings.h"
#include "nlohmann/json.hpp"
#include "text/answers/call_reader.h"

namespace shoal {
namespace {

bool is_system(const OrderedJson& message) { return message["role"] == "system" || message["role"] == "developer"; }

}  // namespace

void read_text_parts(Fields& fields, const OrderedJson& value, const std::string& where, std::span<const std::string_view> kinds,
                     std::string& out) {
  if (value.is_string()) {
    out += value.get_ref<const std::string&>();
    return;
  }
  if (!value.is_array()) {
    return fields.refuse(where, absl::StrCat("'", fields.name(where), "' must be a string or a list of parts, not ", value.type_name(), "."));
  }
  for (size_t i = 0; i < value.size() && fields.ok(); ++i) {
    const std::string at = absl::StrCat(where, ".[", i, "]");
    const auto type = value[i].is_object() ? value[i].find("type") : value[i].end();
    if (!value[i].is_object() || type == value[i].end() || !type->is_string()) {
      return fields.refuse(at, "'" + fields.name(at) + "' must be an object with a 'type'.");
    }
    const std::string& kind = type->get_ref<const std::string&>();
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
      return fields.refuse(unsupported_value(fields.name(at), "'" + fields.name(at) + "' is of type '" + kind + "'; only text is supported here."));
    }
    const auto text = value[i].find(kind == "refusal" ? "refusal" : "text");
    if (text == value[i].end() || !text->is_string()) return fields.refuse(at, "'" + fields.name(at) + "' has no 'text' string.");
    if (!out.empty()) out += '\n';
    out += text->get_ref<const std::string&>();
  }
}

void take_tools(Fields& fields, const std::vector<OfferedTool>& tools, const RequestLimits& limits, ToolFields& out) {
  if (!fields.ok() || tools.empty()) return;
  auto specs = std::make_shared<ToolList>();
  auto shown = std::make_shared<OrderedJson>(OrderedJson::array());
  std::set<std::string> names;
  for (const OfferedTool& tool : tools) {
    if (!is_tool_name(tool.name)) {
      return fields.refuse(tool.where + ".name", "'" + tool.where + ".name' must be 1 to 128 letters, digits, '_', '-' or '.'" +
                                                     (tool.name.empty() ? "; it is missing." : ", not '" + tool.name + "'."));
    }
    if (!names.insert(tool.name).second) {
      return fields.refuse(tool.where + ".name", "'" + tool.where + ".name': there are two tools named '" + tool.name + "'.");
    }
    if (!tool.parameters.is_null() && !tool.parameters.is_object()) {
      return fields.refuse(tool.where, absl::StrCat("'", tool.where, "' has a schema that is no object but ", tool.parameters.type_name(), "."));
    }
    if (dump_ordered_json(tool.parameters).size() > limits.tool_schema_bytes_max) {
      return fields.refuse(tool.where, absl::StrCat("'", tool.where, "' has a schema of more than ", limits.tool_schema_bytes_max,
                                                    " bytes, the limit of one schema."));
    }
    OrderedJson function = {{"name", tool.name}};
    if (!tool.description.empty()) function["description"] = tool.description;
    if (!tool.parameters.is_null()) function["parameters"] = tool.parameters;
    shown->push_back({{"type", "function"}, {"function", std::move(function)}});
    specs->push_back({tool.name, tool.parameters, tool.strict});
  }
  out.tools = std::move(shown);
  out.specs = std::move(specs);
}

void check_choice(Fields& fields, std::string_view param, const ToolFields& tools) {
  using Kind = ToolChoice::Kind;
  if (!fields.ok() || (tools.choice.kind != Kind::kRequired && tools.choice.kind != Kind::kNamed)) return;
  if (tools.specs == nullptr) return fields.refuse(param, absl::StrCat("'", str(param), "' asks for a call, but there are no 'tools' that could be called."));
  const auto named = [&](const ToolSpec& spec) { return spec.name == tools.choice.name; };
  if (tools.choice.kind == Kind::kNamed && std::none_of(tools.specs->begin(), tools.specs->end(), named)) {
    fields.refuse(param, absl::StrCat("'", str(param), "' names the tool '", tools.choice.name, "', which is not among 'tools'."));
  }
}

bool read_call_arguments(Fields& fields, std::string_view key, OrderedJson& out) {
  const OrderedJson* given = fields.find(key);
  out = given == nullptr || *given == "" ? OrderedJson::object() : *given;
  if (out.is_string()) {
    auto parsed = parse_ordered_json(out.get_ref<const std::string&>(), {.refuse_duplicate_keys = false});
    if (!parsed.ok()) {
      fields.refuse(key, absl::StrCat("'", fields.name(key), "' must be the text of a JSON object: ", parsed.status().message(), "."));
      return false;
    }
    out = *std::move(parsed);
  }
  if (!out.is_object()) fields.refuse(key, absl::StrCat("'", fields.name(key), "' must be a JSON object, not ", out.type_name(), "."));
  return fields.ok();
}

OrderedJson& Conversation::assistant() {
  if (!open_) messages_.push_back({{"role", "assistant"}, {"content", ""}});
  open_ = true;
  return messages_.back();
}

void Conversation::say(std::string_view role, std::string text) {
  if (role != "assistant") {
    open_ = false;
    messages_.push_back({{"role", std::string(role)}, {"content", std::move(text)}});
    return;
  }
  OrderedJson& message = assistant();
  std::string said = message["content"].is_string() ? message["content"].get<std::string>() : "";
  message["content"] = said.empty() ? std::move(text) : said + "\n" + text;
}

void Conversation::think(std::string text) {
  OrderedJson& message = assistant();
  const std::string before = message.value("reasoning_content", "");
  message["reasoning_content"] = before.empty() ? std::move(text) : before + "\n" + text;
}

void Conversation::call(std::string id, std::string name, OrderedJson arguments) {
  OrderedJson& message = assistant();
  if (message["content"] == "") message["content"] = nullptr;
  OrderedJson function = {{"name", std::move(name)}, {"arguments", std::move(arguments)}};
  message["tool_calls"].push_back({{"id", std::move(id)}, {"type", "function"}, {"function", std::move(function)}});
}

void Conversation::result(std::string call_id, std::string text) {
  open_ = false;
  messages_.push_back({{"role", "tool"}, {"tool_call_id", std::move(call_id)}, {"content", std::move(text)}});
}

OrderedJson Conversation::finish() {
  size_t systems = 0;
  while (systems < messages_.size() && is_system(messages_[systems])) ++systems;
  if (systems < 2) return std::move(messages_);
  OrderedJson out = OrderedJson::array();
  out.push_back(messages_[0]);
  std::string text = messages_[0]["content"].get<std::string>();
  for (size_t i = 1; i < systems; ++i) text += "\n\n" + messages_[i]["content"].get<std::string>();
  out.back()["content"] = std::move(text);
  for (size_t i = systems; i < messages_.size(); ++i) out.push_back(std::move(messages_[i]));
  return out;
}

void switch_reasoning(bool on, OrderedJson& variables) {
  variables["enable_thinking"] = on;
  variables["thinking"] = on;
}

}  // namespace shoal
