// Puts one grammar together from parts: JSON schemas, regular expressions, literals and rules of one's own. The result
// is GBNF text, the only form in which a constraint travels.
//
//   GbnfBuilder builder;
//   ASSIGN_OR_RETURN(std::string arguments, builder.add_schema("arguments", schema));
//   builder.add_rule("root", GbnfBuilder::literal("<tool_call>") + " " + arguments + " " + GbnfBuilder::literal("</tool_call>"));
//   std::string gbnf = std::move(builder).text();
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/json.h"
#include "base/status.h"

namespace shoal {

class GbnfBuilder {
 public:
  // Adds rules that match the JSON texts which are valid under `schema`, compact or with a little white space (see
  // grammar/json_schema.h for what is supported). Returns the name of the rule to refer to: `rule_name`, with a number
  // if that is taken. InvalidArgument names the keyword and its place: "#/properties/a/pattern: ...".
  StatusOr<std::string> add_schema(std::string_view rule_name, const OrderedJson& schema);
  // Any JSON object; any JSON value.
  std::string json_object();
  std::string json_value();

  // A rule `name ::= body`. Returns the name it got, `name` with a number if that is taken. Characters that GBNF does
  // not allow in names become '-'.
  std::string add_rule(std::string_view name, std::string_view body);
  // A name that is not taken, for a rule whose body comes later (recursion). REQUIRES: set_rule() is called for it.
  std::string reserve(std::string_view name);
  void set_rule(const std::string& name, std::string body);
  // One of the rules that every schema shares; added when it is first asked for: value, object, array, string, char,
  // integer, number, boolean, null, ws (the white space allowed between parts).
  std::string shared(std::string_view name);

  // A GBNF literal that matches exactly `text`. REQUIRES: well-formed UTF-8.
  static std::string literal(std::string_view text);

  size_t bytes() const { return bytes_; }
  // All rules, "root" first.
  std::string text() &&;

 private:
  absl::flat_hash_set<std::string> names_;
  absl::flat_hash_map<std::string, std::string> shared_;          // its name in this grammar
  std::vector<std::pair<std::string, std::string>> rules_;
  size_t bytes_ = 0;
};

// Whole grammars for the plain cases.
StatusOr<std::string> gbnf_of_schema(const OrderedJson& schema);
StatusOr<std::string> gbnf_of_regex(std::string_view pattern);
StatusOr<std::string> gbnf_of_choice(const std::vector<std::string>& choices);  // at least one, none empty
std::string gbnf_of_json_object();

}  // namespace shoal
