// Objects and arrays.
#include <algorithm>
#include <map>

#include "text/grammar/regex_gbnf.h"
#include "text/grammar/code_point_set.h"
#include "text/grammar/schema_lowering.h"
#include "text/tokenizer/unicode.h"

namespace shoal::grammar {
namespace {

constexpr size_t kMembersMax = 2000;

// A key is spelled as JSON, then as a literal of GBNF.
std::string key_literal(const std::string& name) { return GbnfBuilder::literal(OrderedJson(name).dump()); }

std::string member_text(const std::string& key, const std::string& value) { return key + " \":\" \" \"? " + value; }

// Names as a trie of code points.
struct NameTrie {
  bool name_ends = false;
  std::map<char32_t, NameTrie> next;
};

}  // namespace

// A rule for what is long: it is written down more than once.
std::string SchemaLowering::named(std::string_view name, std::string expression) {
  constexpr size_t kShort = 40;
  return expression.size() <= kShort ? expression : out_.add_rule(name, expression);
}

StatusOr<std::string> SchemaLowering::array(const OrderedJson& schema, const std::string& path) {
  ASSIGN_OR_RETURN(const auto least_stated, count_keyword(schema, "minItems", path));
  ASSIGN_OR_RETURN(auto most, count_keyword(schema, "maxItems", path));
  const auto items = schema.find("items");
  const bool tuple_items = items != schema.end() && items->is_array();
  const char* prefix_key = tuple_items ? "items" : "prefixItems";
  const char* rest_key = tuple_items ? "additionalItems" : "items";
  const OrderedJson prefix = schema.value(prefix_key, OrderedJson::array());
  if (!prefix.is_array()) return invalid_argument(child(path, prefix_key), ": must be a list of schemas");
  const bool rest_stated = schema.contains(rest_key);
  const OrderedJson rest = schema.value(rest_key, OrderedJson(true));
  const auto fixed = static_cast<uint32_t>(prefix.size());
  const uint32_t least = least_stated.value_or(fixed);
  // A tuple that does not say what follows it ends there, as far as minItems lets it.
  if (fixed > 0 && !rest_stated) most = std::min(most.value_or(UINT32_MAX), std::max(fixed, least));
  if (rest == false) most = std::min(most.value_or(fixed), fixed);
  if (most && *most < least) return invalid_argument(path, ": minItems and maxItems leave no length for this array");

  std::string other;
  if (!most || *most > fixed) {
    ASSIGN_OR_RETURN(other, expression(rest, child(path, rest_key)));
    other = named("item", std::move(other));
  }
  const std::string ws = out_.shared("ws");
  const std::string separator = "\",\" " + ws + " ";
  // Item i with all that may follow it, from the last to the first.
  std::string tail;
  if (!other.empty()) {
    const uint32_t low = least > fixed ? least - fixed : 0;
    const std::string bounds = absl::StrCat("{", fixed == 0 ? std::max(low, 1u) - 1 : low, ",", most ? absl::StrCat(*most - fixed - (fixed == 0)) : "", "}");
    tail = (fixed == 0 ? other + " " : "") + "(" + separator + other + ")" + bounds;
  }
  const uint32_t shown = std::min(fixed, most.value_or(UINT32_MAX));
  for (uint32_t i = shown; i-- > 0;) {
    ASSIGN_OR_RETURN(const std::string item, expression(prefix[i], child(child(path, prefix_key), absl::StrCat(i))));
    const bool optional = i >= least;
    tail = (i > 0 ? separator : "") + item + (tail.empty() ? "" : " " + tail);
    if (optional && i > 0) tail = "(" + tail + ")?";
  }
  if (tail.empty()) return "\"[\" " + ws + " \"]\"";
  const std::string content = "(" + tail + " " + ws + ")" + (least == 0 ? "?" : "");
  return "(\"[\" " + ws + " " + content + " \"]\")";
}

StatusOr<std::vector<SchemaLowering::Member>> SchemaLowering::members(const OrderedJson& schema, const std::string& path) {
  std::vector<Member> out;
  const OrderedJson properties = schema.value("properties", OrderedJson::object());
  const OrderedJson required = schema.value("required", OrderedJson::array());
  if (!properties.is_object()) return invalid_argument(child(path, "properties"), ": must be an object");
  if (properties.size() > kMembersMax) return invalid_argument(child(path, "properties"), ": has ", properties.size(), " entries; the limit is ", kMembersMax);
  if (!required.is_array() || required.size() > kMembersMax) return invalid_argument(child(path, "required"), ": must be a list of at most ", kMembersMax, " names");
  absl::flat_hash_set<std::string> wanted;
  for (const OrderedJson& name : required) {
    if (!name.is_string()) return invalid_argument(child(path, "required"), ": must be a list of names");
    wanted.insert(name.get<std::string>());
  }
  for (const auto& [name, value] : properties.items()) {
    const std::string where = child(child(path, "properties"), name);
    const bool needed = wanted.erase(name) > 0;
    if (value == false && !needed) continue;
    ASSIGN_OR_RETURN(std::string text, expression(value, where));
    out.push_back({member_text(key_literal(name), named(name, std::move(text))), needed});
  }
  // What is required and not declared may hold what additionalProperties says.
  for (const OrderedJson& name : required) {
    if (!wanted.contains(name.get<std::string>())) continue;
    wanted.erase(name.get<std::string>());
    const OrderedJson any = schema.value("additionalProperties", OrderedJson(true));
    ASSIGN_OR_RETURN(const std::string text, expression(any, child(path, "additionalProperties")));
    out.push_back({member_text(key_literal(name.get<std::string>()), text), true});
  }
  return out;
}

StatusOr<std::string> SchemaLowering::additional_member(const OrderedJson& schema, const std::string& path) {
  const bool declares = schema.contains("properties") && !schema["properties"].empty();
  const bool stated = schema.contains("additionalProperties");
  if (const auto patterns = schema.find("patternProperties"); patterns != schema.end() && patterns->is_object() && !patterns->empty()) {
    const std::string where = child(path, "patternProperties");
    const bool closed = !stated || schema["additionalProperties"] == false;
    if (declares || patterns->size() != 1 || !closed) {
      return invalid_argument(where, ": the keyword 'patternProperties' is supported with one pattern, without 'properties' and 'additionalProperties'");
    }
    const std::string& pattern = patterns->items().begin().key();
    const auto body = regex_to_gbnf(pattern, RegexUse::kJsonString);
    if (!body.ok()) return annotate(body.status(), child(where, pattern));
    ASSIGN_OR_RETURN(const std::string value, expression(patterns->items().begin().value(), child(where, pattern)));
    return member_text("\"\\\"\" (" + *body + ") \"\\\"\"", value);
  }
  const bool required_only = schema.contains("required") && !schema["required"].empty();
  if (!stated && (declares || required_only || schema.contains("unevaluatedProperties"))) return std::string();
  const OrderedJson value = schema.value("additionalProperties", OrderedJson(true));
  if (value == false) return std::string();
  std::vector<std::string> names;
  if (declares) {
    for (const auto& [name, unused] : schema["properties"].items()) names.push_back(name);
  }
  for (const OrderedJson& name : schema.value("required", OrderedJson::array())) names.push_back(name.get<std::string>());
  ASSIGN_OR_RETURN(const std::string text, expression(value, child(path, "additionalProperties")));
  return member_text(names.empty() ? out_.shared("string") : key_other_than(names), text);
}

// A key that is none of `names`, however it is written: it holds no escapes. One rule per place in the names' trie.
std::string SchemaLowering::key_other_than(const std::vector<std::string>& names) {
  NameTrie trie;
  for (const std::string& name : names) {
    NameTrie* node = &trie;
    for (size_t at = 0, bytes = 0; at < name.size(); at += bytes) node = &node->next[unicode::decode(name, at, &bytes)];
    node->name_ends = true;
  }
  const CodePointSet plain = CodePointSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).complement();
  const auto rule = [&](const auto& self, const NameTrie& node) -> std::string {
    CodePointSet others = plain;
    CodePointSet taken;
    std::vector<std::string> alternatives;
    for (const auto& [c, next] : node.next) {
      taken.add(c, c);
      if (!plain.contains(c)) continue;  // such a name cannot be spelled without escapes
      alternatives.push_back(CodePointSet({{c, c}}).gbnf() + " " + self(self, next));
    }
    alternatives.push_back(others.minus(taken).gbnf() + " " + plain.gbnf() + "* \"\\\"\"");
    if (!node.name_ends) alternatives.push_back("\"\\\"\"");
    std::string body = parenthesised(alternatives);
    return node.next.size() + alternatives.size() > 2 ? out_.add_rule("other-key", body) : body;
  };
  return "\"\\\"\" " + rule(rule, trie);
}

