#include "gateway/surfaces/responses_tools.h"

#include "gateway/surfaces/chat_parts.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr size_t kNameBytesMax = 1024;
constexpr size_t kDescriptionBytesMax = 1u << 20;

// A tool whose input is free text is a function with one text.
OrderedJson freeform_schema() {
  return {{"type", "object"}, {"properties", {{"input", {{"type", "string"}}}}}, {"required", OrderedJson::array({"input"})}};
}

void read_tool(Fields& tool, const std::string& type, OfferedTool& out) {
  tool.text("name", kNameBytesMax, out.name);
  tool.text("description", kDescriptionBytesMax, out.description);
  tool.boolean("strict", out.strict);
  if (type == "custom") {
    out.parameters = freeform_schema();
  } else if (const OrderedJson* parameters = tool.find("parameters")) {
    out.parameters = *parameters;
  }
}

void read_choice(Fields& fields, ToolFields& out) {
  using Kind = ToolChoice::Kind;
  const OrderedJson* choice = fields.find("tool_choice");
  if (choice == nullptr || !fields.ok()) return;
  if (choice->is_string()) {
    const std::string& word = choice->get_ref<const std::string&>();
    if (word != "auto" && word != "none" && word != "required") {
      return fields.refuse("tool_choice", "'tool_choice' must be auto, none, required or a function, not '" + word + "'.");
    }
    out.choice.kind = word == "auto" ? Kind::kAuto : word == "none" ? Kind::kNone : Kind::kRequired;
  } else {
    if (!choice->is_object()) return fields.refuse("tool_choice", "'tool_choice' must be auto, none, required or an object with a 'type'.");
    Fields inner(*choice, "tool_choice.");
    std::string type;
    inner.text("type", kNameBytesMax, type);
    inner.text("name", kNameBytesMax, out.choice.name);
    if (inner.ok() && type != "function" && type != "custom") {
      inner.refuse(unsupported_value("tool_choice.type", "'tool_choice.type' is '" + type + "', which is not served; function and custom are."));
    }
    if (!inner.ok()) return fields.refuse(*inner.error());
    out.choice.kind = Kind::kNamed;
  }
  check_choice(fields, "tool_choice", out);
}

}  // namespace

void read_response_tools(Fields& fields, const RequestLimits& limits, ResponsesRequest& out) {
  ToolFields& tools = out.chat.prompt.tools;
  fields.boolean("parallel_tool_calls", tools.parallel);
  out.echo["tools"] = Json::array();
  const OrderedJson* given = fields.find("tools");
  if (given != nullptr && !given->is_array()) return fields.refuse("tools", "'tools' must be a list.");
  const size_t count = given == nullptr ? 0 : given->size();
  if (count > limits.tools_max) return fields.refuse("tools", absl::StrCat("'tools' has ", count, " entries; the limit is ", limits.tools_max, "."));
  std::vector<OfferedTool> offered;
  for (size_t i = 0; i < count && fields.ok(); ++i) {
    OfferedTool tool{.where = absl::StrCat("tools.[", i, "]")};
    if (!(*given)[i].is_object()) return fields.refuse(tool.where, "'" + tool.where + "' must be an object.");
    Fields inner((*given)[i], tool.where + ".");
    std::string type;
    inner.text("type", kNameBytesMax, type);
    if (inner.ok() && type.empty()) inner.refuse("type", "'" + inner.name("type") + "' is missing.");
    if (inner.ok() && type != "function" && type != "custom") {
      out.skipped_tools.push_back(type);
      continue;
    }
    read_tool(inner, type, tool);
    if (!inner.ok()) return fields.refuse(*inner.error());
    if (type == "custom") out.freeform_tools.insert(tool.name);
    out.echo["tools"].push_back(*parse_json(dump_ordered_json((*given)[i])));
    offered.push_back(std::move(tool));
  }
  take_tools(fields, offered, limits, tools);
  read_choice(fields, tools);
}

}  // namespace shoal
