#include "gateway/tool_fields.h"

#include <algorithm>

#include "gateway/openai_request.h"
#include "nlohmann/json.hpp"
#include "text/answers/call_reader.h"

namespace shoal {
namespace {

constexpr size_t kDescriptionBytesMax = 1u << 20;
constexpr size_t kNameBytesMax = 1024;  // of what may be named in an error

std::optional<ToolSpec> read_function(Fields& tool, const OrderedJson& function, const RequestLimits& limits) {
  Fields fields(function, tool.name("function."));
  ToolSpec spec;
  std::string description;
  fields.text("name", kNameBytesMax, spec.name);
  if (fields.ok() && !is_tool_name(spec.name)) {
    fields.refuse("name", "'" + fields.name("name") + "' must be 1 to 128 letters, digits, '_', '-' or '.'" +
                              (spec.name.empty() ? "; it is missing." : ", not '" + spec.name + "'."));
  }
  fields.text("description", kDescriptionBytesMax, description);
  fields.boolean("strict", spec.strict);
  if (const OrderedJson* parameters = fields.find("parameters")) {
    if (!parameters->is_object()) {
      fields.refuse("parameters", absl::StrCat("'", fields.name("parameters"), "' must be a JSON schema, an object, not ",
                                               parameters->type_name(), "."));
    } else if (dump_ordered_json(*parameters).size() > limits.tool_schema_bytes_max) {
      fields.refuse("parameters", absl::StrCat("'", fields.name("parameters"), "' has more than ",
                                               limits.tool_schema_bytes_max, " bytes, the limit of one schema."));
    }
    spec.parameters = *parameters;
  }
  if (fields.ok()) return spec;
  tool.refuse(*fields.error());
  return std::nullopt;
}

std::optional<ToolSpec> read_tool(Fields& fields, const OrderedJson& list, size_t at, const RequestLimits& limits) {
  const std::string where = absl::StrCat("tools.[", at, "]");
  if (!list[at].is_object()) {
    fields.refuse(where, "'" + where + "' must be an object.");
    return std::nullopt;
  }
  Fields tool(list[at], where + ".");
  std::string type;
  tool.text("type", kNameBytesMax, type);
  if (tool.ok() && type != "function") {
    tool.refuse(unsupported_value(tool.name("type"), "'" + tool.name("type") + "' must be \"function\", not '" + type + "'."));
  }
  const OrderedJson* function = tool.find("function");
  if (function == nullptr || !function->is_object()) {
    tool.refuse("function", "'" + tool.name("function") + "' must be an object with a 'name'.");
  }
  std::optional<ToolSpec> spec;
  if (tool.ok()) spec = read_function(tool, *function, limits);
  if (!tool.ok()) fields.refuse(*tool.error());
  return spec;
}

void read_choice(Fields& fields, ToolFields& out) {
  using Kind = ToolChoice::Kind;
  const OrderedJson* choice = fields.find("tool_choice");
  if (choice == nullptr || !fields.ok()) return;
  if (choice->is_string()) {
    const std::string& word = choice->get_ref<const std::string&>();
    if (word == "required" || word == "any") {
      out.choice.kind = Kind::kRequired;
    } else if (word == "none" || word == "auto") {
      out.choice.kind = word == "none" ? Kind::kNone : Kind::kAuto;
    } else {
      return fields.refuse("tool_choice", "'tool_choice' must be \"none\", \"auto\", \"required\" or a function, not '" + word + "'.");
    }
  } else {
    const auto function = choice->is_object() ? choice->find("function") : choice->end();
    const bool named = choice->is_object() && choice->value("type", OrderedJson()) == "function" && function != choice->end() &&
                       function->is_object() && function->contains("name") && (*function)["name"].is_string();
    if (!named) {
      return fields.refuse("tool_choice", "'tool_choice' must be \"none\", \"auto\", \"required\" or "
                                          "{\"type\": \"function\", \"function\": {\"name\": ...}}.");
    }
    out.choice = {Kind::kNamed, (*function)["name"].get<std::string>()};
  }
  if (out.choice.kind != Kind::kRequired && out.choice.kind != Kind::kNamed) return;
  if (out.specs == nullptr) return fields.refuse("tool_choice", "'tool_choice' asks for a call, but there are no 'tools'.");
  const auto is_named = [&](const ToolSpec& spec) { return spec.name == out.choice.name; };
  if (out.choice.kind == Kind::kNamed && std::none_of(out.specs->begin(), out.specs->end(), is_named)) {
    fields.refuse("tool_choice", "'tool_choice' names the function '" + out.choice.name + "', which is not among 'tools'.");
  }
}

}  // namespace

void read_tools(Fields& fields, const RequestLimits& limits, ToolFields& out) {
  for (const char* key : {"functions", "function_call"}) {
    const OrderedJson* old = fields.find(key);
    if (old == nullptr || old->empty() || *old == "none") continue;
    fields.refuse(unsupported_value(key, absl::StrCat("'", key, "' is the old spelling; use 'tools' and 'tool_choice'.")));
  }
  fields.boolean("parallel_tool_calls", out.parallel);
  const OrderedJson* tools = fields.find("tools");
  if (tools != nullptr && !tools->is_array()) return fields.refuse("tools", "'tools' must be a list.");
  if (tools != nullptr && tools->size() > limits.tools_max) {
    return fields.refuse("tools", absl::StrCat("'tools' has ", tools->size(), " entries; the limit is ", limits.tools_max, "."));
  }
  if (tools != nullptr && !tools->empty()) {
    auto specs = std::make_shared<ToolList>();
    for (size_t i = 0; i < tools->size() && fields.ok(); ++i) {
      std::optional<ToolSpec> spec = read_tool(fields, *tools, i, limits);
      if (!spec) return;
      const auto same = [&](const ToolSpec& other) { return other.name == spec->name; };
      if (std::any_of(specs->begin(), specs->end(), same)) {
        const std::string where = absl::StrCat("tools.[", i, "].function.name");
        return fields.refuse(where, "'" + where + "': there are two tools named '" + spec->name + "'.");
      }
      specs->push_back(*std::move(spec));
    }
    out.tools = std::make_shared<OrderedJson>(*tools);
    out.specs = std::move(specs);
  }
  read_choice(fields, out);
}

}  // namespace shoal
