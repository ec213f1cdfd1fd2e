#include "text/answers/call_grammar.h"

#include <algorithm>

#include "nlohmann/json.hpp"
#include "text/answers/loose_values.h"
#include "text/answers/space.h"
#include "text/grammar/gbnf_builder.h"
#include "text/tokenizer/unicode.h"

namespace shoal {
namespace {

constexpr size_t kControlBytesMax = 64;  // of a control token's spelling
constexpr std::string_view kHarmonyCall = " to=functions.";

class CallGrammar {
 public:
  explicit CallGrammar(const CallGrammarOptions& options) : options_(options), syntax_(options.syntax) {}

  StatusOr<Grammar> build() {
    std::vector<std::string> calls;
    for (const ToolSpec& tool : options_.tools) {
      if (!options_.only.empty() && tool.name != options_.only) continue;
      ASSIGN_OR_RETURN(std::string call, call_of(tool));
      calls.push_back(builder_.add_rule("call-" + tool.name, call));
    }
    std::string any = calls[0];
    for (size_t i = 1; i < calls.size(); ++i) any += " | " + calls[i];
    const std::string call = builder_.add_rule("call", any);
    const bool one = !options_.only.empty() || !options_.parallel || syntax_.shape == CallShape::kHarmony;
    const std::string begin(syntax_.begin);
    const std::string head = std::string(syntax_.section_begin) + std::string(syntax_.list_begin) + begin;
    // The marker that begins lazily constrained text has come already when the grammar begins to hold.
    const std::string trigger = options_.lazy ? trigger_text() : std::string();
    const size_t come = options_.lazy ? head.find(trigger) + trigger.size() : 0;
    const std::string first = syntax_.shape == CallShape::kHarmony ? "" : text(std::string_view(head).substr(come));
    std::string root = first + " " + call;
    if (!one) root += " (" + text(std::string(syntax_.between) + begin) + " " + call + ")*";
    root += " " + text(std::string(syntax_.list_end) + std::string(syntax_.section_end));
    if (!options_.lazy && options_.reasoning != nullptr && !options_.reasoning->begin.empty()) root = reasoning() + " " + root;
    builder_.add_rule("root", root);
    Grammar grammar{std::move(builder_).text(), {}};
    if (options_.lazy) grammar.triggers.push_back(trigger);
    return grammar;
  }

 private:
  // Text that must come as it is, control tokens in it as tokens.
  std::string text(std::string_view literal) {
    std::string out, plain;
    const auto flush = [&] {
      if (!plain.empty()) out += GbnfBuilder::literal(plain) + " ";
      plain.clear();
    };
    while (!literal.empty()) {
      if (const size_t size = control_size(literal); size > 0) {
        flush();
        out += absl::StrCat("<[", *options_.control_token(literal.substr(0, size)), "]> ");
        literal.remove_prefix(size);
      } else {
        plain += literal[0];
        literal.remove_prefix(1);
      }
    }
    flush();
    return out;
  }

  // The bytes of the longest control token that `literal` begins with.
  size_t control_size(std::string_view literal) const {
    for (size_t size = std::min(literal.size(), kControlBytesMax); size > 0; --size) {
      if (options_.control_token(literal.substr(0, size))) return size;
    }
    return 0;
  }

  // The first marker of a call, up to white space, for models are not exact about that.
  std::string trigger_text() const {
    if (syntax_.shape == CallShape::kHarmony) return std::string(trim(kHarmonyCall));
    std::string_view marker = trim(syntax_.section_begin.empty() ? syntax_.begin : syntax_.section_begin);
    marker = marker.substr(0, marker.find('\n'));
    const bool is_word = marker.find_first_of("<[") == std::string_view::npos;  // which may come in any text
    return std::string(marker) + std::string(is_word ? syntax_.list_begin : std::string_view());
  }

  std::string reasoning() {
    const ReasoningSyntax& syntax = *options_.reasoning;
    return "(" + text(trim(syntax.begin)) + " " + text_before(syntax.end) + " " + text(syntax.end) + " [ \\n]{0,4})?";
  }