// Members in their order, with commas between those that are there. After the first member that must be there, each
// one brings its own comma; before it, whichever comes first has none.
std::string SchemaLowering::member_chain(const std::vector<Member>& members, const std::string& additional) {
  const std::string separator = "\",\" " + out_.shared("ws") + " ";
  std::string more = additional.empty() ? "" : "(" + separator + additional + ")*";
  const auto first_required = std::find_if(members.begin(), members.end(), [](const Member& m) { return m.required; });
  const size_t leading = static_cast<size_t>(first_required - members.begin());
  std::vector<std::string> heads;  // each begins the object
  if (leading == members.size() && !additional.empty()) heads.push_back(additional + (more.empty() ? "" : " " + more));
  std::string tail = more;         // what follows member i
  for (size_t i = members.size(); i-- > 0;) {
    if (i <= leading) {
      if (i > 0 && tail.find(' ') != std::string::npos) tail = out_.add_rule("members", tail);
      heads.push_back(members[i].text + (tail.empty() ? "" : " " + tail));
    }
    const std::string here = separator + members[i].text;
    tail = (members[i].required ? here : "(" + here + ")?") + (tail.empty() ? "" : " " + tail);
  }
  std::reverse(heads.begin(), heads.end());
  return heads.empty() ? "" : parenthesised(heads);
}

