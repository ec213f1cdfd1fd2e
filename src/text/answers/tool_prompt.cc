#include "text/answers/tool_prompt.h"

#include <algorithm>

#include "base/rng.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr std::string_view kIdLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr size_t kShortId = 9;
constexpr const char* kProbeTools = R"([{"type":"function","function":{"name":"probe_tool","description":"Probes.",
  "parameters":{"type":"object","properties":{"probe_key":{"type":"string","description":"A key."}},"required":["probe_key"]}}}])";

// --- probing

class Probe {
 public:
  Probe(const RenderTemplate& render, const std::map<std::string, std::string>& variables)
      : render_(render), tools_(OrderedJson::parse(kProbeTools)) {
    for (const auto& [name, value] : variables) base_[name] = value;
    base_["documents"] = nullptr;
  }

  // Empty for what the template refuses.
  std::string render(const OrderedJson& messages, bool tools) const {
    OrderedJson variables = base_;
    variables["messages"] = messages;
    variables["tools"] = tools ? tools_ : OrderedJson(nullptr);
    variables["add_generation_prompt"] = false;
    return render_(variables);
  }

  bool prints_calls(bool as_text, bool null_content, const char* id) const {
    const std::string text = render(conversation(as_text, null_content, id), true);
    const bool escaped = text.find("\\\"probe_key\\\"") != std::string::npos;
    return !escaped && has(text, "probe_key") && has(text, "probe_value");
  }

  static OrderedJson user() { return {{"role", "user"}, {"content", "probe_question"}}; }
  static OrderedJson conversation(bool as_text, bool null_content, const char* id) {
    const OrderedJson arguments = {{"probe_key", "probe_value"}};
    const OrderedJson call = {{"id", id}, {"type", "function"}, {"function", {{"name", "probe_tool"}, {"arguments", as_text ? OrderedJson(arguments.dump()) : arguments}}}};
    return OrderedJson::array({user(),
                               {{"role", "assistant"}, {"content", null_content ? OrderedJson(nullptr) : OrderedJson("")}, {"tool_calls", OrderedJson::array({call})}},
                               {{"role", "tool"}, {"tool_call_id", id}, {"name", "probe_tool"}, {"content", "probe_result"}}});
  }
  static bool has(const std::string& text, const char* word) { return text.find(word) != std::string::npos; }

 private:
  const RenderTemplate& render_;
  const OrderedJson tools_;
  OrderedJson base_ = OrderedJson::object();
};

// --- what a template does not know, in words

std::string call_text(const OrderedJson& call, const CallSyntax& syntax) {
  const OrderedJson& function = call["function"];
  if (syntax.shape != CallShape::kPython) {
    const OrderedJson object = {{"name", function["name"]}, {"arguments", function["arguments"]}};
    return "<tool_call>\n" + dump_ordered_json(object) + "\n</tool_call>";
  }
  std::string text = function["name"].get<std::string>() + "(";
  for (const auto& [key, value] : function["arguments"].items()) {
    text += (text.ends_with('(') ? "" : ", ") + key + "=" + dump_ordered_json(value);
  }
  return text + ")";
}

void say_calls(OrderedJson& message, const CallSyntax& syntax) {
  const bool python = syntax.shape == CallShape::kPython;
  std::string text;
  for (const OrderedJson& call : message["tool_calls"]) {
    text += (text.empty() ? "" : python ? ", " : "\n") + call_text(call, syntax);
  }
  if (python) text = std::string(syntax.section_begin) + "[" + text + "]" + std::string(syntax.section_end);
  const std::string said = message["content"].is_string() ? message["content"].get<std::string>() : "";
  message["content"] = said.empty() ? text : said + "\n" + text;
  message.erase("tool_calls");
}

std::string tool_words(const OrderedJson& tools) {
  std::string text = "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
                     "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
  for (const OrderedJson& tool : tools) text += "\n" + dump_ordered_json(tool);
  return text + "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
                "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
                "<args-json-object>}\n</tool_call>";
}

void prepend_words(OrderedJson& messages, const std::string& words, bool system_role) {
  const char* const role = system_role ? "system" : "user";
  for (OrderedJson& message : messages) {
    const bool takes = message["role"] == role || (system_role && message["role"] == "developer");
    if (!takes) {
      if (system_role) break;  // a system message comes first or not at all
      continue;
    }
    const std::string said = message["content"].get<std::string>();
    message["content"] = system_role ? said + "\n\n" + words : words + "\n\n" + said;
    return;
  }
  messages.insert(messages.begin(), OrderedJson{{"role", role}, {"content", words}});
}