  // Any text that does not hold `end`, which is text too or a control token.
  std::string text_before(std::string_view end) {
    end = trim(end);
    if (control_size(end) > 0 || end.empty()) return "[^\\x00]*";
    std::vector<std::string_view> letters;  // code points
    for (size_t at = 0; at < end.size(); at += unicode::step(end, at)) letters.push_back(end.substr(at, unicode::step(end, at)));
    const std::string first = set_letter(letters[0]);
    const bool again = std::find(letters.begin() + 1, letters.end(), letters[0]) != letters.end();
    if (again || letters.size() == 1) return "[^" + first + "]*";
    // Beginnings of `end` that do not become it: followed by another beginning, by what does not go on, or by the end.
    std::string prefixes, mismatches;
    for (size_t i = letters.size() - 1; i >= 1; --i) {
      const std::string c = GbnfBuilder::literal(letters[i]);
      const std::string differs = "[^" + first + set_letter(letters[i]) + "]";
      if (i < letters.size() - 1) prefixes = prefixes.empty() ? c + "?" : "(" + c + " " + prefixes + ")?";
      mismatches = mismatches.empty() ? differs : "(" + differs + " | " + c + " " + mismatches + ")";
    }
    const std::string open = GbnfBuilder::literal(letters[0]);
    const std::string prefix = "(" + open + " " + prefixes + ")*";
    return builder_.add_rule("text", "([^" + first + "] | " + prefix + " " + open + " " + mismatches + ")* " + prefix);
  }
  static std::string set_letter(std::string_view letter) {
    constexpr char kHex[] = "0123456789abcdef";
    if (letter.size() > 1) return std::string(letter);
    const auto byte = static_cast<unsigned char>(letter[0]);
    return std::string("\\x") + kHex[byte >> 4] + kHex[byte & 15];
  }

  StatusOr<std::string> call_of(const ToolSpec& tool) {
    switch (syntax_.shape) {
      case CallShape::kJsonCall: {
        ASSIGN_OR_RETURN(const std::string arguments, object_of(tool));
        const std::string name = dump_ordered_json(OrderedJson(tool.name));
        std::string head = "{" + name + ": ";
        if (!syntax_.name_key.empty()) {
          head = "{\"" + std::string(syntax_.name_key) + "\": " + name + ", \"" + std::string(syntax_.arguments_key) + "\": ";
        }
        return GbnfBuilder::literal(head) + " " + arguments + " \"}\" " + text(syntax_.end);
      }
      case CallShape::kNamedJson: {
        ASSIGN_OR_RETURN(const std::string arguments, object_of(tool));
        return name_of(tool) + arguments + " " + text(syntax_.end);
      }
      case CallShape::kTagged: {
        ASSIGN_OR_RETURN(const std::string arguments, tagged_arguments(tool));
        return name_of(tool) + arguments + " " + text(syntax_.end);
      }
      case CallShape::kPython: {
        ASSIGN_OR_RETURN(const std::string arguments, python_arguments(tool));
        return GbnfBuilder::literal(tool.name + "(") + " " + arguments + " \")\"";
      }
      case CallShape::kHarmony: {
        ASSIGN_OR_RETURN(const std::string arguments, object_of(tool));
        const std::string first = options_.lazy ? "" : harmony_first();
        return first + GbnfBuilder::literal(tool.name) + " (" + text("<|channel|>commentary") + ")? (\" \" (" +
               text("<|constrain|>") + ")? \"json\")? " + text("<|message|>") + arguments;
      }
      default: return invalid_argument("calls of the format '", std::string(syntax_.name), "' cannot be asked for");
    }
  }

  // Thoughts, then the recipient before or after the channel.
  std::string harmony_first() {
    return "(" + text("<|channel|>analysis<|message|>") + "[^\\x00]* " + text("<|end|><|start|>assistant") + ")? (" +
           text("<|channel|>commentary") + ")? " + GbnfBuilder::literal(kHarmonyCall) + " ";
  }

  std::string name_of(const ToolSpec& tool) {
    if (syntax_.index_end.empty()) return text(tool.name + std::string(syntax_.name_end));
    return text(tool.name + std::string(syntax_.name_end)) + "[0-9]{1,3} " + text(syntax_.index_end);
  }

  // The arguments as one JSON object.
  StatusOr<std::string> object_of(const ToolSpec& tool) {
    if (!is_object_schema(tool.parameters)) {
      if (tool.strict && tool.parameters.is_object() && !tool.parameters.empty()) {
        return invalid_argument("the parameters of '", tool.name, "' must be of type object");
      }
      return builder_.json_object();
    }
    auto rule = builder_.add_schema("arguments", tool.parameters);
    if (rule.ok()) return rule;
    if (tool.strict) return invalid_argument("the parameters of '", tool.name, "' are not usable: ", std::string(rule.status().message()));
    return builder_.json_object();
  }
  static bool is_object_schema(const OrderedJson& schema) {
    return schema.is_object() && (schema.value("type", OrderedJson()) == "object" || schema.contains("properties"));
  }