// An object all of whose members are alike: counted as an array is.
StatusOr<std::string> SchemaLowering::map_object(const std::string& member, const OrderedJson& schema, const std::string& path) {
  ASSIGN_OR_RETURN(const auto least, count_keyword(schema, "minProperties", path));
  ASSIGN_OR_RETURN(const auto most, count_keyword(schema, "maxProperties", path));
  if (least.value_or(0) > 1) return invalid_argument(child(path, "minProperties"), ": more than 1 is not supported, because keys might repeat");
  if (most && *most < least.value_or(0)) return invalid_argument(path, ": minProperties is more than maxProperties");
  const std::string ws = out_.shared("ws");
  if (most == 0u) return "(\"{\" " + ws + " \"}\")";
  const std::string bounds = most ? absl::StrCat("{0,", *most - 1, "}") : "*";
  return "(\"{\" " + ws + " (" + member + " (\",\" " + ws + " " + member + ")" + bounds + " " + ws + ")" + (least.value_or(0) == 0 ? "?" : "") + " \"}\")";
}

StatusOr<std::string> SchemaLowering::object(const OrderedJson& schema, const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<Member> all, members(schema, path));
  ASSIGN_OR_RETURN(const std::string additional, additional_member(schema, path));
  if (all.empty() && !additional.empty()) {
    const std::string member = out_.add_rule("member", additional);
    ASSIGN_OR_RETURN(const std::string body, map_object(member, schema, path));
    return out_.add_rule("map", body);
  }
  const auto needed = static_cast<uint32_t>(std::count_if(all.begin(), all.end(), [](const Member& m) { return m.required; }));
  ASSIGN_OR_RETURN(const auto least, count_keyword(schema, "minProperties", path));
  ASSIGN_OR_RETURN(const auto most, count_keyword(schema, "maxProperties", path));
  const bool enough = least.value_or(0) <= needed, not_too_many = !most || (*most >= all.size() && additional.empty());
  if (!enough || !not_too_many) {
    return invalid_argument(child(path, enough ? "maxProperties" : "minProperties"), ": is supported for objects without declared properties, or where 'required' implies it");
  }
  const std::string ws = out_.shared("ws");
  std::string additional_rule = additional.empty() ? "" : out_.add_rule("member", additional);
  const std::string chain = member_chain(all, additional_rule);
  if (chain.empty()) return out_.add_rule("object", "\"{\" " + ws + " \"}\"");
  const bool may_be_empty = needed == 0;
  return out_.add_rule("object", "\"{\" " + ws + " (" + chain + " " + ws + ")" + (may_be_empty ? "?" : "") + " \"}\"");
}

}  // namespace shoal::grammar
