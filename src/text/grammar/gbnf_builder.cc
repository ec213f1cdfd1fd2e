#include "text/grammar/gbnf_builder.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "text/grammar/json_schema.h"
#include "text/grammar/regex_gbnf.h"
#include "text/tokenizer/unicode.h"

namespace shoal {
namespace {

struct SharedRule {
  std::string_view name;
  std::string_view body;  // $x stands for the shared rule x
};

// Numbers and white space are bounded, so that no model can go on with them for ever. Escapes never spell surrogates,
// so that every string is well-formed text.
constexpr SharedRule kShared[] = {
    {"value", "$object | $array | $string | $number | $boolean | $null"},
    {"object", R"("{" $ws ($string ":" " "? $value ("," $ws $string ":" " "? $value)* $ws)? "}")"},
    {"array", R"("[" $ws ($value ("," $ws $value)* $ws)? "]")"},
    {"string", R"("\"" $char* "\"")"},
    {"char", R"([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" ([0-9abcefABCEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2})))"},
    {"integer", R"("-"? [1-9] [0-9]{0,15} | "0")"},
    {"number", R"("-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?)"},
    {"boolean", R"("true" | "false")"},
    {"null", R"("null")"},
    {"ws", R"((" " | "\n" [ \t]{0,20})?)"},
};

}  // namespace

std::string GbnfBuilder::reserve(std::string_view name) {
  std::string clean;
  for (const char c : name.substr(0, 64)) clean += absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : '-';
  if (clean.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(clean[0]))) clean.insert(0, "r");
  std::string unique = clean;
  for (size_t n = names_.size() + 1; !names_.insert(unique).second; ++n) unique = absl::StrCat(clean, "-", n);
  return unique;
}

void GbnfBuilder::set_rule(const std::string& name, std::string body) {
  bytes_ += name.size() + body.size() + 6;
  rules_.emplace_back(name, std::move(body));
}

std::string GbnfBuilder::add_rule(std::string_view name, std::string_view body) {
  std::string unique = reserve(name);
  set_rule(unique, std::string(body));
  return unique;
}

std::string GbnfBuilder::shared(std::string_view name) {
  if (const auto known = shared_.find(std::string(name)); known != shared_.end()) return known->second;
  const auto rule = std::find_if(std::begin(kShared), std::end(kShared), [&](const SharedRule& r) { return r.name == name; });
  const std::string own = reserve("json-" + std::string(name));
  shared_.emplace(std::string(name), own);
  std::string body;
  std::string_view rest = rule->body;
  for (size_t dollar; (dollar = rest.find('$')) != std::string_view::npos;) {
    body += rest.substr(0, dollar);
    rest.remove_prefix(dollar + 1);
    const size_t length = std::min(rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), rest.size());
    body += shared(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  set_rule(own, body + std::string(rest));
  return own;
}

std::string GbnfBuilder::json_object() { return shared("object"); }
std::string GbnfBuilder::json_value() { return shared("value"); }

StatusOr<std::string> GbnfBuilder::add_schema(std::string_view rule_name, const OrderedJson& schema) {
  return grammar::add_json_schema(*this, rule_name, schema);
}

std::string GbnfBuilder::literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          out += absl::StrFormat("\\x%02X", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

std::string GbnfBuilder::text() && {
  std::stable_partition(rules_.begin(), rules_.end(), [](const auto& rule) { return rule.first == "root"; });
  std::string out;
  for (const auto& [name, body] : rules_) absl::StrAppend(&out, name, " ::= ", body, "\n");
  return out;
}

StatusOr<std::string> gbnf_of_schema(const OrderedJson& schema) {
  GbnfBuilder builder;
  RETURN_IF_ERROR(builder.add_schema("root", schema).status());
  return std::move(builder).text();
}

StatusOr<std::string> gbnf_of_regex(std::string_view pattern) {
  ASSIGN_OR_RETURN(const std::string body, grammar::regex_to_gbnf(pattern, grammar::RegexUse::kWholeText));
  return "root ::= " + body + "\n";
}

StatusOr<std::string> gbnf_of_choice(const std::vector<std::string>& choices) {
  if (choices.empty()) return invalid_argument("the list of choices is empty");
  std::string body;
  for (const std::string& choice : choices) {
    if (choice.empty()) return invalid_argument("a choice is an empty text");
    if (!unicode::is_valid(choice)) return invalid_argument("a choice is not valid UTF-8");
    absl::StrAppend(&body, body.empty() ? "" : " | ", GbnfBuilder::literal(choice));
  }
  return "root ::= " + body + "\n";
}

std::string gbnf_of_json_object() {
  GbnfBuilder builder;
  builder.add_rule("root", builder.json_object());
  return std::move(builder).text();
}

}  // namespace shoal