  // The properties one by one, those that are not required optional; `member` makes one.
  template <typename Member>
  StatusOr<std::vector<std::pair<std::string, bool>>> members(const ToolSpec& tool, Member&& member) {
    std::vector<std::pair<std::string, bool>> out;  // expression, required
    const OrderedJson none = OrderedJson::object();
    const OrderedJson& schema = tool.parameters.is_object() ? tool.parameters : none;
    const auto required = schema.find("required");
    const auto properties = schema.find("properties");
    if (properties == schema.end() || !properties->is_object()) return out;
    for (const auto& [key, property] : properties->items()) {
      // What "#/..." points to is in the whole schema.
      OrderedJson inner = property.is_object() ? property : none;
      for (const char* definitions : {"$defs", "definitions"}) {
        if (inner.is_object() && schema.contains(definitions)) inner[definitions] = schema[definitions];
      }
      auto expression = member(key, inner);
      if (!expression.ok() && tool.strict) {
        return invalid_argument("the parameters of '", tool.name, "' are not usable: ", std::string(expression.status().message()));
      }
      if (!expression.ok()) expression = member(key, none);
      if (!expression.ok()) return expression.status();
      const bool must = required != schema.end() && required->is_array() && std::find(required->begin(), required->end(), key) != required->end();
      out.emplace_back(*std::move(expression), must);
    }
    return out;
  }

  StatusOr<std::string> tagged_arguments(const ToolSpec& tool) {
    ASSIGN_OR_RETURN(const auto list, members(tool, [&](const std::string& key, const OrderedJson& schema) { return tagged(key, schema); }));
    std::string out;
    for (const auto& [expression, required] : list) out += required ? expression + " " : "(" + expression + ")? ";
    return out;
  }

  StatusOr<std::string> tagged(const std::string& key, const OrderedJson& schema) {
    const OrderedJson type = schema.value("type", OrderedJson());
    const bool is_string = type == "string";
    const std::string head = text(std::string(syntax_.key_begin) + key + std::string(syntax_.key_end));
    std::string attribute;
    if (!syntax_.attribute_end.empty()) {
      const bool by_type = syntax_.key_end.find("type") != std::string_view::npos;
      const std::string word = by_type ? (type.is_string() ? type.get<std::string>() : "object") : is_string ? "true" : "false";
      attribute = text(word == "integer" ? "number" : word) + text(syntax_.attribute_end);
    }
    std::string value;
    if (is_string && schema.contains("enum") && schema["enum"].is_array()) {
      for (const OrderedJson& word : schema["enum"]) {
        if (!word.is_string()) continue;
        value += (value.empty() ? "(" : " | ") + GbnfBuilder::literal(word.get<std::string>());
      }
      if (!value.empty()) value += ")";
    }
    if (is_string && value.empty()) {
      for (const char* keyword : {"pattern", "format", "minLength", "maxLength"}) {
        if (schema.contains(keyword)) return invalid_argument("#/properties/", key, "/", keyword, ": not supported for calls in tags");
      }
      value = text_before(syntax_.value_end);
    }
    if (value.empty()) {
      ASSIGN_OR_RETURN(value, builder_.add_schema("value", schema));
    }
    return head + attribute + value + " " + text(syntax_.value_end);
  }

  StatusOr<std::string> python_arguments(const ToolSpec& tool) {
    ASSIGN_OR_RETURN(const auto list, members(tool, [&](const std::string& key, const OrderedJson& schema) -> StatusOr<std::string> {
      ASSIGN_OR_RETURN(const std::string value, builder_.add_schema("value", schema));
      return GbnfBuilder::literal(key + "=") + " " + value;
    }));
    // From the last to the first: what may follow when something, or nothing, has come before.
    std::string after_some = "\"\"", after_none = "\"\"";
    for (size_t i = list.size(); i > 0; --i) {
      const auto& [expression, required] = list[i - 1];
      const std::string with = "(\", \" " + expression + " " + after_some + ")", first = "(" + expression + " " + after_some + ")";
      const std::string skipped_some = after_some, skipped_none = after_none;
      after_none = builder_.add_rule("first", required ? first : first + " | " + skipped_none);
      after_some = builder_.add_rule("next", required ? with : with + " | " + skipped_some);
    }
    return after_none;
  }

  const CallGrammarOptions& options_;
  const CallSyntax& syntax_;
  GbnfBuilder builder_;
};

}  // namespace

bool can_constrain(const CallSyntax& syntax, bool lazy) {
  if (syntax.shape == CallShape::kXml || syntax.shape == CallShape::kGemma) return false;
  return !lazy || !syntax.bare;  // nothing tells a call without markers from other text in time
}

StatusOr<Grammar> call_grammar(const CallGrammarOptions& options) { return CallGrammar(options).build(); }

}  // namespace shoal