// Results become what the user says; those that follow each other become one message, for turns must alternate.
OrderedJson say_results(const OrderedJson& messages) {
  OrderedJson out = OrderedJson::array();
  bool in_results = false;
  for (const OrderedJson& message : messages) {
    const bool is_result = message["role"] == "tool";
    if (!is_result) {
      out.push_back(message);
    } else {
      const std::string text = "<tool_response>\n" + message["content"].get<std::string>() + "\n</tool_response>";
      if (in_results) {
        out.back()["content"] = out.back()["content"].get<std::string>() + "\n" + text;
      } else {
        out.push_back({{"role", "user"}, {"content", text}});
      }
    }
    in_results = is_result;
  }
  return out;
}

// An id of nine letters and digits that is the same for the same id.
void shorten_id(OrderedJson& object, const char* key) {
  if (!object.contains(key) || !object[key].is_string()) return;
  const std::string& id = object[key].get_ref<const std::string&>();
  const bool plain = std::all_of(id.begin(), id.end(), [](char c) { return kIdLetters.find(c) != std::string_view::npos; });
  if (plain && id.size() == kShortId) return;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  object[key] = call_id(true, hash);
}

void adapt_calls(OrderedJson& message, const TemplateTraits& traits, const CallSyntax& calls) {
  if (!traits.tool_calls) return say_calls(message, calls);
  for (OrderedJson& call : message["tool_calls"]) {
    OrderedJson& arguments = call["function"]["arguments"];
    if (traits.arguments_as_text) arguments = dump_ordered_json(arguments);
    if (traits.short_ids) shorten_id(call, "id");
  }
  const bool empty = message["content"].is_null() || message["content"] == "";
  if (empty) message["content"] = traits.null_content ? OrderedJson(nullptr) : OrderedJson("");
  // Harmony's templates have a name of their own for it, and take it only where there is no content.
  const bool thinks = calls.shape == CallShape::kHarmony && empty && message.contains("reasoning_content");
  if (thinks) message["thinking"] = message["reasoning_content"];
}

}  // namespace

TemplateTraits probe_template(const RenderTemplate& render, const std::map<std::string, std::string>& variables) {
  constexpr const char* kNineLetters = "call00001";
  const Probe probe(render, variables);
  TemplateTraits traits;
  const OrderedJson system = {{"role", "system"}, {"content", "probe_system"}};
  traits.system_role = Probe::has(probe.render(OrderedJson::array({system, Probe::user()}), false), "probe_system");
  traits.tools = Probe::has(probe.render(OrderedJson::array({Probe::user()}), true), "probe_tool");
  for (const auto& [as_text, null_content] : {std::pair(false, false), {false, true}, {true, false}, {true, true}}) {
    if (traits.tool_calls || !traits.tools || !probe.prints_calls(as_text, null_content, kNineLetters)) continue;
    traits.tool_calls = true;
    traits.arguments_as_text = as_text;
    traits.null_content = null_content;
    traits.short_ids = !probe.prints_calls(as_text, null_content, "call_0123456789abcdef01234567");
  }
  OrderedJson messages = Probe::conversation(traits.arguments_as_text, traits.null_content, kNineLetters);
  if (!traits.tool_calls) say_calls(messages[1], generic_calls());
  traits.tool_role = Probe::has(probe.render(messages, traits.tools), "probe_result");
  return traits;
}

OrderedJson adapt_messages(const OrderedJson& messages, const OrderedJson& tools, const TemplateTraits& traits,
                           const CallSyntax& calls) {
  OrderedJson out = messages;
  for (OrderedJson& message : out) {
    if (message["role"] == "function") message["role"] = "tool";
    if (message.contains("tool_calls")) adapt_calls(message, traits, calls);
    if (message["content"].is_null() && !message.contains("tool_calls")) message["content"] = "";
    if (traits.short_ids) shorten_id(message, "tool_call_id");
  }
  if (!tools.is_null() && !traits.tools) prepend_words(out, tool_words(tools), traits.system_role);
  return traits.tool_role ? out : say_results(out);
}

std::string call_id(bool is_short, uint64_t random) {
  std::string id = is_short ? "" : "call_";
  const size_t size = id.size() + (is_short ? kShortId : 24);
  for (uint64_t i = 0; id.size() < size; ++i) id += kIdLetters[counter_bits(random, i, 0) % kIdLetters.size()];
  return id;
}

}  // namespace shoal
