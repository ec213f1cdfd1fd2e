#include "text/answers/loose_values.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "nlohmann/json.hpp"
#include "text/answers/space.h"
#include "text/tokenizer/unicode.h"

namespace shoal {
namespace {

constexpr int kDepthMax = 64;
constexpr std::string_view kGemmaQuote = "<|\"|>";

std::optional<OrderedJson> json_of(std::string_view text) {
  auto parsed = parse_ordered_json(text, {.refuse_duplicate_keys = false});
  if (!parsed.ok()) return std::nullopt;
  return *std::move(parsed);
}

// The types a schema names anywhere at its top: "type", alternatives, the types of enum and const.
void collect_types(const OrderedJson& schema, int depth, std::set<std::string>& out) {
  if (!schema.is_object() || depth > 8) return;
  const auto json_type = [](const OrderedJson& value) -> std::string {
    if (value.is_number_integer()) return "integer";
    return value.is_number() ? "number" : std::string(value.type_name());
  };
  for (const auto& [key, value] : schema.items()) {
    if (key == "type" && value.is_string()) out.insert(value.get<std::string>());
    if (key == "const") out.insert(json_type(value));
    if (!value.is_array()) continue;
    for (const OrderedJson& item : value) {
      if (key == "type" && item.is_string()) out.insert(item.get<std::string>());
      if (key == "enum") out.insert(json_type(item));
      if (key == "anyOf" || key == "oneOf" || key == "allOf") collect_types(item, depth + 1, out);
    }
  }
}

// Values as Python and Gemma write them, which is nearly the same language.
class LooseReader {
 public:
  explicit LooseReader(std::string_view text) : text_(text) {}

  // key<separator>value, ... to the end of the text or to `close`.
  std::optional<OrderedJson> members(char separator, char close, int depth) {
    OrderedJson object = OrderedJson::object();
    while (!ends(close)) {
      const std::optional<std::string> key = this->key(separator);
      if (!key || !take(separator)) return std::nullopt;
      std::optional<OrderedJson> value = this->value(depth + 1);
      if (!value) return std::nullopt;
      object[*key] = *std::move(value);
      if (!take(',') && !ends(close)) return std::nullopt;
    }
    return object;
  }
  bool at_end() {
    skip_space();
    return text_.empty();
  }

 private:
  void skip_space() { text_ = trim_left(text_); }
  bool take(char c) {
    skip_space();
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool ends(char close) {
    skip_space();
    return close == '\0' ? text_.empty() : text_.starts_with(close);
  }

  std::optional<std::string> key(char separator) {
    skip_space();
    if (is_quote()) return string();
    const size_t size = std::min(text_.find(separator), text_.size());
    const std::string_view name = trim_right(text_.substr(0, size));
    if (name.empty() || name.find_first_of("\"'()[]{},=\n") != std::string_view::npos) return std::nullopt;
    text_.remove_prefix(size);
    return std::string(name);
  }

  bool is_quote() const { return text_.starts_with('"') || text_.starts_with('\'') || text_.starts_with(kGemmaQuote); }

  std::optional<std::string> string() {
    if (text_.starts_with(kGemmaQuote)) {
      const size_t end = text_.find(kGemmaQuote, kGemmaQuote.size());
      if (end == std::string_view::npos) return std::nullopt;
      std::string out(text_.substr(kGemmaQuote.size(), end - kGemmaQuote.size()));
      text_.remove_prefix(end + kGemmaQuote.size());
      return out;
    }
    const char quote = text_[0];
    std::string out;
    for (size_t i = 1; i < text_.size(); ++i) {
      if (text_[i] == quote) {
        text_.remove_prefix(i + 1);
        return out;
      }
      if (text_[i] == '\\' && ++i < text_.size()) {
        i += escape(text_.substr(i), out) - 1;
      } else if (i < text_.size()) {
        out += text_[i];
      }
    }
    return std::nullopt;
  }

  // What follows a backslash; how many bytes of it were read, at least one.
  static size_t escape(std::string_view rest, std::string& out) {
    constexpr std::string_view kLetters = "ntrbf0", kBytes = std::string_view("\n\t\r\b\f\0", 6);
    const char c = rest[0];
    if (const size_t at = kLetters.find(c); at != std::string_view::npos) return out += kBytes[at], 1;
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    if (digits == 0 || rest.size() <= digits) return out += c, 1;
    const char* const end = rest.data() + 1 + digits;
    if (std::from_chars(rest.data() + 1, end, code, 16).ptr != end) return out += c, 1;
    out += code < 0x110000 && (code < 0xd800 || code > 0xdfff) ? unicode::encode(code) : "\uFFFD";
    return digits + 1;
  }

  std::optional<OrderedJson> value(int depth) {
    skip_space();
    if (text_.empty() || depth > kDepthMax) return std::nullopt;
    if (is_quote()) {
      std::optional<std::string> text = string();
      return text ? std::optional<OrderedJson>(*std::move(text)) : std::nullopt;
    }
    if (take('[')) return list(']', depth);
    if (take('(')) return list(')', depth);
    if (take('{')) {
      std::optional<OrderedJson> object = members(':', '}', depth);
      return object && take('}') ? object : std::nullopt;
    }
    return word();
  }

  std::optional<OrderedJson> list(char close, int depth) {
    OrderedJson items = OrderedJson::array();
    while (!take(close)) {
      std::optional<OrderedJson> item = value(depth + 1);
      if (!item) return std::nullopt;
      items.push_back(*std::move(item));
      if (!take(',') && !ends(close)) return std::nullopt;
    }
    return items;
  }

  std::optional<OrderedJson> word() {
    const size_t size = std::min(text_.find_first_of(",)]} \t\r\n"), text_.size());
    const std::string_view word = text_.substr(0, size);
    text_.remove_prefix(size);
    if (word == "None" || word == "null") return OrderedJson(nullptr);
    if (word == "True" || word == "true") return OrderedJson(true);
    if (word == "False" || word == "false") return OrderedJson(false);
    std::optional<OrderedJson> number = json_of(word.starts_with('+') ? word.substr(1) : word);
    return number && number->is_number() ? number : std::nullopt;
  }

  std::string_view text_;
};

class XmlReader {
 public:
  XmlReader(std::string_view text, std::string_view mark) : text_(text), open_(std::string(mark) + "<") {}

