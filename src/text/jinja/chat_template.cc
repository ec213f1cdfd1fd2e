#include "text/jinja/chat_template.h"

#include <algorithm>

#include "nlohmann/json.hpp"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/tokenizer/unicode.h"

namespace shoal {
namespace {

using jinja::DictObject;
using jinja::Interpreter;
using jinja::Kind;
using jinja::Value;

constexpr size_t kVariablesMax = 1024;

// Templates build control tokens around a message's role ('<|' + role + '|>'). The role is one of a few words, never
// free text, and counts as the template's own.
template <typename J>
bool is_known_role(std::string_view key, const J& value) {
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};
  if (key != "role" || !value.is_string()) return false;
  return std::find(std::begin(kRoles), std::end(kRoles), value.template get_ref<const std::string&>()) != std::end(kRoles);
}

// A value of a template from JSON of either kind. Depth is bounded by jinja::kValueDepthMax.
template <typename J>
Value from_json(Interpreter& in, const J& json, bool untrusted, uint32_t depth = 0) {
  if (depth > jinja::kValueDepthMax) jinja::fail("variables are nested deeper than ", jinja::kValueDepthMax);
  in.charge(1);
  switch (json.type()) {
    case nlohmann::json::value_t::boolean: return Value::boolean(json.template get<bool>());
    case nlohmann::json::value_t::number_integer: return Value::integer(json.template get<int64_t>(), untrusted);
    case nlohmann::json::value_t::number_unsigned: {
      const auto wide = json.template get<uint64_t>();
      if (wide > static_cast<uint64_t>(INT64_MAX)) return Value::real(static_cast<double>(wide), untrusted);
      return Value::integer(static_cast<int64_t>(wide), untrusted);
    }
    case nlohmann::json::value_t::number_float: return Value::real(json.template get<double>(), untrusted);
    case nlohmann::json::value_t::string: {
      const auto& text = json.template get_ref<const std::string&>();
      return Value::string(unicode::is_valid(text) ? text : unicode::sanitize(text), untrusted);
    }
    case nlohmann::json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(from_json(in, item, untrusted, depth + 1));
      return in.make_list(std::move(items), Kind::kList, untrusted);
    }
    case nlohmann::json::value_t::object: {
      DictObject* dict = in.make_dict();
      dict->untrusted = untrusted;
      for (const auto& [key, value] : json.items()) {
        const bool written_by_client = untrusted && !is_known_role(key, value);
        dict->set(Value::string(key, untrusted), from_json(in, value, written_by_client, depth + 1));
      }
      return Value::dict(dict);
    }
    default: return Value::none();
  }
}

std::vector<TextPart> to_parts(const MarkedText& text) {
  std::vector<TextPart> parts;
  for (size_t begin = 0; begin < text.text.size();) {
    const bool untrusted = text.untrusted(begin, begin + 1);
    size_t end = text.marks.empty() ? text.text.size()
                                    : text.marks.find(untrusted ? MarkedText::kTrusted : MarkedText::kUntrusted, begin);
    end = std::min(end, text.text.size());
    parts.push_back({text.text.substr(begin, end - begin), !untrusted});
    begin = end;
  }
  return parts;
}

class JinjaTemplate : public ChatTemplate {
 public:
  explicit JinjaTemplate(jinja::Body body) : body_(std::move(body)) {}

  StatusOr<std::vector<TextPart>> render(const Json& variables, const RenderOptions& options) const override {
    return render_any(variables, options);
  }
  StatusOr<std::vector<TextPart>> render_ordered(const OrderedJson& variables, const RenderOptions& options) const override {
    return render_any(variables, options);
  }

 private:
  template <typename J>
  StatusOr<std::vector<TextPart>> render_any(const J& variables, const RenderOptions& options) const {
    if (!variables.is_object()) return invalid_argument("template variables must be an object, not ", variables.type_name());
    try {
      Interpreter interpreter(options);
      auto* root = interpreter.make<jinja::Scope>();
      jinja::add_globals(interpreter, *root);
      const auto& untrusted = options.untrusted_variables;
      if (variables.size() > kVariablesMax) return invalid_argument("more than ", kVariablesMax, " template variables");
      for (const auto& [name, value] : variables.items()) {
        const bool is_untrusted = std::find(untrusted.begin(), untrusted.end(), name) != untrusted.end();
        // The name lives as long as `variables`, which outlive the rendering.
        root->set(name_of(variables, name), from_json(interpreter, value, is_untrusted));
      }
      return to_parts(interpreter.render(body_, *root));
    } catch (const jinja::Fault& fault) {
      return Status(fault.code, fault.message);
    }
  }
  template <typename J>
  static std::string_view name_of(const J& variables, const std::string& name) {
    return variables.find(name).key();
  }

  const jinja::Body body_;
};

}  // namespace

StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::parse(std::string_view source) {
  try {
    const std::string clean = unicode::is_valid(source) ? std::string(source) : unicode::sanitize(source);
    return std::make_unique<JinjaTemplate>(jinja::parse(clean));
  } catch (const jinja::Fault& fault) {
    return Status(fault.code, fault.message);
  }
}

StatusOr<std::vector<TextPart>> ChatTemplate::render_ordered(const OrderedJson& variables, const RenderOptions& options) const {
  return render(Json(variables), options);
}

std::string join(const std::vector<TextPart>& parts) {
  std::string text;
  for (const TextPart& part : parts) text += part.text;
  return text;
}

std::string text_or_nothing(const ChatTemplate& chat_template, const OrderedJson& variables) {
  const auto parts = chat_template.render_ordered(variables, {});
  return parts.ok() ? join(*parts) : std::string();
}

}  // namespace shoal