  // Elements up to a closing tag or the end of the text.
  std::optional<OrderedJson> elements(const OrderedJson* schema, int depth) {
    if (depth > kDepthMax) return std::nullopt;
    OrderedJson object = OrderedJson::object(), list = OrderedJson::array();
    while (true) {
      text_ = trim_left(text_);
      if (text_.empty() || at_close()) break;
      if (!text_.starts_with(open_)) return std::nullopt;
      const size_t end = text_.find('>', open_.size());
      if (end == std::string_view::npos) return std::nullopt;
      const std::string name(text_.substr(open_.size(), end - open_.size()));
      text_.remove_prefix(end + 1);
      const bool is_item = name == "item" && object.empty();
      const OrderedJson* inner = schema == nullptr ? nullptr : is_item ? items_of(*schema) : property_schema(*schema, name);
      std::optional<OrderedJson> value = content(name, inner, depth);
      if (!value) return std::nullopt;
      if (is_item) {
        list.push_back(*std::move(value));
      } else if (list.empty()) {
        object[name] = *std::move(value);
      } else {
        return std::nullopt;
      }
    }
    return list.empty() ? object : list;
  }
  bool at_end() const { return text_.empty(); }

 private:
  bool at_close() const { return text_.starts_with(open_) && text_.substr(open_.size()).starts_with('/'); }
  static const OrderedJson* items_of(const OrderedJson& schema) {
    const auto it = schema.is_object() ? schema.find("items") : schema.end();
    return it == schema.end() ? nullptr : &*it;
  }

  std::optional<OrderedJson> content(const std::string& name, const OrderedJson* schema, int depth) {
    const std::string close = open_ + "/" + name + ">";
    std::optional<OrderedJson> value;
    if (const auto ahead = trim_left(text_); ahead.starts_with(open_) && !ahead.starts_with(close)) {
      value = elements(schema, depth + 1);
    } else {
      const size_t end = text_.find(open_);
      if (end == std::string_view::npos) return std::nullopt;
      value = typed_value(text_.substr(0, end), schema);
      text_.remove_prefix(end);
    }
    if (!value || !text_.starts_with(close)) return std::nullopt;
    text_.remove_prefix(close.size());
    return value;
  }

  std::string_view text_;
  const std::string open_;
};

}  // namespace

const OrderedJson* property_schema(const OrderedJson& schema, std::string_view key) {
  if (!schema.is_object()) return nullptr;
  const auto properties = schema.find("properties");
  if (properties == schema.end() || !properties->is_object()) return nullptr;
  const auto property = properties->find(std::string(key));
  return property == properties->end() ? nullptr : &*property;
}

OrderedJson typed_value(std::string_view text, const OrderedJson* schema) {
  std::set<std::string> types;
  if (schema != nullptr) collect_types(*schema, 0, types);
  const auto allows = [&](const char* type) { return types.empty() || types.count(type) > 0; };
  const auto as_string = [&] { return OrderedJson(unicode::sanitize(text)); };
  if (types.size() == 1 && allows("string")) return as_string();
  const std::string_view word = trim(text);
  if (allows("boolean") && (word == "True" || word == "true")) return true;
  if (allows("boolean") && (word == "False" || word == "false")) return false;
  if (allows("null") && (word == "None" || word == "null")) return nullptr;
  std::optional<OrderedJson> value = json_of(word);
  if (!value || (value->is_string() && allows("string"))) return as_string();
  const bool integer = value->is_number_integer() || (value->is_number() && std::string(word).find('.') == std::string::npos);
  const bool allowed = (value->is_number() && (allows("number") || (integer && allows("integer")))) ||
                       (value->is_array() && allows("array")) || (value->is_object() && allows("object")) ||
                       (!allows("string") && types.count("string") == 0);
  return allowed ? *std::move(value) : as_string();
}

std::optional<OrderedJson> python_arguments(std::string_view text) {
  LooseReader reader(text);
  auto arguments = reader.members('=', '\0', 0);
  return arguments && reader.at_end() ? arguments : std::nullopt;
}

std::optional<OrderedJson> gemma_arguments(std::string_view text) {
  LooseReader reader(text);
  auto arguments = reader.members(':', '\0', 0);
  return arguments && reader.at_end() ? arguments : std::nullopt;
}

std::optional<OrderedJson> xml_arguments(std::string_view text, std::string_view mark, const OrderedJson& schema) {
  XmlReader reader(text, mark);
  auto arguments = reader.elements(&schema, 0);
  if (!arguments || !reader.at_end() || (arguments->is_array() && !arguments->empty())) return std::nullopt;
  return arguments->is_array() ? OrderedJson::object() : arguments;
}

}  // namespace shoal
